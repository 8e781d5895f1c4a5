"""Several remediators share a fleet: one coordinates a rail, and each commands its own nodes."""

from __future__ import annotations

import pytest
from contention_world import LINE, SPINES, ContentionWorld, flow, to_spine
from prepared import prepared
from sharded_world import ShardedWorld

from foliot_remediator.settings import PlacementRule
from foliot_schemas import HomeMove, Job, MoveAnswer, MoveOrder, NodeHomes, Placement

TWO = (flow(0, 4), flow(1, 5))
"""Of two shards."""
PINNED = PlacementRule(node="node0", peer="node4", rail="rail0", via="rail0", entropy=0)
"""What leaves the other flow alone to be moved."""


def world_of(flows=TWO, **settings):
    """A fabric with these flows on the first spine, of which only that of the second shard may move."""
    return prepared(ShardedWorld, flows=flows, **{"placements": (PINNED,), **settings})


def moves(commands):
    """Which node was told which entropy."""
    return {(command.node, way.peer): way.entropy for command in commands for way in command.placements}


def megabits(world):
    """What each flow gets, Mb/s."""
    return [round(rate / 1e6) for rate in world.rates().values()]


def refused_orders(world, number):
    """How many orders of former coordinators one of the remediators has refused."""
    return world.core.cores[number].coordination.refused_orders


@pytest.mark.parametrize("coordinator", [0, 1])
def test_the_flow_of_any_shard_is_moved_by_that_shard(coordinator):
    """Under the lease of its own; and its new home is stored. Nothing else happens."""
    world = world_of(coordinator=coordinator)
    (command,) = world.contend()
    assert (command.verb, command.node, command.lease_revision) == ("reroute", "node1", 8)
    assert (command.cause, command.fault) == ("10.1.0.0/contention-1/fabric-contention", "10.1.0.0/contention-1")
    assert world.homes["node1"].placements == command.placements
    assert megabits(world) == [100, 100]
    assert world.run(20.0) == []
    assert world.refusals == []


@pytest.mark.parametrize("coordinator", [0, 1])
def test_two_shards_move_what_one_remediator_moves(coordinator):
    """By the same plan, whoever makes it."""
    three = (*TWO, flow(2, 6))
    whole, shared = ContentionWorld(three), ShardedWorld(three, coordinator)
    assert moves(shared.contend() + shared.run(20.0)) == moves(whole.contend() + whole.run(20.0))
    assert megabits(shared) == megabits(whole) == [100, 100, 100]
    assert shared.refusals == []


def test_a_move_of_another_shard_without_gain_is_taken_back():
    """The coordinator judges it; the shard brings it home."""
    world = world_of()
    world.capacity = {to_spine(0, spine): LINE / 10 for spine in range(1, SPINES)}
    (command,) = world.contend()
    (back,) = world.run(12.0)
    assert (back.verb, back.node, back.lease_revision, back.cause) == ("restore", "node1", 8, command.cause)
    assert world.guards() == ["no-gain"]
    assert world.homes["node1"].placements == ()
    assert megabits(world) == [50, 50]


def test_failover_of_a_shard_wins():
    """The new path is lost before the gain is known: that is failover's, and is not judged."""
    world = world_of()
    (command,) = world.contend()
    (way,) = command.placements
    path = f"node1.rail0>node5.rail0#{way.entropy}"
    world.silent.add(path)
    world.run(0.2)
    (left,) = world.path_event(path, "silent")
    assert left.node == "node1"
    world.capacity = {to_spine(0, spine): LINE / 10 for spine in range(1, SPINES)}
    assert world.run(8.0) == []
    assert world.guards() == []


def test_a_way_that_its_shard_does_not_hear_is_not_taken():
    """The coordinator does not know it; the other flow moves then."""
    world = ShardedWorld(TWO)
    world.silent |= {f"node1.rail0>node5.rail0#{spine}" for spine in range(1, SPINES)}
    world.run(3.0)
    given = world.contend() + world.run(20.0)
    assert [*moves(given)] == [("node0", "node4")]
    assert megabits(world) == [100, 100]


