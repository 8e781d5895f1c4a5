"""The service, on a real NATS server: observations in, events and spans out."""

from __future__ import annotations

import asyncio
import contextlib
import time
from types import SimpleNamespace

import nats.errors
import numpy as np
import pytest

from foliot import tracing
from foliot.clock import BusClock
from foliot_detector import service
from foliot_detector.core import registry
from foliot_detector.service import DetectorService
from foliot_detector.settings import DetectorSettings
from foliot_schemas import (
    DelayBatch,
    Event,
    FlowBatch,
    FlowRow,
    GpuError,
    HopBatch,
    HopRow,
    Job,
    Node,
    NodePaths,
    Placement,
    PortState,
    Witness,
    WorkerBatch,
    WorkerState,
    decode,
)
from foliot_schemas.fault import root_span_id, trace_id
from foliot_schemas.names import Path, node_of
from foliot_schemas.subjects import DELAY, EVENT, FLOW, GPU, HOPS, INVENTORY, JOBS, PATHS, PORT, WORKER
from patience import patience
from patient_bus import connected

pytestmark = pytest.mark.nats

MS = 1_000_000
PATH = Path("node0.rail0", "node1.rail0", 0)
OTHER = PATH._replace(entropy=1)


class World:
    """What is on the bus besides the detectors.

    Parameters:
        read: what the detectors have read so far.
    """

    def __init__(self, bus, read):
        self.bus = bus
        self.now_ns = 1_700_000_000_000 * MS
        self.events = asyncio.Queue()
        self.detectors = 1
        self._read = read

    async def hear(self, event, subject):
        """Somebody who reads events."""
        await self.events.put((event, subject))

    async def say(self, message):
        """A probe, once."""
        channel = {
            PortState: PORT, DelayBatch: DELAY, FlowBatch: FLOW, HopBatch: HOPS, WorkerBatch: WORKER, GpuError: GPU,
        }[type(message)]  # fmt: skip
        await self.bus.publish(channel, message, *(getattr(message, token) for token in channel.tokens))

    async def publish(self, message):
        """A probe, until all detectors have read it: one that stood still while it waited leaves it out."""
        loop = asyncio.get_running_loop()
        again_s = 0.0
        async with asyncio.timeout(patience(60)):
            while self._read.count(message) < self.detectors:
                if loop.time() >= again_s:
                    await self.say(message)
                    again_s = loop.time() + 1.0
                await asyncio.sleep(0.005)

    async def until_read(self, message):
        """Returns when a detector knows of it."""
        async with asyncio.timeout(patience(60)):
            while message not in self._read:  # noqa: ASYNC110 - no event tells
                await asyncio.sleep(0.005)

    async def event(self):
        """The next event."""
        async with asyncio.timeout(patience(60)):
            return await self.events.get()


@pytest.fixture
def read(monkeypatch):
    """What detectors have read, in their order."""
    found = []
    observe = DetectorService._observe

    def note(detector, observation):
        observe(detector, observation)
        found.append(observation)

    monkeypatch.setattr(DetectorService, "_observe", note)
    return found


@pytest.fixture
async def start(bus_settings, monkeypatch, read, spans):
    """Starts a detector and returns once it listens."""
    monkeypatch.setenv("FOLIOT_BUS__URL", bus_settings.url)
    monkeypatch.delenv("FOLIOT_CONFIG", raising=False)
    started, running = asyncio.Queue(), []
    monkeypatch.setattr(service.log, "info", lambda event, **_: started.put_nowait(event))

    async def start():
        running.append(asyncio.get_running_loop().create_task(service.main()))
        async with asyncio.timeout(patience(60)):
            while await started.get() != "detector_started":
                pass

    yield start
    for task in running:
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task


@pytest.fixture
def begin(bus_settings, start, read, make_node):
    """Makes a detector at work, and the bus that it listens to."""

    @contextlib.asynccontextmanager
    async def begin():
        async with connected(bus_settings) as bus:
            for name in ("node0", "node1"):
                await bus.put(INVENTORY, name, make_node(name))
            world = World(bus, read)
            await bus.subscribe_kept(EVENT, world.hear, durable="test")
            await start()
            yield world

    return begin


@pytest.fixture
async def world(begin):
    """The same, from the start of the test on."""
    async with begin() as world:
        yield world


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


async def test_what_is_of_no_kind_that_is_registered_is_not_published(begin, make_port, monkeypatch):
    """Nobody could tell it, and no shard would own it: the log says so, and other detectors go on."""
    said = []
    monkeypatch.setattr(registry, "_OF_EXTENSIONS", {"mute": lambda _: Mute()})
    monkeypatch.setattr(service.log, "error", lambda event, **more: said.append((event, more["kind"])))
    async with begin() as world:
        await world.publish(make_port("node1.rail0", world.now_ns, 3, 4))
        await world.publish(make_port("node1.rail0", world.now_ns + MS, 4, 4, carrier=False))
        event, _ = await world.event()

    assert event.kind == "flap"
    assert set(said) == {("event_of_unknown_kind", "quake")}


