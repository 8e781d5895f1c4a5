"""The service: two probes as processes, on loopback addresses, with a real bus."""

from __future__ import annotations

import asyncio
import errno
import os
import signal
import socket
import sys
import threading
import time
from ipaddress import IPv4Address

import msgspec
import numpy as np
import pytest

from foliot.clock import HostClock
from foliot.clock.kernel_discipline import kernel_utc
from foliot.node.addressing import describe
from foliot.settings import NicSettings, NodeSettings
from foliot_probe import service
from foliot_probe.core.measure.ack_delays import Ends
from foliot_probe.io.tcp_clock import MonotonicOffset
from foliot_probe.io.tcp_sockets import ConnectionRow
from foliot_probe.packet_loop import SilenceChanges
from foliot_probe.settings import ProbeSettings
from foliot_schemas import ClockState, HopBatch, HopRow, HostLoad, Nic, Node, NodePaths, Placement, StampBatch, Witness
from foliot_schemas.subjects import CLOCK, CLOCKS, DELAY, FLOW, HOPS, INVENTORY, PORT, STAMPS
from patience import patience
from virtual_loop import VirtualLoop

pytestmark = pytest.mark.nats

PATIENCE_S = patience(60.0)


async def until(condition, what):
    """Waits for a condition, generously."""
    deadline_s = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline_s, f"waited in vain: {what}"
        await asyncio.sleep(0.02)


def node_settings(index, port):
    """A node whose NIC is the loopback device."""
    nic = NicSettings(rail="rail0", number=0, device="lo", address=f"127.0.1.{index + 1}")
    return NodeSettings(
        name=f"node{index}", index=index, nics=(nic,), path_prefix="127.64.0.0/10", entropies=(1, 2), probe_port=port,
        service_prefix="127.32.0.0/13",
    )  # fmt: skip


async def start_probe(settings, url, folder):
    """A probe as its own process."""
    file = folder / f"{settings.name}.toml"
    nic = settings.nics[0]
    file.write_text(
        f'[bus]\nurl = "{url}"\n[telemetry]\nendpoint = ""\n[probe]\nwindow_s = 0.5\n'
        f'[node]\nname = "{settings.name}"\nindex = {settings.index}\npath_prefix = "{settings.path_prefix}"\n'
        f"entropies = {list(settings.entropies)}\nprobe_port = {settings.probe_port}\npeers = {list(settings.peers)}\n"
        f'[[node.nics]]\nrail = "{nic.rail}"\nnumber = {nic.number}\ndevice = "{nic.device}"\naddress = "{nic.address}"\n'
    )
    return await asyncio.create_subprocess_exec(
        sys.executable, "-m", "foliot_probe", env={**os.environ, "FOLIOT_CONFIG": str(file)}
    )


class Heard:
    """What the probes published."""

    def __init__(self):
        self.stamps: list[StampBatch] = []
        self.ports = []
        self.delays = []

    async def follow(self, bus):
        """Subscribes to all of it."""

        async def stamps(message, _subject):
            self.stamps.append(message)

        async def delays(message, _subject):
            rows = message.rows()
            self.delays += [(message, message.paths[row["path"]], row) for row in rows]

        async def ports(message, _subject):
            self.ports.append(message)

        await bus.subscribe(STAMPS, stamps)
        await bus.subscribe(DELAY, delays)
        await bus.subscribe(PORT, ports)

    def witnessed(self, witness, path):
        """Rows of a path by a witness."""
        return [(message, row) for message, name, row in self.delays if name == path and row["witness"] == witness]

    def silence(self, path):
        """The last word of a silence of a path, while it lasts; None: it speaks, as far as anybody said."""
        kinds = {Witness.FELL_SILENT, Witness.SPEAKS_AGAIN}
        said = [(message, row) for message, name, row in self.delays if name == path and row["witness"] in kinds]
        return said[-1] if said and said[-1][1]["witness"] == Witness.FELL_SILENT else None


def synchronised(name):
    """What sync would say of a clock that is right: all hosts here are one."""
    local_ns = time.clock_gettime_ns(time.CLOCK_MONOTONIC_RAW)
    return ClockState(
        clock=name, reference="node0", offset_ns=1_000, drift_ppb=0.0, hard_bound_ns=500, bound_ns=50, growth_ppb=0.0,
        as_of_ns=local_ns, void_after_ns=local_ns + 600_000_000_000, status="synchronised",
    )  # fmt: skip


