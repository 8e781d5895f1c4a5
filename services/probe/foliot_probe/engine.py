"""The tick of a probe: it reads packets and the stamps of those sent in the last tick, judges silence, and sends due probes.

The kernel stamps every packet when it comes or leaves, so the sockets need no reading in between. A tick reads them all
in batches. A wake-up per arriving packet would cost more than everything else together.
"""

from __future__ import annotations

import collections
import contextlib
import errno
import itertools
import secrets
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import structlog

from foliot.columns import enlarge, grown
from foliot_probe.core.measure.sessions import Completed, Sessions
from foliot_probe.core.measure.silence import STALL_NS, SilenceWatch
from foliot_probe.core.packet import IDLE_US, IN_USE, IP_UDP_BYTES, MOST_BYTES, ProbePacket, is_probe
from foliot_probe.core.rate.demand import Demand
from foliot_probe.core.rate.send_order import PROBES_A_ROUND, of_tick, send_order
from foliot_probe.core.rate.send_schedule import SendSchedule
from foliot_probe.core.stream_table import StreamTable
from foliot_probe.io.timestamp_check import StampChecks
from foliot_probe.io.udp_batch import Inbox, Outbox, describe_errno, interface_mtus, open_socket

if TYPE_CHECKING:
    import socket

    from numpy.typing import NDArray

    from foliot.clock import HostClock
    from foliot_probe.io.udp_batch import Arrivals, Batch
    from foliot_probe.settings import ProbeSettings
    from foliot_schemas import Node

    Rows = NDArray[np.intp]

log = structlog.get_logger()

_SLOTS = 512
"""Packets in a batch: as many as a node with eight NICs and ten peers finds in a tick.

Each further batch costs as much as the first.
"""
_MOST_FAILURES = 3
"""Sends that may fail on a socket within a tick, before the rest of its batch is given up."""
_OVERDUE = 5
"""Probes in a row of a path that idles that must be missing, so that chance has not lost them all."""
_MILLISECOND_NS = 1_000_000
_NOBODY = np.zeros(0, np.intp)


class SilenceChanges(NamedTuple):
    """Rows whose incoming path has just fallen silent, or speaks again."""

    fell: Rows
    again: Rows


