"""A lost rank is given to a spare, where two nodes say that it is lost."""

from __future__ import annotations

import msgspec
import pytest
from prepared import prepared
from remediator_world import SECOND
from replacement_world import JOB, ReplacementWorld

from foliot_schemas.orders import RankChange


@pytest.fixture
def world():
    """Four ranks on four nodes, and spares on two others."""
    return prepared(ReplacementWorld)


def takers(order):
    """Which node takes which rank."""
    return {change.rank: change.to_node for change in order.changes}


def steps_on(world, seconds=3.0):
    """Whether the job does steps."""
    before = max(mate.step for mate in world.mates)
    world.run(seconds)
    return max(mate.step for mate in world.mates) > before + 5


# -- a lost rank ------------------------------------------------------------------------------------------------------


def test_a_dead_rank_is_given_to_a_spare(world):
    """Every node of the job is told the same, once, in the trace of the event; and the job goes on."""
    lost = world.die(1)
    commands = world.hang(1)
    (order,) = world.orders
    assert (order.job, order.generation, order.at_step, order.cause) == (JOB, 1, 0, "dead")
    spare = world.spare("node4")
    assert order.changes == (
        RankChange(rank=1, node="node1", process=lost.number, to_node="node4", to_process=spare.number),
    )
    assert order.meet == "node0:29500"
    assert {command.node for command in commands} == {"node0", "node2", "node3", "node4"}
    assert {(command.cause, command.fault) for command in commands} == {
        (f"{JOB}/rank1/hang-1/dead", f"{JOB}/rank1/hang-1")
    }
    assert {command.deadline_ns - command.issued_ns for command in commands} == {2 * SECOND}
    assert steps_on(world)
    assert world.run(30.0) == []
    assert world.guards() == []


def test_nothing_is_ordered_before_all_ranks_were_heard_of(world):
    """One that still starts could not be told, and the others would wait for it."""
    world.add((0, 1, 2, 3), (4,), job="other")
    world.starting.append(world.rank(1, "other"))
    world.die(3, job="other")
    world.hang(3, job="other")
    world.run(5.0)
    assert (world.orders, set(world.guards())) == ([], {"not-replaceable"})

    world.starting.clear()
    world.run(5.0)
    (order,) = world.orders
    assert takers(order).keys() == {3}


def test_the_store_is_not_on_the_node_that_loses_a_rank():
    """Rank 0 lives beside the one that is lost; the lowest elsewhere is the place to meet."""
    world = prepared(ReplacementWorld, ranks=(0, 0, 1, 2))
    world.lose(1)
    assert world.orders[0].meet == "node1:29500"
    assert steps_on(world)


def test_the_others_of_a_node_that_live_keep_their_ranks():
    """They are waited for, but for a moment."""
    world = prepared(ReplacementWorld, ranks=(0, 0, 1, 2))
    world.die(1)
    assert world.hang(1) == []
    world.run(0.3)
    assert takers(world.orders[0]) == {1: "node4"}
    assert "node0" in world.nodes_of(world.orders[0])


def test_both_ranks_of_a_node_that_is_cut_off_are_one_order():
    """Only of one there is an event: nothing is heard of the other, either. Nobody tells the node that is gone."""
    world = prepared(ReplacementWorld, ranks=(0, 0, 1, 2))
    world.cut.add("node0")
    since_ns = world.now_ns
    world.run(1.5)
    world.hang(0, "silent", since_ns=since_ns, confidence=0.3)
    assert world.run(0.5) == [], "a second and a half is not silent yet"
    world.run(2.0)
    (order,) = world.orders
    assert takers(order) == {0: "node4", 1: "node5"}
    assert "node0" not in world.nodes_of(order)
    assert order.meet == "node1:29500"
    assert steps_on(world)
    assert world.guards() == []