class CutBus:
    """A bus that the test brings back."""

    def __init__(self):
        self.ports, self.delays, self.flows, self.told = [], [], [], []

    def when_back(self, told):
        """Remembers whom to tell."""
        self.told.append(told)

    async def publish(self, channel, message, *_):
        """Collects what is said of ports, delays and flows."""
        kept = {PORT: self.ports, DELAY: self.delays, FLOW: self.flows}.get(channel)
        if kept is not None:
            kept.append(message)

    async def get(self, *_):
        """Has nothing."""

    async def subscribe(self, *_, key=""):
        """Brings nothing."""

    watch = subscribe


async def test_ports_are_told_again_when_the_bus_is_back(monkeypatch, free_port):
    """A carrier that went while the bus was away is not left to the regular report.

    Readers may come back later than the node.
    """
    monkeypatch.setattr(service, "_COUNTERS_S", 3_600.0)
    bus = CutBus()
    settings = node_settings(0, free_port(socket.SOCK_DGRAM))
    probe = asyncio.create_task(service.Probe(describe(settings), ProbeSettings(), HostClock("node0"), bus).run())
    await until(lambda: probe.done() or (bus.told and bus.ports), "the first report")
    assert not probe.done(), probe.exception()
    before = len(bus.ports)
    for told in bus.told:
        told()
    await until(lambda: len(bus.ports) >= before + 3, "reports after the cut")
    probe.cancel()
    await asyncio.gather(probe, return_exceptions=True)


def tick_in_virtual_time(settings, prepare, late_ticks):
    """Twenty ticks of a probe that was prepared so, each of which comes late by so many."""
    tick_s = ProbeSettings().tick_ms / 1_000

    async def tick():
        made = service.Probe(describe(settings), ProbeSettings(), HostClock("node0"), CutBus())
        prepare(made)
        made._on_tick()
        await asyncio.sleep(20 * tick_s)
        for each in (*made._timers.values(), *made._rests.values()):
            each.cancel()

    with asyncio.Runner(loop_factory=lambda: VirtualLoop(late_ticks * tick_s)) as runner:
        runner.run(tick())


@pytest.fixture
def python_loop(monkeypatch):
    """Ticks are made by the probe's own event loop."""
    monkeypatch.setenv("FOLIOT_NATIVE", "off")


@pytest.fixture
def windows(monkeypatch):
    """The windows that were closed. Each is over as soon as the one before is closed."""
    closed = []
    monkeypatch.setattr(service, "window_number", lambda *_: len(closed))
    return closed


def closing(windows, step):
    """Closes windows in three steps each."""

    def close():
        for _ in range(3):
            yield step()
        windows.append("closed")

    return close


@pytest.mark.usefixtures("python_loop")
@pytest.mark.parametrize("late_ticks", [0.0, 0.9], ids=["on time", "late"])
def test_what_waits_has_its_turn_between_the_parts_of_a_long_tick(monkeypatch, free_port, windows, late_ticks):
    """Else a link's message would wait until all was read, sent and told.

    And each step of closing a window has one of the loop's own.
    """
    monkeypatch.setattr(service, "_LONG_S", 0.0)
    said = []

    def noted(what, then):
        def do(*arguments):
            said.append(what)
            asyncio.get_running_loop().call_soon(said.append, "other")
            return then(*arguments)

        return do

    def prepare(made):
        engine = made._engine
        engine.listen, engine.speak = noted("listen", engine.listen), noted("speak", engine.speak)
        made._tell_delays = noted("tell", made._tell_delays)
        made._reporter.stamps, made._window = closing(windows, noted("close", lambda: None)), -1

    tick_in_virtual_time(node_settings(0, free_port(socket.SOCK_DGRAM)), prepare, late_ticks)
    turns = "".join({"other": "|", "close": "c"}.get(each, each[0]) for each in said)
    # A late timer lets a tick's part and a window's step go in one turn of the loop, never two of the same.
    assert not {"ls", "st", "tl", "cc"} & {turns[at : at + 2] for at in range(len(turns))}
    assert all(len(together) <= 2 for together in turns.split("|"))
    assert "l|s|" in turns
    assert "t" in turns
    assert len(windows) >= 2


