"""A shard of sync, or its leader, at work on the bus, with the cost of each of its stages.

The bench starts it as a process of its own.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from typing import TYPE_CHECKING, Any

import msgspec

from bench.processes import rss_mb
from foliot.bus.client import Bus
from foliot.clock import BusClock
from foliot.node.shard import ShardSettings  # noqa: TC001 - msgspec reads it
from foliot.runtime.service import keep_what_is_loaded, set_up_logs
from foliot.settings import BusSettings
from foliot_lab.simulate.clocks.large_fleet import LargeFleet
from foliot_lab.simulate.synthetic_fleet import SyntheticFleet
from foliot_sync.core.fit.admission import Admission
from foliot_sync.settings import SyncSettings
from foliot_sync.shell.clock_census import ClockCensus
from foliot_sync.shell.clock_listener import ClockListener
from foliot_sync.shell.leader import Leader
from foliot_sync.shell.shard_fitter import ShardFitter

if TYPE_CHECKING:
    from collections.abc import Awaitable

READY, TAKEN, CLOSED = "bench.ready", "bench.taken", "bench.closed"
_NEVER_LATE_S = 3_600.0
TELL_EVERY = 100
"""Batches between two messages about progress."""


class Job(msgspec.Struct, kw_only=True):
    """The work of the process."""

    url: str
    nodes: int
    streams: int
    shards: ShardSettings
    first: int = 0
    last: int = 0
    """The shard's nodes, from one up to another; 0: it is the leader."""

    def clocks(self) -> LargeFleet:
        """The fleet, which is the same in every process."""
        return LargeFleet(SyntheticFleet(self.nodes), streams=self.streams)


