"""The service, on a real NATS server: events in, commands, refusals, paths and spans out."""

from __future__ import annotations

import asyncio
import time
from types import SimpleNamespace

import msgspec
import numpy as np
import pytest

from foliot import tracing
from foliot.bus import lease
from foliot_remediator import service
from foliot_remediator.core.actions import remedy
from foliot_remediator.core.actions.guards import Budget
from foliot_remediator.core.remedies import losses
from foliot_remediator.core.remedies.replacement import workers
from foliot_schemas import Drain, Event, FlowBatch, FlowRow, HopBatch, HopRow, Job, Outcome, WorkerBatch, WorkerState
from foliot_schemas.fault import trace_id
from foliot_schemas.subjects import (
    COMMAND,
    DELAY,
    DRAINS,
    EVENT,
    FLOW,
    HOMES,
    HOPS,
    INVENTORY,
    JOBS,
    LEASES,
    MOVE,
    OUTCOME,
    PATHS,
    WORKER,
)
from patience import patience
from patient_bus import connected

pytestmark = pytest.mark.nats

_DEADLINE_S = 60
_LASTS_S = 30
"""How long leases, reports and events count here: a machine that stands still for some seconds makes none of them
old."""


class Fleet:
    """Probes that report, agents that answer, and a detector: all on the bus."""

    def __init__(self, bus, world):
        self.bus = bus
        self.world = world
        self.commands = asyncio.Queue()
        self.commanded_under = {}
        """Per node and verb, the revisions of the lease under which it was commanded."""
        self.refusals = asyncio.Queue()
        self.backed = asyncio.Event()
        self.paths = {}

    async def join(self):
        """Registers the nodes and listens."""
        for node in self.world.core.inventory.nodes.values():
            await self.bus.put(INVENTORY, node.name, node)
        await self.bus.subscribe(COMMAND, self._on_command)
        await self.bus.subscribe(EVENT, self._on_refusal, "refusal", "")
        await self.bus.watch(PATHS, self._on_paths)

    async def report(self):
        """Probes report, until cancelled."""
        while True:
            self.world.now_ns = time.time_ns()
            for name in self.world.names:
                await self.bus.publish(DELAY, self.world.batch(name), name)
            await asyncio.sleep(0.05)

    def flap(self, nic, state, count=1):
        """The detector speaks."""
        self.world.now_ns = time.time_ns()
        (self.world.dead_nics.add if state == "down" else self.world.dead_nics.discard)(nic)
        event = self.world.flap_event(nic, state, count)
        with tracing.span("judge port change", fault=event.fault):
            self.bus.publish_kept(EVENT, event, event.kind, event.who)

    async def commanded(self, verb):
        """The commands of a verb, by node, once each node has one."""
        commands = {}
        async with asyncio.timeout(patience(_DEADLINE_S)):
            while len(commands) < len(self.world.names):
                command = await self.commands.get()
                if command.verb == verb:
                    commands[command.node] = command
        return commands

    async def until(self, condition):
        """Waits for the paths that are written to be as wanted."""
        async with asyncio.timeout(patience(_DEADLINE_S)):
            while not condition():
                self.backed.clear()
                await self.backed.wait()

    async def _on_command(self, command, _subject):
        self.commands.put_nowait(command)
        self.commanded_under.setdefault((command.node, command.verb), set()).add(command.lease_revision)
        outcome = Outcome(
            id=f"{command.id}/outcome", command=command.id, verb=command.verb, node=command.node, status="done",
            started_ns=time.time_ns(), fault=command.fault, away=command.away, back=command.back,
            placements=command.placements,
        )  # fmt: skip
        self.bus.publish_kept(OUTCOME, outcome, outcome.verb, outcome.node)

    async def _on_refusal(self, event, _subject):
        self.refusals.put_nowait(event)

    async def _on_paths(self, key, paths):
        self.paths[key] = paths
        self.backed.set()


@pytest.fixture
async def inventory(bus_settings, make_world, spans):
    """Four nodes on the bus that report."""
    async with connected(bus_settings) as bus:
        inventory = Fleet(bus, make_world(lease=0))
        await inventory.join()
        reporting = asyncio.create_task(inventory.report())
        yield inventory
        reporting.cancel()
        await asyncio.gather(reporting, return_exceptions=True)