def test_windows_are_closed_also_where_every_tick_is_late(free_port, windows):
    """By more than half a tick: the next one is due before a step that lies half way, and does not take its place."""

    def prepare(made):
        made._reporter.stamps, made._window = closing(windows, lambda: None), -1

    tick_in_virtual_time(node_settings(0, free_port(socket.SOCK_DGRAM)), prepare, 0.9)
    assert len(windows) >= 5


@pytest.mark.usefixtures("python_loop")
async def test_reports_leave_also_where_reading_takes_longer_than_a_tick(free_port):
    """As behind a hog: the next tick is due by then, and must not take the place of what is left of this one.

    And they say how late the probe was.
    """
    tick_s, bus = 0.01, CutBus()
    settings = node_settings(0, free_port(socket.SOCK_DGRAM))
    probe_settings = ProbeSettings(tick_ms=round(tick_s * 1_000), delay_interval_ms=20)
    made = service.Probe(describe(settings), probe_settings, HostClock("node0"), bus)
    made._engine.set_peer(describe(node_settings(1, settings.probe_port)))
    said = []

    def noted(what, then, takes_s):
        def do(*arguments):
            time.sleep(takes_s)
            said.append(what)
            return then(*arguments)

        return do

    engine = made._engine
    engine.listen, engine.speak = noted("listen", engine.listen, 2 * tick_s), noted("speak", engine.speak, tick_s)
    made._tell_delays = noted("tell", made._tell_delays, 0)
    running = asyncio.create_task(made.run())
    await until(lambda: running.done() or (said.count("listen") >= 20 and len(bus.delays) >= 2), "twenty readings")
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    assert said.count("tell") >= said.count("listen") // 2
    assert min(batch.late_ns for batch in bus.delays[1:]) >= 3 * tick_s * 1e9


async def test_reports_leave_while_the_hosts_load_is_read(free_port):
    """The kernel takes long for it on a large host.

    The event loop does not wait for it, and the next report tells it.
    """
    bus, go_on, load = CutBus(), threading.Event(), HostLoad(span_ns=1, stolen=0.5, waiting=0.0)
    settings = node_settings(0, free_port(socket.SOCK_DGRAM))
    probe_settings = ProbeSettings(tick_ms=10, delay_interval_ms=20)
    made = service.Probe(describe(settings), probe_settings, HostClock("node0"), bus)
    made._engine.set_peer(describe(node_settings(1, settings.probe_port)))

    class Slow:
        loads = [load]  # noqa: RUF012 - there is one of it

        def read(self, _now_ns):
            go_on.wait(60)
            return self.loads.pop() if self.loads else None

    made._load = Slow()
    running = asyncio.create_task(made.run())
    await until(lambda: running.done() or len(bus.delays) >= 3, "reports without the load")
    assert {batch.host for batch in bus.delays} == {None}
    go_on.set()
    await until(lambda: running.done() or any(batch.host for batch in bus.delays), "one with it")
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    assert [batch.host for batch in bus.delays if batch.host] == [load]


@pytest.mark.parametrize("nic_flows", [True, False])
async def test_connections_of_nics_are_asked_for_where_they_are_wanted(monkeypatch, free_port, nic_flows):
    """A host may have thousands of them."""
    asked = []

    class Sockets:
        def __init__(self, addresses):
            asked.append(addresses)

        def read(self):
            return np.zeros(0, ConnectionRow)

    monkeypatch.setattr(service, "TcpSockets", Sockets)
    own = describe(node_settings(0, free_port(socket.SOCK_DGRAM)))
    made = service.Probe(own, ProbeSettings(flow_interval_ms=20, nic_flows=nic_flows), HostClock("node0"), CutBus())
    metering = asyncio.create_task(made._meter_flows())
    await until(lambda: asked, "a question")
    metering.cancel()
    await asyncio.gather(metering, return_exceptions=True)
    made._engine.close()
    assert asked == [[own.nics[0].service_address] + [own.nics[0].address] * nic_flows]


