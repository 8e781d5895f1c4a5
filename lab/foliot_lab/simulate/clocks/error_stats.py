"""Errors of the published clock states against the truth, at any time until the next ones."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from foliot_lab.simulate.clocks.oscillators import SECOND_NS
from foliot_schemas import ClockState

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from foliot_lab.simulate.clocks.oscillators import Oscillators

_AGES = (0.0, 0.25, 0.5, 0.75, 1.0)
"""Ages of the newest state, as shares of a window."""


class Errors(NamedTuple):
    """Errors in ns: one row per moment, one column per clock."""

    said: NDArray[np.float64]
    """Reference time by the clock, less that by the reference."""
    bound: NDArray[np.float64]
    hard: NDArray[np.float64]


def errors(states: Sequence[ClockState], clocks: Oscillators, said_ns: int, window_ns: int) -> Errors:
    """The errors of states published at a true time, over the window that follows."""
    clocks.run_to(said_ns + window_ns + SECOND_NS)
    numbers = np.array([int(state.clock.removeprefix("node")) for state in states])
    reference = [state.clock for state in states].index(states[0].reference)
    moments = [np.full(len(states), said_ns + round(age * window_ns)) for age in _AGES]
    local = [clocks.local_ns(numbers, at_ns).tolist() for at_ns in moments]

    def each(told: Callable[[ClockState, int], float]) -> list[list[float]]:
        return [[told(state, ns) for state, ns in zip(states, row, strict=True)] for row in local]

    shown = np.array(each(ClockState.reference_ns), np.int64)
    return Errors(
        (shown - shown[:, [reference]]).astype(np.float64),
        np.array(each(ClockState.bound_at_ns), np.float64),
        np.array(each(ClockState.hard_bound_at_ns), np.float64),
    )