@pytest.fixture
async def start(bus_settings, monkeypatch):
    """Starts a remediator, returns once it listens, and gives what stops it."""
    monkeypatch.setenv("FOLIOT_BUS__URL", bus_settings.url)
    monkeypatch.setenv("FOLIOT_REMEDIATOR__PROBATION_S", "0.5")
    for name in ("HEALTHY_WITHIN_S", "CLOCK_STALE_S"):
        monkeypatch.setenv(f"FOLIOT_REMEDIATOR__{name}", str(_LASTS_S))
    monkeypatch.setattr(losses, "_STALE_NS", _LASTS_S * 1_000_000_000)
    monkeypatch.setattr(lease, "LEASES", msgspec.structs.replace(LEASES, name="slow", keep_s=float(_LASTS_S)))
    monkeypatch.delenv("FOLIOT_CONFIG", raising=False)
    running, started = [], asyncio.Queue()
    monkeypatch.setattr(service.log, "info", lambda event, **_: started.put_nowait(event))

    async def stop(task):
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    async def start(instance):
        monkeypatch.setenv("FOLIOT_REMEDIATOR__INSTANCE", instance)
        task = asyncio.create_task(service.main())
        running.append(task)
        async with asyncio.timeout(patience(_DEADLINE_S)):
            while await started.get() != "remediator_started":
                pass
        return lambda: stop(task)

    yield start
    for task in running:
        if not task.done():
            await stop(task)


async def test_a_fault_goes_all_the_way(inventory, start, spans):
    """Backups are armed, a lost NIC is left by all concerned, used again when it is back, all in the fault's trace."""
    await start("one")
    await inventory.until(
        lambda: len(inventory.paths) == 4 and all(len(each.backups) == 6 for each in inventory.paths.values())
    )
    inventory.flap("node3.rail0", "down")
    commands = await inventory.commanded("reroute")
    assert commands["node3"].away == ("rail0",)
    assert {node: command.placements[0].via for node, command in commands.items() if node != "node3"} == {
        "node0": "rail1", "node1": "rail1", "node2": "rail1",
    }  # fmt: skip
    await inventory.until(lambda: inventory.paths["node3"].away == ("rail0",))

    inventory.flap("node3.rail0", "up")
    commands = await inventory.commanded("restore")
    assert commands["node3"].back == ("rail0",)
    await inventory.until(lambda: inventory.paths["node3"].away == ())

    fault = trace_id(commands["node3"].fault)
    (away,), (back,) = spans("decide reroute"), spans("decide restore")
    assert away.context.trace_id == back.context.trace_id == fault
    # The way back is decided when the probation is over, and belongs below the event all the same.
    lost, returned = spans("judge port change")
    assert (away.parent.span_id, back.parent.span_id) == (lost.context.span_id, returned.context.span_id)
    assert away.attributes["foliot.commands"] == 4


async def test_a_refusal_is_an_event(inventory, start):
    """What is not done is said on the bus."""
    await start("one")
    await inventory.until(lambda: len(inventory.paths) == 4)
    inventory.flap("node9.rail0", "down")
    refusal = await asyncio.wait_for(inventory.refusals.get(), patience(_DEADLINE_S))
    assert (refusal.who, refusal.policy, refusal.cause) == ("node9.rail0", "unknown", "boot/node9.rail0/carrier-1/down")


