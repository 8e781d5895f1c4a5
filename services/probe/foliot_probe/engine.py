"""The streams of a node: whom it probes, over which sockets, how often and how large; a packet loop does it."""

from __future__ import annotations

import contextlib
import os
import secrets
import threading
from typing import TYPE_CHECKING

import numpy as np
import structlog

from foliot.native import compiled
from foliot_probe.core.measure.sessions import Completed
from foliot_probe.core.packet import IDLE_US, MOST_BYTES
from foliot_probe.core.rate.demand import Demand
from foliot_probe.core.stream_table import StreamTable
from foliot_probe.io.timestamp_check import DIRECTIONS
from foliot_probe.io.udp_batch import interface_mtus, open_socket
from foliot_probe.numpy_loop import NumpyPacketLoop
from foliot_probe.packet_loop import Report, SilenceChanges

if TYPE_CHECKING:
    import socket
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from foliot.clock import HostClock
    from foliot_probe.packet_loop import PacketLoop
    from foliot_probe.settings import ProbeSettings
    from foliot_schemas import Node

log = structlog.get_logger()

_OVERDUE = 5
"""Probes in a row of a path that idles that must be missing, so that chance has not lost them all."""
_MILLISECOND_NS = 1_000_000
_REALTIME_SHARE = 0.25
"""The most of a processor that the thread of packets takes with real-time priority, ten times its usual share."""


