"""The way back: uses again what is good again, and looks for what nobody has taken home."""

from __future__ import annotations

from typing import TYPE_CHECKING

from foliot_remediator.core.actions.decision_request import DecisionRequest
from foliot_remediator.core.scheduling import Round

if TYPE_CHECKING:
    from collections.abc import Iterator

    from foliot_remediator.core.actions.decision import Decision
    from foliot_remediator.core.actions.fleet_view import FleetView
    from foliot_remediator.core.actions.route_kind import RouteDecider
    from foliot_remediator.core.routing.reroute_plan import ReroutePlan, ReroutePlanner
    from foliot_remediator.core.state.incidents import Incident
    from foliot_remediator.core.state.retention import Retained
    from foliot_remediator.core.state.routing_table import Cause

_AT_ONCE = 16
"""Nodes looked at in a tick of 10 ms: some 20 us each."""


class Restorer:
    """Decides for who holds the lease. It looks only at nodes with traffic away from home, in a round."""

    def __init__(
        self, view: FleetView, planner: ReroutePlanner, routes: RouteDecider, incidents: Retained[str, Incident]
    ) -> None:
        self._decider, self._routing = view.decider, view.routing
        self._planner = planner
        self._routes = routes
        self._incidents = incidents
        self._round = Round(round(view.settings.review_s * 1e9))

    def put_off(self, node: str, now_ns: int) -> None:
        """Puts off a node that says it moved what nobody told it to.

        The event that calls for that has an interval to be heard of.
        """
        self._round.wait(node, now_ns)

    def use(self, who: str, cause: Cause, now_ns: int) -> list[Decision]:
        """Uses again a NIC or path that is up again."""
        return self._restore(self._planner.use(who, now_ns), who, cause, now_ns)

    def look(self, now_ns: int) -> Iterator[Decision]:
        """Looks at the nodes whose turn it is, of those with anything away.

        A move for which the budget leaves no room comes later; it was refused when it first was to be made.
        """
        for node in self._due(now_ns):
            for nic, cause in self._planner.overdue_back(node):
                yield from self._restore_some(self._planner.use_nic(nic, now_ns), nic, cause, now_ns)
            for cause, plan in self._planner.overdue_home(node, now_ns).items():
                yield from self._restore_some(plan, node, cause, now_ns)
            yield from self._nearer(node, now_ns)

    def _due(self, now_ns: int) -> Iterator[str]:
        """The nodes whose turn it is. A node that is all home has none until something moves again.

        None has its turn before it has been astray for an interval. An agent that moves by itself may be heard of
        before the event that says why. Until then its NIC seems up, and is dead.
        """
        for node in self._routing.strayed:
            if node not in self._round:
                self._round.wait(node, now_ns)
        self._routing.strayed.clear()
        for _ in range(_AT_ONCE):
            stray = self._round.take(now_ns)
            if stray is None:
                return
            if self._routing.is_astray(stray):
                yield stray
            else:
                self._round.leave(stray)

    def _nearer(self, node: str, now_ns: int) -> Iterator[Decision]:
        """Takes traffic that a path's trouble sent to another rail back to its own, where no trouble needs moves."""
        for incident, plan in self._planner.nearer(node, self._incidents, now_ns):
            if self._routes.has_room(plan, now_ns):
                request = DecisionRequest("reroute", incident.who, incident.cause, now_ns, now_ns)
                yield from self._routes.decide(request, plan)[0]

    def _restore_some(self, plan: ReroutePlan, who: str, cause: Cause, now_ns: int) -> list[Decision]:
        if plan.parts and not self._routes.has_room(plan, now_ns, whole=False):
            return []
        return self._restore(plan, who, cause, now_ns)

    def _restore(self, plan: ReroutePlan, who: str, cause: Cause, now_ns: int) -> list[Decision]:
        """Decides to use again what a plan brings back; what that leaves away is looked for later."""
        if not self._decider.lease:
            return []
        return self._routes.decide(DecisionRequest("restore", who, cause, now_ns, now_ns), plan)[0]
