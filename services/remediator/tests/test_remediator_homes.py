"""Homes: where traffic belongs is a choice, which is stored; failover leaves it, returns to it and always wins."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

import msgspec
import pytest
from remediator_world import make_node

from foliot.bus.lease import Count
from foliot_remediator import service
from foliot_remediator.core.state.homes import Homes
from foliot_remediator.core.state.inventory import Destination, Inventory
from foliot_remediator.core.state.routing_table import Cause
from foliot_remediator.service import Service
from foliot_remediator.settings import PlacementRule, RemediatorSettings
from foliot_remediator.shell.fleet_clock import FleetClock
from foliot_schemas import NodeHomes, NodePaths, Placement
from foliot_schemas.subjects import HOMES

DESTINATION = Destination("node0", "node3", "rail0")
DEFAULT = Placement(peer="node3", rail="rail0", via="rail0", entropy=0)
CHOSEN = Placement(peer="node3", rail="rail0", via="rail0", entropy=2)
CAUSE = Cause("chosen", "")


def choose(world, way, destination=DESTINATION):
    """Somebody chooses a home; returns the commands of the seconds after it."""
    world.core.assign_home(destination, way, CAUSE)
    return world.run(3.0)


def told(*ways, lease):
    """A value of node 0."""
    return NodeHomes(node="node0", lease_revision=lease, placements=ways)


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
    """A lost NIC is left whatever its traffic's home; when it is good again, the home is the chosen one, no default."""
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


@pytest.mark.parametrize(("ways", "late"), [((CHOSEN,), ()), ((), (CHOSEN,))])
def test_choices_that_a_former_holder_stored_late_are_written_over(world, ways, late):
    """Once: whoever starts next reads the bucket, and none is kept for a node that has none."""
    for way in (CHOSEN, *(ways or (None,))):
        choose(world, way)
    world.see(world.homes.pop("node0"))
    world.see(told(*late, lease=6))
    world.run(1.0)
    assert world.homes.pop("node0") == told(*ways, lease=7)
    world.run(1.0)
    assert world.homes == {}
    world.let_pass(61.0)
    assert [*world.homes] == ["node0"] * bool(ways)


def test_what_was_not_stored_is_lost_with_the_lease(world):
    """Its successor knows only the bucket; one that thinks otherwise would move traffic when it has the lease again."""
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
    world.let_pass(61.0)
    assert world.homes["node0"] == NodeHomes(node="node0", lease_revision=7, placements=(CHOSEN,))


@pytest.mark.parametrize("change", [{"entropy": 7}, {"via": "rail9"}, {"peer": "node9"}])
def test_a_home_that_the_fleet_does_not_have_is_none(world, change):
    """The inventory may have changed since it was chosen."""
    way = msgspec.structs.replace(CHOSEN, **change)
    destination = Destination("node0", way.peer, way.rail)
    world.see(NodeHomes(node="node0", lease_revision=9, placements=(way,)))
    assert world.core.homes.of(destination).entropy == 0
    assert world.run(5.0) == []


def leave(world, name="node0"):
    """A node leaves the fleet."""
    world.names.remove(name)
    world.see(msgspec.structs.replace(world.core.inventory.nodes[name], nics=()))


def test_homes_of_those_who_left_are_taken_back(world):
    """In the bucket, which memory follows: who starts anew knows no more of them than who ran on."""
    choose(world, CHOSEN)
    world.see(world.homes["node0"])
    leave(world)
    world.let_pass(50.0)
    assert world.homes["node0"].placements == (CHOSEN,)
    world.run(20.0)
    assert world.homes["node0"].placements == ()
    world.see(world.homes["node0"])
    assert not world.core.homes._chosen
    assert not world.core.homes._unsaved
    assert not world.core.homes._own._of
    assert not world.core.homes._revision