class Engine:
    """Sockets and streams of a node. Every time given to it is monotonic and in ns.

    Parameters:
        nic_rails: the rails whose NICs have clocks. Their sockets ask for the stamps of both, host and NIC.
    """

    def __init__(
        self, own: Node, clock: HostClock, settings: ProbeSettings, now_ns: int, nic_rails: frozenset[str] = frozenset()
    ) -> None:
        self._clock = clock
        self._settings = settings
        self.table = StreamTable(own)
        self.demand = Demand(self.table, settings)
        self.packets = _packet_loop(self.table, clock, settings, now_ns)
        self._rows = len(self.table)
        self._sockets: list[socket.socket | None] = [None] * len(self.table.places)
        self._mtu = np.zeros(len(self.table.places), np.int64)
        """The MTU of the device of each socket's address, in bytes; 0: not known."""
        self._refused = np.zeros(len(self.table.places), np.int64)
        """The MTU at which the kernel refused a packet of just that size, per socket; 0: it refused none."""
        self._nic_rails = nic_rails
        self._by_nic: set[str] = set()
        """The rails whose streams are stamped by their NICs."""
        self._shift_ns = np.zeros(len(self.table.places), np.int64)
        for number, place in enumerate(self.table.places):
            if place.rail in nic_rails:
                self.packets.watch_nic(number, clock.injected_nics.get(place.rail))
        self._tick = 0
        self._thread: threading.Thread | None = None
        self._told_realtime: bool | None = False
        self._changed_fd = -1

    def close(self) -> None:
        """Close the sockets."""
        if self._thread is not None:
            self.packets.stop()
            self._thread.join()
            self._thread = None
            os.close(self._changed_fd)
        self.packets.close()
        for opened in self._sockets:
            if opened is not None:
                opened.close()
        self._sockets = [None] * len(self._sockets)

    # -- what there is to probe ---------------------------------------------------------------------------------------

    def bind(self) -> int:
        """Open the sockets whose addresses have appeared; returns how many are still missing."""
        for number, place in enumerate(self.table.places):
            if self._sockets[number] is None:
                ds_field = self._settings.ds_field(place.rail)
                try:
                    opened = self._sockets[number] = open_socket(
                        place.address, self.table.own.probe_port, ds_field, by_nic=place.rail in self._nic_rails
                    )
                except OSError as error:
                    log.debug("socket_awaited", address=place.address, reason=error.strerror)
                else:
                    self.packets.add_socket(number, opened)
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
        self.packets.set_sizes(own_bytes[self.table.place])

    def _refuse_sizes(self) -> None:
        """Handle packets that the kernel found too large: a device's MTU has changed, or a lower limit holds."""
        refused = self.packets.take_refused()
        if not len(refused):
            return
        before = self._mtu.copy()
        self.measure_sizes()
        for place in refused.tolist():
            if self._mtu[place] == before[place] and self._refused[place] != before[place]:
                self._refused[place] = before[place]
                log.warning("full_size_refused", address=self.table.places[place].address, bytes=int(before[place]))
        self._set_sizes()

    def set_peer(self, peer: Node) -> tuple[list[int], list[int]]:
        """Take a peer in, or its changed record; returns the rows that ended and those that begin."""
        ended, begun = self.table.set_peer(peer)
        self._end(ended)
        self._grow(len(self.table))
        first = self._first_sequence()
        for row in begun:
            self.packets.begin(
                row,
                int(self.table.place[row]),
                (int(self.table.address[row]["address"]), int(self.table.address[row]["port"])),
                session=secrets.randbits(64) | 1,
                first=first,
                every=self.demand.sweep,
                tick=self._tick,
            )
        if ended or begun:
            self.demand.peers_changed()
            self._set_sizes()
        for rail in self._by_nic:
            self._restart(rail, begun, by_nic=True)
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
            self.packets.end(row)
            self.demand.forget(row)

    # -- whose stamps count -------------------------------------------------------------------------------------------

    def set_by_nic(self, rail: str, *, by_nic: bool) -> None:
        """Lets the NIC of a rail stamp its streams, or the kernel again; their sessions begin anew."""
        (self._by_nic.add if by_nic else self._by_nic.discard)(rail)
        self._restart(rail, list(self.table.rows.values()), by_nic=by_nic)

    def _restart(self, rail: str, rows: list[int], *, by_nic: bool) -> None:
        first = self._first_sequence()
        for row in rows:
            ends = self.table.ends[row]
            # A peer of an earlier version would take the NIC's stamps for the host's.
            if ends is not None and ends.key.rail == rail and self.table.peers[ends.key.peer].nic_stamps:
                self.packets.restart(row, session=secrets.randbits(64) | 1, first=first, by_nic=by_nic)

    def set_nic_shifts(self, shift_ns: Mapping[str, int]) -> None:
        """Takes by how much the clock in the NIC of each rail is ahead of local time now; 0: that is not known."""
        self._shift_ns[:] = [shift_ns.get(place.rail, 0) for place in self.table.places]
        self.packets.set_shifts(self._shift_ns)

    def shift_ns(self) -> NDArray[np.int64]:
        """The same of each row; 0 where there is no such clock."""
        found: NDArray[np.int64] = self._shift_ns[self.table.place]
        return found

    def take_stamp_counts(self) -> dict[str, NDArray[np.int64]]:
        """What was counted of the stamps of each rail's NIC since the last call, see `PacketLoop.take_stamp_counts`."""
        counts, found = self.packets.take_stamp_counts(), dict.fromkeys(self._nic_rails, np.zeros((2, 3), np.int64))
        for place, counted in zip(self.table.places, counts, strict=True):
            if place.rail in found:
                found[place.rail] = found[place.rail] + counted
        return found

    def _first_sequence(self) -> int:
        """The microseconds since 1970.

        A stream sends far less than one probe in each, so a later life begins above the last one's end.
        """
        return max(1, (self._clock.epoch_ns() + self._clock.local_ns()) // 1_000)

    def _grow(self, rows: int) -> None:
        if rows != self._rows:
            self._rows = rows
            self.packets.grow(rows)
            self.demand.grow(rows)

    # -- a tick -------------------------------------------------------------------------------------------------------

    def start(self, start_ns: int) -> int | None:
        """Lets the packet loop tick by itself from now on; tick 0 is at `start_ns`.

        Returns an eventfd that can be read when there are changes to take. None: whoever has the engine makes the
        ticks, by `listen` and `speak`.
        """
        if not self.packets.runs:
            return None
        self._changed_fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._thread = threading.Thread(target=self._run, args=(start_ns,), name="packet-loop", daemon=True)
        self._thread.start()
        return self._changed_fd

    def _run(self, start_ns: int) -> None:
        try:
            self.packets.run(start_ns, self._changed_fd, _REALTIME_SHARE * self._settings.realtime)
        except BaseException:
            # A probe that sends nothing and looks alive would be taken for dead paths. Its supervisor starts it anew.
            log.exception("packet_loop_died")
            os._exit(os.EX_SOFTWARE)

    def speak(self, tick: int) -> int:
        """Send what is due in a tick, and return how many probes that were; ticks may be missed."""
        self.adjust(tick)
        return self.packets.send(tick)

    def adjust(self, tick: int) -> None:
        """Gives each stream the rate and the size that are wanted by now, from the next tick on."""
        self._tick = tick
        self._refuse_sizes()
        self._tell_priority()
        for place, direction in self.packets.take_missing_stamps():
            log.warning("stamps_missing", address=self.table.places[place].address, direction=DIRECTIONS[direction])
        self.demand.meet(self.packets.take_met(), tick)
        for row, every, coded_every, in_use in self.demand.changes(tick, self.packets.peers_mesh_ms()):
            self.packets.change_rate(row, every, tick - 1, in_use=in_use, coded_every=coded_every)
        self.packets.set_wishes(self.demand.wish_ms)

    def _tell_priority(self) -> None:
        has = self.packets.realtime()
        if has is self._told_realtime:
            return
        self._told_realtime = has
        if has:
            log.info("packet_loop_realtime", most_of_a_processor=_REALTIME_SHARE)
        else:
            log.warning("packet_loop_realtime_given_up", most_of_a_processor=_REALTIME_SHARE)

    def listen(self, now_ns: int) -> SilenceChanges:
        """Read the sockets until they are empty, then judge which paths are silent."""
        self.packets.listen(now_ns)
        return self.packets.take_changes()

    # -- results ------------------------------------------------------------------------------------------------------

    def idle(self) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
        """The rows whose outgoing path idles, and those whose incoming one does, as other paths stand for them.

        One that was not heard for several times as long as it was promised idles no more: something is wrong.
        """
        promised_us = self.packets.promised_us()
        if not (promised_us > IDLE_US).any():
            return self.demand.idle, np.zeros(len(promised_us), np.bool_)
        age_ns = self._clock.local_ns() - self.packets.heard_last_ns()
        incoming = (promised_us > IDLE_US) & (age_ns < _OVERDUE * 1_000 * promised_us)
        return self.demand.idle, incoming


def _packet_loop(table: StreamTable, clock: HostClock, settings: ProbeSettings, now_ns: int) -> PacketLoop:
    """The compiled packet loop, where there is one."""
    places, rows, tick_ns = len(table.places), len(table), settings.tick_ms * _MILLISECOND_NS
    native = compiled("packet_loop")
    if native is None:
        return NumpyPacketLoop(places, rows, clock, tick_ns=tick_ns, full_every=settings.full_every, now_ns=now_ns)
    made: PacketLoop = native.PacketLoop(
        places,
        rows,
        tick_ns=tick_ns,
        full_every=settings.full_every,
        now_ns=now_ns,
        seed=secrets.randbits(64),
        error=clock.injected,
        types=(SilenceChanges, Report, Completed),
    )
    return made
