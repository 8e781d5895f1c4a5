"""The CPU cost of a probe to its node: a whole probe process with 1, 2 and 8 NICs and ten peers, over veth pairs.

A real bus runs beside it. `quiet` is the least rate of the clocks' mesh, as in a network where nothing queues. `most`
is the greatest rate, as under load and after a start. `own` is the rate that the probe itself reaches within a minute
on this machine. Paths in use and the sweep go on as ever.

Each path takes turns: compiled code (`native`), and its twins in Python. The peers are the same for both.

The figures include the kernel's work for a probe. On a veth pair the sender is charged for a packet's delivery. So the
figures have the peers' deliveries instead of the node's own. A probe is one sent and one received.

With ``--set``, probe and peers have other settings than the defaults. A report says how late the latest tick since the
one before was: `late_p999_ms` is of these.

Steps are those of the probe's event loop, see `foliot.runtime.loop_steps`. Their `own` figures are the processor time
of each, without the work of the rest of the machine.

    make bench NAME=probe-cost ARGS="--json FILE"
    make bench NAME=probe-cost ARGS="--nics 2 --peers 64 --paces quiet --set in_use_hz=100 tick_ms=10 --json FILE"
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import msgspec
import numpy as np

from bench import place
from bench.arguments import add_settings
from bench.document import Document
from bench.probe_fabric import Peers, Wires, node_settings
from bench.processes import cpu_s
from foliot import native
from foliot.bus.client import Bus
from foliot.node.addressing import describe
from foliot.runtime import loop_steps
from foliot.runtime.loop_steps import Counted, Histogram
from foliot.runtime.supervisor import LAST, Supervisor, nats_server, service
from foliot.settings import BusSettings
from foliot.text.toml_text import toml
from foliot_lab.fabric.namespaces import enter_control
from foliot_lab.measure.budget import ProcessLoad
from foliot_lab.measure.host_latency import LatenessSampler
from foliot_lab.measure.machine import CpuTimes
from foliot_probe.settings import ProbeSettings
from foliot_schemas import ClockState, DelayBatch, StampBatch, Witness
from foliot_schemas.subjects import CLOCK, CLOCKS, DELAY, INVENTORY, STAMPS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from foliot_schemas import Node

Pace = Literal["quiet", "most", "own"]
Way = Literal["native", "python"]
PATHS: tuple[Way, ...] = ("native", "python")

_NODE = "node0"
_PORT = 4222
_SPEAK_S = 2.0
_ONCE, _PER_NIC_OF_PEER = 0.15, 0.016
"""Processors busy in bench/results/probe-cost-2026-11-22.json, 0.74 in the mean of its rows. The first is the node's
probe and the bus. The second is each NIC of the peers, which all are one process."""
_PROMISED_NS = 20_000_000_000
_BOUND_NS = 1_000
_SETTLED_S: Mapping[Pace, float] = {"quiet": 8.0, "most": 8.0, "own": 60.0}
"""The time after the start. Neighbours are looked for within a second, and the own rate takes ten seconds a step."""


class Row(msgspec.Struct, kw_only=True):
    """Medians of some repetitions."""

    nics: int
    pace: Pace
    path: Way
    peers: int
    streams: int
    repetitions: int
    core: float
    """Share of a processor."""
    core_least: float
    core_most: float
    sent_per_s: float
    received_per_s: float
    us_per_probe: float
    """CPU time of a probe: one sent and one received."""
    stamped_streams: int
    """Streams whose stamps a window has: all that the node initiates."""
    steps: int
    """Steps of its event loop, in all repetitions."""
    idle_cpu: float
    """Of the machine, in the mean of the repetitions."""
    rss_mb: float
    """Memory of the process, as it was at the end."""
    late_p999_ms: float
    """Of all reports' latest ticks, those of all repetitions."""
    late_max_ms: float
    step_own_p50_ms: float
    """Processor time of the loop's thread in a step, see `foliot.runtime.loop_steps`. The rest of the machine's work
    is not in it."""
    step_own_p99_ms: float
    step_own_max_ms: float
    """The maximum of all repetitions."""
    steps_own_over_10ms: int
    """Steps of all repetitions that used more than 10 ms of processor time."""
    steps_over_10ms: int
    """Steps of all repetitions that lasted more than 10 ms."""


