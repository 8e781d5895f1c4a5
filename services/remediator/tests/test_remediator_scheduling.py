"""Whose turn it is, and that a large fleet costs no more per event than a small one."""

from __future__ import annotations

import msgspec
import pytest

from foliot_remediator.core.scheduling import DueQueue, Round, Soon

SECOND = 1_000_000_000


def taken(turns, now_ns):
    """All whose turn it is."""
    return list(iter(lambda: turns.take(now_ns), None))


def test_in_a_round_everybody_comes_once_per_interval():
    """Who is new is next."""
    turns = Round(SECOND)
    for node in ("a", "b"):
        turns.join(node)
    assert taken(turns, 10 * SECOND) == ["b", "a"]
    turns.join("c")
    assert taken(turns, 10 * SECOND + 1) == ["c"]
    assert taken(turns, 11 * SECOND) == ["b", "a"]
    assert taken(turns, 11 * SECOND + 1) == ["c"]


def test_who_waits_has_no_turn_for_an_interval():
    """Whether it took part before or not."""
    turns = Round(SECOND)
    turns.join("a")
    for node in ("a", "b"):
        turns.wait(node, 10 * SECOND)
    assert taken(turns, 11 * SECOND - 1) == []
    assert taken(turns, 11 * SECOND) == ["a", "b"]


def test_who_left_the_round_has_no_turn():
    """Nor had one that was never in it."""
    turns = Round(SECOND)
    turns.join("a")
    for node in ("a", "b"):
        turns.leave(node)
    assert taken(turns, SECOND) == []
    assert "a" not in turns


def test_a_round_begun_anew_is_everybodys_turn():
    """In the same order."""
    turns = Round(SECOND)
    for node in ("b", "a"):
        turns.join(node)
    assert taken(turns, SECOND) == ["a", "b"]
    turns.begin_anew()
    assert taken(turns, SECOND + 1) == ["a", "b"]


def test_what_is_put_twice_is_due_once_at_the_later_word():
    """Also where that is earlier; and what was taken is due again when it is put again, at the same time too."""
    due = DueQueue()
    for name, at_ns in (("a", 5), ("b", 3), ("a", 2), ("c", 9), ("c", 9)):
        due.put(name, at_ns)
    assert [due.take(now_ns) for now_ns in (1, 2, 8)] == [[], ["a"], ["b"]]
    assert due.take(9) == ["c"]
    due.put("c", 9)
    assert [due.take(9), due.take(100)] == [["c"], []]
    assert (due._due_ns, due._heap) == ({}, [])


def test_what_is_named_has_its_turn_after_the_gap():
    """Named again until then, it has one turn all the same."""
    turns = Soon(100)
    turns.name(["a"])
    assert turns.take(1_000) is None
    turns.name(["a", "b"])
    assert turns.take(1_050) is None
    assert taken(turns, 1_100) == ["a"]
    turns.leave("b")
    assert taken(turns, 2_000) == []


def with_peers(world, count):
    """The same fleet, whose nodes name their nearest neighbours on a ring."""
    names = world.names
    for place, name in enumerate(names):
        peers = tuple(names[(place + step) % len(names)] for step in range(-count, count + 1) if step)
        world.see(msgspec.structs.replace(world.core.inventory.nodes[name], peers=peers))
    world.run(2.0)
    return world


def test_only_peers_are_told_of_a_lost_nic(make_world):
    """Who exchanges nothing with a node has nothing to move."""
    world = with_peers(make_world(nodes=12), 2)
    commands = world.flap("node3.rail0", "down")
    assert {command.node for command in commands} == {"node1", "node2", "node3", "node4", "node5"}
    assert {way.peer for way in world.paths("node0").placements} == {"node10", "node11", "node1", "node2"}


def test_a_peer_that_does_not_name_the_node_is_none(make_world):
    """Both have to agree; an empty list leaves nobody out."""
    world = make_world(nodes=4)
    world.see(msgspec.structs.replace(world.core.inventory.nodes["node0"], peers=("node1",)))
    assert [*world.core.inventory.neighbours("node0")] == ["node1"]
    assert set(world.core.inventory.neighbours("node1")) == {"node0", "node2", "node3"}
    assert set(world.core.inventory.neighbours("node2")) == {"node1", "node3"}


def test_what_strayed_is_looked_at_and_nothing_else(make_world, monkeypatch):
    """Each tick of a large fleet may look at a few nodes only: those with something away from its primary way."""
    world = make_world(nodes=4)
    looked = []
    monkeypatch.setattr(world.core.remedies["losses"]._planner, "overdue_back", lambda node: looked.append(node) or [])
    world.run(3.0)
    assert looked == []
    world.flap("node3.rail0", "down")
    world.run(1.5)
    assert set(looked) == set(world.names)


@pytest.mark.parametrize("count", [1, 3])
def test_the_minutes_moves_are_summed_as_they_come_and_go(make_world, count):
    """As a sum over all of them would be, which a storm could not afford."""
    budgets = make_world().core.remedies["losses"].budget
    start_ns = 10**18
    for number in range(count):
        budgets.spend(5, start_ns + number * SECOND)
    assert budgets.moved(start_ns + 59 * SECOND) == 5 * count
    assert budgets.moved(start_ns + 60 * SECOND) == 5 * (count - 1)
    assert budgets.moved(start_ns + 90 * SECOND) == 0
