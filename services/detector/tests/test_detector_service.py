"""The service, on a real NATS server: observations in, events and spans out."""

from __future__ import annotations

import asyncio

import pytest

from foliot import tracing
from foliot.bus.client import Bus
from foliot_detector import service
from foliot_detector.core import registry
from foliot_schemas import DelayBatch, Event, PortState, Witness, decode
from foliot_schemas.fault import root_span_id, trace_id
from foliot_schemas.names import Path, node_of
from foliot_schemas.subjects import DELAY, EVENT, INVENTORY, PORT

pytestmark = pytest.mark.nats

MS = 1_000_000
PATH = Path("node0.rail0", "node1.rail0", 0)
OTHER = PATH._replace(entropy=1)


class World:
    """What is on the bus besides the detector."""

    def __init__(self, bus):
        self.bus = bus
        self.now_ns = 1_700_000_000_000 * MS
        self.events = asyncio.Queue()

    async def hear(self, event, subject):
        """Somebody who reads events."""
        await self.events.put((event, subject))

    async def publish(self, message):
        """A probe."""
        channel = {PortState: PORT, DelayBatch: DELAY}[type(message)]
        await self.bus.publish(channel, message, message.node)

    async def event(self):
        """The next event."""
        return await asyncio.wait_for(self.events.get(), 60)


@pytest.fixture
async def start(bus_settings, monkeypatch, spans):
    """Starts a detector and returns once it listens."""
    monkeypatch.setenv("FOLIOT_BUS__URL", bus_settings.url)
    monkeypatch.delenv("FOLIOT_CONFIG", raising=False)
    started, running = asyncio.Queue(), []
    monkeypatch.setattr(service.log, "info", lambda event, **_: started.put_nowait(event))

    async def start():
        running.append(asyncio.get_running_loop().create_task(service.main()))
        while await asyncio.wait_for(started.get(), 60) != "detector_started":
            pass

    yield start
    for task in running:
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task


@pytest.fixture
async def world(bus_settings, start, make_node):
    """A detector at work, and the bus that it listens to."""
    bus = await Bus.connect(bus_settings, "test")
    for name in ("node0", "node1"):
        await bus.put(INVENTORY, name, make_node(name))
    world = World(bus)
    await bus.subscribe(EVENT, world.hear)
    await start()
    yield world
    await bus.close()


async def test_a_lost_carrier_becomes_an_event_in_the_trace_of_its_fault(world, make_port, spans):
    """Published as kind and NIC; the span hangs under the root that the probe makes."""
    nic = "node1.rail0"
    await world.publish(make_port(nic, world.now_ns, 3, 4))
    with tracing.span("port changed", fault="boot1/node1.rail0/carrier-4", root=True):
        await world.publish(make_port(nic, world.now_ns + MS, 4, 4, carrier=False))
    event, subject = await world.event()

    assert (event.kind, event.who, event.state) == ("flap", nic, "down")
    assert subject == EVENT.subject("flap", nic)
    (span,) = spans("judge port change")
    assert span.context.trace_id == trace_id(event.fault)
    assert span.parent.span_id == root_span_id(event.fault)


class Mute:
    """A detector whose kind of event its extension has forgotten to register."""

    def resume(self, event):
        """Nothing."""

    def observe(self, seen, now_ns):
        """An event for each word of a port."""
        if not isinstance(seen, PortState):
            return []
        return [Event(id="quake", kind="quake", who=seen.nic, state="shaking", at_ns=seen.at_ns, since_ns=seen.at_ns)]

    def tick(self, now_ns):
        """Nothing."""
        return []


async def test_what_is_of_no_kind_that_is_registered_is_not_published(
    bus_settings, start, make_node, make_port, monkeypatch
):
    """Nobody could tell it, and no shard would own it: the log says so, and other detectors go on."""
    said = []
    monkeypatch.setattr(registry, "_OF_EXTENSIONS", {"mute": lambda _: Mute()})
    monkeypatch.setattr(service.log, "error", lambda event, **more: said.append((event, more["kind"])))
    bus = await Bus.connect(bus_settings, "test")
    await bus.put(INVENTORY, "node1", make_node("node1"))
    world = World(bus)
    await bus.subscribe(EVENT, world.hear)
    await start()
    await world.publish(make_port("node1.rail0", world.now_ns, 3, 4))
    await world.publish(make_port("node1.rail0", world.now_ns + MS, 4, 4, carrier=False))
    event, _ = await world.event()
    await bus.close()

    assert event.kind == "flap"
    assert set(said) == {("event_of_unknown_kind", "quake")}


async def test_a_silent_path_becomes_an_event_and_begins_a_trace(world, make_delays, spans):
    """The detector makes the root; nobody else has seen the fault."""
    silent_from_ns = world.now_ns

    async def speak(ms, *, silent):
        world.now_ns = now_ns = silent_from_ns + ms * MS
        heard_ns = silent_from_ns if silent else now_ns
        await world.publish(
            make_delays(
                "node0",
                now_ns,
                [(PATH, Witness.SOURCE, 2, 0, now_ns), (OTHER, Witness.SOURCE, 2, 0, now_ns)],
            )
        )
        received = 0 if silent else 2
        rows = [(PATH, Witness.DESTINATION, 2, received, heard_ns), (OTHER, Witness.DESTINATION, 2, 2, now_ns)]
        await world.publish(make_delays("node1", now_ns, rows))

    await speak(0, silent=False)
    await speak(100, silent=True)
    await world.publish(
        make_delays("node1", silent_from_ns + 150 * MS, [(PATH, Witness.FELL_SILENT, 0, 0, silent_from_ns)])
    )
    for ms in range(200, 1_000, 100):
        await speak(ms, silent=True)
    event, subject = await world.event()

    assert (event.kind, event.who, event.state) == ("path", str(PATH), "silent")
    assert subject == EVENT.subject("path", str(PATH))
    (span,) = spans("judge silence")
    assert (span.context.trace_id, span.context.span_id) == (trace_id(event.fault), root_span_id(event.fault))
    assert span.parent is None
    told = {name: span.attributes[f"foliot.{name}"] for name in ("event_kind", "who", "state")}
    assert told == {"event_kind": "path", "who": str(PATH), "state": "silent"}  # the trace's title is made of these


async def test_an_event_is_stored_once_though_two_detectors_say_it(world, start, make_port):
    """Its id says what happened, not who saw it."""
    await start()
    nic = "node1.rail0"
    await world.publish(make_port(nic, world.now_ns, 3, 4))
    await world.publish(make_port(nic, world.now_ns + MS, 4, 4, carrier=False))
    for _ in range(2):
        await world.event()
    await world.publish(make_port(nic, world.now_ns + 2 * MS, 4, 5))
    for _ in range(2):
        await world.event()

    stored = await world.bus._stream.subscribe(EVENT.all, ordered_consumer=True)
    states = [decode((await stored.next_msg(timeout=60)).data, Event).state for _ in range(2)]
    assert states == ["down", "up"]


async def test_a_node_taken_out_of_the_inventory_is_no_longer_judged(world, make_port):
    """Its key is deleted."""
    store = await world.bus.store(INVENTORY)
    await store.delete("node1")
    await world.publish(make_port("node0.rail0", world.now_ns, 3, 4))
    await world.publish(make_port("node1.rail0", world.now_ns, 3, 4))
    await world.publish(make_port("node1.rail0", world.now_ns + MS, 4, 4, carrier=False))
    await world.publish(make_port("node0.rail0", world.now_ns + MS, 4, 4, carrier=False))
    event, _ = await world.event()

    assert node_of(event.who) == "node0"
