"""Commands that a node does not answer, or answers when it has been told something else."""

from __future__ import annotations

import pytest

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