def test_a_lease_of_homes_is_remembered_no_longer_than_the_node(make_world):
    """One that left for good without choices is forgotten; so is one that had left before this process began."""
    world = make_world(lease=0)
    world.see(told(lease=7))
    leave(world)
    world.let_pass(50.0)
    world.see(told(lease=9))
    world.see(told(CHOSEN, lease=8))
    assert world.core.homes.nodes() == []
    world.run(20.0)
    world.see(NodeHomes(node="node9", lease_revision=9))
    assert not world.core.homes._revision


def test_who_stands_by_forgets_no_home_that_the_bucket_tells(make_world):
    """If it takes over, it takes back those of nodes that are away for a minute more, whoever saw them go."""
    world = make_world(lease=0)
    world.see(NodeHomes(node="node0", lease_revision=7, placements=(CHOSEN,)))
    leave(world)
    world.let_pass(70.0)
    assert world.core.homes.of(DESTINATION) == DEFAULT
    assert world.core.homes.nodes() == ["node0"]
    world.core.hold(8, world.now_ns)
    world.let_pass(50.0)
    assert world.core.homes.nodes() == ["node0"]
    world.run(15.0)
    assert world.homes["node0"] == NodeHomes(node="node0", lease_revision=8)


def test_a_node_that_comes_back_in_time_has_its_homes(world):
    """The bus may lose its inventory, and have it again a moment later."""
    choose(world, CHOSEN)
    node = world.core.inventory.nodes["node0"]
    leave(world)
    world.run(30.0)
    world.names.append("node0")
    world.see(node)
    world.let_pass(60.0)
    assert world.core.homes.of(DESTINATION) == CHOSEN


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


# -- losses and homes -------------------------------------------------------------------------------------------------


def about(commands):
    """The ways that node 0 was told for the destination, and by which verb and cause."""
    return [
        (command.verb, command.cause, way)
        for command in commands
        for way in command.order().placements
        if (command.node, way.peer, way.rail) == DESTINATION
    ]


@pytest.mark.parametrize("homes_first", [True, False])
def test_a_home_that_nobody_has_gone_to_yet_is_no_loss(make_world, homes_first):
    """Whoever takes over takes the traffic there at once: nothing was lost that would have to be on probation."""
    before = make_world()
    before.run(1.0)
    world = make_world(lease=0)
    values = told(CHOSEN, lease=7), before.paths("node0")
    for value in values if homes_first else reversed(values):
        world.see(value)
    world.core.hold(8, world.now_ns)
    assert not [*world.core.health.tracks.values()]
    assert about(world.run(2.0)) == [("restore", "home/node0", CHOSEN)]


def lose_default(world):
    """The path of the default is silent, and left; its event's id."""
    path = "node0.rail0>node3.rail0#0"
    world.silent.add(path)
    world.run(0.2)
    ((_, cause, _),) = about(world.path_event(path, "silent"))
    return cause


def test_a_loss_stays_the_cause_of_what_it_moved(world):
    """Also if another home is chosen meanwhile; whoever takes over treats it as lost."""
    cause = lose_default(world)
    other = msgspec.structs.replace(CHOSEN, entropy=1 if world.core.routing.way(DESTINATION).entropy != 1 else 3)
    world.see(told(other, lease=7))
    assert world.core.routing.moved[DESTINATION][1].event == cause
    assert about(world.run(2.0)) == [("restore", cause, other)]


def test_what_waits_for_its_home_was_moved_by_no_loss(make_world):
    """A loss of that home, of which no fault is known either, does not say so."""
    world = make_world(restore="off")
    choose(world, ACROSS)
    event = msgspec.structs.replace(world.flap_event("node3.rail1", "down"), fault="")
    world.dead_nics.add("node3.rail1")
    world.port("node3.rail1", good=False)
    assert about(world.see(event)) == []


def test_nothing_is_taken_near_to_a_home_that_it_never_left(world):
    """The home's path is silent, so that the traffic waits on the way where it is healthy."""
    path = "node0.rail1>node3.rail1#1"
    world.silent.add(path)
    world.run(0.2)
    world.path_event(path, "silent")
    assert about(choose(world, ACROSS)) == []


