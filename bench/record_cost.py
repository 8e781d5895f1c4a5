"""What a training job pays for telling Foliot of its collectives: steps with `foliot.torch`, and steps without.

Two ranks train over loopback, whose steps are short, so that the price is a larger share of them than on a fabric. An
agent's socket hears them. The record is turned on and off within a run, every so many steps, so that both kinds of
steps share whatever else the machine does.

    make bench NAME=record-cost ARGS="--json FILE"
    make bench NAME=record-cost ARGS="--wait-ms 150 --steps 800 --json FILE"   # the processors have room
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from bench import place
from bench.document import Document
from bench.table import show
from foliot_agent.ranks.rank_socket import RankSocket
from foliot_lab.measure.machine import CpuTimes
from foliot_lab.services.ports import keep
from foliot_lab.workload.train.ranks import missing
from foliot_schemas import CollectiveBatch

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from foliot_schemas import WorkerBatch

_RANKS = 2
_NAME = "record-cost"
_SETTLES = 5
"""Steps of each block that are left out."""
_OUTSIDE = 0.025
"""Share of runs on each side of the interval."""


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """One run."""

    run: int
    plain_ms: float
    """The mean step without the record: median of the blocks of steps."""
    recorded_ms: float
    ratio: float
    """Of a block with the record to the block without it that is beside it: their median."""
    more_us: float
    """Likewise, by how much longer a step with the record takes."""
    blocks: int
    """Pairs of them."""
    told: int
    """Collectives that the agent's socket heard."""
    idle_cpu: float


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """What the runs come to."""

    runs: int
    ratio: float
    """Median of the runs."""
    low: float
    high: float
    """The interval of that median, by the order of the runs: 95 % and somewhat more."""
    more_us: float
    more_low_us: float
    more_high_us: float
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


async def _run(folder: Path, arguments: argparse.Namespace) -> NDArray[np.float64]:
    """How long each step of a run took, in ms."""
    with keep() as keeper:
        port = keeper.getsockname()[1]
        lever = folder / "lever"
        lever.write_text(f"data-slow {arguments.wait_ms:g}")
        ranks = []
        for rank in range(_RANKS):
            environment = {
                **os.environ, "RANK": str(rank), "WORLD_SIZE": str(_RANKS), "MASTER_ADDR": "127.0.0.1",
                "MASTER_PORT": str(port), "OMP_NUM_THREADS": "1",
            }  # fmt: skip
            with (folder / f"{rank}.log").open("wb") as log:
                ranks.append(
                    await asyncio.create_subprocess_exec(
                        sys.executable, "-m", "bench.record_job", "--address", f"127.0.0.{rank + 1}",
                        "--record", str(folder / f"{rank}.jsonl"), "--steps", str(arguments.steps),
                        "--gradient-bytes", str(round(arguments.gradient_mb * 1e6)), "--lever", str(lever),
                        "--block", str(arguments.block), "--job-told", _NAME, "--rank-socket", str(folder / "ranks"),
                        env=environment, stdout=log, stderr=log,
                    )
                )  # fmt: skip
        for process in ranks:
            if await process.wait():
                raise RuntimeError(f"a rank failed: {(folder / '0.log').read_text()}")
    lines = [json.loads(line) for line in (folder / "0.jsonl").read_text().splitlines()]
    return np.array([(line["ended_ns"] - line["began_ns"]) * 1e-6 for line in lines])


def is_recorded(step: int, block: int) -> bool:
    """Whether a step is told of. Four blocks of steps are without, with, with and without the record, and so on."""
    return step // block % 4 in {1, 2}


