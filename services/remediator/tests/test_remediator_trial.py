"""Whether a move has brought what was predicted, by what senders say in the seconds after it."""

from __future__ import annotations

import pytest
from remediator_world import SECOND

from foliot_remediator.core.state.flow_reports import FlowHistory, FlowWord
from foliot_remediator.core.state.inventory import Destination
from foliot_remediator.core.steering.rail_flows import Change, Move
from foliot_remediator.core.steering.trial import Trial
from foliot_schemas import Event, Placement

EVENT = Event(id="e", kind="contention", who="10.1.0.0", state="fabric-contention", at_ns=0, since_ns=0)
HALF = SECOND // 2


def destination(number):
    """The traffic of one of the nodes."""
    return Destination(f"node{number}", f"node{number + 4}", "rail0")


def move(number, *, before=50, predicted=100, beside=None, left=(), taken=(), gaining=()):
    """A move of a node's traffic; rates in Mb/s. Those for which it makes room have 50, and are to have 100."""
    way = Placement(peer=f"node{number + 4}", rail="rail0", via="rail0", entropy=1)
    kept = {destination(other): rate * 1e6 for other, rate in (beside or {}).items()}
    return Move(
        destination(number), way, way, before * 1e6, predicted * 1e6, kept, frozenset(left), frozenset(taken),
        tuple(Change(destination(other), 5, 50e6, 100e6) for other in gaining),
    ), None  # fmt: skip


def trial(*moves):
    """These moves, answered at 0."""
    made = Trial(EVENT, "rail0", moves)
    made.answer(made.moves, 0)
    return made


def say(made, number, megabits, from_ns=2 * SECOND, until_ns=5 * SECOND, *, share=1.0, flow=""):
    """A node says each half second what its traffic gets."""
    for begin_ns in range(from_ns, until_ns, HALF):
        word = FlowWord(begin_ns, begin_ns + HALF, megabits * 1e6, share)
        made.take([(flow or f"flow{number}", FlowHistory(destination(number), word))])


@pytest.mark.parametrize(("after", "kept"), [(100, True), (63, True), (62, False), (50, False), (10, False)])
def test_a_quarter_of_the_predicted_gain_must_have_come(after, kept):
    """No more: TCP does not share as evenly as the plan, and going back would take that as well."""
    made = trial(move(0))
    say(made, 0, after)
    assert (made.without_gain() == {}) is kept


def test_what_was_said_too_early_or_too_late_does_not_count():
    """TCP has yet to find its rate, or something else happened since."""
    made = trial(move(0))
    say(made, 0, 10, 0, 2 * SECOND)
    say(made, 0, 100)
    say(made, 0, 10, 5 * SECOND, 20 * SECOND)
    assert made.without_gain() == {}
    assert made.due_ns == 6 * SECOND


def test_a_pause_within_the_time_counts_as_nothing_sent():
    """The flow was not short of time."""
    made = trial(move(0))
    say(made, 0, 100, 2 * SECOND, 3 * SECOND)
    say(made, 0, 100, 4 * SECOND, 5 * SECOND)
    assert round(made._measured[destination(0)].rate_bps / 1e6) == 67


def test_a_word_that_comes_twice_counts_once():
    """A later batch may not have the flow's next word yet."""
    made = trial(move(0))
    for _ in range(2):
        say(made, 0, 60, 2 * SECOND, 3 * SECOND)
    assert made.without_gain()[destination(0)]["after_mbps"] == 60


def test_flows_to_one_destination_are_judged_together():
    """They moved together."""
    made = trial(move(0))
    say(made, 0, 40, flow="one")
    say(made, 0, 60, flow="other")
    assert made.without_gain() == {}


@pytest.mark.parametrize("share", [None, 0.2])
def test_nobody_is_judged_who_is_not_heard_or_wants_no_more(share):
    """A doubt moves nothing, back either."""
    made = trial(move(0))
    if share is not None:
        say(made, 0, 10, share=share)
    assert made.without_gain() == {}


def test_a_flow_that_waits_for_its_job_is_judged_by_what_it_gets_while_it_sends():
    """Its job's slowest flow takes the other way, and has half of what it wants still."""
    made = trial(move(0))
    say(made, 0, 55, share=0.6)
    assert made.without_gain() == {}
    slow = trial(move(0))
    say(slow, 0, 36, share=0.6)
    assert round(slow.without_gain()[destination(0)]["after_mbps"]) == 60


