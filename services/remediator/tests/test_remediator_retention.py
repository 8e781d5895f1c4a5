"""Whoever has left the fleet is forgotten; who comes back in time is not."""

from __future__ import annotations

import collections
import types

import numpy as np
import pytest

from foliot.bus.recent_ids import RecentIds
from foliot_remediator.core.actions.command_ledger import CommandLedger
from foliot_remediator.core.state.inventory import nics_of
from foliot_remediator.core.state.retention import Retained
from foliot_remediator.core.state.state_machine import State
from foliot_schemas import Event, FlowBatch, FlowRow, HopBatch, HopRow, Node
from foliot_schemas.names import node_of

SECOND = 1_000_000_000


def leave(world, name: str) -> None:
    """A node leaves the fleet."""
    world.names.remove(name)
    world.see(Node(name=name, nics=()))


def befall(world, name: str) -> None:
    """All there is to remember happens to a node: a NIC's losses and returns, silences, commands, doubts, reports."""
    world.flap(f"{name}.rail0", "down", reuse_at_ns=world.now_ns + 3_600 * SECOND)
    world.path_event(f"node0.rail1>{name}.rail1#1", "silent")
    world.path_event(f"{name}.rail1>node0.rail1#0", "silent")
    world.run(0.5)
    world.flap(f"{name}.rail0", "up", suppressed=True, reuse_at_ns=world.now_ns + 3_600 * SECOND)
    world.path_event(f"{name}.rail1>node0.rail1#0", "speaking")
    world.word(f"node1.rail1>{name}.rail1#1", "silent")
    world.see(world.flap_event(f"{name}.rail1", "down"))
    world.lie(f"node1.rail1>{name}.rail1#2", "silent")
    contend(world, name)
    world.run(0.5)


def contend(world, name: str) -> None:
    """A node's flow shares a link with another, and is said to; so is a flow to it."""
    flows = (f"{name}.rail1>node2.rail1", f"node1.rail1>{name}.rail1", "node0.rail1>node1.rail1")
    world.see(told_hops(world.now_ns, name, (f"{name}.rail1>node2.rail1#0", f"{name}.rail1>node2.rail1#1")))
    into = tuple(f"node1.rail1>{name}.rail1#{entropy}" for entropy in (0, 3))
    world.see(told_hops(world.now_ns, "node1", into))
    world.see(told_hops(world.now_ns, "node2", tuple(f"node2.rail1>{name}.rail1#{entropy}" for entropy in (0, 1))))
    world.see(told_hops(world.now_ns, name, tuple(f"{name}.rail1>node1.rail1#{entropy}" for entropy in (0, 3))))
    world.see(told_hops(world.now_ns, "node1", ("node1.rail1>node0.rail1#0",)))
    world.see(told_hops(world.now_ns, "node0", ("node0.rail1>node1.rail1#0", f"node0.rail1>{name}.rail1#0")))
    for _ in range(3):
        world.run(0.5)
        for flow in flows:
            world.see(told_flow(world.now_ns, flow))
    for who, state in (("10.1.0.2", "fabric-contention"), (f"{name}.rail1", "own-nic"), (flows[0], "slow-receiver")):
        world.see(
            Event(
                id=f"{who}/{state}/{world.now_ns}", kind="contention", who=who, state=state, at_ns=world.now_ns,
                since_ns=world.now_ns, related={"links": ("10.1.0.2",), "flows": flows},
            )
        )  # fmt: skip


