"""What is not done, and that it is said: each guard with its refusal event."""

from __future__ import annotations

import pytest

from foliot.settings import read
from foliot_remediator.core.actions.decision_request import DecisionRequest
from foliot_remediator.core.state.routing_table import Cause
from foliot_remediator.settings import RemediatorSettings
from foliot_schemas import Placement, Reroute, Restore

SECOND = 1_000_000_000


def the_refusal(world, guard):
    """The one refusal, which must be of this guard."""
    (refusal,) = world.refusals
    assert (refusal.kind, refusal.state, refusal.policy) == ("refusal", "refused", guard)
    return refusal


def test_policy_off_says_what_it_does_not_do(make_world):
    """No command, and one refusal that names the event, however long the fault lasts."""
    world = make_world(reroute="off")
    assert world.flap("node3.rail0", "down") == []
    world.run(5.0)
    refusal = the_refusal(world, "policy")
    assert (refusal.who, refusal.cause) == ("node3.rail0", "boot/node3.rail0/carrier-1/down")
    assert refusal.fault == "boot/node3.rail0/carrier-1"
    assert refusal.evidence["nodes"] == 4


def test_advice_is_published_once_and_nothing_is_taken_to_have_moved(make_world):
    """Commands go out marked as advice; what is in force stays what it was."""
    world = make_world(reroute="advise")
    commands = world.flap("node3.rail0", "down")
    assert len(commands) == 4
    assert all(command.advice for command in commands)
    assert world.run(5.0) == []
    assert world.paths("node3").away == ()


def test_restores_have_a_policy_of_their_own(make_world):
    """With `restore` off, traffic stays away, and that is said."""
    world = make_world(restore="off")
    world.flap("node3.rail0", "down")
    world.run(0.5)
    world.flap("node3.rail0", "up")
    assert world.run(10.0) == []
    assert set(world.guards()) == {"policy"}
    assert {refusal.evidence["verb"] for refusal in world.refusals} == {"restore"}


def test_both_rails_lost_leaves_nowhere_to_go(world):
    """The second loss of a host with two rails is refused and said, with the numbers; nothing is guessed."""
    world.flap("node3.rail0", "down")
    world.run(1.0)
    assert world.flap("node3.rail1", "down") == []
    refusal = the_refusal(world, "no-alternative")
    assert refusal.who == "node3.rail1"
    # Both service addresses of three peers, both ways: all of them go by rail1 by now.
    assert refusal.evidence["stranded"] == 12
    world.run(5.0)
    assert len(world.refusals) == 1


def test_the_first_rail_to_come_back_is_taken_when_there_is_no_other(world):
    """With all of a host's NICs lost, one on probation that is heard beats a dead one, and no hold is waited for."""
    world.flap("node3.rail0", "down")
    world.run(1.0)
    world.flap("node3.rail1", "down")
    world.run(1.0)
    world.flap("node3.rail0", "up")
    given = world.run(1.0)
    assert {command.node for command in given} == set(world.names)
    assert all(world.core.routing.way(("node0", "node3", rail)).via == "rail0" for rail in world.rails)


def test_an_alternative_that_was_not_heard_is_none(world):
    """A way that is up by all events but silent on the wire for longer than `healthy_within_s` is not chosen."""
    world.mute.add("node3.rail1")
    world.run(2.5)
    assert world.flap("node3.rail0", "down") == []
    assert the_refusal(world, "no-alternative").evidence["stranded"] == 6


def test_a_way_of_which_nobody_can_speak_is_better_than_a_dead_one(world):
    """One peer's probe is away, so nobody hears the ways to it: traffic to it leaves the lost NIC all the same."""
    world.deaf.add("node2")
    world.run(2.5)
    commands = world.flap("node3.rail0", "down")
    assert {command.node for command in commands} == set(world.names)
    assert world.core.routing.way(("node3", "node2", "rail0")).via == "rail1"
    assert world.refusals == []


def test_a_node_without_a_sure_clock_is_not_commanded(world):
    """It could not judge a deadline. The others are commanded; it follows as soon as its clock is sure again."""
    world.unsynchronised.add("node1")
    world.run(0.2)
    commands = world.flap("node3.rail0", "down")
    assert {command.node for command in commands} == {"node0", "node2", "node3"}
    refusal = the_refusal(world, "stale-clock")
    assert (refusal.evidence["node"], refusal.evidence["bound_ns"], refusal.evidence["nodes_refused"]) == (
        "node1",
        -1,
        1,
    )
    world.unsynchronised.clear()
    assert {command.node for command in world.run(1.0)} == {"node1"}


