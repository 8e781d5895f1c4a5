"""How long the remedy of lost ranks waits for what is at work, and what it makes of jobs that begin anew."""

from __future__ import annotations

import pytest
from prepared import prepared
from remediator_world import SECOND
from replacement_world import Mate, ReplacementWorld

from foliot_remediator.core.remedies.replacement import course


@pytest.fixture
def world():
    """Four ranks and two spares."""
    return prepared(ReplacementWorld)


def takers(order):
    """The node that takes each rank."""
    return {change.rank: change.to_node for change in order.changes}


def pause(world, rank, seconds):
    """A rank's program does something else for a while: it runs, and all wait for it."""
    world.stuck.append(mate := world.rank(rank))
    before, mate.stage = mate.stage, "pausing"
    told, mate.state = mate.state, lambda: _as_training(mate, told)
    found = world.run(seconds)
    mate.stage, mate.state = before, told
    world.stuck.remove(mate)
    return found


def _as_training(mate, told):
    stage, mate.stage = mate.stage, "training"
    try:
        return told()
    finally:
        mate.stage = stage


@pytest.mark.parametrize("state", ["absent", "mismatch", "silent"])
def test_a_rank_that_writes_a_checkpoint_keeps_its_rank(state):
    """Its process runs, and all others wait for it, for less than it may take."""
    world = prepared(ReplacementWorld, replace_hung_s=40.0)
    since_ns = world.now_ns
    pause(world, 0, 4.0)
    world.hang(0, state, since_ns=since_ns)
    pause(world, 0, 30.0)
    assert (world.orders, world.guards()) == ([], [])
    world.run(1.0)
    assert {mate.stage for mate in world.mates if mate.rank >= 0} == {"training"}
    world.run(20.0)
    assert world.orders == []


def test_a_rank_that_hangs_for_too_long_is_replaced():
    """Though its process runs."""
    world = prepared(ReplacementWorld, replace_hung_s=30.0)
    since_ns = world.now_ns
    pause(world, 0, 4.0)
    world.hang(0, "absent", since_ns=since_ns)
    pause(world, 0, 25.5)
    assert world.orders == []
    pause(world, 0, 1.0)
    assert takers(world.orders[0]) == {0: "node4"}


@pytest.mark.parametrize("state", ["absent", "silent", "dead"])
def test_in_a_long_step_nobody_is_taken_to_stand(state):
    """A detector is wrong. No node has told of a step since, as each takes ten seconds."""
    world = prepared(ReplacementWorld)
    world.step_ns = 10 * SECOND
    world.run(40.0)
    for number in range(4):
        world.run(7.0)
        world.hang(1, state, number=number + 1, since_ns=world.now_ns - 5 * SECOND)
    world.run(30.0)
    assert world.orders == []
    assert {*world.guards()} <= {"contradicted", "not-confirmed"}


def test_a_stopped_rank_of_a_job_with_long_steps_is_replaced():
    """Three steps later at the latest."""
    world = prepared(ReplacementWorld)
    world.step_ns = 5 * SECOND
    world.run(31.0)
    world.rank(2).alive = "stopped"
    world.tell("node2")
    since_ns = world.now_ns
    world.run(18.0)
    world.hang(2, "stopped", since_ns=since_ns)
    assert takers(world.orders[0]) == {2: "node4"}


def test_a_job_that_is_started_anew_is_looked_after():
    """Its first run had a replacement, and ended for lack of a spare. Who was killed then is still told of."""
    world = prepared(ReplacementWorld, spares=(4,))
    world.lose(1)
    world.run(3.0)
    world.lose(2, number=2)
    world.run(1.0)
    for mate in world.mates:
        mate.alive = "gone"
    world.tell_all()
    world.run(10.0)
    assert len(world.orders) == 1
    world.decisions.clear()
    world.mates += [Mate(f"node{number}", 2_000 + number, rank=number, stage="training") for number in range(4)]
    world.mates.append(Mate("node5", 2_005))
    world.run(5.0)
    world.drain(3)
    world.run(3.0)
    assert takers(world.orders[0]) == {3: "node5"}
    world.mates.append(Mate("node4", 2_006))
    world.run(3.0)
    world.lose(0, number=3)
    assert takers(world.orders[1]) == {0: "node4"}


def test_a_job_that_goes_back_to_a_checkpoint_makes_progress_from_there():
    """It does the same steps again, for hours, and loses a rank now and then."""
    world = prepared(ReplacementWorld, nodes=12, spares=tuple(range(4, 12)))
    for mate in world.mates:
        mate.step += 5_000
    for number in range(1, 6):
        world.run(8.0)
        world.lose(number % 4, number=number)
        for mate in world.mates:
            mate.step = min(mate.step, 3_000)
        world.run(3.0)
    assert len(world.orders) == 5
    assert world.guards() == []


@pytest.mark.parametrize(("copy_s", "guards"), [(45.0, []), (90.0, ["not-formed"])])
def test_a_large_state_may_take_a_while(copy_s, guards, monkeypatch):
    """The group has formed. A second rank that dies meanwhile goes with it, without an event of its own."""
    world = prepared(ReplacementWorld, nodes=7, spares=(4, 5, 6))
    monkeypatch.setattr(course, "_COPIED_NS", 60 * SECOND)
    world.copy_ns = round(copy_s * SECOND)
    world.lose(1)
    world.run(40.0)
    assert world.guards() == []
    if not guards:
        world.die(2)
        world.run(0.5)
        assert takers(world.orders[1])[2] == "node5"
    world.run(40.0)
    assert world.guards() == guards


def test_ranks_that_compute_for_long_between_collectives_are_waited_for():
    """They take the order when they come to the next one. Three usual steps are given them."""
    world = prepared(ReplacementWorld)
    world.step_ns = 6 * SECOND
    world.run(31.0)
    late = [world.rank(2), world.rank(3)]
    world.stuck += late
    world.lose(1)
    world.run(14.0)
    world.stuck.clear()
    world.run(20.0)
    assert [takers(order) for order in world.orders] == [{1: "node4"}]
    assert world.guards() == []
    assert {mate.stage for mate in world.mates if mate.rank >= 0 and mate.is_up} == {"training"}


@pytest.mark.parametrize("address", ["127.0.1.1", "[::1]"])
def test_nobody_meets_at_an_address_at_which_each_finds_itself(world, address):
    """A host's own name may be one to itself alone."""
    world.rank(0).meet = f"{address}:29500"
    world.tell("node0")
    world.lose(2)
    assert world.orders[0].meet == "node1:29500"


def test_another_user_s_process_gets_no_rank(world):
    """It would have the job's state."""
    world.spare("node4").user = 1_001
    world.tell("node4")
    world.lose(1)
    assert takers(world.orders[0]) == {1: "node5"}
    (command, *_) = [each for each in world.commands if each.verb == "replace-rank"]
    assert command.evidence["passed_over"] == "node4: its process is another user's"
