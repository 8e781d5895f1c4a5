"""Homes: where traffic belongs is a choice, which is stored; failover leaves it, returns to it and always wins."""

from __future__ import annotations

import msgspec
import pytest

from foliot_remediator.core.state.inventory import Destination
from foliot_remediator.core.state.routing_table import Cause
from foliot_remediator.settings import PlacementRule
from foliot_schemas import NodeHomes, Placement

DESTINATION = Destination("node0", "node3", "rail0")
DEFAULT = Placement(peer="node3", rail="rail0", via="rail0", entropy=0)
CHOSEN = Placement(peer="node3", rail="rail0", via="rail0", entropy=2)
CAUSE = Cause("chosen", "")


def choose(world, way, destination=DESTINATION):
    """Somebody chooses a home; returns the commands of the seconds after it."""
    world.core.assign_home(destination, way, CAUSE)
    return world.run(3.0)


def moves(commands):
    """What nodes were told of single destinations."""
    return [(command.node, way) for command in commands for way in command.order().placements]


def test_without_a_choice_home_is_the_default(world):
    """And nothing is stored."""
    assert world.core.homes.of(DESTINATION) == DEFAULT
    assert world.homes == {}


def test_traffic_is_taken_to_a_home_that_was_chosen(world):
    """One command, of the verb that takes traffic home; then it is no deviation any more."""
    given = choose(world, CHOSEN)
    assert moves(given) == [("node0", CHOSEN)]
    assert {command.verb for command in given} == {"restore"}
    assert world.core.routing.way(DESTINATION) == CHOSEN
    assert not world.core.routing.moved
    assert world.run(10.0) == []


def test_the_default_again_takes_it_back(world):
    """A choice can be taken back, which is stored as well."""
    choose(world, CHOSEN)
    assert moves(choose(world, None)) == [("node0", DEFAULT)]
    assert world.homes["node0"].placements == ()


def test_failover_leaves_a_chosen_home_and_returns_to_it(world):
    """A lost NIC is left whatever its traffic's home; when it is good again, the home is what was chosen and not the default."""
    choose(world, CHOSEN)
    given = world.flap("node3.rail0", "down")
    assert ("node0", "rail1") in {(node, way.via) for node, way in moves(given)}
    world.flap("node3.rail0", "up")
    back = world.run(10.0)
    assert [way for node, way in moves(back) if node == "node0"] == [CHOSEN]
    assert world.core.routing.way(DESTINATION) == CHOSEN


def test_a_home_that_is_lost_is_not_gone_to(world):
    """Failover wins: a choice of a silent path is stored, and its traffic goes there when the path is good."""
    path = "node0.rail0>node3.rail0#2"
    world.silent.add(path)
    world.run(0.2)
    world.path_event(path, "silent")
    assert choose(world, CHOSEN) == []
    assert world.homes["node0"].placements == (CHOSEN,)
    world.silent.discard(path)
    world.word(path, "speaks again")
    world.path_event(path, "speaking")
    assert ("node0", CHOSEN) in moves(world.run(12.0))


def test_a_choice_outlives_the_one_who_made_it(make_world):
    """A new holder of the lease reads it from the bucket, before or after what is in force, and moves nothing."""
    before = make_world()
    choose(before, CHOSEN)
    for homes_first in (True, False):
        after = make_world(lease=0)
        values = [before.homes["node0"], *(before.paths(name) for name in before.names)]
        for value in values if homes_first else reversed(values):
            after.see(value)
        after.core.hold(8, after.now_ns)
        assert after.run(10.0) == []
        assert after.core.homes.of(DESTINATION) == CHOSEN
        assert after.core.routing.way(DESTINATION) == CHOSEN


def test_an_older_lease_changes_no_home(world):
    """Who held the lease before may still write."""
    world.see(NodeHomes(node="node0", lease_revision=9, placements=(CHOSEN,)))
    world.see(NodeHomes(node="node0", lease_revision=8))
    assert world.core.homes.of(DESTINATION) == CHOSEN


def test_what_was_not_stored_is_lost_with_the_lease(world):
    """Its successor knows only the bucket; one that thinks otherwise would move traffic when it holds the lease again."""
    world.core.assign_home(DESTINATION, CHOSEN, CAUSE)
    world.core.hold(0, world.now_ns)
    assert world.core.homes.of(DESTINATION) == DEFAULT
    world.core.hold(9, world.now_ns)
    assert world.run(5.0) == []
    assert world.homes == {}


