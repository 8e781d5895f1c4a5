"""The live stream over a real socket."""

import asyncio
import contextlib
import json
import time

import pytest
from litestar.exceptions import LitestarException

from foliot_gateway.http import api
from foliot_gateway.http.sse import frames
from foliot_gateway.settings import GatewaySettings
from foliot_gateway.state.store import Store
from foliot_gateway.subscription import Hub
from foliot_schemas import Event, PortState
from patience import patience


def port(nic="node3.rail0", *, carrier=True):
    """The state of a NIC's port."""
    return PortState(
        node=nic.partition(".")[0], nic=nic, at_ns=7, carrier=carrier, admin_up=True, carrier_down_count=1,
        carrier_up_count=1,
    )  # fmt: skip


def flap(number):
    """An event."""
    return Event(id=f"e{number}", kind="flap", who="node3.rail0", state="down", at_ns=number, since_ns=number)


class Reader:
    """One page: it reads until it has what it waits for."""

    def __init__(self, lines):
        self._lines = lines
        self.last_id = ""

    async def until(self, name, wanted=lambda _: True):
        """The data of the next frame of a name that is wanted."""
        seen = ""
        async with asyncio.timeout(patience(30)):
            async for line in self._lines:
                key, _, value = line.partition(": ")
                if key == "id":
                    self.last_id = value
                elif key == "event":
                    seen = value
                elif key == "data" and seen == name and wanted(json.loads(value)):
                    return json.loads(value)
        raise AssertionError(f"the stream ended before any {name}")


@contextlib.asynccontextmanager
async def reading(client, **more):
    """A page on the stream."""
    async with client.stream("GET", "/api/v1/stream", **more) as answer:
        assert answer.status_code == 200
        assert answer.headers["content-type"].startswith("text/event-stream")
        yield Reader(answer.aiter_lines())


async def test_a_page_gets_the_fleet_and_then_its_changes(client, store):
    """First all tiles, then those that look different; a report that changes nothing is not told."""
    store.fleet.fold_port(port())
    async with reading(client) as page:
        whole = await page.until("tiles")
        store.fleet.fold_port(port())
        store.fleet.fold_port(port("node4.rail0"))
        changed = await page.until("tiles")

    assert (whole["whole"], [tile["nic"] for tile in whole["tiles"]]) == (True, ["node3.rail0"])
    assert (changed["whole"], [tile["nic"] for tile in changed["tiles"]]) == (False, ["node4.rail0"])


async def test_the_state_comes_at_once_and_goes_on_coming(client, store):
    """It says whether the bus answers and how old the picture is."""
    async with reading(client) as page:
        first = await page.until("state")
        store.bus_connected = True
        store.heard_s = 0.0
        later = await page.until("state", lambda state: state["bus"])

    assert (first["bus"], first["past"], first["heard_ms"]) == (False, False, None)
    assert later["heard_ms"] > 0
    assert later["now_ns"] > first["now_ns"]


async def test_the_first_word_of_the_state_comes_after_all_there_is():
    """A page that has it may say how many NICs there are, and that nothing has happened."""
    store = Store(GatewaySettings(), time.time_ns)
    store.fleet.fold_port(port())
    store.past_read()
    store.event(flap(1))
    hub = Hub(store)
    hub.look(beat=True)
    reader = frames(hub)
    await anext(reader)
    lines = (await anext(reader)).decode().splitlines()
    await reader.aclose()

    assert [line for line in lines if line.startswith("event: ")] == ["event: tiles", "event: event", "event: state"]


async def test_that_the_bus_is_reached_is_said_with_the_first_that_came_over_it():
    """Between two beats, and not at the next: a page would show tiles, and that the bus is not reached."""
    store = Store(GatewaySettings(), time.time_ns)
    hub = Hub(store)
    hub.look(beat=True)
    reader = frames(hub)
    await anext(reader)
    assert b'"bus":false' in await anext(reader)
    store.bus_connected, store.heard_s = True, 0.0
    store.fleet.fold_port(port())
    hub.look(beat=False)
    told = await anext(reader)
    hub.look(beat=False)
    silent = asyncio.ensure_future(anext(reader))
    await asyncio.sleep(0)

    assert 0 <= told.find(b'"bus":true') < told.find(b"event: tiles")
    assert not silent.done()
    silent.cancel()
    await asyncio.gather(silent, return_exceptions=True)
    await reader.aclose()


