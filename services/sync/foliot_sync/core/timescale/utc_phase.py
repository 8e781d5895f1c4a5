"""The offset of the common time from UTC, and the control that brings it to zero without overshoot."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from foliot_sync.core.arrays import Floats
_MEMORY_S = 30.0
"""Memory of the filter. Nodes' own daemons slew their system clocks, and take about as long."""
_PATIENCE_S = 20.0
"""Time over which the last of a distance is made up for."""
_FORGOTTEN_S = 60.0
"""After so long without UTC the filter begins anew: the next value may be that of other hosts."""
_STEPPED = 5.0
"""A surprise of more than so many usual ones is a step, which says nothing of the rate."""
_SURPRISE_NS = 5_000.0
"""The usual surprise before any is known: system clocks on a network with NTP agree to as much."""


class Agreed(NamedTuple):
    """The value that most agree on."""

    value: float
    error: float


def agree(values: Floats, errors: Floats) -> Agreed | None:
    """The value that more than half agree on within their errors (Marzullo's point), by its weighted median.

    None: there is none.

    A wrong value is outvoted, however small its error is said to be.
    """
    count = len(values)
    ends = np.concatenate((values - errors, values + errors))
    # At the same place, intervals begin before others end.
    order = np.lexsort((np.arange(2 * count) >= count, ends))
    covered = np.where(order < count, 1, -1).cumsum()
    if not count or covered.max() * 2 <= count:
        return None
    first = int(covered.argmax())
    middle = (ends[order[first]] + ends[order[first + 1]]) / 2
    # The values whose intervals have the point that most have in common.
    members = np.abs(values - middle) <= errors
    if not members.any():
        members[order[first] % count] = True
    place = np.flatnonzero(members)[values[members].argsort()]
    weight = (errors[place] ** -2.0).cumsum()
    chosen = place[int((weight >= weight[-1] / 2).argmax())]
    return Agreed(float(values[chosen]), float(errors[chosen]))


class UtcPhase:
    """UTC minus the common time, as a line: where it is now and how fast it changes; a g-h filter that forgets."""

    def __init__(self) -> None:
        self.away_ns = 0.0
        self.rate_ppb = 0.0
        """By how much UTC runs faster than the common time."""
        self._taken = 0
        """0: nothing is known; 1: the offset is; 2: its rate, too."""
        self._missed_s = 0.0
        self._usual_ns = _SURPRISE_NS

    def begin(self, *, rate_is_known: bool) -> None:
        """The common time has just been put to UTC, and made to run as UTC does, if that is known."""
        self.away_ns = self.rate_ppb = 0.0
        self._taken = 2 if rate_is_known else 1

    def go_on(self, away_ns: float | None, rate_ppb: float | None, span_s: float) -> None:
        """Takes a measurement of UTC minus the common time.

        Parameters:
            away_ns: the measured value; None: nothing was measured.
            rate_ppb: how fast that changes, as far as known; it counts at the beginning.
            span_s: since the last call.
        """
        self.away_ns += self.rate_ppb * span_s
        if away_ns is None:
            self._missed_s += span_s
            return
        if self._missed_s > _FORGOTTEN_S:
            self._taken, self._usual_ns = 0, _SURPRISE_NS
        self._missed_s = 0.0
        if self._taken < 2:
            self.away_ns = away_ns
            self.rate_ppb = self.rate_ppb if rate_ppb is None else rate_ppb
            self._taken = 1 if rate_ppb is None else 2
            return
        surprise, fading = away_ns - self.away_ns, math.exp(-span_s / _MEMORY_S)
        most_ns = _STEPPED * self._usual_ns
        self._usual_ns += (1 - fading) * (min(abs(surprise), most_ns) - self._usual_ns)
        if abs(surprise) > most_ns:
            self.away_ns = away_ns
            return
        self.away_ns += (1 - fading**2) * surprise
        self.rate_ppb += (1 - fading) ** 2 * surprise / span_s

    def turned(self, by_ppb: float) -> None:
        """The common time runs faster by so much from now on."""
        self.rate_ppb -= by_ppb

    def wish_ppb(self, slew_ppb: float, steer_ppb_s: float) -> float:
        """The wanted gain of the common time, in ppb: UTC's rate, and towards UTC as fast as it can still brake.

        It relies on half of the allowed braking, so that noise does not make it go past.
        """
        if self._missed_s > 0:
            return self.rate_ppb
        far_ns = abs(self.away_ns)
        towards = min(far_ns / _PATIENCE_S, math.sqrt(steer_ppb_s * far_ns), slew_ppb)
        return self.rate_ppb + math.copysign(towards, self.away_ns)