def test_orders_of_a_former_coordinator_are_refused():
    """It stood still, and does not know yet; nothing is moved by it, and it is counted."""
    world = world_of()
    world.core.cores[1].coordinate({"rail0": 21}, {"rail0"})
    world.run(0.2)
    world.core.dead = {1}  # so that the new one does not plan
    event = world.contention(to_spine(0, 0), TWO)
    world.core.lost = (MoveOrder,)
    world.see(event)
    world.run(0.2)
    world.core.dead, world.core.lost = set(), ()
    (order,) = [each for each in world.core.told if isinstance(each, MoveOrder) and each.moves]
    assert (order.shard, order.term) == ("remediator-node1", 20)
    assert world.see(order) == []
    assert refused_orders(world, 1) == 1
    (answer,) = [each for each in world.core.told if isinstance(each, MoveAnswer)]
    assert (answer.statuses, answer.guard) == (("refused",), "fence")


def test_an_order_that_was_lost_is_given_again():
    """And is carried out once, however often it comes."""
    world = world_of()
    world.core.lost = (MoveOrder, MoveAnswer)
    assert world.contend() == []
    world.core.lost = (MoveAnswer,)
    assert len(world.run(1.0)) == 1
    world.core.lost = ()
    assert world.run(20.0) == []
    assert len([each for each in world.core.told if isinstance(each, MoveOrder) and each.moves]) > 2
    assert (megabits(world), world.refusals) == ([100, 100], [])


def test_what_a_shard_does_not_answer_is_taken_back():
    """Nobody knows what it did."""
    world = world_of()
    world.core.lost = (MoveAnswer,)
    (command,) = world.contend()
    given = world.run(12.0)
    assert [(each.verb, each.node) for each in given] == [("restore", command.node)]
    assert world.guards() == ["lease"]
    assert world.refusals[0].evidence["shard"] == "remediator-node1"
    assert world.homes["node1"].placements == ()


def test_what_one_shard_moved_is_judged_although_another_does_not_answer():
    """From when that is sure; both had come to a link each, and one of these is not what it seemed."""
    three = (*TWO, flow(2, 6))
    world = ShardedWorld((), placements=(PlacementRule(
        node="node2", peer="node6", rail="rail0", via="rail0", entropy=0),))  # fmt: skip
    for name in three:
        world.flows = {name: LINE}
        world.run(2.0)
    world.flows = dict.fromkeys(three, LINE)
    world.run(2.0)
    world.core.lost = (MoveOrder,)
    (command,) = world.contend()
    assert command.node == "node0"
    world.capacity = {to_spine(0, spine): LINE / 10 for spine in range(1, SPINES)}
    given = world.run(20.0)
    assert [(each.verb, each.node) for each in given] == [("restore", "node0")]
    assert world.guards() == ["lease", "no-gain"]


def test_a_shard_without_its_lease_moves_nothing():
    """No other process may command its nodes."""
    world = world_of()
    world.core.cores[1].hold(0, world.now_ns, held_by_another=True)
    assert world.contend() == world.run(12.0) == []
    assert world.guards() == ["lease"]


def test_a_coordinator_that_dies_is_followed_by_another():
    """What was moved stays; and what is contended then is seen to, without the flow that was just moved."""
    world = world_of()
    (command,) = world.contend()
    world.core.dead = {0}
    world.core.elect(1, 30)
    world.tell_hops()
    assert world.run(10.0) == []
    third = flow(2, 6)
    world.flows[third] = LINE
    (way,) = command.placements
    world.core.cores[1].homes.learn(homes_of("node2", "node6", way.entropy))
    world.core.cores[1].whole.homes.learn(homes_of("node2", "node6", way.entropy))
    world.run(3.0)
    assert megabits(world) == [100, 50, 50]
    given = world.contend(to_spine(0, way.entropy), (TWO[1], third), number=2) + world.run(6.0)
    assert {node for node, _ in moves(given)} == {"node2"}


