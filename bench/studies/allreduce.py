"""The bandwidth of the lab's links for a job: PyTorch's all-reduce over Gloo, with a rank on each host.

It works in the manner of nccl-tests. It uses the service addresses of all rails, in the hosts' namespaces, while Foliot
runs beside it. It needs PyTorch (make train).

    make bench NAME=allreduce ARGS="--json FILE"
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import msgspec

from bench import place
from bench.document import Document
from foliot_lab.measure.host_latency import LatenessSampler
from foliot_lab.scenario.spec import FabricSpec, Scenario, WorkloadSpec
from foliot_lab.services.lab import Lab
from foliot_lab.workload.train.places import places
from foliot_lab.workload.train.ranks import Ranks, missing

_PROGRAM = "foliot_lab.workload.train.allreduce"


class Row(msgspec.Struct, kw_only=True):
    """One size."""

    bytes: int
    count: int
    time_ms: float
    algbw_mb_s: float
    busbw_mb_s: float
    wrong: int
    """Elements that were not the sum, over all ranks."""


async def measure(arguments: argparse.Namespace) -> tuple[list[Row], dict[str, Any]]:
    """All sizes, and the machine's spare processor time.

    Raises:
        RuntimeError: a rank died.
    """
    lab = Lab(_scenario(arguments), arguments.folder)
    lab.build()
    ranks = Ranks(lab.folder / "allreduce", lab.time)
    file = ranks.folder / "rows.json"
    sampler = LatenessSampler()
    more = ["--json", str(file), "--least", str(arguments.least), "--most", str(arguments.most)]
    try:
        await lab.start()
        await lab.ready()
        sampler.start()
        await ranks.start(_PROGRAM, places(lab), lab.plan.front(lab.plan.hosts[0]), lambda _: more)
        await ranks.finished()
        sampler.stop()
        for ended in ranks.ended:
            if ended.status:
                raise RuntimeError(f"the rank of {ended.node} died: {ended.reason}")
        return [Row(**row) for row in json.loads(file.read_text())], msgspec.to_builtins(sampler.machine())
    finally:
        await ranks.stop()
        await lab.close()


def _scenario(arguments: argparse.Namespace) -> Scenario:
    fabric = FabricSpec(hosts=arguments.hosts, rails=arguments.rails, spines=2, link_mbps=arguments.link_mbps)
    return Scenario(fabric=fabric, workload=WorkloadSpec(kind="none"))


def main() -> int:
    """Parses the command line, runs, prints a table."""
    parser = argparse.ArgumentParser(prog="bench.allreduce", description=__doc__.split("\n", 1)[0] if __doc__ else None)
    parser.add_argument("--json", type=Path, help="write the rows to this file")
    parser.add_argument("--hosts", type=int, default=4)
    parser.add_argument("--rails", type=int, default=2)
    parser.add_argument("--link-mbps", type=float, default=200.0)
    parser.add_argument("--least", type=int, default=4_000, help="bytes (default: %(default)s)")
    parser.add_argument("--most", type=int, default=16_384_000, help="bytes (default: %(default)s)")
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir(), "foliot-bench-allreduce"))
    arguments = parser.parse_args()
    if not place.enter(missing(), carries=_scenario(arguments)):
        return place.CANNOT
    document = Document("allreduce", arguments)
    rows, machine = asyncio.run(measure(arguments))
    links_mb_s = arguments.rails * arguments.link_mbps / 8
    print(
        f"{'bytes':>11} {'count':>6} {'time ms':>10} {'algbw MB/s':>11} {'busbw MB/s':>11} {'of links':>9} {'wrong':>6}"
    )
    for row in rows:
        share = row.busbw_mb_s / links_mb_s
        print(
            f"{row.bytes:>11,} {row.count:>6} {row.time_ms:>10.3f} {row.algbw_mb_s:>11.2f} {row.busbw_mb_s:>11.2f} "
            f"{share:>9.0%} {row.wrong:>6}"
        )
    print(
        f"{arguments.hosts} ranks on {arguments.rails} rails, {links_mb_s:g} MB/s out of each host; machine: {machine}"
    )
    if arguments.json:
        document.write(arguments.json, rows, under=machine)
    return 1 if any(row.wrong for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
