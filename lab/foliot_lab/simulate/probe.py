"""A simulated probe: the real schedule and the real judgement of silence, on a modelled socket, clock and processor.

It follows `engine`, `reports` and `service` of `foliot_probe`; the costs of its steps are in `Costs`.
"""

from __future__ import annotations

import collections
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
import numpy as np

from foliot_lab.simulate.loop import MS, SECOND
from foliot_lab.simulate.transit import FULL_BYTES, SMALL_BYTES
from foliot_probe.core.measure.one_way_delay import sent_since_ns
from foliot_probe.core.measure.padded_counts import PaddedCounts, said
from foliot_probe.core.measure.silence import STALL_NS, SilenceWatch
from foliot_probe.core.measure.stamp_window import window_number
from foliot_probe.core.packet import PREDECESSORS
from foliot_probe.core.rate.send_schedule import SendSchedule
from foliot_schemas import DelayBatch, DelayRow, NodePaths, PortState, Witness
from foliot_schemas.names import nic_name

if TYPE_CHECKING:
    import random

    from numpy.typing import NDArray

    from foliot_lab.simulate.bus import Bus
    from foliot_lab.simulate.inventory import Inventory
    from foliot_lab.simulate.loop import Loop
    from foliot_lab.simulate.node_clocks import Clock
    from foliot_lab.simulate.processors import Process
    from foliot_lab.simulate.transit import Fabric
    from foliot_probe.settings import ProbeSettings

    Rows = NDArray[np.intp]

_SOON_NS = 1 * MS
_ENDLESS_NS = 1 << 62
_REMEMBERED = 128
"""Departures of a peer that are remembered."""


class Costs(msgspec.Struct, frozen=True, kw_only=True):
    """Processor time of a probe's steps, ns, for 24 streams.

    The core makes ten million additions in Python in 0.7 s.
    """

    listen_ns: int = 600_000
    send_ns: int = 250_000
    """The cost of each socket."""
    report_ns: int = 1_200_000
    publish_ns: int = 300_000
    window_ns: int = 6 * MS
    """The cost of closing a window of stamps, in one tick."""
    window_steps: int = 3
    """The number of ticks in which it closes."""


class Packet(NamedTuple):
    """A probe in a socket's buffer."""

    came_ns: int
    row: int
    sequence: int
    interval_us: int
    in_use: bool
    delay_ns: int
    counted: int
    """The number of padded probes of its stream, as it says."""
    padded: bool


class Surroundings(NamedTuple):
    """The parts that all probes share."""

    loop: Loop
    inventory: Inventory
    fabric: Fabric
    bus: Bus
    peers: list[Probe]
    """The probes by number, for packets to be put into their sockets."""
    chance: random.Random
    settings: ProbeSettings
    costs: Costs


