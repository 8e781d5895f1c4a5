"""From a plan to commands: the guards speak, then what is left is commanded and taken to be in force."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import msgspec

from foliot_remediator.core.actions.command_ledger import CommandLedger, Sent
from foliot_remediator.core.actions.guards import Budgets, Objection, Refusals, object_to_clocks, stale_clocks
from foliot_remediator.core.routing.reroute_plan import NodeChanges
from foliot_remediator.core.state.inventory import Destination
from foliot_remediator.core.state.routing_table import Cause
from foliot_schemas import Command, Event, Verb  # noqa: TC001 - msgspec reads annotations at run time

if TYPE_CHECKING:
    from foliot_remediator.core.routing.reroute_plan import ReroutePlan
    from foliot_remediator.core.state.inventory import Inventory
    from foliot_remediator.core.state.path_health import PathHealth
    from foliot_remediator.core.state.routing_table import RoutingTable
    from foliot_remediator.settings import Policy, RemediatorSettings
    from foliot_schemas import Outcome
    from foliot_schemas.event import Evidence


class Decision(msgspec.Struct, frozen=True, kw_only=True):
    """What is published because of one event, or because its time has come: one span of the fault's trace."""

    verb: Verb
    who: str
    """NIC or path."""
    cause: str
    fault: str
    commands: tuple[Command, ...] = ()
    refusals: tuple[Event, ...] = ()


class DecisionRequest(NamedTuple):
    """What is to be decided."""

    verb: Verb
    who: str
    cause: Cause
    base_ns: int
    """What the deadline counts from."""
    now_ns: int