class Meter:
    """The costs of the stages of a window, one after another."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus
        self.stages: dict[str, tuple[float, int]] = {}
        """CPU seconds of the process, and bytes that it read or wrote."""
        self.begin()

    def begin(self) -> None:
        """Begins a stage."""
        self._at_s, self._bytes = time.process_time(), self._traffic()

    def end(self, stage: str) -> None:
        """Ends a stage of this name."""
        before_s, before = self._at_s, self._bytes
        self.begin()
        cost_s, count = self.stages.get(stage, (0.0, 0))
        self.stages[stage] = cost_s + self._at_s - before_s, count + self._bytes - before

    def _traffic(self) -> int:
        stats: Any = self._bus._client.stats  # noqa: SLF001 - nats-py counts bytes there, and the bus hides it
        return int(stats["in_bytes"] + stats["out_bytes"])

    async def tell(self) -> None:
        """Publishes that the window is closed."""
        told = msgspec.json.encode({"stages": self.stages, "rss_mb": rss_mb(os.getpid())})
        self.stages = {}
        # Before the publication: that brings the next window's batches, perhaps before the flush is over.
        self.begin()
        await self._bus._client.publish(CLOSED, told)  # noqa: SLF001 - as above
        await self._bus._client.flush()  # noqa: SLF001


class All:
    """Waits for all nodes, however long the played fleet takes.

    The bench's machine has less time than one machine per node.
    """

    def __init__(self, expected: int, bus: Bus, meter: Meter) -> None:
        self._expected, self._bus, self._meter = expected, bus, meter
        self._count = 0
        self._telling: set[asyncio.Future[None]] = set()
        self._all = asyncio.Event()

    def heard(self, node: str) -> None:  # noqa: ARG002 - each speaks once
        """A node has spoken."""
        self._count += 1
        if self._count % TELL_EVERY == 0 or self._count == self._expected:
            telling = self._bus._client.publish(TAKEN, b"%d" % self._count)  # noqa: SLF001 - the bench's own subject
            self._telling.add(asyncio.ensure_future(telling))
        if self._count == self._expected:
            self._all.set()

    async def gather(self) -> None:
        """Waits until all have spoken."""
        await self._all.wait()
        self._all.clear()
        self._count = 0
        self._telling.clear()
        self._meter.end("stamps: read")


class MeasuredGatherer(ShardFitter):
    """A shard whose windows end when all of its nodes have spoken."""

    def __init__(self, *arguments: Any, **more: Any) -> None:
        super().__init__(*arguments, **more)
        self.listening = asyncio.Event()

    async def _in_step(self) -> None:
        """Does not wait for the time: it has subscribed to its nodes."""
        self.listening.set()

    async def _window_end(self) -> None:
        """Ends the window when all nodes have spoken."""


async def serve_shard(job: Job, bus: Bus) -> None:
    """Serves a shard until the process is ended."""
    clocks, fleet = job.clocks(), SyntheticFleet(job.nodes)
    roster, shard = Admission(), job.shards.shard()
    for number in clocks.partners(job.first, job.last):
        roster.learn(fleet.name(number), fleet.node(number))
    gatherer = MeasuredGatherer(
        bus, BusClock(), SyncSettings(), shard=shard, admission=roster, following=ClockListener(bus), holder="bench"
    )
    # Nothing that the bench plays is ever too late, and a shard that had left anything out would wait in vain.
    gatherer._late_s = _NEVER_LATE_S  # noqa: SLF001
    meter = Meter(bus)
    gatherer._barrier = All(job.last - job.first, bus, meter)  # type: ignore[assignment]  # noqa: SLF001
    fit, close = gatherer._fitter.fit, gatherer._close  # noqa: SLF001

    def measured_fit(*arguments: Any) -> Any:
        meter.begin()
        fits = fit(*arguments)
        meter.end("pairs: fitted")
        return fits

    async def measured_close() -> None:
        await close()
        await bus._client.flush()  # noqa: SLF001
        meter.end("fits: told")
        await meter.tell()

    gatherer._fitter.fit, gatherer._close = measured_fit, measured_close  # type: ignore[method-assign,assignment]  # noqa: SLF001
    for number in range(job.first, job.last):
        await gatherer.on_node(fleet.name(number), fleet.node(number))
    await work(gatherer, gatherer.listening.wait(), bus)


async def serve_leader(job: Job, bus: Bus) -> None:
    """Serves the leader until the process is ended."""
    fleet, census = SyntheticFleet(job.nodes), ClockCensus({})
    for number in range(job.nodes):
        census.learn(fleet.name(number), fleet.node(number))
    roles = [shard.role("sync") for shard in job.shards.all()]
    leader = Leader(
        bus, BusClock(), SyncSettings(), shards=roles, census=census, following=ClockListener(bus), holder="bench"
    )
    meter = Meter(bus)
    solve, put_all, told = leader._solve, bus.put_all, asyncio.Event()  # noqa: SLF001

    async def measured_solve(term: int) -> None:
        synchroniser = leader._synchroniser  # noqa: SLF001
        weigh = type(synchroniser).weigh

        def measured_weigh(*arguments: Any) -> Any:
            meter.end("fits: read")
            states = weigh(synchroniser, *arguments)
            meter.end("mesh: solved")
            return states

        synchroniser.weigh = measured_weigh  # type: ignore[method-assign,assignment]
        await solve(term)
        await bus._client.flush()  # noqa: SLF001
        meter.end("states: told")
        told.set()

    async def measured_put_all(*arguments: Any) -> None:
        await told.wait()
        told.clear()
        meter.begin()
        await put_all(*arguments)
        meter.end("states: kept")
        await meter.tell()

    leader._solve, bus.put_all = measured_solve, measured_put_all  # type: ignore[method-assign,assignment]  # noqa: SLF001
    await work(leader, leader._lease.taken(), bus)  # noqa: SLF001


async def work(part: ShardFitter | Leader, begun: Awaitable[object], bus: Bus) -> None:
    """Runs the work, and publishes that it has begun."""
    keep_what_is_loaded()
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(part.run())
        await begun
        await bus._client.publish(READY, b"")  # noqa: SLF001


async def main() -> None:
    """Serves the job in its argument."""
    job = msgspec.json.decode(sys.argv[1], type=Job)
    bus = await Bus.connect(BusSettings(url=job.url), "sync")
    await (serve_shard if job.last else serve_leader)(job, bus)


if __name__ == "__main__":
    set_up_logs("warning")
    asyncio.run(main())
