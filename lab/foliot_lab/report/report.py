"""The report of a run: each fault's effects and the services' reactions, then clocks, strays and the machine."""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING

import msgspec

from foliot_lab.measure.clock_truth import ClockSummary  # noqa: TC001 - msgspec reads annotations at run time
from foliot_lab.measure.host_latency import Machine, worst
from foliot_lab.measure.outages import FULL_SIZE_REACH_NS, REACH_NS, UNSEEN, judge
from foliot_lab.report.allowances import Allowances, NotCounted
from foliot_lab.report.attribution import RECOVERY_NS, explain, spans
from foliot_lab.report.blast_radius import scope
from foliot_lab.report.connectivity import Ways
from foliot_lab.report.contended import Contended, contended
from foliot_lab.report.contention_report import ContentionReport, MoveReport, Verdicts
from foliot_lab.report.flow_report import Accounts, FlowReport, FlowRest, flow_reports, flow_rests
from foliot_lab.report.job_report import JobReport, job_reports
from foliot_lab.report.map_report import MapReport  # noqa: TC001 - msgspec reads annotations at run time
from foliot_lab.report.message_times import lab_ns
from foliot_lab.report.mismatch_report import MismatchReport, mismatch_reports
from foliot_lab.report.rank_report import HangReport, StragglerReport, hang_reports, starved, straggler_reports
from foliot_lab.report.replacement_report import ReplacementReport, befallen, replacement_reports
from foliot_lab.report.standing import stood_still
from foliot_lab.scenario.promises import OF_PATHS
from foliot_lab.scenario.spec import Scenario  # noqa: TC001 - msgspec reads annotations at run time
from foliot_lab.workload.train.record import TrainFault, TrainReport  # noqa: TC001 - msgspec reads annotations at run time
from foliot_schemas.event_kinds import detects
from foliot_schemas.fault import trace_id

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from foliot_lab.faults.injection import Injection
    from foliot_lab.measure.bus_recorder import Heard
    from foliot_lab.measure.clock_truth import LabTime, Truth
    from foliot_lab.measure.outages import Pair, Pulses, Verdict
    from foliot_lab.report.attribution import Explained, Span
    from foliot_lab.report.evidence import Evidence
    from foliot_lab.scenario.topology import FabricPlan
    from foliot_schemas import Event

_BEFORE_STRAYS_NS = 1_500_000_000
"""The look back before the first stray. A silence is reported within a quarter of a second, a dead process after
one."""


_NAMED_STRAYS = 4
"""Strays that the report names."""


class FaultReport(msgspec.Struct, frozen=True, kw_only=True):
    """One fault. Times are lab time; null: it did not happen."""

    id: str
    kind: str
    where: str
    injected_ns: int
    healed_ns: int | None
    """None: it lasted to the end of the run."""
    detected_ns: int | None
    """Decision time of the first event about it."""
    commanded_ns: int | None
    """Issue time of the first reroute that it caused. A return is no answer to the fault, and does not count."""
    moved_ns: int | None
    """The moment from which both directions of every affected pair flowed on the wire."""
    restored_ns: int | None
    """The moment at which the last pair was back on its former way."""
    moves: int
    """The most changes of way that any pair made, away and back."""
    events: list[str]
    trace_id: str | None
    not_counted: NotCounted
    """The parts of its times that are subtracted before the comparison with the promise."""
    flows: list[FlowReport]
    train: TrainFault | None = None
    """None without a training job."""
    ranks: list[int] = []
    """Ranks of the training job whose processes were there."""


class Unexplained(msgspec.Struct, frozen=True, kw_only=True):
    """Events and commands that no fault explains, see `attribution.py`."""

    events: int
    commands: int
    least_idle_cpu: float | None = None
    """The least share of idle CPU among the seconds around the first of them. Null: there is none, or nothing was
    sampled."""
    first: list[str] = []
    """The first of them, in the order of arrival: kind, whom it is about, and state; or the verb, and the node."""


class Held(msgspec.Struct, frozen=True, kw_only=True):
    """One figure, and the promise that it is compared with."""

    what: str
    """As `[expect]` names it: `found_ms`, `moved_ms`, `gap_ms`, `back_s` or `unexplained`."""
    promised: float
    """The upper limit."""
    was: float | None
    """The figure without the part that does not count; null: it did not happen."""
    right: bool


class Judged(msgspec.Struct, frozen=True):
    """The outcome of one fault or, without a fault, of the run as a whole, in the words of the terminal."""

    fault: str
    right: bool
    sentence: str
    held: list[Held] = []


