"""The probe of a node: the engine on a timer, its reports on the bus."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import itertools
import math
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import nats.errors
import structlog

from foliot.node import identity_claims
from foliot.node.addressing import describe
from foliot.node.link_monitor import LinkMonitor, node_settings
from foliot.runtime import systemd
from foliot.runtime.service import boot_id, node_clock, on_bus
from foliot.settings import BusSettings, load
from foliot_probe.core.measure.flow_meter import FlowMeter
from foliot_probe.core.measure.stamp_window import window_number
from foliot_probe.core.rate.demand import homes, in_use
from foliot_probe.core.stream_table import is_usable
from foliot_probe.engine import Engine
from foliot_probe.in_band import InBandMeter
from foliot_probe.io.clock_outputs import ClockOutputs
from foliot_probe.io.host_load import HostLoadMeter
from foliot_probe.io.management_nics import ManagementNics
from foliot_probe.io.port_reader import PortReader
from foliot_probe.io.tcp_sockets import TcpSockets
from foliot_probe.nic_clocks import NicClocks
from foliot_probe.path_map import PathMap
from foliot_probe.reports import Reporter
from foliot_probe.settings import ProbeSettings
from foliot_schemas import FlowBatch
from foliot_schemas.subjects import CLOCK, CLOCKS, DELAY, FLOW, HOPS, INVENTORY, PATHS, PORT, STAMPS

if TYPE_CHECKING:
    from collections.abc import Coroutine, Iterator

    import msgspec
    from numpy.typing import NDArray

    from foliot.bus.client import Bus
    from foliot.clock import HostClock
    from foliot_probe.core.measure.flow_meter import FlowInterval
    from foliot_probe.core.stream_table import StreamKey
    from foliot_probe.packet_loop import SilenceChanges
    from foliot_schemas import ClockState, HopBatch, HostLoad, Node, NodePaths, StampBatch
    from foliot_schemas.subjects import Channel

log = structlog.get_logger()

_SECOND_NS = 1_000_000_000
_BIND_S = 0.5
"""The pause between two tries to open the sockets whose addresses have not appeared yet."""
_COUNTERS_S = 1.0
_AGAIN, _AGAIN_S = 5, 0.2
"""How many times the ports' states are repeated after a cut of the bus, and the pause between.

Clients try to connect four times a second.
"""
_TROUBLES_S = 60.0
_LOAD_S = 1.0
"""How often the host's load is told."""
_FLOWS_A_BATCH = 1_024
"""By the rules of the wire."""
_ACKS_S = 0.1
"""The pause between two readings of stamps of TCP."""
_TRACE_S = 0.1
"""The least pause between two looks at who answered for a hop. A tick takes them: a timer of their own costs more."""
_STEPS_A_TICK = 3
"""Steps of closing a window between two ticks. Each is a step of the event loop of its own. Where a node measures the
clocks of 64 peers, closing takes some 40 steps: half a second."""
_LONG_S = 0.003
"""How long a tick runs before the rest of it waits for another step of the event loop. With eight peers, a whole tick
is shorter. With 64, reading takes 2 ms and sending as long again. On a slow core, each takes three times as long."""
_SOON_S = 0.001
"""Added to a timer's time.

A timer may fire early by the event loop's resolution; without this, the probe would spin.
"""


async def main() -> None:
    """Runs the probe of this node.

    Raises:
        SettingsError: a setting is wrong.
    """
    node = await node_settings()
    own = describe(node)
    settings = load(ProbeSettings, "probe")
    settings.check_rails(nic.rail for nic in own.nics)
    clock = node_clock(own.name)
    async with on_bus("probe", clock, own.name) as bus:
        await identity_claims.check(bus, node, identity_claims.host_id())
        await Probe(own, settings, clock, bus).run()


