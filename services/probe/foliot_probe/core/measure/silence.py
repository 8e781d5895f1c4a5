"""Judges when a path falls silent, and when it speaks again.

A path is silent when nothing was heard on it for some of the intervals that its sender promised, although the listener
was awake. Only paths that the sender calls in use, or a backup, are judged. Times are of a clock that never steps.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Rows = NDArray[np.intp]

STALL_NS = 50_000_000
"""After a tick that came so late, the probe accuses no path: its own silence may be what it sees."""
_INTERVALS = 3
"""Promised probes in a row that must be missing."""
_GRACE_NS = 10_000_000
"""Granted on top for late timers: an idle host's are late by one or two milliseconds, a busy one's by ten."""
_NEVER = (1 << 63) - 1


class SilenceWatch:
    """Judges all incoming paths of a node, by row."""

    def __init__(self, rows: int) -> None:
        self._patience_ns = np.zeros(rows, np.int64)
        self._deadline_ns = np.full(rows, _NEVER, np.int64)
        self.silent = np.zeros(rows, np.bool_)

    def forget(self, row: int) -> None:
        """Forget a stream that ended or began: nothing is known of it."""
        self._deadline_ns[row] = _NEVER
        self.silent[row] = False

    def hear(
        self, row: Rows, heard_ns: NDArray[np.int64], interval_us: NDArray[np.int64], in_use: NDArray[np.bool_]
    ) -> Rows:
        """Note probes in order of arrival, with the intervals that they promise and whether the path is in use.

        Returns the rows that speak again.
        """
        patience_ns = interval_us.astype(np.int64) * (1_000 * _INTERVALS) + _GRACE_NS
        self._patience_ns[row] = patience_ns
        self._deadline_ns[row] = np.where(in_use, heard_ns + patience_ns, _NEVER)
        again = row[self.silent[row]]
        if len(again):
            again = np.unique(again)
            self.silent[again] = False
        return again

    def excuse(self, now_ns: int, row: Rows | None = None) -> None:
        """Judge these rows (or all) as if heard just now, because the listener itself was away, or lost packets."""
        rows: Rows | slice = slice(None) if row is None else row
        later = np.maximum(self._deadline_ns[rows], now_ns + self._patience_ns[rows])
        self._deadline_ns[rows] = np.where(self._deadline_ns[rows] == _NEVER, _NEVER, later)

    def judge(self, now_ns: int) -> Rows:
        """The rows that have just fallen silent; call it only after everything that waits has been heard."""
        fell = np.flatnonzero(self._deadline_ns <= now_ns)
        if len(fell):
            self.silent[fell] = True
            self._deadline_ns[fell] = _NEVER
        return fell

    def interval_ns(self, row: int) -> int:
        """The time between two probes of a stream, as its sender has promised it."""
        return max(int(self._patience_ns[row]) - _GRACE_NS, 0) // _INTERVALS

    def next_ns(self) -> int | None:
        """When the next path falls silent unless it is heard before."""
        earliest = int(self._deadline_ns.min(initial=_NEVER))
        return None if earliest == _NEVER else earliest
