"""Hysteresis: flaps, damping, probation that doubles, and events that come twice or late."""

from __future__ import annotations

import pytest

from foliot_schemas import NodeHomes, Placement

SECOND = 1_000_000_000


def test_ten_flaps_cost_two_moves(world):
    """Away once, and back once, after the damping lets go."""
    reuse_at_ns = world.now_ns + 100 * SECOND
    for count in range(1, 11):
        damped = {"suppressed": True, "reuse_at_ns": reuse_at_ns} if count >= 3 else {}
        world.flap("node3.rail0", "down", count, **damped)
        world.run(1.0)
        world.flap("node3.rail0", "up", count, **damped)
        world.run(1.0)
    world.let_pass(300.0)
    for node in world.names:
        assert [command.verb for command in world.commands if command.node == node] == ["reroute", "restore"]
    (back, *_) = [command for command in world.commands if command.verb == "restore"]
    assert back.issued_ns >= reuse_at_ns


def test_a_damped_nic_waits_for_its_reuse(world):
    """However good it looks, it is not used before the time that the detector computed, and soon after."""
    world.flap("node3.rail0", "down")
    world.run(0.5)
    reuse_at_ns = world.now_ns + 30 * SECOND
    world.flap("node3.rail0", "up", suppressed=True, reuse_at_ns=reuse_at_ns)
    assert world.run(29.9) == []
    assert len(world.run(0.5)) == 4


@pytest.mark.parametrize("ahead_s", [-3_600, 3_600])
def test_a_damped_nic_of_a_node_with_a_wrong_clock_waits_as_long(world, ahead_s):
    """The time of its reuse is by that clock."""
    world.ahead["node3"], world.unsynchronised = ahead_s * SECOND, {"node3"}
    world.run(5.0)
    world.flap("node3.rail0", "down")
    world.run(0.5)
    world.flap("node3.rail0", "up", suppressed=True, reuse_at_ns=world.now_ns + (30 + ahead_s) * SECOND)
    assert world.run(29.9) == []
    assert {command.verb for command in world.run(0.5)} == {"restore"}


def test_flaps_of_a_damped_nic_are_not_counted_twice(world):
    """Damping holds them against it already; once it lets go, the probation is what the undamped losses made it."""
    for count in range(1, 11):
        damped = {"suppressed": True, "reuse_at_ns": world.now_ns + 4 * SECOND} if count >= 3 else {}
        world.flap("node3.rail0", "down", count, **damped)
        world.run(0.5)
        world.flap("node3.rail0", "up", count, **damped)
        world.run(0.5)
    before = [command for command in world.commands if command.verb == "restore"]
    assert before == []
    assert world.run(9.2) == []
    assert len(world.run(0.5)) == 4


def test_each_loss_doubles_the_probation(world):
    """5 s, 10 s, 20 s: a NIC that is lost again soon after its return has to be good for longer."""
    for count, hold_s in enumerate((5, 10, 20), start=1):
        world.flap("node3.rail0", "down", count)
        world.run(0.5)
        world.flap("node3.rail0", "up", count)
        assert world.run(hold_s - 0.2) == []
        assert len(world.run(0.5)) == 4


def test_a_loss_on_probation_moves_nothing_and_begins_anew(world):
    """All traffic is away already; the probation starts over, and is longer."""
    world.flap("node3.rail0", "down", 1)
    world.run(0.5)
    world.flap("node3.rail0", "up", 1)
    world.run(3.0)
    assert world.flap("node3.rail0", "down", 2) == []
    world.run(0.5)
    world.flap("node3.rail0", "up", 2)
    assert world.run(9.8) == []
    assert len(world.run(0.5)) == 4


def test_an_event_that_comes_twice_counts_once(world):
    """The same event again, now or after the return, does nothing."""
    down = world.flap_event("node3.rail0", "down")
    assert len(world.flap("node3.rail0", "down")) == 4
    assert world.see(down) == []
    world.run(0.5)
    world.flap("node3.rail0", "up")
    assert world.see(down) == []
    assert len(world.run(5.5)) == 4


def test_an_event_that_was_overtaken_is_ignored(world):
    """A loss that arrives after the return from it moves nothing."""
    down = world.flap_event("node3.rail0", "down")
    world.run(0.5)
    world.flap("node3.rail0", "up")
    assert world.see(down) == []
    assert world.run(8.0) == []


def test_an_event_that_was_missed_is_made_up_for(world):
    """Where no event says that a lost NIC is back, its port's reports do, after a while."""
    world.flap("node3.rail0", "down")
    world.run(1.0)
    world.dead_nics.clear()
    given = world.run(12.0)
    assert {command.node for command in given} == set(world.names)
    assert {command.verb for command in given} == {"restore"}


def test_a_whole_rail_that_comes_back_at_once_is_used_again(make_world):
    """NICs on probation do not wait for each other to be up first."""
    world = make_world(nics_away_share=1.0)
    for name in world.names:
        world.flap(f"{name}.rail0", "down")
    world.run(1.0)
    for name in world.names:
        world.flap(f"{name}.rail0", "up")
    world.run(8.0)
    assert not world.core.routing.away
    assert not world.core.routing.moved


def test_a_nic_is_judged_by_the_homes_of_each_direction(world):
    """What it sends to three peers was moved to an entropy on which they do not send, as others stand for it."""
    peers = ("node0", "node1", "node2")
    chosen = tuple(Placement(peer=peer, rail="rail0", via="rail0", entropy=2) for peer in peers)
    world.see(NodeHomes(node="node3", lease_revision=7, placements=chosen))
    world.run(2.0)
    world.silent |= {f"{peer}.rail0>node3.rail0#2" for peer in peers} | {"node3.rail0>node0.rail0#2"}
    world.flap("node3.rail0", "down")
    world.run(0.5)
    world.flap("node3.rail0", "up")
    back = {(command.node, command.verb) for command in world.run(8.0)}
    assert back == {(node, "restore") for node in (*peers, "node3")}


def test_what_is_not_heard_for_long_is_looked_at_ever_more_seldom(world, monkeypatch):
    """Thousands may wait for nodes that are away.

    It is used again soon after it is heard, by the measure of how long it was not.
    """
    world.flap("node3.rail0", "down")
    world.run(0.5)
    world.dead_nics.clear()
    world.mute.add("node3.rail0")
    world.see(world.flap_event("node3.rail0", "up"))
    looked = []
    is_good = world.core.remedies["losses"]._recovery._is_good_nic
    monkeypatch.setattr(
        world.core.remedies["losses"]._recovery, "_is_good_nic", lambda *what: looked.append(what) or is_good(*what)
    )
    world.run(6.0)
    assert len(looked) > 5
    looked.clear()
    assert world.let_pass(60.0) == []
    assert 12 <= len(looked) < 40
    world.mute.clear()
    assert len(world.run(5.2)) == 4