@pytest.mark.parametrize("high", [0, 1])
async def test_a_contended_link_is_left(inventory, start, monkeypatch, high):
    """By what probes say of flows and routers, and by the flow whose job matters less; the new home is stored."""
    nics = tuple(f"node{node}.rail0" for node in (high, high + 2))
    await inventory.bus.put(JOBS, "large", Job(name="large", nics=nics, priority=5, since_ns=1))
    monkeypatch.setenv("FOLIOT_REMEDIATOR__IMPROVE", "act")
    monkeypatch.setenv("FOLIOT_REMEDIATOR__PRIMARY", "first")
    homes, stored = {}, asyncio.Event()

    async def take_home(node, value):
        homes[node] = value
        stored.set()

    async def tell():
        while True:
            for node, peer in ((0, 2), (1, 3)):
                await inventory.bus.publish(HOPS, hops(node, peer), f"node{node}")
                await inventory.bus.publish(HOPS, hops(peer, node), f"node{peer}")
                await inventory.bus.publish(FLOW, half_a_flow(node, peer), f"node{node}")
            await asyncio.sleep(0.2)

    await inventory.bus.watch(HOMES, take_home)
    await start("one")
    await inventory.until(lambda: len(inventory.paths) == 4)
    telling = asyncio.create_task(tell())
    inventory.bus.publish_kept(EVENT, contended("contended"), "contention", "10.1.0.2")
    command = await asyncio.wait_for(inventory.commands.get(), patience(_DEADLINE_S))
    assert (command.verb, command.node, command.cause, command.fault, len(command.placements)) == (
        "reroute", f"node{1 - high}", "contended", "contended", 1,
    )  # fmt: skip
    async with asyncio.timeout(patience(_DEADLINE_S)):
        while not homes.get(command.node):
            stored.clear()
            await stored.wait()
    assert homes[command.node].placements == command.placements
    telling.cancel()
    await asyncio.gather(telling, return_exceptions=True)


def hops(node, peer):
    """The routers of a node's paths to a peer: the entropy chooses the second."""
    paths = tuple(f"node{node}.rail0>node{peer}.rail0#{entropy}" for entropy in range(4))
    rows = [(place, hop, 0x0A010000 + hop + 256 * place) for place in range(4) for hop in (1, 2)]
    return HopBatch.of(np.array(rows, HopRow), node=f"node{node}", at_ns=time.time_ns(), paths=paths)


def half_a_flow(node, peer):
    """A flow that wants more than the 50 Mb/s that it gets."""
    rows = np.zeros(1, FlowRow)
    rows["acked_bytes"], rows["busy_ns"] = 3_125_000, 500_000_000
    name = f"node{node}"
    return FlowBatch.of(
        rows, node=name, at_ns=time.time_ns(), interval_ns=500_000_000, flows=(f"{name}.rail0>node{peer}.rail0",)
    )


async def test_a_remedy_of_an_extension_is_told_of_traffic(inventory, start, monkeypatch):
    """Though nothing is improved."""
    monkeypatch.setenv("FOLIOT_REMEDIATOR__IMPROVE", "off")
    monkeypatch.setattr(remedy, "registered", dict(remedy.registered))
    told = asyncio.Queue()

    def listens(seen, _news, _now_ns):
        told.put_nowait(seen)

    budget = Budget(per_minute=1, nodes_at_once=1)
    listener = SimpleNamespace(
        name="listener", priority=1, budget=budget, kinds=(), hears_traffic=True, observe=listens,
        hold=lambda _now_ns: None, tick=lambda _overdue, _now_ns: None,
    )  # fmt: skip
    remedy.register("listener", lambda _view: listener)
    await start("one")
    await inventory.bus.publish(FLOW, half_a_flow(0, 2), "node0")
    async with asyncio.timeout(patience(_DEADLINE_S)):
        while not isinstance(await told.get(), FlowBatch):
            pass


async def test_shards_act_side_by_side(inventory, start, monkeypatch):
    """Each commands its own nodes and writes their paths, under its own lease; together they do what one does."""
    monkeypatch.setenv("FOLIOT_SHARD__STARTS", '["node2"]')
    for number in (0, 1):
        monkeypatch.setenv("FOLIOT_SHARD__NUMBER", str(number))
        await start("remediator")
    await inventory.until(
        lambda: len(inventory.paths) == 4 and all(len(each.backups) == 6 for each in inventory.paths.values())
    )
    inventory.flap("node3.rail0", "down")
    commands = await inventory.commanded("reroute")
    assert commands["node3"].away == ("rail0",)
    leases = {node: command.lease_revision for node, command in commands.items()}
    assert leases["node0"] == leases["node1"] != leases["node2"] == leases["node3"]
    assert {node: paths.lease_revision for node, paths in inventory.paths.items()} == leases
    assert inventory.commanded_under == {(node, "reroute"): {revision} for node, revision in leases.items()}