def test_a_rank_whose_process_is_stopped_is_replaced(world):
    """By its node's word. The others wait in a collective, and do no steps. It is told so as well."""
    world.rank(2).alive = "stopped"
    since_ns = world.now_ns
    world.run(4.0)
    world.hang(2, "stopped", since_ns=since_ns)
    assert takers(world.orders[0]) == {2: "node4"}
    assert "node2" in world.nodes_of(world.orders[0])
    assert steps_on(world)


def test_a_rank_that_does_not_come_to_a_collective_is_replaced(world):
    """Its process runs, but makes no step, and the others wait."""
    world.rank(2).alive = "stopped"
    since_ns = world.now_ns
    world.run(4.0)
    world.rank(2).alive = "running"
    world.tell("node2")
    world.hang(2, "absent", since_ns=since_ns)
    assert takers(world.orders[0]) == {2: "node4"}


# -- what is not believed ---------------------------------------------------------------------------------------------


def test_an_event_is_not_believed_while_the_others_do_steps(world):
    """The rank's own node says that it is gone, and nobody misses it."""
    lost = world.mates[1]
    lost.alive = "gone"
    world.tell("node1")
    world.mates.remove(lost)  # its rank is not missed
    world.hang(1)
    world.run(4.0)
    assert world.orders == []
    assert world.guards() == ["contradicted"]
    assert world.refusals[0].evidence["others_stepping"] == 3


def test_an_event_about_a_rank_that_does_steps_is_contradicted(world):
    """Nobody else waits, either."""
    world.hang(1)
    world.run(30.0)
    assert (world.orders, world.guards()) == ([], ["contradicted"])


def test_an_event_that_the_rank_s_own_node_does_not_bear_out_is_not_believed(world):
    """The others are broken, and it is said to run: after three seconds that is said, and its node's word later counts."""
    world.fail()
    world.tell_all()
    world.hang(1)
    world.run(2.5)
    assert world.guards() == []
    world.run(1.0)
    assert (world.orders, world.guards()) == ([], ["not-confirmed"])
    world.die(1)
    world.run(0.2)
    assert takers(world.orders[0]) == {1: "node4"}


def test_one_node_alone_moves_nothing():
    """All ranks are on it: nobody else can say that one is missed."""
    world = prepared(ReplacementWorld, ranks=(0, 0, 0))
    world.lose(1)
    world.run(4.0)
    assert (world.orders, world.guards()) == ([], ["not-confirmed"])


def test_an_event_in_which_nobody_has_confidence_is_not_believed(world):
    """Unless its node is not heard."""
    world.lose(1, confidence=0.3)
    assert (world.orders, world.guards()) == ([], ["confidence"])


def test_a_job_of_which_no_rank_is_to_blame_is_left_alone(world):
    """It is said."""
    world.hang(None, "stuck")
    assert (world.orders, world.guards()) == ([], ["not-replaceable"])


def test_jobs_that_cannot_be_replaced_are_nobody_s_business(world):
    """No node tells of workers of it."""
    world.hang(1, job="other")
    world.run(70.0)
    assert (world.orders, world.guards()) == ([], [])
    assert "other" not in world.core.remedies["replacement"]._cases


def test_a_rank_that_is_to_blame_no_more_is_left_alone():
    """There is a spare only after the job went on."""
    world = prepared(ReplacementWorld, spares=())
    world.lose(1)
    world.hang(1, "moving")
    world.add((), (4,))
    world.run(5.0)
    assert world.orders == []


# -- together, and one after the other --------------------------------------------------------------------------------


def test_losses_shortly_one_after_the_other_are_one_order():
    """Of a node with three ranks two die."""
    world = prepared(ReplacementWorld, ranks=(0, 0, 0, 1))
    world.die(1)
    world.hang(1)
    world.run(0.1)
    world.die(2)
    world.hang(2)
    world.run(0.3)
    (order,) = world.orders
    assert takers(order) == {1: "node4", 2: "node5"}


