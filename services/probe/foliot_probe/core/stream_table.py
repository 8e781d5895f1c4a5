"""The streams of a node: one for every peer, every shared rail and every entropy.

A stream keeps its row for life; rows of streams that ended are used again.
"""

from __future__ import annotations

import heapq
from ipaddress import IPv4Address
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from foliot.columns import grown
from foliot_probe.core.sockaddr import Address, sockaddr
from foliot_schemas.names import Path, nic_clock_name

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from foliot_schemas import Node

_FIRST_ROWS = 64


class StreamKey(NamedTuple):
    """A stream, as seen from the node."""

    peer: str
    rail: str
    entropy: int


class Place(NamedTuple):
    """A socket that the node needs: its own end of all streams on a rail and entropy."""

    rail: str
    entropy: int
    address: str


class StreamEnds(NamedTuple):
    """The constant facts of a stream."""

    key: StreamKey
    outgoing: str
    """The path from the node to the peer."""
    incoming: str
    own_clock: str
    """That of the host, as `peer_clock`."""
    peer_clock: str
    initiator: bool
    """The node publishes the stream's stamps; of two nodes the one with the smaller name does."""

    def stamped_by(self, *, own_nic: bool, peer_nic: bool) -> StreamEnds:
        """The same with the clocks that stamp: at either end that in its NIC, or its host's."""
        if not own_nic and not peer_nic:
            return self
        here, there = self.outgoing.rpartition("#")[0].split(">")
        return self._replace(
            own_clock=nic_clock_name(here) if own_nic else self.own_clock,
            peer_clock=nic_clock_name(there) if peer_nic else self.peer_clock,
        )


class StreamTable:
    """The streams of a node and where each goes, by row."""

    def __init__(self, own: Node) -> None:
        self.own = own
        self.places = tuple(
            Place(nic.rail, entropy, address) for nic in own.nics for entropy, address in enumerate(nic.path_addresses)
        )
        self._place_of = {(place.rail, place.entropy): number for number, place in enumerate(self.places)}
        self.ends: list[StreamEnds | None] = [None] * _FIRST_ROWS
        self._free = list(range(_FIRST_ROWS))
        """A heap of the rows that are free."""
        self.rows: dict[StreamKey, int] = {}
        self.place = np.zeros(_FIRST_ROWS, np.intp)
        self.address = np.zeros(_FIRST_ROWS, Address)
        self.live = np.zeros(0, np.intp)
        """The rows that are taken."""
        self.paths: tuple[str, ...] = ()
        """The outgoing path and the incoming path of each live row, in turn."""
        self.peers: dict[str, Node] = {}
        """The peers' records."""

    def __len__(self) -> int:
        """Rows, taken or free."""
        return len(self.ends)

    def set_peer(self, peer: Node) -> tuple[list[int], list[int]]:
        """Take a peer in, anew if its record changed; returns the rows that ended and those that begin."""
        if peer.name == self.own.name or self.peers.get(peer.name) == peer:
            return [], []
        ended = self.drop_peer(peer.name)
        self.peers[peer.name] = peer
        begun = [self._begin(ends, address) for ends, address in self._ends_with(peer)]
        self._index()
        return ended, begun

    def drop_peer(self, name: str) -> list[int]:
        """Let a peer go; returns the rows that ended."""
        self.peers.pop(name, None)
        ended = [row for key, row in self.rows.items() if key.peer == name]
        for row in ended:
            ends = self.ends[row]
            assert ends is not None
            del self.rows[ends.key]
            self.ends[row] = None
            heapq.heappush(self._free, row)
        if ended:
            self._index()
        return ended

    def _ends_with(self, peer: Node) -> list[tuple[StreamEnds, NDArray[Any]]]:
        rails = {nic.rail: nic for nic in peer.nics}
        streams = []
        for nic in self.own.nics:
            theirs = rails.get(nic.rail)
            if theirs is None:
                continue
            for entropy in range(min(len(nic.path_addresses), len(theirs.path_addresses))):
                path = Path(nic.name, theirs.name, entropy)
                ends = StreamEnds(
                    key=StreamKey(peer.name, nic.rail, entropy),
                    outgoing=str(path),
                    incoming=str(path.back),
                    own_clock=nic.clock,
                    peer_clock=theirs.clock,
                    initiator=self.own.name < peer.name,
                )
                streams.append((ends, sockaddr(theirs.path_addresses[entropy], peer.probe_port)))
        return streams

    def _begin(self, ends: StreamEnds, address: NDArray[Any]) -> int:
        if not self._free:
            more = len(self.ends)
            self.ends.extend([None] * more)
            self._free.extend(range(more, 2 * more))
            self.place = grown(self.place, len(self.ends))
            self.address = grown(self.address, len(self.ends))
        row = heapq.heappop(self._free)
        self.ends[row] = ends
        self.rows[ends.key] = row
        self.place[row] = self._place_of[ends.key.rail, ends.key.entropy]
        self.address[row] = address[0]
        return row

    def _index(self) -> None:
        live = list(self.rows.values())
        self.live = np.array(live, np.intp)
        self.paths = tuple(
            path for ends in map(self.ends.__getitem__, live) if ends for path in (ends.outgoing, ends.incoming)
        )


def is_usable(node: Node) -> bool:
    """Whether a record's addresses can be sent to. A broken record does not stop the probe."""
    try:
        for nic in node.nics:
            for address in nic.path_addresses:
                IPv4Address(address)
    except ValueError:
        return False
    return 0 < node.probe_port < 1 << 16
