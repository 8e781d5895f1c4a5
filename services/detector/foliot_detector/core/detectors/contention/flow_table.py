"""What each flow did in the latest interval that its sender told, in columns, and the best that it did before."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from foliot.columns import NamedRows, blank, widen
from foliot.jobs import TALKS_NS
from foliot.link_map import link_out
from foliot.report_rows import ReportRows
from foliot_detector.core.detectors.contention.link_index import MOST_LINKS, NONE
from foliot_detector.core.state.inventory import REPORT_HOLDS_NS
from foliot_schemas.names import Flow, node_of, parse_flow, parse_path

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from foliot_detector.core.detectors.contention.link_index import LinkIndex
    from foliot_detector.core.detectors.contention.port_rates import PortRates
    from foliot_detector.core.state.inventory import Inventory
    from foliot_schemas import FlowBatch

_S = 1_000_000_000
_ROOM = 64
_STRANGE = -1
"""The row of a flow between NICs that the inventory does not know."""
_FRESH_NS = 3 * _S // 2
"""How long a word of a flow holds: three of the intervals in which nodes tell of flows."""
_OVER_NS = _FRESH_NS - REPORT_HOLDS_NS
"""A flow is over if its sender has told of delays so long after the last word of it: it has nothing to send on it."""
_LOST_NS = 10 * _S
"""For how long what was said stands while the sender of a flow is not heard. A flow is over if its receiver's port
counts nothing of it meanwhile."""
_BORNE_OUT = 0.5
"""Share of a flow's rate that its receiver's port counts at least, beside all other flows, while the flow goes on."""
_SETTLE_NS = 3 * _S // 2
"""How long nothing is said of a flow that takes another path: its first interval there is of both paths, and its rate
has to find its new level."""
_BUSY = 0.7
"""Least share of an interval for which a flow that the network limits has data on its way."""
_HELD_UP = 0.5
"""Share of that time for which the receiver's window or the send buffer held it up, from which on the network does not
limit it."""
_AGAIN_NS = 2 * _S
_MEMORY_NS = 600 * _S
"""A flow's best is of the last ten to twenty minutes."""


