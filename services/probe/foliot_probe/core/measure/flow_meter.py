"""The traffic of each flow since the last reading, by the kernel's counts of its connections."""

from __future__ import annotations

from ipaddress import IPv4Address
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from foliot_schemas import FlowRow
from foliot_schemas.names import Flow

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from numpy.typing import NDArray

    from foliot_probe.core.measure.ack_delays import Ends
    from foliot_schemas import Nic, Node

_US_NS = 1_000
_NO_DELAYS: Mapping[Ends, int] = MappingProxyType({})
_COUNTS = ("acked_bytes", "retransmitted", "busy_us", "receiver_limited_us", "buffer_limited_us")


class FlowInterval(NamedTuple):
    """Flows between two readings."""

    flows: tuple[str, ...]
    """Names, which the rows index."""
    rows: NDArray[Any]
    """Of dtype `FlowRow`, one for each flow that had anything to send."""
    span_ns: int
    """Time between the readings."""


class FlowMeter:
    """Sums up connections by the NICs to which the addresses of both ends belong.

    A connection that ended between two readings is missing with what it did since the first.

    Parameters:
        own: this node.
        address: the address of a NIC by which connections count.
    """

    def __init__(self, own: Node, address: Callable[[Nic], str] = lambda nic: nic.service_address) -> None:
        self._address = address
        self._own = self._names(own)
        self._peers: dict[str, dict[int, str]] = {}
        self._peer_nics: dict[int, str] = {}
        """The NICs of all peers, by address."""
        self._last: NDArray[Any] | None = None
        self._last_ns = 0

    def set_peer(self, name: str, node: Node | None) -> None:
        """Learns the addresses of a peer; None: it is gone."""
        if node is None:
            self._peers.pop(name, None)
        else:
            self._peers[name] = self._names(node)
        self._peer_nics = {address: nic for names in self._peers.values() for address, nic in names.items()}

    def read(
        self, connections: NDArray[Any], now_ns: int, in_band_ns: Mapping[Ends, int] = _NO_DELAYS
    ) -> FlowInterval | None:
        """The flows since the last call; None at the first.

        Parameters:
            connections: rows of dtype `tcp_sockets.ConnectionRow`.
            now_ns: when they were read, by a time that never steps.
            in_band_ns: how long data took meanwhile, by the addresses of both ends, as far as that is known.
        """
        connections = connections[np.argsort(connections["cookie"])]
        before, self._last = self._last, connections
        span_ns, self._last_ns = now_ns - self._last_ns, now_ns
        if before is None or span_ns <= 0:
            return None
        places, named = self._flows(connections)
        if not named:
            return FlowInterval((), np.zeros(0, FlowRow), span_ns)
        known, grown = places >= 0, _growth(before, connections)
        rows = _summed(places[known], connections[known], grown[known], len(named))
        self._add_delays(rows, named, in_band_ns)
        moving = (rows["acked_bytes"] > 0) | (rows["busy_ns"] > 0)
        rows = rows[moving]
        flows = tuple(str(named[place]) for place in rows["flow"].tolist())
        rows["flow"] = np.arange(len(rows))
        return FlowInterval(flows, rows, span_ns)

    def _flows(self, connections: NDArray[Any]) -> tuple[NDArray[np.intp], list[Flow]]:
        """Each connection's place in a list of flows; -1: an end is no such address of anybody's."""
        places = np.full(len(connections), -1, np.intp)
        named: dict[Flow, int] = {}
        for number, (local, remote) in enumerate(
            zip(connections["local"].tolist(), connections["remote"].tolist(), strict=True)
        ):
            source, destination = self._own.get(local), self._peer_nics.get(remote)
            if source is not None and destination is not None:
                places[number] = named.setdefault(Flow(source, destination), len(named))
        return places, list(named)

    def _add_delays(self, rows: NDArray[Any], named: list[Flow], in_band_ns: Mapping[Ends, int]) -> None:
        if not in_band_ns:
            return
        place_of = {flow: place for place, flow in enumerate(named)}
        for ends, delay_ns in in_band_ns.items():
            source, destination = self._own.get(ends.local), self._peer_nics.get(ends.remote)
            if source is not None and destination is not None:
                place = place_of.get(Flow(source, destination))
                if place is not None:
                    rows["in_band_ns"][place] = delay_ns

    def _names(self, node: Node) -> dict[int, str]:
        return {int(IPv4Address(self._address(nic))): nic.name for nic in node.nics}


def _growth(before: NDArray[Any], now: NDArray[Any]) -> NDArray[np.int64]:
    """By how much each count of each connection grew, shape (connections, counts); both are ordered by cookie."""
    counts = np.stack([now[name].astype(np.int64) for name in _COUNTS], axis=1)
    if len(before):
        place = np.minimum(np.searchsorted(before["cookie"], now["cookie"]), len(before) - 1)
        known = before["cookie"][place] == now["cookie"]
        earlier = np.stack([before[name][place].astype(np.int64) for name in _COUNTS], axis=1)
        counts[known] -= earlier[known]
    return np.maximum(counts, 0)


def _summed(places: NDArray[np.intp], connections: NDArray[Any], grown: NDArray[np.int64], flows: int) -> NDArray[Any]:
    """A row of dtype `FlowRow` for each flow."""
    rows = np.zeros(flows, FlowRow)
    rows["flow"] = np.arange(flows)
    acked, again, busy, receiver, buffer = grown.T
    np.add.at(rows["connections"], places, 1)
    np.add.at(rows["acked_bytes"], places, acked)
    np.add.at(rows["retransmitted"], places, again)
    # In this order each flow's busiest connection is written last, and so stays.
    for number in np.lexsort((acked, busy)).tolist():
        place, connection = places[number], connections[number]
        rows["busiest_acked_bytes"][place] = acked[number]
        rows["busy_ns"][place] = busy[number] * _US_NS
        rows["receiver_limited_ns"][place] = receiver[number] * _US_NS
        rows["buffer_limited_ns"][place] = buffer[number] * _US_NS
        rows["rtt_ns"][place] = connection["rtt_us"] * _US_NS
        rows["least_rtt_ns"][place] = connection["least_rtt_us"] * _US_NS
    return rows
