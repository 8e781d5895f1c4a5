"""Queues that stood full, and when: what is lost there then says nothing of the link."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from foliot_detector.core.state.marked_slots import MarkedSlots

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from foliot_detector.core.state.path_table import PathTable

CONGESTION_NS = 5_000_000
"""Delays that stand this far above the path's least mean a full queue: loss is then congestion, no fault."""
_LATELY_NS = 2_000_000_000
"""How long a full queue explains a loss. A sender that fills its link, as TCP does, fills and drains the queue
before it in less. A full queue has room for small packets and none for large ones."""


class FullQueues:
    """Full queues by NIC, as the delays of any of its paths show them, and by path, as its source tells of them.

    A report that comes late counts for the time of which it tells.
    """

    def __init__(self, table: PathTable) -> None:
        self._table = table
        self._nics, self._paths = MarkedSlots(), MarkedSlots()

    def note(self, ids: NDArray[np.intp], since_ns: int, until_ns: int) -> None:
        """Notes that delays of these paths stood high at some time between two, so a queue at either end was full."""
        if len(ids):
            self._make_room()
            self._nics.mark(np.unique(self._table.ends[ids]), since_ns, until_ns)

    def note_unsent(self, ids: NDArray[np.intp], since_ns: int, until_ns: int) -> None:
        """Notes that the sources of these paths dropped probes of them at some time between two.

        A source knows of which, so this says nothing of another path.
        """
        if len(ids):
            self._make_room()
            self._paths.mark(np.unique(ids), since_ns, until_ns)

    def were_full(self, ids: NDArray[np.intp], since_ns: NDArray[np.int64], until_ns: int) -> NDArray[np.bool_]:
        """Marks the paths with a queue that was full since a time of its own, and until another."""
        self._make_room()
        ends = self._table.ends[ids]
        at_ends = self._nics.were_marked(ends, np.broadcast_to(since_ns[:, None], ends.shape), until_ns)
        found: NDArray[np.bool_] = at_ends.any(axis=1) | self._paths.were_marked(ids, since_ns, until_ns)
        return found

    def are_full(self, ids: NDArray[np.intp], now_ns: int, within_ns: int = _LATELY_NS) -> NDArray[np.bool_]:
        """Marks the paths with a queue that was full within the given time, as far as is known now."""
        self._make_room()
        at_ends = self._nics.are_marked(self._table.ends[ids], now_ns - within_ns)
        found: NDArray[np.bool_] = at_ends.any(axis=1) | self._paths.are_marked(ids, now_ns - within_ns)
        return found

    def _make_room(self) -> None:
        self._nics.make_room(len(self._table.nics))
        self._paths.make_room(self._table.room)