class Decider:
    """Holds the guards, and what is on its way."""

    def __init__(
        self, settings: RemediatorSettings, inventory: Inventory, health: PathHealth, routing: RoutingTable
    ) -> None:
        self.ledger = CommandLedger()
        self.lease = 0
        self._settings = settings
        self._policies: dict[str, Policy] = {"reroute": settings.reroute, "restore": settings.restore}
        self._inventory = inventory
        self._health = health
        self._routing = routing
        self._budgets = Budgets(settings)
        self._refusals = Refusals()

    def has_room(self, plan: ReroutePlan, now_ns: int, *, whole: bool = True) -> bool:
        """Whether a plan that could wait need not, or not all of it."""
        moves = sum(part.moves for part in plan.parts.values())
        allowed = self._budgets.allowed(moves, now_ns, can_wait=True)
        return allowed == moves if whole else allowed > 0

    def refuse(self, request: DecisionRequest, *objections: Objection) -> Decision | None:
        """The refusals, as far as they have not been said yet."""
        return self._decision(request, (), objections)

    def decide(self, request: DecisionRequest, plan: ReroutePlan) -> tuple[Decision | None, bool]:
        """The decision on a plan, None if there is nothing to publish; and whether something is left to be tried again."""
        policy = self._policies.get(request.verb, "off")  # what nobody has permitted is not done
        objections = []
        if plan.stranded:
            evidence: Evidence = {
                "stranded": len(plan.stranded),
                "destinations": plan.looked_at,
                "node": plan.stranded[0].node,
            }
            objections.append(Objection(guard="no-alternative", evidence=evidence))
        if plan.parts and policy == "off":
            objection = Objection(guard="policy", evidence={"policy": policy, "nodes": len(plan.parts)})
            return self.refuse(request, *objections, objection), False
        parts, corroboration = self._certain(request, plan, advice=policy == "advise")
        objections += corroboration
        if policy == "act":
            parts, over = self._within_budget(request, parts)
            objections += over
        commands = tuple(self._command(request, node, part, advice=policy == "advise") for node, part in parts.items())
        return self._decision(request, commands, objections), bool(objections)

    def revert(self, sent: Sent) -> None:
        """The node did not do it: beliefs go back to what they were."""
        self._apply(sent.command.node, sent.undo, sent.cause)

    def take_report(self, outcome: Outcome) -> bool:
        """A node moved by itself, or as a former holder of the lease told it; whether any of that counts.

        What it was commanded to since then stands. A report may come late, behind commands about other things: after the bus was away.
        """
        if outcome.status not in {"done", "already"}:
            return False
        node, routing, cause = outcome.node, self._routing, Cause(outcome.id, outcome.fault)

        def stands(rail: str, peer: str = "") -> bool:
            return outcome.started_ns > self.ledger.commanded_ns(node, rail, peer)

        rails, knows = self._inventory.rails(node), self._inventory.knows
        away, back = (
            [rail for rail in told if rail in rails and stands(rail)] for told in (outcome.away, outcome.back)
        )
        for rail in away:
            routing.leave(node, rail, cause)
        for rail in back:
            routing.come_back(node, rail)
        overruled = {*outcome.away, *outcome.back} - {*away, *back}
        placements = [
            way
            for way in outcome.placements
            if way.rail not in overruled and knows(node, way) and stands(way.rail, way.peer)
        ]
        for way in placements:
            destination = Destination(node, way.peer, way.rail)
            if (node, way.rail) in routing.away:
                routing.backups.setdefault(node, {})[way.peer, way.rail] = way
            elif routing.placed(destination) != way:
                routing.place(destination, way, cause)
        return bool(away or back or placements)

    # -- inside -------------------------------------------------------------------------------------------------------

    def _certain(
        self, request: DecisionRequest, plan: ReroutePlan, *, advice: bool
    ) -> tuple[dict[str, NodeChanges], list[Objection]]:
        """The plan without the nodes that cannot be commanded."""
        parts = {node: part for node, part in plan.parts.items() if part.moves}
        objections = []
        stale = stale_clocks(parts, self._health, self._settings, request.now_ns)
        if stale:
            objections.append(object_to_clocks(stale, len(parts)))
        done = {node for node in parts if self._is_done_with(request, node, advice=advice)}
        return {node: part for node, part in parts.items() if node not in stale and node not in done}, objections

    def _is_done_with(self, request: DecisionRequest, node: str, *, advice: bool) -> bool:
        if advice:
            return self.ledger.advised(request.cause, request.verb, node)
        return self.ledger.is_resting(request.cause, request.verb, node, request.now_ns, self._settings.attempts)

    def _within_budget(
        self, request: DecisionRequest, parts: dict[str, NodeChanges]
    ) -> tuple[dict[str, NodeChanges], list[Objection]]:
        """As much of a plan as the budgets allow, in its order; and why the rest has to wait."""
        if not parts:
            return parts, []
        away = {(node, rail) for node, part in parts.items() for rail in part.away}
        more = away.difference(self._routing.away)
        too_many = self._budgets.object_to_nics(len(self._routing.away) + len(more), self._inventory.own_nics)
        if more and too_many is not None:
            return {}, [too_many]
        now_ns, lost = request.now_ns, self._lost(request)
        moves = sum(part.moves for part in parts.values())
        room = self._budgets.allowed(moves, now_ns, lost=lost, can_wait=request.verb == "restore")
        taken: dict[str, NodeChanges] = {}
        busy, most_busy = self.ledger.busy, self._settings.nodes_at_once
        spent = 0
        for node, part in parts.items():
            busier = busy + (not self.ledger.is_busy(node))
            fitting = part.within(room - spent)
            if busier > most_busy or not fitting.moves:
                continue
            taken[node], busy, spent = fitting, busier, spent + fitting.moves
        objections = []
        if room < moves:
            evidence: Evidence = {
                "moves": moves,
                "moved_last_minute": self._budgets.moved(now_ns, lost=lost),
                "moves_per_minute": self._settings.moves_per_minute,
                "moves_now": spent,
            }
            objections.append(Objection(guard="moves-per-minute", evidence=evidence))
        wanted = self.ledger.busy + sum(not self.ledger.is_busy(node) for node in parts)
        if wanted > most_busy:
            evidence = {"nodes": wanted, "nodes_at_once": most_busy, "nodes_now": len(taken)}
            objections.append(Objection(guard="nodes-at-once", evidence=evidence))
        return taken, objections

    def _lost(self, request: DecisionRequest) -> str:
        """The lost NIC that a plan is for; empty: it is for something else."""
        return request.who if request.verb == "reroute" and request.who in self._inventory.nics else ""

    def _command(self, request: DecisionRequest, node: str, parts: NodeChanges, *, advice: bool) -> Command:
        command = self.ledger.write(
            node, request.verb, parts, request.cause, issued_ns=request.now_ns, lease=self.lease, advice=advice,
            # A node whose clock is ahead dates its events so; nobody's deadline is to be later for that.
            deadline_ns=min(request.base_ns, request.now_ns) + round(self._settings.deadline_s * 1e9),
        )  # fmt: skip
        if not advice:
            self._budgets.spend(parts.moves, request.now_ns, lost=self._lost(request))
            undo = self._apply(node, parts, request.cause)
            self.ledger.send(Sent(command, request.who, request.cause, undo))
        return command

    def _apply(self, node: str, parts: NodeChanges, cause: Cause) -> NodeChanges:
        """Takes what was commanded to be in force; returns what undoes it."""
        undo, routing = NodeChanges(), self._routing
        for rail in parts.away:
            if routing.leave(node, rail, cause):
                undo.back.append(rail)
        for rail in parts.back:
            if routing.come_back(node, rail):
                undo.away.append(rail)
        for way in parts.placements:
            destination = Destination(node, way.peer, way.rail)
            undo.placements.append(routing.placed(destination))
            routing.place(destination, way, cause)
        return undo

    def _decision(
        self,
        request: DecisionRequest,
        commands: tuple[Command, ...],
        objections: list[Objection] | tuple[Objection, ...],
    ) -> Decision | None:
        refusals = tuple(
            event
            for objection in objections
            for event in self._refusals.say(
                objection, verb=request.verb, who=request.who, cause=request.cause, now_ns=request.now_ns
            )
        )
        if not commands and not refusals:
            return None
        return Decision(
            verb=request.verb, who=request.who, cause=request.cause.event, fault=request.cause.fault,
            commands=commands, refusals=refusals,
        )  # fmt: skip