class Heard:
    """Counts the probes that the node says it sent and received."""

    def __init__(self) -> None:
        self.sent = self.received = 0
        self.late_ns: list[int] = []
        """Of its reports."""
        self.stamped: set[str] = set()

    async def delays(self, message: DelayBatch, _subject: str) -> None:
        """Counts the probes of a report."""
        self.late_ns.append(message.late_ns)
        rows = message.rows()
        self.sent += int(rows["sent"][rows["witness"] == Witness.SOURCE].sum())
        self.received += int(rows["received"][rows["witness"] == Witness.DESTINATION].sum())

    async def stamps(self, message: StampBatch, _subject: str) -> None:
        """Records the streams of the stamps."""
        self.stamped |= {stream.path for stream in message.streams}


class Taken(msgspec.Struct, kw_only=True):
    """One repetition."""

    core: float
    sent_per_s: float
    received_per_s: float
    stamped_streams: int
    idle_cpu: float
    rss_mb: float
    late_ns: list[int]
    steps: Counted

    @property
    def us_per_probe(self) -> float:
        """CPU time of a probe."""
        return self.core * 1e6 / ((self.sent_per_s + self.received_per_s) / 2)


def _state(clock: str) -> ClockState:
    """The state that sync would publish: all clocks here are one."""
    local_ns = time.clock_gettime_ns(time.CLOCK_MONOTONIC_RAW)
    return ClockState(
        clock=clock, reference=_NODE, offset_ns=0, drift_ppb=0.0, hard_bound_ns=_BOUND_NS, bound_ns=_BOUND_NS,
        growth_ppb=0.0,
        as_of_ns=local_ns, void_after_ns=local_ns + _PROMISED_NS, status="synchronised",
    )  # fmt: skip


async def _speak(bus: Bus, nodes: list[Node]) -> None:
    while True:
        for node in nodes:
            state = _state(node.name)
            await bus.put(CLOCKS, node.name, state)
            await bus.publish(CLOCK, state, node.name)
        await asyncio.sleep(_SPEAK_S)


def _probe_settings(pace: Pace, given: Mapping[str, float]) -> dict[str, float]:
    """Those that differ from the defaults: a constant pace, unless it is the own one, and those given."""
    default = ProbeSettings()
    held = {"quiet": default.mesh_least_hz, "most": default.mesh_most_hz}.get(pace)
    return ({} if held is None else {"mesh_least_hz": held, "mesh_most_hz": held}) | dict(given)


async def _once(nics: int, pace: Pace, path: Way, arguments: argparse.Namespace, folder: Path) -> Taken:
    names = [f"node{number}" for number in range(1, arguments.peers + 1)]
    own, settings = node_settings(_NODE, 0, nics), _probe_settings(pace, dict(arguments.set))
    # The peers judge nothing. If the node finds its own pace, they ask for the least, so that it alone decides.
    others = _probe_settings("quiet" if pace == "own" else pace, dict(arguments.set))
    node, peers = describe(own), Peers(names, nics, msgspec.convert(others, ProbeSettings))
    file = folder / "probe.toml"
    document: dict[str, dict[str, Any]] = {
        "bus": {"url": f"nats://127.0.0.1:{_PORT}"}, "telemetry": {"endpoint": ""}, "probe": settings,
        "node": msgspec.to_builtins(own),
        "clock": {"page": str(folder / "clock")},
    }  # fmt: skip
    file.write_text(toml(document))
    supervisor, wires = Supervisor(), Wires(nics, node, peers.nodes)
    tasks: list[asyncio.Task[None]] = []
    try:
        await supervisor.start(nats_server(str(folder / "nats"), port=_PORT, log_file=str(folder / "nats.log")))
        bus = await Bus.connect(BusSettings(url=f"nats://127.0.0.1:{_PORT}"), "bench")
        for each in (node, *peers.nodes):
            await bus.put(INVENTORY, each.name, each)
        tasks.append(asyncio.create_task(_speak(bus, [node, *peers.nodes])))
        peers.start(node, wires)
        steps = folder / "steps"
        environment = {"FOLIOT_CONFIG": str(file), "FOLIOT_TELEMETRY__LOOP_STEPS": str(steps)}
        if path == "python":
            environment[native.VARIABLE] = "off"
        probe = service("probe", environment=environment, log_file=str(folder / "probe.log"))
        await supervisor.start(probe)
        await asyncio.sleep(_SETTLED_S[pace])
        return await _measured(bus, supervisor.pid("probe"), steps, arguments.seconds)
    finally:
        for task in tasks:
            task.cancel()
        await peers.stop()
        await supervisor.stop(LAST)
        wires.close()


