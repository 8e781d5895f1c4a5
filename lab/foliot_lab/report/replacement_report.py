"""The report on ranks of a training job that were given to spares, or were to be. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import msgspec

from foliot_lab.report.message_times import lab_ns
from foliot_lab.report.replace_orders import REPLACE, order_of
from foliot_lab.workload.train.places import at
from foliot_schemas.event_kinds import REFUSAL
from foliot_schemas.fault import trace_id

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from foliot_lab.faults.injection import Injection
    from foliot_lab.measure.bus_recorder import Heard
    from foliot_lab.report.evidence import Evidence
    from foliot_lab.workload.train.merged_steps import MergedSteps
    from foliot_schemas import Command, Event, WorkerState
    from foliot_schemas.orders import RankChange, ReplaceRank

_TIMES = ("left_ns", "formed_ns", "copied_ns", "first_step_ns")
_GAVE_WAY = frozenset({"refused", "failed"})


class ReplacementReport(msgspec.Struct, frozen=True, kw_only=True):
    """One rank that was given to a spare, or was to be; times are lab time, and null if that did not happen."""

    fault: str | None
    """The fault that explains it; null: none does, or none was on the process that had the rank."""
    job: str
    rank: int | None
    from_: str | None = msgspec.field(name="from")
    """The node of the process that lost it."""
    to: str | None
    """The node of the one that took it; null: none was told to."""
    cause: str
    planned: bool
    """Whether the processes left their group at a step's end."""
    decided_ns: int
    left_ns: int | None
    """When the last of those that stay had left their former group."""
    formed_ns: int | None
    copied_ns: int | None
    """When the last that lacked the state had it."""
    first_step_ns: int | None
    """When the last rank had done the first step."""
    stall_ms: float
    """The longest time without a finished step of the job around it, less the median step: by the job's own record."""
    lost_steps: int
    """Steps that were done again: by the job's own record."""
    state_mb: float | None
    state_from: int | None
    """The rank that gave its state."""
    refused: str | None
    """Why nothing was done, or why a node could not do it."""
    trace_id: str


class _Decision(NamedTuple):
    """The commands of one order, to all nodes."""

    order: ReplaceRank
    commands: list[Heard[Command]]
    at_ns: int


def replacement_reports(
    evidence: Evidence, commands: Mapping[str, str], events: Mapping[str, str]
) -> list[ReplacementReport]:
    """A report on each rank that was given away, or was to be, in the order of the decisions.

    Parameters:
        commands: by command, the fault that explains it.
        events: by event, likewise.
    """
    rows = [*_given(evidence, commands), *_refused(evidence, events)]
    return sorted(rows, key=lambda row: row.decided_ns)


def befallen(injection: Injection, whole: MergedSteps | None) -> list[int]:
    """The ranks whose processes were at the place of a fault when it was injected."""
    if whole is None or "." in injection.where:
        return []
    held = ((rank, whole.holder(rank, injection.injected_ns)) for rank in range(whole.size))
    return [rank for rank, place in held if place is not None and at(injection.where, [place])]


def _given(evidence: Evidence, faults: Mapping[str, str]) -> Iterator[ReplacementReport]:
    decisions = _decisions(evidence)
    whole = None if evidence.job is None else evidence.job.whole
    courses = [_Course(evidence, decision.order) for decision in decisions]
    ends = [*(decision.at_ns for decision in decisions[1:]), evidence.end_ns]
    for number, decision in enumerate(decisions):
        fault = next((faults[each.message.id] for each in decision.commands if each.message.id in faults), None)
        for change in decision.order.changes:
            formed = _formed(decisions, courses, number, change)
            own = _own(evidence, fault, change, decision.at_ns, whole)
            yield _row(evidence, decision, change, until_ns=ends[formed], fault=own, course=courses[formed])


def _formed(decisions: Sequence[_Decision], courses: Sequence[_Course], number: int, change: RankChange) -> int:
    """The number of the decision whose group did the first step with a rank's new process: itself, or a later one.

    Another rank may be lost before the group has formed. If none did a step, it is the decision itself.
    """
    taker, job = (change.to_node, change.to_process), decisions[number].order.job
    for place in range(number, len(decisions)):
        order = decisions[place].order
        if order.job != job:
            continue
        if place > number and taker in {(each.node, each.process) for each in order.changes}:
            break
        if courses[place].last("first_step_ns") is not None:
            return place
    return number