async def test_a_silent_path_becomes_an_event_and_begins_a_trace(world, make_delays, spans):
    """The detector makes the root; nobody else has seen the fault."""
    silent_from_ns = time.time_ns()

    async def speak():
        """Both nodes, by the time that it is: however late they are, they say what is true then."""
        now_ns = time.time_ns()
        await world.say(
            make_delays(
                "node0",
                now_ns,
                [(PATH, Witness.SOURCE, 2, 0, now_ns), (OTHER, Witness.SOURCE, 2, 0, now_ns)],
            )
        )
        rows = [(PATH, Witness.DESTINATION, 2, 0, silent_from_ns), (OTHER, Witness.DESTINATION, 2, 2, now_ns)]
        await world.say(make_delays("node1", now_ns, rows))

    healthy = [(PATH, Witness.DESTINATION, 2, 2, silent_from_ns), (OTHER, Witness.DESTINATION, 2, 2, silent_from_ns)]
    await world.publish(make_delays("node1", silent_from_ns, healthy))
    await speak()
    await world.say(make_delays("node1", time.time_ns(), [(PATH, Witness.FELL_SILENT, 0, 0, silent_from_ns)]))
    async with asyncio.timeout(patience(60)):
        while world.events.empty():
            await asyncio.sleep(0.1)
            await speak()
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
    world.detectors = 2
    nic = "node1.rail0"
    await world.publish(make_port(nic, world.now_ns, 3, 4))
    await world.publish(make_port(nic, world.now_ns + MS, 4, 4, carrier=False))
    await world.publish(make_port(nic, world.now_ns + 2 * MS, 4, 5))

    stored = await world.bus._stream.subscribe(EVENT.all, ordered_consumer=True)
    states = [decode((await stored.next_msg(timeout=patience(60))).data, Event).state for _ in range(2)]
    assert states == ["down", "up"]


async def test_a_node_taken_out_of_the_inventory_is_no_longer_judged(world, make_port):
    """Its key is deleted."""
    store = await world.bus.store(INVENTORY)
    await store.delete("node1")
    await world.until_read(Node(name="node1", nics=()))
    await world.publish(make_port("node0.rail0", world.now_ns, 3, 4))
    await world.publish(make_port("node1.rail0", world.now_ns, 3, 4))
    await world.publish(make_port("node1.rail0", world.now_ns + MS, 4, 4, carrier=False))
    await world.publish(make_port("node0.rail0", world.now_ns + MS, 4, 4, carrier=False))
    event, _ = await world.event()

    assert node_of(event.who) == "node0"


async def test_flows_routers_and_ways_are_heard(world):
    """All that contention rests on, beside delays; and that a node's ways are gone."""
    flows = np.zeros(1, FlowRow)
    hops = np.array([(0, 1, 1)], HopRow)
    at_ns = world.now_ns
    await world.publish(
        FlowBatch.of(flows, node="node0", at_ns=at_ns, interval_ns=MS, flows=("node0.rail0>node1.rail0",))
    )
    await world.publish(HopBatch.of(hops, node="node0", at_ns=at_ns, paths=(str(PATH),)))
    way = Placement(peer="node1", rail="rail0", via="rail0", entropy=0)
    paths = NodePaths(node="node0", lease_revision=1, placements=(way,))
    await world.bus.put(PATHS, "node0", paths)
    await world.until_read(paths)
    store = await world.bus.store(PATHS)
    await store.delete("node0")
    await world.until_read(NodePaths(node="node0", lease_revision=0))


async def test_jobs_are_heard_and_their_ends(world):
    """A registration, and that its key is deleted."""
    job = Job(name="pretrain-7", nics=("node0.rail0", "node1.rail0"), since_ns=1)
    await world.bus.put(JOBS, job.name, job)
    await world.until_read(job)
    await (await world.bus.store(JOBS)).delete("pretrain-7")
    await world.until_read(Job(name="pretrain-7", nics=()))


async def test_lost_workers_and_failed_gpus_become_events(world):
    """What agents tell of a job's processes, and of a driver's log."""

    def batch(number, stage, alive):
        state = WorkerState(
            process=7, rank=number, generation=0, step=9, stage=stage, alive=alive, since_ns=1, heard_ns=1
        )
        at_ns = world.now_ns
        return WorkerBatch(job="pretrain", node=f"node{number}", at_ns=at_ns, bound_ns=9, size=2, workers=(state,))

    await world.publish(batch(0, "training", "running"))
    await world.publish(batch(1, "training", "gone"))
    await world.publish(batch(0, "broken", "running"))
    dead, _ = await world.event()
    assert (dead.kind, dead.who, dead.state) == ("hang", "pretrain/rank1", "dead")
    await world.publish(GpuError(node="node1", at_ns=world.now_ns, bound_ns=9, xid=79))
    failed, _ = await world.event()
    assert (failed.kind, failed.who, failed.state) == ("hardware", "node1", "failed")


async def test_what_an_earlier_run_left_open_is_asked_for_until_the_bus_answers():
    """A bus that was slow at its start would else keep it from ever saying that a fault is over."""
    left = Event(id="f/down", kind="flap", who="node1.rail0", state="down", at_ns=1, since_ns=1, fault="f")
    unanswered, taken = [nats.errors.TimeoutError()], []

    async def newest(_channel, kind, _who):
        if unanswered:
            raise unanswered.pop()
        return [left] if kind == "flap" else []

    detector = DetectorService(SimpleNamespace(newest=newest), BusClock(), DetectorSettings())
    detector._fan_out = SimpleNamespace(resume=taken.append)
    await detector._resume()
    assert taken == [left]