async def _measured(bus: Bus, pid: int, steps: Path, seconds: float) -> Taken:
    heard = Heard()
    await bus.subscribe(DELAY, heard.delays)
    await bus.subscribe(STAMPS, heard.stamps)
    began_s, before, stepped, began = time.monotonic(), cpu_s(pid), loop_steps.read(steps), CpuTimes.read()
    await asyncio.sleep(seconds)
    span_s = time.monotonic() - began_s
    core = (cpu_s(pid) - before) / span_s
    taken = Taken(
        core=core,
        sent_per_s=heard.sent / span_s,
        received_per_s=heard.received / span_s,
        stamped_streams=len(heard.stamped),
        idle_cpu=began.idle_share(CpuTimes.read()),
        rss_mb=_rss_mb(pid),
        late_ns=heard.late_ns,
        steps=loop_steps.read(steps).since(stepped),
    )
    await bus.close()
    return taken


def _rss_mb(pid: int) -> float:
    """The memory of a process that is in RAM."""
    fields = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    return int(fields["VmRSS"].split()[0]) / 1_024


def _row(nics: int, pace: Pace, path: Way, peers: int, taken: list[Taken]) -> Row:
    cores = [each.core for each in taken]
    middle = {
        name: statistics.median(getattr(each, name) for each in taken)
        for name in ("sent_per_s", "received_per_s", "us_per_probe", "stamped_streams")
    }
    entropies = len(node_settings(_NODE, 0, nics).entropies)
    late_ms = [late_ns / 1e6 for each in taken for late_ns in each.late_ns]
    took, own = (
        Histogram(tuple(map(sum, zip(*(each.counts for each in runs), strict=True))))
        for runs in zip(*(each.steps for each in taken), strict=True)
    )
    return Row(
        nics=nics, pace=pace, path=path, peers=peers, streams=nics * peers * entropies, repetitions=len(taken),
        core=round(statistics.median(cores), 4), core_least=round(min(cores), 4), core_most=round(max(cores), 4),
        sent_per_s=round(middle["sent_per_s"], 1), received_per_s=round(middle["received_per_s"], 1),
        us_per_probe=round(middle["us_per_probe"], 1), stamped_streams=round(middle["stamped_streams"]),
        steps=took.steps,
        idle_cpu=round(statistics.mean(each.idle_cpu for each in taken), 3),
        rss_mb=round(statistics.median(each.rss_mb for each in taken), 1),
        late_p999_ms=round(float(np.quantile(late_ms, 0.999, method="higher")), 2), late_max_ms=round(max(late_ms), 2),
        step_own_p50_ms=own.within_ms(0.5), step_own_p99_ms=own.within_ms(0.99), step_own_max_ms=own.within_ms(1),
        steps_own_over_10ms=own.long, steps_over_10ms=took.long,
    )  # fmt: skip


def _further(rows: list[Row]) -> dict[str, float]:
    """The cost of one more probe, in microseconds, by the path and the number of NICs.

    A node's cost without any probe is not in it.
    """
    by = {(row.path, row.nics, row.pace): row for row in rows}
    found = {}
    for path, nics in {(row.path, row.nics): None for row in rows}:
        quiet, most = by.get((path, nics, "quiet")), by.get((path, nics, "most"))
        if quiet is not None and most is not None:
            probes_per_s = (most.sent_per_s + most.received_per_s - quiet.sent_per_s - quiet.received_per_s) / 2
            found[f"{path}, NICs: {nics}"] = round((most.core - quiet.core) * 1e6 / probes_per_s, 1)
    return found


