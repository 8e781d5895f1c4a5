"""How long each rank of a group keeps the others waiting between collectives, in windows of a second."""

from __future__ import annotations

import statistics
from collections import deque
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from foliot_detector.core.state.training_jobs import Ended

_WINDOW_NS = 1_000_000_000
_LEAST_NUMBERS = 6
"""Collectives of a window, at least."""
_LEAST_STEPS = 5
"""And so many times the second longest of its own times, so that long steps are several, too."""
_MOST_KEPT = 128
"""Collectives that not all members have told of, and of those that all have: so many of each group are kept."""
_MOST_ROUNDS = 4_096


class Excess(NamedTuple):
    """What one rank cost the others in a window."""

    rank: int
    excess_ns: int
    """By how much its own time was longer than the median of the others', in all. Below 0: shorter."""
    numbers: int
    """Collectives of the window."""
    window_ns: int
    """Length of the window."""

    @property
    def share(self) -> float:
        """The part of the window that it cost."""
        return self.excess_ns / self.window_ns


class OwnTimes:
    """The own times of the ranks of one group: what their programs ran by themselves between two of its collectives.

    All members wait for the last to begin a collective. So what one's own time is longer than the others', they wait.
    Left out is what a rank waited in collectives of other groups, and what it ran while this group's last one was still
    going on: for that nobody waits. All times are by the rank's own clock, so that it matters to nothing how well
    clocks agree.
    """

    def __init__(self, members: tuple[int, ...]) -> None:
        self.members = members
        self._partial: dict[int, dict[int, Ended]] = {}
        """By number, what some members have told."""
        self._whole: dict[int, dict[int, Ended]] = {}
        """By number, what all have told."""
        self._rounds: deque[dict[int, int]] = deque(maxlen=_MOST_ROUNDS)
        self._began_ns = 0
        """When the window began, by the first member's reference time."""

    def take(self, ended: Ended) -> list[Excess]:
        """Takes a collective that a rank ended; returns what each rank cost, if a window is full."""
        times = self._partial.setdefault(ended.number, {})
        times[ended.rank] = ended
        while len(self._partial) > _MOST_KEPT:
            del self._partial[next(iter(self._partial))]
        if len(times) < len(self.members):
            return []
        self._partial.pop(ended.number, None)
        self._whole[ended.number] = times
        while len(self._whole) > _MOST_KEPT:
            del self._whole[next(iter(self._whole))]
        before = self._whole.get(ended.number - 1)
        own = None if before is None else _own_times(before, times)
        if before is None or own is None:
            return []
        self._rounds.append(own)
        return self._window(before[self.members[0]], times[self.members[0]])

    def _window(self, before: Ended, now: Ended) -> list[Excess]:
        """What each rank cost in the window that ends now, by the first member's times; nothing, if it goes on."""
        if not self._began_ns or now.ended_ns < self._began_ns:
            self._began_ns = before.ended_ns
            own = self._rounds.pop()
            self._rounds.clear()
            self._rounds.append(own)
        lasted_ns = now.ended_ns - self._began_ns
        if lasted_ns < _WINDOW_NS or len(self._rounds) < _LEAST_NUMBERS:
            return []
        # The longest may be so by chance.
        usual_ns = sorted(max(own.values()) for own in self._rounds)[-2]
        if lasted_ns < _LEAST_STEPS * usual_ns:
            return []
        rounds, self._began_ns = list(self._rounds), now.ended_ns
        self._rounds.clear()
        return [_excess(rounds, rank, lasted_ns) for rank in self.members]


def _own_times(before: dict[int, Ended], after: dict[int, Ended]) -> dict[int, int] | None:
    """The own time of each rank between two collectives; None: of one, not all is known that it did."""
    own = {}
    for rank, each in before.items():
        first, second = each.ran, after[rank].ran
        if first is None or second is None or first.spell != second.spell:
            return None
        own[rank] = max(0, min(second.ran_ns - first.ran_ns, after[rank].began_ns - each.ended_ns))
    return own


def _excess(rounds: list[dict[int, int]], rank: int, window_ns: int) -> Excess:
    over = sorted(
        own[rank] - round(statistics.median(each for other, each in own.items() if other != rank)) for own in rounds
    )
    # One long wait is no slow rank.
    return Excess(rank, sum(over[:-1]), len(rounds), window_ns)