class Conclusion(msgspec.Struct, frozen=True, kw_only=True):
    """Whether every outcome was right, and why."""

    right: bool
    outcomes: list[Judged]


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """The report of a run as a whole."""

    faults: list[FaultReport]
    flows: list[FlowRest]
    """Each flow in the time for which no fault answers."""
    clocks: ClockSummary
    unexplained: Unexplained
    machine: Machine
    train: TrainReport | None = None
    """None without a training job."""
    jobs: list[JobReport] = []
    """Empty, if the scenario has one workload and no jobs."""
    contended: list[Contended] = []
    contention: list[ContentionReport] = []
    """What was said of contention."""
    moves: list[MoveReport] = []
    """What was moved for it."""
    mismatches: list[MismatchReport] = []
    """What was said of traffic that does not take the path that is probed for it."""
    hangs: list[HangReport] = []
    """What was said of ranks that hold up a training job."""
    stragglers: list[StragglerReport] = []
    """What was said of slow ranks."""
    replacements: list[ReplacementReport] = []
    """Ranks that were given to spares, or were to be."""
    map: MapReport | None = None
    """None before it was held against the fabric."""
    verdict: Conclusion | None = None
    """None before it was judged."""
    commit: str | None = None
    """Commit of the code, see `machine.commit`; null: it is in no checkout."""
    versions: dict[str, str | None] = {}
    """See `machine.versions`."""
    scenario: Scenario | None = None
    """The scenario of this run, with every default: the demo's fabric depends on the machine."""

    def json(self) -> bytes:
        """The report as indented JSON, for a file."""
        return msgspec.json.format(msgspec.json.encode(self), indent=2) + b"\n"


def witnessed(
    injections: Sequence[Injection],
    pulses: Mapping[str, Mapping[Pair, Pulses]],
    fabric: FabricPlan,
    steered: Sequence[tuple[int, Pair]] = (),
) -> dict[str, Verdict]:
    """The verdicts on each fault's pulses, up to the next fault at the same place.

    If all is over and back before another fault of the pairs' paths begins, they count up to that. A fault that is not
    a path's, such as a killed process, is different. It counts up to the next fault of a path that the pair may take.
    From then on, and until that fault is over, that fault answers.

    Parameters:
        steered: what was moved for contention, each with its time: see `judge`.
    """
    found = {}
    for injection in injections:
        if injection.fault_id not in pulses:
            continue
        own = pulses[injection.fault_id]
        if injection.kind not in OF_PATHS:
            own = _undisturbed(own, injection, injections, fabric)
        reach_ns = FULL_SIZE_REACH_NS if injection.kind == "mtu" else REACH_NS
        verdicts = (
            (ends, judge(own, injection.injected_ns, until_ns, reach_ns, _first_after(steered, injection.injected_ns)))
            for until_ns, ends in _limits(own, injection, injections, fabric)
        )
        found[injection.fault_id] = next(
            verdict for is_last, verdict in verdicts if is_last or verdict.restored_ns is not None
        )
    return found


def _first_after(steered: Sequence[tuple[int, Pair]], since_ns: int) -> dict[Pair, int]:
    """By pair, the first of these times after another one."""
    return {pair: at_ns for at_ns, pair in sorted(steered, reverse=True) if at_ns > since_ns}


def _limits(
    pulses: Mapping[Pair, Pulses], injection: Injection, injections: Sequence[Injection], fabric: FabricPlan
) -> Iterator[tuple[int | None, bool]]:
    """Times of later faults that may end a fault's pulses, and whether they do so also where not all is back yet."""
    for other in sorted(injections, key=lambda each: each.injected_ns):
        if other.injected_ns <= injection.injected_ns:
            continue
        if other.where == injection.where:
            yield other.injected_ns, True
        is_over = injection.healed_ns is not None and injection.healed_ns < other.injected_ns
        if is_over and other.kind in OF_PATHS and pulses.keys() & set(scope(other.kind, other.where, fabric).pairs()):
            yield other.injected_ns, False
    yield None, True


def _undisturbed(
    pulses: Mapping[Pair, Pulses], injection: Injection, injections: Sequence[Injection], fabric: FabricPlan
) -> dict[Pair, Pulses]:
    """The pulses without those that faults of their own paths may have affected."""
    left = dict(pulses)
    for other in injections:
        if other.kind not in OF_PATHS:
            continue
        before = other.injected_ns <= injection.injected_ns
        if before and other.healed_ns is not None and other.healed_ns + RECOVERY_NS < injection.injected_ns:
            continue
        for pair in left.keys() & set(scope(other.kind, other.where, fabric).pairs()):
            if before:
                del left[pair]
            else:
                left[pair] = left[pair].until(other.injected_ns)
    return left