class Probe:
    """One node's probe, on a connected bus."""

    def __init__(self, own: Node, settings: ProbeSettings, clock: HostClock, bus: Bus) -> None:
        self._own = own
        self._clock = clock
        self._bus = bus
        self._loop = asyncio.get_running_loop()
        self._start_s = self._loop.time()
        self._tick_s = settings.tick_ms / 1_000
        self._nic_clocks = NicClocks(own.nics if settings.nic_stamps == "auto" else (), clock)
        self._engine = Engine(own, clock, settings, self._now_ns(), self._nic_clocks.rails)
        self._reporter = Reporter(self._engine, clock, settings, self._now_ns())
        self._reporter.nic_windows = self._nic_clocks.windows
        self._outputs = ClockOutputs(clock, settings)
        self._ports = PortReader(own, clock, boot_id(), functools.partial(self._publish, PORT))
        self._load = HostLoadMeter(Path("/proc"))
        self._host: HostLoad | None = None
        """The host's load, until it is told."""
        self._flows = FlowMeter(own)
        self._nic_flows = FlowMeter(own, lambda nic: nic.address)
        self._tells_nic_flows = settings.nic_flows
        self._in_band = InBandMeter(own, clock) if settings.in_band else None
        if self._in_band is not None:
            self._reporter.tcp_clock = self._in_band.offset
        self._flow_s = settings.flow_interval_ms / 1_000
        self._map = PathMap(self._engine.table, settings) if settings.trace_hz else None
        self._lets_idle = settings.one_of_equals
        self._mappers: set[str] = set()
        """Peers that are heard when they tell of routers."""
        self._management = ManagementNics({nic.device: nic.address for nic in own.nics})
        self._told_management: frozenset[str] = frozenset()
        self._paths: NodePaths | None = None
        self._in_use: frozenset[StreamKey] = frozenset()
        self._clocks: set[str] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._ticks_per_interval = max(1, settings.delay_interval_ms // settings.tick_ms)
        self._interval_s = settings.delay_interval_ms / 1_000
        self._turn_s = self._tick_s
        """The time between two turns of the probe: a tick, or a report's interval where the packet loop ticks itself."""
        self._changed_fd: int | None = None
        self._ticks_per_trace = math.ceil(_TRACE_S / self._tick_s)
        self._window_ns = round(settings.window_s * _SECOND_NS)
        self._interval = self._traced = 0
        self._reported_s, self._owes_report = self._start_s, False
        self._window = window_number(own.name, clock.now_ns(), self._window_ns)
        self._closing: Iterator[StampBatch | None] = iter(())
        self._is_closing = False
        self._parts: Iterator[None] = iter(())
        self._is_ticking = False
        """Whether parts of a tick are left for a later step of the event loop."""
        self._rests: dict[str, asyncio.Handle] = {}
        """The next step of a tick, and that of closing a window."""

    async def run(self) -> None:
        """Probes until cancelled."""
        try:
            async with LinkMonitor(self._ports.changed) as links, asyncio.TaskGroup() as group:
                self._ports.begin(await links.present())
                self._bus.when_back(lambda: self._spawn(self._tell_ports_again()))
                group.create_task(self._bind_sockets())
                group.create_task(self._tell_counters())
                group.create_task(self._tell_troubles())
                group.create_task(self._meter_load())
                group.create_task(self._meter_flows())
                group.create_task(self._read_acks())
                group.create_task(self._nic_clocks.follow(self._engine))
                group.create_task(self._outputs.sample())
                for clock in (self._own.name, *self._nic_clocks.names):
                    await self._follow_clock(clock)
                await self._bus.watch(PATHS, self._on_paths, key=self._own.name)
                for peer in self._own.peers or ("",):
                    await self._bus.watch(INVENTORY, self._on_node, key=peer)
                self._start()
                systemd.ready(f"probes from {self._own.name}")
                log.info("probe_started", node=self._own.name, rails=len(self._own.nics))
        finally:
            for timer in (*self._timers.values(), *self._rests.values()):
                timer.cancel()
            for task in self._tasks:
                task.cancel()
            if self._changed_fd is not None:
                self._loop.remove_reader(self._changed_fd)
            self._engine.close()
            self._nic_clocks.close()
            if self._map is not None:
                self._map.close()
            if self._in_band is not None:
                self._in_band.close()
            self._outputs.close()

    # -- what the bus says --------------------------------------------------------------------------------------------

    async def _on_node(self, name: str, node: Node | None) -> None:
        if name == self._own.name:
            if node is not None and node.nics != self._own.nics:
                log.warning("inventory_differs", node=name, hint="the record is not what this node's settings say")
            return
        if node is None or node.name != name or not is_usable(node) or not node.talks_to(self._own):
            self._forget(self._engine.drop_peer(name))
            self._meet(name, None)
            return
        self._meet(name, node)
        ended, begun = self._engine.set_peer(node)
        self._forget(ended)
        self._reporter.begin(begun)
        if self._map is not None:
            self._map.begin(begun, self._now_ns())
        if begun:
            self._set_rates()
        for clock in sorted({nic.clock for nic in node.nics}):
            await self._follow_clock(clock)
        if self._lets_idle and self._map is not None and name not in self._mappers:
            self._mappers.add(name)
            await self._bus.subscribe(HOPS, self._on_hops, name)

    async def _on_hops(self, batch: HopBatch, _subject: str) -> None:
        assert self._map is not None
        self._map.take(batch, self._now_ns())

    def _forget(self, rows: list[int]) -> None:
        self._reporter.end(rows)
        if self._map is not None:
            self._map.end(rows)

    async def _on_paths(self, name: str, paths: NodePaths | None) -> None:
        if name == self._own.name:
            self._paths = paths
            self._set_rates()

    def _set_rates(self) -> None:
        wanted = in_use(self._engine.table.rows, self._paths)
        if self._map is not None:
            # Traffic that comes or leaves may do so for a link that has gone.
            self._map.doubt(wanted ^ self._in_use, self._now_ns())
        self._in_use = wanted
        self._engine.demand.set_in_use(wanted, homes(self._paths))

    async def _follow_clock(self, name: str) -> None:
        if name in self._clocks:
            return
        self._clocks.add(name)
        await self._bus.subscribe(CLOCK, self._on_clock, name)
        with contextlib.suppress(nats.errors.Error, OSError):  # its next word comes with the next window
            state = await self._bus.get(CLOCKS, name)
            if state is not None:
                await self._on_clock(state, "")

    async def _on_clock(self, state: ClockState, _subject: str) -> None:
        if state.clock == self._clock.name and not self._clock.update(state):
            return
        self._reporter.set_clock(state)
        self._nic_clocks.set_clock(state)
        if self._in_band is not None:
            self._in_band.set_clock(state)
        self._outputs.take(state)

    # -- the timer ----------------------------------------------------------------------------------------------------

    def _now_ns(self) -> int:
        return round(self._loop.time() * _SECOND_NS)

    def _start(self) -> None:
        self._changed_fd = self._engine.start(round(self._start_s * _SECOND_NS))
        if self._changed_fd is not None:
            self._turn_s = self._interval_s
            self._loop.add_reader(self._changed_fd, self._on_changes, self._changed_fd)
        self._on_tick()

    def _on_changes(self, changed_fd: int) -> None:
        """Tells what the packet loop, which ticks by itself, has noticed."""
        os.eventfd_read(changed_fd)
        self._take_changes(self._engine.packets.take_changes())
        if self._owes_report and "owed" not in self._timers:
            self._timers["owed"] = self._loop.call_later(self._tick_s, self._tell_owed)

    def _tell_owed(self) -> None:
        del self._timers["owed"]
        if self._owes_report:
            self._tell_delays()

    def _on_tick(self) -> None:
        began_s = self._loop.time()
        turn = int((began_s - self._start_s) / self._turn_s)
        if (due := self._timers.get("tick")) is not None and self._changed_fd is None:
            self._reporter.late(round((began_s - due.when()) * _SECOND_NS))
        self._timers["tick"] = self._loop.call_at(self._start_s + (turn + 1) * self._turn_s, self._on_tick)
        if self._is_ticking:
            # The rest of the last tick runs instead. Else no report would ever leave where reading alone takes a tick's
            # time.
            return
        self._parts = self._tick(int((began_s - self._start_s) / self._tick_s))
        self._go_on_ticking(began_s)

    def _go_on_ticking(self, tick_began_s: float) -> None:
        """Runs the parts of a tick, those after `_LONG_S` later, so that a link's message waits for one part only."""
        began_s, self._is_ticking = self._loop.time(), False
        for _ in self._parts:
            if self._loop.time() - began_s >= _LONG_S:
                self._is_ticking = True
                self._rests["tick"] = self._loop.call_soon(self._go_on_ticking, tick_began_s)
                return
        if self._changed_fd is None:
            self._reporter.late(round((self._loop.time() - tick_began_s) * _SECOND_NS))

    def _tick(self, tick: int) -> Iterator[None]:
        if self._changed_fd is None:
            self._listen()
            yield
            self._engine.speak(tick)
        else:
            self._engine.adjust(tick)
        yield
        # The tick's number counts, not the time: a tick is always a little late, and would at times miss its turn.
        interval = tick // self._ticks_per_interval
        if interval != self._interval or self._owes_report or self._changed_fd is not None:
            self._interval = interval
            self._tell_delays()
        self._close_window()
        if self._changed_fd is None:
            self._await_silence()
        if self._map is not None and tick // self._ticks_per_trace != self._traced:
            self._traced = tick // self._ticks_per_trace
            yield
            self._trace_paths(self._map)

    def _on_deadline(self) -> None:
        self._listen()
        self._await_silence()

    def _listen(self) -> None:
        """Reads the sockets, and publishes changes at once.

        When a path fell silent, it publishes the counts of all others too.

        To judge the silence, a reader needs to know whether this node has heard anything since. The next report would
        say so too late.
        """
        self._take_changes(self._engine.listen(self._now_ns()))

    def _take_changes(self, changes: SilenceChanges) -> None:
        self._tell_silence(changes)
        if len(changes.fell):
            # Paths that died together fall silent one by one: the first brings a report, and the next tick one for all
            # others.
            self._owes_report = self._loop.time() - self._reported_s < self._tick_s
            if not self._owes_report:
                self._tell_delays()

    def _tell_delays(self) -> None:
        self._reported_s, self._owes_report = self._loop.time(), False
        host, self._host = self._host, None
        self._reporter.late(self._engine.packets.take_late_ns())
        for delays in self._reporter.delays(self._now_ns(), host):
            self._publish(DELAY, delays)
        for clock in self._reporter.take_strange_clocks():
            self._spawn(self._follow_clock(clock))

    def _close_window(self) -> None:
        """Begins to close a window when it is over."""
        window = window_number(self._own.name, self._clock.now_ns(), self._window_ns)
        if window != self._window:
            self._window = window
            self._publish_stamps(self._closing)  # the rest of the window before, if there is any
            self._closing = self._reporter.stamps()
            self._is_closing = True
        if self._is_closing and "closing" not in self._rests:
            # Half way between two ticks: by then this tick's messages have left, and the next tick is not delayed. A
            # step that is late stays due. Where every tick is late by half of one, a step of this tick would always
            # take its place.
            steps = round(_STEPS_A_TICK * self._turn_s / self._tick_s)
            self._rests["closing"] = self._loop.call_later(self._tick_s / 2, self._go_on_closing, steps)

    def _go_on_closing(self, steps: int) -> None:
        """Closes a window further, in so many steps of the event loop. All other work has its turn between them."""
        del self._rests["closing"]
        self._publish_stamps(itertools.islice(self._closing, 1))
        if self._is_closing and steps > 1:
            self._rests["closing"] = self._loop.call_soon(self._go_on_closing, steps - 1)

    def _publish_stamps(self, steps: Iterator[StampBatch | None]) -> None:
        self._is_closing = False
        for stamps in steps:
            self._is_closing = True  # until there is no further step
            if stamps is not None:
                self._publish(STAMPS, stamps)

    def _await_silence(self) -> None:
        """Wakes up before the next tick if a path would have fallen silent by then."""
        at_ns = self._engine.packets.next_silence_ns()
        if at_ns is not None and at_ns / _SECOND_NS < self._timers["tick"].when():
            at_s = max(at_ns / _SECOND_NS, self._loop.time()) + _SOON_S
            self._timers["silence"] = self._loop.call_at(at_s, self._on_deadline)

    def _tell_silence(self, changes: SilenceChanges) -> None:
        if not len(changes.fell) and not len(changes.again):
            return
        if self._map is not None:
            rows = (*changes.fell, *changes.again)
            keys = [ends.key for row in rows if (ends := self._engine.table.ends[row]) is not None]
            self._map.doubt(keys, self._now_ns())
        batch = self._reporter.silence(changes)
        self._publish(DELAY, batch)
        log.info("silence_changed", fell=len(changes.fell), again=len(changes.again), paths=batch.paths[:8])

    # -- what the bus is told -----------------------------------------------------------------------------------------

    def _publish(self, channel: Channel, message: msgspec.Struct) -> None:
        self._spawn(self._bus.publish(channel, message, self._own.name))

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        # The task runs in a copy of this context, so what it publishes carries the present span.
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _meet(self, name: str, node: Node | None) -> None:
        """Learns the addresses of a peer; None: it is gone."""
        for meter in (self._flows, self._nic_flows):
            meter.set_peer(name, node)
        if self._in_band is not None:
            self._in_band.set_peer(name, node)

    async def _bind_sockets(self) -> None:
        while missing := self._engine.bind():
            log.debug("sockets_awaited", missing=missing)
            await asyncio.sleep(_BIND_S)
        log.info("sockets_open", count=len(self._engine.table.places))

    async def _meter_load(self) -> None:
        """Meters the load for the next report in a thread: many interrupts take the kernel milliseconds."""
        while True:
            self._host = await asyncio.to_thread(lambda: self._load.read(self._now_ns()))
            await asyncio.sleep(_LOAD_S)

    async def _meter_flows(self) -> None:
        """Tells what the kernel counts of the traffic by this node's service addresses and NICs. A thread asks.

        The kernel walks all of its connections.
        """
        if not self._flow_s:
            return
        addresses = [nic.service_address for nic in self._own.nics]
        if self._tells_nic_flows:
            addresses += [nic.address for nic in self._own.nics]
        sockets = TcpSockets(addresses)
        is_known = True
        while True:
            try:
                connections = await asyncio.to_thread(sockets.read)
            except OSError as error:
                if is_known:  # it may be permitted later, as when a module is loaded
                    log.warning("flows_unknown", reason=error.strerror)
                is_known = False
            else:
                is_known = True
                self._tell_flows(connections)
            await asyncio.sleep(self._flow_s)

    def _tell_flows(self, connections: NDArray[Any]) -> None:
        now_ns = self._now_ns()
        delays_ns = {} if self._in_band is None else self._in_band.take()
        found, between_nics = (
            self._flows.read(connections, now_ns, delays_ns),
            self._nic_flows.read(connections, now_ns),
        )
        if found is None or between_nics is None:
            return
        for first in range(0, max(len(found.rows), len(between_nics.rows)), _FLOWS_A_BATCH):
            flows, rows = _part(found, first)
            nic_flows, nic_rows = _part(between_nics, first)
            batch = FlowBatch.of(
                rows, nic_rows if len(nic_rows) else None, node=self._own.name, at_ns=self._clock.now_ns(),
                interval_ns=found.span_ns, flows=flows, nic_flows=nic_flows,
            )  # fmt: skip
            self._publish(FLOW, batch)

    async def _read_acks(self) -> None:
        """Reads the stamps of TCP that have come, often, as a socket has room for few."""
        while self._in_band is not None and self._flow_s:
            self._in_band.read()
            await asyncio.sleep(_ACKS_S)

    def _trace_paths(self, paths: PathMap) -> None:
        """Finds the routers of the paths, a few packets at a time, and tells them."""
        now_ns = self._now_ns()
        paths.step(now_ns)
        if self._lets_idle:
            for row, route in paths.take_routes(now_ns):
                self._engine.demand.set_route(row, route)
        for batch in paths.batches(now_ns, self._clock.now_ns()):
            self._publish(HOPS, batch)

    async def _tell_counters(self) -> None:
        told = 0
        while True:
            self._ports.management = self._management.devices()
            self._ports.tell_counters()
            self._engine.measure_sizes()
            if (count := self._engine.packets.counts().get("foreign", 0) - told) > 0:
                told += count
                reason = f"{count} datagrams that are no probes, or of nobody in the inventory"
                await self._bus.reject("udp", b"", reason)
            await asyncio.sleep(_COUNTERS_S)

    async def _tell_ports_again(self) -> None:
        """Repeats the ports' states once the bus is back: readers missed the changes, and come back at other times."""
        for _ in range(_AGAIN):
            self._ports.tell_counters()
            await asyncio.sleep(_AGAIN_S)

    async def _tell_troubles(self) -> None:
        told: dict[str, int] = {}
        while True:
            await self._find_management()
            await asyncio.sleep(_TROUBLES_S)
            if (counts := dict(self._engine.packets.counts())) != told:
                told = counts
                log.warning("troubles_counted", **told)

    async def _find_management(self) -> None:
        """Looks for management devices anew every minute: an address may change, and a name may be resolved later."""
        before = self._told_management
        await self._management.find_frontend(load(BusSettings, "bus").url)
        self._told_management = self._ports.management = self._management.devices()
        for nic in self._own.nics:
            if nic.device in self._told_management - before:
                hint = "its flaps are not judged, unless detector.management_nics is judge"
                log.warning("nic_is_management", nic=nic.name, device=nic.device, hint=hint)


def _part(found: FlowInterval, first: int) -> tuple[tuple[str, ...], NDArray[Any]]:
    """As many flows as a batch may have, from one on, and their rows."""
    rows = found.rows[first : first + _FLOWS_A_BATCH].copy()
    rows["flow"] -= first
    return found.flows[first : first + _FLOWS_A_BATCH], rows
