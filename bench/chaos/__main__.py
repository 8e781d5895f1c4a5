"""Rounds of faults in which a process is killed, halted or restarted; the table shows the results.

    make bench NAME=chaos ARGS="--rounds 30 --armed off --json one.json"
    make bench NAME=chaos ARGS="--first 30 --rounds 30 --armed always --json two.json"
    make bench NAME=chaos ARGS="--merge one.json two.json --json all.json"

The seed and its number determine a round. So rounds can be run in any pieces and merged.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import msgspec

from bench import place
from bench.chaos import ledger
from bench.chaos.draw import SERVICES, draw
from bench.chaos.rounds import Result, Rounds
from bench.chaos.routes import KernelChanges
from bench.chaos.table import rows
from bench.chaos.vitals import Vitals
from bench.document import Document, joined_head, keep
from bench.fresh import FRESH
from foliot_lab.measure.wire_witness import Witness
from foliot_lab.scenario.spec import FabricSpec, Scenario, WorkloadSpec
from foliot_lab.services.lab import Lab

_SETTLE_S = 4.0
_LAST_WORDS_S = 3.0
"""The wait for last messages, longer than the last command's deadline."""


async def play(arguments: argparse.Namespace) -> tuple[list[Result], list[ledger.Finding]]:
    """The rounds of one chunk, in one lab."""
    deadline_s = time.monotonic() + arguments.within_s
    lab = Lab(_scenario(arguments), arguments.folder)
    lab.build()
    kernels = KernelChanges(lab)
    try:
        await lab.start()
        vitals = Vitals(lab)
        await vitals.follow()
        await lab.ready()
        await asyncio.sleep(_SETTLE_S)
        with Witness.over(lab.nodes, {host: lab.fabric.host(host) for host in lab.plan.hosts}, lab.time) as witness:
            rounds = Rounds(lab, witness, vitals, arguments.healed_within_s)
            await rounds.follow()
            results: list[Result] = []
            for number in range(arguments.first, arguments.first + arguments.rounds):
                if time.monotonic() > deadline_s:
                    sys.stderr.write(f"out of time: go on with --first {number}\n")
                    break
                results.append(await rounds.run(draw(arguments.seed, number, arguments.victims, lab.plan)))
                sys.stderr.write(f"{_told(results[-1])}\n")
        await vitals.close()
        await asyncio.sleep(_LAST_WORDS_S)
        found = ledger.audit(lab, await ledger.read(lab), kernels.changes, results)
        return results, found
    finally:
        kernels.close()
        await lab.close()


def _scenario(arguments: argparse.Namespace) -> Scenario:
    return Scenario(
        fabric=FabricSpec(hosts=arguments.hosts, spines=2, bus_servers=arguments.servers),
        workload=WorkloadSpec(kind="none"),
        services={**FRESH, "remediator.armed": arguments.armed},
    )


def _told(result: Result) -> str:
    what = f"{result.number}: {result.fault} on {result.nic}, {result.means} {result.process} ({result.moment})"
    state = "healed" if result.healed else f"NOT HEALED: {result.why_not}"
    return f"{what}: moved {result.moved_ms} ms, recovery {result.recovery_s} s, {state}"


def main() -> int:
    """Parses the command line, runs or merges, prints a table."""
    arguments = _parser().parse_args()
    arguments.victims = arguments.victims or [*SERVICES, "nats" if arguments.servers == 1 else "nats-member"]
    if arguments.merge:
        chunks = [json.loads(path.read_text()) for path in arguments.merge]
    else:
        if not place.enter(carries=None if arguments.anyway else _scenario(arguments)):
            return place.CANNOT
        document = Document("chaos", arguments, services=FRESH)
        results, found = asyncio.run(play(arguments))
        for finding in found:
            sys.stderr.write(f"{finding.kind}: {finding.what}\n")
        chunks = [document.head() | _chunk(arguments, results, found)]
    whole = _together(chunks)
    made = rows(whole["rounds"])
    for row in made:
        print("  ".join(f"{key} {value}" for key, value in row.items()))
    if arguments.json:
        # For chunks written before documents had a head, there is nothing to say.
        keep(arguments.json, joined_head(chunks), made, **whole)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="bench.chaos", description=__doc__.split("\n", 1)[0] if __doc__ else None)
    victims = [*SERVICES, "nats", "nats-member"]
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--first", type=int, default=0, help="number of the first round (default: %(default)s)")
    parser.add_argument(
        "--within-s", type=float, default=math.inf, help="begin no round later than this (default: no limit)"
    )
    parser.add_argument(
        "--healed-within-s", type=float, default=20.0, help="a round that takes longer is not healed (%(default)g)"
    )
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--victims", nargs="+", choices=victims, help="(default: all that there are)")
    parser.add_argument("--servers", type=int, choices=(1, 3), default=1, help="of the bus (default: %(default)s)")
    parser.add_argument("--armed", choices=("off", "always"), default="off")
    parser.add_argument("--hosts", type=int, default=4)
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir(), "foliot-bench-chaos"))
    parser.add_argument("--json", type=Path, help="write all of it to this file")
    parser.add_argument("--anyway", action="store_true", help="also where the machine cannot carry it")
    parser.add_argument("--merge", type=Path, nargs="+", help="run nothing: put these files together")
    return parser


def _chunk(arguments: argparse.Namespace, results: list[Result], found: list[ledger.Finding]) -> dict[str, Any]:
    settings = {name: getattr(arguments, name) for name in ("seed", "first", "rounds", "servers", "armed", "hosts")}
    return {
        "chunks": [settings | {"rounds": len(results)}],
        "rounds": [msgspec.to_builtins(result) for result in results],
        "findings": [msgspec.to_builtins(finding) for finding in found],
    }


def _together(chunks: list[dict[str, Any]]) -> dict[str, Any]:
    return {key: [each for chunk in chunks for each in chunk[key]] for key in ("chunks", "findings", "rounds")}


if __name__ == "__main__":
    sys.exit(main())
