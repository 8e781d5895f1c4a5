"""From orders to commands: the guards speak, then what is left is commanded and taken to be in force."""

from __future__ import annotations

import collections
import functools
from typing import TYPE_CHECKING

import msgspec

from foliot.bus.recent_ids import RecentIds
from foliot_remediator.core.actions.command_ledger import CommandLedger, Sent
from foliot_remediator.core.actions.guards import Objection, object_to_clocks, refusal
from foliot_remediator.core.state.routing_table import FIRST
from foliot_remediator.settings import strictest
from foliot_schemas import Command, Event, Verb  # noqa: TC001 - msgspec reads annotations at run time

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from foliot_remediator.core.actions.action_kinds import ActionKind
    from foliot_remediator.core.actions.decision_request import DecisionRequest
    from foliot_remediator.core.actions.guards import Budget
    from foliot_remediator.core.state.path_health import PathHealth
    from foliot_remediator.settings import RemediatorSettings
    from foliot_schemas import Order
    from foliot_schemas.event import Evidence

_REMEMBERED = 8_192
"""Refusals remembered so as not to be repeated: half an hour of them at 300 events/s, one in 60 refused."""


class Decision(msgspec.Struct, frozen=True, kw_only=True):
    """Commands and refusals published because of one event, or as its time has come: one span of the fault's trace."""

    verb: Verb
    who: str
    """NIC or path, or what else it is about."""
    cause: str
    fault: str
    commands: tuple[Command, ...] = ()
    refusals: tuple[Event, ...] = ()


