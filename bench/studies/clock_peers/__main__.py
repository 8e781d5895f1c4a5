"""Foliot's clocks beside tuned chrony and ptp4l: on the same wires, at the same time.

All hosts are network namespaces of this machine and have its one clock. So the truth is known: any offset that a tool
finds is its error. Foliot runs as it is: a probe on each host, sync, a NATS server. It also has runs of its own with
drifting clocks. chrony and ptp4l never touch this machine's clock.

    make bench NAME=clock-peers ARGS="--json FILE"
"""

from __future__ import annotations

import argparse
import asyncio
import os
import shutil
import signal
import sys
import tempfile
from pathlib import Path

import msgspec

from bench import place
from bench.document import Document, program
from bench.studies.clock_peers import chrony, network, ours, rows
from bench.studies.clock_peers.children import ChildError
from bench.studies.clock_peers.sessions import PACES, Binaries, NotReadyError, Session
from foliot_lab.fabric.fabric import FabricError
from foliot_lab.fabric.namespaces import Namespace, enter_control
from foliot_lab.measure.budget import ProcessLoad

_DRIFT_LOAD = 0.6
_PEERS = Path("run/peers")
_ONCE, _PER_HOST = 0.32, 0.046
"""Processors busy at most: 0.41 with the two hosts of the path, 1.05 with the 16 hosts of the mesh, and one
configuration of chrony. Four, at 90 % load, took 0.66 and 1.69 (bench/results/clock-peers-2026-11-27.json): two cores
carry that too."""


def main() -> int:
    """Parses the command line, runs, prints a table."""
    arguments = _parser().parse_args()
    binaries, lacking = _find(arguments.peers)
    if not place.enter(*lacking, carries=_process_load(arguments)):
        return place.CANNOT
    programs = {"chronyd": program(binaries.chronyd, "--version"), "ptp4l": program(binaries.ptp4l, "-v")}
    document = Document("clock-peers", arguments, programs)
    found: list[rows.Row] = []
    print(rows.HEADING)
    try:
        asyncio.run(_until_signalled(binaries, arguments, found))
    except asyncio.CancelledError:
        sys.stderr.write("interrupted\n")
        return 1
    except (ChildError, FabricError, NotReadyError) as error:
        sys.stderr.write(f"{error}\n")
        return 1
    best = rows.best(found)
    for each in best:
        print(f"best of chrony: {each.tool}, p99 {each.p99_ns:,.0f} ns ({each.topology}; {each.load:.0%} {each.ways})")
    goals = rows.goals(found)
    for goal in goals:
        met = "met" if goal.met else "missed"
        print(
            f"goal {met}: {goal.what} ({goal.topology}; load: {goal.load:.0%} {goal.ways}; {goal.drift_ppb / 1e3:g} "
            f"ppm): wanted {goal.wanted_ns:,.0f} ns, measured {goal.measured_ns:,.0f} ns"
        )
    if arguments.json:
        more = {name: msgspec.to_builtins(each) for name, each in (("best_of_chrony", best), ("goals", goals))}
        document.write(arguments.json, found, rate_mbps=network.RATE_MBPS, pairs=_pairs(arguments), **more)
    return 0


def _process_load(arguments: argparse.Namespace) -> ProcessLoad:
    """The processor load of the larger topology, with all tools."""
    hosts = max(len(network.path().hosts), arguments.hosts if "mesh" in arguments.topologies else 0)
    return ProcessLoad(f"Foliot, chrony and ptp4l on {hosts} hosts", _ONCE + _PER_HOST * hosts, "--hosts")


async def _until_signalled(binaries: Binaries, arguments: argparse.Namespace, found: list[rows.Row]) -> None:
    task = asyncio.current_task()
    assert task is not None
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, task.cancel)
    await _sessions(binaries, arguments, enter_control(), found)


