"""What watchers of a bucket are told when the bus could not keep a value."""

from __future__ import annotations

import asyncio
import contextlib
import resource

import nats.errors
import pytest
from nats.js.errors import BucketNotFoundError

from foliot.bus import key_value_read
from foliot.bus.client import Bus
from foliot.bus.key_value_watch import WRITTEN
from foliot_schemas import NodePaths, encode
from foliot_schemas.subjects import HOMES, INVENTORY, PATHS
from patience import patience

pytestmark = pytest.mark.nats

_LISTED_AT_ONCE = 100_000
"""Of a stream's subjects, by the server."""


async def test_a_value_that_was_heard_and_not_stored_is_not_followed_by_the_one_before_it(nats_server):
    """A node would go back to what its remediator had changed its mind about.

    The writer writes again until it is stored.
    """
    writer, watcher = [await Bus.connect(nats_server.settings, name) for name in ("writer", "watcher")]
    told = []

    async def changed(_key, paths):
        told.append(paths.away)

    async def until(count):
        async with asyncio.timeout(patience(20)):
            while len(told) < count:  # noqa: ASYNC110 - the bus sets no event of ours
                await asyncio.sleep(0.02)

    away, home, other = (
        NodePaths(node="node1", lease_revision=1, away=rails) for rails in (("rail0",), (), ("rail1",))
    )
    await writer.put(PATHS, "node1", away)
    await watcher.watch(PATHS, changed)
    await until(1)
    at_rest = set(watcher._tasks)
    no_room = (0, resource.RLIM_INFINITY)
    resource.prlimit(nats_server.process.pid, resource.RLIMIT_FSIZE, no_room)
    with contextlib.suppress(nats.errors.Error, TimeoutError):
        await writer.put(PATHS, "node1", home)
    await until(2)
    await nats_server.kill()
    await nats_server.start()
    async with asyncio.timeout(patience(60)):
        # The present values have been told again when nothing is under way any more.
        while not watcher.connected or watcher._tasks != at_rest:  # noqa: ASYNC110 - as above
            await asyncio.sleep(0.02)
        while True:
            with contextlib.suppress(nats.errors.Error, TimeoutError):
                await writer.put(PATHS, "node1", other)
                break
            await asyncio.sleep(0.1)
    async with asyncio.timeout(patience(20)):
        while told[-1] != ("rail1",):  # noqa: ASYNC110 - as above
            await asyncio.sleep(0.02)

    assert told[:2] == [("rail0",), ()]
    assert ("rail0",) not in told[2:]
    for bus in (writer, watcher):
        await bus.close()


async def test_a_value_that_cannot_be_sent_now_is_not_sent_later(nats_server):
    """Another may have written by then."""
    writer = await Bus.connect(nats_server.settings, "writer")
    before, late = (NodePaths(node="node1", lease_revision=1, away=rails) for rails in ((), ("rail0",)))
    await writer.put(PATHS, "node1", before)
    await nats_server.kill()
    async with asyncio.timeout(patience(20)):
        while writer.connected:  # noqa: ASYNC110 - as above
            await asyncio.sleep(0.02)
    with pytest.raises(nats.errors.Error):
        await writer.put(PATHS, "node1", late)
    with pytest.raises(nats.errors.Error):
        await writer.put_all(PATHS, {"node1": late})
    await nats_server.start()
    async with asyncio.timeout(patience(60)):
        while not writer.connected:  # noqa: ASYNC110 - as above
            await asyncio.sleep(0.02)

    assert await writer.get(PATHS, "node1") == before
    await writer.close()


async def test_a_bucket_of_more_keys_than_the_server_lists_at_once_is_listed_whole(nats_server, monkeypatch):
    """Whoever may make no consumers reads a large fleet, too."""
    monkeypatch.setattr(key_value_read, "_ANSWER_S", patience(30))
    bus = await Bus.connect(nats_server.settings, "writer")
    for number in range(_LISTED_AT_ONCE + 2):
        await bus._client.publish(INVENTORY.subject(f"n{number}"), b"")
    stream = f"KV_{INVENTORY.name}"
    async with asyncio.timeout(patience(60)):
        while (await bus._stream.stream_info(stream)).state.messages < _LISTED_AT_ONCE + 2:  # noqa: ASYNC110 - as above
            await asyncio.sleep(0.05)
    found = await key_value_read.subjects(bus._client, INVENTORY.name, INVENTORY.subject())

    assert len(found) == len(set(found)) == _LISTED_AT_ONCE + 2
    await bus.close()


