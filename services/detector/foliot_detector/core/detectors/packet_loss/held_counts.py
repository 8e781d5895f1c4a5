"""Counts of probes that wait until the nodes that could tell of a full queue have spoken of that time."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from numpy.typing import NDArray

    from foliot_detector.core.state.full_queues import FullQueues
    from foliot_detector.core.state.inventory import Inventory

_KNOWN_AFTER_NS = 250_000_000
"""How much later a queue may show. A delay is known when the next probe of its path has come, and the slow sweep's
comes 200 ms later. Often its paths alone have a probe that waited: those of a tick leave together."""
_AFTER_NS = _KNOWN_AFTER_NS + 100_000_000
"""How much later a node has to speak: then its next report has told of the queue."""
_LONGEST_NS = 1_000_000_000
"""How long counts wait at most. A node that says nothing for so long is no witness."""


class Counts(NamedTuple):
    """Rows of a receiver's report, each of another path."""

    ids: NDArray[np.intp]
    rows: NDArray[Any]
    """Of dtype `DelayRow`."""
    known: NDArray[np.bool_]
    """Whether the clocks show delays."""
    silences: NDArray[np.int32]
    """How often the path had been silent."""
    arrived: NDArray[np.int64]
    """Probes that had arrived on the path in rows without a loss."""
    since_here_ns: NDArray[np.int64]
    """When the last probe before these was heard, on the timeline: what is missing was sent since."""
    at_ns: int
    """The time of the report and the bound of its clock, as the receiver has them."""
    bound_ns: int
    until_here_ns: int
    """The end of the report's interval, on the timeline."""

    def where(self, kept: NDArray[np.bool_]) -> Counts:
        """Those of the rows that are marked."""
        return self._replace(
            ids=self.ids[kept], rows=self.rows.compress(kept), known=self.known[kept], silences=self.silences[kept],
            arrived=self.arrived[kept], since_here_ns=self.since_here_ns[kept],
        )  # fmt: skip


class HeldCounts:
    """Counts in the order in which they were told.

    A late node may be the one that saw the queue. So counts are released when the source and all nodes that hear the
    same source NICs have spoken of a later time, or after `_LONGEST_NS`.
    """

    def __init__(self, inventory: Inventory, queues: FullQueues) -> None:
        self._inventory = inventory
        self._queues = queues
        self._held: deque[tuple[Counts, list[str]]] = deque()
        """With the nodes that have to speak."""

    def hold(self, counts: Counts) -> None:
        """Takes counts of a report."""
        if len(counts.ids):
            self._held.append((counts, self._witnesses(counts.ids)))

    def drop(self, path_ids: Iterable[int]) -> None:
        """Forgets the counts of paths whose losses have another cause."""
        gone = np.array([*path_ids], np.intp)
        self._held = deque((counts.where(~np.isin(counts.ids, gone)), nodes) for counts, nodes in self._held)

    def due(self, now_ns: int) -> Iterator[Counts]:
        """The counts of the times in which no queue was full, as far as all others have spoken."""
        table, told_ns = self._inventory.paths, self._inventory.told_ns
        while self._held:
            counts, nodes = self._held[0]
            until_ns = counts.until_here_ns
            if now_ns - until_ns < _LONGEST_NS and any(told_ns.get(node, 0) < until_ns + _AFTER_NS for node in nodes):
                return
            self._held.popleft()
            # What a silence lost is left to the silence.
            left_out = table.silent[counts.ids] | (table.silences[counts.ids] != counts.silences)
            left_out |= self._queues.were_full(counts.ids, counts.since_here_ns, until_ns + _KNOWN_AFTER_NS)
            yield counts.where(~left_out) if left_out.any() else counts

    def _witnesses(self, ids: NDArray[np.intp]) -> list[str]:
        """The nodes with the NICs at which these paths begin, and those that hear these NICs."""
        table = self._inventory.paths
        hearing = table.hearing([table.nics[nic] for nic in {*table.ends[ids, 0].tolist()}])
        return [table.nodes[node] for node in {*table.source_node[ids].tolist(), *hearing.tolist()}]