async def _sessions(
    binaries: Binaries, arguments: argparse.Namespace, control: Namespace, found: list[rows.Row]
) -> None:
    def tell(row: rows.Row) -> None:
        found.append(row)
        print(rows.line(row), flush=True)

    for kind in arguments.topologies:
        plan = network.path() if kind == "path" else network.mesh(arguments.hosts)
        for drift_ppb in arguments.drifts:
            # In /tmp, because the name of a socket in it has to be short.
            with tempfile.TemporaryDirectory(prefix="foliot-clock-peers-", ignore_cleanup_errors=True) as folder:
                session = Session(kind, plan, control, Path(folder), drift_ppb)
                await session.run(binaries, _conditions(arguments, drift_ppb), arguments, tell)


def _conditions(arguments: argparse.Namespace, drift_ppb: float) -> list[tuple[float, str]]:
    """The loads and ways of a session, the heaviest first, so that no tool's memory of a lighter load helps it.

    With drift there is one load: the one that the goal names, or the heaviest of all.
    """
    loads = sorted(arguments.loads, reverse=True)
    if drift_ppb:
        loads = [_DRIFT_LOAD if _DRIFT_LOAD in loads else loads[0]]
    ways = {share: arguments.ways if share else ["none"] for share in loads}
    if drift_ppb:
        ways = {share: each[:1] for share, each in ways.items()}
    return [(share, each) for share in loads for each in ways[share]]


def _find(folder: Path) -> tuple[Binaries, list[str]]:
    """The peers' programs, and the missing ones in words."""
    path = os.pathsep.join([str(folder / "usr/sbin"), os.environ.get("PATH", os.defpath), "/usr/sbin", "/sbin"])
    wanted = {"chronyd": "chrony", "ptp4l": "linuxptp"}
    found = {name: shutil.which(name, path=path) for name in wanted}
    lacking = [
        f"There is no {name} ({package}), neither in {folder / 'usr/sbin'} nor in PATH. Without installing it, which "
        "may start a service that sets"
        f" this machine's clock: mkdir -p {folder} && cd {folder} && apt-get download {package} && dpkg-deb -x "
        f"{package}_*.deb ."
        for name, package in wanted.items()
        if found[name] is None
    ]
    return Binaries(*(Path(found[name] or "").absolute() for name in wanted)), lacking


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="bench.clock_peers", description=__doc__.split("\n", 1)[0] if __doc__ else None
    )
    parser.add_argument("--json", type=Path, help="write the rows to this file")
    parser.add_argument("--topologies", nargs="+", choices=tuple(PACES), default=[*PACES])
    parser.add_argument("--loads", nargs="+", type=float, default=[0.0, 0.4, 0.6, 0.9], help="of the bottleneck")
    parser.add_argument("--ways", nargs="+", choices=("both", "one"), default=["both", "one"])
    parser.add_argument("--seconds", type=float, default=30.0, help="judged, of each run (default: %(default)s)")
    parser.add_argument(
        "--drifts", nargs="+", type=float, default=[0.0, 10_000.0, 30_000.0], help="of Foliot's clocks, in ppb"
    )
    parser.add_argument(
        "--wander-ppb",
        type=float,
        default=5.0,
        help="of a drifting clock's rate, per root of a second (default: %(default)s)",
    )
    names = tuple(chrony.CONFIGURATIONS)
    parser.add_argument("--chrony", nargs="+", choices=names, default=[*names], help="its configurations, side by side")
    parser.add_argument("--hosts", type=int, default=16, help="of the mesh (default: %(default)s)")
    parser.add_argument("--warm-s", type=float, default=30.0, help="after all are in step (default: %(default)s)")
    parser.add_argument("--settle-s", type=float, default=20.0, help="after each change of load (default: %(default)s)")
    parser.add_argument(
        "--peers",
        type=Path,
        default=_PEERS,
        help="a folder that Debian's packages were unpacked into (default: %(default)s)",
    )
    return parser


def _pairs(arguments: argparse.Namespace) -> dict[str, int]:
    """The number of pairs of hosts that measure each other, by topology."""
    return {
        "foliot in the mesh": ours.pairs(network.mesh(arguments.hosts).hosts),
        "others in the mesh": arguments.hosts - 1,
    }


if __name__ == "__main__":
    sys.exit(main())
