"""The packet loop in numpy: all streams of a node in columns, so that a batch of packets costs a handful of calls.

The kernel stamps every packet when it comes or leaves, so the sockets need no reading in between ticks. A tick reads
them all in batches. A wake-up per arriving packet would cost more than everything else together.
"""

from __future__ import annotations

import collections
import errno
import itertools
import secrets
from typing import TYPE_CHECKING, Any

import numpy as np
import structlog

from foliot.columns import enlarge, grown
from foliot_probe.core.measure.nic_stamps import ODD, PACKETS, STAMPED, odd
from foliot_probe.core.measure.sessions import Sessions
from foliot_probe.core.measure.silence import STALL_NS, SilenceWatch
from foliot_probe.core.packet import HARDWARE, IN_USE, IP_UDP_BYTES, ProbePacket, is_probe
from foliot_probe.core.rate.send_order import PROBES_A_ROUND, of_tick, send_order
from foliot_probe.core.rate.send_schedule import SendSchedule
from foliot_probe.core.sockaddr import Address, sockaddr
from foliot_probe.io.ptp_clock import nic_ns
from foliot_probe.io.timestamp_check import DIRECTIONS, StampChecks
from foliot_probe.io.udp_batch import Inbox, Outbox, describe_errno, is_clogged
from foliot_probe.packet_loop import Report, SilenceChanges

if TYPE_CHECKING:
    import socket
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from foliot.clock import HostClock, InjectedNic
    from foliot_probe.core.measure.sessions import Completed
    from foliot_probe.io.udp_batch import Arrivals, Batch

    Rows = NDArray[np.intp]
    Times = NDArray[np.int64]

log = structlog.get_logger()

_SLOTS = 512
"""Packets in a batch: as many as a node with eight NICs and ten peers finds in a tick.

Each further batch costs as much as the first.
"""
_LEFT, _CAME = range(len(DIRECTIONS))
_EIGHTHS = 8
_HELD_UP = 4
"""Probes in a row that do not leave the host, before their stream makes way for others on a clogged socket. That is
more than a tick's. So a stream of which all leave is not held up: their stamps come with the next tick."""
_CLOGGED_PART = 4
"""A socket is clogged when more than this part of its send buffer is taken as a tick begins. Usually nothing is."""


