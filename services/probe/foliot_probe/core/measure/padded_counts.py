"""Counts of padded probes, sent by a peer and received here, from the count in each of its probes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from foliot_probe.core.packet import FULL_COUNTS

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Rows = NDArray[np.intp]

_MOST_BACK = 8
"""A count that lacks so many of a round, or fewer, has gone back: its probe was overtaken. No more than these overtake
it, as they are 0.16 s apart. Any other growth counts. An outage loses a large part of a round, and the link may pass
only small packets after it."""


def said(count: NDArray[np.int64]) -> NDArray[np.int64]:
    """A count of padded probes sent, as a probe says it: from 1 on. 0 is left for a probe that says none."""
    return 1 + count % FULL_COUNTS


class PaddedCounts:
    """The counts of all streams, by row."""

    def __init__(self, rows: int) -> None:
        self._said = np.zeros(rows, np.int64)
        self._counted = np.zeros(rows, np.int64)
        self._received = np.zeros(rows, np.int64)

    def forget(self, row: Rows | int) -> None:
        """Forget the counts of streams that begin anew."""
        self._said[row] = self._counted[row] = self._received[row] = 0

    def hear(self, row: Rows, counts: NDArray[np.integer[Any]], full: NDArray[np.bool_]) -> None:
        """Take in probes of these rows' peers, in the order of arrival, with the counts they say; `full` are padded."""
        self._said[row] = counts
        if full.any():
            np.add.at(self._received, row[full], 1)

    def count(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Padded probes since the last call, per row: those sent, as the counts prove, and those heard."""
        received, self._received = self._received, np.zeros_like(self._received)
        known = (self._said > 0) & (self._counted > 0)
        sent = np.where(known, (self._said - self._counted) % FULL_COUNTS, 0)
        ahead = sent < FULL_COUNTS - _MOST_BACK
        self._counted = np.where(ahead, self._said, self._counted)
        return np.maximum(np.where(ahead, sent, 0), received), received
