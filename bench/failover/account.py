"""The cost of a fault to a job: the rows of the bench, and the arithmetic of lost time.

A job on fewer links has less capacity, and no tool can give that back. While traffic is away, each step takes longer. A
control measures how much longer: the same job with the NIC down from the first step on. So nothing fails over while the
control's steps are counted.

A run takes longer than its pair without a fault. Some of its steps ran under reduced capacity. `explained_s` is how
much longer as many steps take in the control. `excess_s` is the rest, which is the failover's own: the stall, the steps
that it spoilt, and the way back.

A fault of something other than a NIC has no control. The run's own steps then stand in. That hides any slowdown by the
failover in all of that time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    Steps = NDArray[np.void]
    """Steps of `foliot_lab.workload.train.record.STEP`."""

FIRST = 2
"""Steps that are left out. PyTorch sets itself up in the first, and TCP's windows open until the second is over."""


class Row(msgspec.Struct, kw_only=True):
    """One run. None: there was nothing to measure."""

    variant: str
    tool: str
    """The tool. `foliot`. `none`: nothing of Foliot runs, and the job uses the NICs' own addresses. `none, 10 s`: as
    `none`, and Gloo gives up after so long."""
    rep: int
    detect_ms: float | None = None
    """From the fault to the first event about it."""
    move_ms: float | None = None
    """From the fault until both directions of every pair that it cut flow again, as the lab's witness sees them."""
    gap_ms: float | None = None
    """The longest silence of any pair."""
    restore_s: float | None = None
    """From the healing until all traffic is where it was."""
    total_s: float | None
    """From the end of the first steps to the end of the last, of the slowest rank."""
    steps: int
    """Steps that all ranks have done."""
    lost_steps: int
    """Steps asked for and not done: for a job that died, all that it had yet to do."""
    loss_equal: bool | None
    """Every rank's loss of every step is that of the run without a fault, to the bit; None: that is this run."""
    failed: str = ""
    """The cause of the first rank's death."""
    step_ms: float | None = None
    """Median length of a step."""
    worst_step_ms: float | None = None
    dip_steps: int | None = None
    """Steps of more than one and a half times the run's median, without those under reduced capacity."""
    lost_s: float | None = None
    """The excess over the time of its pair without a fault."""
    explained_s: float | None = None
    """The part of it in steps that were slower while traffic was on fewer links."""
    explained_by: str = ""
    """The steps that explain it: `control`, or the run's `own`; empty: nothing is explained."""
    excess_s: float | None = None
    moves: int | None = None
    """The most changes of way that any pair made, away and back."""
    away_s: float | None = None
    """How long traffic was on other links or, if it stayed, how long the fault lasted."""
    idle_cpu: float | None = None
    """Share of the processors' time that was idle."""


def total_s(steps: Mapping[str, Steps], until: int) -> float | None:
    """The time of the steps from the first counted one to another, by the slowest rank; None: they were not done."""
    if any(len(rows) < until for rows in steps.values()) or until <= FIRST:
        return None
    return max(float(rows["ended_ns"][until - 1] - rows["began_ns"][FIRST]) * 1e-9 for rows in steps.values())


def same_losses(mine: Mapping[str, Steps], others: Mapping[str, Steps]) -> bool:
    """Whether every step that both runs have done had the same loss on every rank."""
    return all(
        bool((rows["loss"][: len(others[node])] == others[node]["loss"][: len(rows)]).all())
        for node, rows in mine.items()
    )


def durations_ms(steps: Mapping[str, Steps]) -> NDArray[np.float64]:
    """The length of each step that all ranks have done, by the slowest rank."""
    done = min(len(rows) for rows in steps.values())
    each = np.stack([(rows["ended_ns"] - rows["began_ns"])[:done] for rows in steps.values()])
    longest: NDArray[np.float64] = each.max(axis=0) * 1e-6
    return longest


def within(steps: Mapping[str, Steps], since_ns: int, until_ns: int) -> NDArray[np.bool_]:
    """For each step that all ranks have done, whether it began and ended in an interval on every rank."""
    done = min(len(rows) for rows in steps.values())
    began = np.stack([rows["began_ns"][:done] for rows in steps.values()]).min(axis=0)
    ended = np.stack([rows["ended_ns"][:done] for rows in steps.values()]).max(axis=0)
    inside: NDArray[np.bool_] = (began >= since_ns) & (ended <= until_ns)
    return inside


def explained_s(
    mine: Mapping[str, Steps],
    others: Mapping[str, Steps],
    away: Sequence[tuple[int, int]],
    control: Mapping[str, Steps] | None = None,
) -> float:
    """The time that reduced capacity took.

    It counts the steps wholly in the intervals in which traffic was away. Each counts by the excess of the control's
    median over the other run's.

    Parameters:
        others: steps of the run without a fault.
        control: steps of the run whose NIC was down all the time. None: the median of these steps stands in, for each
            interval by itself, because the capacity left differs from fault to fault.
    """
    normal = float(np.median(durations_ms(others)[FIRST:]))
    reduced = None if control is None else float(np.median(durations_ms(control)[FIRST:]))
    told = 0.0
    taken = durations_ms(mine)
    for since_ns, until_ns in away:
        chosen = within(mine, since_ns, until_ns)
        chosen[:FIRST] = False
        if chosen.any():
            middle = float(np.median(taken[chosen])) if reduced is None else reduced
            told += int(chosen.sum()) * max(0.0, middle - normal)
    return told * 1e-3


def dip_steps(steps: Mapping[str, Steps], away: Sequence[tuple[int, int]]) -> int:
    """Steps that took more than one and a half times the run's median, without those wholly under reduced capacity."""
    taken = durations_ms(steps)
    if len(taken) <= FIRST:
        return 0
    long = taken > 1.5 * float(np.median(taken[FIRST:]))
    long[:FIRST] = False
    for since_ns, until_ns in away:
        long &= ~within(steps, since_ns, until_ns)
    return int(long.sum())


def merged(intervals: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """The same times without overlaps."""
    found: list[tuple[int, int]] = []
    for since_ns, until_ns in sorted(intervals):
        if found and since_ns <= found[-1][1]:
            found[-1] = (found[-1][0], max(found[-1][1], until_ns))
        else:
            found.append((since_ns, until_ns))
    return found
