"""The peers by themselves, one after another, in a fabric of the lab's under the lab's faults.

    make bench NAME=failover.peers ARGS="--reps 3 --json FILE"

A repetition starts each peer in turn. It then does every variant of a fault once, each time to another NIC or fabric
link, and stops the peer.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import signal
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from bench import place
from bench.document import Document
from bench.studies.failover_peers import frr, rows
from bench.studies.failover_peers.bfd import Bfd
from bench.studies.failover_peers.mptcp import Mptcp
from bench.studies.failover_peers.nexthop import Nexthops
from bench.studies.failover_peers.stage import VARIANTS, Peer, Stage, in_turn
from foliot_lab.fabric.fabric import Fabric, FabricError
from foliot_lab.fabric.namespaces import enter_control
from foliot_lab.measure.clock_truth import LabTime
from foliot_lab.measure.host_latency import LatenessSampler
from foliot_lab.scenario.spec import FabricSpec, Scenario, WorkloadSpec
from foliot_lab.scenario.topology import plan

if TYPE_CHECKING:
    from collections.abc import Callable

    from bench.studies.failover_peers.rows import Row

_SEED = 7
MAKERS: dict[str, Callable[[Stage], Peer]] = {
    "bfd-hosts-50": lambda stage: Bfd(stage, 50),
    "bfd-hosts-10": lambda stage: Bfd(stage, 10),
    "bfd-leaf-50": lambda stage: Bfd(stage, 50, "leaf"),
    "bfd-leaf-10": lambda stage: Bfd(stage, 10, "leaf"),
    "bfd-interface-50": lambda stage: Bfd(stage, 50, "leaf by interface"),
    "bfd-interface-10": lambda stage: Bfd(stage, 10, "leaf by interface"),
    "nexthop": Nexthops,
    "mptcp": Mptcp,
}
"""The peers by their names on the command line."""


def main() -> int:
    """Parses the command line, runs, prints a table."""
    arguments = _parser().parse_args()
    if not place.enter(carries=_scenario(arguments)):
        return place.CANNOT
    document = Document("failover-peers", arguments, {"bfdd": frr.version(arguments.peers)})
    found: list[Row] = []
    print(rows.HEADING)
    try:
        asyncio.run(_until_signalled(arguments, document, found))
    except asyncio.CancelledError:
        sys.stderr.write("interrupted\n")
        return 1
    except FabricError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


def _scenario(arguments: argparse.Namespace) -> Scenario:
    """A lab of the same hosts with Foliot on them. Its cost stands for that of the peers, which was not measured."""
    return Scenario(fabric=FabricSpec(hosts=arguments.hosts), workload=WorkloadSpec(kind="none"))


async def _until_signalled(arguments: argparse.Namespace, document: Document, found: list[Row]) -> None:
    task = asyncio.current_task()
    assert task is not None
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, task.cancel)
    with tempfile.TemporaryDirectory(prefix="foliot-failover-peers-", ignore_cleanup_errors=True) as folder:
        await _measure(arguments, document, Path(folder), found)


async def _measure(arguments: argparse.Namespace, document: Document, folder: Path, found: list[Row]) -> None:
    def tell(row: Row) -> None:
        found.append(row)
        print(rows.line(row), flush=True)

    spec = _scenario(arguments).fabric
    with contextlib.closing(Fabric.build(plan(spec, _SEED), enter_control())) as fabric:
        stage = Stage(fabric, spec, LabTime.starting_now(), folder, arguments.peers)
        peers = [MAKERS[tool](stage) for tool in arguments.tools]
        sampler = LatenessSampler()
        sampler.start()
        for rep in range(arguments.reps):
            await in_turn(peers, stage, arguments.variants, rep, tell)
        sampler.stop()
    coverages = [coverage for peer in peers if (coverage := peer.coverage()) is not None]
    print(*map(rows.coverage_line, coverages), sep="\n")
    print(f"machine: {sampler.machine()}")
    if arguments.json:
        more = {"coverage": coverages, "fabric": spec, "under": sampler.machine()}
        document.write(arguments.json, found, **{name: msgspec.to_builtins(each) for name, each in more.items()})


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="bench.failover.peers", description=__doc__.split("\n", 1)[0] if __doc__ else None
    )
    parser.add_argument("--json", type=Path, help="write the rows to this file")
    parser.add_argument("--reps", type=int, default=3, help="(default: %(default)s)")
    parser.add_argument("--hosts", type=int, default=4, help="(default: %(default)s)")
    parser.add_argument("--variants", nargs="+", choices=tuple(VARIANTS), default=[*VARIANTS])
    parser.add_argument("--tools", nargs="+", choices=tuple(MAKERS), default=[*MAKERS])
    parser.add_argument(
        "--peers",
        type=Path,
        default=Path("run/peers"),
        help="a folder that Debian's packages were unpacked into (default: %(default)s)",
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