def test_a_spare_that_dies_before_it_has_joined_is_replaced_by_another(world):
    """With a higher generation, in the same trace."""
    world.obeys = False
    world.lose(1)
    world.spare("node4").alive = "gone"
    world.tell("node4")
    world.obeys = True
    world.run(0.5)
    first, second = world.orders
    assert (first.generation, second.generation) == (1, 2)
    assert (takers(first), takers(second)) == ({1: "node4"}, {1: "node5"})
    assert second.changes[0].process == first.changes[0].process
    assert {command.fault for command in world.commands} == {f"{JOB}/rank1/hang-1"}
    assert steps_on(world)


def test_a_spare_that_dies_when_it_has_joined_is_replaced_by_another(world):
    """It has the rank by then, so it is the one that loses it."""
    world.lose(1)
    taker = world.rank(1)
    assert taker.node == "node4"
    taker.alive = "gone"
    world.tell("node4")
    world.run(0.5)
    second = world.orders[1]
    assert (second.generation, takers(second)) == (2, {1: "node5"})
    assert (second.changes[0].node, second.changes[0].process) == ("node4", taker.number)
    assert steps_on(world)


def test_a_second_rank_that_dies_meanwhile_goes_with_what_is_under_way():
    """The first change is said again, with the same spare, and the second beside it."""
    world = prepared(ReplacementWorld, nodes=7, spares=(4, 5, 6))
    world.obeys = False
    world.lose(1)
    world.obeys = True
    world.die(3)
    world.hang(3, number=2)
    world.run(0.5)
    second = world.orders[-1]
    assert (second.generation, takers(second)) == (2, {1: "node4", 3: "node5"})
    assert steps_on(world)
    assert len(world.orders) == 2


def test_a_survivor_that_leaves_its_group_for_nobody_goes_with_what_is_under_way():
    """Its program hangs, and the others wait for it. It is given five seconds."""
    world = prepared(ReplacementWorld, nodes=7, spares=(4, 5, 6))
    world.stuck.append(world.rank(3))
    world.lose(1)
    world.run(4.0)
    assert len(world.orders) == 1
    world.run(2.0)
    second = world.orders[-1]
    assert (second.generation, takers(second)) == (2, {3: "node5"})
    assert steps_on(world)
    assert len(world.orders) == 2


def test_nothing_is_replaced_twice(world):
    """The same event, told again while the group forms and after."""
    event = world.hang_event(1)
    world.die(1)
    world.see(event)
    world.run(0.1)
    world.see(event)
    world.run(3.0)
    world.see(event)
    world.run(30.0)
    assert len(world.orders) == 1
    assert world.guards() == []


def test_an_event_about_another_process_than_the_rank_has_is_over(world):
    """It says which process it blames."""
    lost = world.die(1)
    world.hang(1, evidence={"process": lost.number - 1})
    world.run(0.5)
    assert world.orders == []
    world.hang(1, number=2, evidence={"process": lost.number})
    world.run(0.5)
    assert len(world.orders) == 1


def test_a_late_word_of_a_node_that_is_heard_otherwise_costs_no_rank(world):
    """While another rank is replaced, the agent of one that stays says nothing for a while; its probe does."""
    world.obeys = False
    world.lose(1)
    quiet, world.tell = world.tell, lambda name: None if name == "node3" else quiet(name)
    world.run(4.0)
    assert {*takers(world.orders[-1])} == {1}
    world.cut.add("node3")
    world.run(3.5)
    assert takers(world.orders[-1]) == {1: "node4", 3: "node5"}


def test_nodes_that_were_not_reached_are_asked_again(world):
    """Under another id, in the same words."""
    world.answer, world.obeys = None, False
    world.lose(1)
    world.run(1.5)
    assert len(world.commands) == 4
    world.run(0.6)
    assert {command.node for command in world.commands[4:]} == {"node0", "node2", "node3", "node4"}
    assert len({command.id for command in world.commands}) == 8
    assert len(world.orders) == 1
    world.obeys = True
    world.run(3.0)
    assert steps_on(world)


