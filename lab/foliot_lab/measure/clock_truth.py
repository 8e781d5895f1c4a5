"""The exact error of every clock: all hosts of the lab share one kernel clock, so the true time is known.

Lab time is CLOCK_MONOTONIC_RAW plus a constant. The constant is CLOCK_REALTIME minus CLOCK_MONOTONIC_RAW when the lab
began. So lab time reads like wall-clock time, and a service that disciplines CLOCK_REALTIME does not bend it.

A host's local time is CLOCK_MONOTONIC_RAW plus its injected skew. Two hosts read the common time at the same moment,
and the difference of their readings is their clocks' error. It is so whatever source the common time follows. So each
clock is judged by the reference that sync's bounds are relative to.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, NamedTuple, Self

import msgspec
import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping

    from foliot_lab.faults.skewed_clock import Skew
    from foliot_schemas import ClockState

SAMPLE_S = 0.1
"""The time between two samples of every clock: ten or more per sync window, so that the error at a window's end
shows."""
_PROMISING = frozenset({"synchronised", "holdover"})
_INVERSIONS = 4
"""Rounds of the fixed-point iteration that inverts a skew. Each shrinks the error by the drift, 3e-5 at the most."""


class LabTime(msgspec.Struct, frozen=True):
    """CLOCK_MONOTONIC_RAW plus a constant, in ns."""

    base_ns: int

    @classmethod
    def starting_now(cls) -> Self:
        """The constant as it is now."""
        return cls(time.clock_gettime_ns(time.CLOCK_REALTIME) - time.clock_gettime_ns(time.CLOCK_MONOTONIC_RAW))

    def of_raw(self, raw_ns: int) -> int:
        """Lab time at a CLOCK_MONOTONIC_RAW."""
        return raw_ns + self.base_ns

    def now_ns(self) -> int:
        """Lab time now."""
        return self.of_raw(time.clock_gettime_ns(time.CLOCK_MONOTONIC_RAW))


class Claim(NamedTuple):
    """A clock's claim of the reference time at one moment, beside the truth."""

    error_ns: int
    within_bound: bool
    within_hard_bound: bool


class Errors(msgspec.Struct, frozen=True, kw_only=True):
    """The absolute errors of all claims, in ns; null where there was no claim."""

    p50: float | None
    p99: float | None
    max: float | None


class ClockSummary(msgspec.Struct, frozen=True, kw_only=True):
    """The errors of the clocks' claims over a run; shares are null where there was no claim."""

    windows: int
    true_error_ns: Errors
    within_hard_bound: float | None
    within_bound: float | None


class Truth:
    """Judges sync's statements about each clock by the lab's knowledge.

    Parameters:
        skews: of every host clock, by the clock's name.
    """

    def __init__(self, skews: Mapping[str, Skew]) -> None:
        self._skews = skews
        self._states: dict[str, ClockState] = {}
        self._windows: set[int] = set()
        self.claims: list[Claim] = []

    def learn(self, state: ClockState) -> None:
        """Takes a state of a clock from sync; a clock that the lab did not make is ignored."""
        if state.clock in self._skews:
            self._states[state.clock] = state
            self._windows.add(state.window)

    def sample(self, raw_ns: int) -> None:
        """Judges every clock's reading at this CLOCK_MONOTONIC_RAW, by the newest state known.

        The reference is left out: its error is zero by definition, and would only flatter the rest.
        """
        for clock in self._skews:
            state = self._states.get(clock)
            if state is not None and state.reference != clock:
                self._judge(clock, state, raw_ns)

    def reference_ns(self, reference: str, raw_ns: int) -> int | None:
        """The common time as this reference clock has it; None before sync has published its state."""
        state = self._states.get(reference)
        return None if state is None else state.reference_ns(self._local_ns(reference, raw_ns))

    def raw_ns(self, reference_ns: int) -> int | None:
        """CLOCK_MONOTONIC_RAW at a reference time; None while there is no reference."""
        reference = next((state.reference for state in self._states.values() if state.reference in self._states), None)
        if reference is None:
            return None
        state = self._states[reference]
        # Floats lose the nanoseconds of large times; integers keep them.
        since_ns = reference_ns - state.as_of_ns - state.offset_ns
        local_ns = state.as_of_ns + since_ns - round(since_ns * state.drift_ppb / (1e9 + state.drift_ppb))
        raw_ns = local_ns
        for _ in range(_INVERSIONS):
            raw_ns = local_ns - self._skews[reference].offset_ns(raw_ns)
        return raw_ns

    def error_ns(self, clock: str, raw_ns: int) -> int | None:
        """The signed error of a clock's present reading; None if it gives none, or its reference is not known."""
        state = self._states.get(clock)
        truth_ns = None if state is None else self.reference_ns(state.reference, raw_ns)
        if state is None or truth_ns is None or not self._claims(state, self._local_ns(clock, raw_ns)):
            return None
        return state.reference_ns(self._local_ns(clock, raw_ns)) - truth_ns

    def summary(self) -> ClockSummary:
        """Over all claims so far."""
        if not self.claims:
            nothing = Errors(p50=None, p99=None, max=None)
            return ClockSummary(
                windows=len(self._windows), true_error_ns=nothing, within_hard_bound=None, within_bound=None
            )
        claims = np.asarray(self.claims, dtype=np.int64)
        errors_ns = np.abs(claims[:, 0])
        middle, high = np.percentile(errors_ns, (50, 99))
        return ClockSummary(
            windows=len(self._windows),
            true_error_ns=Errors(p50=float(middle), p99=float(high), max=float(errors_ns.max())),
            within_hard_bound=float(claims[:, 2].mean()),
            within_bound=float(claims[:, 1].mean()),
        )

    def _judge(self, clock: str, state: ClockState, raw_ns: int) -> None:
        local_ns, error_ns = self._local_ns(clock, raw_ns), self.error_ns(clock, raw_ns)
        if error_ns is not None:
            within = abs(error_ns) <= state.bound_at_ns(local_ns), abs(error_ns) <= state.hard_bound_at_ns(local_ns)
            self.claims.append(Claim(error_ns, *within))

    def _local_ns(self, clock: str, raw_ns: int) -> int:
        return raw_ns + self._skews[clock].offset_ns(raw_ns)

    @staticmethod
    def _claims(state: ClockState, local_ns: int) -> bool:
        return state.status in _PROMISING and local_ns <= state.void_after_ns
