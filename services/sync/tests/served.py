"""Sync at work on a real bus, fed with a fleet's stamps."""

from __future__ import annotations

import asyncio
import contextlib

from foliot.bus.client import Bus
from foliot.clock import BusClock
from foliot.node.shard import ShardSettings
from foliot_schemas import Nic, Node
from foliot_schemas.subjects import CLOCK, INVENTORY, STAMPS
from foliot_sync.service import Sync
from foliot_sync.settings import SyncSettings
from patience import patience

SETTINGS = SyncSettings(window_s=0.2, void_after_windows=500)
_LASTS_S = 600.0
"""Longer than any test feeds."""


@contextlib.asynccontextmanager
async def syncing(settings, shards=None):
    """Sync at work; yields the task, for tests that let it die."""
    bus = await Bus.connect(settings, "sync")
    sync = Sync(bus, BusClock("sync"), SETTINGS, shards or ShardSettings())
    task = asyncio.create_task(sync.run())
    task.sync = sync
    try:
        yield task
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
        await bus.close()


async def crash(task):
    """Ends it as SIGKILL would: its leases have to run out."""

    async def keep_it():
        pass

    for part in (task.sync._gatherer, task.sync._leader):
        part._lease._give_back = keep_it
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task


async def feed(bus, fleet, heard, until):
    """Publishes the stamps of a window after the other, from where it was left on, each when it is over, until sync's states are as wished."""
    states, loop = {}, asyncio.get_running_loop()
    fleet.fed = getattr(fleet, "fed", 0)
    async with asyncio.timeout(patience(60)):
        while "node0" not in states or not until(states):
            over_s = loop.time() + SETTINGS.window_s
            for node in range(fleet.nodes):
                await bus.publish(STAMPS, fleet.batch(node, fleet.fed), fleet.names[node])
            fleet.fed += 1
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout_at(over_s):
                    while True:
                        state = await heard.get()
                        states[state.clock] = state
        return states


def record(name):
    """A node's inventory record."""
    nics = tuple(
        Nic(
            name=f"{name}.rail{rail}", rail=f"rail{rail}", device=f"nic{rail}", address="10.0.0.1", clock=name,
            service_address="10.200.0.1", path_addresses=("100.64.0.1",) * 4, entropies=(0, 1, 2, 3),
        )
        for rail in (0, 1)
    )  # fmt: skip
    return Node(name=name, nics=nics)


async def listen(bus):
    """A queue of the states that sync publishes; the fleet's nodes are in the inventory."""
    for number in range(4):
        await bus.put(INVENTORY, f"node{number}", record(f"node{number}"))
    heard = asyncio.Queue()

    async def put(state, subject):
        await heard.put(state)

    await bus.subscribe(CLOCK, put)
    return heard


def small_fleet(start, **more):
    """Four nodes with short windows and many probes.

    Their clocks wander little: on a slow machine, more windows pass between two words.
    """
    return start(
        seed=21, nodes=4, load=0.0, rates=(200.0,), wander_ppb=5.0, window_s=SETTINGS.window_s, seconds=_LASTS_S, **more
    ).fleet


def all_synchronised(states):
    """Whether every clock of the fleet is."""
    return len(states) == 4 and all(state.status == "synchronised" for state in states.values())


def all_told(states):
    """Whether a word on every clock has come."""
    return len(states) == 4
