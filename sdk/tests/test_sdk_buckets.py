"""What watchers of a bucket are told when the bus could not keep a value."""

from __future__ import annotations

import asyncio
import contextlib
import resource

import nats.errors
import pytest

from foliot.bus import Bus
from foliot_schemas import NodePaths
from foliot_schemas.subjects import PATHS

pytestmark = pytest.mark.nats


async def test_a_value_that_was_heard_and_not_stored_is_not_followed_by_the_one_before_it(nats_server):
    """A node would go back to what its remediator had changed its mind about; the writer writes again until it is stored."""
    writer, watcher = [await Bus.connect(nats_server.settings, name) for name in ("writer", "watcher")]
    told = []

    async def changed(_key, paths):
        told.append(paths.away)

    async def until(count):
        async with asyncio.timeout(20):
            while len(told) < count:  # noqa: ASYNC110 - the bus sets no event of ours
                await asyncio.sleep(0.02)

    away, home, other = (
        NodePaths(node="node1", lease_revision=1, away=rails) for rails in (("rail0",), (), ("rail1",))
    )
    await writer.put(PATHS, "node1", away)
    await watcher.watch(PATHS, changed)
    await until(1)
    no_room = (0, resource.RLIM_INFINITY)
    resource.prlimit(nats_server.process.pid, resource.RLIMIT_FSIZE, no_room)
    with contextlib.suppress(nats.errors.Error, TimeoutError):
        await writer.put(PATHS, "node1", home)
    await until(2)
    await nats_server.kill()
    await nats_server.start()
    async with asyncio.timeout(20):
        # The present values have been told again when nothing is under way any more.
        while not watcher.connected or watcher._tasks:  # noqa: ASYNC110 - as above
            await asyncio.sleep(0.02)
        while True:
            with contextlib.suppress(nats.errors.Error, TimeoutError):
                await writer.put(PATHS, "node1", other)
                break
            await asyncio.sleep(0.1)
    async with asyncio.timeout(20):
        while told[-1] != ("rail1",):  # noqa: ASYNC110 - as above
            await asyncio.sleep(0.02)

    assert told[:2] == [("rail0",), ()]
    assert ("rail0",) not in told[2:]
    for bus in (writer, watcher):
        await bus.close()