@pytest.mark.parametrize("coordinator", [0, 1])
def test_a_coordinator_that_follows_does_not_repeat_a_move_without_gain(coordinator):
    """Whichever shard commands the flow's nodes, all hear that nothing came of it."""
    world = world_of(coordinator=coordinator)
    world.capacity = {to_spine(0, spine): LINE / 10 for spine in range(1, SPINES)}
    world.contend()
    world.run(12.0)
    (refusal,) = world.refusals
    world.see(refusal)
    world.core.elect(1 - coordinator, 30)
    world.tell_hops()
    assert world.run(20.0) == []
    assert world.guards() == ["no-gain"]


def homes_of(node, peer, entropy):
    """A value of the bucket with one choice."""
    way = Placement(peer=peer, rail="rail0", via="rail0", entropy=entropy)
    return NodeHomes(node=node, lease_revision=8, placements=(way,))


def test_where_nobody_is_elected_nothing_moves():
    """That is said, once it is sure."""
    world = world_of(coordinator=None)
    assert world.contend() == world.run(2.0) == []
    assert world.guards() == []
    assert world.run(20.0) == []
    assert {*world.guards()} == {"not-coordinated"}
    world.core.elect(0, 20)
    world.tell_hops()
    assert [*moves(world.run(40.0))] == [("node1", "node5")]


def test_a_shard_refuses_what_is_not_its_own_to_move():
    """Nodes of others, ways that there are not, and what an administrator has placed."""
    world = ShardedWorld(TWO, placements=(PINNED,))
    for node, peer, entropy in (("node1", "node5", 1), ("node0", "node4", 1), ("node0", "node5", 9)):
        way = Placement(peer=peer, rail="rail0", via="rail0", entropy=entropy)
        order = MoveOrder(
            id=f"{node}/{entropy}", shard="remediator", rail="rail0", term=20, who="10.1.0.0", cause="event",
            issued_ns=world.now_ns, deadline_ns=world.now_ns + 1, moves=(HomeMove(node=node, way=way),),
        )  # fmt: skip
        world.see(order)
    assert world.commands == []
    answers = [each for each in world.core.told if isinstance(each, MoveAnswer)]
    assert [(each.statuses, each.guard) for each in answers] == [
        (("refused",), "unknown"), (("refused",), "policy"), (("refused",), "unknown"),
    ]  # fmt: skip


@pytest.mark.parametrize("coordinator", [0, 1])
def test_a_flow_of_another_shard_yields_to_one_that_matters_more(coordinator, monkeypatch):
    """Where no way is free; the command of its shard says who loses, and for whom."""
    routers = ContentionWorld.routers
    monkeypatch.setattr(  # there are two ways
        ContentionWorld, "routers", lambda self, path: routers(self, path) if path.endswith(("#0", "#1")) else []
    )
    rule = PlacementRule(node="node2", peer="node6", rail="rail0", via="rail0", entropy=1, pinned=False)
    world = ShardedWorld((*TWO, flow(2, 6)), coordinator, placements=(rule,))
    world.run(3.0)
    world.see(Job(name="first", nics=("node0.rail0", "node4.rail0"), priority=5, since_ns=1))
    (command,) = world.contend(flows=TWO)
    assert (command.node, command.lease_revision) == ("node1", 8)
    assert (command.evidence["gaining"], command.evidence["losing"]) == (flow(0, 4), flow(2, 6))
    assert megabits(world) == [100, 50, 50]


def test_the_budgets_of_a_shard_hold_for_orders():
    """It says so itself, and the coordinator plans anew later."""
    world = world_of(improvements_per_minute=1)
    world.core.cores[1].remedies["contention"].budget.spend(1, world.now_ns)
    assert world.contend() == []
    assert world.guards() == ["moves-per-minute"]
    assert len(moves(world.run(90.0))) == 1


@pytest.mark.parametrize("settings", [{"improve": "advise"}, {"improve": "act", "restore": "advise"}])
def test_advice_is_the_shards(settings):
    """It publishes what would be moved, and moves nothing."""
    world = world_of(**settings)
    (command,) = world.contend()
    assert command.advice
    assert command.lease_revision == 8
    assert world.run(10.0) == []
    assert (megabits(world), world.guards()) == ([50, 50], [])