class NumpyPacketLoop:
    """See `PacketLoop`.

    Parameters:
        places: the number of sockets.
        rows: of the stream table.
        tick_ns: the time between two ticks.
        full_every: in every so many rounds a path's probe is padded; 0: never.
    """

    runs = False

    def __init__(self, places: int, rows: int, clock: HostClock, *, tick_ns: int, full_every: int, now_ns: int) -> None:
        self._clock = clock
        self._tick_ns = tick_ns
        self.sessions = Sessions(rows)
        self._schedule = SendSchedule(rows, full_every)
        self._watch = SilenceWatch(rows)
        self._told_silent = np.zeros(rows, np.bool_)
        self._wish_ms = np.zeros(rows, np.int64)
        self._sent = np.zeros(rows, np.int64)
        self._heard_last_ns = np.zeros(rows, np.int64)
        self._place = np.zeros(rows, np.intp)
        self._address = np.zeros(rows, Address)
        self._row_of: dict[int, int] = {}
        """By place and address, see `_key`."""
        self._listened_ns = clock.local_ns()
        self._sockets: list[socket.socket | None] = [None] * places
        self._opened = np.zeros(places, np.bool_)
        self._refused = np.zeros(places, np.bool_)
        self._stamps = StampChecks(places)
        self._watched: dict[int, InjectedNic | None] = {}
        """Places whose NIC's stamps are watched."""
        self._shift_ns = np.zeros(places, np.int64)
        self._stamp_counts = np.zeros((places, len(DIRECTIONS), 3), np.int64)
        self._turns = np.zeros(places, np.int64)
        self._dropped = np.zeros(places, np.int64)
        self._counts: collections.Counter[str] = collections.Counter()
        self._inbox = Inbox(_SLOTS)
        self._outbox = Outbox(PROBES_A_ROUND * rows)
        self._random = np.random.default_rng(secrets.randbits(64))
        self._read_ns = now_ns

    def close(self) -> None:
        """See `PacketLoop`."""
        self._inbox.close()

    def add_socket(self, place: int, opened: socket.socket) -> None:
        """See `PacketLoop`."""
        self._sockets[place] = opened
        self._opened[place] = True
        self._inbox.add(place, opened)

    def watch_nic(self, place: int, injected: InjectedNic | None) -> None:
        """See `PacketLoop`."""
        self._watched[place] = injected
        self._inbox.by_nic = True

    def set_shifts(self, shift_ns: Times) -> None:
        """See `PacketLoop`."""
        self._shift_ns[:] = shift_ns

    def take_stamp_counts(self) -> NDArray[np.int64]:
        """See `PacketLoop`."""
        counts, self._stamp_counts = self._stamp_counts, np.zeros_like(self._stamp_counts)
        return counts

    # -- what there is to probe ---------------------------------------------------------------------------------------

    def grow(self, rows: int) -> None:
        """See `PacketLoop`."""
        if rows == len(self.sessions):
            return
        self.sessions.grow(rows)
        enlarge(self._schedule, rows)
        enlarge(self._watch, rows)
        for name in ("_told_silent", "_wish_ms", "_sent", "_heard_last_ns", "_place", "_address"):
            setattr(self, name, grown(getattr(self, name), rows))
        self._outbox = Outbox(PROBES_A_ROUND * rows)

    def begin(
        self, row: int, place: int, peer: tuple[int, int], *, session: int, first: int, every: int, tick: int
    ) -> None:
        """See `PacketLoop`."""
        address, port = peer
        self._place[row], self._address[row] = place, sockaddr(address, port)[0]
        self._row_of[_key(place, address)] = row
        self.sessions.by_nic[row] = False
        self.sessions.open(row, session, first)
        self._schedule.begin(row, every, tick)

    def restart(self, row: int, *, session: int, first: int, by_nic: bool) -> None:
        """See `PacketLoop`."""
        self.sessions.by_nic[row] = by_nic
        self.sessions.open(row, session, first)

    def end(self, row: int) -> None:
        """See `PacketLoop`."""
        key = _key(int(self._place[row]), int(self._address[row]["address"]))
        if self._row_of.get(key) == row:  # else its address is another's by now
            del self._row_of[key]
        self.sessions.by_nic[row] = False
        self.sessions.close(row)
        self._schedule.end(row)
        self._watch.forget(row)
        self._told_silent[row] = False
        self._sent[row] = self._heard_last_ns[row] = 0

    def change_rate(self, row: int, every: int, tick: int, *, in_use: bool, coded_every: int) -> None:
        """See `PacketLoop`."""
        self._schedule.change(row, every, tick, in_use=in_use, coded_every=coded_every)

    def set_sizes(self, own_bytes: NDArray[np.int64]) -> None:
        """See `PacketLoop`."""
        self.sessions.set_sizes(own_bytes)

    def set_wishes(self, mesh_ms: NDArray[np.int64]) -> None:
        """See `PacketLoop`."""
        self._wish_ms[:] = mesh_ms

    def forget_wishes(self, row: Rows) -> None:
        """See `PacketLoop`."""
        self.sessions.mesh_ms[row] = 0

    # -- a tick -------------------------------------------------------------------------------------------------------

    def listen(self, now_ns: int) -> None:
        """See `PacketLoop`."""
        self._listened_ns = self._clock.local_ns()
        for batch in self._inbox.read():
            self._take(batch, now_ns)
        self.judge(now_ns)

    def judge(self, now_ns: int) -> None:
        """Judges which paths are silent, when all that had come was heard."""
        if now_ns - self._read_ns > self._tick_ns + STALL_NS:
            self._watch.excuse(now_ns)
        self._read_ns = now_ns
        self._watch.judge(now_ns)

    def next_silence_ns(self) -> int | None:
        """See `PacketLoop`."""
        return self._watch.next_ns()

    def _take(self, batch: Batch, now_ns: int) -> None:
        """Takes own probes that the kernel handed back, and packets that came."""
        local_ns = self._clock.realtime_to_local(batch.stamp_ns)
        left, came, nic_ns = batch.departures, batch.arrivals, batch.nic_ns
        if left is not None:
            by_host = slice(None) if nic_ns is None else (batch.stamp_ns[left.slot] != 0) | (nic_ns[left.slot] == 0)
            self.take_departures(left.place[by_host], left.probes[by_host], local_ns[left.slot][by_host])
            if nic_ns is not None:
                stamps_ns = self._by_injected(
                    left.place, batch.stamp_ns[left.slot], local_ns[left.slot], nic_ns[left.slot]
                )
                by_nic = stamps_ns != 0
                self.take_nic_departures(left.place[by_nic], left.probes[by_nic], stamps_ns[by_nic])
        if came is None:
            return
        if came.dropped is not None:
            self._excuse_dropped(came.place, came.dropped, now_ns)
        stamp_ns = np.where(batch.stamp_ns[batch.first :] != 0, local_ns[batch.first :], 0)
        if nic_ns is not None:
            nic_ns = self._by_injected(came.place, batch.stamp_ns[batch.first :], stamp_ns, nic_ns[batch.first :])
        self.take_arrivals(came, stamp_ns, self._clock.local_ns(), now_ns, nic_ns)

    def _by_injected(self, place: Rows, kernel_ns: Times, local_ns: Times, by_nic_ns: Times) -> Times:
        """The stamps of NICs, where a lab's stand for them; 0: none."""
        found = by_nic_ns.copy()
        for number, injected in self._watched.items():
            if injected is not None:
                here = np.flatnonzero((place == number) & (kernel_ns != 0))
                turns = self._turns[number] + 1 + np.arange(len(here))
                self._turns[number] += len(here)
                lies_ns, lost, *_ = injected.faults.tolist()
                found[here] = np.where(turns % _EIGHTHS < lost, 0, nic_ns(injected, local_ns[here]) + lies_ns)
        return found

    def take_departures(self, place: Rows, probes: NDArray[Any], stamp_ns: Times) -> None:
        """Takes own probes (dtype `ProbePacket`) that the kernel handed back, with their transmit stamps."""
        self._stamps.left(place)
        self._count(_LEFT, PACKETS, place)
        self.sessions.left(probes, stamp_ns)

    def take_nic_departures(self, place: Rows, probes: NDArray[Any], nic_ns: Times) -> None:
        """Takes own probes that the kernel handed back with the NIC's transmit stamps."""
        self._count(_LEFT, STAMPED, place)
        known, cell = self.sessions.find(probes)
        host_ns, shift_ns = self.sessions.outgoing.host_ns[cell], self._shift_ns[place[known]]
        strange = (host_ns != 0) & (shift_ns != 0) & odd(nic_ns[known] - shift_ns - host_ns)
        self._count(_LEFT, ODD, place[known][strange])
        sound = known[~strange]
        self.sessions.passed_nic(probes[sound], nic_ns[sound])

    def _count(self, direction: int, what: int, places: Rows) -> None:
        for place in self._watched:
            self._stamp_counts[place, direction, what] += int(np.count_nonzero(places == place))

    def take_arrivals(
        self, came: Arrivals, stamp_ns: Times, local_now_ns: int, now_ns: int, nic_ns: Times | None = None
    ) -> None:
        """Takes datagrams in the order in which they came.

        Parameters:
            stamp_ns: their receive stamps; 0: without one.
            local_now_ns: the local time.
            nic_ns: the NICs' receive stamps, likewise; None: none has any.
        """
        place, probes, lengths = came.place, came.probes, came.lengths
        row = np.array(
            [self._row_of.get(key, -1) for key in _key(place.astype(np.int64), came.address).tolist()], np.intp
        )
        stamped = stamp_ns != 0
        self._stamps.came(place, stamped)
        if not stamped.all():
            by_hand = self._stamps.received_by_hand()[place]
            stamp_ns = np.where(stamped, stamp_ns, np.where(by_hand, local_now_ns, 0))
        nic_ns = self._sound(place, stamped, stamp_ns, np.zeros_like(stamp_ns) if nic_ns is None else nic_ns)
        full = lengths > ProbePacket.itemsize
        genuine = (row >= 0) & is_probe(probes, lengths)
        if not genuine.all():
            self._counts["foreign"] += int(np.count_nonzero(~genuine))
            row, probes, stamp_ns, full = row[genuine], probes[genuine], stamp_ns[genuine], full[genuine]
            nic_ns = nic_ns[genuine]
        self.sessions.hear(row, probes, np.where(self.sessions.by_nic[row], nic_ns, stamp_ns), full)
        # A packet came after the last reading, even if the clock was stepped and its stamp says otherwise. One without
        # a stamp came now.
        age_ns = np.minimum(np.maximum(local_now_ns - stamp_ns, 0), now_ns - self._read_ns) * (stamp_ns != 0)
        self._heard_last_ns[row] = local_now_ns - age_ns
        self._watch.hear(row, now_ns - age_ns, probes["interval_us"], probes["use"] & IN_USE != 0)

    def _sound(self, place: Rows, stamped: NDArray[np.bool_], stamp_ns: Times, nic_ns: Times) -> Times:
        """Counts the NICs' receive stamps, and leaves the odd ones out."""
        if not self._watched:
            return nic_ns
        watched = stamped & np.isin(place, list(self._watched))
        shift_ns, by_nic = self._shift_ns[place], watched & (nic_ns != 0)
        strange = by_nic & (shift_ns != 0) & odd(stamp_ns - (nic_ns - shift_ns))
        for what, which in ((PACKETS, watched), (STAMPED, by_nic), (ODD, strange)):
            self._count(_CAME, what, place[which])
        return np.where(strange, 0, nic_ns)

    def _excuse_dropped(self, places: Rows, counts: NDArray[np.uint32], now_ns: int) -> None:
        for place in np.unique(places):
            dropped = int(counts[places == place].max())
            if dropped > self._dropped[place]:
                self._counts["dropped"] += dropped - int(self._dropped[place])
                self._dropped[place] = dropped
                self._watch.excuse(now_ns, np.flatnonzero(self._place == place))

    def send(self, tick: int) -> int:
        """See `PacketLoop`."""
        row, probes, padding, begins = self.compose(tick)
        if not len(row):
            return 0
        self._outbox.fill(probes, self._address[row], padding)
        went = np.ones(len(row), np.bool_)
        counts = np.bincount(self._place[row], minlength=len(self._sockets)).tolist()
        stops = list(itertools.accumulate(counts))
        for number in (*range(begins, len(counts)), *range(begins)):
            if counts[number]:
                stop = stops[number]
                first = stop - counts[number]
                local_ns = self._clock.local_ns()
                self._send_at(number, first, stop, went)
                np.add.at(self.sessions.waiting, row[first:stop][went[first:stop]], 1)
                if self._stamps.sent_by_hand(number, went[first:stop]):
                    left = probes[first:stop][went[first:stop]]
                    self.sessions.left(left, np.full(len(left), local_ns), by_ns=self._clock.local_ns())
        np.add.at(self._sent, row[went], 1)
        return int(np.count_nonzero(went))

    def compose(self, tick: int) -> tuple[Rows, NDArray[Any], NDArray[np.int64], int]:
        """The probes that are due in a tick, as they are to leave.

        Returns their rows, the probes (dtype `ProbePacket`), how many zeros follow each, and the place that begins.
        Those of a place are together, and places are in order.
        """
        due, coded, full = self._without_held_up(*self._schedule.due(tick))
        if not len(due):
            return due, np.zeros(0, ProbePacket), np.zeros(0, np.int64), 0
        self.sessions.announce(
            self._schedule.announced * (self._tick_ns // 1_000),
            self._schedule.in_use,
            self._own_kind(),
            self._wish_ms,
        )
        wanted = of_tick(due, coded, full[self.sessions.full_bytes[full] > 0], len(self.sessions))
        row, turn, padded = wanted
        place = self._place[row]
        order, begins = send_order(wanted, place, len(due), self._random)
        if not self._opened.all():
            order = order[self._opened[place[order]]]
        row, turn, padded = row[order], turn[order], padded[order]
        probes = self.sessions.compose(row, turn, padded)
        return row, probes, padded * (self.sessions.full_bytes[row] - (IP_UDP_BYTES + ProbePacket.itemsize)), begins

    def _without_held_up(self, *due: Rows) -> tuple[Rows, ...]:
        """Leaves out the streams whose probes do not leave, on sockets that these would fill.

        A packet to a neighbour that does not answer stays in the kernel for three seconds, and in the send buffer of
        its socket. When that is full, the kernel refuses all others, too.
        """
        held_up = self.sessions.waiting >= _HELD_UP
        if not held_up.any():
            return due
        clogged = np.zeros(len(self._sockets), np.bool_)
        for place in np.unique(self._place[held_up]).tolist():
            opened = self._sockets[place]
            clogged[place] = opened is not None and is_clogged(opened, _CLOGGED_PART)
        held_up &= clogged[self._place]
        return tuple(rows[~held_up[rows]] for rows in due)

    def _send_at(self, place: int, first: int, stop: int, went: NDArray[np.bool_]) -> None:
        """Send one socket's slots; take out of `went` those that fail.

        A failure is of one peer, which may have no route or may be forbidden. The others are not to look dead by it.
        """
        opened = self._sockets[place]
        assert opened is not None
        while first < stop:
            failed, number = self._outbox.send(opened, first, stop)
            if failed == stop:
                return
            first = failed + 1
            went[failed] = False
            self._counts["unsent"] += 1
            self._refused[place] |= number == errno.EMSGSIZE
            log.debug("send_failed", place=place, reason=describe_errno(number))

    # -- by itself ----------------------------------------------------------------------------------------------------

    def run(self, start_ns: int, changed_fd: int, realtime_share: float) -> None:
        """See `PacketLoop`: it cannot."""
        raise NotImplementedError

    def stop(self) -> None:
        """See `PacketLoop`."""

    def realtime(self) -> bool | None:
        """See `PacketLoop`."""
        return False

    def take_late_ns(self) -> int:
        """See `PacketLoop`: whoever ticks knows it."""
        return 0

    # -- results ------------------------------------------------------------------------------------------------------

    def take_changes(self) -> SilenceChanges:
        """See `PacketLoop`."""
        silent = self._watch.silent
        changed = np.flatnonzero(silent != self._told_silent)
        fell, again = changed[silent[changed]], changed[~silent[changed]]
        self._told_silent[changed] = silent[changed]
        rows = np.concatenate([fell, again])
        return SilenceChanges(
            fell, again, self._heard_last_ns[rows], self.sessions.heard_sequence[rows], self._listened_ns
        )

    def take_met(self) -> Rows:
        """See `PacketLoop`."""
        return self.sessions.take_met()

    def take_refused(self) -> Rows:
        """See `PacketLoop`."""
        refused = np.flatnonzero(self._refused)
        self._refused[refused] = False
        return refused

    def take_missing_stamps(self) -> list[tuple[int, int]]:
        """See `PacketLoop`."""
        return self._stamps.take_missing()

    def take_report(self) -> Report:
        """See `PacketLoop`."""
        sessions = self.sessions
        sent, self._sent = self._sent, np.zeros_like(self._sent)
        proven, received = sessions.count()
        full_proven, full_received = sessions.count_full()
        return Report(
            listened_ns=self._listened_ns,
            outgoing=sessions.outgoing.take_completed(),
            incoming=sessions.incoming.take_completed(),
            sent=sent,
            left_sequence=sessions.left_sequence.copy(),
            left_ns=sessions.left_ns.copy(),
            unsent=sessions.count_unsent(),
            proven=proven,
            received=received,
            full_proven=full_proven,
            full_received=full_received,
            full_bytes=sessions.full_bytes.copy(),
            heard_last_ns=self._heard_last_ns.copy(),
            heard_sequence=sessions.heard_sequence,
            own_kind=self._own_kind(),
            peer_kind=sessions.peer_kind.astype(np.int64),
        )

    def stamps_of(self, rows: Rows) -> Completed:
        """See `PacketLoop`."""
        return self.sessions.incoming.stamped(rows)

    def peers_mesh_ms(self) -> NDArray[np.int64]:
        """See `PacketLoop`."""
        return self.sessions.mesh_ms

    def promised_us(self) -> NDArray[np.int64]:
        """See `PacketLoop`."""
        return self.sessions.promised_us

    def heard_last_ns(self) -> Times:
        """See `PacketLoop`."""
        return self._heard_last_ns

    def kinds(self) -> NDArray[np.int64]:
        """See `PacketLoop`."""
        kinds: NDArray[np.int64] = np.maximum(self._own_kind(), self.sessions.peer_kind)
        return kinds

    def _own_kind(self) -> NDArray[np.int64]:
        return np.where(self.sessions.by_nic, HARDWARE, self._stamps.kind[self._place])

    def counts(self) -> Mapping[str, int]:
        """See `PacketLoop`."""
        return self._counts


def _key(place: Any, address: Any) -> Any:
    return place << 32 | address
