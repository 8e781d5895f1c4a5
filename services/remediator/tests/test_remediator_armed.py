"""Agents that move by themselves: their reports, and what is commanded all the same."""

from __future__ import annotations

import msgspec
from peers import PEERS, by_node

from foliot_schemas import Outcome, Placement


def test_what_armed_agents_did_is_commanded_all_the_same(world):
    """Armed moves reported before the event change nothing about the commands, which nodes answer with `already`."""
    fault = "boot/node3.rail0/carrier-1"
    armed = {node: world.backup(node, "node3", "rail0") for node in PEERS}
    world.see(
        Outcome(
            id="a",
            command=f"armed/{fault}",
            verb="reroute",
            node="node3",
            status="done",
            armed=True,
            fault=fault,
            started_ns=world.now_ns,
            away=("rail0",),
            placements=tuple(world.backup("node3", peer, "rail0") for peer in PEERS),
        )
    )
    for node, way in armed.items():
        world.see(
            Outcome(
                id=f"a/{node}",
                command=f"armed/{fault}",
                verb="reroute",
                node=node,
                status="done",
                armed=True,
                fault=fault,
                started_ns=world.now_ns,
                placements=(way,),
            )
        )
    world.now_ns += 5_000_000
    commands = by_node(world.flap("node3.rail0", "down"))
    assert commands["node3"].away == ("rail0",)
    assert {node: commands[node].placements for node in PEERS} == {node: (way,) for node, way in armed.items()}


def arm(world):
    """Says in the inventory that all agents are armed."""
    for node in world.names:
        world.see(msgspec.structs.replace(world.core.inventory.nodes[node], armed=True))


def test_armed_agents_that_have_moved_are_not_commanded(world):
    """They get a moment; what they report in it needs no command, only the way back does."""
    arm(world)
    fault = "boot/node3.rail0/carrier-1"
    assert world.flap("node3.rail0", "down") == []
    common = {"verb": "reroute", "status": "done", "armed": True, "fault": fault, "started_ns": world.now_ns}
    world.see(Outcome(id="a", command=f"armed/{fault}", node="node3", away=("rail0",), **common))
    for node in PEERS:
        way = world.backup(node, "node3", "rail0")
        world.see(Outcome(id=f"a/{node}", command=f"armed/{fault}", node=node, placements=(way,), **common))
    assert world.run(3.0) == []
    world.flap("node3.rail0", "up")
    assert {command.verb for command in world.run(6.0)} == {"restore"}


def test_armed_agents_that_have_not_moved_are_commanded_after_a_moment(world):
    """A notice that was lost, or an agent that is not what it said, costs the grace time and no more."""
    arm(world)
    fault = "boot/node3.rail0/carrier-1"
    assert world.flap("node3.rail0", "down") == []
    common = {"verb": "reroute", "status": "done", "armed": True, "fault": fault, "started_ns": world.now_ns}
    world.see(Outcome(id="a", command=f"armed/{fault}", node="node3", away=("rail0",), **common))
    commands = by_node(world.run(0.2))
    assert set(commands) == set(PEERS)


def reports(world, fault: str):
    """Every agent moves by itself and says so; what says why has not been heard yet."""
    common = {"verb": "reroute", "status": "done", "armed": True, "fault": fault, "started_ns": world.now_ns}
    world.see(Outcome(id="a", command=f"armed/{fault}", node="node3", away=("rail0",), **common))
    for node in PEERS:
        way = world.backup(node, "node3", "rail0")
        world.see(Outcome(id=f"a/{node}", command=f"armed/{fault}", node=node, placements=(way,), **common))


def test_armed_agents_that_are_heard_before_the_event_are_not_sent_back(world):
    """The NIC seems up until the event comes, and is dead."""
    arm(world)
    reports(world, "boot/node3.rail0/carrier-1")
    assert world.run(0.9) == []
    world.flap("node3.rail0", "down")
    assert world.run(5.0) == []


def test_an_agent_that_moves_again_is_given_the_same_time_again(world):
    """It was astray for another reason already, and looked at ever since."""
    arm(world)
    world.path_event("node0.rail0>node1.rail0#0", "silent")
    world.run(1.5)
    reports(world, "boot/node3.rail0/carrier-1")
    assert [command for command in world.run(0.9) if command.verb == "restore"] == []


def test_armed_agents_that_no_event_follows_are_sent_back(world):
    """Whatever made them move is over, or was never true: a moment later all is as it was."""
    arm(world)
    reports(world, "boot/node3.rail0/carrier-1")
    assert {(command.node, command.verb) for command in world.run(3.0)} == {(node, "restore") for node in world.names}


def test_armed_agents_are_not_sent_back_to_what_nobody_has_heard_since(world):
    """The NIC's node is heard no more, and no event comes: what was heard of the way home was before the loss."""
    arm(world)
    world.deaf.add("node3")
    world.run(0.3)
    world.dead_nics.add("node3.rail0")
    reports(world, "boot/node3.rail0/carrier-2")
    assert world.run(5.0) == []


def test_an_armed_report_that_comes_late_does_not_undo_a_command(world):
    """A report of what a node did before it was commanded says nothing of what is in force since."""
    started_ns = world.now_ns
    world.now_ns += 5_000_000
    world.flap("node3.rail0", "down")
    other = Placement(
        peer="node3", rail="rail0", via="rail1", entropy=world.backup("node0", "node3", "rail0").entropy ^ 1
    )
    world.see(
        Outcome(
            id="late",
            command="armed/x",
            verb="reroute",
            node="node0",
            status="done",
            armed=True,
            started_ns=started_ns,
            placements=(other,),
            fault="x",
        )
    )
    world.run(1.0)
    assert other not in world.paths("node0").placements


def test_an_armed_report_that_comes_late_counts_for_what_was_not_commanded_since(world):
    """As after the bus was away: what it says of other ways is true, and taken home one day."""
    started_ns = world.now_ns
    way = world.backup("node0", "node1", "rail0")
    world.now_ns += 5_000_000
    world.flap("node3.rail0", "down")
    assert [command.node for command in world.commands].count("node0") == 1
    common = {"verb": "reroute", "status": "done", "armed": True, "started_ns": started_ns, "fault": "x"}
    world.see(Outcome(id="late", command="armed/x", node="node0", placements=(way,), **common))
    assert world.core.routing.way(("node0", "node1", "rail0")) == way
    given = [command for command in world.run(3.0) if command.verb == "restore"]
    assert [(command.node, command.placements[0].peer, command.placements[0].via) for command in given] == [
        ("node0", "node1", "rail0")
    ]
