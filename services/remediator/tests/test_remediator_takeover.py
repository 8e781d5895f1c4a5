"""Restart and change of hands: what is in force is adopted, and goes on from there."""

from __future__ import annotations

from types import SimpleNamespace

import msgspec
import pytest

from foliot_remediator.core.state.inventory import Destination
from foliot_remediator.service import Service
from foliot_remediator.settings import RemediatorSettings
from foliot_remediator.shell.fleet_clock import FleetClock
from foliot_schemas import NodePaths, Outcome, Placement


def moved_by(world):
    """What a world's remediator wrote last, per node."""
    return [world.paths(name) for name in world.names]


def test_a_restart_takes_over_what_is_away_and_brings_it_back(make_world):
    """A new process that saw no event finds a NIC away, and restores it after a probation."""
    before = make_world()
    before.flap("node3.rail0", "down")
    before.run(1.0)
    after = make_world(lease=0)
    for paths in moved_by(before):
        after.see(paths)
    after.core.hold(8, after.now_ns)
    assert after.run(4.8) == []
    assert after.paths("node3").away == ("rail0",)
    assert after.paths("node3").lease_revision == 8
    given = after.run(1.0)
    assert {command.node for command in given} == set(after.names)
    assert {command.verb for command in given} == {"restore"}
    assert {command.node: command.back for command in given}["node3"] == ("rail0",)
    # No event says why it was away: the port's own word names the loss.
    assert {(command.cause, command.fault) for command in given} == {
        ("adopted/node3.rail0", "boot/node3.rail0/carrier-1")
    }


def test_a_restart_while_the_nic_is_still_down_leaves_it_away(make_world):
    """The port says that it is down: nothing moves, nothing is refused."""
    before = make_world()
    before.flap("node3.rail0", "down")
    before.run(1.0)
    after = make_world(lease=0)
    after.dead_nics.add("node3.rail0")
    for paths in moved_by(before):
        after.see(paths)
    after.core.hold(8, after.now_ns)
    after.run(5.0)
    assert not after.decisions
    after.flap("node3.rail0", "up")
    assert {command.node for command in after.run(6.0)} == set(after.names)


def test_a_moved_path_found_after_a_restart_is_restored_after_a_probation(make_world):
    """Not at once: somebody had a reason to move it."""
    before = make_world()
    path = "node0.rail0>node3.rail0#0"
    before.silent.add(path)
    before.run(0.2)
    before.path_event(path, "silent")
    before.run(1.0)
    after = make_world(lease=0)
    for paths in moved_by(before):
        after.see(paths)
    after.core.hold(8, after.now_ns)
    assert after.run(4.8) == []
    (command,) = after.run(1.0)
    assert (command.verb, command.node) == ("restore", "node0")


def test_what_is_still_away_when_the_lease_comes_back_stays_in_the_trace_of_its_loss(make_world):
    """No event ever told of the paths that carried it."""
    world = make_world()
    (fault,) = {command.fault for command in world.flap("node3.rail0", "down")}
    world.flap("node3.rail0", "up")
    world.answer = None
    for command in world.run(6.0):
        world.see(world.outcome(command, "refused" if command.node == "node0" else "done"))
    world.answer = "done"
    world.core.hold(0, world.now_ns)
    world.core.hold(8, world.now_ns)
    (command,) = world.run(12.0)
    assert (command.verb, command.node) == ("restore", "node0")
    assert (command.cause, command.fault) == (f"{fault}/up", fault)


def test_who_stood_by_goes_on_where_the_other_ended(make_world):
    """It saw the events too: a fault that the former holder did not get to is handled at once."""
    world = make_world(lease=0)
    world.flap("node3.rail0", "down")
    world.run(0.5)
    world.core.hold(8, world.now_ns)
    commands = world.run(0.2)
    assert {command.node for command in commands} == set(world.names)
    assert {command.lease_revision for command in commands} == {8}


def test_a_fault_that_the_former_holder_handled_is_left_alone(make_world):
    """What stands in the bucket is in force: a new holder commands nothing twice."""
    former = make_world()
    world = make_world(lease=0)
    for each in (former, world):
        each.flap("node3.rail0", "down")
        each.run(1.0)
    for paths in moved_by(former):
        world.see(paths)
    world.core.hold(8, world.now_ns)
    assert world.run(3.0) == []


def test_a_holder_that_was_deposed_falls_silent(world):
    """When another's writing shows that it has taken over, refusals are its business."""
    world.core.hold(0, world.now_ns)
    world.see(NodePaths(node="node0", lease_revision=8))
    world.flap("node3.rail0", "down")
    world.run(2.0)
    assert not world.decisions


