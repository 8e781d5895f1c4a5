"""A fleet shared out among several processes, of which one leads; and what becomes of it when one is lost."""

from __future__ import annotations

import contextlib

import pytest
from served import all_synchronised, all_told, crash, feed, listen, small_fleet, syncing

from foliot.node.shard import ShardSettings
from foliot_schemas.subjects import CLOCKS, FITS
from patient_bus import connected

pytestmark = [pytest.mark.nats, pytest.mark.usefixtures("late_holdover")]

STARTS = ("node2",)
FIRST, SECOND = (ShardSettings(starts=STARTS, number=number) for number in (0, 1))


class Heard:
    """Every fit that a shard told."""

    def __init__(self):
        self.terms = {}
        self.nodes = {}

    async def take(self, batch, subject):
        """One more."""
        self.terms[batch.shard] = batch.term
        self.nodes.setdefault(batch.shard, set()).update(node.node for node in batch.heard)


@contextlib.asynccontextmanager
async def a_fleet(bus_settings, start):
    """A bus to talk on, the fleet, and what its shards and the leader say."""
    async with connected(bus_settings) as bus:
        heard, fits = await listen(bus), Heard()
        await bus.subscribe(FITS, fits.take)
        yield bus, small_fleet(start), heard, fits


def went_on(before, after, steady=("node0", "node1", "node2", "node3")):
    """That every clock's new word is the old one's.

    But for what a window corrects, and that none of those to be steady fell out of step.
    """
    assert {after[name].status for name in steady} == {"synchronised"}
    for name, state in after.items():
        local_ns = state.as_of_ns
        assert abs(state.reference_ns(local_ns) - before[name].reference_ns(local_ns)) < 1_000


def all_solved(states):
    """Whether every clock is synchronised by a window in which all pairs were measured, whichever shard fits them."""
    return all_synchronised(states) and {state.neighbours for state in states.values()} == {3}


async def test_shards_see_to_their_own_nodes_and_one_solves_them_all(bus_settings, start):
    """What is between nodes of two of them is in the mesh like all the rest."""
    async with (
        a_fleet(bus_settings, start) as (bus, fleet, heard, fits),
        syncing(bus_settings, FIRST),
        syncing(bus_settings, SECOND),
    ):
        await feed(bus, fleet, heard, all_solved)
    assert fits.nodes == {"sync": {"node0", "node1"}, "sync-node2": {"node2", "node3"}}


async def test_a_lost_shard_is_replaced(bus_settings, start):
    """By whoever stands by for it, as soon as its lease has run out.

    Clocks go on meanwhile by what others measure of them.
    """
    async with (
        a_fleet(bus_settings, start) as (bus, fleet, heard, fits),
        syncing(bus_settings, FIRST),
        syncing(bus_settings, SECOND) as lost,
    ):
        before = await feed(bus, fleet, heard, lambda states: all_synchronised(states) and "sync-node2" in fits.terms)
        async with syncing(bus_settings, SECOND):
            term = fits.terms["sync-node2"]
            await crash(lost)
            after = await feed(bus, fleet, heard, lambda _: fits.terms["sync-node2"] > term)
        went_on(before, after)


@pytest.mark.parametrize("forgotten", [False, True], ids=["bucket", "no bucket"])
async def test_a_lost_leader_is_replaced_without_a_jump(bus_settings, start, forgotten):
    """By any other process, whose first word is that all are in step as they were.

    If the bus has lost its memory just then, it knows of those that it follows.
    """
    async with (
        a_fleet(bus_settings, start) as (bus, fleet, heard, _),
        syncing(bus_settings, FIRST) as lost,
    ):
        await feed(bus, fleet, heard, all_told)
        async with syncing(bus_settings, SECOND), syncing(bus_settings, FIRST):
            before = await feed(bus, fleet, heard, all_synchronised)
            window = before["node0"].window + 3
            before = await feed(bus, fleet, heard, lambda states: states["node0"].window > window)
            await crash(lost)
            if forgotten:
                for name in fleet.names:
                    await (await bus.store(CLOCKS)).delete(name)
            while not heard.empty():
                state = heard.get_nowait()
                before[state.clock] = state
            after = await feed(bus, fleet, heard, all_told)
        followed = [("node0", "node1"), ("node2", "node3")][after["node0"].reference in {"node2", "node3"}]
        went_on(before, after, followed if forgotten else fleet.names)
