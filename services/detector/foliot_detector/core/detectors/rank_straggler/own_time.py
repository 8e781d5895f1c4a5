"""How long each rank of a group works by itself between its collectives, in windows of a second."""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from foliot_detector.core.state.training_jobs import Ended

_WINDOW_NS = 1_000_000_000
_LEAST_NUMBERS = 6
"""Collectives of a window, at least."""
_MOST_PARTIAL = 128
"""Collectives that not all members have told of, kept of each group."""


class Excess(NamedTuple):
    """What one rank cost the others in a window."""

    rank: int
    excess_ns: int
    """By how much it worked longer than the median of the others, in all. Below 0: for less time."""
    numbers: int
    """Collectives of the window."""
    window_ns: int
    """Length of the window."""

    @property
    def share(self) -> float:
        """The part of the window that it cost."""
        return self.excess_ns / self.window_ns


class OwnTimes:
    """The own times of the ranks of one group: from the end of a collective to the beginning of the next.

    Both are by the rank's own clock, so that it matters to nothing how well clocks agree. All members wait for the last
    to begin a collective. So what one works longer than the others, they wait.
    """

    def __init__(self, members: tuple[int, ...]) -> None:
        self.members = members
        self._before: dict[int, Ended] = {}
        """Of each rank, the last that it ended."""
        self._partial: dict[int, dict[int, int]] = {}
        """By number: the own time of each rank before it."""
        self._rounds: list[dict[int, int]] = []
        self._began_ns = 0
        """When the window began, by the first member's reference time."""

    def take(self, ended: Ended) -> list[Excess]:
        """Takes a collective that a rank ended; returns what each rank cost, if a window is full."""
        before = self._before.get(ended.rank)
        if before is not None and ended.number <= before.number:
            return []
        self._before[ended.rank] = ended
        if before is None or before.number != ended.number - 1:
            return []
        times = self._partial.setdefault(ended.number, {})
        times[ended.rank] = max(0, ended.began_ns - before.ended_ns)
        if len(times) == len(self.members):
            del self._partial[ended.number]
            self._rounds.append(times)
        while len(self._partial) > _MOST_PARTIAL:
            del self._partial[next(iter(self._partial))]
        if ended.rank != self.members[0]:
            return []
        if not self._began_ns or ended.ended_ns < self._began_ns:
            self._began_ns = before.ended_ns
        lasted_ns = ended.ended_ns - self._began_ns
        if lasted_ns < _WINDOW_NS or len(self._rounds) < _LEAST_NUMBERS:
            return []
        rounds, self._rounds, self._began_ns = self._rounds, [], ended.ended_ns
        return [_excess(rounds, rank, lasted_ns) for rank in self.members]


def _excess(rounds: list[dict[int, int]], rank: int, window_ns: int) -> Excess:
    over = sorted(
        times[rank] - round(statistics.median(own for other, own in times.items() if other != rank)) for times in rounds
    )
    # One long wait is no slow rank.
    return Excess(rank, sum(over[:-1]), len(rounds), window_ns)