def test_a_node_that_says_nothing_of_its_clock_is_not_commanded(world):
    """A bound of long ago is no bound."""
    world.deaf.add("node1")
    world.run(3.5)
    world.flap("node3.rail0", "down")
    assert "stale-clock" in world.guards()
    assert "node1" not in {command.node for command in world.commands}


def test_an_old_event_waits_for_an_observation_that_confirms_it(world):
    """What happened long ago may be over; when the port is reported to be down still, it is acted upon."""
    event = world.flap_event("node3.rail0", "down")
    world.deaf.add("node3")
    world.run(3.2)
    assert world.see(event) == []
    assert the_refusal(world, "stale-observation").evidence["age_ms"] == 3_200.0
    assert world.run(0.6) == []
    world.deaf.clear()
    world.dead_nics.add("node3.rail0")
    world.run(0.2)
    world.port("node3.rail0", good=False)
    assert {command.node for command in world.run(1.0)} == set(world.names)


def test_what_an_observation_confirms_at_once_has_a_deadline_from_now(world):
    """The event waited for the bus to return, and so did its port's word.

    Nodes would refuse a command that was over before it was given.
    """
    event = world.flap_event("node3.rail0", "down")
    world.run(10.0)
    world.dead_nics.add("node3.rail0")
    world.port("node3.rail0", good=False)
    commands = world.see(event)
    assert {command.node for command in commands} == set(world.names)
    assert {command.deadline_ns - command.issued_ns for command in commands} == {2 * SECOND}


def test_what_the_inventory_does_not_know_is_refused(world):
    """NICs and paths that nobody has registered, and names that are none."""
    world.flap("node9.rail0", "down")
    world.path_event("node0.rail0>node9.rail0#0", "silent")
    world.path_event("node0.rail0>node3.rail0#9", "silent")
    world.path_event("nonsense", "silent")
    assert world.guards() == ["unknown"] * 4
    assert not world.commands


def test_an_uncertain_event_is_refused(world):
    """Below the confidence that the settings ask for; at it, it is acted upon."""
    world.flap("node3.rail0", "down", 1, confidence=0.4)
    assert the_refusal(world, "confidence").evidence == {"verb": "reroute", "confidence": 0.4, "least_confidence": 0.5}
    assert len(world.flap("node2.rail0", "down", 1, confidence=0.5)) == 4


def test_no_more_nics_are_away_at_once_than_the_budget_allows(make_world):
    """If everything seems dead, a share of the fleet moves, and the rest is refused, once each, and stays refused."""
    world = make_world(nodes=8)
    for name in world.names:
        world.flap(f"{name}.rail0", "down")
    world.run(1.0)
    assert len(world.core.routing.away) == 4
    refused = [refusal for refusal in world.refusals if refusal.policy == "nics-away"]
    assert len(refused) == 4
    assert refused[0].evidence == {"verb": "reroute", "nics_away": 5, "nics_allowed": 4, "nics": 16}


def test_one_nic_may_always_be_away(make_world):
    """A share of a small fleet that is less than one NIC is one."""
    world = make_world(nodes=2, nics_away_share=0.01)
    assert len(world.flap("node1.rail0", "down")) == 2


def test_no_more_moves_in_a_minute_than_the_budget_allows(make_world):
    """Of a plan beyond it as much as it allows, the lost NIC's own node first.

    The rest moves when the minute is over, and that is said once.
    """
    world = make_world(nodes=8, moves_per_minute=10)
    assert len(world.flap("node3.rail0", "down")) == 8
    first, second = world.flap("node4.rail0", "down")
    assert (first.node, first.away) == ("node4", ("rail0",))
    refusal = the_refusal(world, "moves-per-minute")
    assert refusal.evidence == {
        "verb": "reroute", "moves": 7, "moved_last_minute": 8, "moves_per_minute": 10, "moves_now": 2,
    }  # fmt: skip
    assert world.let_pass(59.0) == []
    assert {command.node for command in world.run(2.0)} == set(world.names) - {"node3", "node4", second.node}
    assert len(world.refusals) == 1


