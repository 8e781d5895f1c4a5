"""The shell on a real bus: stamps in, clocks out, and a restart that nobody notices."""

from __future__ import annotations

import asyncio

import msgspec
import pytest
from served import all_synchronised, all_told, feed, listen, small_fleet, syncing

from foliot_schemas.subjects import CLOCK, CLOCKS, INVENTORY, REJECTED, STAMPS
from patience import patience
from patient_bus import connected

pytestmark = [pytest.mark.nats, pytest.mark.usefixtures("late_holdover")]


async def test_stamps_become_clocks_on_the_bus_and_in_the_bucket(bus_settings, start):
    """Batches of all nodes make every clock synchronised, on its subject and in the bucket."""
    async with connected(bus_settings) as bus, syncing(bus_settings):
        heard = await listen(bus)
        fleet = small_fleet(start)

        def in_step(states):
            # By name the first that was heard in a window, which may have begun when some had spoken.
            return all_synchronised(states) and len({state.reference for state in states.values()}) == 1

        states = await feed(bus, fleet, heard, in_step)
        assert states["node0"].reference in fleet.names
        published, kept = [states["node3"]], []
        async with asyncio.timeout(patience(60)):
            while not any(state in published for state in kept):
                kept.append(await bus.get(CLOCKS, "node3"))
                published.append(await heard.get())
                while not heard.empty():
                    published.append(heard.get_nowait())


async def test_a_node_that_left_is_written_no_more(bus_settings, start, until):
    """Its clock is gone from the subject and stays gone from the bucket, while the others go on."""
    async with connected(bus_settings) as bus, syncing(bus_settings) as at_work:
        heard = await listen(bus)
        fleet = small_fleet(start)
        await feed(bus, fleet, heard, all_synchronised)
        await (await bus.store(INVENTORY)).delete("node3")
        await until(lambda: not at_work.sync._census.has_clock("node3"))
        # States of windows up to this one may be on their way.
        passed = at_work.sync._leader._synchroniser.window
        await feed(bus, fleet, heard, lambda states: states["node0"].window > passed)
        await (await bus.store(CLOCKS)).delete("node3")
        after = await feed(bus, fleet, heard, lambda states: states["node0"].window > passed + 4)
        assert set(after) == {"node0", "node1", "node2"}
        assert await bus.get(CLOCKS, "node3") is None
        assert await bus.get(CLOCKS, "node2") is not None


async def test_broken_batch_is_rejected_and_stops_nothing(bus_settings, start):
    """A batch whose columns do not fit is shown as rejected, and the next windows are closed as ever."""
    async with connected(bus_settings) as bus, syncing(bus_settings):
        heard, rejected = await listen(bus), []
        fleet = small_fleet(start)

        async def note(message, subject):
            rejected.append(message)

        await bus.subscribe(REJECTED, note)
        before = await feed(bus, fleet, heard, lambda states: "node0" in states)
        broken = msgspec.structs.replace(fleet.batch(1, 0), columns={"stream": b"\0\0"})
        async with asyncio.timeout(patience(60)):
            while not rejected:  # sync leaves out what waited while it stood still
                await bus.publish(STAMPS, broken, "node1")
                await asyncio.sleep(0.2)
        assert "no column" in rejected[0].reason
        # A window may have ended between the batches of one feeding, so that all are synchronised before node0 has
        # spoken again.
        await feed(
            bus,
            fleet,
            heard,
            lambda states: all_synchronised(states) and states["node0"].as_of_ns > before["node0"].as_of_ns,
        )


async def test_restart_keeps_the_time_scale(bus_settings, start, until):
    """Sync that starts again takes up the scale from the bucket, though the hosts' own time has moved since."""
    async with connected(bus_settings) as bus:
        heard = await listen(bus)
        fleet = small_fleet(start)
        async with syncing(bus_settings):
            before = await feed(bus, fleet, heard, all_synchronised)
            async with asyncio.timeout(patience(60)):
                while await bus.get(CLOCKS, "node0") is None:
                    await heard.get()
        while not heard.empty():
            heard.get_nowait()
        moved = small_fleet(start, epoch_ns=fleet.epoch_ns + 1_000_000)
        moved.fed = fleet.fed
        first = {}

        async def note(state, _subject):
            first.setdefault(state.clock, state)

        await bus.subscribe(CLOCK, note)
        async with syncing(bus_settings):
            after = await feed(bus, moved, heard, all_told)
            await until(lambda: all_told(first))
        assert all_synchronised(first)  # of the first word on each: they did not have to settle anew
        local_ns = after["node0"].as_of_ns
        assert abs(after["node0"].reference_ns(local_ns) - before["node0"].reference_ns(local_ns)) < 100_000
