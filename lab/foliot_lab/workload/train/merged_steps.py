"""The steps of a job as a whole, whichever processes did them, and however often.

A rank may be in one process after another, and a step may be done twice. The last time counts.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from foliot_lab.measure.intervals import Intervals

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from numpy.typing import NDArray

LINE = np.dtype([("rank", "i8"), ("step", "i8"), ("began_ns", "i8"), ("ended_ns", "i8"), ("loss", "f8")])
"""A line of a process's record, in lab time. An `ended_ns` of 0: the loss was known, and the process did not end it."""


class _Line(msgspec.Struct, frozen=True):
    step: int
    began_ns: int
    loss: float
    rank: int = 0
    ended_ns: int = 0


class MergedSteps(msgspec.Struct, frozen=True, kw_only=True):
    """The steps of a job; times are lab time."""

    size: int
    """The number of its ranks."""
    losses: NDArray[np.float64]
    """Of each step, from the first on, the mean loss over the ranks."""
    began_ns: NDArray[np.int64]
    """Of these steps, when the last time began that each was done."""
    ended_ns: NDArray[np.int64]
    finished_ns: NDArray[np.int64]
    """When a step was done, in order, each time that it was."""
    again_ns: NDArray[np.int64]
    """When a step was done that had been done before."""
    holders: Mapping[int, tuple[tuple[int, str], ...]]
    """Of each rank, since when which place had it."""

    def loss_sha256(self, asked: int | None) -> str | None:
        """The SHA-256 of the losses as little-endian float64, up to the steps asked for; None: no step was done."""
        losses = self.losses[:asked]
        return hashlib.sha256(losses.astype("<f8").tobytes()).hexdigest() if len(losses) else None

    def goodput(self, since_ns: int, until_ns: int) -> float | None:
        """The share of a span in steps that count; None: there is no span."""
        if until_ns <= since_ns:
            return None
        spans = Intervals(zip(self.began_ns.tolist(), self.ended_ns.tolist(), strict=True))
        return round(spans.within(since_ns, until_ns) / (until_ns - since_ns), 4)

    def step_ns(self) -> float:
        """The median time from step to step; 0: there were fewer than two."""
        return float(np.median(np.diff(self.finished_ns))) if len(self.finished_ns) > 1 else 0.0

    def stall_ms(self, since_ns: int, until_ns: int) -> float:
        """The longest time without a finished step that a span has a part of, less the median step."""
        moments = np.concatenate((self.finished_ns, [max(until_ns, *self.finished_ns[-1:])]))
        ends, waits = moments[1:], np.diff(moments)
        here = (ends > since_ns) & (moments[:-1] < until_ns)
        longest = float(waits[here].max()) if here.any() else 0.0
        return round(max(0.0, longest - self.step_ns()) * 1e-6, 3)

    def done_again(self, since_ns: int, until_ns: int) -> int:
        """How many steps were done again in a span."""
        return int(((self.again_ns > since_ns) & (self.again_ns <= until_ns)).sum())

    def holder(self, rank: int, at_ns: int) -> str | None:
        """The place that had a rank at a time; None: none had."""
        held = [place for since_ns, place in self.holders.get(rank, ()) if since_ns <= at_ns]
        return held[-1] if held else None


def read_lines(file: Path, base_ns: int) -> NDArray[np.void]:
    """All lines of a process's record, of `LINE`. One in the middle of which it was killed is left out.

    Parameters:
        base_ns: lab time minus CLOCK_MONOTONIC_RAW.
    """
    text = file.read_bytes() if file.exists() else b""
    lines = [msgspec.json.decode(line, type=_Line) for line in text.split(b"\n")[:-1]]
    rows = [
        (line.rank, line.step, line.began_ns + base_ns, line.ended_ns and line.ended_ns + base_ns, line.loss)
        for line in lines
    ]
    return np.array(rows, dtype=LINE)


def of_steps(steps: Mapping[str, NDArray[np.void]]) -> MergedSteps:
    """The steps of a job of which each process has one rank, in their order.

    Parameters:
        steps: per place, of `record.STEP`.
    """
    lines = {}
    for rank, (place, rows) in enumerate(steps.items()):
        lines[place] = np.zeros(len(rows), LINE)
        lines[place]["rank"] = rank
        for name in ("step", "began_ns", "ended_ns", "loss"):
            lines[place][name] = rows[name]
    return merge(lines, len(steps))


def merge(lines: Mapping[str, NDArray[np.void]], size: int) -> MergedSteps:
    """The steps of a job.

    Parameters:
        lines: of each place, of `LINE`.
        size: the number of ranks.
    """
    places = list(lines)
    rows = np.concatenate([*lines.values(), np.zeros(0, LINE)])
    place = np.repeat(np.arange(len(places)), [len(each) for each in lines.values()])
    order = np.argsort(rows["began_ns"], kind="stable")
    rows, place = rows[order], place[order]
    known = (rows["rank"] < size) & (rows["rank"] >= 0)
    rows, place = rows[known], place[known]
    done = rows[rows["ended_ns"] > 0]
    count = int(rows["step"].max()) + 1 if len(rows) else 0
    losses = np.full((size, count), np.nan)
    losses[rows["rank"], rows["step"]] = rows["loss"]  # of two, the later one
    began, ended, finished, again = _times(done, count)
    whole = np.isfinite(losses).all(axis=0) & (ended > 0)
    until = int(np.argmin(whole)) if not whole.all() else count
    return MergedSteps(
        size=size,
        losses=losses[:, :until].mean(axis=0),
        began_ns=began[:until],
        ended_ns=ended[:until],
        finished_ns=finished,
        again_ns=again,
        holders=_holders(rows, place, places),
    )


def _times(
    done: NDArray[np.void], count: int
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Of each step, when its last time began and ended; then when any was finished, and when any was again."""
    began, ended = np.full(count, np.iinfo(np.int64).max), np.zeros(count, np.int64)
    times: dict[tuple[int, int], int] = {}
    seen: dict[tuple[int, int], int] = {}
    last: dict[tuple[int, int], tuple[int, int]] = {}
    columns = (done[name].tolist() for name in ("rank", "step", "began_ns", "ended_ns"))
    for rank, step, began_ns, ended_ns in zip(*columns, strict=True):
        time = seen[rank, step] = seen.get((rank, step), -1) + 1
        times[step, time] = max(times.get((step, time), 0), ended_ns)
        last[rank, step] = began_ns, ended_ns
    for (_, step), (began_ns, ended_ns) in last.items():
        began[step], ended[step] = min(began[step], began_ns), max(ended[step], ended_ns)
    again = [at_ns for (_, time), at_ns in times.items() if time]
    return began, ended, np.array(sorted(times.values()), np.int64), np.array(sorted(again), np.int64)


def _holders(
    rows: NDArray[np.void], place: NDArray[np.int64], places: list[str]
) -> dict[int, tuple[tuple[int, str], ...]]:
    found: dict[int, list[tuple[int, str]]] = {}
    columns = (rows["rank"].tolist(), rows["began_ns"].tolist(), place.tolist())
    for rank, began_ns, number in zip(*columns, strict=True):
        held = found.setdefault(rank, [])
        if not held or held[-1][1] != places[number]:
            held.append((began_ns, places[number]))
    return {rank: tuple(held) for rank, held in found.items()}