@pytest.mark.parametrize(
    ("address", "refusals"), [("service_address", 0), ("service_address", 2), ("address", 0)],
    ids=["between service addresses", "after the kernel refused twice", "between NICs"],
)  # fmt: skip
async def test_traffic_is_told_by_the_addresses_that_it_has(monkeypatch, free_port, address, refusals):
    """As the kernel counts it, with the names of both ends; a kernel that does not answer is asked again."""
    bus, settings, answers = CutBus(), node_settings(0, free_port(socket.SOCK_DGRAM)), []
    own, peer = describe(settings), describe(node_settings(1, settings.probe_port))
    read = service.TcpSockets.read

    def answer(sockets):
        answers.append(sockets)
        if len(answers) <= refusals:
            raise OSError(errno.ENOENT, "no such module")
        return read(sockets)

    monkeypatch.setattr(service.TcpSockets, "read", answer)
    made = service.Probe(own, ProbeSettings(flow_interval_ms=20), HostClock("node0"), bus)
    await made._on_node(peer.name, peer)
    running = asyncio.create_task(made.run())
    await until(lambda: running.done() or len(answers) >= refusals + 2, "two readings")
    arrived = asyncio.Event()

    async def take(reader, writer):
        await reader.readexactly(300_000)
        arrived.set()
        await reader.read()
        writer.close()

    here, there = (getattr(each.nics[0], address) for each in (own, peer))
    server = await asyncio.start_server(take, there)
    port = server.sockets[0].getsockname()[1]
    _, writer = await asyncio.open_connection(there, port, local_addr=(here, 0))
    writer.write(bytes(300_000))
    await asyncio.wait_for(arrived.wait(), PATIENCE_S)

    def told(by=address):
        rows = (batch.rows() if by == "service_address" else batch.nic_rows() for batch in bus.flows)
        return sum(int(each["acked_bytes"].sum()) for each in rows)

    await until(lambda: running.done() or told() >= 300_000, "all of it told")
    assert told() <= 300_001  # the kernel counts the beginning of a connection
    assert {name for batch in bus.flows for name in batch.flows + batch.nic_flows} == {"node0.rail0>node1.rail0"}
    assert told("address" if address == "service_address" else "service_address") == 0
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    writer.close()
    await writer.wait_closed()
    server.close()
    await server.wait_closed()


@pytest.mark.usefixtures("python_loop")
async def test_with_a_silence_goes_what_was_heard_on_all_others(free_port):
    """Long before the next regular report: whoever judges the silence asks whether this node heard anything since."""
    bus = CutBus()
    settings = node_settings(0, free_port(socket.SOCK_DGRAM))
    probe_settings = ProbeSettings(tick_ms=100, delay_interval_ms=10_000)
    made = service.Probe(describe(settings), probe_settings, HostClock("node0"), bus)
    made._engine.set_peer(describe(node_settings(1, settings.probe_port)))
    rows, none, falls = made._engine.table.live, np.zeros(0, np.intp), []

    def listen(_now_ns):
        if len(falls) < len(rows):
            falls.append(rows[len(falls)])
            return SilenceChanges(np.array([falls[-1]], np.intp), none, np.array([1]), np.array([1]), 1)
        return SilenceChanges(none, none, none, none, 1)

    made._engine.listen = listen
    made._engine.packets.next_silence_ns = lambda: 1 if len(falls) < len(rows) else None
    assert len(rows) == 2
    running = asyncio.create_task(made.run())
    await until(lambda: running.done() or len(bus.delays) >= 4, "two silences, and two reports")
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    kinds = ["silence" if batch.rows()["witness"][0] == Witness.FELL_SILENT else "report" for batch in bus.delays]
    assert kinds == ["silence", "report", "silence", "report"]
    # They say how often this node reports, which is not the time that these cover.
    assert {batch.every_ns for batch in bus.delays} == {10_000_000_000}
    assert all(
        batch.interval_ns < batch.every_ns for batch, kind in zip(bus.delays, kinds, strict=True) if kind == "report"
    )
    assert [len(batch.rows()) for batch in bus.delays] == [1, 4, 1, 4]


class MapBus(CutBus):
    """A bus that remembers who wants to hear of routers."""

    def __init__(self):
        super().__init__()
        self.hears = {}

    async def subscribe(self, channel, handler, *names, key=""):
        """Keeps the handler by the peer's name."""
        if channel is HOPS:
            self.hears |= dict.fromkeys(names, handler)

    async def watch(self, *_, key=""):
        """Brings nothing."""


