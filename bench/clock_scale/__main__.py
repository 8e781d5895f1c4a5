"""The cost of sync in a fleet of 1,000, 10,000 and 100,000 clocks: CPU seconds and bytes per stage and window of 2 s.

A real NATS server carries the messages. A generator stands for the probes: exact stamps of as many clocks, with ten
neighbours each, pruned as probes publish them. The real code of a shard serves each shard of the fleet alone, one after
another. Its fits are kept, and then all are given to the real leader, once a window. So two cores are enough, however
large the fleet.

    make bench NAME=clock-scale ARGS="--nics 1000 10000 --json FILE"
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import structlog

from bench import place
from bench.clock_scale.served import CLOSED, READY, TAKEN, TELL_EVERY, Job
from bench.document import Document
from bench.fleet_figures import Usage
from foliot.bus.client import Bus
from foliot.node.shard import ShardSettings
from foliot.runtime.supervisor import LAST, Supervisor, nats_server
from foliot.settings import BusSettings
from foliot_lab.measure.budget import ProcessLoad
from foliot_lab.simulate.clocks.large_fleet import WINDOW_NS
from foliot_lab.simulate.synthetic_fleet import SyntheticFleet
from foliot_schemas.subjects import CLOCK, FITS, STAMPS

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from foliot_lab.simulate.clocks.large_fleet import LargeFleet
    from foliot_schemas.clock import ClockState

_AHEAD = 10 * TELL_EVERY
"""Batches that may be on their way, so that the bus holds few."""
_PATIENCE_S = 120.0
"""The wait for a shard."""
_BUSY = 1.0
"""Processors that the machine must have. The generator, the bus and the measured stage wait for each other, and only
CPU time counts. So more processors only end it sooner."""
_ASKED = 100
"""Clocks whose states are compared with the truth."""


class Row(msgspec.Struct, kw_only=True):
    """One stage, all shards together."""

    bench: str = "clock-scale"
    nics: int
    pairs: int
    stage: str
    cpu_s_per_window: float
    """Median of the judged windows."""
    bytes_per_window: int
    """Bytes in and out of the process, by NATS."""
    shards: int
    streams: int
    """Streams of each pair of clocks."""


class Bench:
    """A fleet of one size, on a bus of its own."""

    def __init__(self, arguments: argparse.Namespace, nics: int, shards: int, folder: Path) -> None:
        self._arguments = arguments
        self._nics = nics
        self._fleet = SyntheticFleet(nics)
        self._borders = [nics * number // shards for number in range(shards + 1)]
        self._starts = tuple(self._fleet.name(border) for border in self._borders[1:-1])
        self._folder = folder
        self._url = f"nats://127.0.0.1:{arguments.port}"
        self._supervisor = Supervisor()
        self._ready, self._closed = asyncio.Event(), asyncio.Event()
        self._taken, self._moved = 0, asyncio.Event()
        self._told: dict[str, Any] = {}
        self._fits: list[list[tuple[str, bytes]]] = [[] for _ in range(self.windows)]
        self._window = 0
        self._states: dict[str, ClockState] = {}
        self._stages: dict[str, list[list[tuple[float, int]]]] = {}
        """The costs of each process, by stage and window."""
        self.memory_mb: dict[str, float] = {}
        self._bus: Bus

    @property
    def windows(self) -> int:
        """The number of windows, judged or not."""
        return int(self._arguments.settle + self._arguments.windows)

    async def run(self) -> tuple[list[Row], dict[str, float]]:
        """The rows, and the clocks' errors at the end."""
        await self._supervisor.start(
            nats_server(str(self._folder), port=self._arguments.port, log_file=str(self._folder / "nats.log"))
        )
        try:
            self._bus = await Bus.connect(BusSettings(url=self._url), "bench")
            await self._listen()
            for number in range(len(self._borders) - 1):
                await self._serve_shard(number)
            errors = await self._serve_leader()
            await self._bus.close()
        finally:
            await self._supervisor.stop(LAST)
        return self._rows(), errors

    async def _listen(self) -> None:
        client = self._bus._client  # noqa: SLF001 - the bench's own subjects, and bytes as they are

        async def took(message: Any) -> None:
            self._taken = int(message.data)
            self._moved.set()

        async def closed(message: Any) -> None:
            self._told = msgspec.json.decode(message.data)
            self._closed.set()

        async def ready(_: Any) -> None:
            self._ready.set()

        async def fits(message: Any) -> None:
            self._fits[self._window].append((message.subject, message.data))

        for subject, handler in ((TAKEN, took), (CLOSED, closed), (READY, ready), (FITS.all, fits)):
            await client.subscribe(subject, cb=handler)
        for number in np.unique(np.linspace(0, self._nics - 1, _ASKED).astype(int)).tolist():
            await self._bus.subscribe(CLOCK, self._on_clock, self._fleet.name(number))

    async def _on_clock(self, state: ClockState, subject: str) -> None:  # noqa: ARG002 - the bus hands handlers both
        self._states[state.clock] = state

    @contextlib.asynccontextmanager
    async def _process(self, number: int, **more: int) -> AsyncIterator[Job]:
        """Starts a shard or the leader, and waits until it is ready."""
        shards = ShardSettings(starts=self._starts, number=number)
        job = Job(url=self._url, nodes=self._nics, streams=self._arguments.streams, shards=shards, **more)
        self._ready.clear()
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "bench.clock_scale.served", msgspec.json.encode(job).decode()
        )
        try:
            async with asyncio.timeout(_PATIENCE_S):
                await self._ready.wait()
            yield job
        finally:
            process.terminate()
            await process.wait()

    async def _serve_shard(self, number: int) -> None:
        first, last = self._borders[number : number + 2]
        async with self._process(number, first=first, last=last) as job:
            clocks = job.clocks()
            for window in range(self.windows):
                self._window = window
                with self._measured("nats: stamps"):
                    await self._play(clocks, first, last)
                clocks.next()

    async def _play(self, clocks: LargeFleet, first: int, last: int) -> None:
        """Publishes the stamps of a shard's window, no faster than they are read."""
        self._taken, sent = 0, 0
        self._closed.clear()
        client = self._bus._client  # noqa: SLF001 - the batches are encoded already
        for begin in range(first, last, TELL_EVERY):
            for name, data in clocks.batches(begin, min(begin + TELL_EVERY, last)):
                await client.publish(STAMPS.subject(name), data)
                sent += 1
            await client.flush()
            async with asyncio.timeout(_PATIENCE_S):
                while sent - self._taken > _AHEAD:
                    self._moved.clear()
                    await self._moved.wait()
        await self._close("shard")

    async def _serve_leader(self) -> dict[str, float]:
        clocks = Job(url="", nodes=self._nics, streams=self._arguments.streams, shards=ShardSettings()).clocks()
        client = self._bus._client  # noqa: SLF001 - as above
        async with self._process(0):
            for window in range(self.windows):
                self._window = window
                said, self._fits[window] = self._fits[window], []
                self._closed.clear()
                with self._measured("nats: fits and states"):
                    for subject, data in said:
                        await client.publish(subject, data)
                    await self._close("leader")
                if window < self.windows - 1:
                    clocks.next()
        return self._errors(clocks)

    async def _close(self, who: str) -> None:
        async with asyncio.timeout(_PATIENCE_S):
            await self._closed.wait()
        for stage, (cost_s, count) in self._told["stages"].items():
            self._note(stage, cost_s, count)
        self.memory_mb[who] = max(self.memory_mb.get(who, 0.0), round(self._told["rss_mb"]))

    @contextlib.contextmanager
    def _measured(self, stage: str) -> Any:
        """The server's CPU time during a stage."""
        began_s = time.monotonic()
        usage = Usage({"nats": self._supervisor.pid("nats")}, began_s)
        yield
        now_s = time.monotonic()
        self._note(stage, usage.costs(now_s)["nats"].cpu * (now_s - began_s), 0)

    def _note(self, stage: str, cost_s: float, count: int) -> None:
        windows = self._stages.setdefault(stage, [[] for _ in range(self.windows)])
        windows[self._window].append((cost_s, count))

    def _rows(self) -> list[Row]:
        clocks = Job(url="", nodes=self._nics, streams=self._arguments.streams, shards=ShardSettings()).clocks()
        rows = []
        for stage, windows in self._stages.items():
            sums = np.array([np.sum(shards, axis=0) for shards in windows[self._arguments.settle :]])
            rows.append(
                Row(
                    nics=self._nics,
                    pairs=clocks.pairs,
                    stage=stage,
                    cpu_s_per_window=round(float(np.median(sums[:, 0])), 4),
                    bytes_per_window=int(np.median(sums[:, 1])),
                    shards=len(self._borders) - 1,
                    streams=self._arguments.streams,
                )
            )
        return rows

    def _errors(self, clocks: LargeFleet) -> dict[str, float]:
        """The errors of the clocks asked for, a third of a window after the last window's end.

        They are against the reference or, without one, against the first of these clocks.
        """
        numbers = np.array([int(name.removeprefix("node")) for name in sorted(self._states)])
        late_ns = WINDOW_NS * 4 / 3
        local_ns = clocks.local_ns(numbers, np.full(len(numbers), late_ns)).tolist()
        said = [self._states[self._fleet.name(n)].reference_ns(at) for n, at in zip(numbers, local_ns, strict=True)]
        # As floats, times since 1970 are good to 256 ns.
        apart = np.array([each - said[0] for each in said], np.float64)
        wrong = np.abs(apart - np.median(apart))
        bounds = [self._states[self._fleet.name(n)].bound_at_ns(at) for n, at in zip(numbers, local_ns, strict=True)]
        statuses = [state.status for state in self._states.values()]
        return {
            "clocks": len(numbers),
            "synchronised": statuses.count("synchronised"),
            "p50_ns": float(np.median(wrong)),
            "p99_ns": float(np.percentile(wrong, 99)),
            "median_bound_ns": float(np.median(bounds)),
        }


