"""The report on what was said of contention, and on what was moved for it. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from foliot_lab.measure.outages import End, Pair
from foliot_lab.report.contention_truth import ContentionTruth, claim_of, without_job
from foliot_lab.report.message_times import lab_ns
from foliot_schemas.event_kinds import CONTENTION, is_relief
from foliot_schemas.fault import trace_id

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from foliot_lab.measure.bus_recorder import Heard
    from foliot_lab.report.contended import Contended
    from foliot_lab.report.contention_truth import Claim
    from foliot_lab.report.evidence import Evidence
    from foliot_lab.report.job_report import JobReport
    from foliot_schemas import Command, Event, Outcome, Placement

_SECOND_NS = 1_000_000_000
_IN_FORCE = ("done", "already")
"""Of an answer: what was ordered is in force."""
_CURED = 0.95
"""Of its rate alone: a flow that has as much is not short."""
_CURED_NS = 5 * _SECOND_NS
"""How long it has to have that."""


class ContentionReport(msgspec.Struct, frozen=True, kw_only=True):
    """One event about contention. Times are lab time; null: it did not happen, or the lab does not know."""

    event: str
    verdict: str
    place: str
    """The link, NIC or flow that it is about, in the lab's names."""
    links: list[str]
    """Those that may be the place."""
    flows: list[str]
    jobs: list[str]
    """Names of the jobs that these flows are of."""
    since_ns: int
    """When it began, as the event has it."""
    detected_ns: int
    ended_ns: int | None
    right: bool | None
    moves: int
    """Commands that it caused and that moved something."""
    cured_ns: int | None
    """The beginning of the first second from which every flow had 95 % of its rate alone, for 5 s or until its job
    ended. If something was moved for the event within that second, the time of that."""
    reverted: bool
    """Whether something that was moved for it was taken back."""
    trace_id: str | None


class MoveReport(msgspec.Struct, frozen=True, kw_only=True):
    """One flow that was moved for contention. Ways are names of paths."""

    at_ns: int
    flow: str
    before: str | None = msgspec.field(name="from")
    """Null: the node did not say."""
    to: str
    event: str
    kept: bool
    """False: it was taken back."""


def steered(evidence: Evidence) -> list[tuple[int, Pair]]:
    """What was moved for contention: when, in lab time, and between which service addresses."""
    moved = []
    for move in Verdicts(evidence, [], []).moves():
        ends, _, rail = move.flow.partition("/")
        source, _, destination = ends.partition(">")
        moved.append((move.at_ns, Pair(End(source, rail), End(destination, rail))))
    return moved


