"""What else the ranks of a group did in a window: whether they waited for data or a processor, or were stopped."""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from foliot_detector.core.detectors.rank_straggler.own_time import Excess
    from foliot_detector.core.state.training_jobs import TrainingJob

_HALTED = 0.25
"""Share of looks in which a process that is stopped again and again was found so. A node looks four times a second. And
share of a window for which one has no processor that slows the collectives themselves."""


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
    others = [share for other, share in shares.items() if other != rank]
    return shares.get(rank, 0.0) >= _HALTED and statistics.median(others or [0.0]) < _HALTED / 2


def by_data(each: Excess, signs: dict[int, Signs]) -> float:
    """The share of what a rank costs for which it waited longer for its data than its peers.

    A wait is as much longer as a process is stopped within it, like all else that it does. That part is no data's fault.
    """
    own = signs.get(each.rank)
    return (
        0.0
        if own is None
        else _beyond(each, own.waited * (1 - own.stopped), [sign.waited for sign in _peers(each, signs)])
    )


def by_processor(each: Excess, signs: dict[int, Signs]) -> float:
    """The share of what a rank costs for which it was without a processor for longer than its peers."""
    own = signs.get(each.rank)
    return 0.0 if own is None else _beyond(each, own.delayed, [sign.delayed for sign in _peers(each, signs)])


def _peers(each: Excess, signs: dict[int, Signs]) -> list[Signs]:
    return [sign for other, sign in signs.items() if other != each.rank]


def _beyond(each: Excess, own: float, others: list[float]) -> float:
    """By how much a rank's share of a window is beyond that of its peers, as a share of what it costs."""
    return 0.0 if each.share <= 0 else (own - statistics.median(others or [0.0])) / each.share
