"""In what order messages that may not be lost are stored, when the bus was away."""

from __future__ import annotations

import asyncio
import signal

import pytest

from foliot.bus.client import Bus
from foliot_schemas import Event
from foliot_schemas.subjects import EVENT

pytestmark = pytest.mark.nats


def say(bus, number: int, who: str = "node3.rail0") -> None:
    """An event of its own number."""
    event = Event(id=f"e{number}", kind="flap", who=who, state="down", at_ns=number, since_ns=number)
    bus.publish_kept(EVENT, event, "flap", who)


async def stored(bus) -> list[str]:
    """The ids that the stream has, in its order."""
    last = (await bus._stream.stream_info("EVENTS")).state.last_seq
    messages = [await bus._stream.get_msg("EVENTS", number) for number in range(1, last + 1)]
    return [message.headers["Nats-Msg-Id"] for message in messages]


@pytest.fixture
async def bus(bus_settings):
    """A service's connection."""
    bus = await Bus.connect(bus_settings, "one")
    yield bus
    await bus.close()


async def test_what_was_said_while_the_bus_was_away_is_stored_in_its_order(nats_server, bus, until):
    """Also what went into a connection that was dead already, before what was said when that was known; each once."""
    say(bus, 0)
    await until(lambda: bus.counts["kept"] == 1)
    nats_server.process.send_signal(signal.SIGSTOP)
    for number in range(1, 20):
        say(bus, number)
    await asyncio.sleep(0.1)  # written into the connection, and read by nobody
    await nats_server.kill()
    await until(lambda: not bus.connected)
    for number in range(20, 40):
        say(bus, number)
    await nats_server.start()
    await until(lambda: bus.connected)
    for number in range(40, 60):
        say(bus, number)
    await until(lambda: bus.counts["kept"] == 60)

    assert await stored(bus) == [f"e{number}" for number in range(60)]


async def test_a_message_that_its_stream_does_not_take_holds_up_no_other(nats_server, bus, until):
    """The bus answers: whatever else is said is heard and stored at once, and this one is offered again."""
    taken, refused = bus._stream.publish, []

    async def publish(at, data, **more):
        if more["headers"]["Nats-Msg-Id"] == "e0" and len(refused) < 3:
            refused.append(at)
            raise TimeoutError
        return await taken(at, data, **more)

    bus._stream.publish = publish
    for number in range(3):
        say(bus, number)
    await until(lambda: bus.counts["kept"] == 3)

    assert await stored(bus) == ["e1", "e2", "e0"]
    assert len(refused) == 3
    assert bus.counts["unstored"] == 3