def _process_load(arguments: argparse.Namespace) -> ProcessLoad:
    """The processor load of the largest row."""
    nics = max(arguments.nics)
    processors = _ONCE + _PER_NIC_OF_PEER * nics * arguments.peers
    return ProcessLoad(f"A probe with {nics} NICs and {arguments.peers} peers", processors, "--nics or --peers")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="bench.probe_cost", description=__doc__.split("\n", 1)[0] if __doc__ else None
    )
    parser.add_argument("--json", type=Path, help="write the rows to this file")
    parser.add_argument("--nics", nargs="+", type=int, default=[1, 2, 8])
    parser.add_argument("--paces", nargs="+", choices=("quiet", "most", "own"), default=["quiet", "most"])
    parser.add_argument("--paths", nargs="+", choices=PATHS, default=list(PATHS), help="(default: both)")
    parser.add_argument("--peers", type=int, default=10)
    add_settings(parser, "in_use_hz=100")
    parser.add_argument("--anyway", action="store_true", help="also where the machine cannot carry it")
    parser.add_argument("--seconds", type=float, default=20.0, help="of each repetition (default: %(default)s)")
    parser.add_argument("--repetitions", type=int, default=3, help="(default: %(default)s)")
    return parser


def main() -> int:
    """Parses the command line, runs, prints a table."""
    arguments = _parser().parse_args()
    if not place.enter(carries=None if arguments.anyway else _process_load(arguments)):
        return place.CANNOT
    enter_control()  # the node's wires, and the bus
    document = Document("probe-cost", arguments)
    taken: dict[tuple[int, Pace, Way], list[Taken]] = {}
    sampler = LatenessSampler()
    sampler.start()
    # In turn, so that changes of the machine's load affect all rows alike.
    for _ in range(arguments.repetitions):
        for nics in arguments.nics:
            for pace in arguments.paces:
                for path in arguments.paths:
                    with tempfile.TemporaryDirectory(prefix="foliot-bench-") as folder:
                        once = asyncio.run(_once(nics, pace, path, arguments, Path(folder)))
                    taken.setdefault((nics, pace, path), []).append(once)
                    sys.stderr.write(
                        f"{nics} NICs, {pace}, {path}: {once.core:.1%} of a core, {once.us_per_probe:.1f} us a probe\n"
                    )
    sampler.stop()
    rows = [_row(nics, pace, path, arguments.peers, each) for (nics, pace, path), each in taken.items()]
    print(
        f"{'NICs':>4} {'pace':<6} {'path':<6} {'streams':>7} {'of a core':>9} {'least':>6} {'most':>6} {'sent/s':>7} {'rcvd/s':>7} "
        f"{'us/probe':>8} {'stamped':>7}"
        f" {'own p50':>8} {'p99':>6} {'max ms':>6} {'steps':>6} {'own>10':>6} {'>10 ms':>6} {'late p99.9':>10} {'idle':>5} {'MB':>5}"
    )
    for row in rows:
        print(
            f"{row.nics:>4} {row.pace:<6} {row.path:<6} {row.streams:>7} {row.core:>9.2%} {row.core_least:>6.1%} "
            f"{row.core_most:>6.1%} {row.sent_per_s:>7.0f}"
            f" {row.received_per_s:>7.0f} {row.us_per_probe:>8.1f} {row.stamped_streams:>7}"
            f" {row.step_own_p50_ms:>8.2f} {row.step_own_p99_ms:>6.2f} {row.step_own_max_ms:>6.2f} {row.steps:>6} "
            f"{row.steps_own_over_10ms:>6} {row.steps_over_10ms:>6} {row.late_p999_ms:>10.2f} {row.idle_cpu:>5.0%} {row.rss_mb:>5.0f}"
        )  # fmt: skip
    further = _further(rows)
    print(
        "a further probe, by the difference of the two paces: "
        + ", ".join(f"{us:.1f} us ({what})" for what, us in further.items())
    )
    under = msgspec.to_builtins(sampler.machine())
    print(f"machine: {under}")
    if arguments.json:
        document.write(arguments.json, rows, under=under, us_per_further_probe=further)
    return 0


if __name__ == "__main__":
    sys.exit(main())
