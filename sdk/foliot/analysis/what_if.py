"""By how much a training job is slowed down by those of its operations that take longer than their like, and whose.

The steps of a trace are run again with other durations, by what waits for what ("Understanding Stragglers in Large
Model Training Using What-if Analysis", OSDI '25): as they were, as they would be if all operations of a kind took the
same time, and with some workers as they should be.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from foliot.analysis.operator_trace import TraceError
from foliot.analysis.step_schedule import COMMUNICATION, Schedule, schedule

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from foliot.analysis.operator_trace import StepOperation, Trace

_SLOWEST_SHARE = 0.03
"""Of all workers, how many count as "the few slowest" in M_w (section 4.2)."""
_COMPUTING = frozenset({"forward-compute", "backward-compute"})
_CLOCK_ERROR_S = 0.01
"""A transfer that seems to end so long before it began was stamped wrongly, and counts as taking no time."""
_SLOWER = 1.1
"""By how much a worker must be slower than its like to be named: a tenth, as of stragglers found live."""


class Slow(NamedTuple):
    """A worker that computes more slowly than the others of its stage."""

    replica: int
    stage: int
    share: float
    """Of the job's loss: what it would lose by this worker alone."""


class Slowdown(NamedTuple):
    """What a job loses."""

    steps: int
    skipped: int
    """Steps that are not whole, and left out."""
    slowdown: float
    """S: the mean step over that of a job of which all operations of a kind take the same time."""
    of_last_stage: float | None
    """M_s: the share of the loss that goes with the last stage's operations. None: nothing is lost."""
    of_slowest: float | None
    """M_w: the share of the loss that goes with the operations of the slowest 3 % of workers."""
    slow: tuple[Slow, ...]


def analyse(trace: Trace) -> Slowdown:
    """Finds what stragglers cost a job.

    Raises:
        TraceError: the trace is not one of steps in a pipeline.
    """
    return _Analysis(trace).result()


class _Analysis:
    """One trace. Arrays are by operation, replica and step."""

    def __init__(self, trace: Trace) -> None:
        self._trace = trace
        self._schedule: Schedule = schedule(trace.operations)
        self._stages = np.array([each.stage for each in trace.operations])
        self._replicas = range(trace.start_s.shape[1])
        self._taken = _taken(trace, self._schedule)
        self._usual = _usual(trace.operations, self._taken)
        self._taken_s, self._usual_s = self._step_s(self._taken), self._step_s(self._usual)
        if self._usual_s <= 0:
            raise TraceError("its steps take no time")

    def result(self) -> Slowdown:
        """All of it."""
        by_replica = [
            self._mean_with(self._usual, self._taken, self._of(replica=each)) / self._usual_s for each in self._replicas
        ]
        by_stage = [
            self._mean_with(self._usual, self._taken, self._of(stage=each)) / self._usual_s
            for each in range(int(self._stages.max()) + 1)
        ]
        workers = sorted(
            ((replica, stage) for replica in self._replicas for stage in range(len(by_stage))),
            key=lambda each: (-min(by_replica[each[0]], by_stage[each[1]]), each[1], each[0]),
        )
        slowest = workers[: math.ceil(len(workers) * _SLOWEST_SHARE)]
        return Slowdown(
            steps=len(self._trace.steps),
            skipped=self._trace.skipped,
            slowdown=self._taken_s / self._usual_s,
            of_last_stage=self._share(self._of(stage=int(self._stages.max()))),
            of_slowest=self._share(np.any([self._of(*each) for each in slowest], axis=0)),
            slow=tuple(self._slow(workers)),
        )

    def _slow(self, workers: Sequence[tuple[int, int]]) -> Iterator[Slow]:
        """The workers that compute more slowly than the other replicas at their stage, the slowest first."""
        lost_s = self._taken_s - self._usual_s
        if lost_s <= 0 or len(self._replicas) < 2:
            return
        computes = np.array([each.kind in _COMPUTING for each in self._trace.operations])
        for replica, stage in workers:
            own = self._taken[computes & (self._stages == stage)].sum(axis=0).mean(axis=1)
            if own[replica] < _SLOWER * np.median(np.delete(own, replica)):
                continue
            alone_s = self._mean_with(self._usual, self._taken, self._of(replica, stage)) - self._usual_s
            yield Slow(replica, stage, alone_s / lost_s)

    def _of(self, replica: int | None = None, stage: int | None = None) -> NDArray[np.bool_]:
        """The operations of a replica, a stage, or a worker."""
        rows = np.ones(len(self._stages), bool) if stage is None else self._stages == stage
        columns = np.ones(len(self._replicas), bool) if replica is None else np.arange(len(self._replicas)) == replica
        found: NDArray[np.bool_] = rows[:, None, None] & columns[None, :, None]
        return found

    def _share(self, mended: NDArray[np.bool_]) -> float | None:
        """The share of the loss that would be saved if some operations took their usual time."""
        lost_s = self._taken_s - self._usual_s
        if abs(lost_s) < 1e-9 * self._usual_s:
            return None
        return (self._taken_s - self._mean_with(self._taken, self._usual, mended)) / lost_s

    def _mean_with(self, most: NDArray[np.float64], some: NDArray[np.float64], which: NDArray[np.bool_]) -> float:
        return self._step_s(np.where(which, some, most))

    def _step_s(self, taken: NDArray[np.float64]) -> float:
        """The mean step, if operations take so long once all that they wait for is there."""
        end = np.empty_like(taken)
        for unit in self._schedule.units:
            begun = 0.0
            for each in unit.operations:
                for before in self._schedule.after[each]:
                    begun = np.maximum(begun, end[before])
            if unit.of_replicas:
                begun = np.max(np.broadcast_to(begun, taken.shape[1:]), axis=0, keepdims=True)
            for each in unit.operations:
                end[each] = begun + taken[each]
        return float(end.max(axis=(0, 1)).mean())


def _taken(trace: Trace, found: Schedule) -> NDArray[np.float64]:
    """What each operation takes: of a transfer or exchange, from when the last of its ends has begun it."""
    taken = trace.duration_s.copy()
    for unit in found.units:
        if not unit.communicates:
            continue
        rows = list(unit.operations)
        begun = trace.start_s[rows].max(axis=0)
        if unit.of_replicas:
            begun = begun.max(axis=0, keepdims=True)
        taken[rows] = trace.start_s[rows] + trace.duration_s[rows] - begun
    taken[taken <= -_CLOCK_ERROR_S] = 0.0
    return taken


def _usual(operations: Sequence[StepOperation], taken: NDArray[np.float64]) -> NDArray[np.float64]:
    """What operations take if all of a kind take the same: the mean of what computes, the median of what communicates.

    The mean keeps the work the same. The median leaves out what a flapping link or a full one did.
    """
    usual = np.empty_like(taken)
    kinds = np.array([each.kind for each in operations])
    for kind in np.unique(kinds):
        rows = kinds == kind
        usual[rows] = np.median(taken[rows]) if kind in COMMUNICATION else taken[rows].mean()
    return usual
