"""The shell of sync: it fits a shard's stamps and, where it leads, publishes the states of all clocks."""

from __future__ import annotations

import asyncio
import os
import secrets
import socket
from typing import TYPE_CHECKING

import msgspec
import structlog

from foliot.clock import BusClock
from foliot.node.shard import ShardSettings
from foliot.runtime.service import on_bus
from foliot.settings import load
from foliot_schemas.subjects import INVENTORY
from foliot_sync.core.fit.admission import Admission
from foliot_sync.settings import SyncSettings
from foliot_sync.shell.clock_census import ClockCensus
from foliot_sync.shell.clock_listener import ClockListener
from foliot_sync.shell.leader import Leader
from foliot_sync.shell.shard_fitter import ShardFitter

if TYPE_CHECKING:
    from foliot.bus.client import Bus
    from foliot_schemas import Node

log = structlog.get_logger()


class Sync:
    """A shard's gatherer and a leader, each of which works while it holds its lease, and stands by otherwise.

    Parameters:
        shards: those of the fleet, and which of them this process serves.
    """

    def __init__(self, bus: Bus, clock: BusClock, settings: SyncSettings, shards: ShardSettings) -> None:
        self._bus = bus
        self._shard = shards.shard()
        self._admission = Admission()
        self._census = ClockCensus(settings.asymmetry_ns)
        following, holder = ClockListener(bus), f"{socket.gethostname()}/{os.getpid()}/{secrets.token_hex(4)}"
        self._gatherer = ShardFitter(
            bus, clock, settings, shard=self._shard, admission=self._admission, following=following, holder=holder
        )
        roles = [shard.role("sync") for shard in shards.all()]
        self._leader = Leader(
            bus, clock, settings, shards=roles, census=self._census, following=following, holder=holder
        )

    async def run(self) -> None:
        """Learns the inventory, then fits and leads while it holds the leases, forever."""
        await self._bus.watch(INVENTORY, self._on_node)
        log.info("sync_started", **msgspec.structs.asdict(self._shard))
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._gatherer.run())
            tasks.create_task(self._leader.run())

    async def _on_node(self, key: str, node: Node | None) -> None:
        self._leader.leave(self._census.learn(key, node))
        concerns = node is not None and self._shard.concerns(node)
        self._admission.learn(key, node if concerns else None)
        await self._gatherer.on_node(key, node)


async def main() -> None:
    """Runs sync until it is cancelled."""
    settings, shards, clock = load(SyncSettings, "sync"), load(ShardSettings, "shard"), BusClock("sync")
    async with on_bus("sync", clock) as bus:
        await Sync(bus, clock, settings, shards).run()
