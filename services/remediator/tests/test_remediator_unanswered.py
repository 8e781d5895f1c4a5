"""Commands that a node does not answer, or answers when it has been told something else."""

from __future__ import annotations

import pytest

from foliot_remediator.core.state.inventory import Destination

NIC = "node3.rail0"


def answered_but_by_node1(world, given):
    """All nodes answer a command but node1; from then on, it does as well."""
    for command in given:
        if command.node != "node1":
            world.see(world.outcome(command, "done"))
    world.answer = "done"


@pytest.fixture
def restored(world):
    """The NIC was lost and is back, and node1 has not answered that it goes home."""
    world.flap(NIC, "down", 2)
    world.run(0.5)
    world.flap(NIC, "up", 2)
    world.answer, given = None, []
    while not given:
        given = world.run(0.1)
    answered_but_by_node1(world, given)
    world.run(3.0)
    return world


def test_an_unanswered_restore_is_not_given_again_once_the_nic_is_left_again(restored):
    """It would take traffic back onto what was lost since."""
    assert {command.verb for command in restored.flap(NIC, "down", 3)} == {"reroute"}
    assert restored.run(4.0) == []


def test_an_unanswered_restore_is_not_given_again_while_the_nic_is_lost(restored):
    """Traffic stays where it is, also where no other way was found for what is believed to be home."""
    restored.mute.add("node3.rail1")
    restored.run(2.0)
    assert restored.flap(NIC, "down", 3) == []
    assert restored.run(2.0) == []


def test_an_unanswered_reroute_is_not_given_again_once_traffic_is_home(make_world):
    """The node has answered since that it goes home."""
    world = make_world(probation_s=1.0)
    world.answer = None
    answered_but_by_node1(world, world.flap(NIC, "down", 2))
    world.run(0.5)
    world.flap(NIC, "up", 2)
    assert {command.verb for command in world.run(1.5)} == {"restore"}
    assert world.run(5.0) == []


@pytest.mark.parametrize("silent_s", [3.0, 5.5, 8.0])
def test_a_node_that_refuses_all_that_it_was_told_is_believed_where_it_was(make_world, silent_s):
    """It heard nothing for so long, and refuses what waited, the oldest first: its traffic never left home."""
    world = make_world(probation_s=1.0)
    deaf = []
    world.answer = None
    for step in range(round(10 * silent_s)):
        given = world.flap(NIC, "down", 2) if step == 0 else world.run(0.1)
        if step == 5:
            world.flap(NIC, "up", 2)
        deaf += [command for command in given if command.node == "node1"]
        for command in given:
            if command.node != "node1":
                world.see(world.outcome(command, "done"))
    world.answer = "done"
    written = len(world.supplies["node1"])
    for command in deaf:
        world.see(world.outcome(command, "refused", reason="its deadline was over"))
    world.run(1.0)
    assert {command.verb for command in deaf} == {"reroute", "restore"}
    assert world.core.routing.is_at_home(Destination("node1", "node3", "rail0"))
    ways = [way for value in world.supplies["node1"][written:] for way in value.placements]
    assert {way.via for way in ways if (way.peer, way.rail) == ("node3", "rail0")} <= {"rail0"}


def test_a_refused_command_is_taken_back_to_what_was_done_before_it(make_world):
    """Not further: the reroute before it was answered when the restore was on its way."""
    world = make_world(probation_s=1.0)
    world.answer = None
    reroute = next(command for command in world.flap(NIC, "down", 2) if command.node == "node1")
    world.run(0.5)
    world.flap(NIC, "up", 2)
    restore = next(command for command in world.run(1.5) if command.node == "node1")
    world.see(world.outcome(reroute, "done"))
    world.see(world.outcome(restore, "failed", reason="busy"))
    assert world.core.routing.way(Destination("node1", "node3", "rail0")) == reroute.placements[0]


def test_of_commands_that_are_overdue_together_none_is_believed(make_world):
    """Nobody held the lease meanwhile. What is asked again and refused is taken back to what was before all of them."""
    world = make_world(probation_s=1.0)
    world.answer = None
    world.flap(NIC, "down", 2)
    world.run(0.5)
    world.flap(NIC, "up", 2)
    world.run(1.5)
    world.core.hold(0, world.now_ns)
    world.run(8.0)
    world.core.hold(8, world.now_ns)
    world.answer = "refused"
    assert {command.verb for command in world.run(0.1)} == {"restore"}
    assert not world.core.routing.away
    assert world.core.routing.is_at_home(Destination("node1", "node3", "rail0"))