class Decider:
    """Holds the guards, what is on its way, and whether anything may be commanded."""

    def __init__(self, settings: RemediatorSettings, health: PathHealth) -> None:
        self.ledger = CommandLedger()
        self.lease = 0
        """The revision of the lease that is held; 0: others speak."""
        self.held = 0
        """The last revision that was held."""
        self.lost_lease = False
        """It held the lease, lost it, and knows of nobody who took it."""
        self.budgets: dict[str, Budget] = {}
        """By remedy."""
        self._nodes_at_once = settings.nodes_at_once
        self._clock_stale_ns = round(settings.clock_stale_s * 1e9)
        self._kinds: dict[str, ActionKind] = {}
        self._health = health
        self._said: collections.defaultdict[str, RecentIds] = collections.defaultdict(
            functools.partial(RecentIds, _REMEMBERED)
        )
        """Refusals, by remedy."""

    def register(self, remedy: str, budget: Budget, kinds: Iterable[ActionKind]) -> None:
        """Takes a remedy's budget, and the verbs that it brings.

        Raises:
            ValueError: the remedy or one of the verbs is there already.
        """
        if remedy in self.budgets:
            raise ValueError(f"there are two remedies named {remedy}")
        self.budgets[remedy] = budget
        for kind in kinds:
            if self._kinds.setdefault(kind.verb, kind) is not kind:
                raise ValueError(f"the verb {kind.verb} has two kinds of action")

    def nodes_at_once(self, remedy: str) -> int:
        """How many nodes may have commands to answer for this remedy to command one more; half is left to failover."""
        most = self.budgets[remedy].nodes_at_once
        return most if remedy == FIRST else min(most, self._nodes_at_once // 2)

    @property
    def speaks(self) -> bool:
        """Whether refusals are to be said: a process that stands by is silent."""
        return bool(self.lease) or self.lost_lease

    def refuse(self, request: DecisionRequest, *objections: Objection) -> list[Decision]:
        """A decision with the refusals that have not been said yet, if there are any."""
        return self._decision(request, (), objections)

    def decide(
        self, request: DecisionRequest, orders: Mapping[str, Order], *said: Objection
    ) -> tuple[list[Decision], bool]:
        """The decision on orders by node, if there is anything to publish, and whether anything is left to try again.

        Parameters:
            said: objections that are published with it.
        """
        kind = self._kinds.get(request.verb)
        policy = "off" if kind is None else strictest(kind.policy, request.policy)
        if kind is None or policy == "off":  # what nobody has permitted is not done
            if not orders:
                return self.refuse(request, *said), bool(said)
            objection = Objection(guard="policy", evidence={"policy": "off", "nodes": len(orders)})
            return self.refuse(request, *said, objection), False
        advice = policy == "advise"
        allowed, objections = self._certain(request, kind, orders, advice=advice)
        if not advice:
            allowed, over = self._within_budget(request, kind, allowed)
            objections += over
        commands = tuple(self._command(request, kind, node, order, advice=advice) for node, order in allowed.items())
        return self._decision(request, commands, [*said, *objections]), bool(said or objections)

    def revert(self, sent: Sent) -> None:
        """Makes beliefs what they were before, as the node did not do it."""
        if sent.undo is not None:
            self._kinds[sent.command.verb].apply(sent.command.node, sent.undo, sent.cause)

    # -- inside -------------------------------------------------------------------------------------------------------

    def _certain(
        self, request: DecisionRequest, kind: ActionKind, orders: Mapping[str, Order], *, advice: bool
    ) -> tuple[dict[str, Order], list[Objection]]:
        """The orders without the nodes that cannot be commanded."""
        wanted = {node: order for node, order in orders.items() if kind.units(order)}
        stale, objections = object_to_clocks(wanted, self._health, self._clock_stale_ns, request.now_ns)
        excluded = {*stale, *(node for node in wanted if self.ledger.is_done_with(request, node, advice=advice))}
        return {node: order for node, order in wanted.items() if node not in excluded}, objections

    def _within_budget(
        self, request: DecisionRequest, kind: ActionKind, orders: dict[str, Order]
    ) -> tuple[dict[str, Order], list[Objection]]:
        """As much as the budget of the remedy allows, in its order; and why the rest has to wait."""
        if not orders:
            return orders, []
        if (against := kind.object_to(orders, request.remedy)) is not None:
            return {}, [against]
        budget, now_ns, lost = self.budgets[request.remedy], request.now_ns, kind.lost(request.who)
        moves = sum(kind.units(order) for order in orders.values())
        room = budget.allowed(moves, now_ns, lost=lost, can_wait=kind.can_wait)
        taken: dict[str, Order] = {}
        busy, most_busy = len(self.ledger.busy), self.nodes_at_once(request.remedy)
        spent = 0
        for node, order in orders.items():
            busier = busy + (node not in self.ledger.busy)
            fitting = kind.within(order, room - spent)
            if busier > most_busy or fitting is None or not kind.units(fitting):
                continue
            taken[node], busy, spent = fitting, busier, spent + kind.units(fitting)
        objections = []
        if room < moves:
            evidence: Evidence = {
                "moves": moves,
                "moved_last_minute": budget.moved(now_ns, lost=lost),
                "moves_per_minute": budget.per_minute,
                "moves_now": spent,
            }
            objections.append(Objection(guard="moves-per-minute", evidence=evidence))
        wanted = len(self.ledger.busy) + sum(node not in self.ledger.busy for node in orders)
        if wanted > most_busy:
            evidence = {"nodes": wanted, "nodes_at_once": most_busy, "nodes_now": len(taken)}
            objections.append(Objection(guard="nodes-at-once", evidence=evidence))
        return taken, objections

    def _command(self, request: DecisionRequest, kind: ActionKind, node: str, order: Order, *, advice: bool) -> Command:
        command = self.ledger.write(request, node, order, lease=self.lease, advice=advice)
        if not advice:
            self.budgets[request.remedy].spend(kind.units(order), request.now_ns, lost=kind.lost(request.who))
            undo = kind.apply(node, order, request.cause)
            self.ledger.send(Sent(command, order, request.who, request.cause, undo, request.remedy))
            kind.sent(command, order)
        return command

    def _decision(
        self, request: DecisionRequest, commands: tuple[Command, ...], objections: Iterable[Objection]
    ) -> list[Decision]:
        events = (refusal(objection, request) for objection in objections)
        refusals = tuple(event for event in events if self._said[request.remedy].add(event.id))
        if not commands and not refusals:
            return []
        decision = Decision(
            verb=request.verb, who=request.who, cause=request.cause.event, fault=request.cause.fault,
            commands=commands, refusals=refusals,
        )  # fmt: skip
        return [decision]