def _row(
    evidence: Evidence, decision: _Decision, change: RankChange, *, until_ns: int, fault: str | None, course: _Course
) -> ReplacementReport:
    """A row of the report.

    Parameters:
        course: of the group that did the first step with the rank's new process.
    """
    order, at_ns = decision.order, decision.at_ns
    whole = None if evidence.job is None else evidence.job.whole
    taker = course.of(change.to_node, change.to_process)
    since_ns = at_ns
    if not order.at_step:
        since_ns = next((each.injected_ns for each in evidence.injections if each.fault_id == fault), at_ns)
    over_ns = min(until_ns, course.last("first_step_ns") or until_ns)
    size = 0 if taker is None else taker.state_bytes
    return ReplacementReport(
        fault=fault, job=order.job, rank=change.rank, from_=change.node, to=change.to_node, cause=order.cause,
        planned=order.at_step > 0, decided_ns=at_ns,
        **{name: course.last(name) for name in _TIMES},
        stall_ms=0.0 if whole is None else whole.stall_ms(since_ns, over_ns),
        lost_steps=0 if whole is None else whole.done_again(at_ns, until_ns),
        state_mb=round(size * 1e-6, 3) if size else None,
        state_from=taker.state_from if taker is not None and taker.state_from >= 0 else None,
        refused=_reason(evidence, decision.commands),
        trace_id=f"{trace_id(decision.commands[0].message.fault):032x}",
    )  # fmt: skip


def _refused(evidence: Evidence, faults: Mapping[str, str]) -> Iterator[ReplacementReport]:
    for heard in evidence.events:
        event = heard.message
        if event.kind != REFUSAL.name or event.evidence.get("verb") != REPLACE:
            continue
        rank = event.who.partition("/rank")[2]
        at_ns = lab_ns(evidence.truth, evidence.lab, event.at_ns, heard.at_ns)
        yield ReplacementReport(
            fault=faults.get(event.id), job=event.who.partition("/")[0], rank=int(rank) if rank.isdecimal() else None,
            from_=_node(event), to=None, cause=_cause(evidence, event), planned=False, decided_ns=at_ns,
            left_ns=None, formed_ns=None, copied_ns=None, first_step_ns=None, stall_ms=0.0, lost_steps=0,
            state_mb=None, state_from=None, refused=event.policy, trace_id=f"{trace_id(event.fault):032x}",
        )  # fmt: skip


def _decisions(evidence: Evidence) -> list[_Decision]:
    """The orders that were given, not those that were only advised."""
    found: dict[tuple[str, int], _Decision] = {}
    for heard in sorted(evidence.commands, key=lambda each: each.at_ns):
        order = None if heard.message.advice else order_of(heard.message)
        if order is None:
            continue
        at_ns = lab_ns(evidence.truth, evidence.lab, heard.message.issued_ns, heard.at_ns)
        found.setdefault((order.job, order.generation), _Decision(order, [], at_ns)).commands.append(heard)
    return list(found.values())


def _own(
    evidence: Evidence, fault: str | None, change: RankChange, at_ns: int, whole: MergedSteps | None
) -> str | None:
    """The fault that explains a command, unless it is on another process of the node than the one that had the rank."""
    place = None if whole is None else whole.holder(change.rank, at_ns)
    injection = next((each for each in evidence.injections if each.fault_id == fault), None)
    if injection is None or place is None or "/rank" not in injection.where:
        return fault
    others = [
        each
        for each in evidence.injections
        if "/rank" in each.where and each.injected_ns <= at_ns and at(each.where, [place])
    ]
    return others[-1].fault_id if others else None


class _Course:
    """What nodes told of the processes of a generation, each value when it was told first."""

    def __init__(self, evidence: Evidence, order: ReplaceRank) -> None:
        self._states: dict[tuple[str, int], WorkerState] = {}
        self._times: dict[str, dict[tuple[str, int], int]] = {name: {} for name in _TIMES}
        leaving = {(change.node, change.process) for change in order.changes}
        taking = {(change.to_node, change.to_process) for change in order.changes}
        for heard in evidence.workers:
            for state in heard.message.workers if heard.message.job == order.job else ():
                who = heard.message.node, state.process
                if state.generation != order.generation or state.rank < 0 or who in leaving:
                    continue
                # Who leaves for the next generation says no more what it had been given for this one.
                if state.state_bytes >= self._states.get(who, state).state_bytes:
                    self._states[who] = state
                # Who has just taken a rank has left no group before: what it leaves is this one.
                for name in _TIMES[who in taking :]:
                    if told_ns := getattr(state, name):
                        at_ns = lab_ns(evidence.truth, evidence.lab, told_ns, heard.at_ns)
                        self._times[name].setdefault(who, at_ns)

    def of(self, node: str, process: int) -> WorkerState | None:
        """What was told last of a process in the generation."""
        return self._states.get((node, process))

    def last(self, name: str) -> int | None:
        """When the last process was through with something; None: none was."""
        return max(self._times[name].values(), default=None)


def _reason(evidence: Evidence, commands: Sequence[Heard[Command]]) -> str | None:
    ids = {each.message.id for each in commands}
    reasons = {
        each.message.reason or each.message.status
        for each in evidence.outcomes
        if each.message.command in ids and each.message.status in _GAVE_WAY
    }
    return "; ".join(sorted(reasons)) or None


def _cause(evidence: Evidence, event: Event) -> str:
    """The state of the event that a refusal follows from; empty: it was none."""
    return next((each.message.state for each in evidence.events if each.message.id == event.cause), "")


def _node(event: Event) -> str | None:
    nodes = event.related.get("nodes", ())
    return nodes[0] if len(nodes) == 1 else None