@pytest.mark.parametrize("lets_idle", [True, False])
async def test_what_peers_tell_of_routers_makes_paths_idle(lets_idle, free_port):
    """Until a path is used by traffic that was elsewhere; where it is wanted, and not of a peer that has left."""
    bus, port = MapBus(), free_port(socket.SOCK_DGRAM)
    own, peer = (describe(node_settings(index, port)) for index in (0, 1))
    settings = ProbeSettings(one_of_equals=lets_idle)
    made = service.Probe(own, settings, HostClock("node0"), bus)
    await made._on_node("node1", peer)
    assert list(bus.hears) == (["node1"] if lets_idle else [])
    tracer, routes = made._map._tracer, made._engine.demand._route
    made._map.step = lambda _now_ns: tracer._hops.update({0: (11, 12), 1: (11, 12)})
    tracer._in_doubt.clear()
    running = asyncio.create_task(made.run())
    if lets_idle:
        rows = np.array([(path, hop, 20 + hop) for path in (0, 1) for hop in (1, 2)], HopRow)
        back = tuple(f"node1.rail0>node0.rail0#{entropy}" for entropy in (0, 1))
        await bus.hears["node1"](HopBatch.of(rows, node="node1", at_ns=1, paths=back, allows_idle=True), "")
        await until(lambda: running.done() or routes[:2].all(), "routes that are known")
        assert routes[0] == routes[1]
        placed = Placement(peer="node1", rail="rail0", via="rail0", entropy=1)
        await made._on_paths("node0", NodePaths(node="node0", lease_revision=1, placements=(placed,)))
        await until(lambda: running.done() or not routes[:2].any(), "a doubt")
        tracer._in_doubt.clear()
        await until(lambda: running.done() or routes[:2].all(), "routes that are known again")
    await made._on_node("node1", None)
    assert not routes.any()
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


class SharedBus(MapBus):
    """A bus of two probes: what either tells of routers reaches the other."""

    def __init__(self):
        super().__init__()
        self.paths, self.before = {}, {}
        """By node, those that its last regular report named, and those that any did."""

    async def publish(self, channel, message, *names):
        """Hands routers on, and notes what is reported."""
        if channel is HOPS and (handler := self.hears.get(names[0])) is not None:
            await handler(message, "")
        if channel is DELAY and Witness.SOURCE in message.rows()["witness"]:
            self.paths[message.node] = message.paths
            self.before.setdefault(message.node, set()).update(message.paths)


ENDS = {"a": (0, "net1", "10.96.1.2", "10.97.{}.1"), "b": (3, "net3", "10.96.3.2", "10.97.{}.2")}
"""Of a line: place, device, address of the NIC, and path addresses."""
HOPS_TO = {"a": ("", "10.96.1.2", "10.96.2.1", "10.96.3.1"), "b": ("10.96.1.1", "10.96.2.2", "10.96.3.2", "")}
"""Gateways from each place of a line."""


def line_node(name, entropies):
    """A node at an end of a line."""
    _, device, address, path_address = ENDS[name]
    nic = Nic(
        name=f"{name}.rail0", rail="rail0", device=device, address=address, clock=name, service_address="10.98.0.1",
        path_addresses=tuple(map(path_address.format, range(entropies))),
        entropies=tuple(range(49_200, 49_200 + entropies)),
    )  # fmt: skip
    return Node(name=name, probe_port=7946, nics=(nic,))


def lay_ways(line, nodes):
    """Lets the path addresses of both ends of a line reach each other."""
    for node in nodes:
        place, device, _, _ = ENDS[node.name]
        for address in node.nics[0].path_addresses:
            with line.inside(line.namespaces[place]):
                line.ip("addr", "add", f"{address}/32", "dev", device)
            for other, gateway in enumerate(HOPS_TO[node.name]):
                if gateway:
                    with line.inside(line.namespaces[other]):
                        line.ip("route", "add", address, "via", gateway)


