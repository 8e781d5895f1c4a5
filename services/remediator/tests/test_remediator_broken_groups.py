"""Groups that break though no rank is lost: when the same ranks are told to form one anew, and when not."""

from __future__ import annotations

import pytest
from prepared import prepared
from remediator_world import SECOND
from replacement_world import Mate, ReplacementWorld


@pytest.fixture
def world():
    """Four ranks and two spares."""
    return prepared(ReplacementWorld)


def break_group(world, *, number=1, generation=0, seconds=0.3):
    """The connections of the group are reset; the detector says so when it has seen that nobody is lost."""
    world.fail()
    world.tell_all()
    world.run(3.0)
    since_ns = world.now_ns - 3 * SECOND
    world.hang(None, "broken", number=number, since_ns=since_ns, evidence={"generation": generation, "size": 4})
    return world.run(seconds)


def break_but_for_one(world):
    """Rank 0 is at work, or hangs, while the connections of the others are reset, and none of its own."""
    busy = world.rank(0)
    world.stuck.append(busy)
    world.fail()
    busy.stage = "training"
    world.tell_all()
    world.run(4.0)
    world.hang(None, "broken", since_ns=world.now_ns - 4 * SECOND, evidence={"generation": 0, "size": 4})


def stages(world):
    """The stages of all who have ranks."""
    return {mate.stage for mate in world.mates if mate.rank >= 0}


def test_the_same_ranks_form_the_group_anew(world):
    """All nodes with a rank are told one order in which nobody changes, and no spare is."""
    break_group(world)
    (order,) = world.orders
    assert (order.changes, order.generation, order.at_step, order.cause) == ((), 1, 0, "broken")
    assert order.meet == "node0:29500"
    assert world.nodes_of(order) == {"node0", "node1", "node2", "node3"}
    world.run(2.0)
    assert stages(world) == {"training"}
    world.run(30.0)
    assert len(world.orders) == 1
    assert world.guards() == []


@pytest.mark.parametrize("saying", [(), (2,)])
def test_one_node_alone_breaks_no_group(world, saying):
    """The detector lies, or a rank does."""
    for number in saying:
        mate = world.rank(number)
        world.stuck.append(mate)
        world.stage(mate, "broken")
    world.tell_all()
    world.hang(None, "broken", evidence={"generation": 0, "size": 4})
    world.run(10.0)
    assert world.orders == []
    assert {*world.guards()} <= {"contradicted", "not-confirmed"}
    assert world.guards()


def test_two_ranks_of_one_node_are_one_node():
    """A stolen node has the others leave nothing."""
    world = prepared(ReplacementWorld, ranks=(0, 1, 2, 2), nodes=6)
    for mate in world.mates:
        if mate.node == "node2":
            world.stage(mate, "broken")
    world.tell_all()
    world.run(3.0)
    world.hang(None, "broken", evidence={"generation": 0, "size": 4})
    world.run(10.0)
    assert (world.orders, {*world.guards()}) == ([], {"not-confirmed"})


def test_a_job_that_goes_on_is_left_alone(world):
    """Two ranks say that their collectives failed. Another does steps."""
    world.fail()
    for number in (2, 3):
        world.rank(number).stage = "training"
    world.tell_all()
    for _ in range(4):
        world.run(1.0)
        world.rank(3).step += 5
    world.hang(None, "broken", evidence={"generation": 0, "size": 4})
    for _ in range(4):
        world.run(1.0)
        world.rank(3).step += 5
    assert (world.orders, {*world.guards()}) == ([], {"contradicted"})


def test_a_rank_that_is_lost_goes_to_a_spare_all_the_same(world):
    """The event of the group came first."""
    world.die(1)
    world.hang(None, "broken", evidence={"generation": 0, "size": 4})
    world.hang(1, "dead")
    world.run(0.5)
    (order,) = world.orders
    assert [change.rank for change in order.changes] == [1]


def test_a_rank_that_is_not_there_is_waited_for(world):
    """Its node is cut off, and the detector has not said so yet. A group without it would not form."""
    world.fail()
    world.tell_all()
    world.cut.add("node3")
    world.run(3.0)
    world.hang(None, "broken", evidence={"generation": 0, "size": 4})
    world.run(5.0)
    assert (world.orders, {*world.guards()}) == ([], {"not-confirmed"})
    world.hang(3, "silent", number=2)
    world.run(0.5)
    assert [change.rank for order in world.orders for change in order.changes] == [3]


def test_a_rank_that_is_lost_while_the_group_forms_goes_to_a_spare(world):
    """The next order gives its rank away."""
    break_group(world, seconds=0.1)
    world.die(2)
    world.run(5.0)
    first, second = world.orders
    assert (first.changes, second.generation) == ((), 2)
    assert [(change.rank, change.to_node) for change in second.changes] == [(2, "node4")]
    assert {mate.stage for mate in world.mates if mate.is_up and mate.rank >= 0} == {"training"}


def test_a_group_that_does_not_form_is_formed_anew(world):
    """A rank was lost, a spare took it, and the connections are reset as the state is copied."""
    world.copy_ns = 10 * SECOND
    world.lose(1)
    world.run(1.0)
    for mate in world.mates:
        if mate.stage == "copying":
            world.stage(mate, "broken")
    world.tell_all()
    world.run(3.0)
    world.copy_ns = 0
    world.hang(None, "broken", number=2, evidence={"generation": 1, "size": 4})
    world.run(3.0)
    _, second = world.orders
    assert (second.generation, second.changes, second.cause) == (2, (), "broken")
    assert {mate.stage for mate in world.mates if mate.is_up and mate.rank >= 0} == {"training"}