class Engine:
    """Sockets and state of all streams of a node. Every time given to it is monotonic and in ns."""

    def __init__(self, own: Node, clock: HostClock, settings: ProbeSettings, now_ns: int) -> None:
        self.counts: collections.Counter[str] = collections.Counter()
        """Packets so far that were foreign, unsent or dropped, by these names."""
        self._clock = clock
        self._settings = settings
        self._tick_ns = settings.tick_ms * _MILLISECOND_NS
        self.table = StreamTable(own)
        rows = len(self.table)
        self.sessions = Sessions(rows)
        self._schedule = SendSchedule(rows, settings.full_every)
        self.demand = Demand(self.table, settings)
        self._watch = SilenceWatch(rows)
        self._sent = np.zeros(rows, np.int64)
        self.heard_last_ns = np.zeros(rows, np.int64)
        """Local time when a stream was heard last, per row; 0: never."""
        self.listened_ns = clock.local_ns()
        """Local time when the sockets were last read.

        All packets that had come by then have been heard, and none that came later.
        """
        self._sockets: list[socket.socket | None] = [None] * len(self.table.places)
        self._opened = np.zeros(len(self.table.places), np.bool_)
        self._mtu = np.zeros(len(self.table.places), np.int64)
        """The MTU of the device of each socket's address, in bytes; 0: not known."""
        self._refused = np.zeros(len(self.table.places), np.int64)
        """The MTU at which the kernel refused a packet of just that size, per socket; 0: it refused none."""
        self._stamps = StampChecks([place.address for place in self.table.places])
        self._dropped = np.zeros(len(self.table.places), np.int64)
        self._inbox = Inbox(_SLOTS)
        self._outbox = Outbox(PROBES_A_ROUND * rows)
        self._random = np.random.default_rng(secrets.randbits(64))
        self._tick = 0
        self._read_ns = now_ns

    def close(self) -> None:
        """Close the sockets."""
        for opened in self._sockets:
            if opened is not None:
                opened.close()
        self._sockets = [None] * len(self._sockets)
        self._inbox.close()

    # -- what there is to probe ---------------------------------------------------------------------------------------

    def bind(self) -> int:
        """Open the sockets whose addresses have appeared; returns how many are still missing."""
        for number, place in enumerate(self.table.places):
            if self._sockets[number] is None:
                try:
                    opened = self._sockets[number] = open_socket(place.address, self.table.own.probe_port)
                except OSError as error:
                    log.debug("socket_awaited", address=place.address, reason=error.strerror)
                else:
                    self._inbox.add(number, opened)
            self._opened[number] = self._sockets[number] is not None
        self.measure_sizes()
        return self._sockets.count(None)

    def measure_sizes(self) -> None:
        """Read how large a packet each path address's device carries: the overlay's follow the MTU of their NICs."""
        opened = next(filter(None, self._sockets), None)
        if opened is None:
            return
        mtus: dict[str, int] = {}
        with contextlib.suppress(OSError):  # then no size is known, and nothing is padded
            mtus = interface_mtus(opened)
        for number, place in enumerate(self.table.places):
            mtu = min(mtus.get(place.address, 0), MOST_BYTES)
            if mtu != self._mtu[number] and self._mtu[number]:
                log.info("full_size_changed", address=place.address, bytes=mtu, before=int(self._mtu[number]))
            self._mtu[number] = mtu
        self._refused[self._refused != self._mtu] = 0
        self._set_sizes()

    def _set_sizes(self) -> None:
        own_bytes = np.where(self._refused == self._mtu, 0, self._mtu) * bool(self._settings.full_every)
        self.sessions.set_sizes(own_bytes[self.table.place])

    def _refuse_size(self, place: int) -> None:
        """Handle a packet that the kernel found too large: the device's MTU has changed, or a lower limit holds."""
        before = int(self._mtu[place])
        self.measure_sizes()
        if self._mtu[place] == before and self._refused[place] != before:
            self._refused[place] = before
            self._set_sizes()
            log.warning("full_size_refused", address=self.table.places[place].address, bytes=before)

    def set_peer(self, peer: Node) -> tuple[list[int], list[int]]:
        """Take a peer in, or its changed record; returns the rows that ended and those that begin."""
        ended, begun = self.table.set_peer(peer)
        self._end(ended)
        self._grow(len(self.table))
        first = self._first_sequence()
        for row in begun:
            self.sessions.open(row, secrets.randbits(64) | 1, first)
            self._schedule.begin(row, self.demand.sweep, self._tick)
        if ended or begun:
            self.demand.peers_changed()
            self._set_sizes()
        return ended, begun

    def drop_peer(self, name: str) -> list[int]:
        """Let a peer go; returns the rows that ended."""
        ended = self.table.drop_peer(name)
        self._end(ended)
        if ended:
            self.demand.peers_changed()
        return ended

    def _end(self, rows: list[int]) -> None:
        for row in rows:
            self.sessions.close(row)
            self._schedule.end(row)
            self._watch.forget(row)
            self.demand.forget(row)
            self._sent[row] = self.heard_last_ns[row] = 0

    def _first_sequence(self) -> int:
        """The microseconds since 1970.

        A stream sends far less than one probe in each, so a later life begins above the last one's end.
        """
        return max(1, (self._clock.epoch_ns() + self._clock.local_ns()) // 1_000)

    def _grow(self, rows: int) -> None:
        if rows == len(self.sessions):
            return
        self.sessions.grow(rows)
        self.demand.grow(rows)
        enlarge(self._schedule, rows)
        enlarge(self._watch, rows)
        self._sent, self.heard_last_ns = grown(self._sent, rows), grown(self.heard_last_ns, rows)
        self._outbox = Outbox(PROBES_A_ROUND * rows)

    # -- a tick -------------------------------------------------------------------------------------------------------

    def speak(self, tick: int) -> None:
        """Send what is due in a tick; ticks may be missed."""
        self._tick = tick
        self.demand.meet(self.sessions.take_met(), tick)
        for row, every, coded_every, in_use in self.demand.changes(tick, self.sessions.mesh_ms):
            self._schedule.change(row, every, tick - 1, in_use=in_use, coded_every=coded_every)
        self._send(tick)

    def listen(self, now_ns: int) -> SilenceChanges:
        """Read the sockets until they are empty, then judge which paths are silent."""
        self.listened_ns = self._clock.local_ns()
        again = [self._take(batch, now_ns) for batch in self._inbox.read()]
        if now_ns - self._read_ns > self._tick_ns + STALL_NS:
            self._watch.excuse(now_ns)
        self._read_ns = now_ns
        fell = self._watch.judge(now_ns)
        return SilenceChanges(fell, np.concatenate([_NOBODY, *again]))

    def next_silence_ns(self) -> int | None:
        """The latest time to listen again, so that a path that falls silent is reported at once."""
        return self._watch.next_ns()

    def _take(self, batch: Batch, now_ns: int) -> Rows:
        """Take own probes that the kernel handed back, and packets that came; returns the rows that speak again."""
        local_ns = self._clock.realtime_to_local(batch.stamp_ns)
        left = batch.departures
        if left is not None:
            self._stamps.left(left.place)
            self.sessions.left(left.probes, local_ns[left.slot])
        if batch.arrivals is None:
            return _NOBODY
        return self._hear(batch.arrivals, batch.stamp_ns[batch.first :] != 0, local_ns[batch.first :], now_ns)

    def _hear(self, arrived: Arrivals, stamped: NDArray[np.bool_], stamp_ns: NDArray[np.int64], now_ns: int) -> Rows:
        place, probes = arrived.place, arrived.probes
        row = self.table.find(place, arrived.address)
        self._stamps.came(place, stamped)
        local_now_ns = self._clock.local_ns()
        if not stamped.all():
            by_hand = self._stamps.received_by_hand()[place]
            stamp_ns = np.where(stamped, stamp_ns, np.where(by_hand, local_now_ns, 0))
        if arrived.dropped is not None:
            self._excuse_dropped(place, arrived.dropped, now_ns)
        full = arrived.lengths > ProbePacket.itemsize
        genuine = (row >= 0) & is_probe(probes, arrived.lengths)
        if not genuine.all():
            self.counts["foreign"] += int(np.count_nonzero(~genuine))
            row, probes, stamp_ns, full = row[genuine], probes[genuine], stamp_ns[genuine], full[genuine]
        self.sessions.hear(row, probes, stamp_ns, full)
        # A packet came after the last reading, even if the clock was stepped and its stamp says otherwise. One without
        # a stamp came now.
        age_ns = np.minimum(np.maximum(local_now_ns - stamp_ns, 0), now_ns - self._read_ns) * (stamp_ns != 0)
        self.heard_last_ns[row] = local_now_ns - age_ns
        return self._watch.hear(row, now_ns - age_ns, probes["interval_us"], probes["use"] & IN_USE != 0)

    def _excuse_dropped(self, places: Rows, counts: NDArray[np.uint32], now_ns: int) -> None:
        for place in np.unique(places):
            dropped = int(counts[places == place].max())
            if dropped > self._dropped[place]:
                self.counts["dropped"] += dropped - int(self._dropped[place])
                self._dropped[place] = dropped
                self._watch.excuse(now_ns, np.flatnonzero(self.table.place == place))

    def _send(self, tick: int) -> None:
        due, coded, full = self._schedule.due(tick)
        if not len(due):
            return
        self.sessions.announce(
            self._schedule.announced * (self._tick_ns // 1_000),
            self._schedule.in_use,
            self._stamps.kind[self.table.place],
            self.demand.wish_ms,
        )
        wanted = of_tick(due, coded, full[self.sessions.full_bytes[full] > 0], len(self.table))
        row, turn, padded = wanted
        place = self.table.place[row]
        order, begins = send_order(wanted, place, len(due), self._random)
        if not self._opened.all():
            order = order[self._opened[place[order]]]
        row, turn, padded, place = row[order], turn[order], padded[order], place[order]
        probes = self.sessions.compose(row, turn, padded)
        padding = padded * (self.sessions.full_bytes[row] - (IP_UDP_BYTES + ProbePacket.itemsize))
        self._outbox.fill(probes, self.table.address[row], padding)
        went = np.ones(len(row), np.bool_)
        counts = np.bincount(place, minlength=len(self._sockets)).tolist()
        stops = list(itertools.accumulate(counts))
        for number in (*range(begins, len(counts)), *range(begins)):
            if counts[number]:
                stop = stops[number]
                first = stop - counts[number]
                local_ns = self._clock.local_ns()
                self._send_at(number, first, stop, went)
                if self._stamps.sent_by_hand(number, went[first:stop]):
                    left = probes[first:stop][went[first:stop]]
                    self.sessions.left(left, np.full(len(left), local_ns), by_ns=self._clock.local_ns())
        np.add.at(self._sent, row[went], 1)

    def _send_at(self, place: int, first: int, stop: int, went: NDArray[np.bool_]) -> None:
        """Send one socket's slots; take out of `went` those that fail and, after `_MOST_FAILURES`, all others."""
        opened = self._sockets[place]
        assert opened is not None
        failures = 0
        while first < stop:
            sent_to, number = self._outbox.send(opened, first, stop)
            if sent_to == stop:
                return
            failures += 1
            first = sent_to + 1 if failures < _MOST_FAILURES else stop
            went[sent_to:first] = False
            self.counts["unsent"] += first - sent_to
            if number == errno.EMSGSIZE:
                self._refuse_size(place)
            log.debug("send_failed", address=self.table.places[place].address, reason=describe_errno(number))

    # -- results ------------------------------------------------------------------------------------------------------

    def take_sent(self) -> NDArray[np.int64]:
        """Probes sent since the last call, per row."""
        sent, self._sent = self._sent, np.zeros_like(self._sent)
        return sent

    def take_completed(self) -> tuple[Completed, Completed]:
        """Probes of which both stamps have become known since the last call: those sent, those heard."""
        return self.sessions.outgoing.take_completed(), self.sessions.incoming.take_completed()

    def idle(self) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
        """The rows whose outgoing path idles, and those whose incoming one does, as other paths stand for them.

        One that was not heard for several times as long as it was promised idles no more: something is wrong.
        """
        promised_us = self.sessions.promised_us
        age_ns = self._clock.local_ns() - self.heard_last_ns
        incoming = (promised_us > IDLE_US) & (age_ns < _OVERDUE * 1_000 * promised_us)
        return self.demand.idle, incoming

    def kinds(self) -> NDArray[np.int64]:
        """The worse kind of stamp of each row's two ends."""
        kinds: NDArray[np.int64] = np.maximum(self._stamps.kind[self.table.place], self.sessions.peer_kind)
        return kinds
