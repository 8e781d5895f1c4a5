"""The table of states, pair by pair, and what a track remembers on its way."""

from __future__ import annotations

import pytest

from foliot_remediator.core.state.hold_down import HoldDown
from foliot_remediator.core.state.state_machine import TABLE, Effect, Input, State, Track

SECOND = 1_000_000_000
HOLD = HoldDown(first_ns=5 * SECOND, longest_ns=60 * SECOND, forget_ns=1_000 * SECOND)

UP, SUSPECT, DOWN, PROBATION = State.UP, State.SUSPECT, State.DOWN, State.PROBATION

EXPECTED = {
    #                     UP             SUSPECT     DOWN          PROBATION
    Input.CARRIER_LOST: ("DOWN strike", "DOWN strike", "DOWN", "DOWN strike"),
    Input.DAMPED_LOSS: ("DOWN strike", "DOWN strike", "DOWN", "DOWN"),
    Input.CARRIER_BACK: ("UP", "SUSPECT", "PROBATION hold", "PROBATION"),
    Input.ADMIN_DOWN: ("DOWN", "DOWN", "DOWN", "DOWN"),
    Input.ADMIN_UP: ("UP", "SUSPECT", "PROBATION hold", "PROBATION"),
    Input.FELL_SILENT: ("SUSPECT", "SUSPECT", "DOWN", "PROBATION hold"),
    Input.SPEAKS_AGAIN: ("UP", "UP", "DOWN", "PROBATION"),
    Input.SILENT: ("DOWN strike", "DOWN strike", "DOWN", "DOWN strike"),
    Input.LOSSY: ("DOWN strike", "DOWN strike", "DOWN", "DOWN strike"),
    Input.SPEAKING: ("UP", "UP", "PROBATION hold", "PROBATION"),
    Input.TIMER: ("UP", "UP", "DOWN", "UP"),
}
PAIRS = [
    (state, given, words)
    for given, answers in EXPECTED.items()
    for state, words in zip((UP, SUSPECT, DOWN, PROBATION), answers, strict=True)
]


def test_every_pair_has_an_answer():
    """Each state answers each input, and the table of this test covers them all."""
    assert set(TABLE) == set(State)
    assert all(set(answers) == set(Input) for answers in TABLE.values())
    assert len(PAIRS) == len(State) * len(Input)


@pytest.mark.parametrize(("state", "given", "words"), PAIRS, ids=[f"{s}-{g}" for s, g, _ in PAIRS])
def test_a_transition(state, given, words):
    """A state and an input give the next state, and count a loss or begin a hold where the table says so."""
    name, _, effect = words.partition(" ")
    track = Track(state=state, since_ns=3, strikes=1, due_ns=7)
    before = track.feed(given, 100 * SECOND, HOLD)
    assert before is state
    assert track.state is State[name]
    assert track.strikes == (2 if effect == Effect.STRIKE else 1)
    assert track.due_ns == (105 * SECOND if effect == Effect.HOLD else 7)
    assert track.since_ns == (3 if track.state is state else 100 * SECOND)


def test_holds_double_up_to_the_longest_and_never_end():
    """Each loss doubles the next probation, and however many there were, another attempt follows."""
    track, holds = Track(), []
    for attempt in range(100):
        now_ns = attempt * SECOND
        track.feed(Input.CARRIER_LOST, now_ns, HOLD)
        track.feed(Input.CARRIER_BACK, now_ns, HOLD)
        assert track.state is PROBATION
        holds.append((track.due_ns - now_ns) // SECOND)
    assert holds[:5] == [5, 10, 20, 40, 60]
    assert holds[-1] == 60


@pytest.mark.parametrize("loss", [(Input.SILENT,), (Input.FELL_SILENT, Input.SILENT)])
def test_a_long_good_time_forgets(loss):
    """After being good for long, the next probation is as short as the first; after being good for less, it is not.

    Suspicion on the way changes nothing.
    """
    for good_s, hold_s in ((999, 10), (1_000, 5)):
        track = Track()
        for given in (Input.SILENT, Input.SPEAKING, Input.TIMER):
            track.feed(given, 0, HOLD)
        now_ns = good_s * SECOND
        for given in loss:
            track.feed(given, now_ns, HOLD)
        track.feed(Input.SPEAKING, now_ns, HOLD)
        assert track.due_ns - now_ns == hold_s * SECOND


def test_an_administrators_down_costs_no_strike():
    """What an administrator does never makes a probation longer."""
    track = Track()
    for _ in range(5):
        track.feed(Input.ADMIN_DOWN, 0, HOLD)
        track.feed(Input.ADMIN_UP, 0, HOLD)
        assert track.due_ns == HOLD.first_ns
        track.feed(Input.TIMER, 0, HOLD)
