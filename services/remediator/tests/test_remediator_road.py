"""The main road: a fault's events in, commands to exactly the nodes concerned out, and everything back in the end."""

from __future__ import annotations

import msgspec
import pytest
from peers import PEERS, by_node

from foliot_schemas import Placement

SECOND = 1_000_000_000


def home(peer, rail):
    """The primary way in these worlds."""
    return Placement(peer=peer, rail=rail, via=rail, entropy=0)


def test_a_lost_nic_moves_both_directions_of_every_pair(world):
    """Its own node sends the rail away by one rule, each peer moves its one address there, and nobody anything else."""
    commands = by_node(world.flap("node3.rail0", "down"))
    assert set(commands) == {*PEERS, "node3"}
    assert commands["node3"].away == ("rail0",)
    assert commands["node3"].placements == ()
    for peer in PEERS:
        (placement,) = commands[peer].placements
        assert (placement.peer, placement.rail, placement.via) == ("node3", "rail0", "rail1")
        assert commands[peer].away == ()
    assert not world.refusals


def test_commands_carry_cause_fence_and_deadline(world):
    """A command names its event and fault, the lease's revision and a deadline that counts from the event."""
    (command, *_) = world.flap("node3.rail0", "down")
    fault = "boot/node3.rail0/carrier-1"
    assert (command.cause, command.fault, command.lease_revision) == (f"{fault}/down", fault, 7)
    assert command.id == f"{fault}/down/reroute/node3/7"
    assert command.deadline_ns == world.now_ns + 2 * SECOND


def test_peers_are_moved_to_what_they_were_armed_with(world):
    """A command says what an armed agent does by itself, so that nothing moves twice."""
    armed = {peer: world.backup(peer, "node3", "rail0") for peer in PEERS}
    commands = by_node(world.flap("node3.rail0", "down"))
    assert {peer: commands[peer].placements for peer in PEERS} == {peer: (armed[peer],) for peer in PEERS}


def test_both_directions_take_the_same_backup_path(world):
    """Where all is healthy, a pair's backups are one path and its way back."""
    there, back = world.backup("node1", "node3", "rail0"), world.backup("node3", "node1", "rail0")
    assert (there.via, there.entropy) == (back.via, back.entropy)


def test_paths_in_their_bucket_follow(world):
    """What is to be in force on a node stands in its key: the rail away, the placement, and no dead backup."""
    world.flap("node3.rail0", "down")
    world.run(1.0)
    assert world.paths("node3").away == ("rail0",)
    moved = {(way.peer, way.rail): way.via for way in world.paths("node0").placements}
    assert moved["node3", "rail0"] == "rail1"
    assert world.backup("node0", "node3", "rail0") is None
    assert world.backup("node0", "node3", "rail1") is None
    assert world.backup("node0", "node1", "rail0").via == "rail1"


def test_a_nic_that_is_back_is_used_again_after_its_probation(world):
    """Not before the hold is over; then its node takes the rail back and each peer its primary way."""
    world.flap("node3.rail0", "down")
    world.run(1.0)
    world.flap("node3.rail0", "up")
    assert world.run(4.8) == []
    commands = by_node(world.run(1.0))
    assert set(commands) == {*PEERS, "node3"}
    assert commands["node3"].back == ("rail0",)
    assert all(commands[peer].placements == (home("node3", "rail0"),) for peer in PEERS)
    assert {command.verb for command in commands.values()} == {"restore"}
    assert commands["node3"].cause == "boot/node3.rail0/carrier-1/up"
    assert world.run(3.0) == []


def test_a_nic_that_is_back_but_not_heard_stays_away(world):
    """A carrier alone proves nothing: its paths must be heard."""
    world.flap("node3.rail0", "down")
    world.flap("node3.rail0", "up")
    world.mute.add("node3.rail0")
    assert world.run(20.0) == []
    world.mute.clear()
    assert {command.node for command in world.run(1.0)} == {*PEERS, "node3"}


def test_a_peer_that_is_not_heard_yet_is_left_where_it_is(world):
    """A NIC comes back for those it can reach; the others follow when they can be reached."""
    world.flap("node3.rail0", "down")
    world.run(1.0)
    world.flap("node3.rail0", "up")
    world.silent |= {"node0.rail0>node3.rail0#0", "node3.rail0>node0.rail0#0"}
    commands = by_node(world.run(6.0))
    assert set(commands) == {"node1", "node2", "node3"}
    (stays,) = commands["node3"].placements
    assert (stays.peer, stays.via) == ("node0", "rail1")
    world.silent.clear()
    commands = by_node(world.run(2.0))
    assert commands["node0"].placements == (home("node3", "rail0"),)
    assert commands["node3"].placements == (home("node0", "rail0"),)


def test_an_administrators_down_moves_and_costs_nothing(world):
    """Traffic leaves as from a lost carrier, and the next probation is no longer than the first."""
    for count in (1, 2, 3):
        assert len(world.flap("node3.rail0", "admin-down", count)) == 4
        world.run(1.0)
        world.flap("node3.rail0", "admin-up", count)
        assert world.run(4.8) == []
        assert len(world.run(1.0)) == 4


def test_a_dead_process_moves_nothing(world):
    """Nothing is commanded, and its node's NICs and paths are not held to be dead by its silence."""
    from_dead = {
        f"node3.{rail}>{peer}.{rail}#{entropy}" for rail in world.rails for peer in PEERS for entropy in range(4)
    }
    armed = world.paths("node0").backups
    world.silent |= from_dead
    world.deaf.add("node3")
    world.run(1.0)
    fault = "node3/probe/dead-1"
    event = world.flap_event("node3.rail0", "down")
    world.see(
        type(event)(
            id=fault, kind="process", who="node3/probe", state="dead", at_ns=world.now_ns, since_ns=1, fault=fault
        )
    )
    assert world.run(10.0) == []
    assert world.paths("node0").backups == armed
    assert not world.refusals


@pytest.mark.parametrize("who", ["node3.rail0", "node3.rail0>node0.rail0#0", "node3", "anybody"])
def test_an_event_of_a_kind_that_it_does_not_know_moves_nothing(world, who):
    """An extension's, or a later version's, whatever its states are called."""
    for state in ("down", "silent", "dead", "up"):
        event = world.flap_event("node3.rail0", state)
        world.see(msgspec.structs.replace(event, id=f"{who}/{state}", kind="quake", who=who))
    assert world.run(10.0) == []
    assert not world.refusals


def test_a_third_rail_carries_what_two_lost_nics_leave(make_world):
    """With rails to spare, a pair that has lost a NIC at each end takes the rail that both still have."""
    world = make_world(rails=3)
    world.flap("node3.rail0", "down", 1)
    world.run(1.0)
    world.flap("node0.rail1", "down", 1)
    world.run(1.0)
    routing = {(way.peer, way.rail): way for way in world.core.routing.backups["node0"].values()}
    for source, peer, rail in (("node0", "node3", "rail0"), ("node3", "node0", "rail0"), ("node3", "node0", "rail1")):
        assert world.core.routing.way((source, peer, rail)).via == "rail2"
    assert routing["node3", "rail1"].via == "rail2"
    assert not world.refusals


def test_a_node_that_joins_later_is_told_too(world):
    """What would use a NIC that is down by default is sent around it as soon as it is known to be healthy elsewhere."""
    world.flap("node3.rail0", "down")
    world.run(1.0)
    world.join("node4")
    commands = by_node(world.run(2.5))
    assert set(commands) == {"node4"}
    (placement,) = commands["node4"].placements
    assert (placement.peer, placement.rail, placement.via) == ("node3", "rail0", "rail1")
