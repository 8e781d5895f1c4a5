"""The least one-way delay that each stream has shown lately: what tells a good window from a congested one.

The half-width of a stream's margin is its floor plus the mean of the two least queueing delays, and the error of its
offset is half their difference. So the width's excess over the floor bounds the error, for paths with equal floors.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

REMEMBERED = 30
"""Windows: a minute at two seconds each. Longer, and a route change would leave a floor that no longer exists."""

_FEW = 10
"""Windows before a floor is believed: with a tenth of probes free of queues, two in three streams have seen theirs."""


class Floors:
    """Per stream, the half-widths of its latest windows."""

    def __init__(self) -> None:
        self._rows: dict[str, int] = {}
        self._widths = np.full((0, REMEMBERED), np.inf)
        self._next = np.zeros(0, dtype=np.int64)

    def uncertainty(
        self, paths: Sequence[str], half_ns: NDArray[np.float64], guess_ns: NDArray[np.float64]
    ) -> NDArray[np.float64]:
        """The standard deviation of the offset that each stream gives.

        `guess_ns` is what the window alone suggests; it stands until a stream has been seen in a few windows.
        """
        rows = np.array([self._row(path) for path in paths], dtype=np.int64)
        seen = np.concatenate((self._widths[rows], half_ns[:, None]), axis=1)
        least = np.partition(seen, 2, axis=1)[:, :3]
        floor = least.min(axis=1)
        # The least of some windows may lie above the floor by about as much as the next ones lie above the least.
        doubt = np.minimum(least.max(axis=1) - floor, guess_ns)
        few = np.isfinite(self._widths[rows]).sum(axis=1) < _FEW
        uncertainty: NDArray[np.float64] = (half_ns - floor + np.where(few, guess_ns, doubt)) / np.sqrt(3)
        return uncertainty

    def learn(self, paths: Sequence[str], half_ns: NDArray[np.float64]) -> None:
        """Remember the half-widths of a window that held no step."""
        rows = np.array([self._row(path) for path in paths], dtype=np.int64)
        self._widths[rows, self._next[rows]] = half_ns
        self._next[rows] = (self._next[rows] + 1) % REMEMBERED

    def _row(self, path: str) -> int:
        """The row of a stream, made when it is new."""
        if path not in self._rows:
            row = self._rows[path] = len(self._rows)
            if row == len(self._widths):
                more = max(64, row)
                self._widths = np.concatenate((self._widths, np.full((more, REMEMBERED), np.inf)))
                self._next = np.concatenate((self._next, np.zeros(more, dtype=np.int64)))
        return self._rows[path]
