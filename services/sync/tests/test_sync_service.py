"""The shell on a real bus: stamps in, clocks out, and a restart that nobody notices."""

from __future__ import annotations

import asyncio
import contextlib

import msgspec
import pytest

from foliot.bus import Bus
from foliot.clock import BusClock
from foliot_schemas import Nic, Node
from foliot_schemas.subjects import CLOCK, CLOCKS, INVENTORY, REJECTED, STAMPS
from foliot_sync.service import Sync
from foliot_sync.settings import SyncSettings

pytestmark = pytest.mark.nats

SETTINGS = SyncSettings(window_s=0.2)


@contextlib.asynccontextmanager
async def connected(settings, name):
    """A bus that is closed in the end."""
    bus = await Bus.connect(settings, name)
    try:
        yield bus
    finally:
        await bus.close()


@contextlib.asynccontextmanager
async def syncing(settings):
    """Sync at work; yields its bus."""
    async with connected(settings, "sync") as bus:
        task = asyncio.create_task(Sync(bus, BusClock("sync"), SETTINGS).run())
        try:
            yield bus
        finally:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task


async def feed(bus, fleet, heard, until, since=0):
    """Publishes a window of stamps for every one that sync closes, until its states are as wished."""
    window, states = since, {}
    async with asyncio.timeout(60):
        while True:
            for node in range(fleet.nodes):
                await bus.publish(STAMPS, fleet.batch(node, window), fleet.names[node])
            window += 1
            # Before sync has subscribed, what is published reaches nobody and nothing comes back.
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(2 * SETTINGS.window_s):
                    closed = states["node0"].window if "node0" in states else 0
                    while "node0" not in states or states["node0"].window == closed:
                        state = await heard.get()
                        states[state.clock] = state
            if until(states):
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
    """Four nodes with short windows and many probes."""
    return start(seed=21, nodes=4, load=0.0, rates=(200.0,), window_s=SETTINGS.window_s, **more).fleet


def all_synchronised(states):
    """Whether every clock of the fleet is."""
    return len(states) == 4 and all(state.status == "synchronised" for state in states.values())


async def test_stamps_become_clocks_on_the_bus_and_in_the_bucket(bus_settings, start):
    """Batches of all nodes make every clock synchronised, on its subject and in the bucket."""
    async with connected(bus_settings, "test") as bus, syncing(bus_settings):
        heard = await listen(bus)
        fleet = small_fleet(start)
        states = await feed(bus, fleet, heard, all_synchronised)
        assert states["node0"].reference == "node0"
        async with asyncio.timeout(20):
            while (kept := await bus.get(CLOCKS, "node3")) is None or kept.window < states["node3"].window:
                state = await heard.get()
                states[state.clock] = state
        assert kept.clock == "node3"
        assert kept.reference == "node0"


async def test_a_node_that_left_is_written_no_more(bus_settings, start):
    """Its clock is gone from the subject and stays gone from the bucket, while the others go on."""
    async with connected(bus_settings, "test") as bus, syncing(bus_settings):
        heard = await listen(bus)
        fleet = small_fleet(start)
        before = await feed(bus, fleet, heard, all_synchronised)
        await (await bus.store(INVENTORY)).delete("node3")
        passed = before["node0"].window + 2
        await feed(bus, fleet, heard, lambda states: states["node0"].window > passed, since=100)
        await (await bus.store(CLOCKS)).delete("node3")
        after = await feed(bus, fleet, heard, lambda states: states["node0"].window > passed + 4, since=200)
        assert set(after) == {"node0", "node1", "node2"}
        assert await bus.get(CLOCKS, "node3") is None
        assert await bus.get(CLOCKS, "node2") is not None


async def test_broken_batch_is_rejected_and_stops_nothing(bus_settings, start):
    """A batch whose columns do not fit is shown as rejected, and the next windows are closed as ever."""
    async with connected(bus_settings, "test") as bus, syncing(bus_settings):
        heard, rejected = await listen(bus), asyncio.Queue()
        fleet = small_fleet(start)

        async def put(message, subject):
            await rejected.put(message)

        await bus.subscribe(REJECTED, put)
        before = await feed(bus, fleet, heard, lambda states: "node0" in states)
        broken = msgspec.structs.replace(fleet.batch(1, 0), columns={"stream": b"\0\0"})
        await bus.publish(STAMPS, broken, "node1")
        async with asyncio.timeout(20):
            assert "no column" in (await rejected.get()).reason
        after = await feed(bus, fleet, heard, all_synchronised, since=100)
        assert after["node0"].window > before["node0"].window


async def test_restart_keeps_the_time_scale(bus_settings, start):
    """Sync that starts again takes up the scale from the bucket, though the hosts' own time has moved since."""
    async with connected(bus_settings, "test") as bus:
        heard = await listen(bus)
        fleet = small_fleet(start)
        async with syncing(bus_settings):
            before = await feed(bus, fleet, heard, all_synchronised)
            async with asyncio.timeout(20):
                while await bus.get(CLOCKS, "node0") is None:
                    await heard.get()
        while not heard.empty():
            heard.get_nowait()
        moved = small_fleet(start, epoch_ns=fleet.epoch_ns + 1_000_000)
        async with syncing(bus_settings):
            after = await feed(bus, moved, heard, lambda states: "node0" in states and states["node0"].window > 0)
        assert after["node0"].window < before["node0"].window
        local_ns = after["node0"].as_of_ns
        assert abs(after["node0"].reference_ns(local_ns) - before["node0"].reference_ns(local_ns)) < 100_000