_FIRST_STAYS = """
[remediator]
improve = "act"
primary = "first"
placements = [{node = "node0", peer = "node2", rail = "rail0", via = "rail0", entropy = 0}]

[shard]
starts = ["node1"]
"""


async def test_a_flow_of_another_shard_leaves_a_contended_link(inventory, start, monkeypatch, tmp_path):
    """One of two remediators is elected and plans; the other commands its node. When the first goes, it coordinates.

    For an event for which a move has gained nothing, whoever judged that, it plans no other; nor is an older event of
    the same link left out for it.
    """
    (tmp_path / "foliot.toml").write_text(_FIRST_STAYS)
    monkeypatch.setenv("FOLIOT_CONFIG", str(tmp_path / "foliot.toml"))
    homes, orders, changed = {}, [], asyncio.Event()

    async def take_home(node, value):
        homes[node] = value
        changed.set()

    async def take_order(order, _subject):
        orders.append(order)
        changed.set()

    async def until(condition):
        async with asyncio.timeout(patience(_DEADLINE_S)):
            while not condition():
                changed.clear()
                await changed.wait()

    async def tell():
        while True:
            for node, peer in ((0, 2), (1, 3)):
                await inventory.bus.publish(HOPS, hops(node, peer), f"node{node}")
                await inventory.bus.publish(HOPS, hops(peer, node), f"node{peer}")
                await inventory.bus.publish(FLOW, half_a_flow(node, peer), f"node{node}")
            await asyncio.sleep(0.2)

    await inventory.bus.watch(HOMES, take_home)
    await inventory.bus.subscribe(MOVE, take_order)
    telling = asyncio.create_task(tell())
    monkeypatch.setenv("FOLIOT_SHARD__NUMBER", "0")
    stop_first = await start("remediator")
    await until(lambda: {order.rail for order in orders} == {"rail0", "rail1"})
    refusal = no_gain("judged")
    inventory.bus.publish_kept(EVENT, refusal, "refusal", refusal.who)
    monkeypatch.setenv("FOLIOT_SHARD__NUMBER", "1")
    await start("remediator")
    await inventory.until(lambda: len(inventory.paths) == 4)
    inventory.bus.publish_kept(EVENT, contended("judged"), "contention", "10.1.0.2")
    inventory.bus.publish_kept(EVENT, contended("first", age_s=1.0), "contention", "10.1.0.2")
    command = await asyncio.wait_for(inventory.commands.get(), patience(_DEADLINE_S))
    assert (command.verb, command.node, command.cause) == ("reroute", "node1", "first")
    assert command.lease_revision == inventory.paths["node1"].lease_revision != inventory.paths["node0"].lease_revision
    await until(lambda: "node1" in homes and homes["node1"].placements == command.placements)
    (first,) = [order for order in orders if order.moves]
    assert (first.shard, first.rail, [move.node for move in first.moves]) == ("remediator-node1", "rail0", ["node1"])

    await stop_first()
    await until(lambda: any(order.term > first.term and order.rail == "rail0" for order in orders))
    telling.cancel()
    await asyncio.gather(telling, return_exceptions=True)


def contended(name, age_s=0.0):
    """The detector's word that two flows share a link."""
    now_ns = time.time_ns() - round(age_s * 1e9)
    return Event(
        id=name, kind="contention", who="10.1.0.2", state="fabric-contention", at_ns=now_ns, since_ns=now_ns,
        fault=name,
        related={"links": ("10.1.0.2",), "flows": tuple(f"node{node}.rail0>node{node + 2}.rail0" for node in (0, 1))},
    )  # fmt: skip


def no_gain(cause):
    """The word of a coordinator before that a flow, which is no shard's of these, came back."""
    now_ns = time.time_ns()
    return Event(
        id=f"{cause}/refused", kind="refusal", who="node8.rail0>node9.rail0", state="refused", at_ns=now_ns,
        since_ns=now_ns, fault=cause, cause=cause, policy="no-gain",
    )  # fmt: skip


