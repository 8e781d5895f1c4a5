"""The remedy of contention: moves the fewest flows off a link that they share while others have room.

What it moves has another home from then on, so that failover leaves it, returns to it, and wins. A move whose gain does
not come is taken back.
"""

from __future__ import annotations

import collections
import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from foliot.bus.recent_ids import RecentIds
from foliot_remediator.core.actions.decision_request import DecisionRequest
from foliot_remediator.core.actions.fleet_view import is_refusal
from foliot_remediator.core.actions.guards import Budget, Objection
from foliot_remediator.core.remedies.contention.rail_traffic import RailTraffic
from foliot_remediator.core.remedies.contention.witnesses import Witnesses, links_named_by
from foliot_remediator.core.scheduling import DueQueue
from foliot_remediator.core.state.inventory import Destination, nics_of
from foliot_remediator.core.state.routing_table import Cause
from foliot_remediator.core.steering.trial import Trial
from foliot_remediator.settings import strictest
from foliot_schemas import Event, FlowBatch, Reroute
from foliot_schemas.event_kinds import CONTENTION
from foliot_schemas.names import nic_name

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from foliot_remediator.core.actions.command_ledger import Sent
    from foliot_remediator.core.actions.decision import Decision
    from foliot_remediator.core.actions.fleet_view import FleetView
    from foliot_remediator.core.actions.guards import Guard
    from foliot_remediator.core.actions.remedy import Seen
    from foliot_remediator.core.steering.rail_flows import Move
    from foliot_schemas import Outcome, Placement
    from foliot_schemas.event import Evidence

NAME = "contention"
_CONTENDED = "fabric-contention"
_SEEN = 1_024
"""Event ids remembered, and contended links: far more than a fabric has at once."""
_LONGEST_NS = 300_000_000_000
"""An event of so long ago calls for nothing more: whoever said it would have said that it is over, or is gone."""
_GRACE_NS = 1_000_000_000
"""How long what speaks against a move may be late before it is said: two words of a sender."""
_SOON_NS = 250_000_000
_AGAIN_NS, _LONGEST_REST_NS = 5_000_000_000, 60_000_000_000
"""First and longest wait until a link for which nothing could be done is looked at again. Each look at a rail of a
thousand NICs takes some tenths of a second."""
_GAP_NS = 500_000_000
"""Least time between two plans. Whoever makes events up must not keep failover waiting for more than a fifth of it."""
_INTERVAL_NS = 60_000_000_000
"""No flow is moved more often than once in this time, but to be taken back."""


@dataclass(slots=True)
class _Incident:
    """A link on which flows are said to be short."""

    event: Event
    taken_ns: int
    """When it was heard, or the lease was taken since."""
    looks: int = 0
    """How often nothing could be done, in a row."""
    moved: bool = False
    """Something was moved for it: if its flows share the link no more, that is why."""


