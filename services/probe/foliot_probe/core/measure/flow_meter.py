"""The traffic of each flow since the last reading, by the kernel's counts of its connections."""

from __future__ import annotations

from ipaddress import IPv4Address
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from foliot_schemas import FlowRow
from foliot_schemas.names import Flow

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from foliot_schemas import Node

_US_NS = 1_000
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
    """Sums up connections by the NICs to which their service addresses belong.

    A connection that ended between two readings is missing with what it did since the first.

    Parameters:
        own: this node.
    """

    def __init__(self, own: Node) -> None:
        self._own = _names(own)
        self._peers: dict[str, dict[int, str]] = {}
        self._last: NDArray[Any] | None = None
        self._last_ns = 0

    def set_peer(self, name: str, node: Node | None) -> None:
        """Learns the service addresses of a peer; None: it is gone."""
        if node is None:
            self._peers.pop(name, None)
        else:
            self._peers[name] = _names(node)

    def read(self, connections: NDArray[Any], now_ns: int) -> FlowInterval | None:
        """The flows since the last call; None at the first.

        Parameters:
            connections: rows of dtype `tcp_sockets.ConnectionRow`.
            now_ns: when they were read, by a time that never steps.
        """
        connections = connections[np.argsort(connections["cookie"])]
        before, self._last = self._last, connections
        span_ns, self._last_ns = now_ns - self._last_ns, now_ns
        if before is None or span_ns <= 0:
            return None
        grown = _growth(before, connections)
        places, named = self._flows(connections)
        known = places >= 0
        rows = _summed(places[known], connections[known], grown[known], len(named))
        moving = (rows["acked_bytes"] > 0) | (rows["busy_ns"] > 0)
        rows = rows[moving]
        flows = tuple(str(named[place]) for place in rows["flow"].tolist())
        rows["flow"] = np.arange(len(rows))
        return FlowInterval(flows, rows, span_ns)

    def _flows(self, connections: NDArray[Any]) -> tuple[NDArray[np.intp], list[Flow]]:
        """Each connection's place in a list of flows; -1: an end is nobody's service address."""
        peers = {address: nic for names in self._peers.values() for address, nic in names.items()}
        places = np.full(len(connections), -1, np.intp)
        named: dict[Flow, int] = {}
        for number, (local, remote) in enumerate(
            zip(connections["local"].tolist(), connections["remote"].tolist(), strict=True)
        ):
            source, destination = self._own.get(local), peers.get(remote)
            if source is not None and destination is not None:
                places[number] = named.setdefault(Flow(source, destination), len(named))
        return places, list(named)


def _names(node: Node) -> dict[int, str]:
    return {int(IPv4Address(nic.service_address)): nic.name for nic in node.nics}


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
        rows["busy_ns"][place] = busy[number] * _US_NS
        rows["receiver_limited_ns"][place] = receiver[number] * _US_NS
        rows["buffer_limited_ns"][place] = buffer[number] * _US_NS
        rows["rtt_ns"][place] = connection["rtt_us"] * _US_NS
        rows["least_rtt_ns"][place] = connection["least_rtt_us"] * _US_NS
    return rows