async def test_another_takes_over(inventory, start):
    """Of two, one acts; when it goes, the other finds what is in force and brings it back, with a higher revision."""
    stop_first = await start("one")
    await inventory.until(
        lambda: len(inventory.paths) == 4 and all(len(each.backups) == 6 for each in inventory.paths.values())
    )
    await start("two")
    inventory.flap("node3.rail0", "down")
    before = await inventory.commanded("reroute")
    await inventory.until(lambda: inventory.paths["node3"].away == ("rail0",))
    await stop_first()

    inventory.flap("node3.rail0", "up")
    after = await inventory.commanded("restore")
    assert after["node3"].back == ("rail0",)
    assert after["node3"].lease_revision > before["node3"].lease_revision
    assert inventory.commanded_under == {
        (node, command.verb): {command.lease_revision}
        for commands in (before, after)
        for node, command in commands.items()
    }


@pytest.fixture
async def job(inventory, monkeypatch):
    """A job of two ranks, and a spare, whose nodes tell of them: by node, what changes of it is told."""
    monkeypatch.setenv("FOLIOT_REMEDIATOR__REPLACE", "act")
    monkeypatch.setattr(workers, "SILENT_NS", _LASTS_S * 1_000_000_000)
    said = {"node0": {"rank": 0}, "node1": {"rank": 1}, "node2": {"rank": -1, "stage": "spare"}}
    began_ns = time.time_ns()

    async def tell():
        while True:
            now_ns = time.time_ns()
            step = (now_ns - began_ns) // 100_000_000
            for node, more in said.items():
                usual = {"stage": "training", "alive": "running", "step": step, "heard_ns": now_ns, "meet": f"{node}:1"}
                worker = WorkerState(process=7, generation=0, since_ns=began_ns, **(usual | more))
                batch = WorkerBatch(job="train", node=node, at_ns=now_ns, bound_ns=1_000, size=2, workers=(worker,))
                await inventory.bus.publish(WORKER, batch, "train", node)
            await asyncio.sleep(0.1)

    telling = asyncio.create_task(tell())
    yield said
    telling.cancel()
    await asyncio.gather(telling, return_exceptions=True)


async def ordered(inventory, nodes):
    """The order of ranks that these nodes are given, and a command of it."""
    told = {}
    async with asyncio.timeout(patience(_DEADLINE_S)):
        while told.keys() != nodes:
            command = await inventory.commands.get()
            if command.verb == "replace-rank":
                told[command.node] = command
    (order,) = {command.order() for command in told.values()}
    return order, command


async def test_a_lost_rank_is_given_to_a_spare(inventory, job, start, spans):
    """The decision belongs below the judgement in the trace of the loss."""
    await start("one")
    job["node0"] = {"rank": 0, "stage": "broken"}
    job["node1"] = {"rank": 1, "alive": "gone"}
    fault, now_ns = "train/rank1/dead-1", time.time_ns()
    event = Event(id=fault, kind="hang", who="train/rank1", state="dead", at_ns=now_ns, since_ns=now_ns, fault=fault)
    with tracing.span("judge hang", fault=fault):
        inventory.bus.publish_kept(EVENT, event, event.kind, event.who)
    order, command = await ordered(inventory, {"node0", "node2"})
    assert [(change.rank, change.node, change.to_node) for change in order.changes] == [(1, "node1", "node2")]
    assert (order.meet, command.fault) == ("node0:1", fault)
    (judged,), (decided, *_) = spans("judge hang"), spans("decide replace-rank")
    assert decided.context.trace_id == trace_id(fault)
    assert decided.parent.span_id == judged.context.span_id


async def test_the_ranks_of_a_drained_node_go_elsewhere(inventory, job, start, spans):
    """As the bucket says, which a person writes; until that is taken back."""
    drain = Drain(node="node1", at_ns=time.time_ns())
    await inventory.bus.put(DRAINS, "node1", drain)
    await start("one")
    order, command = await ordered(inventory, {"node0", "node1", "node2"})
    assert (order.cause, order.at_step > 0) == ("drain", True)
    assert command.fault == f"drain/node1-{drain.at_ns}"
    (decided, *_) = spans("decide replace-rank")
    assert decided.context.trace_id == trace_id(command.fault)
