"""The bus, on a real NATS server."""

from __future__ import annotations

import asyncio
import contextlib

import pytest

from foliot.bus import key_value
from foliot.bus.client import Bus
from foliot.bus.retry import BUS_ERRORS
from foliot_schemas import ClockState, Event, NodePaths, Rejected
from foliot_schemas.subjects import CLOCK, CLOCKS, EVENT, PATHS, REJECTED
from patience import patience

pytestmark = pytest.mark.nats


def event(number: int, who: str = "node3.rail0", kind: str = "flap") -> Event:
    """An event of its own id."""
    return Event(id=f"e{number}", kind=kind, who=who, state="down", at_ns=number, since_ns=number)


class Inbox:
    """Collects messages, and waits for them."""

    def __init__(self) -> None:
        self.messages: list = []
        self._arrived = asyncio.Condition()

    async def __call__(self, message, subject):
        """The handler."""
        async with self._arrived:
            self.messages.append(message)
            self._arrived.notify_all()

    async def holding(self, count: int) -> list:
        """Its messages, once there are this many."""
        async with asyncio.timeout(patience(20)), self._arrived:
            await self._arrived.wait_for(lambda: len(self.messages) >= count)
        return self.messages


async def test_a_kept_message_arrives_once_though_it_is_delivered_twice(buses):
    """The plain subscription and the durable consumer both bring it; the handler sees it once."""
    one, other = buses
    inbox = Inbox()
    await other.subscribe_kept(EVENT, inbox, "flap", "", durable="test")

    for number in range(5):
        one.publish_kept(EVENT, event(number), "flap", "node3.rail0")
    one.publish_kept(EVENT, event(0), "flap", "node3.rail0")
    one.publish_kept(EVENT, event(5), "flap", "node3.rail0")

    assert [event(number) for number in range(6)] == await inbox.holding(6)


async def test_what_happened_while_a_reader_was_away_is_caught_up_with(nats_server, buses, until):
    """A durable subscriber that comes back gets what it missed."""
    one, _ = buses
    reader = await Bus.connect(nats_server.settings, "reader")
    before = Inbox()
    await reader.subscribe_kept(EVENT, before, "flap", "", durable="reader")
    one.publish_kept(EVENT, event(1), "flap", "node3.rail0")
    await before.holding(1)
    await asyncio.sleep(0.5)  # the durable consumer has taken and acknowledged it by then, mostly
    await reader.close()

    one.publish_kept(EVENT, event(2), "flap", "node3.rail0")
    again = await Bus.connect(nats_server.settings, "reader")
    after = Inbox()
    await again.subscribe_kept(EVENT, after, "flap", "", durable="reader")
    # The first as well, if the consumer had not had the time to take and acknowledge it for the reader that left.
    await until(lambda: event(2) in after.messages)
    await again.close()


async def test_an_event_published_while_the_server_is_away_is_stored_when_it_is_back(nats_server, buses):
    """Kept means repeated under the same id until it is stored; an observation is dropped instead."""
    one, other = buses
    inbox = Inbox()
    await other.subscribe_kept(EVENT, inbox, durable="test")
    await nats_server.kill()
    async with asyncio.timeout(patience(20)):
        while one.connected:  # noqa: ASYNC110 - nats-py has no event for it
            await asyncio.sleep(0.02)

    one.publish_kept(EVENT, event(7), "flap", "node3.rail0")
    await one.publish(REJECTED, Rejected(service="x", subject="s", reason="r", head=b""), "x")
    await nats_server.start()

    assert [event(7)] == await inbox.holding(1)
    assert one.counts["stale"] == 1


async def test_the_newest_message_of_each_subject_is_kept(buses):
    """Whoever starts anew asks what was said last of everything; of what nobody spoke there is nothing."""
    one, other = buses
    inbox = Inbox()
    await other.subscribe_kept(EVENT, inbox, durable="test")
    assert await other.newest(EVENT, "flap", "") == []
    for number in range(600):
        nic = f"node{number % 300}.rail0"
        one.publish_kept(EVENT, event(number, nic), "flap", nic)
    path = "node3.rail0>node4.rail0#0"
    one.publish_kept(EVENT, event(600, path, "path"), "path", path)
    await inbox.holding(601)
    async with asyncio.timeout(patience(20)):
        while one.counts["kept"] < 601:  # noqa: ASYNC110 - the bus sets no event of ours
            await asyncio.sleep(0.02)

    found = await other.newest(EVENT, "flap", "")
    assert sorted(message.at_ns for message in found) == list(range(300, 600))