class Verdicts:
    """What was said of contention in a run.

    Parameters:
        jobs: the reports on its jobs.
        contended: the truth about links that flows shared.
    """

    def __init__(self, evidence: Evidence, jobs: Sequence[JobReport], contended: Sequence[Contended]) -> None:
        self._evidence = evidence
        self._solo_mbps = {flow.id: flow.solo_mbps for job in jobs for flow in job.flows}
        self._events = [each for each in evidence.events if each.message.kind == CONTENTION.name]
        self._begun = sorted(
            (each for each in self._events if not is_relief(each.message)), key=lambda each: each.at_ns
        )
        truth = ContentionTruth(evidence, contended)
        self._claims = {each.message.id: claim_of(each, evidence) for each in self._begun}
        self._right = {event: truth.is_right(claim) for event, claim in self._claims.items()}

    def right(self) -> frozenset[str]:
        """The ids of the events that are true."""
        return frozenset(event for event, right in self._right.items() if right)

    def ends_of_before(self) -> frozenset[str]:
        """The ids of events that end what was said before second 0: a job that runs alone first may load itself."""
        ends = (each for each in self._events if is_relief(each.message) and each.message.cause not in self._claims)
        return frozenset(
            each.message.id for each in ends if claim_of(each, self._evidence).since_ns < self._evidence.start_ns
        )

    def reports(self) -> list[ContentionReport]:
        """A report on each event that found contention, in the order of arrival."""
        return [self._report(each.message, self._claims[each.message.id]) for each in self._begun]

    def moves(self) -> list[MoveReport]:
        """What was moved for them, in its order."""
        found = [
            MoveReport(
                at_ns=self._lab_ns(outcome.message.moved_ns, outcome.at_ns),
                flow=_flow(command, way),
                before=next((_path(command, was) for was in outcome.message.undo if _is_same(was, way)), None),
                to=_path(command, way),
                event=event.message.id,
                kept=not self._is_taken_back(event.message, command, way),
            )
            for event in self._begun
            for command, outcome in self._done(event.message, "reroute")
            for way in command.placements
        ]
        return sorted(found, key=lambda move: move.at_ns)

    def _report(self, event: Event, claim: Claim) -> ContentionReport:
        ended_ns = (self._lab_ns(each.message.at_ns, each.at_ns) for each in self._events if _ends(each, event))
        done = [command for command, _ in self._done(event, "reroute")]
        return ContentionReport(
            event=event.id,
            verdict=claim.verdict,
            place=claim.place,
            links=list(claim.links),
            flows=list(claim.flows),
            jobs=self._jobs(claim),
            since_ns=claim.since_ns,
            detected_ns=claim.detected_ns,
            ended_ns=min(ended_ns, default=None),
            right=self._right[event.id],
            moves=len(done),
            cured_ns=self._cured_ns(event, claim),
            reverted=any(self._is_taken_back(event, command, way) for command in done for way in command.placements),
            trace_id=f"{trace_id(event.fault):032x}" if event.fault else None,
        )

    def _done(self, event: Event, verb: str) -> Iterator[tuple[Command, Heard[Outcome]]]:
        """The commands that an event caused and that moved something, with the answers that say so.

        A node that hears of a way by the bucket `paths` first takes it by that, and answers the command that it is in
        force already. So does one that is told the same again, which is no further move.
        """
        answers = {each.message.command: each for each in self._evidence.outcomes if each.message.status in _IN_FORCE}
        told: set[tuple[str, tuple[Placement, ...]]] = set()
        for heard in self._evidence.commands:
            command = heard.message
            is_its = command.cause == event.id or (event.fault and command.fault == event.fault)
            if not is_its or command.verb != verb or command.id not in answers:
                continue
            answer = answers[command.id]
            if answer.message.status == "done" or (command.node, command.placements) not in told:
                yield command, answer
            told.add((command.node, command.placements))

    def _is_taken_back(self, event: Event, moved: Command, way: Placement) -> bool:
        return any(
            _is_same(each, way) and each != way
            for command, _ in self._done(event, "restore") if command.node == moved.node
            for each in command.placements
        )  # fmt: skip

    def _lab_ns(self, reference_ns: int, arrival_ns: int) -> int:
        return lab_ns(self._evidence.truth, self._evidence.lab, reference_ns, arrival_ns)

    def _numbers(self, claim: Claim) -> list[int]:
        """The numbers of the jobs' flows that a claim names."""
        flows = () if self._evidence.jobs is None else self._evidence.jobs.flows
        return [number for number, flow in enumerate(flows) if without_job(flow.id) in claim.flows]

    def _jobs(self, claim: Claim) -> list[str]:
        jobs = self._evidence.jobs
        if jobs is None:
            return []
        return list(dict.fromkeys(jobs.specs[jobs.flows[number].job].name for number in self._numbers(claim)))

    def _cured_ns(self, event: Event, claim: Claim) -> int | None:
        second_ns = self._whole_again_ns(claim)
        if second_ns is None:
            return None
        done = (outcome for _, outcome in self._done(event, "reroute"))
        moved_ns = (self._lab_ns(each.message.moved_ns, each.at_ns) for each in done)
        return max([second_ns, *(at_ns for at_ns in moved_ns if at_ns < second_ns + _SECOND_NS)])

    def _whole_again_ns(self, claim: Claim) -> int | None:
        """The first second from which all flows of a claim have what they had alone."""
        jobs = self._evidence.jobs
        numbers = self._numbers(claim)
        if jobs is None or not numbers:
            return None
        first = max(0, -(-(claim.since_ns - jobs.zero_ns) // _SECOND_NS))
        last_ns = max((jobs.ran.get(jobs.flows[number].job, (0, 0))[1] for number in numbers), default=0)
        for at_ns in range(jobs.zero_ns + first * _SECOND_NS, last_ns, _SECOND_NS):
            held = [self._holds(number, at_ns) for number in numbers]
            if all(held_s is not None for held_s in held) and any(held):
                return at_ns
        return None

    def _holds(self, number: int, at_ns: int) -> int | None:
        """For how many seconds a flow has what it had alone from a moment on; None: not for as long as it has to."""
        jobs = self._evidence.jobs
        assert jobs is not None
        flow = jobs.flows[number]
        solo_mbps, (_, ended_ns) = self._solo_mbps.get(flow.id), jobs.ran.get(flow.job, (0, 0))
        seconds = (min(at_ns + _CURED_NS, ended_ns) - at_ns) // _SECOND_NS
        for second in range(seconds):
            began_ns = at_ns + second * _SECOND_NS
            mbps = jobs.record.mbps_while_due(number, began_ns, began_ns + _SECOND_NS)
            if solo_mbps is None or (mbps is not None and mbps < _CURED * solo_mbps):
                return None
        return max(seconds, 0)


def _ends(heard: Heard[Event], begun: Event) -> bool:
    return is_relief(heard.message) and heard.message.cause == begun.id


def _is_same(one: Placement, other: Placement) -> bool:
    """Whether both are about one destination."""
    return (one.peer, one.rail) == (other.peer, other.rail)


def _flow(command: Command, way: Placement) -> str:
    return f"{command.node}>{way.peer}/{way.rail}"


def _path(command: Command, way: Placement) -> str:
    return f"{command.node}.{way.via}>{way.peer}.{way.via}#{way.entropy}"
