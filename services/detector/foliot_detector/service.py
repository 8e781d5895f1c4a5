"""The detector's shell: observations off the bus, events onto it."""

from __future__ import annotations

import asyncio
import functools
from typing import TYPE_CHECKING

import msgspec
import structlog

from foliot import tracing
from foliot.bus.recent_ids import RecentIds
from foliot.bus.retry import until_done
from foliot.clock import BusClock
from foliot.node.shard import WHOLE, ShardSettings
from foliot.runtime.service import keep_what_is_loaded, on_bus
from foliot.settings import load
from foliot_detector.core.pipeline import Pipeline
from foliot_detector.settings import DetectorSettings
from foliot_schemas import Job, Node, NodePaths, event_kinds
from foliot_schemas.subjects import (
    CLOCK,
    COLLECTIVE,
    DELAY,
    EVENT,
    FLOW,
    GPU,
    HOPS,
    INVENTORY,
    JOBS,
    PATHS,
    PORT,
    WORKER,
)

if TYPE_CHECKING:
    from foliot.bus.client import Bus
    from foliot.node.shard import Shard
    from foliot_detector.core.protocol import Observation
    from foliot_schemas import (
        ClockState,
        CollectiveBatch,
        DelayBatch,
        Event,
        FlowBatch,
        GpuError,
        HopBatch,
        PortState,
        WorkerBatch,
    )

log = structlog.get_logger()

_TICK_S = 0.01
_COUNTS_EVERY_S = 60.0
_ROOTS = 4_096
"""Faults remembered to have a root span: an hour of them at the highest rate planned for."""


class DetectorService:
    """Feeds a fan-out from the bus and publishes what it says."""

    def __init__(self, bus: Bus, clock: BusClock, settings: DetectorSettings, shard: Shard = WHOLE) -> None:
        self._bus = bus
        self._clock = clock
        self._shard = shard
        self._fan_out = Pipeline(settings, shard)
        self._measured_ns = clock.local_ns()
        self._roots = RecentIds(_ROOTS)

    async def run(self) -> None:
        """Subscribes, then lets deadlines pass, forever."""
        await self._bus.watch(INVENTORY, self._on_node)
        await self._resume()
        inventory = self._fan_out.inventory
        # A whole fleet's detector counts whom it does not know; a shard's does not even decode what others see to.
        nodes, clocks = (
            (None, None) if self._shard.is_whole else (inventory.nodes.__contains__, inventory.clocks.__contains__)
        )
        await self._bus.subscribe(CLOCK, self._on_clock, about=clocks)
        await self._bus.watch(PATHS, self._on_paths, about=nodes)
        await self._bus.watch(JOBS, self._on_job)
        for channel in (PORT, DELAY, FLOW, HOPS):
            await self._bus.subscribe(channel, self._on_observation, about=nodes)
        # A job's ranks run anywhere, and one shard judges all of them.
        await self._bus.subscribe(COLLECTIVE, self._on_ranks)
        await self._bus.subscribe(WORKER, self._on_ranks)
        await self._bus.subscribe(GPU, self._on_gpu_error, about=nodes)
        keep_what_is_loaded()
        log.info("detector_started", **msgspec.structs.asdict(self._shard))
        counted: dict[str, int] = {}
        loop = asyncio.get_running_loop()
        count_at_s = loop.time() + _COUNTS_EVERY_S
        while True:
            await asyncio.sleep(_TICK_S)
            started_ns = self._clock.now_ns()
            self._publish(self._fan_out.tick(self._elapsed_ns()), started_ns)
            for failure in self._fan_out.failures():
                log.error("detector_failed", **failure._asdict())
            if loop.time() > count_at_s:
                count_at_s += _COUNTS_EVERY_S
                if counted != (counted := dict(self._fan_out.counts)):
                    log.info("observations_dropped", **counted)

    async def _resume(self) -> None:
        """Takes up what an earlier run left open: nobody else would ever say that it is over."""
        for kind in event_kinds.published_by("detector"):
            read = functools.partial(self._bus.newest, EVENT, kind.name, "")
            for event in await until_done(read, "events_awaited", kind=kind.name):
                self._fan_out.resume(event)

    async def _on_node(self, key: str, node: Node | None) -> None:
        self._observe(Node(name=key, nics=()) if node is None else node)

    async def _on_clock(self, state: ClockState, subject: str) -> None:  # noqa: ARG002 - the bus hands handlers both
        self._observe(state)

    async def _on_paths(self, key: str, paths: NodePaths | None) -> None:
        self._observe(NodePaths(node=key, lease_revision=0) if paths is None else paths)

    async def _on_job(self, key: str, job: Job | None) -> None:
        self._observe(Job(name=key, nics=()) if job is None else job)

    async def _on_observation(
        self,
        observation: PortState | DelayBatch | FlowBatch | HopBatch | CollectiveBatch | WorkerBatch,
        subject: str,  # noqa: ARG002 - as above
    ) -> None:
        self._clock.learn(observation.at_ns)
        self._observe(observation)

    async def _on_ranks(self, batch: CollectiveBatch | WorkerBatch, subject: str) -> None:
        if self._shard.owns(batch.job):
            await self._on_observation(batch, subject)

    async def _on_gpu_error(self, error: GpuError, subject: str) -> None:  # noqa: ARG002 - as above
        self._observe(error)  # it may be old, so that nobody learns the time from it

    def _observe(self, observation: Observation) -> None:
        started_ns = self._clock.now_ns()
        self._publish(self._fan_out.observe(observation, self._elapsed_ns()), started_ns)

    def _elapsed_ns(self) -> int:
        before_ns, self._measured_ns = self._measured_ns, self._clock.local_ns()
        return self._measured_ns - before_ns

    def _publish(self, events: list[Event], started_ns: int) -> None:
        for event in events:
            kind = event_kinds.find(event.kind)
            if kind is None:
                log.error("event_of_unknown_kind", id=event.id, kind=event.kind)
                continue
            root = kind.begins_trace and not event.cause and self._roots.add(event.fault)
            with tracing.span(
                kind.span_name, fault=event.fault, kind="consumer", root=root, start_ns=started_ns,
                event=event.id, event_kind=event.kind, who=event.who, state=event.state,
            ):  # fmt: skip
                self._bus.publish_kept(EVENT, event, event.kind, event.who)
            log.info("event_published", id=event.id, kind=event.kind, who=event.who, state=event.state)


async def main() -> None:
    """Runs the detector until it is cancelled."""
    settings, shard, clock = load(DetectorSettings, "detector"), load(ShardSettings, "shard").shard(), BusClock()
    async with on_bus("detector", clock) as bus:
        await DetectorService(bus, clock, settings, shard).run()
