"""The cost of the overlay: one TCP connection between two hosts, by the NICs' own addresses and by service addresses.

The two kinds of address take turns. The bench also measures agent and probe while nothing happens. There are two hosts
on two rails, with links of 10 Gb/s, which this machine's processors do not fill. So Mb/s depend on CPU. The bench
counts all of it, less the load from before.

`whole`: segments leave TCP as up to 64 KiB and are never cut on a virtual wire. A NIC that segments tunnelled packets
(tx-udp_tnl-segmentation) at no cost does the same. `cut`: TCP makes each packet, which crosses everything alone, as
without any offload. Real NICs are between the two.

    make bench NAME=overlay-price ARGS="--json FILE"
"""

from __future__ import annotations

import argparse
import asyncio
import socket
import statistics
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import msgspec

from bench import place
from bench.document import Document
from bench.processes import cpu_s, rss_mb
from foliot_lab.fabric.fabric import run_batch
from foliot_lab.fabric.iproute import IP
from foliot_lab.fabric.namespaces import inside
from foliot_lab.measure.capacity_check import End, busy_s, solo
from foliot_lab.scenario.spec import FabricSpec, Scenario, WorkloadSpec
from foliot_lab.services.lab import Lab

if TYPE_CHECKING:
    from collections.abc import Sequence

    from foliot_lab.fabric.namespaces import Namespace

Over = Literal["nic", "overlay"]
Segments = Literal["whole", "cut"]

_SCENARIO = Scenario(fabric=FabricSpec(hosts=2, link_mbps=10_000, spines=1), workload=WorkloadSpec(kind="none"))
_ORDERS: tuple[tuple[Over, ...], ...] = (("nic", "overlay"), ("overlay", "nic"))
_SETTLED_S = 4.0
_WATCH_S = 2.0
_IDLE_S = 20.0
_CUT = 1
_WHOLE = 65_535
"""The most segments in a packet: the kernel's own limit (GSO_MAX_SEGS)."""


class Row(msgspec.Struct, kw_only=True):
    """Medians of the turns."""

    mtu: int
    """The MTU of the NICs; the overlay's is 50 bytes less."""
    segments: Segments
    over: Over
    n: int
    mbps: float
    mbps_least: float
    mbps_most: float
    cpu_s_per_gb: float
    """CPU time of all processors for a gigabyte: both ends and the fabric between them."""
    against_nic: float
    """Median of the turns' ratios of Mb/s, each against the adjacent turn."""
    cpu_against_nic: float


class Idle(msgspec.Struct, kw_only=True):
    """The cost of a process of a node while nothing happens."""

    process: str
    core: float
    """Share of a processor, on average over both nodes."""
    memory_mb: float


class _Turn(msgspec.Struct):
    mbps: float
    cpu_s_per_gb: float


class Bench:
    """A lab that is ready, without a workload."""

    def __init__(self, lab: Lab, run_s: float) -> None:
        self._lab, self._run_s = lab, run_s
        self._nodes = {node.name: node for node in lab.nodes}

    async def turn(self, over: Over) -> _Turn:
        """One connection from the first host to the last."""
        before = busy_s()
        await asyncio.sleep(_WATCH_S)
        idle = (busy_s() - before) / _WATCH_S
        source, sink = (self._end(host, over) for host in (self._lab.plan.hosts[0], self._lab.plan.hosts[-1]))
        found = await solo(source, sink, self._run_s)
        return _Turn(found.mbps, max(0.0, found.busy - idle) / (found.mbps / 8_000))

    def _end(self, host: str, over: Over) -> End:
        rail = self._lab.plan.rails[0]
        address = self._lab.plan.underlay(host, rail)
        if over == "overlay":
            address = self._nodes[host].nic(rail).service_address
        return End(self._lab.fabric.host(host), address)

    def segments(self, segments: Segments) -> None:
        """Lets TCP give the hosts' devices packets of so many segments."""
        for host in self._lab.plan.hosts:
            namespace = self._lab.fabric.host(host)
            most = _CUT if segments == "cut" else _WHOLE
            lines = [f"link set dev {device} gso_max_segs {most}" for device in _devices(namespace)]
            run_batch(namespace, IP, lines)

    async def idle(self) -> list[Idle]:
        """Measures agent and probe for a while."""
        pids = {name: self._lab.supervisor.pid(name) for name in self._lab.supervisor.names() if "/" in name}
        before = {name: cpu_s(pid) for name, pid in pids.items()}
        await asyncio.sleep(_IDLE_S)
        found = []
        for process in sorted({name.partition("/")[2] for name in pids}):
            mine = [name for name in pids if name.endswith(f"/{process}")]
            core = statistics.mean((cpu_s(pids[name]) - before[name]) / _IDLE_S for name in mine)
            memory = statistics.mean(rss_mb(pids[name]) for name in mine)
            found.append(Idle(process=process, core=round(core, 4), memory_mb=round(memory, 1)))
        return found