def test_one_lost_nic_is_moved_however_much_it_carries(make_world):
    """Its port says that it is dead. A second one in the same minute has to wait, and each comes in the end."""
    world = make_world(nodes=8, moves_per_minute=5)
    assert {command.node for command in world.flap("node3.rail0", "down")} == set(world.names)
    assert world.refusals == []
    assert world.flap("node4.rail0", "down") == []
    assert the_refusal(world, "moves-per-minute").evidence["moves_now"] == 0
    assert world.let_pass(59.0) == []
    world.run(2.0)
    assert sorted(world.core.routing.away) == [("node3", "rail0"), ("node4", "rail0")]
    assert len(world.commands) == 15  # of eight and eight, that between the two is away already


def test_what_a_lost_nic_carries_by_single_placements_is_moved_too(make_world):
    """Where no backups are armed, its own node's part alone is larger than the budget."""
    world = make_world(nodes=8, moves_per_minute=5)
    world.core.routing.backups.clear()
    (own,) = [command for command in world.flap("node3.rail0", "down") if command.node == "node3"]
    assert len(own.placements) == 7
    assert world.refusals == []


def test_a_plan_is_cut_where_the_budget_ends(make_world):
    """Also within what one node is told."""
    world = make_world(nodes=8, moves_per_minute=10)
    world.flap("node3.rail0", "down")
    world.core.routing.backups.clear()
    (own,) = world.flap("node4.rail0", "down")
    assert (own.node, len(own.placements)) == ("node4", 2)


def test_moves_of_paths_take_nothing_from_a_lost_nic(make_world):
    """A storm of silences has used up the budget, and says so; a NIC that loses its carrier then is moved at once."""
    world = make_world(nodes=8, moves_per_minute=20)
    silent = [
        f"node{node}.{rail}>node{peer}.{rail}#0" for node in range(3) for peer in range(3, 8) for rail in world.rails
    ]
    for path in silent:
        world.silent.add(path)
        world.path_event(path, "silent")
    assert len(world.commands) == 20
    assert set(world.guards()) == {"moves-per-minute"}
    world.decisions.clear()
    assert {command.node for command in world.flap("node7.rail1", "down")} == set(world.names)
    assert world.refusals == []


def test_what_comes_home_leaves_half_of_the_budget(make_world):
    """Nothing is dead by waiting: a path that falls silent meanwhile is left at once.

    The rest comes home as the minutes pass, and is said to wait once.
    """
    world = make_world(nodes=8, moves_per_minute=10)
    world.flap("node3.rail0", "down")
    world.let_pass(61.0)
    world.flap("node3.rail0", "up")
    commands = world.run(6.0)
    assert ({command.verb for command in commands}, len(commands)) == ({"restore"}, 5)
    assert commands[0].back == ("rail0",)
    assert [refusal.evidence["moves_now"] for refusal in world.refusals] == [5]
    world.silent.add("node0.rail1>node1.rail1#0")
    assert len(world.path_event("node0.rail1>node1.rail1#0", "silent")) == 1
    world.let_pass(120.0)
    assert [*world.core.routing.away, *(each for each in world.core.routing.moved if each.rail == "rail0")] == []
    assert len(world.refusals) == 1


def test_what_is_to_stay_elsewhere_is_told_before_a_rail_is_used_again(world):
    """A node takes its rail back with all exceptions, or not yet."""
    reroute, restore = world.core.remedies["losses"].kinds
    elsewhere = tuple(Placement(peer=f"node{each}", rail="rail0", via="rail1", entropy=0) for each in range(3))
    order = Restore(back=("rail0",), placements=elsewhere)
    assert restore.within(order, 3) == Restore(placements=elsewhere)
    assert restore.within(order, 4) == order
    order = Reroute(away=("rail0", "rail1"), placements=elsewhere)
    assert reroute.within(order, 3) == Reroute(away=order.away, placements=elsewhere[:1])


def test_what_nobody_has_permitted_is_not_done(world):
    """A kind of command without a policy of its own has that of no other."""
    orders = {"node0": Reroute(away=("rail0",))}
    request = DecisionRequest("repaint", "node0.rail0", Cause("event", "fault"), world.now_ns, world.now_ns)
    (decision,), again = world.core.decider.decide(request, orders)
    assert (decision.commands, [refusal.policy for refusal in decision.refusals], again) == ((), ["policy"], False)


def test_no_more_nodes_are_commanded_at_once_than_the_budget_allows(make_world):
    """Nodes that have not answered count; when they have, the next ones are commanded."""
    world = make_world(nodes=8, nodes_at_once=8)
    world.answer = None
    sent = world.flap("node3.rail0", "down")
    assert len(sent) == 8
    world.silent.add("node0.rail1>node1.rail1#0")
    assert len(world.path_event("node0.rail1>node1.rail1#0", "silent")) == 1
    tight = make_world(nodes=8, nodes_at_once=7)
    assert len(tight.flap("node3.rail0", "down")) == 7
    assert the_refusal(tight, "nodes-at-once").evidence == {
        "verb": "reroute", "nodes": 8, "nodes_at_once": 7, "nodes_now": 7,
    }  # fmt: skip
    assert len(tight.run(1.0)) == 1


