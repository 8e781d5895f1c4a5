"""The remedy of contention: moves the fewest flows off a link that they share while others have room.

What it moves has another home from then on, so that failover leaves it, returns to it, and wins. A move whose gain does
not come is taken back.

It plans for the rails that this process coordinates. What is to be done is an order to the shard that commands the
node, which is mostly this process itself.
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
from foliot_remediator.core.remedies.contention.mover import Mover, moved_by
from foliot_remediator.core.remedies.contention.orders import Orders
from foliot_remediator.core.remedies.contention.rail_traffic import RailTraffic
from foliot_remediator.core.remedies.contention.witnesses import Witnesses
from foliot_remediator.core.scheduling import DueQueue
from foliot_remediator.core.state.inventory import Destination, nics_of
from foliot_remediator.core.state.routing_table import Cause
from foliot_remediator.core.steering.event_links import EventLinks
from foliot_remediator.core.steering.trial import Trial
from foliot_remediator.settings import strictest
from foliot_schemas import Event, FlowBatch, HomeMove, Job, MoveAnswer, MoveOrder
from foliot_schemas.event_kinds import CONTENTION, REFUSAL
from foliot_schemas.move import MOST_MOVES
from foliot_schemas.names import nic_name

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from foliot_remediator.core.actions.command_ledger import Sent
    from foliot_remediator.core.actions.decision import Decision
    from foliot_remediator.core.actions.fleet_view import FleetView
    from foliot_remediator.core.actions.guards import Guard
    from foliot_remediator.core.actions.remedy import Seen
    from foliot_remediator.core.steering.rail_flows import Plan
    from foliot_schemas import Outcome
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
_NO_GAIN: Guard = "no-gain"
_ELECTION_NS = 3_000_000_000
"""How long a rail may have no coordinator before that is said: a lease lasts for 1.5 s."""


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
        self.hears_traffic = settings.improve != "off"
        self._view, self._rails = view, view.rails
        self._decider = view.decider
        self._coordination = view.coordination
        self._mover = Mover(view, NAME, self._policy)
        self._gains = Budget(settings.improvements_per_minute, 0) if self._coordination.is_shared else self.budget
        """What may be moved on the rails that are coordinated from here; each shard has its own budget besides."""
        self._terms: dict[str, int] = {}
        """By rail that is coordinated from here, the lease's revision."""
        self._orders = Orders(view, NAME, self._mover)
        self._incidents: dict[str, _Incident] = {}
        """By link, the oldest first."""
        self._ended_ns: collections.OrderedDict[str, int] = collections.OrderedDict()
        """When the last contention of a thing was over, by whoever said so."""
        self._seen = RecentIds(_SEEN)
        self._looks = DueQueue()
        self._trials: list[Trial] = []
        """What was moved, until its gain is known."""
        self._planned_ns = 0
        self._job_turns = view.jobs.turns
        """How often jobs had changed when one was told of last."""
        self._moved_ns: dict[Destination, int] = {}
        """When flows were last moved, within the interval."""

    def hold(self, now_ns: int) -> None:
        """Takes orders from now on, and coordinates where nobody else commands nodes."""
        self._mover.hold()
        if not self._coordination.is_shared:
            self._orders.drop()
            self._trials = [trial for trial in self._trials if trial.is_answered]
            self._begin(now_ns)

    def observe(self, seen: Seen, news: Collection[str], now_ns: int) -> list[Decision]:  # noqa: ARG002 - as of `Remedy`
        """Takes events about contention, what flows get after a move, and that jobs begin or end."""
        match seen:
            case Event() if seen.kind == CONTENTION.name and self._seen.add(seen.id):
                self._take_event(seen, now_ns)
            case Event() if seen.kind == REFUSAL.name and seen.policy == _NO_GAIN:
                self._take_no_gain(seen, now_ns)
            case FlowBatch():
                for trial in self._trials:
                    if trial.concerns(seen.node):
                        trial.take((flow, self._rails.flows.get(flow)) for flow in seen.flows)
            case MoveOrder():
                made = self._mover.take(seen, now_ns)
                self._answer(now_ns)
                return made
            case MoveAnswer():
                self._take_answer(seen, now_ns)
            case Job() if self._job_turns != (turns := self._view.jobs.turns):
                self._job_turns = turns
                for who, incident in self._incidents.items():  # what could not be done may be possible now
                    incident.looks = 0
                    self._looks.put(who, now_ns)
        return []

    def tick(self, overdue: Collection[Sent], now_ns: int) -> list[Decision]:
        """Judges moves, and looks at what is contended when its time has come."""
        made: list[Decision] = self._follow_terms(now_ns)
        for sent in overdue:
            made += self._view.fail(sent, "no answer", now_ns)
            self._mover.settle(sent, "failed", now_ns)
        self._answer(now_ns)
        if self._decider.lease or self._terms:
            for order in self._orders.overdue(now_ns):
                made += self._give_up(order, now_ns)
            made += self._orders.again(now_ns)
        for trial in [each for each in self._trials if each.is_answered and each.due_ns <= now_ns]:
            made += self._judge(trial, now_ns)
        for who in self._looks.take(now_ns):
            if who in self._incidents:
                made += self._look(who, now_ns)
        self._answer(now_ns)
        return made

    def settle(self, sent: Sent, outcome: Outcome, now_ns: int) -> list[Decision]:
        """Takes back what a node did not do."""
        made = self._view.take_back(sent, outcome, now_ns)
        self._mover.settle(sent, "failed" if is_refusal(outcome) else "done", now_ns)
        self._answer(now_ns)
        return made

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
        self._mover.forget_node(node)

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

    def _take_no_gain(self, refusal: Event, now_ns: int) -> None:
        """Takes that a move came back, by whoever judged it: its event calls for no other, and its flow rests."""
        self._seen.add(refusal.cause)
        for who in [who for who, incident in self._incidents.items() if incident.event.id == refusal.cause]:
            del self._incidents[who]
        ends = [self._rails.inventory.nics.get(nic) for nic in nics_of(refusal.who)]
        if len(ends) == 2 and ends[0] is not None and ends[1] is not None:
            destination = Destination(ends[0][0], *ends[1])
            back_ns = min(refusal.at_ns, now_ns)
            self._moved_ns[destination] = max(back_ns, self._moved_ns.get(destination, 0))

    def _look(self, who: str, now_ns: int) -> list[Decision]:
        """Looks at a link; what can be done for it is done, and what cannot is said."""
        incident = self._incidents[who]
        if now_ns - incident.event.at_ns > _LONGEST_NS:
            del self._incidents[who]
            return []
        if (made := self._left_alone(incident, now_ns)) is not None:
            return made
        if not self._rails.flows.knows_all(now_ns):
            self._looks.put(who, now_ns + _SOON_NS)  # what seems free may not be
            return []
        links = EventLinks(self._rails.links, incident.event)
        witnesses = Witnesses(self._rails, incident.event, links, now_ns)
        if (doubt := witnesses.doubt()) is None:
            rails = [rail for rail in witnesses.rails() if self._term(rail)]
            return [each for rail in rails for each in self._improve(incident, rail, links, now_ns)]
        if now_ns - incident.taken_ns < _GRACE_NS:
            self._looks.put(who, now_ns + _SOON_NS)
            return []
        self._put_off(incident, now_ns)
        is_explained = incident.moved or any(trial.event.who == who for trial in self._trials)
        return [] if is_explained else self._object(incident, *doubt, now_ns)

    def _end_stale(self, incident: _Incident, now_ns: int) -> list[Decision]:
        """Ends an incident at a link of which only its event tells, and it was made too long ago."""
        del self._incidents[incident.event.who]
        age_s = (now_ns - incident.event.at_ns) / 1e9
        return [] if incident.moved else self._object(incident, "stale-observation", {"age_s": age_s}, now_ns)

    def _left_alone(self, incident: _Incident, now_ns: int) -> list[Decision] | None:
        """What there is to say where no plan is made from here; None: one is."""
        is_shared = self._coordination.is_shared
        if not self._decider.lease and not is_shared:
            return self._object(incident, "lease", {"held": self._decider.held}, now_ns)
        if self._policy == "off":
            del self._incidents[incident.event.who]  # the next holder of the lease would do no more
            return self._object(incident, "policy", {"policy": "off"}, now_ns)
        if is_shared and not self._is_ours(incident):
            return self._stand_by(incident, now_ns)
        is_stale = EventLinks(self._rails.links, incident.event).is_stale(now_ns)
        return self._end_stale(incident, now_ns) if is_stale else None

    # -- coordination -------------------------------------------------------------------------------------------------

    def _term(self, rail: str) -> int:
        """The revision of the lease by which a rail is coordinated from here; 0: it is not."""
        return self._terms.get(rail, 0) if self._coordination.is_shared else self._decider.lease

    def _follow_terms(self, now_ns: int) -> list[Decision]:
        """Begins to coordinate, or ends it, as the leases say."""
        made: list[Decision] = []
        terms = self._coordination.terms
        for rail in sorted({rail for rail, _ in terms.items() ^ self._terms.items()}):
            self._orders.drop(rail)
            self._trials = [trial for trial in self._trials if trial.rail != rail]
            self._terms.pop(rail, None)
            if rail in terms:
                self._terms[rail] = terms[rail]
                self._begin(now_ns)
                made += self._orders.greet(rail, terms[rail], now_ns)
        return made

    def _begin(self, now_ns: int) -> None:
        """Looks at what is contended. What has a chosen home may have been moved a moment ago, by the one before."""
        homes = self._rails.selector.homes
        for node in homes.nodes():
            self._moved_ns |= dict.fromkeys(homes.chosen_of(node), now_ns)
        for who, incident in self._incidents.items():
            incident.taken_ns = now_ns
            self._looks.put(who, now_ns)

    def _stand_by(self, incident: _Incident, now_ns: int) -> list[Decision]:
        """Leaves a rail to who coordinates it; if that is nobody, it says so once it is sure."""
        unled = self._rails_of(incident).difference(self._coordination.led)
        if not unled or not self._decider.lease:
            return []
        if now_ns - incident.taken_ns < _ELECTION_NS:
            self._looks.put(incident.event.who, now_ns + _SOON_NS)
            return []
        self._put_off(incident, now_ns)
        return self._object(incident, "not-coordinated", {"rails": " ".join(sorted(unled))}, now_ns)

    def _is_ours(self, incident: _Incident) -> bool:
        """Whether it is coordinated from here, as far as is known."""
        rails = self._rails_of(incident)
        return bool(self._terms.keys() & rails if rails else self._terms)

    def _rails_of(self, incident: _Incident) -> set[str]:
        """The rails of the flows that an event names."""
        nics = self._rails.inventory.nics
        ends = (nics.get(flow.partition(">")[0]) for flow in incident.event.related.get("flows", ()))
        return {end[1] for end in ends if end is not None}

    def _answer(self, now_ns: int) -> None:
        """Gives the answers that are due: to the coordinator in this process, or to another."""
        for answer in self._mover.answers():
            if answer.order in self._orders:
                self._take_answer(answer, now_ns)
            elif self._coordination.is_shared:
                self._coordination.send(answer)

    def _take_answer(self, answer: MoveAnswer, now_ns: int) -> None:
        """Takes what a shard has done: the gain of that is judged, and the rest is left out."""
        order = self._orders.settle(answer)
        if order is None or order.take_back:
            return
        if "advised" in answer.statuses:
            self._incidents.pop(order.who, None)  # what has been advised stays advised
        if (trial := self._trial_of(order)) is None:
            return
        statuses = {moved_by(move): status for move, status in zip(order.moves, answer.statuses, strict=True)}
        if done := [destination for destination, status in statuses.items() if status == "done"]:
            self._take_done(order, trial, done, now_ns)
        if answer.guard not in {"no-alternative", "unknown"}:  # it may be moved when its turn comes again
            for destination, status in statuses.items():
                if status == "refused":
                    self._moved_ns.pop(destination, None)
        self._drop(trial, statuses.keys() - done, now_ns)
        if "failed" in answer.statuses and not trial.moves and order.who in self._incidents:
            self._looks.put(order.who, order.deadline_ns + _AGAIN_NS)

    def _take_done(self, order: MoveOrder, trial: Trial, done: Sequence[Destination], now_ns: int) -> None:
        """Begins to judge what was moved."""
        trial.answer(done, now_ns)
        if self._gains is not self.budget:
            self._gains.spend(len(done), now_ns)
        if (incident := self._incidents.get(order.who)) is not None:
            incident.moved, incident.looks = True, 0

    def _trial_of(self, order: MoveOrder) -> Trial | None:
        """The trial for which an order was given, unless it is over."""
        return next((each for each in self._trials if each.is_of(order.cause, order.rail)), None)

    def _give_up(self, order: MoveOrder, now_ns: int) -> list[Decision]:
        """Takes back what a shard did not answer: nobody knows whether it was done."""
        evidence: Evidence = {"reason": "no answer", "shard": order.shard, "moves": len(order.moves)}
        cause = Cause(order.cause, order.fault, NAME)
        request = DecisionRequest("reroute", order.who, cause, now_ns, now_ns, NAME, self._policy)
        made = self._decider.refuse(request, Objection(guard="lease", evidence=evidence))
        trial = self._trial_of(order)
        if order.take_back or trial is None:
            return made
        moved = [moved_by(move) for move in order.moves if moved_by(move) in trial.moves]
        back = [_back(trial, each) for each in moved]
        self._drop(trial, moved, now_ns)
        if order.who in self._incidents:
            self._looks.put(order.who, now_ns + _AGAIN_NS)
        return made + self._orders.move(trial.event, order.rail, order.term, back, now_ns, take_back=True)

    def _drop(self, trial: Trial, destinations: Collection[Destination], now_ns: int) -> None:
        """Leaves moves out that were not made. What the others gained shows from now on."""
        for destination in destinations:
            trial.drop(destination)
        if not trial.moves:
            self._trials.remove(trial)
        elif destinations:
            trial.answer((), now_ns)

    # -- moves --------------------------------------------------------------------------------------------------------

    def _improve(self, incident: _Incident, rail: str, links: EventLinks, now_ns: int) -> list[Decision]:
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
        traffic = RailTraffic(self._rails, rail, links, self._moved_ns.keys(), now_ns)
        if (against := traffic.unmapped()) is not None:
            self._put_off(incident, now_ns)
            return self._object(incident, "unknown-links", against, now_ns)
        most = self._gains.allowed(len(traffic.carried), now_ns) if self._policy == "act" else len(traffic.carried)
        plan = traffic.plan(_rng(event), min(most, MOST_MOVES))
        moves, wanted = plan.moves, plan.wanted
        made: list[Decision] = []
        if not wanted:
            made += self._object(incident, "no-alternative", traffic.evidence(), now_ns)
        elif len(moves) < wanted:
            evidence: Evidence = {
                "moves": wanted, "moved_last_minute": self._gains.moved(now_ns),
                "moves_per_minute": self._gains.per_minute, "moves_now": len(moves),
            }  # fmt: skip
            made += self._object(incident, "moves-per-minute", evidence, now_ns)
        self._put_off(incident, now_ns)
        return made + (self._command(incident, rail, plan, now_ns) if moves else [])

    def _command(self, incident: _Incident, rail: str, plan: Plan, now_ns: int) -> list[Decision]:
        """Orders moves, whose ways become the homes of what is moved."""
        event, moves, homes = incident.event, plan.moves, self._rails.selector.homes
        if self._policy != "act":
            del self._incidents[event.who]  # what has been advised stays advised
        else:
            self._moved_ns |= {move.destination: now_ns for move in moves}
            self._trials.append(Trial(event, rail, [(move, homes.choice(move.destination)) for move in moves]))
        ordered = [HomeMove(node=move.destination.node, way=move.way) for move in moves]
        return self._orders.move(
            event, rail, self._term(rail), ordered, now_ns, advice=self._policy != "act", evidence=_losses(plan)
        )

    def _judge(self, trial: Trial, now_ns: int) -> list[Decision]:
        """Takes back what has gained nothing. What failover has moved since is failover's."""
        made: list[Decision] = []
        event = trial.event
        failed = self._without_gain(trial, now_ns) if self._term(trial.rail) else {}
        back = []
        for destination, evidence in failed.items():
            if self._is_moved(destination):
                continue
            back.append(_back(trial, destination))
            self._moved_ns[destination] = now_ns
            request = self._request(event, _flow(destination), now_ns)
            made += self._decider.refuse(request, Objection(guard=_NO_GAIN, evidence=evidence))
        self._trials.remove(trial)
        if failed:
            self._incidents.pop(event.who, None)  # what was known of it was wrong
        elif event.who in self._incidents:
            self._looks.put(event.who, now_ns + _AGAIN_NS)
        return made + self._orders.move(event, trial.rail, self._term(trial.rail), back, now_ns, take_back=True)

    def _without_gain(self, trial: Trial, now_ns: int) -> dict[Destination, Evidence]:
        """The moves of a trial that gained nothing, with what others took who came to their ways since."""
        if not (failed := trial.without_gain()):
            return {}
        traffic = RailTraffic(self._rails, trial.rail, EventLinks(self._rails.links, trial.event), (), now_ns)
        return trial.without_gain({each: traffic.came_bps(trial.moves[each][0]) for each in failed})

    def _is_moved(self, destination: Destination) -> bool:
        routing = self._rails.routing
        return destination in routing.moved or (destination.node, destination.rail) in routing.away

    # -- small change -------------------------------------------------------------------------------------------------

    def _put_off(self, incident: _Incident, now_ns: int) -> None:
        """Has a link looked at again, later each time."""
        self._looks.put(incident.event.who, now_ns + min(_AGAIN_NS << min(incident.looks, 4), _LONGEST_REST_NS))
        incident.looks += 1

    def _object(self, incident: _Incident, guard: Guard, evidence: Evidence, now_ns: int) -> list[Decision]:
        """Says what is not done. A process that stands by is silent."""
        if not self._decider.speaks and not self._terms:
            return []
        request = self._request(incident.event, incident.event.who, now_ns)
        return self._decider.refuse(request, Objection(guard=guard, evidence=evidence))

    def _request(self, event: Event, who: str, now_ns: int) -> DecisionRequest:
        cause = Cause(event.id, event.fault, NAME)
        return DecisionRequest("reroute", who, cause, now_ns, now_ns, NAME, self._policy)


