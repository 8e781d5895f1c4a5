"""What else the ranks of a group did in a window: whether they waited for data or a processor, or were stopped."""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from foliot_detector.core.detectors.rank_straggler.own_time import Excess
    from foliot_detector.core.state.training_jobs import TrainingJob

_OFTEN = 0.25
"""In so many looks a process was found to be stopped, or for so much of a window it had no processor, that it slows the
collectives themselves. A node looks four times a second."""


@dataclass(slots=True)
class Counted:
    """What is counted of a rank, as it was when the window of a group began."""

    data_ns: int = 0
    cpu_delay_ns: int = 0
    looks: int = 0
    stopped_looks: int = 0


class Signs(NamedTuple):
    """What else a rank did in a window."""

    waited: float
    """For what share of it, its program waited for data."""
    delayed: float
    """For what share of it, its program had no processor."""
    stopped: float
    """In what share of the looks at it, its process was stopped."""


def signs_of(
    job: TrainingJob, members: tuple[int, ...], counted: dict[int, Counted], window_ns: int
) -> dict[int, Signs]:  # fmt: skip
    """What the members of a group did in the window that ends now.

    Parameters:
        counted: what was counted when it began, by rank. It is renewed.
    """
    signs = {}
    for number in members:
        if (rank := job.ranks.get(number)) is None:
            continue
        state = rank.state
        now = Counted(state.data_ns, state.cpu_delay_ns, rank.looks, rank.stopped_looks)
        before = counted.get(number, now)
        counted[number] = now
        signs[number] = Signs(
            max(0, now.data_ns - before.data_ns) / window_ns,
            max(0, now.cpu_delay_ns - before.cpu_delay_ns) / window_ns,
            (now.stopped_looks - before.stopped_looks) / max(now.looks - before.looks, 1),
        )
    return signs


def is_halted(rank: int, signs: dict[int, Signs]) -> bool:
    """Whether a rank's process was stopped again and again, and those of its peers were not."""
    return _stands_out(rank, {other: each.stopped for other, each in signs.items()})


def is_starved(rank: int, signs: dict[int, Signs]) -> bool:
    """Whether a rank's process had no processor again and again, and those of its peers had."""
    return _stands_out(rank, {other: each.delayed for other, each in signs.items()})


def _stands_out(rank: int, shares: dict[int, float]) -> bool:
    return shares.get(rank, 0.0) >= _OFTEN and _median_of_others(rank, shares) < _OFTEN / 2


def by_data(each: Excess, signs: dict[int, Signs]) -> float:
    """The share of what a rank costs for which it waited longer for its data than its peers.

    A wait is as much longer as a process is stopped within it, like all else that it does. That part is no data's fault.
    """
    shares = {rank: sign.waited * (1 - sign.stopped if rank == each.rank else 1) for rank, sign in signs.items()}
    return _beyond(each, shares)


def by_processor(each: Excess, signs: dict[int, Signs]) -> float:
    """The share of what a rank costs for which it was without a processor for longer than its peers."""
    return _beyond(each, {rank: sign.delayed for rank, sign in signs.items()})


def _beyond(each: Excess, shares: dict[int, float]) -> float:
    """By how much a rank's share of a window is beyond that of its peers, as a share of what it costs."""
    if each.share <= 0 or each.rank not in shares:
        return 0.0
    return (shares[each.rank] - _median_of_others(each.rank, shares)) / each.share


def _median_of_others(rank: int, shares: dict[int, float]) -> float:
    return statistics.median([share for other, share in shares.items() if other != rank] or [0.0])