def test_what_is_stored_stays_with_the_lease_lost(world):
    """The bucket has told it."""
    choose(world, CHOSEN)
    world.see(world.homes["node0"])
    world.core.hold(0, world.now_ns)
    assert world.core.homes.of(DESTINATION) == CHOSEN


def test_choices_are_written_again_for_a_bus_that_lost_them(world):
    """Once a minute, under the lease of now."""
    choose(world, CHOSEN)
    world.see(world.homes.pop("node0"))
    world.run(61.0)
    assert world.homes["node0"] == NodeHomes(node="node0", lease_revision=7, placements=(CHOSEN,))


@pytest.mark.parametrize("change", [{"entropy": 7}, {"via": "rail9"}, {"peer": "node9"}])
def test_a_home_that_the_fleet_does_not_have_is_none(world, change):
    """The inventory may have changed since it was chosen."""
    way = msgspec.structs.replace(CHOSEN, **change)
    destination = Destination("node0", way.peer, way.rail)
    world.see(NodeHomes(node="node0", lease_revision=9, placements=(way,)))
    assert world.core.homes.of(destination).entropy == 0
    assert world.run(5.0) == []


def test_homes_of_those_who_left_are_forgotten(world):
    """As all is that is known of them."""
    choose(world, CHOSEN)
    world.names.remove("node0")
    world.see(msgspec.structs.replace(world.core.inventory.nodes["node0"], nics=()))
    world.run(70.0)
    assert not world.core.homes._chosen
    assert not world.core.homes._unsaved
    assert not world.core.homes._by_node


def test_who_stands_by_chooses_nothing(make_world):
    """Its choice would be carried out when it takes over, against the one who held the lease."""
    world = make_world(lease=0)
    world.core.assign_home(DESTINATION, CHOSEN, CAUSE)
    world.core.hold(8, world.now_ns)
    assert world.run(5.0) == []
    assert world.homes == {}


def test_a_lease_that_changed_hands_meanwhile_keeps_no_unsaved_choice(world):
    """Also where nobody saw it lost: what was written under the old one is refused."""
    world.core.assign_home(DESTINATION, CHOSEN, CAUSE)
    world.core.hold(9, world.now_ns)
    assert world.core.homes.of(DESTINATION) == DEFAULT


ACROSS = Placement(peer="node3", rail="rail0", via="rail1", entropy=1)


@pytest.mark.parametrize("nic", ["node0.rail1", "node3.rail1"])
def test_a_home_on_another_rail_is_left_with_that_rails_nic(world, nic):
    """At either end; its traffic is in no other list of what the NIC carries."""
    assert moves(choose(world, ACROSS)) == [("node0", ACROSS)]
    world.see(world.homes["node0"])
    given = world.flap(nic, "down")
    assert [way.via for node, way in moves(given) if (node, way.peer, way.rail) == DESTINATION] == ["rail0"]
    world.flap(nic, "up")
    world.run(12.0)
    assert world.core.routing.way(DESTINATION) == ACROSS


def test_a_configured_home_on_another_rail_is_left_too(make_world):
    """Of `[[remediator.placements]]`."""
    rule = PlacementRule(node="node0", peer="node3", rail="rail0", via="rail1", entropy=1)
    world = make_world(placements=(rule,))
    given = world.flap("node3.rail1", "down")
    assert [way.via for node, way in moves(given) if (node, way.peer, way.rail) == DESTINATION] == ["rail0"]


def test_a_home_on_its_own_rail_again_is_across_no_more(world):
    """By a choice, by the bucket, and with the lease."""
    homes = world.core.homes
    choose(world, ACROSS)
    assert homes.across("node3") == homes.across("node0") == [DESTINATION]
    choose(world, CHOSEN)
    assert homes.across("node0") == []
    world.see(NodeHomes(node="node0", lease_revision=9, placements=(ACROSS,)))
    world.see(NodeHomes(node="node0", lease_revision=9))
    world.core.assign_home(DESTINATION, ACROSS, CAUSE)
    world.core.hold(0, world.now_ns)
    assert homes.across("node0") == []
