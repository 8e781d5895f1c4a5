"""The remedy of losses: it leaves NICs and paths that fail, and uses them again when they are good again."""

from __future__ import annotations

from typing import TYPE_CHECKING

from foliot_remediator.core.actions.decision_request import DecisionRequest
from foliot_remediator.core.actions.fleet_view import is_refusal
from foliot_remediator.core.actions.guards import Budget, Objection
from foliot_remediator.core.actions.remedy import register
from foliot_remediator.core.actions.route_kind import RouteDecider
from foliot_remediator.core.events.corroboration import Corroboration
from foliot_remediator.core.events.event_log import EventLog, input_of
from foliot_remediator.core.recovery.probation import Probation
from foliot_remediator.core.recovery.restore import Restorer
from foliot_remediator.core.recovery.takeover import put_on_probation
from foliot_remediator.core.routing.reroute_plan import ReroutePlanner
from foliot_remediator.core.scheduling import DueQueue
from foliot_remediator.core.state.incidents import Incident
from foliot_remediator.core.state.inventory import nics_of
from foliot_remediator.core.state.retention import Retained
from foliot_remediator.core.state.routing_table import FIRST, Cause
from foliot_remediator.core.state.state_machine import Input, State
from foliot_schemas import Event, Outcome, PortState
from foliot_schemas.fault import port_fault
from foliot_schemas.names import node_of, parse_path

if TYPE_CHECKING:
    from collections.abc import Collection

    from foliot_remediator.core.actions.command_ledger import Sent
    from foliot_remediator.core.actions.decision import Decision
    from foliot_remediator.core.actions.fleet_view import FleetView
    from foliot_remediator.core.actions.guards import Guard
    from foliot_remediator.core.actions.remedy import Seen
    from foliot_schemas.event import Evidence

_LEAST_CONFIDENCE = 0.5
"""Least confidence of an event. The detector gives 0.5 where one side alone knows."""
_GRACE_NS = 100_000_000
"""How long a node whose agent is armed has for moving by itself, and for saying so, before it is commanded."""
_STALE_NS = 2_000_000_000
"""An event older than this is not acted upon before an observation confirms it."""
_RETRY_NS = 500_000_000
"""How often what could not be moved is looked at again."""
_MISSED_NS = 2_000_000_000
"""If reports say for this long that a port is good and no event said so, the event was missed."""


