"""What the bus refuses before any handler sees it, on a real NATS server."""

from __future__ import annotations

import asyncio

import pytest

from foliot_schemas import Event, NodePaths, encode
from foliot_schemas.subjects import CLOCKS, EVENT, PATHS, REJECTED
from patience import patience

pytestmark = pytest.mark.nats


def event(number):
    """An event of its own id."""
    return Event(id=f"e{number}", kind="flap", who="node3.rail0", state="down", at_ns=number, since_ns=number)


class Inbox(asyncio.Queue):
    """Collects messages, and waits for them."""

    async def __call__(self, *told):
        """The handler, of a subscription or of a watch."""
        await self.put(next(each for each in told if not isinstance(each, str)))

    async def holding(self, count):
        """The next ones, once there are this many."""
        async with asyncio.timeout(patience(20)):
            return [await self.get() for _ in range(count)]


async def test_a_key_of_several_tokens_is_nobodys(buses):
    """It was once taken for its last token, so that a value beside the bucket's own keys stood for a node."""
    one, other = buses
    seen, rejected = Inbox(), Inbox()
    await one.subscribe(REJECTED, rejected)
    await other.watch(PATHS, seen)
    store = await one.store(PATHS)
    await store.put("evil.node1", encode(NodePaths(node="node1", lease_revision=1)))
    await one.put(PATHS, "node1", NodePaths(node="node1", lease_revision=2))

    assert [message.lease_revision for message in await seen.holding(1)] == [2]
    assert (await rejected.holding(1))[0].subject == "$KV.paths.evil.node1"


async def test_a_broken_value_is_as_good_as_none(buses):
    """It once stopped whoever asked for it at the start."""
    one, other = buses
    store = await one.store(CLOCKS)
    await store.put("node0", b"\xff")
    await store.put("node1", encode(NodePaths(node="node1", lease_revision=1)))

    assert [await other.get(CLOCKS, name) for name in ("node0", "node1", "node2")] == [None, None, None]
    assert other.counts["rejected"] == 2


async def test_a_message_must_speak_of_what_its_subject_names(buses):
    """Who may publish one subject cannot speak for another, nor one key for another."""
    one, other = buses
    inbox, values, rejected = Inbox(), Inbox(), Inbox()
    await other.subscribe(EVENT, inbox)
    await other.watch(PATHS, values)
    await one.subscribe(REJECTED, rejected)
    await one.publish(EVENT, event(1), "flap", "another")
    await one.publish(EVENT, event(2), "flap", "node3.rail0")
    await one.put(PATHS, "another", NodePaths(node="node1", lease_revision=1))
    await one.put(PATHS, "node1", NodePaths(node="node1", lease_revision=2))

    assert [event(2)] == await inbox.holding(1)
    assert [message.lease_revision for message in await values.holding(1)] == [2]
    assert all(", its " in message.reason for message in await rejected.holding(2))


async def test_a_message_id_without_end_is_rejected(buses):
    """Ids are remembered, thousands of them."""
    one, other = buses
    inbox = Inbox()
    await other.subscribe_kept(EVENT, inbox, durable="test")
    subject = EVENT.subject("flap", "node3.rail0")
    await one._client.publish(subject, encode(event(1)), headers={"Nats-Msg-Id": "i" * 5_000})
    one.publish_kept(EVENT, event(2), "flap", "node3.rail0")

    assert [event(2)] == await inbox.holding(1)
    assert other.counts["rejected"] >= 1
    assert "i" * 5_000 not in other._delivery._seen
