"""Admits stamps: of nodes in the inventory, about clocks in it, over paths between its NICs.

Sync remembers a clock and a path for ever. Names outside the inventory never get that far, so a flood of them takes no
memory.
"""

from __future__ import annotations

from collections import Counter
from itertools import product
from typing import TYPE_CHECKING

import numpy as np

from foliot_schemas import StampBatch
from foliot_schemas.names import nic_clock_name, parse_path

if TYPE_CHECKING:
    from collections.abc import Collection

    from foliot_schemas import Nic, Node
    from foliot_schemas.observation import Stream


class Admission:
    """The inventory, as a shard needs it.

    `foreign` counts the streams that were left out, by node. Whole batches of unknown nodes count under the empty name.
    """

    def __init__(self) -> None:
        self.foreign: Counter[str] = Counter()
        self._nodes: dict[str, Node] = {}
        self._nics: dict[str, Nic] = {}
        self._known: set[tuple[str, str, str]] = set()
        """Paths with the clocks at both ends that were asked for, and are known, since the inventory changed last."""

    def learn(self, name: str, node: Node | None) -> None:
        """Takes a node's record; None: it has left."""
        self._known.clear()
        known = self._nodes.pop(name, None)
        for nic in () if known is None else known.nics:
            self._nics.pop(nic.name, None)
        if node is not None:
            self._nodes[name] = node
            self._nics |= {nic.name: nic for nic in node.nics}

    def admit(self, batch: StampBatch) -> StampBatch | None:
        """The part of a batch that counts; None: nothing."""
        if batch.node not in self._nodes:
            self.foreign[""] += 1
            return None
        # As a rule, all have been asked for before: a call for each would take as long as all else.
        known = [(stream.path, stream.initiator, stream.responder) in self._known for stream in batch.streams]
        if all(known):
            return batch
        known = [self._knows(stream) for stream in batch.streams]
        if all(known):
            return batch
        self.foreign[batch.node] += known.count(False)
        place = np.cumsum(known) - 1
        rows = batch.rows()
        rows = rows[np.array(known, bool)[rows["stream"]]]
        rows["stream"] = place[rows["stream"]]
        streams = tuple(stream for stream, is_known in zip(batch.streams, known, strict=True) if is_known)
        header = {name: getattr(batch, name) for name in batch.__struct_fields__ if name != "columns"}
        return StampBatch.of(rows, **header | {"streams": streams})

    def _knows(self, stream: Stream) -> bool:
        """Whether a stream's path lies between two known NICs, and is stamped by their clocks."""
        asked = stream.path, stream.initiator, stream.responder
        if asked not in self._known and asked[1:] in self._clocks(stream.path):
            self._known.add(asked)
        return asked in self._known

    def _clocks(self, name: str) -> Collection[tuple[str, str]]:
        """The clocks that may stamp at the ends of a path; none: there is no such path."""
        try:
            path = parse_path(name)
        except ValueError:
            return ()
        source, destination = self._nics.get(path.source), self._nics.get(path.destination)
        if source is None or destination is None:
            return ()
        if path.source == path.destination:  # a NIC's own clock between two readings of its host's
            return () if path.entropy else [(source.clock, nic_clock_name(source.name))]
        if path.entropy >= min(len(source.entropies), len(destination.entropies)):
            return ()
        here, there = ((nic.clock, nic_clock_name(nic.name)) for nic in (source, destination))
        return list(product(here, there))