class Losses:
    """See `Remedy`. It orders `reroute` and `restore` of service addresses."""

    name = FIRST
    priority = 0
    hears_traffic = False

    def __init__(self, view: FleetView) -> None:
        settings = view.settings
        self.inventory, self.health = view.inventory, view.health
        self.budget = Budget(settings.moves_per_minute, settings.nodes_at_once)
        self._view = view
        self._decider = view.decider
        self._routes = RouteDecider(view)
        self.kinds = self._routes.kinds
        self._planner = ReroutePlanner(view.inventory, view.health, view.routing, view.selector)
        self._recovery = Probation(view)
        self._incidents: Retained[str, Incident] = Retained(nics_of)
        self._retries = DueQueue()
        """When to look at each incident again."""
        self._review_ns = round(settings.review_s * 1e9)
        self._record = EventLog()
        self._restorer = Restorer(view, self._planner, self._routes, self._incidents)
        self._corroboration = Corroboration(view.health)

    def hold(self, now_ns: int) -> None:
        """Judges what is in force, and looks at every loss."""
        for who in put_on_probation(self._view, self._record, now_ns):
            self._recovery.watch(who, now_ns)
        for incident in self._incidents.values():
            incident.restate = False  # what was done for it is known, by whomever it was
            self._retries.put(incident.who, now_ns)

    def observe(self, seen: Seen, news: Collection[str], now_ns: int) -> list[Decision]:
        """Takes events and reports, and moves that nodes made by themselves."""
        for who in news:
            self._corroboration.hurry(who, now_ns)
        match seen:
            case Event():
                return self._take_event(seen, now_ns)
            case PortState():
                self._take_port(seen, now_ns)
            case Outcome():
                if self._routes.take_report(seen, now_ns):
                    self._view.mark_changed((seen.node,))
                    self._restorer.put_off(seen.node, now_ns)
        return []

    def tick(self, overdue: Collection[Sent], now_ns: int) -> list[Decision]:
        """Looks again at what was refused, and brings back what is good again."""
        made: list[Decision] = []
        for who in self._recovery.recovered(now_ns):
            made += self._restorer.use(who, self._cause(who), now_ns)
        for event, against in self._corroboration.look(now_ns):
            if not self._is_known(event):
                continue  # it has left the fleet meanwhile
            if against:
                made += self._object("contradicted", event.who, _cause_of(event), now_ns, against)
            else:
                made += self._feed(event, now_ns)
        if not self._decider.lease:
            return made
        for who in self._retries.take(now_ns):
            if incident := self._incidents.get(who):
                made += self._leave(incident, now_ns, now_ns)
        made += self._view.ask_again(overdue, now_ns)
        made += self._restorer.look(now_ns)
        return made

    def settle(self, sent: Sent, outcome: Outcome, now_ns: int) -> list[Decision]:
        """Tries again what was not done."""
        if not is_refusal(outcome):
            return []
        incident = self._incidents.get(sent.who)
        if incident is not None:
            incident.by_rule = incident.by_rule and not sent.command.away
            self._retries.put(incident.who, now_ns)
        return self._view.take_back(sent, outcome, now_ns)

    def forget(self, nics: Collection[str]) -> None:
        """See `Remedy`."""
        for nic in nics:
            for memory in (self._record, self._recovery, self._incidents, self._corroboration):
                memory.forget(nic)

    def forget_node(self, node: str) -> None:
        """Forgets a node that has left the fleet for good."""
        self._view.routing.told_ns.forget(node)

    # -- events -------------------------------------------------------------------------------------------------------

    def _take_event(self, event: Event, now_ns: int) -> list[Decision]:
        if input_of(event) is None or self._record.is_old(event):
            return []
        if not self._is_known(event):
            return self._object("unknown", event.who, _cause_of(event), now_ns, {"kind": event.kind})
        self._record.take(event)
        if event.confidence < _LEAST_CONFIDENCE:
            evidence: Evidence = {"confidence": event.confidence, "least_confidence": _LEAST_CONFIDENCE}
            return self._object("confidence", event.who, _cause_of(event), now_ns, evidence)
        return [] if self._corroboration.holds(event, now_ns) else self._feed(event, now_ns)

    def _is_known(self, event: Event) -> bool:
        return event.who in self.inventory.nics if event.kind == "flap" else self.inventory.path(event.who) is not None

    def _feed(self, event: Event, now_ns: int) -> list[Decision]:
        given, is_nic = input_of(event), event.kind == "flap"
        if given is None:
            return []
        # Who tells of it: the NIC's own node, or the path's receiver.
        node = node_of(event.who.rpartition(">")[2].partition("#")[0])
        at_ns, since_ns = (self.health.reports.here_ns(node, ns, now_ns) for ns in (event.at_ns, event.since_ns))
        if is_nic:
            self._recovery.damp(event, at_ns)
        # An event that comes late, after a restart say, counts from when it was: else a day's losses would be those of
        # one moment. A clock that was set back does not make undone when it came into its state.
        fed_ns = max(at_ns, self.health.since_ns(event.who)) if now_ns - at_ns > _STALE_NS else now_ns
        if fed_ns < now_ns:
            self.health.settle(event.who, fed_ns)
        before = self.health.feed(event.who, given, fed_ns)
        after = self.health.state(event.who)
        if after is not State.DOWN:
            self._incidents.pop(event.who)
            if after is State.PROBATION:
                self._recovery.watch(event.who, now_ns)
            return []
        if before is State.DOWN and event.who in self._incidents:
            return []
        incident = Incident(
            who=event.who, is_nic=is_nic, cause=_cause_of(event), at_ns=at_ns, since_ns=since_ns,
            lossy=given is Input.LOSSY, restate=before is not State.PROBATION,
        )  # fmt: skip
        self._incidents[incident.who] = incident
        if not is_nic:
            self._view.mark_affected((node_of(parse_path(event.who).source),))  # it may be a backup there
        if is_nic and self.inventory.nodes[self.inventory.nics[event.who][0]].armed:
            # Its agent and those of its peers act before a command could reach them; what they have not done by then is
            # commanded.
            incident.restate = False
            self._retries.put(incident.who, now_ns + _GRACE_NS)
            return []
        return self._leave(incident, at_ns, now_ns)

    # -- away ---------------------------------------------------------------------------------------------------------

    def _leave(self, incident: Incident, base_ns: int, now_ns: int) -> list[Decision]:
        """Moves what a lost NIC or path carries, and sees to it that what could not be moved is looked at again."""
        if not self._decider.lease:
            return self._object("lease", incident.who, incident.cause, now_ns, {"held": self._decider.held})
        plan = self._planner.leave(incident, now_ns)
        age_ns = now_ns - incident.at_ns
        if plan.looked_at and age_ns > _STALE_NS and not self.health.confirms(incident, now_ns):
            self._retries.put(incident.who, now_ns + _RETRY_NS)
            evidence: Evidence = {"age_ms": age_ns / 1e6, "stale_ms": _STALE_NS / 1e6}
            return self._object("stale-observation", incident.who, incident.cause, now_ns, evidence)
        # A loss that an observation has just confirmed is to be left within a deadline's time from now, however old its
        # event is.
        base_ns = now_ns if age_ns > _STALE_NS else base_ns
        request = DecisionRequest("reroute", incident.who, incident.cause, base_ns, now_ns)
        decisions, unresolved = self._routes.decide(request, plan)
        incident.restate = False
        self._retries.put(incident.who, now_ns + (_RETRY_NS if unresolved else self._review_ns))
        return decisions

    # -- small change -------------------------------------------------------------------------------------------------

    def _take_port(self, port: PortState, now_ns: int) -> None:
        """Ports confirm events, and stand in for those that were missed."""
        if port.nic not in self.inventory.nics or self.health.state(port.nic) is not State.DOWN:
            return
        if self.health.said_good_ns(port.nic, self.health.since_ns(port.nic)) >= _MISSED_NS:
            self.health.feed(port.nic, Input.CARRIER_BACK, now_ns)
            self._incidents.pop(port.nic)
            self._recovery.watch(port.nic, now_ns)
        elif port.nic not in self._incidents and not (port.carrier and port.admin_up):
            cause = self._cause(port.nic)
            incident = Incident(who=port.nic, is_nic=True, cause=cause, at_ns=now_ns, since_ns=now_ns, restate=False)
            self._incidents[incident.who] = incident
            self._retries.put(incident.who, now_ns)

    def _cause(self, who: str) -> Cause:
        """The last event of a NIC or path.

        Where none was seen of a NIC, it is the loss that its port's own report names. Where none was seen of a path, it
        is the loss that sent its traffic elsewhere.
        """
        port = self.health.ports.get(who)
        fault = port_fault(port.word.fault, who, port.word.carrier_down_count, port.word.index) if port else ""
        cause = self._record.cause(who, fault)
        return cause if cause.fault else self._planner.cause_of(who) or cause

    def _object(self, guard: Guard, who: str, cause: Cause, now_ns: int, evidence: Evidence) -> list[Decision]:
        """Refuses what an event calls for. A process that stands by is silent."""
        if not self._decider.speaks:
            return []
        objection = Objection(guard=guard, evidence=evidence)
        return self._decider.refuse(DecisionRequest("reroute", who, cause, now_ns, now_ns), objection)


def _cause_of(event: Event) -> Cause:
    return Cause(event.id, event.fault)


register(FIRST, Losses)