@pytest.mark.net
async def test_two_probes_let_idle_what_real_routers_say_is_one(line):
    """All six paths between them go by the same two routers. Four measure the clocks, and two idle."""
    bus, nodes = SharedBus(), [line_node(name, 6) for name in ENDS]
    lay_ways(line, nodes)
    probes = [service.Probe(node, ProbeSettings(one_of_equals=True), HostClock(node.name), bus) for node in nodes]
    for probe, own, peer in zip(probes, nodes, reversed(nodes), strict=True):
        with line.inside(line.namespaces[ENDS[own.name][0]]):
            assert probe._engine.bind() == 0
            assert all(probe._map._socket("rail0", entropy) for entropy in range(6))
        await probe._on_node(peer.name, peer)
    running = [asyncio.create_task(probe.run()) for probe in probes]
    await until(
        lambda: any(task.done() for task in running) or {len(bus.paths.get(name, ())) for name in ENDS} == {8},
        "reports of four paths and their ways back",
    )
    assert not any(task.done() for task in running)
    assert {len(paths) for paths in bus.before.values()} == {12}
    assert [np.flatnonzero(probe._engine.demand.idle).tolist() for probe in probes] == [[4, 5], [4, 5]]
    for task in running:
        task.cancel()
    await asyncio.gather(*running, return_exceptions=True)


@pytest.mark.usefixtures("python_loop")
async def test_a_tick_that_fails_is_not_waited_for(monkeypatch, free_port):
    """What is left of it has gone with it; the next one does its work."""
    monkeypatch.setattr(service, "_LONG_S", 0.0)
    settings = node_settings(0, free_port(socket.SOCK_DGRAM))
    made = service.Probe(describe(settings), ProbeSettings(tick_ms=10), HostClock("node0"), CutBus())
    speaks, speak = [], made._engine.speak

    def fails_once(tick):
        speaks.append(tick)
        if len(speaks) == 1:
            raise OSError("as of a socket that is gone")
        speak(tick)

    made._engine.speak = fails_once
    asyncio.get_running_loop().set_exception_handler(lambda *_: None)
    running = asyncio.create_task(made.run())
    await until(lambda: running.done() or len(speaks) >= 3, "ticks after it")
    assert not running.done()
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


async def test_two_probes_measure_each_other_and_notice_a_death(bus_settings, bus, free_port, stamping, tmp_path):  # noqa: PLR0915 - one life of two processes
    """Stamps, delays and ports arrive; with clocks known, delays have numbers.

    A stopped node's paths fall silent, then speak.
    """
    port = free_port(socket.SOCK_DGRAM)
    settings = [node_settings(index, port) for index in range(2)]
    forth, back = "node0.rail0>node1.rail0#0", "node1.rail0>node0.rail0#0"
    heard = Heard()
    await heard.follow(bus)
    probes = [await start_probe(each, bus_settings.url, tmp_path) for each in settings]
    try:
        for each in settings:
            await bus.put(INVENTORY, each.name, describe(each))

        await until(lambda: heard.stamps, "stamps")
        batch = heard.stamps[-1]
        assert batch.node == "node0"
        assert (batch.utc_error_ns == -1) == (kernel_utc().utc_error_ns == -1)  # as the kernel says here
        assert {stream.path for stream in batch.streams} <= {forth, "node0.rail0>node1.rail0#1"}
        rows = batch.rows()
        # Each probe turns the kernel's stamps into local time by readings of its own, which err by some tens of ns.
        assert (rows["receive_ns"] - rows["transmit_ns"] > -200).all()
        await until(lambda: {0, 1} <= set(heard.stamps[-1].rows()["direction"].tolist()), "both directions")
        assert heard.stamps[-1].streams[0].kind == "kernel"

        await until(lambda: heard.witnessed(Witness.DESTINATION, forth), "its peer's report")
        unsynchronised, row = heard.witnessed(Witness.DESTINATION, forth)[-1]
        assert unsynchronised.bound_ns == -1
        assert row["least_ns"] == 0
        for each in settings:
            await bus.put(CLOCKS, each.name, synchronised(each.name))
            await bus.publish(CLOCK, synchronised(each.name), each.name)
        await until(lambda: heard.witnessed(Witness.DESTINATION, forth)[-1][1]["least_ns"] > 0, "a delay")
        message, row = heard.witnessed(Witness.DESTINATION, forth)[-1]
        assert message.bound_ns == 50
        assert message.node == "node1"
        assert 0 < row["least_ns"] <= row["median_ns"] <= row["p99_ns"]
        # The report that goes with a silence has nothing to say of a path on which nothing was sent since the last one.
        await until(lambda: heard.witnessed(Witness.SOURCE, forth)[-1][1]["sent"] > 0, "probes that were sent")
        sent, last = heard.witnessed(Witness.SOURCE, forth)[-1]
        assert last["last_ns"] <= sent.at_ns  # both of before the tick's own probes
        await until(
            lambda: heard.witnessed(Witness.DESTINATION, forth)[-1][1]["sequence"] >= last["sequence"],
            "the same probe at its end",
        )
        await until(lambda: any(message.host for message, _, _ in heard.delays), "the host's load")

        await until(lambda: heard.ports, "counters")
        assert heard.ports[-1].nic.endswith(".rail0")
        assert "rx_packets" in heard.ports[-1].counters

        probes[1].send_signal(signal.SIGSTOP)
        # On a busy machine, it may have been silent before.
        await until(lambda: heard.silence(back) is not None, "silence")
        said, fell = heard.silence(back)
        assert said.node == "node0"
        assert fell["sequence"] > 0
        await until(
            lambda: any(each.at_ns > said.at_ns - 1_000_000 for each, _ in heard.witnessed(Witness.DESTINATION, back)),
            "the report of the same reading, or of the next",
        )
        probes[1].send_signal(signal.SIGCONT)
        await until(lambda: heard.silence(back) is None, "speech")
    finally:
        for probe in probes:
            probe.terminate()
            probe.send_signal(signal.SIGCONT)  # one that is still halted would never end
        codes = [await probe.wait() for probe in probes]
    assert codes == [0, 0]