def main() -> int:
    """Parses the command line, runs, prints a table."""
    parser = argparse.ArgumentParser(
        prog="bench.clock_scale", description=__doc__.split("\n", 1)[0] if __doc__ else None
    )
    parser.add_argument("--json", type=Path, help="write the rows to this file")
    parser.add_argument("--nics", nargs="+", type=int, default=[1_000, 10_000, 100_000])
    parser.add_argument("--shard-nics", type=int, default=10_000, help="most of a shard (default: %(default)s)")
    parser.add_argument("--streams", type=int, default=4, help="of each pair of clocks (default: %(default)s)")
    parser.add_argument("--windows", type=int, default=5, help="judged (default: %(default)s)")
    parser.add_argument("--settle", type=int, default=3, help="before them (default: %(default)s)")
    parser.add_argument("--port", type=int, default=4923, help="of the NATS server")
    parser.add_argument("--anyway", action="store_true", help="also where the machine cannot carry it")
    arguments = parser.parse_args()
    if not arguments.anyway and not place.can_carry(ProcessLoad("A generator, and one stage of sync at a time", _BUSY)):
        return place.CANNOT
    structlog.configure(
        wrapper_class=structlog.make_filtering_bound_logger(40), logger_factory=structlog.PrintLoggerFactory(sys.stderr)
    )
    document = Document("clock-scale", arguments)
    rows: list[Row] = []
    errors: dict[str, Any] = {}
    print(f"{'clocks':>8} {'pairs':>8} {'shards':>6}  {'stage':<22} {'CPU s/window':>13} {'MB/window':>10}")
    for nics in arguments.nics:
        with tempfile.TemporaryDirectory(prefix="foliot-bench-scale-") as folder:
            bench = Bench(arguments, nics, -(-nics // arguments.shard_nics), Path(folder))
            more, errors[str(nics)] = asyncio.run(bench.run())
        rows += more
        errors[str(nics)] |= {"memory_mb": bench.memory_mb}
        for row in more:
            print(
                f"{row.nics:>8} {row.pairs:>8} {row.shards:>6}  {row.stage:<22} {row.cpu_s_per_window:>13.3f} "
                f"{row.bytes_per_window / 1e6:>10.2f}",
                flush=True,
            )
        print(f"{nics:>8} in the end: {errors[str(nics)]}", flush=True)
    if arguments.json:
        document.write(arguments.json, rows, ends=errors)
    return 0


if __name__ == "__main__":
    sys.exit(main())
