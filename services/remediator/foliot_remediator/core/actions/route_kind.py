"""The verbs `reroute` and `restore`: service addresses go another way, which is then believed to be in force."""

from __future__ import annotations

from typing import TYPE_CHECKING

from foliot_remediator.core.actions.guards import Objection, object_to_nics
from foliot_remediator.core.actions.unanswered import is_ours, parts
from foliot_remediator.core.routing.reroute_plan import NodeChanges
from foliot_remediator.core.state.inventory import Destination
from foliot_remediator.core.state.routing_table import FIRST, Cause
from foliot_schemas import Reroute, Restore
from foliot_schemas.orders import verb_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from foliot_remediator.core.actions.decision import Decision
    from foliot_remediator.core.actions.decision_request import DecisionRequest
    from foliot_remediator.core.actions.fleet_view import FleetView
    from foliot_remediator.core.routing.reroute_plan import ReroutePlan
    from foliot_remediator.settings import Policy
    from foliot_schemas import Command, Outcome
    from foliot_schemas.event import Evidence

_ORDERS: dict[str, type[Reroute | Restore]] = {"reroute": Reroute, "restore": Restore}


class RouteKind:
    """One of the two verbs, see `ActionKind`.

    Of other classes of traffic it believes nothing: the remedy that orders those keeps what is in force.
    """

    def __init__(self, order: type[Reroute | Restore], view: FleetView) -> None:
        self.verb = verb_of(order)
        self.policy: Policy = view.settings.reroute if order is Reroute else view.settings.restore
        self.can_wait = order is Restore
        self._settings, self._inventory, self._routing = view.settings, view.inventory, view.routing

    def units(self, order: Reroute | Restore) -> int:
        """The number of service addresses, or whole rails, that are sent another way."""
        return len(order.away) + len(order.back) + len(order.placements)

    def within(self, order: Reroute | Restore, units: int) -> Reroute | Restore:
        """As much of an order as so many units are.

        Rails that are left come first. Rails that are used again come only with all that is to stay elsewhere then.
        """
        if self.units(order) <= units:
            return order
        away = order.away[:units]
        return type(order)(traffic=order.traffic, away=away, placements=order.placements[: units - len(away)])

    def object_to(self, orders: Mapping[str, Reroute | Restore], remedy: str) -> Objection | None:
        """The objection if too many NICs would be away at once: that is no failure of NICs.

        Those that another remedy sent away do not keep failover from a lost one.
        """
        present = self._routing.away
        away = {(node, rail) for node, order in orders.items() if is_ours(order) for rail in order.away}
        more = away.difference(present)
        counted = self._routing.away_by[FIRST] if remedy == FIRST else len(present)
        return object_to_nics(self._settings, counted + len(more), self._inventory.own_nics) if more else None

    def lost(self, who: str) -> str:
        """The NIC that traffic is to leave; empty: none."""
        return who if self.verb == "reroute" and who in self._inventory.nics else ""

    def apply(self, node: str, order: Reroute | Restore, cause: Cause) -> Reroute | Restore | None:
        """Takes what was commanded to be in force; returns what undoes it."""
        if not is_ours(order):
            return None
        undo, routing = NodeChanges(), self._routing
        for rail in order.away:
            if routing.leave(node, rail, cause):
                undo.back.append(rail)
        for rail in order.back:
            if routing.come_back(node, rail):
                undo.away.append(rail)
        for way in order.placements:
            destination = Destination(node, way.peer, way.rail)
            undo.placements.append(routing.placed(destination))
            routing.place(destination, way, cause)
        return undo.order(Reroute)

    def sent(self, command: Command, order: Reroute | Restore) -> None:
        """Notes when the node was told these ways: what it says of them later counts, what it said before does not."""
        if is_ours(order):
            for part in parts(order):
                self._routing.told_ns[Destination(command.node, *part)] = command.issued_ns


class RouteDecider:
    """Decides on plans of routes, and takes what nodes say of their own."""

    def __init__(self, view: FleetView) -> None:
        self.kinds = tuple(RouteKind(order, view) for order in _ORDERS.values())
        self._decider, self._inventory, self._routing = view.decider, view.inventory, view.routing
        self._reports = view.health.reports

    def decide(self, request: DecisionRequest, plan: ReroutePlan) -> tuple[list[Decision], bool]:
        """See `Decider.decide`. Destinations for which nothing can be done make an objection as well."""
        objections = []
        if plan.stranded:
            first = plan.stranded[0].node
            evidence: Evidence = {"stranded": len(plan.stranded), "destinations": plan.looked_at, "node": first}
            objections.append(Objection(guard="no-alternative", evidence=evidence))
        kind = _ORDERS[request.verb]
        return self._decider.decide(request, {node: part.order(kind) for node, part in plan.parts.items()}, *objections)

    def has_room(self, plan: ReroutePlan, now_ns: int, *, whole: bool = True) -> bool:
        """Whether the budget has room for a plan that can wait or, if not `whole`, for a part of it."""
        moves = sum(part.moves for part in plan.parts.values())
        allowed = self._decider.budgets[FIRST].allowed(moves, now_ns, can_wait=True)
        return allowed == moves if whole else allowed > 0

    def take_report(self, outcome: Outcome, now_ns: int) -> bool:
        """Takes the report of a node that moved by itself, or as a former holder of the lease told it.

        Returns whether any of that counts. Later commands and moves of the node stand. After the bus was away, a
        report may come late, behind commands about other things. One that waited for its confirmation may come behind
        a later one.
        """
        if outcome.status not in {"done", "already"}:
            return False
        node, routing = outcome.node, self._routing
        left_ns = self._reports.here_ns(node, outcome.started_ns, now_ns)
        cause = Cause(outcome.id, outcome.fault, left_ns=left_ns)

        def told_ns(peer: str, rail: str) -> int:
            at_ns = routing.told_ns.get(Destination(node, peer, rail)) or 0
            return at_ns if at_ns <= now_ns else 0  # the reference was set back since

        def stands(rail: str, peer: str = "") -> bool:
            return outcome.started_ns > max(told_ns(peer, rail), told_ns("", ""))

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
        for peer, rail in [("", rail) for rail in away + back] + [(way.peer, way.rail) for way in placements]:
            # A clock that was ahead must not overrule what is said once it is put right.
            routing.told_ns[Destination(node, peer, rail)] = min(outcome.started_ns, now_ns)
        return bool(away or back or placements)