def test_an_event_about_a_former_group_is_of_no_use(world):
    """It comes when another group does steps."""
    world.lose(1)
    world.run(3.0)
    world.hang(None, "broken", number=2, evidence={"generation": 0, "size": 4})
    world.run(10.0)
    assert len(world.orders) == 1
    assert world.guards() == []


def test_a_group_that_breaks_again_and_again_is_given_up(world):
    """Before each first step: three groups, and then it is said."""
    for number in range(1, 6):
        break_group(world, number=number, generation=number - 1, seconds=0.2)
        for mate in world.mates:
            if mate.stage == "forming":
                mate.formed_ns = world.now_ns
                world.stage(mate, "broken")
        world.tell_all()
    world.run(1.0)
    assert [order.generation for order in world.orders] == [1, 2, 3]
    assert {*world.guards()} == {"no-progress"}


def test_breaks_count_as_replacements(world):
    """A job whose connections break all the time stops the fleet's hour, and not more."""
    world = prepared(ReplacementWorld, replacements_per_hour=2)
    for number in range(1, 4):
        break_group(world, number=number, generation=number - 1, seconds=3.0)
    assert len(world.orders) == 2
    assert {*world.guards()} == {"per-hour"}


def test_advice_is_given_once():
    """Nobody is told anything."""
    world = prepared(ReplacementWorld, replace="advise")
    break_group(world, seconds=5.0)
    assert world.orders == []
    advised = [command for command in world.commands if command.advice]
    assert {command.order().cause for command in advised} == {"broken"}
    assert len(advised) == len({command.node for command in advised}) == 4


def test_a_job_that_goes_on_by_itself_is_left_alone(world):
    """The detector has said so before two nodes had told that their collectives failed."""
    world.hang(None, "broken", evidence={"generation": 0, "size": 4})
    world.run(0.2)
    world.hang(None, "moving")
    world.run(1.0)
    assert "pretrain-7" not in world.core.remedies["replacement"]._cases


def test_who_takes_over_forms_the_group(world):
    """It hears of the event before any node has told it of the job."""
    world.fail()
    world.tell_all()
    world.run(3.0)
    event = world.hang_event(None, "broken", since_ns=world.now_ns - 3 * SECOND, evidence={"generation": 0, "size": 4})
    world.take_over()
    world.see(event)
    world.run(4.0)
    assert [(order.changes, order.generation) for order in world.orders] == [((), 1)]
    assert stages(world) == {"training"}


def test_a_job_that_is_started_anew_is_helped_too(world):
    """Its first run had a later generation, and its spares have never ended."""
    world.lose(1)
    world.run(5.0)
    for mate in world.mates:
        if mate.rank >= 0:
            mate.alive = "gone"
    world.tell_all()
    world.run(10.0)
    world.decisions.clear()
    world.mates += [Mate(f"node{number}", 2_000 + number, rank=number, stage="training") for number in range(4)]
    world.run(8.0)
    break_group(world, number=2, seconds=2.0)
    (order,) = world.orders
    assert (order.changes, order.generation) == ((), 2)
    assert {mate.stage for mate in world.mates if mate.number >= 2_000} == {"training"}


def test_who_takes_over_completes_what_half_of_the_nodes_were_told(world):
    """The order did not reach the others before the lease went to another process."""
    world.obeys = False
    break_group(world, seconds=0.1)
    since_ns = world.now_ns - 3 * SECOND
    event = world.hang_event(None, "broken", since_ns=since_ns, evidence={"generation": 0, "size": 4})
    (order,) = world.orders
    for number in (0, 1):
        world.rank(number).order = order
    world.run(0.2)
    world.obeys = True
    world.decisions.clear()
    world.take_over()
    world.see(event)
    world.run(8.0)
    (again,) = world.orders
    assert (again.changes, again.generation) == ((), 2)
    assert stages(world) == {"training"}


def test_a_rank_that_is_at_work_has_time_to_come(world):
    """It writes a checkpoint meanwhile."""
    break_but_for_one(world)
    world.run(11.0)
    world.stuck.clear()
    world.run(3.0)
    assert [order.changes for order in world.orders] == [()]
    assert stages(world) == {"training"}


def test_a_rank_that_does_not_come_at_all_is_replaced(world):
    """Its program hangs."""
    break_but_for_one(world)
    world.run(18.0)
    first, second = world.orders
    assert first.changes == ()
    assert [change.rank for change in second.changes] == [0]


def test_a_last_step_just_before_contradicts_nothing(world):
    """A rank was at work, does its step, and finds its connections gone: its node tells of all that at once."""
    world.fail()
    late = world.rank(3)
    late.stage = "training"
    world.tell_all()
    world.run(4.0)
    world.cut.add("node0")  # whoever commands waits for this one
    since_ns = world.now_ns - 4 * SECOND
    world.hang(None, "broken", since_ns=since_ns, evidence={"generation": 0, "size": 4})
    world.run(0.5)
    late.step += 1
    world.stage(late, "broken")
    world.cut.clear()
    world.run(6.0)
    assert [order.changes for order in world.orders] == [()]
    assert "contradicted" not in world.guards()


def test_a_rank_of_which_nobody_has_told_is_waited_for(world):
    """The order would not reach its node."""
    world.fail()
    for mate in world.mates:
        if mate.rank == 3:
            mate.job = "another"
    world.sizes["another"] = 4
    world.core.remedies["replacement"].forget_node("node3")
    world.tell_all()
    world.run(3.0)
    world.hang(None, "broken", since_ns=world.now_ns - 3 * SECOND, evidence={"generation": 0, "size": 4})
    world.run(5.0)
    assert (world.orders, {*world.guards()}) == ([], {"not-confirmed"})
