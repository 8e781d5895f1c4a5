"""NICs at which a queue stood full lately: what is lost there then says nothing of the link."""

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


class FullQueues:
    """Full queues by NIC, as the delays of any of its paths show them."""

    def __init__(self, table: PathTable) -> None:
        self._table = table
        self._seen_ns = np.zeros(0, np.int64)

    def note(self, ids: NDArray[np.intp], now_ns: int) -> None:
        """Notes that delays of these paths stand high now."""
        if len(ids):
            self._make_room()
            self._seen_ns[self._table.ends[ids]] = now_ns

    def are_full(self, ids: NDArray[np.intp], now_ns: int, within_ns: int = _LATELY_NS) -> NDArray[np.bool_]:
        """Marks the paths with a queue at either end that was full within the given time."""
        self._make_room()
        seen_ns: NDArray[np.int64] = self._seen_ns[self._table.ends[ids]].max(axis=1, initial=0)
        return seen_ns > max(now_ns - within_ns, 0)

    def _make_room(self) -> None:
        if len(self._seen_ns) < len(self._table.nics):
            self._seen_ns = grown(self._seen_ns, 2 * len(self._table.nics))