@pytest.mark.parametrize("by", ["header", "query"])
async def test_a_page_that_comes_back_misses_nothing(client, store, by):
    """What happened while it was away is told first, once, whichever way it names its last event."""
    store.past_read()
    store.event(flap(1))
    async with reading(client) as page:
        await page.until("event")
    store.event(flap(2))
    store.event(flap(3))
    named = {"headers": {"Last-Event-ID": page.last_id}} if by == "header" else {"params": {"after": page.last_id}}

    async with reading(client, **named) as page:
        missed = [(await page.until("event"))["event"]["id"] for _ in range(2)]
        store.event(flap(4))
        fresh = await page.until("event")

    assert (missed, fresh["event"]["id"]) == (["e2", "e3"], "e4")


async def test_events_wait_until_the_past_has_been_read(client, store):
    """Then they are told in the order of their times, the past first, although it was read later."""
    async with reading(client) as page:
        await page.until("state")
        store.event(flap(5))
        store.event(flap(1))
        store.past_read()
        told = [(await page.until("event"))["event"]["id"] for _ in range(2)]

    assert told == ["e1", "e5"]


async def test_a_reader_that_does_not_read_holds_nobody_up():
    """It gets the newest state of each tile when it reads again, in one frame, however much has happened meanwhile."""
    store = Store(GatewaySettings(), time.time_ns)
    hub = Hub(store)
    slow, quick = frames(hub), frames(hub)
    store.fleet.fold_port(port())
    hub.look(beat=True)
    for reader in (slow, quick):
        await anext(reader)
        assert b'"whole":true' in await anext(reader)
    for number in range(1, 1_000):
        store.fleet.fold_port(port(carrier=number % 2 == 0))
        hub.look(beat=False)
        assert b'"whole":false' in await anext(quick)

    late = await anext(slow)
    assert (late.count(b"event: tiles"), late.count(b"no carrier")) == (1, 1)
    await slow.aclose()
    await quick.aclose()


async def test_there_is_a_limit_and_it_says_so(client, store, eventually):
    """A page more than the setting allows is refused with the setting's name; one that leaves makes room."""
    store.settings = GatewaySettings(streams=1)
    async with reading(client) as page:
        await page.until("state")
        refused = await client.get("/api/v1/stream")

    assert (refused.status_code, refused.json()["reason"]) == (503, "busy")
    assert "gateway.streams" in refused.json()["detail"]

    async def admitted():
        async with client.stream("GET", "/api/v1/stream") as answer:
            return answer.status_code == 200

    assert await eventually(admitted)


async def test_the_end_of_the_gateway_ends_the_streams():
    """They have no end of their own, and the server waits for what is under way."""
    hub = Hub(Store(GatewaySettings(), time.time_ns))
    hub.look(beat=True)
    reader = frames(hub)
    await anext(reader)
    await anext(reader)
    waiting = asyncio.ensure_future(anext(reader, b"the end"))
    await asyncio.sleep(0)
    hub.close()

    assert await waiting == b"the end"


async def test_no_burst_gets_past_the_limit(client, store):
    """However many ask at the same moment."""
    store.settings = GatewaySettings(streams=3)
    async with contextlib.AsyncExitStack() as pages:
        asked = [pages.enter_async_context(client.stream("GET", "/api/v1/stream")) for _ in range(30)]
        answers = await asyncio.gather(*asked)

    assert sorted(answer.status_code for answer in answers) == [200] * 3 + [503] * 27


@pytest.mark.parametrize("sends", ["all", "nothing"])
async def test_a_reader_that_is_gone_at_once_leaves_its_place(sends):
    """Whether its answer had begun or could not."""
    store = Store(GatewaySettings(streams=1), time.time_ns)
    hub = Hub(store)
    app = api.make(store, hub)
    scope = {
        "type": "http", "http_version": "1.1", "method": "GET", "scheme": "http", "path": "/api/v1/stream",
        "raw_path": b"/api/v1/stream", "root_path": "", "query_string": b"", "headers": [], "client": None,
        "server": None, "extensions": {},
    }  # fmt: skip
    taken = []

    async def gone():
        return {"type": "http.disconnect"}

    async def send(message):
        taken.append(hub.readers)
        if sends == "nothing":
            raise OSError

    for _ in range(3):
        with contextlib.suppress(OSError, LitestarException):
            await app({**scope}, gone, send)

    assert set(taken) == {1}
    assert hub.readers == 0
