"""The way back: uses again what is good again, and looks for what nobody has taken home."""

from __future__ import annotations

from typing import TYPE_CHECKING

from foliot_remediator.core.actions.decision import Decision, DecisionRequest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from foliot_remediator.core.actions.route_kind import RouteDecider
    from foliot_remediator.core.routing.reroute_plan import ReroutePlan, ReroutePlanner
    from foliot_remediator.core.state.displaced import Displaced
    from foliot_remediator.core.state.incidents import Incident
    from foliot_remediator.core.state.retention import Retained
    from foliot_remediator.core.state.routing_table import Cause


class Restorer:
    """Decides for who holds the lease."""

    def __init__(
        self, planner: ReroutePlanner, routes: RouteDecider, incidents: Retained[Incident], displaced: Displaced
    ) -> None:
        self._planner = planner
        self._routes = routes
        self._incidents = incidents
        self._displaced = displaced

    def use(self, who: str, cause: Cause, now_ns: int) -> Decision | None:
        """Uses again a NIC or path that is up again."""
        return self._restore(self._planner.use(who, now_ns), who, cause, now_ns)

    def look(self, now_ns: int) -> Iterator[Decision | None]:
        """Looks at the nodes whose turn it is, of those with anything away.

        A move for which the budget leaves no room comes later; it was refused when it first was to be made.
        """
        for node in self._displaced.due(now_ns):
            for nic, cause in self._planner.overdue_back(node):
                yield self._restore_some(self._planner.use_nic(nic, now_ns), nic, cause, now_ns)
            for cause, plan in self._planner.overdue_home(node, now_ns).items():
                yield self._restore_some(plan, node, cause, now_ns)
            yield from self._nearer(node, now_ns)

    def _nearer(self, node: str, now_ns: int) -> Iterator[Decision | None]:
        """Takes back to its own rail the traffic that a path's trouble sent to another, where no trouble needs the moves."""
        for incident, plan in self._planner.nearer(node, self._incidents, now_ns):
            if self._routes.has_room(plan, now_ns):
                request = DecisionRequest("reroute", incident.who, incident.cause, now_ns, now_ns)
                yield self._routes.decide(request, plan)[0]

    def _restore_some(self, plan: ReroutePlan, who: str, cause: Cause, now_ns: int) -> Decision | None:
        if plan.parts and not self._routes.has_room(plan, now_ns, whole=False):
            return None
        return self._restore(plan, who, cause, now_ns)

    def _restore(self, plan: ReroutePlan, who: str, cause: Cause, now_ns: int) -> Decision | None:
        """Decides to use again what a plan brings back.

        What a refusal, a failure or a restart leaves away is looked for later.
        """
        if not self._routes.lease:
            return None
        return self._routes.decide(DecisionRequest("restore", who, cause, now_ns, now_ns), plan)[0]