def test_a_holder_that_was_deposed_by_a_new_count_falls_silent(world):
    """The other's number is lower where the bus counts leases anew; but the bus says who holds the lease."""
    world.core.hold(0, world.now_ns, held_by_another=True)
    world.see(NodePaths(node="node0", lease_revision=3))
    world.flap("node3.rail0", "down")
    world.run(2.0)
    assert not world.decisions


def test_the_bus_tells_the_service_who_holds_the_lease():
    """It looks with every message and tick."""
    made = Service(SimpleNamespace(), RemediatorSettings(), FleetClock())
    spoke = []
    for revision, held_by_another in ((900, False), (0, False), (0, True)):
        made._lease = SimpleNamespace(revision=revision, held_by_another=held_by_another)
        made._hold(1)
        spoke.append(made._core.decider.speaks)
    assert spoke == [True, True, False]


def test_a_number_of_an_earlier_count_silences_nobody(make_world):
    """Who held the lease by the new count, and knows of no successor, says what it does not do."""
    world = make_world(lease=0)
    world.see(NodePaths(node="node0", lease_revision=900))
    world.core.hold(3, world.now_ns)
    world.core.hold(0, world.now_ns)
    world.see(NodePaths(node="node1", lease_revision=3))
    world.flap("node3.rail0", "down")
    assert world.guards() == ["lease"]


def test_a_value_that_a_former_holder_stored_late_is_written_over(world):
    """Whoever starts next reads the bucket.

    A successor's is left alone, also where two shards were set to the same nodes.
    """
    own = world.paths("node3")
    written = len(world.supplies["node3"])
    world.see(msgspec.structs.replace(own, lease_revision=own.lease_revision - 1, away=("rail0",)))
    world.run(1.0)
    assert world.supplies["node3"][written:] == [
        msgspec.structs.replace(own, decided_ns=world.paths("node3").decided_ns)
    ]
    world.see(msgspec.structs.replace(own, lease_revision=own.lease_revision + 1, away=("rail0",)))
    world.run(1.0)
    assert len(world.supplies["node3"]) == written + 1


def test_what_agents_report_is_known_before_it_is_written(make_world):
    """A holder that ended before it wrote what it commanded leaves nothing away for ever: agents say what they did."""
    before = make_world()
    before.answer = None
    commands = before.flap("node3.rail0", "down")
    after = make_world(lease=0)
    armed = {name: before.core.routing.backups[name] for name in before.names}
    for command in commands:
        routing = command.placements or tuple(armed["node3"][peer, "rail0"] for peer in ("node0", "node1", "node2"))
        after.see(before.outcome(command, "done", away=command.away, placements=routing))
    after.core.hold(8, after.now_ns)
    assert {command.node for command in after.run(6.0)} == set(after.names)


def test_a_return_that_was_seen_while_standing_by_counts(make_world):
    """Who saw only the NIC's return, and finds it away at takeover, restores it, also before its port is reported."""
    before = make_world()
    before.flap("node3.rail0", "down")
    before.run(1.0)
    after = make_world(lease=0)
    after.report_ports = list
    for paths in moved_by(before):
        after.see(paths)
    after.flap("node3.rail0", "up")
    after.core.hold(8, after.now_ns)
    commands = after.run(6.0)
    assert {command.node for command in commands} == set(after.names)
    assert {command.cause for command in commands} == {"boot/node3.rail0/carrier-1/up"}


def test_an_armed_move_that_nobody_wrote_down_is_brought_home(make_world):
    """The holder before heard the report and ended; the report is all that tells where the traffic went."""
    after = make_world(lease=0)
    for name in after.names:
        after.see(NodePaths(node=name, lease_revision=7))
    report = Outcome(
        id="armed/f/outcome/node3", command="armed/f", verb="reroute", node="node3", status="done", armed=True,
        started_ns=after.now_ns, away=("rail0",), fault="f",
    )  # fmt: skip
    after.see(report)
    after.core.hold(8, after.now_ns)
    given = after.run(7.0)
    assert [(command.node, command.verb, command.back) for command in given] == [("node3", "restore", ("rail0",))]