async def test_the_last_messages_of_a_stream_are_told_again(buses):
    """So many at most, the oldest first; what nobody can read or take is passed over, and rejected no more."""
    one, _ = buses
    told = []
    await one.replay(EVENT, 20, told.append)
    assert told == []
    for number in range(40):
        one.publish_kept(EVENT, event(number), "flap", "node3.rail0")
    async with asyncio.timeout(patience(20)):
        while one.counts["kept"] < 40:  # noqa: ASYNC110 - the bus sets no event of ours
            await asyncio.sleep(0.02)
    await one._stream.publish(EVENT.subject("flap", "node3.rail0"), b"broken")

    def take(message):
        if message == event(30):
            raise ValueError("it is not wanted")
        told.append(message)

    await one.replay(EVENT, 20, take)
    assert sorted(message.at_ns for message in told) == [*range(21, 30), *range(31, 40)]
    assert one.counts["rejected"] == 0


async def test_who_asked_is_told_that_the_bus_is_away_and_back_but_not_of_its_own_leaving(nats_server):
    """A server that dies is news, and that it is there again; closing the connection is not."""
    bus = await Bus.connect(nats_server.settings, "service")
    away, back = asyncio.Event(), asyncio.Event()
    bus.when_away(away.set)
    bus.when_back(back.set)
    await nats_server.kill()
    async with asyncio.timeout(patience(20)):
        await away.wait()
    assert not bus.connected
    await nats_server.start()
    async with asyncio.timeout(patience(20)):
        await back.wait()
    assert bus.connected
    away.clear()
    await bus.close()
    assert not away.is_set()


async def test_a_connection_ends_in_peace_where_its_server_has_gone(nats_server):
    """With a request for the server that nobody can send any more."""
    bus = await Bus.connect(nats_server.settings, "service")
    away = asyncio.Event()
    bus.when_away(away.set)
    await nats_server.kill()
    async with asyncio.timeout(patience(20)):
        await away.wait()
    with contextlib.suppress(*BUS_ERRORS):
        await asyncio.wait_for(bus.get(PATHS, "node1"), 0.6)
    await bus.close()


async def test_a_broken_message_is_rejected_aloud_and_the_next_one_is_read(buses):
    """Bad bytes never stop a subscription."""
    one, other = buses
    inbox, rejected = Inbox(), Inbox()
    await other.subscribe(EVENT, inbox)
    await one.subscribe(REJECTED, rejected)

    await one._client.publish(EVENT.subject("flap", "x"), b"\xff garbage")
    await one.publish(EVENT, event(1, "x"), "flap", "x")

    assert [event(1, "x")] == await inbox.holding(1)
    said = (await rejected.holding(1))[0]
    assert (said.service, said.head) == ("other", b"\xff garbage")


async def test_a_handler_that_fails_loses_that_message_alone(buses):
    """A fault of ours with one message never stops a service."""
    one, other = buses
    seen = Inbox()

    async def fails_first(message, subject):
        if message.at_ns == 1:
            raise RuntimeError("boom")
        await seen(message, subject)

    await other.subscribe(EVENT, fails_first)
    await one.publish(EVENT, event(1, "x"), "flap", "x")
    await one.publish(EVENT, event(2, "x"), "flap", "x")

    assert [event(2, "x")] == await seen.holding(1)
    assert other.counts["rejected"] == 1


async def test_a_watch_tells_what_is_there_then_every_change(nats_server, buses, no_looks):
    """Also after the server was killed and started again, and for keys that need escaping."""
    one, other = buses
    seen = Inbox()
    paths = [NodePaths(node="node.1", lease_revision=revision) for revision in range(4)]
    await one.put(PATHS, "node.1", paths[0])

    async def changed(key, message):
        await seen(message, key)

    await other.watch(PATHS, changed)
    await seen.holding(1)
    await one.put(PATHS, "node.1", paths[1])
    await seen.holding(2)
    await nats_server.kill()
    await nats_server.start()
    await seen.holding(3)  # told again after the reconnection

    assert [paths[0], paths[1], paths[1]] == seen.messages
    assert paths[1] == await one.get(PATHS, "node.1")


