"""The rows of a lab's trials, from its report, and what they come to. Pure."""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING

import msgspec

from bench.figures import median, most
from bench.goal import Goal
from bench.stragglers.draw import ALIKE, HUNG, JOB, SLOW, Case
from foliot_lab.report.job_report import JobReport  # noqa: TC001 - msgspec reads annotations at run time
from foliot_lab.report.rank_report import HangReport, StragglerReport  # noqa: TC001 - likewise

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bench.stragglers.draw import Lab, Trial

_LATE_S = 2.0
"""What is said so long after a trial is of it, too."""
_BEFORE_S = 5.0
"""Steps of so long before a trial are what its steps are compared with."""
_PERCENT = 100


class FoundFault(msgspec.Struct, frozen=True, kw_only=True):
    """What a row needs of a fault."""

    id: str
    injected_ns: int


class FoundMachine(msgspec.Struct, frozen=True, kw_only=True):
    """What a row needs of the machine."""

    idle_cpu: float


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """What rows need of a report."""

    faults: list[FoundFault]
    jobs: list[JobReport]
    hangs: list[HangReport]
    stragglers: list[StragglerReport]
    machine: FoundMachine


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """One trial."""

    cause: Case
    seed: int
    slowdown: float | None
    """Median of its steps over that of the five seconds before; null: there were none."""
    detected_s: float | None
    """From the fault to the first event that names its rank; null: none did."""
    said: str
    """The cause or reason of that event."""
    named_right: bool
    """The rank at fault was named, if there is one."""
    cause_right: bool
    false_alarms: int
    """Events that name another, or anybody where nobody is at fault."""
    steps_waited: float | None
    """Of a hang: median steps that `detected_s` is, beyond five seconds; null: it is no hang, or was not found."""
    idle_cpu: float


def rows_of(lab: Lab, seed: int, found: Found) -> list[Row]:
    """The rows of a lab, one a trial."""
    (job,) = [each for each in found.jobs if each.name == JOB]
    injected = {fault.id: fault.injected_ns for fault in found.faults}
    offsets = [injected[each.fault] - round(each.at_s * 1e9) for each in lab.trials if each.fault is not None]
    # Seconds of the scenario stand still where the lab was late; of what has no fault, the nearest tells.
    zero_ns = (job.began_ns or 0) if not offsets else round(statistics.median(offsets))
    return [_row(trial, seed, found, job, injected.get(trial.fault or "", zero_ns + round(trial.at_s * 1e9)))
            for trial in lab.trials]  # fmt: skip


def _row(trial: Trial, seed: int, found: Found, job: JobReport, since_ns: int) -> Row:
    until_ns = since_ns + round((trial.for_s + _LATE_S) * 1e9)
    said: list[tuple[int, int | None, str]] = [
        *((each.detected_ns, each.rank, each.cause) for each in found.stragglers),
        *((each.detected_ns, each.rank, each.why) for each in found.hangs),
    ]
    here = sorted(each for each in said if since_ns <= each[0] <= until_ns)
    kinds = {"hang": {"absent"}, "stop": {"stopped"}}.get(trial.case, {trial.case})
    right = [each for each in here if trial.rank is not None and each[1] == trial.rank]
    first = right[0] if right else None
    detected_s = None if first is None else round((first[0] - since_ns) * 1e-9, 3)
    step_s = _steps(job, trial.at_s - _BEFORE_S, trial.at_s)
    waited = None
    if detected_s is not None and trial.case in HUNG and step_s:
        waited = round((detected_s - 5.0) / step_s, 2)
    during_s = _steps(job, trial.at_s + 1.0, trial.at_s + trial.for_s)
    return Row(
        cause=trial.case, seed=seed, slowdown=None if not step_s or not during_s else round(during_s / step_s, 3),
        detected_s=detected_s, said="" if first is None else first[2],
        named_right=first is not None or trial.rank is None, cause_right=first is not None and first[2] in kinds,
        false_alarms=len(here) - len(right), steps_waited=waited, idle_cpu=round(found.machine.idle_cpu, 3),
    )  # fmt: skip


def _steps(job: JobReport, since_s: float, until_s: float) -> float | None:
    """The median step in some seconds, in seconds."""
    each = [second.step_ms for second in job.seconds if second.step_ms is not None and since_s <= second.at_s < until_s]
    return statistics.median(each) * 1e-3 if each else None


class Sum(msgspec.Struct, frozen=True, kw_only=True):
    """The trials of one case."""

    cause: str
    n: int
    named: int
    cause_right: int
    detected_p50_s: float | None
    detected_max_s: float | None
    false_alarms: int
    slowdown_p50: float | None


def by_case(rows: Sequence[Row]) -> list[Sum]:
    """A line for each case that there is."""
    return [
        Sum(
            cause=case, n=len(own), named=sum(row.named_right for row in own if row.detected_s is not None),
            cause_right=sum(row.cause_right for row in own), detected_p50_s=median(row.detected_s for row in own),
            detected_max_s=most(row.detected_s for row in own),
            false_alarms=sum(row.false_alarms for row in own), slowdown_p50=median(row.slowdown for row in own),
        )
        for case in (*SLOW, *ALIKE, *HUNG)
        if (own := [row for row in rows if row.cause == case])
    ]  # fmt: skip


def goals(rows: Sequence[Row]) -> list[Goal]:
    """The goals of slow ranks and of hangs. Slow ranks that cost less than a fifth of a step are left out."""
    slow = [row for row in rows if row.cause in SLOW and (row.slowdown or 0.0) >= 1.2]
    hung = [row for row in rows if row.cause in HUNG]
    found = [row for row in slow if row.detected_s is not None]
    alarms = sum(row.false_alarms for row in rows if row.cause in SLOW + ALIKE)
    made = []
    if slow:
        times = [row.detected_s for row in found if row.detected_s is not None]
        precision = len(found) / (len(found) + alarms) if found or alarms else 1.0
        made += [
            Goal("slow ranks found: median at most 3.6 s", len(found), f"{statistics.median(times):.2f} s" if times else "none", bool(times) and statistics.median(times) <= 3.6),
            Goal("slow ranks found: at most 8 s", len(found), f"{max(times):.2f} s" if times else "none", bool(times) and max(times) <= 8.0),
            Goal("recall at least .95", len(slow), f"{len(found) / len(slow):.3f}", len(found) / len(slow) >= 0.95),
            Goal("precision at least .97", len(found) + alarms, f"{precision:.3f}", precision >= 0.97),
            Goal("cause right in .9", len(found), f"{sum(row.cause_right for row in found) / max(len(found), 1):.3f}", sum(row.cause_right for row in found) >= 0.9 * len(found)),
        ]  # fmt: skip
    alike = [row for row in rows if row.cause in ALIKE]
    if alike:
        spoilt = sum(row.false_alarms > 0 for row in alike)
        made.append(Goal("nobody named where no rank is slow", len(alike), str(len(alike) - spoilt), not spoilt))
    if hung:
        named = [row for row in hung if row.detected_s is not None]
        late = [row for row in named if (row.steps_waited or 0.0) > 3.0]
        made += [
            Goal("hung ranks named", len(hung), str(len(named)), len(named) == len(hung)),
            Goal("within 5 s after three median steps", len(named), str(len(named) - len(late)), not late),
            Goal("nobody else named", len(hung), str(sum(row.false_alarms for row in hung)), not any(row.false_alarms for row in hung)),
        ]  # fmt: skip
    return made