@pytest.mark.parametrize("stands_by", [False, True], ids=["held the lease", "stood by"])
def test_a_bucket_that_is_told_again_undoes_no_armed_move(make_world, stands_by):
    """The bus is back: for a moment nobody has the lease, agents' reports come, then all that the bucket had before."""
    before = make_world()
    before.run(1.0)
    written = moved_by(before)
    after = make_world(lease=0) if stands_by else before
    if stands_by:
        for paths in written:
            after.see(paths)
    else:
        after.core.hold(0, after.now_ns)
    report = Outcome(
        id="armed/f/outcome/node3", command="armed/f", verb="reroute", node="node3", status="done", armed=True,
        started_ns=after.now_ns, away=("rail0",), fault="f",
    )  # fmt: skip
    after.see(report)
    for paths in written:
        after.see(paths)
    after.core.hold(8, after.now_ns)
    given = after.run(7.0)
    assert [(command.node, command.verb, command.back) for command in given] == [("node3", "restore", ("rail0",))]


def test_losses_told_late_count_from_when_they_were(make_world):
    """A restart takes the last events again: losses of long ago, each forgotten by the next, lengthen no probation."""
    after = make_world(lease=0, forget_s=10.0)
    for count in range(1, 6):
        for state, ago_s in (("down", 200 - 30 * count), ("up", 199 - 30 * count)):
            event = after.flap_event("node3.rail0", state, count)
            at_ns = event.at_ns - ago_s * 1_000_000_000
            after.see(msgspec.structs.replace(event, at_ns=at_ns, since_ns=at_ns))
    after.core.hold(8, after.now_ns)
    assert after.run(11.0) == []
    after.flap("node3.rail0", "down", 6)
    after.run(1.0)
    after.flap("node3.rail0", "up", 6)
    assert len(after.run(6.0)) == 4


@pytest.mark.parametrize(("lease", "ago_ns"), [(5, 0), (9, 3_000_000_000)])
def test_a_value_that_comes_after_a_newer_one_is_passed_over(make_world, lease, ago_ns):
    """It waited between two of the bus's servers; a later lease holder, or the same, has decided otherwise since."""
    world = make_world(lease=0)
    world.see(NodePaths(node="node1", lease_revision=9, decided_ns=world.now_ns))
    world.see(NodePaths(node="node1", lease_revision=lease, away=("rail0",), decided_ns=world.now_ns - ago_ns - 1))
    assert not world.core.routing.away


def test_where_the_reference_was_set_back_later_values_and_reports_count(make_world):
    """Dates of before lie ahead, and say nothing of what comes after."""
    world = make_world(lease=0)
    world.see(NodePaths(node="node1", lease_revision=9, decided_ns=world.now_ns + 3_600_000_000_000))
    world.see(NodePaths(node="node1", lease_revision=9, away=("rail0",), decided_ns=world.now_ns))
    assert [*world.core.routing.away] == [("node1", "rail0")]
    world.see(NodePaths(node="node1", lease_revision=9, decided_ns=world.now_ns + 3_600_000_000_000))
    world.see(done(world, "reroute", 0, AROUND))
    assert world.core.routing.placed(MOVED) == AROUND


def test_what_the_bus_lost_is_written_again_under_the_same_number(make_world):
    """It counts leases anew, and may give the number that it gave last."""
    world = make_world(lease=3)
    world.core.hold(0, world.now_ns)
    world.supplies.clear()
    world.core.hold(3, world.now_ns)
    world.run(1.0)
    assert set(world.supplies) == set(world.names)


AROUND = Placement(peer="node3", rail="rail0", via="rail1", entropy=2)
MOVED = Destination("node1", "node3", "rail0")


def done(world, verb: str, ago_ns: int, way: Placement) -> Outcome:
    """Node 1's answer to what a former holder of the lease told it so long ago."""
    started_ns = world.now_ns - ago_ns
    return Outcome(
        id=verb, command=verb, verb=verb, node="node1", status="done", started_ns=started_ns, placements=(way,)
    )


def test_of_two_answers_the_later_beginning_counts(make_world):
    """The earlier one waited for its confirmation, and is heard behind."""
    world = make_world(lease=0)
    home = world.core.routing.placed(MOVED)
    world.see(done(world, "restore", 1_000_000, home))
    world.see(done(world, "reroute", 2_000_000, AROUND))
    assert world.core.routing.placed(MOVED) == home


@pytest.mark.parametrize(("ago_ns", "counts"), [(9_000_000_000, False), (500_000_000, True)])
def test_an_answer_counts_only_if_the_bucket_was_decided_before_it(make_world, ago_ns, counts):
    """A process that starts is told the bucket, and then of what nodes did."""
    world = make_world(lease=0)
    world.see(NodePaths(node="node1", lease_revision=5, decided_ns=world.now_ns - 1_000_000_000))
    world.see(done(world, "reroute", ago_ns, AROUND))
    assert (world.core.routing.placed(MOVED) == AROUND) is counts
