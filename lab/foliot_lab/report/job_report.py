"""The report on jobs: what each got, alone and beside the others. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import numpy as np

from foliot_lab.workload.flow_ways import moves
from foliot_lab.workload.train.merged_steps import of_steps

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from numpy.typing import NDArray

    from foliot_lab.measure.intervals import Interval
    from foliot_lab.measure.told_delays import Told
    from foliot_lab.workload.jobs import JobsRecord
    from foliot_lab.workload.train.merged_steps import MergedSteps

_SECOND_NS = 1_000_000_000
_BEGINNING_NS = 500_000_000
"""What is left out of a job's time alone, but never more than a quarter of it: TCP finds its rate meanwhile."""


class JobFlowReport(msgspec.Struct, frozen=True, kw_only=True):
    """One flow. Rates are in Mb/s, and leave out the time in which it waited for the others of its job."""

    id: str
    solo_mbps: float | None
    """While its job ran alone; null: it did not."""
    mbps: float | None
    share: float | None
    """Of its rate alone."""
    moves: int
    """How often its way changed."""
    in_band_us: float | None = None
    """Its smoothed round trip beside the others, median; null: nobody told of it."""
    out_of_band_us: float | None = None
    """What probes of its path took at the same times, there and back, median."""


class JobSecond(msgspec.Struct, frozen=True, kw_only=True):
    """One second of a job."""

    at_s: float
    """When it began, in seconds of the scenario."""
    mbps: float | None
    share: float | None
    slowest_share: float | None
    step_ms: float | None
    """Median of the steps that ended in it; null: none did."""


class JobReport(msgspec.Struct, frozen=True, kw_only=True):
    """One job. Null: it did not happen, or the lab does not know."""

    name: str
    kind: str
    hosts: list[str]
    priority: int
    began_ns: int | None
    """When it began beside the others, as lab time."""
    solo_mbps: float | None
    """Of all its flows together, while the job ran alone."""
    solo_step_ms: float | None
    """Median of its steps then."""
    steps: int | None
    """Steps that were done beside the others; null: it has none."""
    step_ms: float | None
    mbps: float | None
    share: float | None
    """Of its rate alone; of a training job, its step alone over its step."""
    slowest_share: float | None
    """The least of its flows."""
    ranks: int | None = None
    """This and the next four are of a training job."""
    spares: int | None = None
    """Hosts that stand by."""
    lost_steps: int | None = None
    """Steps that were done again, after the loss of a rank."""
    goodput: float | None = None
    """The share of the run's time in steps that count."""
    loss_sha256: str | None = None
    """Of every step's mean loss over the ranks, to compare runs."""
    flows: list[JobFlowReport]
    seconds: list[JobSecond]


def job_reports(jobs: JobsRecord) -> list[JobReport]:
    """The report on each job, in the scenario's order."""
    return [_Job(jobs, number).report() for number in range(len(jobs.specs))]


