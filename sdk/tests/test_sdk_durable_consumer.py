"""Catching up with a stream whose consumer, or whose whole store, has gone."""

from __future__ import annotations

import asyncio
import shutil

import nats.errors
import pytest

from foliot.bus import durable_consumer
from foliot.bus.client import Bus
from foliot.bus.provisioning import make_streams
from foliot_schemas import Event
from foliot_schemas.subjects import EVENT
from patience import patience

pytestmark = pytest.mark.nats


def event(number: int) -> Event:
    """An event of its own id."""
    return Event(id=f"e{number}", kind="flap", who="x", state="down", at_ns=number, since_ns=number)


class Reader:
    """A durable reader."""

    def __init__(self, bus: Bus) -> None:
        self.bus = bus
        self.heard: list[int] = []

    async def read(self) -> None:
        """Begins."""
        await self.bus.subscribe_kept(EVENT, self._heard, durable="reader")

    async def _heard(self, message, subject):
        self.heard.append(message.at_ns)

    async def go_deaf(self) -> None:
        """Ends the plain subscription, so that only catching up brings anything."""
        subscriptions = self.bus._client._subs.values()
        await next(each for each in subscriptions if each.subject.startswith("foliot.")).unsubscribe()

    async def caught_up(self, stored: int) -> None:
        """Waits until the stream's first so many messages are all taken and acknowledged."""
        async with asyncio.timeout(patience(60)):
            while not await self._has_taken(stored):  # noqa: ASYNC110 - the server sets no event of ours
                await asyncio.sleep(0.02)

    async def _has_taken(self, stored: int) -> bool:
        try:
            info = await self.bus._stream.consumer_info("EVENTS", "reader")
        except (nats.errors.Error, TimeoutError):
            return False
        return info.ack_floor.stream_seq == stored and not info.num_pending


@pytest.fixture
async def reader(nats_server):
    """A reader and its connection."""
    bus = await Bus.connect(nats_server.settings, "reader")
    made = Reader(bus)
    await made.read()
    yield made
    await bus.close()


@pytest.fixture
async def writer(nats_server):
    """A connection that publishes."""
    bus = await Bus.connect(nats_server.settings, "writer")
    yield bus
    await bus.close()


async def test_a_deleted_consumer_is_made_again_behind_what_was_taken(reader, writer):
    """Nothing of before comes twice, and what only the stream has seen is caught up with."""
    writer.publish_kept(EVENT, event(1), "flap", "x")
    await reader.caught_up(1)
    await reader.go_deaf()
    await writer._stream.delete_consumer("EVENTS", "reader")
    for number in (2, 3):
        writer.publish_kept(EVENT, event(number), "flap", "x")
    await reader.caught_up(3)

    assert reader.heard == [1, 2, 3]


async def test_a_wiped_store_loses_nothing_that_comes_after(nats_server, reader, writer, tmp_path):
    """Streams, buckets and consumers are made anew, and what is told from then on is taken."""
    for number in (1, 2, 3):
        writer.publish_kept(EVENT, event(number), "flap", "x")
    await reader.caught_up(3)
    await nats_server.kill()
    shutil.rmtree(tmp_path / "jetstream")
    writer.publish_kept(EVENT, event(4), "flap", "x")
    await nats_server.start()
    await reader.caught_up(1)

    assert reader.heard == [1, 2, 3, 4]


async def test_a_stream_that_was_made_anew_and_has_grown_past_what_was_taken_is_read_from_its_beginning(reader, writer):
    """Other publishers are back sooner than a reader that had taken little."""
    writer.publish_kept(EVENT, event(1), "flap", "x")
    await reader.caught_up(1)
    await reader.go_deaf()
    (catch_up,) = reader.bus._catch_ups
    find, grown = catch_up._find, asyncio.Event()

    async def find_later():
        await grown.wait()
        return await find()

    catch_up._find = find_later
    await writer._stream.delete_stream("EVENTS")
    await make_streams(writer._stream, 1)
    for number in (2, 3):
        writer.publish_kept(EVENT, event(number), "flap", "x")
    async with asyncio.timeout(patience(60)):
        while (await writer._stream.stream_info("EVENTS")).state.last_seq < 2:  # noqa: ASYNC110 - as above
            await asyncio.sleep(0.02)
    grown.set()
    await reader.caught_up(2)

    assert reader.heard == [1, 2, 3]


async def test_what_an_earlier_run_took_last_is_taken_once_more_if_that_is_asked(nats_server, reader, writer):
    """It may have ended before it had drawn all conclusions; then comes what is new."""
    for number in (1, 2, 3, 4):
        writer.publish_kept(EVENT, event(number), "flap", "x")
        await reader.caught_up(number)
    await reader.bus.close()
    async with asyncio.timeout(patience(60)):
        # Until the server knows it, too, it would deliver the next message to the reader that has left.
        while (await writer._stream.consumer_info("EVENTS", "reader")).num_waiting:  # noqa: ASYNC110 - as above
            await asyncio.sleep(0.02)
    writer.publish_kept(EVENT, event(5), "flap", "x")

    bus = await Bus.connect(nats_server.settings, "reader")
    heard = []

    async def arrived(message, subject):
        heard.append(message.at_ns)

    await bus.subscribe_kept(EVENT, arrived, durable="reader", again=2)
    async with asyncio.timeout(patience(20)):
        while len(heard) < 3:  # noqa: ASYNC110 - the bus sets no event of ours
            await asyncio.sleep(0.02)
    await bus.close()
    assert heard == [3, 4, 5]


async def test_what_was_sent_into_a_dead_connection_is_read_when_the_next_one_stands(nats_server, writer, monkeypatch):
    """The server delivered it, nobody had it, and it comes again only when the time for its acknowledgement is over."""
    monkeypatch.setattr(durable_consumer, "_ACK_WAIT_S", 3_600.0)
    bus = await Bus.connect(nats_server.settings, "reader")
    heard, swallowed = [], asyncio.Event()

    async def arrived(message, subject):
        heard.append(message.at_ns)

    await bus.subscribe_kept(EVENT, arrived, durable="reader", again=1)
    consumer = bus._catch_ups[0]._consumer
    fetch = consumer.fetch

    async def lost(*arguments, **more):
        await fetch(*arguments, **more)
        swallowed.set()
        await asyncio.Event().wait()

    consumer.fetch = lost  # before its first turn
    await next(each for each in bus._client._subs.values() if each.subject.startswith("foliot.")).unsubscribe()
    writer.publish_kept(EVENT, event(1), "flap", "x")
    async with asyncio.timeout(patience(20)):
        await swallowed.wait()
    assert heard == []
    bus._catch_ups[0].renew()
    async with asyncio.timeout(patience(20)):
        while not heard:  # noqa: ASYNC110 - the bus sets no event of ours
            await asyncio.sleep(0.02)
    await bus.close()
    assert heard == [1]
