"""The core: what happened in, decisions out. Deterministic; the time comes with the calls."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from foliot.node.shard import WHOLE
from foliot_remediator.core.actions.decision import Decider, Decision, DecisionRequest
from foliot_remediator.core.actions.guards import Objection
from foliot_remediator.core.actions.outcomes import Outcomes
from foliot_remediator.core.events.corroboration import Corroboration
from foliot_remediator.core.events.event_log import EventLog, input_of
from foliot_remediator.core.recovery.probation import Probation
from foliot_remediator.core.recovery.restore import Restorer
from foliot_remediator.core.recovery.takeover import Takeover
from foliot_remediator.core.routing.backup_arming import BackupArmer, BackupArming
from foliot_remediator.core.routing.path_selection import PathSelector
from foliot_remediator.core.routing.reroute_plan import ReroutePlanner
from foliot_remediator.core.state.displaced import Displaced
from foliot_remediator.core.state.incidents import Incident, Incidents
from foliot_remediator.core.state.inventory import Inventory
from foliot_remediator.core.state.path_health import PathHealth
from foliot_remediator.core.state.routing_table import Cause, RoutingTable
from foliot_remediator.core.state.state_machine import Hold, Input, State
from foliot_schemas import DelayBatch, Event, Node, NodePaths, Outcome, PortState
from foliot_schemas.fault import port_fault
from foliot_schemas.names import node_of, parse_path

if TYPE_CHECKING:
    from foliot.node.shard import Shard
    from foliot_remediator.core.actions.guards import Guard
    from foliot_remediator.settings import RemediatorSettings
    from foliot_schemas.event import Evidence

Seen: TypeAlias = Event | DelayBatch | Outcome | Node | NodePaths | PortState
Action: TypeAlias = Decision | BackupArming

_MISSED_NS = 2_000_000_000
"""Reports that a port is good for this long, while no event said so: the event was missed."""
_AWAY_NS = 60_000_000_000
"""Whoever has left the fleet for so long has left: agents that restart, and a bus that lost its store, are back in a few seconds."""


class Remediator:
    """Keeps what is known, and answers every message with what to publish.

    Of a shard, it commands the shard's nodes alone. What it knows of their peers is what they exchange, which is what they need.
    """

    def __init__(self, settings: RemediatorSettings, shard: Shard = WHOLE) -> None:
        self._shard = shard
        self.inventory = Inventory(shard)
        holds_s = settings.probation_s, settings.longest_probation_s, settings.forget_s
        self.health = PathHealth(settings, Hold(*(round(hold_s * 1e9) for hold_s in holds_s)), self.inventory)
        self._settings = settings
        self._selector = PathSelector(self.inventory, self.health, settings)
        self.routing = RoutingTable(self._selector.primary)
        self._planner = ReroutePlanner(self.inventory, self.health, self.routing, self._selector)
        self._decider = Decider(settings, self.inventory, self.health, self.routing)
        self._armer = BackupArmer(settings, self.inventory, self.routing, self._selector)
        self._recovery = Probation(settings, self.inventory, self.health, self._selector)
        self._incidents = Incidents()
        displaced = Displaced(self.routing, round(settings.review_s * 1e9))
        self._answers = Outcomes(self._decider, self._armer, self._incidents, displaced)
        self._record = EventLog()
        self._restorer = Restorer(settings, self._planner, self._decider, self._incidents, displaced)
        self._corroboration = Corroboration(self.health)
        self._adoption = Takeover(self.inventory, self.health, self.routing, self._selector, self._record)
        self._gone: dict[str, tuple[int, set[str]]] = {}
        """Nodes that left, or left NICs behind: when, and which NICs."""
        self._held = 0
        self._lost_lease = False
        """It held the lease, lost it, and knows of nobody who took it."""
        self._highest_lease = 0
        self._grace_ns = round(settings.armed_grace_s * 1e9)
        self._retry_ns = round(settings.retry_s * 1e9)
        self._review_ns = round(settings.review_s * 1e9)
        self._stale_ns = round(settings.stale_s * 1e9)

    @property
    def lease(self) -> int:
        """The revision of the lease that it holds; 0: it stands by."""
        return self._decider.lease

    def hold(self, revision: int, now_ns: int) -> None:
        """Takes (> 0) or loses (0) the lease. Who stands by knows everything and issues nothing."""
        if revision == self.lease:
            return
        self._lost_lease = not revision
        self._decider.lease = revision
        if revision:
            self._held = revision
            self._take_over(now_ns)

    def observe(self, seen: Seen, now_ns: int) -> list[Action]:
        """Takes a message. Of those about a node, none counts that the inventory does not have.

        Raises:
            ValueError: a batch does not fit together.
        """
        match seen:
            case Event() if self.inventory.concerns(seen.who):
                return self._take_event(seen, now_ns)
            case DelayBatch() if seen.node in self.inventory.nodes:
                for path in self.health.take_delays(seen, now_ns):
                    self._corroboration.hurry(path, now_ns)
            case PortState() if self.inventory.has_nic(seen.nic, seen.node):
                self._take_port(seen, now_ns)
            case Outcome() if seen.node in self.inventory.nodes and self.inventory.owns(seen.node):
                return self._done(*self._answers.take(seen, now_ns))
            case Node():
                self._take_node(self._shard.narrow(seen), now_ns)
            case NodePaths() if seen.node in self.inventory.nodes and self.inventory.owns(seen.node):
                self._take_paths(seen)
        return []

    def tick(self, now_ns: int) -> list[Action]:
        """Takes the passing of time: what was refused is looked at again, what is good again comes back, backups are renewed."""
        actions: list[Action] = []
        self._forget(now_ns)
        for who in self._recovery.recovered(now_ns):
            actions += self._done(self._restorer.use(who, self._cause(who), now_ns))
        for event, given, cause, against in self._corroboration.look(now_ns):
            if not self._is_known(event):
                continue  # it has left the fleet meanwhile
            if against:
                actions += self._object("contradicted", event.who, cause, now_ns, against)
            else:
                actions += self._feed(event, given, cause, now_ns)
        if not self.lease:
            return actions
        for incident in self._incidents.due(now_ns):
            actions += self._leave(incident, now_ns, now_ns)
        for sent in self._decider.ledger.overdue(now_ns):
            actions += self._done(*self._answers.miss(sent, now_ns))
        for decision in self._restorer.look(now_ns):
            actions += self._done(decision)
        return actions + self._armer.write(self.lease, now_ns)

    # -- events -------------------------------------------------------------------------------------------------------

    def _take_event(self, event: Event, now_ns: int) -> list[Action]:
        if event.kind == "process" and (node := event.who.partition("/")[0]) in self.inventory.nodes:
            (self.health.dead.add if event.state == "dead" else self.health.dead.discard)(node)
        given = input_of(event)
        if given is None or self._record.is_old(event):
            return []
        known = self._is_known(event)
        cause = self._record.take(event) if known else Cause(event.id, event.fault)
        if not known:
            return self._object("unknown", event.who, cause, now_ns, {"kind": event.kind})
        if event.confidence < self._settings.least_confidence:
            evidence: Evidence = {"confidence": event.confidence, "least_confidence": self._settings.least_confidence}
            return self._object("confidence", event.who, cause, now_ns, evidence)
        return [] if self._corroboration.holds(event, given, cause, now_ns) else self._feed(event, given, cause, now_ns)

    def _is_known(self, event: Event) -> bool:
        return event.who in self.inventory.nics if event.kind == "flap" else self.inventory.path(event.who) is not None

    def _feed(self, event: Event, given: Input, cause: Cause, now_ns: int) -> list[Action]:
        is_nic = event.kind == "flap"
        if is_nic:
            self._recovery.damp(event, now_ns)
        # Who tells of it: the NIC's own node, or the path's receiver.
        node = node_of(event.who.rpartition(">")[2].partition("#")[0])
        at_ns, since_ns = (self.health.reports.here_ns(node, ns, now_ns) for ns in (event.at_ns, event.since_ns))
        # What is heard late, after a restart say, counts from when it was: else a day's losses would be those of one moment.
        fed_ns = max(at_ns, self._since_ns(event.who)) if now_ns - at_ns > self._stale_ns else now_ns
        if fed_ns < now_ns:
            self.health.settle(event.who, fed_ns)
        before = (self.health.feed_nic if is_nic else self.health.feed_path)(event.who, given, fed_ns)
        after = self._state(event.who)
        if after is not State.DOWN:
            self._incidents.close(event.who)
            if after is State.PROBATION:
                self._recovery.watch(event.who, now_ns)
            return []
        if before is State.DOWN and event.who in self._incidents:
            return []
        incident = Incident(
            who=event.who, is_nic=is_nic, cause=cause, at_ns=at_ns, since_ns=since_ns,
            lossy=given is Input.LOSSY, restate=before is not State.PROBATION,
        )  # fmt: skip
        self._incidents.open(incident)
        if not is_nic:
            self._armer.stir((node_of(parse_path(event.who).source),))  # it may be a backup there
        if is_nic and self.inventory.nodes[self.inventory.nics[event.who][0]].armed:
            # Its agent and those of its peers act before a command could reach them; what they have not done by then is commanded.
            incident.restate = False
            self._incidents.retry(incident, now_ns + self._grace_ns)
            return []
        return self._leave(incident, at_ns, now_ns)

    def _state(self, who: str) -> State:
        track = self.health.nics.get(who) or self.health.paths.get(who)
        return State.UP if track is None else track.state

    def _since_ns(self, who: str) -> int:
        """When it came into its state; a clock that was set back does not make that undone."""
        track = self.health.nics.get(who) or self.health.paths.get(who)
        return 0 if track is None else track.since_ns

    # -- away ---------------------------------------------------------------------------------------------------------

    def _leave(self, incident: Incident, base_ns: int, now_ns: int) -> list[Action]:
        """Moves what a lost NIC or path carries, and sees to it that what could not be moved is looked at again."""
        if not self.lease:
            if self._lost_lease:
                return self._object("lease", incident.who, incident.cause, now_ns, {"held": self._held})
            return []
        plan = self._planner.leave(incident, now_ns)
        age_ns = now_ns - incident.at_ns
        if plan.looked_at and age_ns > self._stale_ns and not self.health.confirms(incident, now_ns):
            self._incidents.retry(incident, now_ns + self._retry_ns)
            evidence: Evidence = {"age_ms": age_ns / 1e6, "stale_ms": self._stale_ns / 1e6}
            return self._object("stale-observation", incident.who, incident.cause, now_ns, evidence)
        # What an observation has just confirmed is to be done within a deadline's time from now, however old its event is.
        base_ns = now_ns if age_ns > self._stale_ns else base_ns
        request = DecisionRequest("reroute", incident.who, incident.cause, base_ns, now_ns)
        decision, unresolved = self._decider.decide(request, plan)
        incident.restate = False
        self._incidents.retry(incident, now_ns + (self._retry_ns if unresolved else self._review_ns))
        return self._done(decision)

    # -- what there is ------------------------------------------------------------------------------------------------

    def _take_node(self, node: Node, now_ns: int) -> None:
        known = self.inventory.nodes.get(node.name)
        before = [*self.inventory.neighbours(node.name)]
        paths = [*self.inventory.paths_of(node.name)] if known is not None and _reach(known) != _reach(node) else []
        if not self.inventory.learn(node):
            return
        self.health.forget_paths([path for path in paths if not self.inventory.has_path(path)])
        if not node.nics:
            self.routing.forget(node.name, before)
            self.health.leave(node.name)
            self._armer.leave(node.name)
        elif known is None and self.inventory.owns(node.name):
            self._armer.join(node.name)
        if known is not None and (left := {nic.name for nic in known.nics} - self.inventory.nics.keys()):
            _, left_before = self._gone.pop(node.name, (0, set()))
            self._gone[node.name] = now_ns, left | left_before
        if self.lease:  # who takes it over looks at all of them anyway
            self._armer.stir((*before, *self.inventory.neighbours(node.name), node.name))

    def _forget(self, now_ns: int) -> None:
        """Forgets what befell those who left long enough ago: the bus may lose its inventory, and have it again a moment later."""
        while self._gone:
            node, (at_ns, nics) = next(iter(self._gone.items()))
            if now_ns - at_ns < _AWAY_NS:
                return
            del self._gone[node]
            for nic in nics.difference(self.inventory.nics):
                for memory in (self.health, self._record, self._recovery, self._incidents, self._corroboration):
                    memory.forget(nic)
            if node not in self.inventory.nodes:
                self._decider.ledger.forget(node)

    def _take_paths(self, paths: NodePaths) -> None:
        """Takes what stands in the bucket; who holds the lease has written it itself."""
        self._highest_lease = max(self._highest_lease, paths.lease_revision)
        if self._highest_lease > self._held:
            self._lost_lease = False  # somebody else has taken over, and speaks for itself
        # When the bus is back, the bucket tells all that it has once more: what nodes have done by themselves meanwhile is not undone by that.
        if not self.lease and self._armer.stored(paths) and paths.lease_revision != self._held:
            self.routing.adopt(self.inventory.known_part(paths), Cause(f"adopted/{paths.node}", ""))

    def _take_port(self, port: PortState, now_ns: int) -> None:
        """Ports confirm events, and stand in for those that were missed."""
        self.health.ports.take(port, now_ns)
        self._corroboration.hurry(port.nic, now_ns)
        if port.nic not in self.inventory.nics or self._state(port.nic) is not State.DOWN:
            return
        down_ns = now_ns - self.health.nics[port.nic].since_ns
        if min(self.health.port_good_for_ns(port.nic, now_ns), down_ns) >= _MISSED_NS:
            self.health.feed_nic(port.nic, Input.CARRIER_BACK, now_ns)
            self._incidents.close(port.nic)
            self._recovery.watch(port.nic, now_ns)
        elif port.nic not in self._incidents and not (port.carrier and port.admin_up):
            cause = self._cause(port.nic)
            incident = Incident(who=port.nic, is_nic=True, cause=cause, at_ns=now_ns, since_ns=now_ns, restate=False)
            self._incidents.open(incident)
            self._incidents.retry(incident, now_ns)

    def _take_over(self, now_ns: int) -> None:
        for who in self._adoption.put_on_probation(now_ns):
            self._recovery.watch(who, now_ns)
        self._incidents.inherit(now_ns)
        self._armer.begin_anew()

    def _cause(self, who: str) -> Cause:
        """The last event of a NIC or path; where none was seen, of a NIC the loss that its port's own word names."""
        port = self.health.ports.get(who)
        fault = port_fault(port.word.fault, who, port.word.carrier_down_count, port.word.index) if port else ""
        return self._record.cause(who, fault)

    # -- small change -------------------------------------------------------------------------------------------------

    def _object(self, guard: Guard, who: str, cause: Cause, now_ns: int, evidence: Evidence) -> list[Action]:
        """Refuses what an event calls for; who stands by is silent."""
        if not self.lease and not self._lost_lease:
            return []
        objection = Objection(guard=guard, evidence=evidence)
        return self._done(self._decider.refuse(DecisionRequest("reroute", who, cause, now_ns, now_ns), objection))

    def _done(self, *decisions: Decision | None) -> list[Action]:
        made = [decision for decision in decisions if decision is not None]
        self._armer.touch(command.node for decision in made for command in decision.commands if not command.advice)
        return [*made]


def _reach(node: Node) -> tuple[object, ...]:
    """What of a node's record decides which paths there are."""
    return node.peers, *((nic.name, nic.rail, len(nic.entropies)) for nic in node.nics)