def _devices(namespace: Namespace) -> list[str]:
    """The devices of the host: NICs, and the overlay's."""
    with inside(namespace):
        return [name for _, name in socket.if_nameindex() if name != "lo"]


async def measure(mtu: int, arguments: argparse.Namespace) -> tuple[list[Row], list[Idle]]:
    """All rows of one MTU."""
    lab = Lab(_SCENARIO, arguments.folder)
    lab.build()
    try:
        # Before the agents start, which give the overlay the settings of the NICs.
        for namespace in lab.fabric.namespaces():
            run_batch(namespace, IP, [f"link set dev {device} mtu {mtu}" for device in _devices(namespace)])
        await lab.start()
        await lab.ready()
        await asyncio.sleep(_SETTLED_S)
        bench, rows = Bench(lab, arguments.seconds), []
        for segments in arguments.segments:
            bench.segments(segments)
            turns: dict[Over, list[_Turn]] = {"nic": [], "overlay": []}
            for number in range(arguments.turns):
                # In either order, so that drifts affect both alike.
                for over in _ORDERS[number % 2]:
                    turns[over].append(await bench.turn(over))
            rows += [_row(mtu, segments, over, taken, turns["nic"]) for over, taken in turns.items()]
            sys.stderr.write("".join(f"{row}\n" for row in rows[-2:]))
        bench.segments("whole")
        return rows, await bench.idle()
    finally:
        await lab.close()


def _row(mtu: int, segments: Segments, over: Over, taken: Sequence[_Turn], nic: Sequence[_Turn]) -> Row:
    mbps = [turn.mbps for turn in taken]
    return Row(
        mtu=mtu, segments=segments, over=over, n=len(taken),
        mbps=round(statistics.median(mbps)), mbps_least=round(min(mbps)), mbps_most=round(max(mbps)),
        cpu_s_per_gb=round(statistics.median(turn.cpu_s_per_gb for turn in taken), 3),
        against_nic=round(statistics.median(a.mbps / b.mbps for a, b in zip(taken, nic, strict=True)), 3),
        cpu_against_nic=round(
            statistics.median(a.cpu_s_per_gb / b.cpu_s_per_gb for a, b in zip(taken, nic, strict=True)), 3
        ),
    )  # fmt: skip


def main() -> int:
    """Parses the command line, runs, prints a table."""
    parser = argparse.ArgumentParser(
        prog="bench.overlay_price", description=__doc__.split("\n", 1)[0] if __doc__ else None
    )
    parser.add_argument("--json", type=Path, help="write the rows to this file")
    parser.add_argument("--turns", type=int, default=10, help="of each kind (default: %(default)s)")
    parser.add_argument("--seconds", type=float, default=2.0, help="that a turn lasts (default: %(default)s)")
    parser.add_argument("--mtu", nargs="+", type=int, default=[1_500, 9_000])
    parser.add_argument("--segments", nargs="+", choices=("whole", "cut"), default=["whole", "cut"])
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir(), "foliot-bench-overlay-price"))
    arguments = parser.parse_args()
    if not place.enter(carries=_SCENARIO):
        return place.CANNOT
    document = Document("overlay-price", arguments)
    rows: list[Row] = []
    idle: list[Idle] = []
    for mtu in arguments.mtu:
        some, idle = asyncio.run(measure(mtu, arguments))
        rows += some
    print(
        f"{'MTU':>5} {'segments':<9} {'over':<8} {'Mb/s':>6} {'least':>6} {'most':>6} {'CPU s/GB':>9} {'of NIC':>7} "
        f"{'CPU':>6}"
    )
    for row in rows:
        print(
            f"{row.mtu:>5} {row.segments:<9} {row.over:<8} {row.mbps:>6.0f} {row.mbps_least:>6.0f} "
            f"{row.mbps_most:>6.0f}"
            f" {row.cpu_s_per_gb:>9.3f} {row.against_nic:>7.3f} {row.cpu_against_nic:>6.3f}"
        )
    for each in idle:
        print(f"{each.process}: {each.core:.1%} of a core, {each.memory_mb:.0f} MB")
    if arguments.json:
        document.write(arguments.json, rows, idle=[msgspec.to_builtins(each) for each in idle])
    return 0


if __name__ == "__main__":
    sys.exit(main())