def test_a_group_that_does_not_form_is_given_up(world):
    """After twenty seconds; that is said, and nothing more is done about it."""
    world.obeys = False
    world.lose(1)
    world.run(22.0)
    assert world.guards() == ["not-formed"]
    assert world.refusals[0].evidence["generation"] == 1
    before = len(world.commands)
    world.obeys = True
    world.run(60.0)
    assert len(world.commands) == before


def test_what_a_node_refuses_is_said(world):
    """And asked again."""
    world.answer, world.obeys = "failed", False
    world.lose(1)
    assert {*world.guards()} == {"agent"}
    world.run(3.0)
    assert len(world.commands) == 8


# -- spares -----------------------------------------------------------------------------------------------------------


def test_without_a_spare_it_is_said_and_done_when_there_is_one():
    """At once when its node tells of it."""
    world = prepared(ReplacementWorld, spares=())
    world.lose(1)
    assert world.guards() == ["no-spare"]
    world.run(5.0)
    world.add((), (5,))
    world.tell("node5")
    world.run(0.1)
    assert takers(world.orders[0]) == {1: "node5"}
    assert world.guards() == ["no-spare"]
    assert steps_on(world)


@pytest.mark.parametrize("trouble", ["drained", "hardware", "nic", "silent", "stopped", "clock"])
def test_a_spare_that_is_in_trouble_itself_is_passed_over(world, trouble):
    """And it is said why."""
    if trouble == "drained":
        world.drain(4)
    elif trouble == "hardware":
        world.hardware(4, "degraded")
    elif trouble == "nic":
        world.flap("node4.rail0", "down")
    elif trouble == "silent":
        world.cut.add("node4")
        world.run(3.0)
    elif trouble == "stopped":
        world.spare("node4").alive = "stopped"
        world.tell("node4")
    else:
        world.unsynchronised.add("node4")
        world.run(1.0)
    world.lose(1)
    assert takers(world.orders[0]) == {1: "node5"}
    commands = [command for command in world.commands if command.verb == "replace-rank"]
    assert commands[0].evidence["passed_over"].startswith("node4: ")


def test_a_spare_on_a_node_that_was_to_blame_lately_is_the_last_resort():
    """For an hour; where there is no other, it is taken."""
    world = prepared(ReplacementWorld, ranks=(0, 1, 4, 3))
    world.lose(2)
    assert takers(world.orders[0]) == {2: "node5"}, "node4 was to blame"
    world.run(3.0)
    world.lose(1, number=2)
    assert takers(world.orders[1]) == {1: "node4"}, "there is no other"


def test_the_spare_on_the_least_busy_node_is_taken():
    """Of those that are alike otherwise."""
    world = prepared(ReplacementWorld, ranks=(0, 1, 2, 3, 4), spares=(4, 5))
    world.lose(1)
    assert takers(world.orders[0]) == {1: "node5"}


def test_the_clock_of_a_rank_that_stays_must_tell_deadlines(world):
    """A part of a group cannot form one: nobody is told anything."""
    world.unsynchronised.add("node2")
    world.run(1.0)
    world.lose(1)
    assert (world.orders, world.guards()) == ([], ["stale-clock"])
    world.unsynchronised.clear()
    world.run(1.5)
    assert len(world.orders) == 1


# -- at a step's end --------------------------------------------------------------------------------------------------