async def test_a_node_that_names_its_peers_probes_nobody_else(bus_settings, bus, free_port, tmp_path):
    """Neither one that it leaves out, nor one that leaves it out."""
    port = free_port(socket.SOCK_DGRAM)
    own, peer, left_out, leaves_out = (node_settings(index, port) for index in range(4))
    own = msgspec.structs.replace(own, peers=(peer.name, leaves_out.name))
    leaves_out = msgspec.structs.replace(leaves_out, peers=(peer.name,))
    heard = Heard()
    await heard.follow(bus)
    for each in (own, left_out, leaves_out, peer):
        await bus.put(INVENTORY, each.name, describe(each))
    probe = await start_probe(own, bus_settings.url, tmp_path)
    try:
        await until(lambda: len(heard.delays) > 8, "reports")
        assert {path.partition("#")[0] for _, path, _ in heard.delays} == {
            "node0.rail0>node1.rail0",
            "node1.rail0>node0.rail0",
        }
    finally:
        probe.terminate()
        code = await probe.wait()
    assert code == 0


async def test_the_delay_of_the_traffics_own_packets_is_told_with_its_row(monkeypatch, free_port):
    """And the clock of the node's stamps with those of its probes, which peers need; neither unless it is wanted."""
    settings = node_settings(0, free_port(socket.SOCK_DGRAM))
    own, peer = describe(settings), describe(node_settings(1, settings.probe_port))
    ends = Ends(*(int(IPv4Address(each.nics[0].service_address)) for each in (own, peer)))
    row = np.array([(7, *ends, 1_000, 0, 10, 0, 0, 50, 40)], ConnectionRow)

    class Meter:
        """Knows a delay, and a clock."""

        def __init__(self, *_):
            self.calls = []

        def __getattr__(self, name):
            return lambda *_: self.calls.append(name)

        def take(self):
            return {ends: 4_000}

        def offset(self):
            return MonotonicOffset(7, 8.0)

    monkeypatch.setattr(service, "InBandMeter", Meter)
    for wanted in (True, False):
        bus = CutBus()
        made = service.Probe(own, ProbeSettings(in_band=wanted), HostClock("node0"), bus)
        await made._on_node(peer.name, peer)
        made._tell_flows(row[:0])
        made._tell_flows(row)
        await until(lambda bus=bus: bus.flows, "a batch")
        assert bus.flows[-1].rows()["in_band_ns"].tolist() == [4_000 * wanted]
        assert made._reporter.tcp_clock() == (MonotonicOffset(7, 8.0) if wanted else MonotonicOffset())
        if wanted:
            assert made._in_band.calls == ["set_peer"]
        made._engine.close()