# -- how much at once -------------------------------------------------------------------------------------------------


def many(nodes, peers):
    """Choices of a fleet that the inventory need not have, by destination."""
    return {
        Destination(f"node{node}", f"peer{peer}", "rail0"): Placement(
            peer=f"peer{peer}", rail="rail0", via="rail0", entropy=2
        )
        for node in range(nodes)
        for peer in range(peers)
    }


class NotLookedThrough(dict):
    """Choices, which can be asked for by destination alone."""

    def __iter__(self):
        """Looks at all of them."""
        raise AssertionError


def test_a_value_of_one_node_is_taken_without_a_look_at_the_choices_of_others():
    """A large fleet has many, and an event may wait behind it."""
    homes = Homes(Inventory(), RemediatorSettings())
    homes._unsaved = NotLookedThrough()
    for destination, way in many(3, 2).items():
        homes.choose(destination, way)
    homes.learn(NodeHomes(node="node0", lease_revision=7, placements=(many(1, 1).popitem()[1],)))
    assert len(homes._unsaved) == 5


def test_homes_across_rails_are_found_by_their_ends_alone():
    """A lost NIC is not left later because others have many; and nobody who has none is remembered."""
    homes = Homes(Inventory(), RemediatorSettings())
    chosen = {each: msgspec.structs.replace(way, via="rail1") for each, way in many(3, 2).items()}
    for destination, way in chosen.items():
        homes.choose(destination, way)
    homes._across._of["node1"] = homes._across._of["node2"] = None
    assert homes.across("node0") == [each for each in chosen if each.node == "node0"]
    assert homes.across("peer1") == [each for each in chosen if each.peer == "peer1"]
    homes._across._of = {node: ends for node, ends in homes._across._of.items() if ends}
    for destination in chosen:
        homes.choose(destination, None)
    assert homes._across._of == {}


def test_values_are_handed_out_in_slices():
    """A thousand destinations a tick, each node once, in the order of the choices."""
    homes = Homes(Inventory(), RemediatorSettings())
    for destination, way in many(8, 600).items():
        homes.choose(destination, way)
    slices = [[value.node for value in homes.due(7, tick)] for tick in range(5)]
    assert slices == [["node0", "node1"], ["node2", "node3"], ["node4", "node5"], ["node6", "node7"], []]


def test_only_so_many_choices_wait_to_be_written(make_world):
    """More are refused until the bucket has told some; a choice of a node that is not there, always."""
    world = make_world(nodes=24)
    destinations = [each for name in world.names for each in world.core.inventory.destinations(name)]
    ways = [Placement(peer=each.peer, rail=each.rail, via=each.rail, entropy=2) for each in destinations]
    taken = [world.core.assign_home(*each, CAUSE) for each in zip(destinations, ways, strict=True)]
    assert taken == [True] * 1_024 + [False] * (len(destinations) - 1_024)
    world.run(1.0)
    for value in [*world.homes.values()]:
        world.see(value)
    assert world.core.assign_home(destinations[-1], ways[-1], CAUSE)
    assert not world.core.assign_home(Destination("node99", "node0", "rail0"), DEFAULT, CAUSE)


async def test_what_failover_needs_is_written_first():
    """Homes wait for paths, also for those that come after them."""
    written, done = [], asyncio.Event()

    async def put(bucket, node, _value):
        if not written:
            made._put(NodePaths(node="node9", lease_revision=7))
        written.append((bucket.name, node))
        if bucket is HOMES:
            done.set()

    made = Service(SimpleNamespace(put=put), RemediatorSettings(), FleetClock())
    made._lease = SimpleNamespace(revision=7)
    for value in (NodeHomes(node="node1", lease_revision=7), NodePaths(node="node1", lease_revision=7)):
        made._put(value)
    writing = asyncio.create_task(made._write())
    await done.wait()
    writing.cancel()
    assert written == [("paths", "node1"), ("paths", "node9"), ("homes", "node1")]


