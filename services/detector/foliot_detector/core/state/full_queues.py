"""NICs at which a queue stood full, and when: what is lost there then says nothing of the link."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from foliot.columns import grown

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from foliot_detector.core.state.path_table import PathTable

CONGESTION_NS = 5_000_000
"""Delays that stand this far above the path's least mean a full queue: loss is then congestion, no fault."""
_LATELY_NS = 2_000_000_000
"""How long a full queue explains a loss. A sender that fills its link, as TCP does, fills and drains the queue
before it in less. A full queue has room for small packets and none for large ones."""
_SLOT_NS = 25_000_000
"""A quarter of a report's interval, so that rounding adds little to it."""
_SLOTS = 64
"""Slots that are remembered, bits of an integer: 1.6 s."""


class FullQueues:
    """Full queues by NIC, as the delays of any of its paths show them.

    Times are those of the observations on the detector's timeline, so that a report which comes late counts for the
    time of which it tells.
    """

    def __init__(self, table: PathTable) -> None:
        self._table = table
        self._slot = np.zeros(0, np.int64)
        """Per NIC, the newest slot with a full queue."""
        self._full = np.zeros(0, np.uint64)
        """Per NIC, which slots had one: the lowest bit is the newest slot, the next the one before."""

    def note(self, ids: NDArray[np.intp], since_ns: int, until_ns: int) -> None:
        """Notes that delays of these paths stood high at some time between two."""
        if not len(ids):
            return
        self._make_room()
        nics = np.unique(self._table.ends[ids])
        for slot in range(max(since_ns // _SLOT_NS, until_ns // _SLOT_NS - _SLOTS + 1), until_ns // _SLOT_NS + 1):
            later = np.maximum(slot - self._slot[nics], 0)
            self._full[nics] = _shifted(self._full[nics], later)
            self._slot[nics] += later
            self._full[nics] |= _shifted(np.ones(len(nics), np.uint64), self._slot[nics] - slot)

    def were_full(self, ids: NDArray[np.intp], since_ns: NDArray[np.int64], until_ns: int) -> NDArray[np.bool_]:
        """Marks the paths with a queue at either end that was full since a time of its own, and until another."""
        self._make_room()
        ends = self._table.ends[ids]
        # The slots asked for, as ages of the newest.
        youngest = np.clip(self._slot[ends] - until_ns // _SLOT_NS, 0, _SLOTS)
        oldest = np.clip(self._slot[ends] - since_ns[:, None] // _SLOT_NS, -1, _SLOTS - 1)
        count = np.maximum(oldest - youngest + 1, 0)
        asked = _shifted(~_shifted(np.full(ends.shape, ~np.uint64(0)), count), youngest)
        found: NDArray[np.bool_] = ((self._full[ends] & asked) != 0).any(axis=1)
        return found

    def are_full(self, ids: NDArray[np.intp], now_ns: int, within_ns: int = _LATELY_NS) -> NDArray[np.bool_]:
        """Marks the paths with a queue at either end that was full within the given time, as far as is known now."""
        self._make_room()
        newest: NDArray[np.int64] = self._slot[self._table.ends[ids]].max(axis=1, initial=0)
        return newest >= max(now_ns - within_ns, _SLOT_NS) // _SLOT_NS

    def _make_room(self) -> None:
        if len(self._slot) < len(self._table.nics):
            self._slot = grown(self._slot, 2 * len(self._table.nics))
            self._full = grown(self._full, 2 * len(self._table.nics))


def _shifted(bits: NDArray[np.uint64], by: NDArray[np.int64]) -> NDArray[np.uint64]:
    """Shifts each to the left. By 64 and more nothing is left, which C leaves open."""
    few = np.minimum(by, _SLOTS - 1).astype(np.uint64)
    return np.where(by < _SLOTS, bits << few, np.uint64(0))