async def test_who_makes_no_consumers_is_told_the_same(nats_server):
    """All present values but the deleted ones and those that cannot be read, then changes; of one key or of all."""
    writer = await Bus.connect(nats_server.settings, "writer")
    node1, node2 = (NodePaths(node=name, lease_revision=1) for name in ("node1", "rack2.node2"))
    for value in (node1, node2, NodePaths(node="gone", lease_revision=1)):
        await writer.put(PATHS, value.node, value)
    await (await writer.store(PATHS)).delete("gone")
    for subject, data in ((PATHS.subject("broken"), b"\xff"), ("$KV.paths.two.tokens", encode(node1))):
        await writer._stream.publish(subject, data)
    readers = [await Bus.connect(nats_server.settings, "reader", makes=makes) for makes in (True, False)]
    seen = []
    for reader in readers:
        for key in ("", "rack2.node2"):
            told = {}
            seen.append((key, told))

            async def changed(name, paths, told=told):
                told[name] = paths

            await reader.watch(PATHS, changed, key=key)
        assert reader.counts["rejected"] == 2
    for key, told in seen:
        assert told == ({"rack2.node2": node2} if key else {"node1": node1, "rack2.node2": node2})

    await (await writer.store(PATHS)).delete("rack2_2enode2")
    async with asyncio.timeout(patience(20)):
        while any(told["rack2.node2"] for _, told in seen):  # noqa: ASYNC110 - as above
            await asyncio.sleep(0.02)
    for bus in (writer, *readers):
        await bus.close()


@pytest.mark.parametrize("makes", [True, False])
@pytest.mark.parametrize("key", ["", "node1"])
async def test_a_key_that_was_deleted_while_the_bus_was_away_is_told(nats_server, no_looks, makes, key):
    """A node that left meanwhile is no peer any more. What a lost store took along is not: nobody has deleted it."""
    writer = await Bus.connect(nats_server.settings, "writer")
    reader = await Bus.connect(nats_server.settings, "reader", makes=makes)
    told = []

    async def changed(name, paths):
        told.append((name, paths is not None))

    for name in ("node1", "gone-before"):
        await writer.put(PATHS, name, NodePaths(node=name, lease_revision=1))
    store = await writer.store(PATHS)
    await store.delete("gone-before")
    await reader.watch(PATHS, changed, key=key)
    (subscription,) = [each for each in reader._client._subs.values() if each.subject.startswith("$KV.")]
    await subscription.unsubscribe()  # hears as little as one that is cut off
    await store.delete("node1")
    (watch,) = reader._missed[PATHS.name].watches
    await watch.tell_present()
    assert told == [("node1", True), ("node1", False)]

    await writer._stream.purge_stream(f"KV_{PATHS.name}")
    await watch.tell_present()
    assert told == [("node1", True), ("node1", False)]
    for bus in (writer, reader):
        await bus.close()


@pytest.mark.parametrize("key", ["", "node1"])
async def test_a_change_that_no_message_told_is_found(nats_server, key):
    """The server of a node may not know of a change in time, while it begins or is cut off from the others."""
    writer = await Bus.connect(nats_server.settings, "writer")
    reader = await Bus.connect(nats_server.settings, "reader", makes=False)
    told = []

    async def changed(name, paths):
        told.append((name, paths and paths.away))

    for name in ("node1", "node2"):
        await writer.put(PATHS, name, NodePaths(node=name, lease_revision=1))
    await reader.watch(PATHS, changed, key=key)
    told.clear()
    (subscription,) = [each for each in reader._client._subs.values() if each.subject.startswith("$KV.")]
    await subscription.unsubscribe()  # hears as little as one of which the server does not know
    await writer.put(PATHS, "node1", NodePaths(node="node1", lease_revision=1, away=("rail0",)))
    await writer.put(PATHS, "node3", NodePaths(node="node3", lease_revision=1))
    await (await writer.store(PATHS)).delete("node2")
    expected = [("node1", ("rail0",))] + ([] if key else [("node3", ()), ("node2", None)])
    async with asyncio.timeout(patience(60)):
        while len(told) < len(expected):  # noqa: ASYNC110 - as above
            await asyncio.sleep(0.02)

    assert told == expected
    for bus in (writer, reader):
        await bus.close()