@pytest.mark.parametrize(("came", "kept"), [(50, True), (13, True), (12, False), (1, False)])
def test_what_others_took_who_came_since_is_no_reason_to_go_back(came, kept):
    """What has taken its place stays as well. A trickle explains nothing."""
    made = trial(move(0, left={"a"}, taken={"b"}), move(1, left={"c"}, taken={"a"}))
    say(made, 0, 50)
    say(made, 1, 100)
    assert [*made.without_gain({destination(0): came * 1e6})] == ([] if kept else [destination(0), destination(1)])


def test_what_those_beside_a_move_lost_to_others_is_no_reason_either():
    """They share the link with whoever came."""
    made = trial(move(0, beside={2: 20}))
    say(made, 0, 100)
    say(made, 2, 10)
    assert made.without_gain({destination(0): 10e6}) == {}
    assert [*made.without_gain({destination(0): 1e6})] == [destination(0)]


def test_who_makes_room_must_keep_what_it_has():
    """It was predicted no gain."""
    made = trial(move(0, before=20, predicted=20), move(1))
    say(made, 0, 17)
    say(made, 1, 100)
    assert made.without_gain() == {}
    worse = trial(move(0, before=20, predicted=20), move(1))
    say(worse, 0, 15)
    say(worse, 1, 100)
    assert [*worse.without_gain()] == [destination(0)]


@pytest.mark.parametrize(("after", "kept"), [(17, True), (15, False)])
def test_others_must_keep_what_was_predicted(after, kept):
    """Or the move goes back, though it gained for itself."""
    made = trial(move(0, beside={2: 20}))
    say(made, 0, 100)
    say(made, 2, after)
    failed = made.without_gain()
    assert (failed == {}) is kept
    if not kept:
        assert failed[destination(0)] == {"beside": "node2>node6/rail0", "beside_mbps": 15.0, "kept_mbps": 20.0}


def test_what_has_taken_the_place_of_a_move_that_goes_back_goes_back_with_it():
    """And what took the place of that one; others stay."""
    made = trial(
        move(0, left={"a"}, taken={"b"}), move(1, left={"c"}, taken={"a"}), move(2, left={"d"}, taken={"c"}),
        move(3, left={"a"}, taken={"e"}),
    )  # fmt: skip
    say(made, 0, 50)
    for number in (1, 2, 3):
        say(made, number, 100)
    assert [*made.without_gain()] == [destination(0), destination(1), destination(2)]


def test_it_begins_with_the_last_answer():
    """What is dropped meanwhile needs none."""
    made = Trial(EVENT, "rail0", [move(0), move(1), move(2)])
    made.answer([destination(0)], 1)
    made.answer([destination(1)], SECOND)
    say(made, 0, 10)
    assert (made.is_answered, made.is_settled(9 * SECOND)) == (False, False)
    made.drop(destination(2))
    assert (made.is_answered, made.due_ns) == (True, 7 * SECOND)
    assert (made.is_settled(3 * SECOND - 1), made.is_settled(3 * SECOND)) == (False, True)
    assert made.without_gain() == {}


@pytest.mark.parametrize(("after", "kept"), [((100,), True), ((62,), False), ((62, 80), True), ((55, 62), False)])
def test_a_move_for_others_is_judged_by_their_gain(after, kept):
    """If one of them has gained, it was not for nothing, whatever it costs the one that made room."""
    made = trial(move(0, predicted=50, gaining=range(1, 1 + len(after))))
    say(made, 0, 5)
    for number, megabits in enumerate(after, 1):
        say(made, number, megabits)
    failed = made.without_gain()
    assert (failed == {}) is kept
    if not kept:
        assert failed[destination(0)] == {
            "for": "node1>node5/rail0", "before_mbps": 50.0, "after_mbps": after[0], "predicted_mbps": 100.0,
        }  # fmt: skip


def test_a_move_for_others_of_whom_nothing_is_heard_stays():
    """A doubt moves nothing, back either."""
    made = trial(move(0, gaining=(1, 2)))
    say(made, 0, 5)
    say(made, 1, 5)
    assert made.without_gain() == {}
    assert made.concerns("node6")