# -- a bus that has lost its state ------------------------------------------------------------------------------------


def test_who_takes_the_lease_by_a_new_count_believes_its_own_values(make_world):
    """Higher numbers than its own were given by the bus of before."""
    world = make_world(lease=0)
    world.see(told(lease=900))
    world.core.hold(3, world.now_ns)
    choose(world, CHOSEN)
    world.see(world.homes["node0"])
    world.core.hold(0, world.now_ns)
    assert world.core.homes.of(DESTINATION) == CHOSEN


@pytest.fixture
def stands_by(monkeypatch):
    """A service that stands by for node 0, and what its bus says of its count of leases."""
    made = Service(SimpleNamespace(), RemediatorSettings(), FleetClock())
    made._core.observe(make_node("node0"), 0)
    made.count = made._count = Count(since_ns=1, last=1_000)

    async def counted(_bus):
        return made.count

    monkeypatch.setattr(service, "counted", counted)
    return made


async def test_a_lower_number_of_a_new_count_is_no_older(stands_by):
    """Before a value is passed over, the bus is asked if it counts anew; after that, a lower number is older again."""
    homes = stands_by._core.homes
    await stands_by._on_homes("node0", told(CHOSEN, lease=900))
    await stands_by._on_homes("node0", told(lease=899))
    assert homes.nodes() == ["node0"]
    stands_by.count = Count(since_ns=2, last=5)
    await stands_by._on_homes("node0", told(lease=4))
    assert homes.nodes() == []
    await stands_by._on_homes("node0", told(CHOSEN, lease=3))
    assert homes.nodes() == []


@pytest.mark.parametrize("answered", [True, False])
async def test_a_number_that_the_bus_never_gave_fences_nobody(stands_by, answered):
    """Who started after the bus had lost its count knows of no other, and finds values of before.

    That holds also if the bus was slow to answer then.
    """
    stands_by.count = Count(since_ns=2, last=5)
    stands_by._count = stands_by.count if answered else None
    await stands_by._on_homes("node0", told(CHOSEN, lease=900))
    await stands_by._on_homes("node0", told(lease=4))
    assert stands_by._core.homes.nodes() == []


@pytest.mark.parametrize("count", [None, Count(since_ns=2, last=5)], ids=["no answer", "never given"])
async def test_a_number_of_an_unknown_count_is_older(stands_by, count):
    """A doubt changes no home."""
    await stands_by._on_homes("node0", told(CHOSEN, lease=900))
    stands_by.count = count
    await stands_by._on_homes("node0", told(lease=899))
    assert stands_by._core.homes.nodes() == ["node0"]


async def test_a_lower_number_of_a_new_count_is_no_older_in_paths_either(stands_by):
    """A rail that is left by the value of a new count is believed to be left."""
    routing = stands_by._core.routing
    await stands_by._on_paths("node0", NodePaths(node="node0", lease_revision=900))
    await stands_by._on_paths("node0", NodePaths(node="node0", lease_revision=4, away=("rail0",)))
    assert not routing.away
    stands_by.count = Count(since_ns=2, last=5)
    await stands_by._on_paths("node0", NodePaths(node="node0", lease_revision=4, away=("rail0",)))
    assert set(routing.away) == {("node0", "rail0")}


async def test_a_deleted_value_has_no_choices(stands_by):
    """Whoever takes a node off the bus deletes it."""
    await stands_by._on_homes("node0", told(CHOSEN, lease=900))
    await stands_by._on_homes("node0", None)
    assert stands_by._core.homes.nodes() == []


def test_homes_of_traffic_to_who_left_are_taken_back(world):
    """Of all nodes that sent to it; else the bucket would have them for ever."""
    choose(world, CHOSEN)
    world.see(world.homes["node0"])
    leave(world, "node3")
    world.let_pass(70.0)
    assert world.homes["node0"].placements == ()