def told_flow(now_ns: int, flow: str) -> FlowBatch:
    """A flow that wants more than the 50 Mb/s that it gets."""
    rows = np.zeros(1, FlowRow)
    rows["acked_bytes"], rows["busy_ns"] = 3_125_000, SECOND // 2
    return FlowBatch.of(rows, node=flow.partition(".")[0], at_ns=now_ns, interval_ns=SECOND // 2, flows=(flow,))


def told_hops(now_ns: int, node: str, paths: tuple[str, ...]) -> HopBatch:
    """Paths over a leaf and the spine that their entropy chooses."""
    rows = [(place, hop, 0x0A010000 + hop + 256 * int(path[-1])) for place, path in enumerate(paths) for hop in (1, 2)]
    return HopBatch.of(np.array(rows, HopRow), node=node, at_ns=now_ns, paths=paths)


def names_in(thing: object, wanted: str, seen: set[int]) -> list[str]:
    """The texts with something in them that can be reached from a thing, but for memories of a number of entries."""
    if id(thing) in seen or isinstance(thing, type | types.FunctionType | types.ModuleType | RecentIds):
        return []
    seen.add(id(thing))
    if isinstance(thing, str):
        return [thing] if wanted in thing else []
    found: list[str] = []
    if isinstance(thing, collections.abc.Mapping):
        parts: list[object] = [*thing.keys(), *thing.values()]
    elif isinstance(thing, list | tuple | set | frozenset | collections.deque):
        parts = [*thing]
    elif isinstance(thing, types.MethodType):
        parts = [thing.__self__]
    else:
        counted = {"_tried"} if isinstance(thing, CommandLedger) else set()
        slots = [name for kind in type(thing).__mro__ for name in getattr(kind, "__slots__", ())]
        names = {*getattr(thing, "__dict__", ()), *slots} - counted
        parts = [getattr(thing, name, None) for name in names]
    for part in parts:
        found += names_in(part, wanted, seen)
    return found


def test_nothing_is_remembered_of_nodes_that_left(make_world):
    """A minute later; until then it may have been the bus that lost them.

    Nodes of other names took their places all the time.
    """
    world, sizes = make_world(improve="act"), []
    for number in range(24):
        name = f"gone{number}"
        world.join(name)
        world.run(0.3)
        befall(world, name)
        leave(world, name)
        if number % 8 == 7:
            world.let_pass(130.0)
            for value in [*world.homes.values()]:
                world.see(value)
            sizes.append(len(world.core.health.reports._heard_ns))
    assert any("gone" in refusal.who for refusal in world.refusals)
    assert any("gone" in command.node for command in world.commands)
    assert any("gone" in command.node and "/contention/" in command.id for command in world.commands)
    world.core.remedies["losses"].budget.moved(world.now_ns)  # what is older than a minute is let go when somebody asks
    assert names_in(world.core, "gone", set()) == []
    places = world.core.health.reports
    assert len(places._ids) == 4 * 3 * 2 * 4
    assert len(places._ids) + len(places._free) <= 4 * 3 * 2 * 4 + 2 * 4 * 2 * 4
    assert len(set(sizes)) == 1


def test_what_befell_a_node_is_known_when_it_is_back_in_time(world):
    """The bus lost its store, and has it again: nothing was repaired by that."""
    world.flap("node3.rail0", "down")
    world.path_event("node1.rail1>node2.rail1#0", "silent")
    world.run(1.0)
    world.flap("node3.rail0", "up")
    leave(world, "node3")
    world.run(5.0)
    assert world.core.health.state("node3.rail0") is State.PROBATION
    world.join("node3")
    world.run(2.0)
    assert world.core.health.state("node3.rail0") is State.UP


def test_a_nic_that_left_and_is_lost_when_it_comes_back_is_left_as_any_other(world):
    """Its event has the name that it had before: nothing is remembered by which it came twice."""
    down = world.flap_event("node3.rail0", "down")
    assert len(world.flap("node3.rail0", "down")) == 4
    world.run(1.0)
    leave(world, "node3")
    world.let_pass(61.0)
    world.join("node3")
    world.run(2.0)
    assert world.core.health.state("node3.rail0") is State.UP
    assert {command.node for command in world.see(down)} == set(world.names)


def test_a_doubt_about_a_node_that_left_is_dropped(world):
    """Nobody can speak against it any more, and nobody has to."""
    world.see(world.flap_event("node3.rail0", "down"))
    world.lie("node0.rail0>node3.rail0#0", "silent")
    leave(world, "node3")
    assert world.run(10.0) == []


def test_places_of_paths_that_left_are_given_to_others_clean(world):
    """What was heard and lost on the one says nothing of the other."""
    reports = world.core.health.reports
    old = "node0.rail0>node3.rail0#0"
    world.path_event(old, "lossy")
    world.word(old, "silent")
    assert (reports.heard_ns(old) > 0, reports.lost(old), reports.has_fallen(old)) == (True, 10, True)
    leave(world, "node3")
    assert (reports.heard_ns(old), reports.heard_sequence(old), reports.lost(old), reports.has_fallen(old)) == (
        0,
        0,
        0,
        False,
    )
    rooms = len(reports._ids) + len(reports._free)
    world.join("node9")
    world.mute |= {"node9.rail0", "node9.rail1"}
    world.run(0.2)
    news = [path for path in reports._ids if "node9" in path]
    assert len(news) == 2 * 3 * 2 * 4
    assert all((reports.heard_ns(path), reports.lost(path), reports.has_fallen(path)) == (0, 0, False) for path in news)
    assert len(reports._ids) + len(reports._free) == rooms
    assert all(reports.heard_ns(path) for path in reports._ids if path not in news)


@pytest.mark.parametrize("peers", [("node1",), ("node1", "node2")])
def test_paths_between_nodes_that_exchange_nothing_have_no_place(world, peers):
    """A node names fewer peers than before: what it was heard on with the others is let go."""
    node = world.core.inventory.nodes["node0"]
    world.see(type(node)(name="node0", nics=node.nics, peers=peers))
    world.run(0.3)
    mine = {path for path in world.core.health.reports._ids if "node0" in path}
    assert {node_of(end.partition("#")[0]) for path in mine for end in path.split(">")} == {"node0", *peers}


def test_a_memory_forgets_a_nic_with_its_paths():
    """And keeps those of other NICs, and no trace of what it let go."""
    memory: Retained[str, int] = Retained(nics_of)
    for number, who in enumerate(("a.r", "a.r>b.r#0", "b.r>a.r#0", "b.r>c.r#1", "c.r")):
        memory[who] = number
    memory["c.r"] = 7
    memory.forget("a.r")
    assert (sorted(memory.values()), memory.get("a.r"), memory.get("c.r")) == ([3, 7], None, 7)
    assert (memory.of("b.r"), memory.of("c.r")) == ({"b.r>c.r#1"}, {"b.r>c.r#1", "c.r"})
    memory.pop("b.r>c.r#1")
    memory.pop("b.r>c.r#1")
    assert (memory.of("b.r"), memory.of("c.r")) == (set(), {"c.r"})
    memory.forget("b.r")
    memory.forget("c.r")
    assert (memory._values, memory._keys._of) == ({}, {})