class Contention:
    """See `Remedy`. It orders `reroute` of service addresses, and changes their homes."""

    name = NAME
    priority = 1
    kinds = ()

    def __init__(self, view: FleetView) -> None:
        settings = view.settings
        self.budget = Budget(settings.improvements_per_minute, settings.nodes_at_once // 2)
        self._policy = strictest(settings.improve, settings.reroute, settings.restore)
        self._view = view
        self._decider, self._homes = view.decider, view.selector.homes
        self._incidents: dict[str, _Incident] = {}
        """By link, the oldest first."""
        self._ended_ns: collections.OrderedDict[str, int] = collections.OrderedDict()
        """When the last contention of a thing was over, by whoever said so."""
        self._seen = RecentIds(_SEEN)
        self._looks = DueQueue()
        self._trials: list[Trial] = []
        """What was moved, until its gain is known."""
        self._planned_ns = 0
        self._moved_ns: dict[Destination, int] = {}
        """When flows were last moved, within the interval."""

    def hold(self, now_ns: int) -> None:
        """Looks at what is contended. What has a chosen home may have been moved a moment ago, by the holder before."""
        for node in self._homes.nodes():
            self._moved_ns |= dict.fromkeys(self._homes.chosen_of(node), now_ns)
        for who, incident in self._incidents.items():
            incident.taken_ns = now_ns
            self._looks.put(who, now_ns)

    def observe(self, seen: Seen, news: Collection[str], now_ns: int) -> list[Decision]:  # noqa: ARG002 - as of `Remedy`
        """Takes events about contention, and what flows get after a move."""
        match seen:
            case Event() if seen.kind == CONTENTION.name and self._seen.add(seen.id):
                self._take_event(seen, now_ns)
            case FlowBatch():
                for trial in self._trials:
                    if trial.concerns(seen.node):
                        trial.take((flow, self._view.flows.get(flow)) for flow in seen.flows)
        return []

    def tick(self, overdue: Collection[Sent], now_ns: int) -> list[Decision]:
        """Judges moves, and looks at what is contended when its time has come."""
        made: list[Decision] = []
        for sent in overdue:
            made += self._view.fail(sent, "no answer", now_ns)
            self._take_back(sent)
        for trial in [each for each in self._trials if each.is_answered and each.due_ns <= now_ns]:
            made += self._judge(trial, now_ns)
        for who in self._looks.take(now_ns):
            if who in self._incidents:
                made += self._look(who, now_ns)
        return made

    def settle(self, sent: Sent, outcome: Outcome, now_ns: int) -> list[Decision]:
        """Takes back what a node did not do."""
        if is_refusal(outcome):
            made = self._view.take_back(sent, outcome, now_ns)
            self._take_back(sent)
            return made
        for trial in self._trials:
            if moved := trial.moves.keys() & {*_moved_by(sent)}:
                trial.answer(moved, now_ns)
        return []

    def forget(self, nics: Collection[str]) -> None:
        """Ends what concerns flows of NICs that are gone."""
        nics = {*nics}
        for who, incident in [*self._incidents.items()]:
            named = (who, *incident.event.related.get("flows", ()), *incident.event.related.get("links", ()))
            if any(not nics.isdisjoint(nics_of(each)) for each in named):
                del self._incidents[who]
        for who in [each for each in self._ended_ns if not nics.isdisjoint(nics_of(each))]:
            del self._ended_ns[who]

    def forget_node(self, node: str) -> None:
        """Forgets when traffic of a node was moved, and what was to come of it."""
        for destination in [each for each in self._moved_ns if node in (each.node, each.peer)]:
            del self._moved_ns[destination]
        self._trials = [trial for trial in self._trials if not trial.concerns(node)]

    # -- events -------------------------------------------------------------------------------------------------------

    def _take_event(self, event: Event, now_ns: int) -> None:
        """Begins an incident, or ends it: with any other verdict about the link, too."""
        who, known = event.who, self._incidents.get(event.who)
        if event.state != _CONTENDED:
            self._ended_ns[who] = event.at_ns
            self._ended_ns.move_to_end(who)
            if len(self._ended_ns) > _SEEN:
                self._ended_ns.popitem(last=False)
            if known is not None and known.event.at_ns <= event.at_ns:
                del self._incidents[who]
            return
        is_over = event.at_ns <= self._ended_ns.get(who, 0)
        is_older = known is not None and event.at_ns < known.event.at_ns
        if is_over or is_older or now_ns - event.at_ns > _LONGEST_NS:
            return
        if known is not None:
            known.event, known.looks = event, 0
            self._looks.put(who, now_ns)
            return
        while len(self._incidents) >= _SEEN:
            del self._incidents[next(iter(self._incidents))]
        self._incidents[who] = _Incident(event, now_ns)
        self._looks.put(who, now_ns)

    def _look(self, who: str, now_ns: int) -> list[Decision]:
        """Looks at a link; what can be done for it is done, and what cannot is said."""
        incident = self._incidents[who]
        if now_ns - incident.event.at_ns > _LONGEST_NS:
            del self._incidents[who]
            return []
        if (forbidden := self._forbidden()) is not None:
            guard, evidence = forbidden
            if guard != "lease":
                del self._incidents[who]  # the next holder of the lease would do no more
            return self._object(incident, guard, evidence, now_ns)
        if not self._view.flows.knows_all(now_ns):
            self._looks.put(who, now_ns + _SOON_NS)  # what seems free may not be
            return []
        witnesses = Witnesses(self._view, incident.event, now_ns)
        if (doubt := witnesses.doubt()) is None:
            return [each for rail in witnesses.rails() for each in self._improve(incident, rail, now_ns)]
        if now_ns - incident.taken_ns < _GRACE_NS:
            self._looks.put(who, now_ns + _SOON_NS)
            return []
        self._put_off(incident, now_ns)
        return [] if incident.moved else self._object(incident, *doubt, now_ns)

    def _forbidden(self) -> tuple[Guard, Evidence] | None:
        """What forbids all moves."""
        if not self._decider.lease:
            return "lease", {"held": self._decider.held}
        if self._policy == "off":
            return "policy", {"policy": "off"}
        if not self._view.inventory.is_whole:
            return "not-coordinated", {"nics_of_shard": self._view.inventory.own_nics}
        return None

    # -- moves --------------------------------------------------------------------------------------------------------

    def _improve(self, incident: _Incident, rail: str, now_ns: int) -> list[Decision]:
        """Plans for a rail, unless flows have yet to find what they get after the last moves there."""
        event = incident.event
        if any(trial.event.who == event.who for trial in self._trials):
            return []  # it is looked at again once that is judged
        settling = any(trial.rail == rail and not trial.is_settled(now_ns) for trial in self._trials)
        if settling or 0 <= now_ns - self._planned_ns < _GAP_NS:
            self._looks.put(event.who, now_ns + _SOON_NS)
            return []
        self._planned_ns = now_ns
        self._moved_ns = {each: ns for each, ns in self._moved_ns.items() if now_ns - ns < _INTERVAL_NS}
        traffic = RailTraffic(self._view, rail, links_named_by(event), self._moved_ns.keys(), now_ns)
        if (against := traffic.unmapped()) is not None:
            self._put_off(incident, now_ns)
            return self._object(incident, "unknown-links", against, now_ns)
        most = self.budget.allowed(len(traffic.carried), now_ns) if self._policy == "act" else len(traffic.carried)
        moves, wanted = traffic.plan(_rng(event), most)
        made: list[Decision] = []
        if not wanted:
            made += self._object(incident, "no-alternative", traffic.evidence(), now_ns)
        elif len(moves) < wanted:
            evidence: Evidence = {
                "moves": wanted, "moved_last_minute": self.budget.moved(now_ns),
                "moves_per_minute": self.budget.per_minute, "moves_now": len(moves),
            }  # fmt: skip
            made += self._object(incident, "moves-per-minute", evidence, now_ns)
        self._put_off(incident, now_ns)
        return made + (self._command(incident, rail, moves, now_ns) if moves else [])

    def _command(self, incident: _Incident, rail: str, moves: Sequence[Move], now_ns: int) -> list[Decision]:
        """Commands moves, and makes their ways the homes of what is commanded."""
        event = incident.event
        orders: dict[str, list[Placement]] = {}
        for move in moves:
            orders.setdefault(move.destination.node, []).append(move.way)
        homes = {move.destination: self._homes.choice(move.destination) for move in moves}
        made, _ = self._decider.decide(
            self._request(event, event.who, now_ns),
            {node: Reroute(placements=tuple(ways)) for node, ways in orders.items()},
        )
        if self._policy != "act":
            self._incidents.pop(event.who, None)  # what has been advised stays advised
            return made
        cause, done = Cause(event.id, event.fault, NAME), []
        for destination, way in _commanded(made):
            # Where no choice can be stored now, the traffic comes home again, as after a loss.
            if self._view.assign_home(destination, way, cause):
                done.append(destination)
                self._moved_ns[destination] = now_ns
        if done:
            incident.moved, incident.looks = True, 0
            tried = [(move, homes[move.destination]) for move in moves if move.destination in done]
            self._trials.append(Trial(event, rail, tried))
        return made

    def _take_back(self, sent: Sent) -> None:
        """Makes the homes of what a node did not do what they were before.

        Where that cannot be, the lease is lost, and the homes with it; or its traffic goes to the new home after all.
        """
        for trial in [*self._trials]:
            for destination in trial.moves.keys() & {*_moved_by(sent)}:
                self._home(trial, destination)
                trial.drop(destination)
            if not trial.moves:
                self._trials.remove(trial)
                if trial.event.who in self._incidents:
                    self._looks.put(trial.event.who, sent.command.deadline_ns + _AGAIN_NS)

    def _home(self, trial: Trial, destination: Destination) -> bool:
        """Makes a home what it was before; False: not now."""
        move, home = trial.moves[destination]
        cause = Cause(trial.event.id, trial.event.fault, NAME)
        return self._homes.of(destination) != move.way or self._view.assign_home(destination, home, cause)

    def _judge(self, trial: Trial, now_ns: int) -> list[Decision]:
        """Takes back what has gained nothing. What failover has moved since is failover's."""
        made: list[Decision] = []
        event = trial.event
        failed = trial.without_gain() if self._decider.lease else {}
        for destination, evidence in failed.items():
            if self._is_moved(destination) or not self._home(trial, destination):
                continue
            self._moved_ns[destination] = now_ns
            flow = f"{nic_name(destination.node, destination.rail)}>{nic_name(destination.peer, destination.rail)}"
            request = self._request(event, flow, now_ns)
            made += self._decider.refuse(request, Objection(guard="no-gain", evidence=evidence))
        self._trials.remove(trial)
        if failed:
            self._incidents.pop(event.who, None)  # what was known of it was wrong
        elif event.who in self._incidents:
            self._looks.put(event.who, now_ns + _AGAIN_NS)
        return made

    def _is_moved(self, destination: Destination) -> bool:
        routing = self._view.routing
        return destination in routing.moved or (destination.node, destination.rail) in routing.away

    # -- small change -------------------------------------------------------------------------------------------------

    def _put_off(self, incident: _Incident, now_ns: int) -> None:
        """Has a link looked at again, later each time."""
        self._looks.put(incident.event.who, now_ns + min(_AGAIN_NS << min(incident.looks, 4), _LONGEST_REST_NS))
        incident.looks += 1

    def _object(self, incident: _Incident, guard: Guard, evidence: Evidence, now_ns: int) -> list[Decision]:
        """Says what is not done. A process that stands by is silent."""
        if not self._decider.speaks:
            return []
        request = self._request(incident.event, incident.event.who, now_ns)
        return self._decider.refuse(request, Objection(guard=guard, evidence=evidence))

    def _request(self, event: Event, who: str, now_ns: int) -> DecisionRequest:
        cause = Cause(event.id, event.fault, NAME)
        return DecisionRequest("reroute", who, cause, now_ns, now_ns, NAME, self._policy)


def _rng(event: Event) -> np.random.Generator:
    """The same draws for the same event, whoever plans."""
    return np.random.default_rng(int.from_bytes(hashlib.blake2b(event.id.encode(), digest_size=8).digest()))


def _moved_by(sent: Sent) -> Iterable[Destination]:
    order = sent.order
    if isinstance(order, Reroute):
        for way in order.placements:
            yield Destination(sent.command.node, way.peer, way.rail)


def _commanded(decisions: Iterable[Decision]) -> Iterable[tuple[Destination, Placement]]:
    """The ways that were commanded, and not only advised."""
    for decision in decisions:
        for command in decision.commands:
            if not command.advice:
                for way in command.placements:
                    yield Destination(command.node, way.peer, way.rail), way