class Probe:
    """The probe of one node.

    Parameters:
        number: of the node in the inventory.
    """

    def __init__(self, number: int, process: Process, clock: Clock, around: Surroundings) -> None:
        loop, inventory, chance = around.loop, around.inventory, around.chance
        self.name = inventory.names[number]
        self.process = process
        self.clock = clock
        self._streams = inventory.streams[number]
        self._names = [(str(stream.outgoing), str(stream.incoming)) for stream in self._streams]
        self._paths = tuple(name for names in self._names for name in names)
        self._rails = inventory.rails
        self._loop, self._fabric, self._bus, self._peers = loop, around.fabric, around.bus, around.peers
        self._settings, self._costs = around.settings, around.costs
        self._tick_ns = self._settings.tick_ms * MS
        self._window_ns = round(self._settings.window_s * SECOND)
        rows = len(self._streams)
        self._sockets = [
            [row for row, stream in enumerate(self._streams) if (stream.rail, stream.entropy) == place]
            for place in sorted({(stream.rail, stream.entropy) for stream in self._streams})
        ]
        self._schedule = SendSchedule(rows, self._settings.full_every)
        self._watch = SilenceWatch(rows)
        self._sweep = max(1, round(1_000 / self._settings.sweep_hz / self._settings.tick_ms))
        self._fast = max(1, round(1_000 / self._settings.in_use_hz / self._settings.tick_ms))
        self._inbox: list[Packet] = []
        self._sequence = np.zeros(rows, np.int64)
        self._sent = np.zeros(rows, np.int64)
        self._padded_sent = np.zeros(rows, np.int64)
        self._padded = PaddedCounts(rows)
        self._untold: list[list[tuple[int, int]]] = [[] for _ in range(rows)]
        """Numbers and delays of the probes heard whose departures a later one will tell."""
        self._peers_left_ns: dict[int, collections.deque[int]] = {}
        """Per peer, when its latest probes left whose stamps a later one has brought."""
        self._departures: list[tuple[int, int, int]] = []
        self._last_left_ns = np.zeros(rows, np.int64)
        """When the probe heard last had left, which the next one tells."""
        self._left_ns = np.zeros(rows, np.int64)
        self._left_sequence = np.zeros(rows, np.int64)
        self._heard_last_ns = np.zeros(rows, np.int64)
        self._highest = np.zeros(rows, np.int64)
        self._counted = np.zeros(rows, np.int64)
        self._received = np.zeros(rows, np.int64)
        self._least_ns = np.full(rows, _ENDLESS_NS)
        self._most_ns = np.zeros(rows, np.int64)
        self._downs = dict.fromkeys((nic_name(self.name, rail) for rail in self._rails), 0)
        self._start_ns = loop.now_ns + chance.randrange(self._tick_ns)
        self._read_ns = self._busy_ns = self._start_ns
        self._late_ns = 0
        self._interval = 0
        self._window, self._steps_left = self._window_number(), 0
        self._next_tick_ns = self._start_ns
        for row in range(rows):
            self._schedule.begin(row, self._sweep, 0)
        self._bus.subscribe("paths", f"{self.name}/probe", self._take_paths)
        loop.at(self._start_ns, self._wake, self._start_ns, True)
        loop.at(self._start_ns + chance.randrange(SECOND), self._tell_counters)

    # -- the timer ----------------------------------------------------------------------------------------------------

    def _wake(self, due_ns: int, is_tick: bool) -> None:
        start_ns = self.process.wake(max(due_ns, self._busy_ns))
        if start_ns > self._loop.now_ns:
            self._loop.at(start_ns, self._begin, due_ns, is_tick)
        else:
            self._begin(due_ns, is_tick)

    def _begin(self, due_ns: int, is_tick: bool) -> None:
        """Begins a timer's callback. It has read the time when it comes to read the sockets."""
        now_ns = self._loop.now_ns
        if now_ns < self._busy_ns:  # the other timer's callback runs
            self._loop.at(self._busy_ns, self._begin, due_ns, is_tick)
            return
        self._late_ns = max(self._late_ns, now_ns - due_ns)
        self._busy_ns = self.process.work(now_ns, self._costs.listen_ns)
        self._loop.at(self._busy_ns, self._go_on, now_ns, is_tick)

    def _go_on(self, began_ns: int, is_tick: bool) -> None:
        end_ns = self._loop.now_ns
        batches: list[DelayBatch] = []
        fell, again = self._listen(began_ns)
        if len(fell) or len(again):
            batches.append(self._silence(fell, again))
        if len(fell):
            end_ns = self._tell_delays(end_ns, batches)
        if is_tick:
            tick = (began_ns - self._start_ns) // self._tick_ns
            end_ns = self._send(tick, end_ns)
            interval = tick // max(1, self._settings.delay_interval_ms // self._settings.tick_ms)
            if interval != self._interval:
                self._interval = interval
                end_ns = self._tell_delays(end_ns, batches)
            end_ns = self._close_window(end_ns)
            self._late_ns = max(self._late_ns, end_ns - began_ns)
            self._next_tick_ns = self._start_ns + (tick + 1) * self._tick_ns
            self._loop.at(self._next_tick_ns, self._wake, self._next_tick_ns, True)
        # Tasks publish, and they run after the timer's callback.
        for batch in batches:
            end_ns = self.process.work(end_ns, self._costs.publish_ns)
            self._bus.publish(f"{self.name}/probe", "delay", batch, end_ns)
        self._busy_ns = end_ns
        silence_ns = self._watch.next_ns()
        if silence_ns is not None and silence_ns < self._next_tick_ns:
            at_ns = max(silence_ns, end_ns) + _SOON_NS
            self._loop.at(at_ns, self._wake, at_ns, False)

    def _tell_delays(self, at_ns: int, batches: list[DelayBatch]) -> int:
        at_ns = self.process.work(at_ns, self._costs.report_ns)
        batches.append(self._report())
        return at_ns

    def _close_window(self, at_ns: int) -> int:
        window = self._window_number()
        if window != self._window:
            self._window, self._steps_left = window, self._costs.window_steps
        elif self._steps_left:
            self._steps_left -= 1
            at_ns = self.process.work(at_ns, self._costs.window_ns)
        return at_ns

    def _window_number(self) -> int:
        return window_number(self.name, self.clock.now_ns(self._loop.now_ns), self._window_ns)

    def tick_after(self, at_ns: int) -> int:
        """The due time of its first tick from a time on."""
        return at_ns + (self._start_ns - at_ns) % self._tick_ns

    # -- the wire -----------------------------------------------------------------------------------------------------

    def receive(self, packet: Packet) -> None:
        """Puts a probe into a socket's buffer at the time of its kernel stamp."""
        self._inbox.append(packet)

    def _listen(self, now_ns: int) -> tuple[Rows, Rows]:
        """Reads all packets that have arrived by now; `now_ns` is the beginning of the callback."""
        read_ns = self._loop.now_ns
        came = sorted(packet for packet in self._inbox if packet.came_ns <= read_ns)
        again = np.zeros(0, np.intp)
        for left_ns, row_left, sequence in self._departures:
            self._left_ns[row_left], self._left_sequence[row_left] = left_ns, sequence
        self._departures.clear()
        if came:
            self._inbox = [packet for packet in self._inbox if packet.came_ns > read_ns]
            columns = np.array(came, np.int64)
            row = columns[:, 1].astype(np.intp)
            age_ns = np.minimum(read_ns - columns[:, 0], max(now_ns - self._read_ns, 0))
            self._heard_last_ns[row] = read_ns - age_ns
            np.maximum.at(self._highest, row, columns[:, 2])
            np.add.at(self._received, row, 1)
            self._padded.hear(row, columns[:, 6], columns[:, 7] != 0)
            self._tell_departures(came, read_ns)
            again = self._watch.hear(row, now_ns - age_ns, columns[:, 3], columns[:, 4] != 0)
        if now_ns - self._read_ns > self._tick_ns + STALL_NS:
            self._watch.excuse(now_ns)
        self._read_ns = now_ns
        return self._watch.judge(now_ns), again

    def _tell_departures(self, came: list[Packet], read_ns: int) -> None:
        """Tells the delays of earlier probes, whose stamps each probe brings.

        A delay stays unknown if the probe is padded or one of the two clocks is not synchronised.
        """
        for packet in came:
            untold = self._untold[packet.row]
            peer = self._peers[self._streams[packet.row].peer]
            if min(self.clock.bound_ns(read_ns), peer.clock.bound_ns(read_ns)) >= 0:
                told = [ns for number, ns in untold if packet.sequence - PREDECESSORS <= number < packet.sequence]
                for delay_ns in told:
                    self._most_ns[packet.row] = max(int(self._most_ns[packet.row]), delay_ns)
                    self._least_ns[packet.row] = min(int(self._least_ns[packet.row]), delay_ns)
            untold[:] = [each for each in untold if each[0] >= packet.sequence]
            if not packet.padded:
                untold.append((packet.sequence, packet.delay_ns))
            departures = self._peers_left_ns.setdefault(
                self._streams[packet.row].peer, collections.deque(maxlen=_REMEMBERED)
            )
            departures.append(int(self._last_left_ns[packet.row]))
            self._last_left_ns[packet.row] = packet.came_ns - packet.delay_ns

    def _send(self, tick: int, at_ns: int) -> int:
        """Sends all due probes, socket by socket; returns the time of the end."""
        rows_due, _, rows_padded = self._schedule.due(tick)
        due, padded = set(rows_due.tolist()), set(rows_padded.tolist())
        announced, in_use = self._schedule.announced.tolist(), self._schedule.in_use.tolist()
        interval_us = self._tick_ns // 1_000
        self._padded_sent[rows_padded] += 1
        counts = said(self._padded_sent).tolist()
        for rows in self._sockets:
            ready = sorted((row for row in rows if row in due), key=padded.__contains__)  # padded ones come last
            if not ready:
                continue
            left_ns = self.process.work(at_ns, self._costs.send_ns // 2)
            at_ns = self.process.work(left_ns, self._costs.send_ns // 2)
            for row in ready:
                self._sequence[row] += 1
                self._sent[row] += 1
                self._departures.append((left_ns, row, int(self._sequence[row])))
                stream = self._streams[row]
                size = FULL_BYTES if row in padded else SMALL_BYTES
                delay_ns = self._fabric.delay_ns(stream.outgoing, self._names[row][0], left_ns, size)
                if delay_ns is not None:
                    peer = self._peers[stream.peer]
                    came_ns = peer.process.host.arrive(self.process.host.arrive(left_ns) + delay_ns)
                    peer.receive(
                        Packet(
                            came_ns, stream.peer_row, int(self._sequence[row]), announced[row] * interval_us,
                            in_use[row], came_ns - left_ns, counts[row], row in padded,
                        )
                    )  # fmt: skip
        return at_ns

    # -- reports ------------------------------------------------------------------------------------------------------

    def _says(self, times_ns: NDArray[np.int64]) -> NDArray[np.int64]:
        shift_ns = self.clock.now_ns(self._loop.now_ns) - self._loop.now_ns
        return np.where(times_ns == 0, 0, times_ns + shift_ns)

    def _silence(self, fell: Rows, again: Rows) -> DelayBatch:
        rows = np.concatenate([fell, again])
        table = np.zeros(len(rows), DelayRow)
        table["path"] = np.arange(len(rows))
        table["witness"] = np.repeat((Witness.FELL_SILENT, Witness.SPEAKS_AGAIN), (len(fell), len(again)))
        table["least_ns"][: len(fell)] = [self._sent_since_ns(row) for row in fell.tolist()]
        table["last_ns"] = self._says(self._heard_last_ns)[rows]
        table["sequence"] = self._highest[rows]
        return self._batch(table, tuple(self._names[row][1] for row in rows.tolist()), self._late_ns)

    def _sent_since_ns(self, row: int) -> int:
        peer, now_ns = self._streams[row].peer, self._loop.now_ns
        if min(self.clock.bound_ns(now_ns), self._peers[peer].clock.bound_ns(now_ns)) < 0:
            return 0
        left_ns = np.array(self._peers_left_ns.get(peer, ()), np.int64)
        return sent_since_ns(int(self._heard_last_ns[row]), self._watch.interval_ns(row), left_ns)

    def _report(self) -> DelayBatch:
        table = np.zeros(2 * len(self._streams), DelayRow)
        table["path"] = np.arange(len(table))
        source, destination = table[0::2], table[1::2]
        source["witness"], source["sent"] = Witness.SOURCE, self._sent
        source["last_ns"], source["sequence"] = self._says(self._left_ns), self._left_sequence
        known = self._counted > 0
        destination["witness"] = Witness.DESTINATION
        destination["sent"] = np.where(known, self._highest - self._counted, self._received)
        destination["received"] = self._received
        destination["last_ns"] = self._says(self._heard_last_ns)
        destination["sequence"] = self._highest
        destination["full_sent"], destination["full_received"] = self._padded.count()
        destination["full_bytes"] = FULL_BYTES
        least_ns = np.where(self._least_ns < _ENDLESS_NS, self._least_ns, 0)
        destination["least_ns"], destination["p99_ns"] = least_ns, self._most_ns
        destination["median_ns"] = (least_ns + self._most_ns) // 2
        batch = self._batch(table, self._paths, self._late_ns)
        self._counted[:] = self._highest
        self._late_ns = 0
        for column in (self._sent, self._received, self._most_ns):
            column[:] = 0
        self._least_ns[:] = _ENDLESS_NS
        return batch

    def _batch(self, table: NDArray[Any], paths: tuple[str, ...], late_ns: int) -> DelayBatch:
        """A batch, dated at the beginning of the last reading of the sockets.

        Later packets were not heard for certain.
        """
        return DelayBatch.of(
            table, node=self.name, at_ns=self.clock.now_ns(self._read_ns), paths=paths, late_ns=late_ns,
            interval_ns=self._settings.delay_interval_ms * MS, bound_ns=self.clock.bound_ns(self._read_ns),
            every_ns=self._settings.delay_interval_ms * MS,
        )  # fmt: skip

    # -- faults -------------------------------------------------------------------------------------------------------

    def _take_paths(self, _channel: str, paths: NodePaths) -> None:
        if paths.node != self.name:
            return
        wanted = {(way.peer, way.via, way.entropy) for way in (*paths.placements, *paths.backups)}
        tick = (self._loop.now_ns - self._start_ns) // self._tick_ns
        for row, stream in enumerate(self._streams):
            in_use = (self._peers[stream.peer].name, stream.rail, stream.entropy) in wanted
            self._schedule.change(row, self._fast if in_use else self._sweep, tick, in_use=in_use)

    def _tell_counters(self) -> None:
        self._loop.at(self._loop.now_ns + SECOND, self._tell_counters)
        for rail in self._rails:
            self._say_port(nic_name(self.name, rail), change=False)

    def lose_carrier(self, nic: str) -> None:
        """The kernel tells it that a NIC has no carrier any more."""
        self._downs[nic] += 1
        self._say_port(nic, change=True)

    def _say_port(self, nic: str, *, change: bool) -> None:
        at_ns = self.process.work(self.process.wake(max(self._loop.now_ns, self._busy_ns)), self._costs.publish_ns)
        carrier = self._fabric.dark.get(nic, at_ns + 1) > at_ns
        downs = self._downs[nic]
        port = PortState(
            node=self.name, nic=nic, at_ns=self.clock.now_ns(at_ns), carrier=carrier, admin_up=True, change=change,
            fault="boot",
            carrier_down_count=downs, carrier_up_count=1 + downs - (not carrier),
        )  # fmt: skip
        self._bus.publish(f"{self.name}/probe", "port", port, at_ns)
