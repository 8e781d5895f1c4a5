"""Events, and commands joined with their outcomes."""

from itertools import permutations

import msgspec
import pytest

from foliot_gateway.state import records
from foliot_gateway.state.records import OTHER, Records
from foliot_schemas import Command, Event, Outcome


def event(number, kind="flap"):
    """An event at a time."""
    return Event(id=f"e{number}", kind=kind, who="node3.rail0", state="down", at_ns=number, since_ns=number)


def command(number, node="node0"):
    """A command issued at a time."""
    return Command(
        id=f"c{number}",
        verb="reroute",
        node=node,
        cause="e1",
        issued_ns=number,
        deadline_ns=number + 100,
        lease_revision=1,
    )


def outcome(number, of, status="done", **more):
    """An outcome at a time, of a command."""
    return Outcome(id=f"o{number}", command=of, verb="reroute", node="node0", status=status, started_ns=number, **more)


def test_events_are_newest_first_and_can_be_chosen():
    """By kind, from a time on, and at most so many."""
    kept = Records()
    for number in (3, 1, 2):
        kept.add_event(event(number))
    kept.add_event(event(4, kind="path"))

    assert [each.id for each in kept.events(limit=2)] == ["e4", "e3"]
    assert [each.id for each in kept.events(limit=9, kind="flap")] == ["e3", "e2", "e1"]
    assert [each.id for each in kept.events(limit=9, since_ns=3)] == ["e4", "e3"]


def test_an_event_that_comes_twice_is_counted_once():
    """From the subject and again from the stream."""
    kept = Records()

    assert [kept.add_event(event(1)), kept.add_event(event(1))] == [True, False]
    assert kept.event_counts == {"flap": 1}


def test_the_oldest_events_are_let_go_whatever_came_last(monkeypatch):
    """History is read after new events have come: its older ones must not push those out."""
    monkeypatch.setattr(records, "MOST_RECORDS", 16)
    kept = Records()
    for number in (*range(100, 110), *range(20)):
        kept.add_event(event(number))

    times = [each.at_ns for each in kept.events(limit=100)]
    assert [*range(109, 99, -1)] == times[:10]
    assert len(times) <= 16
    assert kept.event_counts["flap"] == 30


def test_a_command_waits_for_its_outcome():
    """Pending, then what the last outcome says."""
    kept = Records()
    kept.add_command(command(1))
    assert kept.commands(limit=1)[0].status == "pending"

    kept.add_outcome(outcome(2, of="c1"))
    assert kept.commands(limit=1)[0].status == "done"


@pytest.mark.parametrize("order", list(permutations(range(3))))
def test_a_command_and_its_outcomes_join_in_any_order(order):
    """Two subjects, two consumers: an outcome may well be here before its command."""
    kept = Records()
    steps = [
        lambda: kept.add_command(command(1)),
        lambda: kept.add_outcome(outcome(2, of="c1", status="failed")),
        lambda: kept.add_outcome(outcome(3, of="c1")),
    ]
    for index in order:
        assert steps[index]()
    assert not any(step() for step in steps)

    (view,) = kept.commands(limit=9)
    assert (command(1), ["o2", "o3"], "done", 1) == (
        view.command,
        [each.id for each in view.outcomes],
        view.status,
        view.at_ns,
    )
    assert kept.command_counts == {"reroute": 1}
    assert kept.outcome_counts == {("reroute", "done"): 1, ("reroute", "failed"): 1}


def test_verbs_that_are_not_known_are_counted_together():
    """A node that makes up verbs makes no more series; what it said is kept as it is."""
    kept = Records()
    for number in range(3):
        kept.add_outcome(msgspec.structs.replace(outcome(number, of=f"c{number}"), verb=f"verb{number}"))

    assert kept.outcome_counts == {("other", "done"): 3}
    assert [view.verb for view in kept.commands(limit=9)] == ["verb2", "verb1", "verb0"]


def test_an_armed_move_needs_no_command():
    """The node acted by itself; it is listed by when it began, and said to be armed."""
    kept = Records()
    kept.add_outcome(outcome(5, of="boot/node0.rail0/carrier-1", armed=True))

    (view,) = kept.commands(limit=9)
    assert (view.command, view.armed, view.at_ns, view.status) == (None, True, 5, "done")


def test_armed_moves_of_several_nodes_for_one_fault_stay_apart():
    """They share the id of their fault, and each node's move has an outcome of its own."""
    kept = Records()
    for number, node in enumerate(("node0", "node1")):
        move = outcome(number, of="armed/boot/node0.rail0/carrier-1", armed=True, fault="boot/node0.rail0/carrier-1")
        kept.add_outcome(msgspec.structs.replace(move, node=node))

    views = kept.commands(limit=9, fault="boot/node0.rail0/carrier-1")
    assert [(view.node, len(view.outcomes)) for view in views] == [("node1", 1), ("node0", 1)]
    assert [view.node for view in kept.commands(limit=9, node="node0")] == ["node0"]
    assert kept.commands(limit=9, fault="another") == ()


def test_commands_can_be_chosen_by_node():
    """Only those of one node, newest first."""
    kept = Records()
    for number, node in ((1, "node0"), (2, "node1"), (3, "node0")):
        kept.add_command(command(number, node))

    assert [view.id for view in kept.commands(limit=9, node="node0")] == ["c3", "c1"]


def test_old_commands_are_let_go_with_their_outcomes(monkeypatch):
    """The number of commands stays within the limit."""
    monkeypatch.setattr(records, "MOST_RECORDS", 8)
    kept = Records()
    for number in range(50):
        kept.add_command(command(number))
        kept.add_outcome(outcome(number, of=f"c{number}"))

    views = kept.commands(limit=100)
    assert 8 >= len(views) > 0
    assert views[0].id == "c49"


def test_kinds_that_are_not_known_here_are_kept_and_counted_together():
    """So that whoever makes up names makes no more series of counts."""
    kept = Records()
    for number, kind in enumerate(("flap", "quake", "flood")):
        kept.add_event(event(number, kind=kind))

    assert [each.id for each in kept.events(limit=9, kind="quake")] == ["e1"]
    assert kept.event_counts == {"flap": 1, OTHER: 2}
