"""The states of a NIC or path, and the transition on each input: one complete table."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from foliot_remediator.core.state.hold_down import HoldDown


class State(enum.StrEnum):
    """The trust in a NIC or path."""

    UP = "up"
    SUSPECT = "suspect"
    """A receiver says that it fell silent; nobody has judged that yet. Not chosen, not left."""
    DOWN = "down"
    PROBATION = "probation"
    """Said to be good again. Not chosen, unless there is nothing else."""


class Input(enum.StrEnum):
    """The inputs of the state machine of a NIC or path."""

    CARRIER_LOST = "carrier-lost"
    DAMPED_LOSS = "damped-loss"
    """The same while the NIC is damped, which counts its flaps by itself (RFC 2439)."""
    CARRIER_BACK = "carrier-back"
    ADMIN_DOWN = "admin-down"
    ADMIN_UP = "admin-up"
    FELL_SILENT = "fell-silent"
    """A receiver's word, at once."""
    SPEAKS_AGAIN = "speaks-again"
    """The same."""
    SILENT = "silent"
    """The detector's verdict."""
    LOSSY = "lossy"
    SPEAKING = "speaking"
    TIMER = "timer"
    """The hold is over, and it was heard to be good."""


class Effect(enum.StrEnum):
    """The effect of a transition on the hold."""

    NONE = "none"
    STRIKE = "strike"
    """Lost by itself: the next hold is twice as long."""
    HOLD = "hold"
    """The hold begins (anew)."""


class Transition(NamedTuple):
    """The answer to an input."""

    state: State
    effect: Effect = Effect.NONE


_DOWN_BY_ITSELF = Transition(State.DOWN, Effect.STRIKE)
_ON_HOLD = Transition(State.PROBATION, Effect.HOLD)
_LOST = dict.fromkeys((Input.CARRIER_LOST, Input.DAMPED_LOSS, Input.SILENT, Input.LOSSY), _DOWN_BY_ITSELF) | {
    Input.ADMIN_DOWN: Transition(State.DOWN)
}
"""Transitions of a loss, from every state but DOWN."""


def _staying(state: State) -> dict[Input, Transition]:
    """A row of the table in which no input leads out of a state."""
    return dict.fromkeys(Input, Transition(state))


TABLE: dict[State, dict[Input, Transition]] = {
    State.UP: _staying(State.UP) | _LOST | {Input.FELL_SILENT: Transition(State.SUSPECT)},
    State.SUSPECT: _staying(State.SUSPECT)
    | _LOST
    | dict.fromkeys((Input.SPEAKS_AGAIN, Input.SPEAKING, Input.TIMER), Transition(State.UP)),
    # One probe that came through (SPEAKS_AGAIN) is no recovery: the detector says when it is one.
    State.DOWN: _staying(State.DOWN) | dict.fromkeys((Input.CARRIER_BACK, Input.ADMIN_UP, Input.SPEAKING), _ON_HOLD),
    State.PROBATION: _staying(State.PROBATION)
    | _LOST
    | {
        Input.DAMPED_LOSS: Transition(State.DOWN),
        # The detector may not say again that it is silent, so nothing would lead out of DOWN. It has to be good for a
        # whole hold anew.
        Input.FELL_SILENT: _ON_HOLD,
        Input.TIMER: Transition(State.UP),
    },
}


@dataclass(slots=True)
class Track:
    """One NIC or path on its way through the table."""

    state: State = State.UP
    since_ns: int = 0
    """When it came into its state."""
    strikes: int = 0
    """Losses by itself that are not forgotten."""
    due_ns: int = 0
    """In PROBATION: when the hold is over."""

    def feed(self, given: Input, now_ns: int, hold: HoldDown) -> State:
        """Takes an input, and returns the state before it."""
        before, (after, effect) = self.state, TABLE[self.state][given]
        if before is State.UP and after is not State.UP and now_ns - self.since_ns >= hold.forget_ns:
            self.strikes = 0  # also on the way over SUSPECT, by which most losses come
        if effect is Effect.STRIKE:
            self.strikes += 1
        elif effect is Effect.HOLD:
            self.due_ns = now_ns + hold.after(self.strikes)
        if after is not before:
            self.state, self.since_ns = after, now_ns
        return before