def _rng(event: Event) -> np.random.Generator:
    """The same draws for the same event, whoever plans."""
    return np.random.default_rng(int.from_bytes(hashlib.blake2b(event.id.encode(), digest_size=8).digest()))


def _losses(plan: Plan) -> Evidence:
    """The numbers of who loses by a plan, and for whom; none: nobody of a lower priority loses."""
    if plan.gaining is None:
        return {}
    first, most = plan.gaining, plan.losing[0]
    return {
        "gaining": _flow(first.destination), "gaining_priority": first.priority,
        "gaining_mbps": first.rate_bps / 1e6, "gaining_predicted_mbps": first.predicted_bps / 1e6,
        "losing": _flow(most.destination), "losing_priority": most.priority, "losing_mbps": most.rate_bps / 1e6,
        "losing_predicted_mbps": most.predicted_bps / 1e6, "losing_flows": len(plan.losing),
        "lost_mbps": sum(each.rate_bps - each.predicted_bps for each in plan.losing) / 1e6,
    }  # fmt: skip


def _flow(destination: Destination) -> str:
    return f"{nic_name(destination.node, destination.rail)}>{nic_name(destination.peer, destination.rail)}"


def _back(trial: Trial, destination: Destination) -> HomeMove:
    """What makes a home what it was before a move."""
    move, home = trial.moves[destination]
    return HomeMove(node=destination.node, way=move.way, home=home)