def blocks(steps_ms: NDArray[np.float64], block: int) -> NDArray[np.float64]:
    """The mean step of each block without the record, and of the block with it that is beside it: (pairs, 2).

    The first steps of each block are left out, in which the record may be turned on or off. So is the first pair, in
    which PyTorch and the processors get to know the job.
    """
    whole = steps_ms[: len(steps_ms) // (2 * block) * 2 * block].reshape(-1, 2, block)
    means = whole[:, :, _SETTLES:].mean(axis=2)
    means[1::2] = means[1::2, ::-1]  # off, on; then on, off
    found: NDArray[np.float64] = means[1:]
    return found


async def measure(arguments: argparse.Namespace) -> list[Row]:
    """All runs."""
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
        for run in range(arguments.runs):
            told, began = 0, CpuTimes.read()
            means = blocks(await _run(folder, arguments), arguments.block)
            plain_ms, recorded_ms = np.median(means, axis=0).tolist()
            row = Row(
                run=run, plain_ms=round(plain_ms, 3), recorded_ms=round(recorded_ms, 3),
                ratio=round(float(np.median(means[:, 1] / means[:, 0])), 5),
                more_us=round(float(np.median(means[:, 1] - means[:, 0])) * 1e3, 1), blocks=len(means), told=told,
                idle_cpu=round(began.idle_share(CpuTimes.read()), 3),
            )  # fmt: skip
            rows.append(row)
            show([msgspec.to_builtins(row)])
            sys.stdout.flush()
        telling.cancel()
        heard.close()
    return rows


def summed(rows: Sequence[Row], steps: int) -> Result:
    """What the runs come to; `steps`: of each."""
    ratio, low, high = _interval([row.ratio for row in rows])
    more_us, more_low_us, more_high_us = _interval([row.more_us for row in rows])
    return Result(
        runs=len(rows), ratio=ratio, low=low, high=high, more_us=more_us, more_low_us=more_low_us,
        more_high_us=more_high_us, collectives=round(statistics.median(row.told for row in rows) / (steps / 2) / _RANKS, 2),
    )  # fmt: skip


def _interval(values: Sequence[float]) -> tuple[float, float, float]:
    """The median, and the interval of it."""
    ordered = sorted(values)
    outside = _outside(len(ordered))
    return statistics.median(ordered), ordered[outside], ordered[-1 - outside]


def _outside(runs: int) -> int:
    """How many of the least, and of the most, the interval of a median leaves out (the sign test's)."""
    share, ways, outside = 0.0, 1.0, 0
    for number in range(runs):
        share += ways / 2.0**runs
        if share > _OUTSIDE:
            return max(outside - 1, 0)
        outside = number + 1
        ways = ways * (runs - number) / (number + 1)
    return 0


def main() -> int:
    """Parses the command line, runs, prints."""
    parser = argparse.ArgumentParser(
        prog="bench.record_cost", description=__doc__.split("\n", 1)[0] if __doc__ else None
    )
    parser.add_argument("--runs", type=int, default=12, help="(default: %(default)s)")
    parser.add_argument("--steps", type=int, default=2400, help="of each run (default: %(default)s)")
    parser.add_argument(
        "--block", type=int, default=50, help="steps with the record, and without it (default: %(default)s)"
    )
    parser.add_argument("--gradient-mb", type=float, default=2.0, help="(default: %(default)g)")
    parser.add_argument("--wait-ms", type=float, default=0.0, help="for the data of each step (default: %(default)g)")
    parser.add_argument("--json", type=Path, help="write the rows to this file")
    arguments = parser.parse_args()
    if arguments.steps < 4 * arguments.block or arguments.block <= _SETTLES:
        parser.error(f"a block has more than {_SETTLES} steps, and a run at least four blocks")
    if why := missing():
        sys.stderr.write(f"{why}\n")
        return place.CANNOT
    document = Document("record-cost", arguments)
    rows = asyncio.run(measure(arguments))
    result = summed(rows, arguments.steps)
    show([msgspec.to_builtins(result)])
    if arguments.json:
        document.write(arguments.json, rows, result=msgspec.to_builtins(result))
    return 0


if __name__ == "__main__":
    sys.exit(main())