class FlowTable:
    """Columns by flow. Rates are of acknowledged bytes, in bits a second."""

    def __init__(self, inventory: Inventory, links: LinkIndex, ports: PortRates) -> None:
        self._inventory, self._index, self._ports = inventory, links, ports
        self._flows = NamedRows()
        self.names = self._flows.names
        self.path = np.full(_ROOM, -1, np.intp)
        """The path that it takes; -1: nobody knows."""
        self.links = np.full((_ROOM, MOST_LINKS), NONE, np.int32)
        """Its links, from the source on."""
        self.source = np.full(_ROOM, NONE, np.int32)
        """The link out of the NIC that its path begins at."""
        self.back, self.end = np.full(_ROOM, -1, np.intp), np.full(_ROOM, NONE, np.int32)
        """The path that its acknowledgements take, and the link by which they leave their NIC; -1: nobody knows."""
        self.rate = np.zeros(_ROOM)
        self._before = np.zeros(_ROOM)
        """The rate of the interval before, if the network limited it then; else 0."""
        self.best = np.zeros((_ROOM, 2))
        """The highest rate for two intervals in which the network limited it, by memory."""
        self.busy = np.zeros(_ROOM)
        """Share of the interval for which it had data on its way."""
        self.unread = np.zeros(_ROOM)
        """Share of that time for which it waited for the receiver's window."""
        self._held_up = np.zeros(_ROOM)
        """The same with the time for which it waited for its own buffer."""
        self.rtt_ns = np.zeros(_ROOM, np.int64)
        """Its round-trip time, as its sender measures it; 0: it does not."""
        self.has_lost = np.zeros(_ROOM, np.bool_)
        """Whether its sender sent anything again."""
        self._told_ns, self._borne_ns = np.zeros(_ROOM, np.int64), np.zeros(_ROOM, np.int64)
        """When it was last told; and when its sender was last heard, or its receiver's port counted what may be of it."""
        self._settled_ns = np.zeros(_ROOM, np.int64)
        self.is_active = np.zeros(_ROOM, np.bool_)
        """Told lately to have something to send."""
        self.is_unknown = np.zeros(_ROOM, np.bool_)
        """Active before, and its sender is not heard since; or on another path since a moment ago."""
        self.is_lost = np.zeros(_ROOM, np.bool_)
        """Active before, and its sender is not heard for long: it may be over, or not."""
        self.is_limited = np.zeros(_ROOM, np.bool_)
        """Active, and the network limits it; nothing is unknown."""
        self._node = np.zeros(_ROOM, np.intp)
        self._nodes = NamedRows()
        self._node_told_ns: list[int] = []
        """By node of `_nodes`, when it last told of any flow."""
        self._rows: dict[str, list[int]] = {}
        """By node, the flows that it sends."""
        self._received: dict[str, list[int]] = {}
        """By node, the flows that it receives."""
        self._reported = ReportRows()
        self._has_strangers = False
        """Whether a flow was told between NICs that the inventory does not know."""
        self._turn_ns = self._again_ns = self.heard_ns = 0
        """`heard_ns` is when anybody last told of a flow."""

    def __len__(self) -> int:
        return len(self.names)

    def take(self, batch: FlowBatch, here_ns: int) -> None:
        """Takes a node's word of its flows between NICs of the inventory, which it gave at a time of the timeline."""
        rows = batch.rows()
        if batch.interval_ns <= 0 or not len(rows):
            return
        ids = self._reported.of(batch.node, batch.flows, self._row)[rows["flow"]]
        if self._has_strangers and not (known := ids != _STRANGE).all():
            rows, ids = rows.compress(known), ids[known]
            if not len(ids):
                return
        self.heard_ns = max(self.heard_ns, here_ns)
        rate = rows["acked_bytes"] * (8.0 * _S / batch.interval_ns)
        busy_ns = np.maximum(rows["busy_ns"], 1)
        self.busy[ids] = busy = rows["busy_ns"] / batch.interval_ns
        self.unread[ids] = unread = rows["receiver_limited_ns"] / busy_ns
        self._held_up[ids] = held_up = unread + rows["buffer_limited_ns"] / busy_ns
        limited = (busy >= _BUSY) & (held_up < _HELD_UP)
        lately = limited & (here_ns - self._told_ns[ids] <= _FRESH_NS) & (self._settled_ns[ids] <= here_ns)
        steady = np.where(lately, np.minimum(rate, self._before[ids]), 0.0)
        self.best[ids, 0] = np.maximum(self.best[ids, 0], steady)
        self._before[ids] = np.where(limited, rate, 0.0)
        self.rate[ids], self.rtt_ns[ids], self.has_lost[ids] = rate, rows["rtt_ns"], rows["retransmitted"] > 0
        self._told_ns[ids] = self._borne_ns[ids] = here_ns
        node = int(self._node[ids[0]])
        self._node_told_ns[node] = max(self._node_told_ns[node], here_ns)

    def look(self, now_ns: int) -> None:
        """Finds which flows are active, unknown and limited now."""
        if now_ns >= self._turn_ns:
            self._turn_ns = now_ns + _MEMORY_NS
            self.best[:, 1] = self.best[:, 0]
            self.best[:, 0] = 0.0
        nodes = self._nodes.names
        if not nodes:
            return
        self._place_again(now_ns)
        told_ns = self._inventory.told_ns
        spoke_ns = np.array([told_ns.get(node, 0) for node in nodes])[self._node]
        is_heard = np.array([self._inventory.is_heard(node, now_ns) for node in nodes], np.bool_)[self._node]
        age_ns = now_ns - self._told_ns
        node_told_ns = np.array(self._node_told_ns, np.int64)[self._node]
        left_out = node_told_ns - self._told_ns >= _FRESH_NS // 4
        is_told = (age_ns <= _FRESH_NS) & ~left_out
        is_over = ~is_told & is_heard & (left_out | (spoke_ns - self._told_ns >= _OVER_NS))
        self.rate[is_over] = self._before[is_over] = 0.0
        self.is_active = is_told & (self.rate > 0)
        is_over = self._are_gone(is_heard, now_ns)
        self.rate[is_over] = self._before[is_over] = 0.0
        moved = self.rate > 0
        self.is_lost = moved & ~is_heard & (age_ns > _LOST_NS)
        self.is_unknown = moved & ~self.is_lost & (~is_heard | ~is_told | (self._settled_ns > now_ns))
        busy = (self.busy >= _BUSY) & (self._held_up < _HELD_UP)
        self.is_limited = self.is_active & ~self.is_unknown & busy

    def reroute(self, node: str, now_ns: int) -> None:
        """Finds the paths of a node's flows anew, as its ways have changed."""
        for row in self._rows.get(node, ()):
            before = int(self.path[row])
            self._place(row)
            if self.path[row] != before and before >= 0:
                self._settled_ns[row] = now_ns + _SETTLE_NS
        for row in self._received.get(node, ()):
            self._place_back(row)

    def relink(self, paths: list[int], elsewhere: list[int], now_ns: int) -> None:
        """Takes the links of paths of which something new is known; `elsewhere` are those that took others before."""
        for row in np.flatnonzero(np.isin(self.path[: len(self)], paths)).tolist():
            self._place(row)
            if self.path[row] in elsewhere:
                self._settled_ns[row] = now_ns + _SETTLE_NS

    def refresh(self, node: str) -> None:
        """Takes it that the inventory has another record of a node. Forgets the flows at NICs that are no more."""
        gone = {
            row
            for row in (*self._rows.get(node, ()), *self._received.get(node, ()))
            if not self._is_known(self.names[row])
        }
        for row in sorted(gone):
            self._forget(row)
        if gone or self._has_strangers:
            self._has_strangers = False
            self._reported.forget()

    def talking(self, now_ns: int) -> list[str]:
        """The flows of nodes that talk to each other, by `foliot.jobs`."""
        lately = (self._told_ns > 0) & (now_ns - self._told_ns <= TALKS_NS)
        return [self.names[row] for row in np.flatnonzero(lately).tolist()]

    def row_of(self, flow: str) -> int:
        """A flow's row; -1: nobody told of it."""
        row = self._flows.find(flow)
        return -1 if row is None else row

    def crossing(self, links: list[int]) -> NDArray[np.bool_]:
        """Marks the flows whose paths have one of these links."""
        crossed = np.zeros(self.links.shape, np.bool_)
        for link in links:  # they are few, and `np.isin` takes as long as a dozen of them
            crossed |= self.links == link
        return np.asarray(crossed.any(axis=1))

    def _row(self, flow: str) -> int:
        """A flow's row, made where it is new; `_STRANGE`: a NIC of it is not known."""
        row = self._flows.find(flow)
        if row is None:
            if not self._is_known(flow):
                self._has_strangers = True
                return _STRANGE
            ends = parse_flow(flow)
            row = self._flows.take(flow)
            if row == len(self.path):
                widen(self, 2 * row)
                self._clear(slice(row, None))
            node = node_of(ends.source)
            self._rows.setdefault(node, []).append(row)
            self._received.setdefault(node_of(ends.destination), []).append(row)
            self._node[row] = self._number(node)
            self._place(row)
        return row

    def _number(self, node: str) -> int:
        number = self._nodes.find(node)
        if number is None:
            number = self._nodes.take(node)
            if number == len(self._node_told_ns):
                self._node_told_ns.append(0)
        return number

    def _is_known(self, flow: str) -> bool:
        source, _, destination = flow.partition(">")
        return source in self._inventory.nics and destination in self._inventory.nics

    def _forget(self, row: int) -> None:
        name = self.names[row]
        flow = parse_flow(name)
        for rows, nic in ((self._rows, flow.source), (self._received, flow.destination)):
            own = rows[node_of(nic)]
            own.remove(row)
            if not own:
                del rows[node_of(nic)]
        sender = node_of(flow.source)
        if sender not in self._rows:
            self._node_told_ns[self._nodes.free(sender)] = 0
        self._flows.free(name)
        blank(self, row)
        self._clear(slice(row, row + 1))

    def _clear(self, rows: slice) -> None:
        """Has the flows of these rows take no path."""
        self.path[rows], self.links[rows], self.source[rows] = -1, NONE, NONE
        self.back[rows], self.end[rows] = -1, NONE

    def _are_gone(self, is_heard: NDArray[np.bool_], now_ns: int) -> NDArray[np.bool_]:
        """Marks the flows of senders that are not heard, of which receivers' ports have counted nothing for long.

        Their hosts are gone, and not their probes alone.
        """
        away = np.flatnonzero(~is_heard & (self.rate > 0))
        self._borne_ns[is_heard] = now_ns
        self._borne_ns[away[self._are_borne_out(away, now_ns)]] = now_ns
        gone = np.zeros(len(self.rate), np.bool_)
        gone[away] = now_ns - self._borne_ns[away] > _LOST_NS
        return gone

    def _are_borne_out(self, rows: NDArray[np.intp], now_ns: int) -> NDArray[np.bool_]:
        """Marks those of these flows that may be in what their receivers' ports count now; nobody may know."""
        if not len(rows):
            return np.zeros(0, np.bool_)
        table = self._inventory.paths
        ends = np.where(self.path >= 0, table.ends[self.path, 1], len(table.nics))
        beside_bps = np.bincount(ends[self.is_active], self.rate[self.is_active], len(table.nics) + 1)
        counted_bps = np.full(len(table.nics) + 1, np.inf)
        for end in np.unique(ends[rows]).tolist():
            nic = table.nics[end] if end < len(table.nics) else ""
            if nic and self._inventory.is_heard(node_of(nic), now_ns):
                counted_bps[end] = self._ports.received_bps.get(nic, np.inf)
        left_bps = (counted_bps - beside_bps)[ends[rows]]
        return np.asarray(left_bps >= _BORNE_OUT * self.rate[rows])

    def _place_again(self, now_ns: int) -> None:
        """Looks now and then for the paths of flows that were told before their ways, or before any delay."""
        if now_ns < self._again_ns:
            return
        self._again_ns = now_ns + _AGAIN_NS
        lately = (self._told_ns > 0) & (now_ns - self._told_ns <= _AGAIN_NS)
        for row in np.flatnonzero(lately & ((self.path < 0) | (self.back < 0))).tolist():
            self._place(row)

    def _place(self, row: int) -> None:
        self._place_back(row)
        name = self._inventory.ways.path_of(self.names[row])
        self.links[row], self.source[row], self.path[row] = NONE, NONE, -1
        if not name:
            return
        place = self._inventory.paths.id_of(parse_path(name))
        links = self._index.of(place)
        self.path[row] = place
        self.links[row, : len(links)] = links
        self.source[row] = links[0] if links else NONE

    def _place_back(self, row: int) -> None:
        source, destination = parse_flow(self.names[row])
        name = self._inventory.ways.path_of(str(Flow(destination, source)))
        self.back[row], self.end[row] = -1, NONE
        if name:
            path = parse_path(name)
            self.back[row] = self._inventory.paths.id_of(path)
            self.end[row] = self._index.id_of(link_out(path.source))
