"""What failures cost a job, from the records of its processes. Pure; times are CLOCK_MONOTONIC_RAW, or lab time."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import numpy as np

from foliot_lab.measure.intervals import Intervals
from foliot_lab.workload.train.merged_steps import merge

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

LAST_LOSSES = 20
"""Steps over which the loss at the end is a mean."""


_FEWEST = 2
"""Moments that have a time between them."""


class Import(msgspec.Struct, frozen=True):
    """A process that was started: how long until Python and PyTorch were there, and when they were."""

    ready_ns: int
    import_s: float
    pid: int = 0


class Account(msgspec.Struct, frozen=True, kw_only=True):
    """What a run of a fixed number of steps came to."""

    steps: int
    """That were done in the end."""
    total_s: float
    """From the end of the first step to the end of the last."""
    step_s: float
    """The median time from step to step."""
    lost_steps: int
    """Done again."""
    lost_work_s: float
    """They, times a step."""
    restart_s: float
    """Time without a step around a failure, less a step, and without what imports took of it."""
    import_s: float
    """What the start of Python and PyTorch took of that time, in the slowest process of each restart."""
    longest_s: float
    """The longest time without a step around a failure, less a step."""
    goodput: float
    """The share of the time that was not lost to failures, times the share of the samples that were trained on."""
    samples_lost: int
    """Of the steps that were done, what ranks that were away did not train on."""
    last_loss: float
    """Mean over ranks of the last steps."""
    calm_step_s: float
    """The median step beside which no process loaded Python and PyTorch, and no rank was lost; 0: there was none."""
    loading_s: float
    """How much longer steps took, in all, while a process loaded them. The waits around failures are not in it."""


def account(
    lines: Mapping[str, NDArray[np.void]], *, ranks: int, steps: int, batch: int, failures_ns: Sequence[int],
    imports: Mapping[str, Sequence[Import]],
) -> Account | None:  # fmt: skip
    """The account of a run; None: fewer than two steps were done.

    Parameters:
        lines: of each place, of `merged_steps.LINE`.
        ranks: that the job has.
        steps: that it was to do.
        batch: samples of a rank and step.
        failures_ns: when a rank was killed.
        imports: of all processes of each place, those of the beginning too.
    """
    whole = merge(lines, ranks)
    told = np.concatenate([*lines.values()])
    told = told[told["step"] < steps]
    done = told[told["ended_ns"] > 0]
    numbers = np.unique(done["step"])
    if len(numbers) < _FEWEST:
        return None
    ended = _ends(done, numbers)
    since_ns, until_ns = int(ended[0]), int(ended[-1])
    moments = whole.finished_ns[(whole.finished_ns >= since_ns) & (whole.finished_ns <= until_ns)]
    if len(moments) < _FEWEST:
        return None
    step_ns = float(np.median(np.diff(moments)))
    gaps = _gaps(moments, failures_ns)
    waited_ns = [max(0.0, after - before - step_ns) for before, after in gaps]
    slowest = [_import_s(lines, imports, gap) for gap in gaps]
    import_s = sum(min(took, waited * 1e-9) for took, waited in zip(slowest, waited_ns, strict=True))
    again = int(((whole.again_ns > since_ns) & (whole.again_ns <= until_ns)).sum())
    # Who was killed right before the end of a step had its part in it, if the others did it to its end.
    parts = told[np.isin(told["step"], numbers)]
    trained = len(np.unique(parts["step"] * ranks + parts["rank"]))
    calm_ns, loading_s = _beside_loading(moments, gaps, imports)
    lost_s = again * step_ns * 1e-9 + sum(waited_ns) * 1e-9
    total_s = (until_ns - since_ns) * 1e-9
    return Account(
        steps=len(numbers), total_s=round(total_s, 2), step_s=round(step_ns * 1e-9, 4),
        lost_steps=again, lost_work_s=round(again * step_ns * 1e-9, 2),
        restart_s=round(sum(waited_ns) * 1e-9 - import_s, 2), import_s=round(import_s, 2),
        longest_s=round(max(waited_ns, default=0.0) * 1e-9, 2),
        goodput=round((1.0 - lost_s / total_s) * trained / (ranks * len(numbers)), 4),
        samples_lost=(ranks * len(numbers) - trained) * batch, last_loss=_last_loss(done, numbers),
        calm_step_s=round(calm_ns * 1e-9, 4), loading_s=round(loading_s, 2),
    )  # fmt: skip


def first_difference(losses: NDArray[np.float64], whole: NDArray[np.float64]) -> int | None:
    """The first step whose loss is another than that of a run that lost nothing; None: none of those that both have."""
    common = min(len(losses), len(whole))
    differ = np.flatnonzero(losses[:common] != whole[:common])
    return int(differ[0]) if len(differ) else None


def _beside_loading(
    moments: NDArray[np.int64], gaps: Sequence[tuple[int, int]], imports: Mapping[str, Sequence[Import]]
) -> tuple[float, float]:
    """The median step while nothing loads, in ns, and how much longer steps took while something did, in s."""
    loads = Intervals(
        (each.ready_ns - round(each.import_s * 1e9), each.ready_ns)
        for of_place in imports.values()
        for each in of_place
    )
    steps = [each for each in zip(moments[:-1].tolist(), moments[1:].tolist(), strict=True) if each not in set(gaps)]
    calm_ns = [until - since for since, until in steps if not loads.within(since, until)]
    if not calm_ns:
        return 0.0, 0.0
    usual_ns = float(np.median(calm_ns))
    return usual_ns, sum(until - since - usual_ns for since, until in steps if loads.within(since, until)) * 1e-9


def _import_s(
    lines: Mapping[str, NDArray[np.void]], imports: Mapping[str, Sequence[Import]], gap: tuple[int, int]
) -> float:
    """The slowest import for which a gap's first step waited, in seconds; 0: it waited for none.

    Others may import meanwhile, to stand by.
    """
    before, after = gap
    took = [
        each.import_s
        for place, rows in lines.items()
        if ((rows["ended_ns"] > before) & (rows["ended_ns"] <= after)).any()
        for each in imports.get(place, ())
        if before < each.ready_ns <= after
    ]
    return max(took, default=0.0)


def _ends(done: NDArray[np.void], numbers: NDArray[np.int64]) -> NDArray[np.int64]:
    """Of each step that was done, when its last time ended."""
    last: dict[int, dict[int, int]] = {int(number): {} for number in numbers}
    columns = (done[name].tolist() for name in ("rank", "step", "began_ns", "ended_ns"))
    for rank, step, _, ended_ns in sorted(zip(*columns, strict=True), key=lambda each: each[2]):
        last[step][rank] = ended_ns
    return np.array([max(last[int(number)].values()) for number in numbers])


def _gaps(moments: NDArray[np.int64], failures_ns: Sequence[int]) -> list[tuple[int, int]]:
    """The times between two finished steps that have a failure in them, or right before them.

    The step under way may still end after a failure. The longest of the next two waits is the failure's.
    """
    found = set()
    for at_ns in failures_ns:
        first = int(np.searchsorted(moments, at_ns))
        near = [
            (int(moments[after - 1]), int(moments[after]))
            for after in (first, first + 1, first + 2)
            if 0 < after < len(moments)
        ]
        if near:
            found.add(max(near, key=lambda gap: gap[1] - gap[0]))
    return sorted(found)


def _last_loss(done: NDArray[np.void], numbers: NDArray[np.int64]) -> float:
    last = done[done["step"] >= numbers[-LAST_LOSSES:][0]]
    return round(float(last["loss"].mean()), 6)