class _Job:
    def __init__(self, jobs: JobsRecord, number: int) -> None:
        self._jobs = jobs
        self._number = number
        self._spec = jobs.specs[number]
        self._numbers = [row for row, flow in enumerate(jobs.flows) if flow.job == number]
        self._solo = _steady(jobs.alone.get(number))
        self._ran = jobs.ran.get(number)
        self._solo_mbps = self._mbps(self._solo)
        self._solo_step_ms = self._step_ms(self._solo)
        self._solo_of = {flow: self._flow_mbps(flow, self._solo) for flow in self._numbers}

    def report(self) -> JobReport:
        ran = self._ran
        flows = [self._flow(flow) for flow in self._numbers]
        mbps, step_ms = self._mbps(ran), self._step_ms(ran)
        whole = self._whole if self._spec.kind == "train" else None
        return JobReport(
            ranks=None if whole is None else whole.size,
            spares=None if whole is None else self._spec.train().spares,
            lost_steps=None if whole is None else len(whole.again_ns),
            goodput=None if whole is None or ran is None else whole.goodput(*ran),
            loss_sha256=None if whole is None else whole.loss_sha256(self._spec.steps),
            name=self._spec.name,
            kind=self._spec.kind,
            hosts=list(self._jobs.hosts[self._number]),
            priority=self._spec.priority,
            began_ns=None if ran is None else ran[0],
            solo_mbps=_rounded(self._solo_mbps),
            solo_step_ms=_rounded(self._solo_step_ms),
            steps=len(self._steps(ran)) if self._has_steps else None,
            step_ms=_rounded(step_ms),
            mbps=_rounded(mbps),
            share=self._share(mbps, step_ms),
            slowest_share=_least(flow.share for flow in flows),
            flows=flows,
            seconds=list(self._seconds()),
        )

    @property
    def _whole(self) -> MergedSteps:
        """The steps of the training job."""
        return of_steps(self._jobs.train) if self._jobs.merged is None else self._jobs.merged

    @property
    def _has_steps(self) -> bool:
        return self._spec.step_mb is not None or self._spec.kind == "train"

    def _flow(self, flow: int) -> JobFlowReport:
        mbps = self._flow_mbps(flow, self._ran)
        return JobFlowReport(
            id=self._jobs.flows[flow].id,
            solo_mbps=_rounded(self._solo_of[flow]),
            mbps=_rounded(mbps),
            share=_ratio(mbps, self._solo_of[flow]),
            moves=0 if self._ran is None else moves(self._jobs.ways[flow], *self._ran),
            in_band_us=_median(each.in_band_us for each in self._told(flow)),
            out_of_band_us=_median(each.out_of_band_us for each in self._told(flow)),
        )

    def _told(self, flow: int) -> list[Told]:
        """What was told of a flow beside the others."""
        if self._ran is None or not self._jobs.told:
            return []
        since_ns, until_ns = self._ran
        return [each for each in self._jobs.told[flow] if since_ns <= each.at_ns <= until_ns]

    def _seconds(self) -> Iterator[JobSecond]:
        if self._ran is None:
            return
        since_ns, until_ns = self._ran
        zero_ns = self._jobs.zero_ns
        first = -(-(since_ns - zero_ns) // _SECOND_NS)
        for second in range(first, (until_ns - zero_ns) // _SECOND_NS):
            began_ns = zero_ns + second * _SECOND_NS
            part = (began_ns, began_ns + _SECOND_NS)
            mbps, step_ms = self._mbps(part), _median_ms(self._steps_ending(part))
            yield JobSecond(
                at_s=float(second),
                mbps=_rounded(mbps),
                share=self._share(mbps, step_ms),
                slowest_share=_least(
                    _ratio(self._flow_mbps(flow, part), self._solo_of[flow]) for flow in self._numbers
                ),
                step_ms=_rounded(step_ms),
            )

    def _share(self, mbps: float | None, step_ms: float | None) -> float | None:
        return _ratio(mbps, self._solo_mbps) if self._numbers else _ratio(self._solo_step_ms, step_ms)

    def _mbps(self, part: Interval | None) -> float | None:
        """The rate of all flows together, pauses between steps included."""
        if part is None:
            return None
        rates = [rate for flow in self._numbers if (rate := self._jobs.record.mbps(flow, *part)) is not None]
        return sum(rates) if rates else None

    def _flow_mbps(self, flow: int, part: Interval | None) -> float | None:
        return None if part is None else self._jobs.record.mbps_while_due(flow, *part)

    def _step_ms(self, part: Interval | None) -> float | None:
        return _median_ms(self._steps(part))

    def _steps(self, part: Interval | None) -> NDArray[np.int64]:
        """The steps within an interval, a row each: beginning, end."""
        if part is None:
            return np.zeros((0, 2), np.int64)
        all_of_them = self._all_steps(part[1])
        return all_of_them[all_of_them[:, 0] >= part[0]]

    def _steps_ending(self, part: Interval) -> NDArray[np.int64]:
        all_of_them = self._all_steps(part[1])
        return all_of_them[(all_of_them[:, 1] > part[0]) & (all_of_them[:, 0] >= (self._ran or part)[0])]

    def _all_steps(self, until_ns: int) -> NDArray[np.int64]:
        if self._spec.kind != "train":
            return self._jobs.record.steps(self._number, 0, until_ns)
        # All ranks do a step together; the last one ends it.
        whole = self._whole
        steps: NDArray[np.int64] = np.column_stack((whole.began_ns, whole.ended_ns))[whole.ended_ns <= until_ns]
        return steps


def _steady(alone: Interval | None) -> Interval | None:
    if alone is None:
        return None
    since_ns, until_ns = alone
    return since_ns + min(_BEGINNING_NS, (until_ns - since_ns) // 4), until_ns


def _median_ms(steps: NDArray[np.int64]) -> float | None:
    return float(np.median(steps[:, 1] - steps[:, 0])) * 1e-6 if len(steps) else None


def _median(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return round(float(np.median(known)), 1) if known else None


def _ratio(one: float | None, other: float | None) -> float | None:
    return None if one is None or not other else round(one / other, 4)


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 3)


def _least(shares: Iterable[float | None]) -> float | None:
    return min((share for share in shares if share is not None), default=None)