async def test_a_look_tells_nothing_that_was_heard(nats_server, no_looks):
    """Nor a value that its writer has written anew since, nor twice what another tool wrote.

    Nor does it tell a deletion of what nobody was told of.
    """
    writer, reader = [
        await Bus.connect(nats_server.settings, name, makes=name == "writer") for name in ("writer", "reader")
    ]
    told = []

    async def changed(name, paths):
        told.append((name, paths is not None))

    await writer.put(PATHS, "node1", NodePaths(node="node1", lease_revision=1))
    await reader.watch(PATHS, changed)
    look = reader._missed[PATHS.name].look
    await writer.put(PATHS, "node1", NodePaths(node="node1", lease_revision=2))
    await writer._client.publish(PATHS.subject("other-tool"), encode(NodePaths(node="other-tool", lease_revision=1)))
    store = await writer.store(PATHS)
    await store.delete("node1")
    async with asyncio.timeout(patience(20)):
        while len(told) < 4:  # noqa: ASYNC110 - as above
            await asyncio.sleep(0.02)
    await look()
    assert told == [("node1", True), ("node1", True), ("other-tool", True), ("node1", False)]

    (subscription,) = [each for each in reader._client._subs.values() if each.subject.startswith("$KV.")]
    await subscription.unsubscribe()
    await writer.put(PATHS, "came-and-went", NodePaths(node="came-and-went", lease_revision=1))
    await store.delete("came-and-went")
    await look()
    assert len(told) == 4
    for bus in (writer, reader):
        await bus.close()


@pytest.mark.parametrize("makes", [True, False])
async def test_a_header_that_is_not_ascii_ends_neither_the_telling_nor_the_looks(nats_server, makes):
    """Any node may write one beside its own record, which all others read."""
    writer = await Bus.connect(nats_server.settings, "writer")
    reader = await Bus.connect(nats_server.settings, "reader", makes=makes)
    told = set()

    async def changed(name, _paths):
        told.add(name)

    async def write(name):
        value = encode(NodePaths(node=name, lease_revision=1))
        await writer._stream.publish(PATHS.subject(name), value, headers={"KV-Operation": "\xff", WRITTEN: "\xff/1"})

    await write("before")
    await reader.watch(PATHS, changed)
    assert told == {"before"}
    (subscription,) = [each for each in reader._client._subs.values() if each.subject.startswith("$KV.")]
    await subscription.unsubscribe()
    await write("after")
    async with asyncio.timeout(patience(60)):
        while "after" not in told:  # noqa: ASYNC110 - as above
            await asyncio.sleep(0.02)
    for bus in (writer, reader):
        await bus.close()


async def test_a_bucket_that_is_not_there_is_made_only_by_who_makes_buckets(nats_server):
    """Who does not waits for it; a key of it cannot be read."""
    reader = Bus.later(nats_server.settings, "reader", makes=False)
    async with asyncio.timeout(patience(20)):
        while not reader.connected:  # noqa: ASYNC110 - as above
            await asyncio.sleep(0.02)
    with pytest.raises(BucketNotFoundError):
        await reader.store(PATHS)
    writer = await Bus.connect(nats_server.settings, "writer")
    await asyncio.wait_for(reader.opened(), patience(20))

    assert await reader.get(PATHS, "node1") is None
    for bus in (reader, writer):
        await bus.close()


async def test_a_node_does_not_wait_for_what_only_central_services_use(nats_server):
    """It may be newer than all of them, and know a bucket that none of them has made."""
    maker = await Bus.connect(nats_server.settings, "maker")
    await maker._stream.delete_stream(f"KV_{HOMES.name}")
    node = Bus.later(nats_server.settings, "node", makes=False)
    await asyncio.wait_for(node.opened(), patience(20))
    for bus in (maker, node):
        await bus.close()