async def test_a_change_while_the_present_values_are_read_is_the_last_word(buses, monkeypatch):
    """The older value, which was read before, is not told after the newer one."""
    one, other = buses
    seen = Inbox()
    older, newer = (NodePaths(node="node1", lease_revision=revision) for revision in (1, 2))
    await one.put(PATHS, "node1", older)
    read = key_value.each_stored

    async def read_slowly(*of_what, **where):
        async for raw in read(*of_what, **where):
            await one.put(PATHS, "node1", newer)
            await seen.holding(1)
            yield raw

    async def changed(key, message):
        await seen(message, key)

    monkeypatch.setattr(key_value, "each_stored", read_slowly)
    await other.watch(PATHS, changed)
    assert seen.messages == [newer]


async def test_a_bucket_in_memory_is_made_again_after_a_restart_of_the_server(nats_server, buses):
    """The clocks' bucket does not outlive the server, but its use does."""
    one, other = buses
    state = ClockState(
        clock="node0", reference="node0", offset_ns=1, drift_ppb=0.0, hard_bound_ns=0, bound_ns=0, growth_ppb=0.0,
        as_of_ns=1, void_after_ns=2, status="synchronised",
    )  # fmt: skip
    await one.put(CLOCKS, "node0", state)
    seen = Inbox()
    await other.watch(CLOCKS, lambda key, message: seen(message, key))
    await nats_server.kill()
    await nats_server.start()
    async with asyncio.timeout(patience(60)):  # one lost request of a patient connection takes a third of it
        while True:
            try:
                await one.put(CLOCKS, "node0", state)
                break
            except Exception:  # noqa: BLE001 - until the connection and the bucket are back
                await asyncio.sleep(0.05)

    assert [state, state] == (await seen.holding(2))[:2]
    assert CLOCK.subject("node0") == "foliot.v1.clock.node0"


async def test_only_what_is_about_the_wanted_ones_is_read(buses, no_looks):
    """Of observations, of what is kept and caught up with, and of values; others are not even decoded."""
    one, other = buses
    plain, kept, values = Inbox(), Inbox(), Inbox()
    wanted = {"node2", "node2.rail0"}.__contains__
    await other.subscribe(EVENT, plain, about=wanted)
    await other.subscribe_kept(EVENT, kept, durable="test", about=wanted)
    await other.watch(PATHS, lambda key, message: values(message, key), about=wanted)
    await one._client.publish(EVENT.subject("flap", "node1.rail0"), b"not even JSON")
    await one._client.publish("$KV.paths.node1", b"nor this")
    for number, who in enumerate(("node1.rail0", "node2.rail0", "node3.rail0", "node2.rail0")):
        one.publish_kept(EVENT, event(number, who), "flap", who)
    paths = NodePaths(node="node2", lease_revision=1)
    await one.put(PATHS, "node2", paths)

    assert [event(1, "node2.rail0"), event(3, "node2.rail0")] == await plain.holding(2)
    assert [event(1, "node2.rail0"), event(3, "node2.rail0")] == await kept.holding(2)
    assert [paths] == await values.holding(1)
    assert other.counts["rejected"] == 0


async def test_an_ended_subscription_hears_nothing_more(buses):
    """Another one of the same connection hears on."""
    one, other = buses
    ended, going = Inbox(), Inbox()
    end = await other.subscribe(EVENT, ended)
    await other.subscribe(EVENT, going)
    one.publish_kept(EVENT, event(0), "flap", "node3.rail0")
    await ended.holding(1)
    await end()
    one.publish_kept(EVENT, event(1), "flap", "node3.rail0")

    assert [event(0), event(1)] == await going.holding(2)
    assert ended.messages == [event(0)]


async def test_a_connection_that_was_not_even_tried_is_closed(bus_free_settings):
    """A service may end before its turn comes."""
    await Bus.later(bus_free_settings, "test").close()


async def test_a_subscription_stands_when_it_returns(buses, monkeypatch):
    """The server has answered a ping that was written behind it: what is published from then on arrives."""
    one, _ = buses
    written = []
    transport = one._client._transport
    write, writelines = transport.write, transport.writelines
    monkeypatch.setattr(transport, "write", lambda data: (written.append(bytes(data)), write(data)))
    monkeypatch.setattr(transport, "writelines", lambda lines: (written.extend(map(bytes, lines)), writelines(lines)))
    await one.subscribe(EVENT, Inbox(), "flap", "")

    (subscribed,) = [number for number, line in enumerate(written) if line.startswith(b"SUB ")]
    assert any(line.startswith(b"PING") for line in written[subscribed:])