def test_the_ranks_of_a_drained_node_go_elsewhere_at_the_end_of_a_step():
    """All of them by one order, a second ahead. Then nothing more is to be done."""
    world = prepared(ReplacementWorld, ranks=(0, 0, 1, 2))
    step = world.rank(0).step
    commands = world.drain(0)
    (order,) = world.orders
    assert (takers(order), order.cause) == ({0: "node4", 1: "node5"}, "drain")
    assert step + 10 < order.at_step <= step + 30
    fault = f"drain/node0-{world.now_ns}"
    assert {(command.cause, command.fault) for command in commands} == {(fault, fault)}
    assert all(command.deadline_ns - command.issued_ns > 3 * SECOND for command in commands)
    assert {command.node for command in commands} == {"node0", "node1", "node2", "node4", "node5"}
    world.run(5.0)
    assert world.rank(0).node == "node4"
    assert steps_on(world)
    assert world.run(30.0) == []
    assert world.guards() == []


def test_a_drained_node_is_left_when_there_is_a_spare():
    """It is said until then; and whoever takes the wish back stops it."""
    world = prepared(ReplacementWorld, spares=())
    world.drain(1)
    world.run(2.0)
    assert (world.orders, world.guards()) == ([], ["no-spare"])
    world.drain(1, over=True)
    world.add((), (4,))
    world.run(3.0)
    assert world.orders == []
    world.drain(1)
    assert takers(world.orders[0]) == {1: "node4"}


def test_a_drained_node_that_a_rank_comes_to_is_left():
    """The wish stands, also for what begins later."""
    world = prepared(ReplacementWorld)
    world.drain(3)
    world.run(5.0)
    assert takers(world.orders[0]) == {3: "node4"}
    world.add((0, 3), (2,), job="second")
    world.run(10.0)
    assert [(order.job, takers(order)) for order in world.orders[1:]] == [("second", {1: "node2"})]


@pytest.mark.parametrize(("state", "is_planned"), [("failed", False), ("degraded", True)])
def test_a_node_whose_hardware_has_a_fault_is_left(world, state, is_planned):
    """At once, or at the end of a step."""
    world.hardware(1, state)
    (order,) = world.orders
    assert (takers(order), order.cause, order.at_step > 0) == ({1: "node4"}, "hardware", is_planned)
    assert order.meet == "node0:29500"
    assert steps_on(world)
    assert world.run(10.0) == []


@pytest.mark.parametrize("told", [(), (31,)])
@pytest.mark.parametrize("state", ["failed", "degraded"])
def test_a_node_that_knows_of_no_such_error_is_not_left(world, told, state):
    """A detector that is wrong moves no rank. That is said once of each rank, and no such node gets a rank either."""
    world.hardware(1, state, told=told)
    world.hardware(4, state, told=told)
    assert world.run(2.5) == []
    world.run(10.0)
    assert (world.orders, world.guards()) == ([], ["not-confirmed"])
    refusal = world.refusals[0]
    assert (refusal.evidence["own"], refusal.evidence["xid"]) == (" ".join(map(str, told)) or "no error", 79)
    world.lose(2)
    assert takers(world.orders[0]) == {2: "node5"}


@pytest.mark.parametrize("late_s", [0.5, 5.0])
def test_a_node_that_tells_of_the_error_later_is_left_then(world, late_s):
    """The words of node and detector come by different ways, and may overtake each other."""
    world.hardware(1, told=())
    world.run(late_s)
    assert world.orders == []
    world.xids["node1"] = (31, 79)
    world.tell("node1")
    world.run(0.3)
    assert takers(world.orders[0]) == {1: "node4"}
    world.xids.clear()  # its agent starts anew, and knows of no error
    world.lose(2, number=2)
    assert world.orders[1].cause == "dead"
    assert takers(world.orders[1])[2] == "node5"


def test_a_node_that_has_started_anew_is_left_alone(world):
    """Its fault is over."""
    world.hardware(4, "failed")
    world.hardware(4, "restarted")
    world.lose(1)
    assert takers(world.orders[0]) == {1: "node4"}


def straggler(world, state="compute"):
    """The detector says that a rank is slow."""
    return world.see(msgspec.structs.replace(world.hang_event(1, state), kind="straggler"))


