"""The record of a job's steps, as its ranks wrote it, and the report on it, as a whole and beside each fault."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import numpy as np

from foliot_lab.scenario.spec import TRAIN
from foliot_lab.workload.train.merged_steps import MergedSteps, of_steps

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from foliot_lab.scenario.spec import TrainSpec
    from foliot_lab.workload.train.ranks import Ended

STEP = np.dtype([("step", "i8"), ("began_ns", "i8"), ("ended_ns", "i8"), ("comm_ns", "i8"), ("loss", "f8")])
"""A line of a rank's record; times are lab time here."""
_STUCK_MS, _STUCK_TIMES = 10_000.0, 3.0
_BESIDE_NS = 5_000_000_000
"""The time before a fault whose steps are compared with the fault's."""


class _Line(msgspec.Struct, frozen=True):
    step: int
    began_ns: int
    loss: float
    ended_ns: int = 0
    """0: the step's loss was known, and no more."""
    comm_ns: int = 0


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """One rank's step."""

    node: str
    step: int
    began_ns: int
    """Lab time."""
    ms: float
    done: bool
    """Whether the step ended; false: it was still under way."""


class Death(msgspec.Struct, frozen=True, kw_only=True):
    """A rank that ended before its steps were done."""

    node: str
    at_ns: int
    reason: str


class TrainFault(msgspec.Struct, frozen=True, kw_only=True):
    """The effect of a fault on the job, from the injection to the end of the recovery or the next fault."""

    longest: Step | None
    """The longest step that was under way then; null: none was."""
    before_ms: float | None
    """Median of the steps of the five seconds before the fault."""
    stuck: bool
    """The step at the end of that time had gone on for ten seconds, and three times as long as any step that was
    done."""
    stall_ms: float | None
    """Of a job that outlives its ranks, the longest time without a finished step, less the median from step to step;
    null: of others, whose steps say it."""
    deaths: list[Death]


class TrainReport(msgspec.Struct, frozen=True, kw_only=True):
    """The report on the job. Times leave out each rank's first step, in which PyTorch sets itself up."""

    ranks: int
    gradient_mb: float
    steps: int
    """Steps that all ranks have done."""
    asked: int | None
    """Steps that the job was to do; null: it was to go on until the run ended."""
    step_ms: float | None
    """Median length of a step."""
    comm_ms: float | None
    """Median of the time from the start of a step's first all-reduce to the end of its last."""
    longest: Step | None
    longest_at_s: float | None
    """Its beginning, in seconds of the story on the terminal."""
    first_loss: float | None
    """Mean of the first loss over the ranks."""
    last_loss: float | None
    deaths: list[Death]
    spares: int = 0
    """Hosts that stand by."""
    lost_steps: int = 0
    """Steps that were done again, after the loss of a rank."""
    goodput: float | None = None
    """The share of the run's time in steps that count."""
    loss_sha256: str | None = None
    """Of every step's mean loss over the ranks, to compare runs; null: no step was done."""
    folder: str
    """Folder with the record of each step and rank."""


