"""Which of two events about the same thing is the newer, whatever a node's clock says."""

from __future__ import annotations

import msgspec
import pytest

from foliot_remediator.core.state.state_machine import State

SECOND = 1_000_000_000
NIC, PATH = "node2.rail0", "node0.rail0>node2.rail0#0"


@pytest.mark.parametrize("back_s", [0.3, 1, 4, 8, 3_600])
def test_a_nic_that_is_lost_while_its_nodes_clock_is_set_back_is_left(world, back_s):
    """It was lost and back before, by later times: the kernel counts on."""
    lose_and_regain(world)
    world.ahead["node2"] = -round(back_s * SECOND)
    assert {command.node for command in world.flap(NIC, "down", 2)} >= {"node0", "node1", "node3"}
    world.run(6.0)
    assert world.core.routing.away == {} or [*world.core.routing.away] == [("node2", "rail0")]
    assert all(world.core.routing.way((node, "node2", "rail0")).via == "rail1" for node in ("node0", "node1", "node3"))
    world.flap(NIC, "up", 2)
    assert world.core.health.state(NIC) is State.PROBATION
    world.run(12.0)
    assert world.core.health.state(NIC) is State.UP


@pytest.mark.parametrize("back_s", [0.3, 1, 4, 8, 3_600])
@pytest.mark.parametrize("count", [True, False], ids=["counting", "as of before 0.2"])
def test_a_path_that_falls_silent_while_its_receivers_clock_is_set_back_is_left(make_world, back_s, count):
    """Probes count on too; where they do not, its receiver's own word is enough.

    It is so as soon as the receiver's clock is known to be wrong. It comes home when it speaks again.
    """
    world = make_world(count=count)
    world.silent.add(PATH)
    world.run(0.2)
    assert len(world.path_event(PATH, "silent")) == 1
    world.silent.clear()
    world.run(1.0)
    world.path_event(PATH, "speaking")
    world.run(7.0)
    before = len(world.commands)
    world.ahead["node2"] = -round(back_s * SECOND)
    world.silent.add(PATH)
    world.run(0.2)
    since_ns = world.now_ns + world.ahead["node2"] - 150_000_000
    world.path_event(PATH, "silent", since_ns=since_ns)
    world.run(10.0)
    # To the other rail first, if its own was not heard by words of the new time yet, and a second later to another path
    # of its own.
    told = world.commands[before:]
    assert {(command.node, command.verb) for command in told} == {("node0", "reroute")}
    assert len(told) <= 2
    assert {way.via for way in told[-1].placements} == {"rail0"}
    world.silent.clear()
    world.path_event(PATH, "speaking", since_ns=since_ns)
    world.run(20.0)
    assert world.core.health.state(PATH) is State.UP
    assert world.core.routing.moved == {}


def test_events_that_were_overtaken_change_nothing(world):
    """Those of an earlier loss, read again after a later one: by the kernel's count, whatever they say."""
    earlier = [world.flap_event(NIC, "down", 1), world.flap_event(NIC, "up", 1)]
    world.run(1.0)
    world.flap(NIC, "down", 2)
    before = len(world.decisions)
    for event in earlier:
        world.see(event)
        assert world.core.health.state(NIC) is State.DOWN
    assert len(world.decisions) == before


def test_the_end_of_an_earlier_silence_ends_no_later_one(world):
    """It was overtaken by the later one's beginning."""
    world.silent.add(PATH)
    world.run(0.2)
    since_ns = world.now_ns - 150_000_000
    world.path_event(PATH, "silent", since_ns=since_ns)
    world.run(1.0)
    world.path_event(PATH, "silent", since_ns=world.now_ns - 150_000_000)
    world.path_event(PATH, "speaking", since_ns=since_ns)
    assert world.core.health.state(PATH) is State.DOWN


def test_a_kernels_count_that_wrapped_goes_on(world):
    """After 2 ** 32 - 1 comes 0."""
    world.flap(NIC, "down", 2**32 - 1)
    world.run(1.0)
    world.flap(NIC, "up", 2**32 - 1)
    world.run(6.0)
    world.ahead["node2"] = -8 * SECOND
    world.flap(NIC, "down", 0)
    assert world.core.health.state(NIC) is State.DOWN


def test_a_counter_that_was_reset_is_no_older(world):
    """Times go on then."""
    lose_and_regain(world)
    world.run(0.1)
    assert len(world.flap(NIC, "down", 0)) == 4


def test_an_event_of_the_future_does_not_outlast_what_comes_after_it(world):
    """A node's clock was ahead by a minute when its NIC was lost."""
    world.ahead["node2"] = 60 * SECOND
    down = world.flap_event(NIC, "down")
    commands = world.flap(NIC, "down")
    assert {command.deadline_ns for command in commands} == {world.now_ns + 2 * SECOND}
    world.ahead.clear()
    world.run(5.0)
    world.flap(NIC, "up")
    world.run(6.0)
    assert world.core.health.state(NIC) is State.UP
    assert world.see(msgspec.structs.replace(down, id="another")) == []


def lose_and_regain(world) -> None:
    """The NIC is lost once, and used again."""
    world.flap(NIC, "down", 1)
    world.run(1.0)
    world.flap(NIC, "up", 1)
    world.run(6.0)
    assert world.core.health.state(NIC) is State.UP