def build(evidence: Evidence) -> Report:
    """The report of a run."""
    faults = spans(evidence.injections, evidence.seen, evidence.fabric, evidence.end_ns)
    jobs = [] if evidence.jobs is None else job_reports(evidence.jobs)
    shared = [] if evidence.jobs is None else contended(evidence.jobs)
    said = Verdicts(evidence, jobs, shared)
    mismatches = mismatch_reports(evidence)
    right = said.right() | said.ends_of_before() | {each.event for each in mismatches if each.right}
    found = explain(
        evidence.events,
        evidence.commands,
        faults,
        right=None if evidence.jobs is None else right,
        starved=starved(evidence) | stood_still(evidence),
    )
    causes = {event.message.id: fault for fault, events in found.events.items() for event in events}
    ordered = {command.message.id: fault for fault, commands in found.commands.items() for command in commands}
    ways = Ways(evidence.fabric, evidence.injections, evidence.end_ns, evidence.paths)
    allowances = Allowances(evidence.fabric, evidence.injections, ways, evidence.armed, evidence.end_ns)
    accounts = Accounts(evidence, faults, allowances)
    return Report(
        faults=[
            _fault(evidence, injection, span, found, accounts)
            for injection, span in zip(evidence.injections, faults, strict=True)
        ],
        flows=flow_rests(evidence, accounts),
        clocks=evidence.truth.summary(),
        unexplained=_unexplained(evidence, found),
        machine=evidence.machine,
        train=None if evidence.job is None else evidence.job.summary(),
        jobs=jobs,
        contended=shared,
        contention=said.reports(),
        moves=said.moves(),
        mismatches=mismatches,
        hangs=hang_reports(evidence, causes),
        stragglers=straggler_reports(evidence, causes),
        replacements=replacement_reports(evidence, ordered, causes),
    )


def _unexplained(evidence: Evidence, found: Explained) -> Unexplained:
    named = [
        (each.at_ns, f"{each.message.kind} {each.message.who} {each.message.state}") for each in found.stray_events
    ]
    named += [(each.at_ns, f"{each.message.verb} {each.message.node}") for each in found.stray_commands]
    first_ns = min((at_ns for at_ns, _ in named), default=None)
    second = None if first_ns is None else worst(evidence.seconds, first_ns - _BEFORE_STRAYS_NS, first_ns)
    return Unexplained(
        events=len(found.stray_events),
        commands=len(found.stray_commands),
        least_idle_cpu=None if second is None else round(second.idle_cpu, 3),
        first=[words for _, words in sorted(named, key=operator.itemgetter(0))[:_NAMED_STRAYS]],
    )


def _fault(evidence: Evidence, injection: Injection, span: Span, found: Explained, accounts: Accounts) -> FaultReport:
    events = found.events[injection.fault_id]
    verdict = evidence.seen.get(injection.fault_id, UNSEEN)
    detected_ns = first_detected_ns(events, evidence.truth, evidence.lab)
    moved_ns, restored_ns = verdict.moved_ns, verdict.restored_ns
    return FaultReport(
        id=injection.fault_id,
        kind=injection.kind,
        where=injection.where,
        injected_ns=injection.injected_ns,
        healed_ns=injection.healed_ns,
        detected_ns=detected_ns,
        commanded_ns=_commanded_ns(evidence, events),
        moved_ns=moved_ns,
        restored_ns=restored_ns,
        moves=verdict.moves,
        events=[event.message.id for event in events],
        trace_id=next((f"{trace_id(event.message.fault):032x}" for event in events if event.message.fault), None),
        not_counted=accounts.allowances.of(injection, detected_ns, moved_ns, restored_ns),
        flows=flow_reports(evidence, injection, span, restored_ns, accounts),
        train=_train(evidence, injection, span),
        ranks=befallen(injection, None if evidence.job is None else evidence.job.whole),
    )


def _train(evidence: Evidence, injection: Injection, span: Span) -> TrainFault | None:
    """The effect on the job up to the next fault, wherever that is, because a job is on all hosts and links."""
    if evidence.job is None:
        return None
    over_ns = injection.healed_ns if injection.healed_ns is not None else span.until_ns
    later = [other.injected_ns for other in evidence.injections if other.injected_ns > over_ns]
    return evidence.job.beside(injection.injected_ns, min([span.until_ns, evidence.end_ns, *later]))


def first_detected_ns(events: Iterable[Heard[Event]], truth: Truth, lab: LabTime) -> int | None:
    """The decision time of the first of these events that finds a trouble, as lab time; None: none does."""
    return min(
        (lab_ns(truth, lab, event.message.at_ns, event.at_ns) for event in events if detects(event.message)),
        default=None,
    )


def _commanded_ns(evidence: Evidence, events: Sequence[Heard[Event]]) -> int | None:
    causes = {event.message.id for event in events}
    faults = {event.message.fault for event in events} - {""}
    return min(
        (
            lab_ns(evidence.truth, evidence.lab, command.message.issued_ns, command.at_ns)
            for command in evidence.commands
            if command.message.verb == "reroute"
            and (command.message.cause in causes or command.message.fault in faults)
        ),
        default=None,
    )