class JobRecord(msgspec.Struct, frozen=True, kw_only=True):
    """The record of a job, at the end of a run or before."""

    name: str = TRAIN
    spec: TrainSpec
    folder: str
    steps: Mapping[str, NDArray[np.void]]
    """Per place, of `STEP`."""
    merged: MergedSteps | None = None
    """The steps of the job as a whole; None: each place has a rank, in their order."""
    ended: Sequence[Ended]
    zero_ns: int
    """Second 0 of the story, lab time."""
    at_ns: int
    """When it was read, lab time."""

    @property
    def whole(self) -> MergedSteps:
        """The steps of the job as a whole."""
        return of_steps(self.steps) if self.merged is None else self.merged

    def summary(self) -> TrainReport:
        """The report on the job."""
        whole = self.whole
        done = [rows[1:] for rows in self.steps.values()]
        longest = _longest(self._under_way(0, self.at_ns))
        all_of_them = np.concatenate(done) if done else np.zeros(0, STEP)
        return TrainReport(
            ranks=whole.size,
            spares=self.spec.spares,
            lost_steps=len(whole.again_ns),
            goodput=whole.goodput(max(self.zero_ns, *whole.began_ns[:1]), self.at_ns),
            loss_sha256=whole.loss_sha256(self.spec.steps),
            gradient_mb=self.spec.gradient_mb,
            steps=self._done(),
            asked=self.spec.steps,
            step_ms=_median_ms(all_of_them["ended_ns"] - all_of_them["began_ns"]),
            comm_ms=_median_ms(all_of_them["comm_ns"]),
            longest=longest,
            longest_at_s=None if longest is None else round((longest.began_ns - self.zero_ns) * 1e-9, 3),
            first_loss=self._loss(0),
            last_loss=self._loss(self._done() - 1),
            deaths=list(self._deaths(0, self.at_ns)),
            folder=self.folder,
        )

    def beside(self, since_ns: int, until_ns: int) -> TrainFault:
        """The effect of a fault on the job, in an interval."""
        before = [
            row["ended_ns"] - row["began_ns"]
            for rows in self.steps.values()
            for row in rows[1:][(rows[1:]["ended_ns"] > since_ns - _BESIDE_NS) & (rows[1:]["ended_ns"] <= since_ns)]
        ]
        longest = _longest(self._under_way(since_ns, until_ns))
        return TrainFault(
            longest=longest,
            before_ms=_median_ms(np.array(before, dtype=np.int64)),
            stuck=self._stands(since_ns, until_ns)
            if self.spec.outlives_ranks
            else longest is not None and self._is_stuck(longest),
            stall_ms=self.whole.stall_ms(since_ns, min(until_ns, self.at_ns)) if self.spec.outlives_ranks else None,
            deaths=list(self._deaths(since_ns, until_ns)),
        )

    def _is_stuck(self, step: Step) -> bool:
        done_ms = max((each.ms for each in self._under_way(0, self.at_ns) if each.done), default=0.0)
        return not step.done and step.ms > max(_STUCK_MS, _STUCK_TIMES * done_ms)

    def _stands(self, since_ns: int, until_ns: int) -> bool:
        """Whether a job that outlives its ranks made no step any more at the end of a time."""
        finished_ns = self.whole.finished_ns
        before_ns = finished_ns[finished_ns <= min(until_ns, self.at_ns)]
        over = self.spec.steps is not None and self._done() >= self.spec.steps
        if over or not len(before_ns):
            return False
        stands_ns = min(until_ns, self.at_ns) - max(int(before_ns[-1]), since_ns)
        return stands_ns * 1e-6 > max(_STUCK_MS, _STUCK_TIMES * self.whole.step_ns() * 1e-6)

    def _done(self) -> int:
        if self.spec.outlives_ranks:
            return len(self.whole.losses)
        return min((len(rows) for rows in self.steps.values()), default=0)

    def _loss(self, step: int) -> float | None:
        if self.spec.outlives_ranks:
            return float(self.whole.losses[step]) if 0 <= step < len(self.whole.losses) else None
        losses = [float(rows["loss"][step]) for rows in self.steps.values() if 0 <= step < len(rows)]
        return sum(losses) / len(losses) if losses else None

    def _deaths(self, since_ns: int, until_ns: int) -> Iterator[Death]:
        for ended in self.ended:
            if ended.status and since_ns <= ended.at_ns <= until_ns:
                yield Death(node=ended.node, at_ns=ended.at_ns, reason=ended.reason)

    def _under_way(self, since_ns: int, until_ns: int) -> Iterator[Step]:
        """Per rank, the longest finished step under way in an interval, and the unfinished one at its end."""
        gone = {ended.node: ended for ended in self.ended}
        for node, rows in self.steps.items():
            here = rows[1:][(rows[1:]["ended_ns"] > since_ns) & (rows[1:]["began_ns"] < until_ns)]
            if len(here):
                row = here[np.argmax(here["ended_ns"] - here["began_ns"])]
                yield _step(node, int(row["step"]), int(row["began_ns"]), int(row["ended_ns"]), done=True)
            if not len(rows) or (node in gone and not gone[node].status) or self.spec.outlives_ranks:
                continue
            number, began_ns = int(rows["step"][-1]) + 1, int(rows["ended_ns"][-1])
            over_ns = min(until_ns, self.at_ns, gone[node].at_ns if node in gone else until_ns)
            if max(since_ns, began_ns) < over_ns:
                yield _step(node, number, began_ns, over_ns, done=False)


def read(file: Path, base_ns: int) -> NDArray[np.void]:
    """A rank's record so far. A line in the middle of which the rank was killed is left out.

    Parameters:
        base_ns: lab time minus CLOCK_MONOTONIC_RAW.
    """
    text = file.read_bytes() if file.exists() else b""
    told = [msgspec.json.decode(line, type=_Line) for line in text.split(b"\n")[:-1]]
    lines = [line for line in told if line.ended_ns]
    rows = [(line.step, line.began_ns + base_ns, line.ended_ns + base_ns, line.comm_ns, line.loss) for line in lines]
    return np.array(rows, dtype=STEP)


def _step(node: str, number: int, began_ns: int, until_ns: int, *, done: bool) -> Step:
    return Step(node=node, step=number, began_ns=began_ns, ms=round((until_ns - began_ns) * 1e-6, 3), done=done)


def _longest(steps: Iterable[Step]) -> Step | None:
    return max(steps, key=lambda step: step.ms, default=None)


def _median_ms(values_ns: NDArray[np.int64]) -> float | None:
    return round(float(np.median(values_ns)) * 1e-6, 3) if len(values_ns) else None
