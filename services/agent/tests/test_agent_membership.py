"""A node's place after the bus has lost its store: real agents, and a real server that begins anew."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from foliot.node.identity_claims import ClaimError, claim
from foliot_schemas.subjects import CLAIMS, INVENTORY, REJECTED
from patience import patience

pytestmark = [pytest.mark.net, pytest.mark.nats]


@pytest.fixture
async def bus(fleet, bus):
    """A central service's connection; node0 and node1 run."""
    for host in fleet.hosts[:2]:
        await host.start()
    for host in fleet.hosts[:2]:
        await host.ready()
    return bus


async def eventually(read, expected):
    """Waits for what a question to the bus is answered with."""
    async with asyncio.timeout(patience(60)):
        while await read() != expected:  # noqa: ASYNC110 - the bus sets no event of ours
            await asyncio.sleep(0.05)


def holder(bus, key):
    """Asks who has claimed this."""

    async def read():
        found = await bus.get(CLAIMS, key)
        return found.node if found is not None else None

    return read


def newcomer(fleet):
    """A node of another name that wants node0's index and addresses."""
    return msgspec.structs.replace(fleet.hosts[0].settings, name="other")


async def test_a_place_that_the_bus_forgot_is_claimed_again(fleet, bus):
    """Before anybody else can have it: a new node with the same index and addresses is refused as ever."""
    await fleet.server.begin_anew()
    for index in (0, 1):
        for key in (
            f"node-node{index}",
            f"index-{index}",
            f"address-10.0.0.{index + 1}",
            f"address-10.1.0.{index + 1}",
        ):
            await eventually(holder(bus, key), f"node{index}")
    with pytest.raises(ClaimError, match="index 0 is taken by node 'node0'"):
        await claim(bus, newcomer(fleet), "another host")


async def test_a_place_that_another_took_meanwhile_is_said_and_left_to_it(fleet, bus, until):
    """The node writes no record beside the other's and goes on as it is; when the place is free again, it takes it."""
    host = fleet.hosts[0]
    rejected = []

    async def hear(message, _subject):
        rejected.append(message)

    await bus.subscribe(REJECTED, hear)
    fleet.cut("front-0")
    await fleet.until(lambda: "bus_away" in host.log, "node0 misses the bus")
    await fleet.server.begin_anew()
    await eventually(holder(bus, "index-1"), "node1")
    await claim(bus, newcomer(fleet), "another host")
    fleet.cut("front-0", "up")
    taken = {CLAIMS.subject(key) for key in ("index-0", "address-10.0.0.1", "address-10.1.0.1")}
    await until(lambda: {each.subject for each in rejected} >= taken)

    assert "index 0 is taken by node 'other'" in host.log
    assert {each.subject for each in rejected} == taken
    assert await bus.get(INVENTORY, "node0") is None
    assert await holder(bus, "node-node0")() == "node0"
    assert "10.200.0.1/32" in host.ip("addr show foliot0")

    store = await bus.store(CLAIMS)
    for key in ("index-0", "address-10_2e0_2e0_2e1", "address-10_2e1_2e0_2e1"):
        await store.delete(key)
    await eventually(holder(bus, "index-0"), "node0")
    async with asyncio.timeout(patience(60)):
        while await bus.get(INVENTORY, "node0") is None:  # noqa: ASYNC110 - the bus sets no event of ours
            await asyncio.sleep(0.05)
