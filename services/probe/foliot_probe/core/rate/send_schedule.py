"""Schedules each stream's sending in ticks, so that many streams share a wake-up and a batch."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Rows = NDArray[np.intp]

FAREWELL = 4
"""Probes that a stream still sends at its old rate after it has announced a slower one. The peer takes three missing
probes for silence, so three announcements may be lost."""

_NEVER = 1 << 62
_FULL_ROUND = 1
"""The round of the full-size probe. It is odd, so that coded pairs of every second or fourth round never meet it."""


class SendSchedule:
    """The rates of all streams, by row. In every so many rounds a stream has a probe of full size (0: never)."""

    def __init__(self, rows: int, full_every: int = 0) -> None:
        self._full_every = full_every
        self.announced = np.ones(rows, np.int64)
        """Ticks between two probes, as promised to the peer."""
        self.in_use = np.zeros(rows, np.bool_)
        self._every = np.ones(rows, np.int64)
        self._next = np.full(rows, _NEVER, np.int64)
        self._coded_every = np.full(rows, _NEVER, np.int64)
        self._round = np.zeros(rows, np.int64)
        self._farewell = np.zeros(rows, np.int64)

    def begin(self, row: int, every: int, tick: int) -> None:
        """Start a stream; rows are spread over the ticks of their interval."""
        self.announced[row] = self._every[row] = every
        self.in_use[row] = False
        self._coded_every[row] = _NEVER
        self._next[row] = tick + 1 + row % every
        self._round[row] = row
        self._farewell[row] = 0

    def end(self, row: int) -> None:
        """Stop a stream."""
        self._next[row] = _NEVER

    def change(self, row: int, every: int, tick: int, *, in_use: bool, coded_every: int = 0) -> None:
        """Give a running stream another rate: a faster one at once, a slower one once announced.

        `coded_every` counts rounds (0: never).
        """
        self.in_use[row] = in_use
        self._coded_every[row] = coded_every or _NEVER
        if every == self.announced[row]:
            return
        self.announced[row] = every
        if every > self._every[row]:
            self._farewell[row] = FAREWELL
        else:
            self._every[row] = every
            self._farewell[row] = 0
            self._next[row] = min(int(self._next[row]), tick + 1 + row % every)

    def due(self, tick: int) -> tuple[Rows, Rows, Rows]:
        """The rows that send in this tick, those that send a second probe right after, and those whose probe has full size."""
        row = np.flatnonzero(self._next <= tick)
        next_, every, turn = self._next[row], self._every[row], self._round[row] + 1
        # After a stall the missed rounds are not made up for: a burst would measure itself.
        self._next[row] = next_ + ((tick - next_) // every + 1) * every
        self._round[row] = turn
        if self._farewell.any():
            leaving = row[self._farewell[row] > 0]
            self._farewell[leaving] -= 1
            left = leaving[self._farewell[leaving] == 0]
            self._every[left] = self.announced[left]
        full = row[turn % self._full_every == _FULL_ROUND % self._full_every] if self._full_every else row[:0]
        return row, row[turn % self._coded_every[row] == 0], full