def test_who_stands_by_is_silent(make_world):
    """Without the lease nothing is issued, neither commands nor refusals nor paths."""
    world = make_world(lease=0)
    world.flap("node3.rail0", "down")
    world.flap("node9.rail0", "down")
    world.run(10.0)
    assert not world.decisions
    assert not world.supplies


def test_who_lost_the_lease_says_that_it_does_nothing(world):
    """As long as nobody else is known to hold it; with the lease again, it acts."""
    world.core.hold(0, world.now_ns)
    assert world.flap("node3.rail0", "down") == []
    assert the_refusal(world, "lease").evidence == {"verb": "reroute", "held": 7}
    world.core.hold(9, world.now_ns)
    commands = world.run(1.0)
    assert {command.node for command in commands} == set(world.names)
    assert {command.lease_revision for command in commands} == {9}


@pytest.mark.parametrize("status", ["refused", "failed"])
def test_a_node_that_does_not_do_it_is_asked_once_more_and_then_less_and_less_often(world, status):
    """At once, then after a second, and after twice as long each time, up to half a minute; why is said."""
    world.answer = None
    commands = world.flap("node3.rail0", "down")
    for command in commands:
        mine = command.node == "node1"
        world.see(world.outcome(command, status if mine else "done", reason="because" if mine else ""))
    (again,) = world.run(0.2)
    assert (again.node, again.placements) == (
        "node1",
        commands[1 + ["node0", "node1", "node2"].index("node1")].placements,
    )
    assert again.id == f"{again.cause}/reroute/node1/7/2"
    for rest_s in (1, 2, 4, 8, 16, 30, 30):
        world.see(world.outcome(again, status, reason="because"))
        assert world.run(rest_s - 0.2) == []
        (again,) = world.run(1.4)  # lost traffic is looked after every second
        assert again.node == "node1"
    world.see(world.outcome(again, status, reason="because"))
    refusal = the_refusal(world, "agent")
    assert (refusal.who, refusal.evidence["reason"], refusal.evidence["failures"]) == ("node1", "because", 1)
    assert world.core.routing.way(("node1", "node3", "rail0")).via == "rail0"


def test_a_node_that_cannot_leave_by_one_rule_leaves_address_by_address(world):
    """Where its agent has no backups armed, the second attempt names each placement."""
    world.answer = None
    commands = world.flap("node3.rail0", "down")
    for command in commands:
        world.see(world.outcome(command, "refused" if command.node == "node3" else "done"))
    (again,) = world.run(0.2)
    assert (again.node, again.away) == ("node3", ())
    assert {(way.peer, way.rail, way.via) for way in again.placements} == {
        (peer, "rail0", "rail1") for peer in ("node0", "node1", "node2")
    }


def test_a_node_that_does_not_answer_is_asked_again_and_still_brought_home(world):
    """It may have done it: the same is asked once more, and when the NIC is back, it is told so too."""
    world.answer = None
    for command in world.flap("node3.rail0", "down"):
        if command.node != "node1":
            world.see(world.outcome(command, "done"))
    (again,) = world.run(5.5)
    assert (again.node, again.verb) == ("node1", "reroute")
    assert the_refusal(world, "agent").evidence["reason"] == "no answer"
    world.answer = "done"
    world.run(6.0)
    world.flap("node3.rail0", "up")
    assert {command.node for command in world.run(6.0)} == set(world.names)


@pytest.mark.parametrize(
    ("key", "value"), [("review_s", 0), ("nics_away_share", 1.5), ("longest_probation_s", 1.0), ("nics_away", -1)]
)
def test_settings_that_make_no_sense_are_refused(key, value):
    """A wrong number names its key."""
    with pytest.raises(ValueError, match=key):
        RemediatorSettings(**{key: value})


def test_keys_of_an_earlier_version_change_nothing():
    """They became constants, and none of them is a key again."""
    document = {"remediator": dict.fromkeys(RemediatorSettings.removed, 1)}
    assert read(RemediatorSettings, "remediator", document, {}, source="test.toml") == RemediatorSettings()
    assert not RemediatorSettings.removed & {*RemediatorSettings.__struct_fields__}
