"""What a training job pays for telling Foliot of its collectives: its steps with `foliot.torch` and without, by turns.

Two ranks train over loopback, whose steps are short, so that the price is a larger share of them than on a fabric. An
agent's socket hears them. Each pair is a run of both, and every other pair begins with the other one.

    make bench NAME=record-cost ARGS="--json FILE"
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import socket
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from bench import place
from bench.document import Document, keep
from bench.table import show
from foliot_agent.ranks.rank_socket import RankSocket
from foliot_lab.workload.train.ranks import missing
from foliot_lab.workload.workload import JOB
from foliot_schemas import CollectiveBatch

if TYPE_CHECKING:
    from foliot_schemas import WorkerBatch

_RANKS = 2
_WARM_UP = 20
"""Steps of each run that are left out."""
_OUTSIDE = 0.025
"""Share of pairs on each side of the interval."""


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """One pair."""

    pair: int
    plain_ms: float
    """Median step."""
    recorded_ms: float
    ratio: float
    told: int
    """Collectives that the agent's socket heard."""


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """What the pairs come to."""

    pairs: int
    ratio: float
    """Median of the pairs' ratios."""
    low: float
    high: float
    """The interval of that median, by the order of the pairs: 95 % and somewhat more."""
    more_us: float
    """Median of what a step takes longer."""
    collectives: float
    """Of a rank, in a step."""


class _Clock:
    """The host's own."""

    name = "node0"

    def local_ns(self) -> int:
        return time.clock_gettime_ns(time.CLOCK_MONOTONIC_RAW)

    def now_ns(self) -> int:
        return time.time_ns()

    def bound_ns(self) -> int:
        return -1


async def _run(folder: Path, arguments: argparse.Namespace, *, recorded: bool) -> float:
    """The median step of a run, in ms."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    ranks = []
    for rank in range(_RANKS):
        environment = {
            **os.environ, "RANK": str(rank), "WORLD_SIZE": str(_RANKS), "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(port), "OMP_NUM_THREADS": "1",
        }  # fmt: skip
        more = ["--job", "record-cost", "--rank-socket", str(folder / "ranks")] if recorded else []
        with (folder / f"{rank}.log").open("wb") as log:
            ranks.append(
                await asyncio.create_subprocess_exec(
                    sys.executable, "-m", JOB, "--address", f"127.0.0.{rank + 1}", "--record", str(folder / f"{rank}.jsonl"),
                    "--gradient-bytes", str(round(arguments.gradient_mb * 1e6)), "--steps", str(arguments.steps), *more,
                    env=environment, stdout=log, stderr=log,
                )
            )  # fmt: skip
    for process in ranks:
        if await process.wait():
            raise RuntimeError(f"a rank failed: {(folder / '0.log').read_text()}")
    lines = [json.loads(line) for line in (folder / "0.jsonl").read_text().splitlines()][_WARM_UP:]
    return float(statistics.median((line["ended_ns"] - line["began_ns"]) * 1e-6 for line in lines))


async def measure(arguments: argparse.Namespace) -> list[Row]:
    """All pairs."""
    told = 0

    def hear(batch: CollectiveBatch | WorkerBatch) -> None:
        nonlocal told
        assert isinstance(batch, CollectiveBatch)
        told += int((batch.rows()["ended_ns"] != 0).sum())

    rows = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        heard = RankSocket(str(folder / "ranks"), "node0", _Clock(), hear)
        heard.open()
        telling = asyncio.create_task(heard.tell())
        for pair in range(arguments.pairs):
            told, took = 0, {}
            for recorded in (True, False) if pair % 2 else (False, True):
                took[recorded] = await _run(folder, arguments, recorded=recorded)
            row = Row(
                pair=pair, plain_ms=round(took[False], 3), recorded_ms=round(took[True], 3),
                ratio=round(took[True] / took[False], 4), told=told,
            )  # fmt: skip
            rows.append(row)
            show([msgspec.to_builtins(row)])
            sys.stdout.flush()
        telling.cancel()
        heard.close()
    return rows


def summed(rows: list[Row], steps: int) -> Result:
    """What the pairs come to."""
    ratios = sorted(row.ratio for row in rows)
    outside = _outside(len(ratios))
    return Result(
        pairs=len(rows), ratio=statistics.median(ratios), low=ratios[outside], high=ratios[-1 - outside],
        more_us=round(statistics.median(row.recorded_ms - row.plain_ms for row in rows) * 1e3, 1),
        collectives=round(statistics.median(row.told for row in rows) / steps / _RANKS, 2),
    )  # fmt: skip


def _outside(pairs: int) -> int:
    """How many of the least, and of the most, the interval of a median leaves out (the sign test's)."""
    share, ways, outside = 0.0, 1.0, 0
    for number in range(pairs):
        share += ways / 2.0**pairs
        if share > _OUTSIDE:
            return max(outside - 1, 0)
        outside = number + 1
        ways = ways * (pairs - number) / (number + 1)
    return 0


def main() -> int:
    """Parses the command line, runs, prints."""
    parser = argparse.ArgumentParser(
        prog="bench.record_cost", description=__doc__.split("\n", 1)[0] if __doc__ else None
    )
    parser.add_argument("--pairs", type=int, default=12, help="(default: %(default)s)")
    parser.add_argument("--steps", type=int, default=200, help="of each run (default: %(default)s)")
    parser.add_argument("--gradient-mb", type=float, default=2.0, help="(default: %(default)g)")
    parser.add_argument("--json", type=Path, help="write the rows to this file")
    arguments = parser.parse_args()
    if why := missing():
        sys.stderr.write(f"{why}\n")
        return place.CANNOT
    document = Document("record-cost", arguments)
    rows = asyncio.run(measure(arguments))
    result = summed(rows, arguments.steps)
    show([msgspec.to_builtins(result)])
    if arguments.json:
        keep(
            arguments.json, document.head(), [msgspec.to_builtins(row) for row in rows],
            result=msgspec.to_builtins(result),
        )  # fmt: skip
    return 0


if __name__ == "__main__":
    sys.exit(main())
