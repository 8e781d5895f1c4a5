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

import msgspec
import numpy as np
import pytest

from foliot.clock import HostClock
from foliot.clock.kernel_discipline import kernel_utc
from foliot.node.addressing import describe
from foliot.settings import NicSettings, NodeSettings
from foliot_probe import service
from foliot_probe.engine import SilenceChanges
from foliot_probe.settings import ProbeSettings
from foliot_schemas import ClockState, HostLoad, StampBatch, Witness
from foliot_schemas.subjects import CLOCK, CLOCKS, DELAY, FLOW, INVENTORY, PORT, STAMPS
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


@pytest.mark.parametrize("refusals", [0, 2], ids=["at once", "after the kernel refused twice"])
async def test_traffic_between_service_addresses_is_told(monkeypatch, free_port, refusals):
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

    server = await asyncio.start_server(take, peer.nics[0].service_address)
    port = server.sockets[0].getsockname()[1]
    _, writer = await asyncio.open_connection(
        peer.nics[0].service_address, port, local_addr=(own.nics[0].service_address, 0)
    )
    writer.write(bytes(300_000))
    await asyncio.wait_for(arrived.wait(), PATIENCE_S)
    told = lambda: sum(int(batch.rows()["acked_bytes"].sum()) for batch in bus.flows)  # noqa: E731
    await until(lambda: running.done() or told() >= 300_000, "all of it told")
    assert told() <= 300_001  # the kernel counts the beginning of a connection
    assert {name for batch in bus.flows for name in batch.flows} == {"node0.rail0>node1.rail0"}
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    writer.close()
    await writer.wait_closed()
    server.close()
    await server.wait_closed()


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
            return SilenceChanges(np.array([falls[-1]], np.intp), none)
        return SilenceChanges(none, none)

    made._engine.listen = listen
    made._engine.next_silence_ns = lambda: 1 if len(falls) < len(rows) else None
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
        assert (rows["receive_ns"] > rows["transmit_ns"]).all()
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