def test_a_slow_rank_stays_unless_the_settings_say_otherwise(world):
    """Nor is that said: nobody has asked for it."""
    straggler(world)
    world.run(3.0)
    assert (world.orders, world.guards()) == ([], [])


@pytest.mark.parametrize(
    ("state", "orders"), [("compute", 1), ("data", 1), ("processor", 1), ("halted", 1), ("network", 0)]
)
def test_a_slow_rank_is_replaced_where_that_is_wanted(state, orders):
    """At the end of a step; not one whose network is slow, which is no fault of its process."""
    world = prepared(ReplacementWorld, replace_stragglers="act")
    straggler(world, state)
    assert len(world.orders) == orders
    if orders:
        assert (world.orders[0].cause, world.orders[0].at_step > 0) == (state, True)
        assert steps_on(world)
        assert world.run(10.0) == []


def test_a_rank_that_dies_before_the_step_of_a_plan_goes_at_once(world):
    """Both are replaced by the later order."""
    world.drain(3)
    world.lose(1, number=2)
    first, second = world.orders
    assert (takers(first), first.at_step > 0) == ({3: "node4"}, True)
    assert (takers(second), second.at_step, second.generation) == ({1: "node5", 3: "node4"}, 0, 2)
    assert steps_on(world)


# -- limits -----------------------------------------------------------------------------------------------------------


def test_a_job_that_makes_no_step_is_replaced_three_times():
    """Its program is at fault then. A step makes it a job again."""
    world = prepared(ReplacementWorld, nodes=10, spares=(4, 5, 6, 7, 8, 9))
    world.crashing = True
    world.lose(0)
    for number in range(2, 8):
        world.run(0.4)
        world.hang(0, number=number)
        world.run(1.0)
    assert len(world.orders) == 3
    assert {*world.guards()} == {"no-progress"}
    assert world.refusals[0].evidence["replacements"] == 3
    world.crashing = False
    mate = world.rank(1)
    mate.step += 1
    mate.heard_ns = world.now_ns
    world.tell(mate.node)
    world.run(1.5)
    assert len(world.orders) == 4
    assert steps_on(world)


def test_more_ranks_than_may_be_at_once_are_left_alone():
    """That is no failure of nodes."""
    world = prepared(ReplacementWorld, ranks=(0, 0, 1, 2), replacements_at_once=1)
    world.drain(0)
    world.run(2.0)
    assert (world.orders, world.guards()) == ([], ["at-once"])
    assert world.refusals[0].evidence["ranks"] == 2


def test_an_hour_has_so_many_replacements():
    """Of all jobs; then the next hour has as many."""
    world = prepared(ReplacementWorld, replacements_per_hour=1)
    world.lose(1)
    world.run(3.0)
    world.drain(2)
    world.run(3.0)
    assert (len(world.orders), world.guards()) == (1, ["per-hour"])


def test_advice_says_what_would_be_done():
    """Once, to every node; nothing is done."""
    world = prepared(ReplacementWorld, replace="advise")
    world.lose(1)
    world.run(30.0)
    assert {command.advice for command in world.commands} == {True}
    assert sorted(command.node for command in world.commands) == ["node0", "node2", "node3", "node4"]
    assert world.guards() == []


def test_what_is_off_is_said_not_to_be_done():
    """Once for each loss."""
    world = prepared(ReplacementWorld, replace="off")
    world.lose(1)
    world.run(5.0)
    assert (world.commands, world.guards()) == ([], ["policy"])


def test_without_a_lease_nothing_is_done(world):
    """It was lost, and nobody else has it."""
    world.core.hold(0, world.now_ns)
    world.lose(1)
    assert (world.orders, world.guards()) == ([], ["lease"])


def test_who_stands_by_is_silent(world):
    """Another holds the lease."""
    world.core.hold(0, world.now_ns, held_by_another=True)
    world.lose(1)
    assert (world.orders, world.guards()) == ([], [])
