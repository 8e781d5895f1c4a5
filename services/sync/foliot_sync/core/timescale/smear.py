"""Tells UTC that is smeared, as where all hosts follow a source that hides a leap second so.

UTC runs as steadily as the hosts' clocks do together, which nobody disciplines. A second that is spread over a day is
11.6 ppm.
"""

from __future__ import annotations

import math

_SMEARED_PPB = 3_000.0
"""From its usual rate. Together the clocks of a fleet change by less, also where all of them warm up."""
_NOISE_S = 30.0
"""Over so long rates are averaged: daemons slew system clocks."""
_USUAL_S = 21_600.0
"""The memory of the usual rate."""
_LEARNT_S = 1_800.0
"""A rate is usual that has stayed for so long: after a start, daemons may slew all clocks for minutes."""
_LONGEST_S = 108_000.0
"""Smears last for a day at most. What lasts for longer is as it is, and the usual rate is learnt anew."""


class SmearWatch:
    """Watches UTC's rate from window to window."""

    def __init__(self) -> None:
        self.smeared = False
        self.usual_ppb = 0.0
        """By how much UTC usually runs faster than the clocks of the fleet together."""
        self._rate_ppb = 0.0
        self._known_s = 0.0
        self._smeared_s = 0.0

    def watch(self, rate_ppb: float, span_s: float) -> None:
        """Takes by how much UTC has run faster than the clocks of the fleet together since the last call."""
        if not self._known_s:
            self._rate_ppb = self.usual_ppb = rate_ppb
        self._rate_ppb += (1 - math.exp(-span_s / _NOISE_S)) * (rate_ppb - self._rate_ppb)
        apart_ppb = self._rate_ppb - self.usual_ppb
        strange = abs(apart_ppb) > _SMEARED_PPB
        self.smeared = strange and self._known_s >= _LEARNT_S and self._smeared_s < _LONGEST_S
        if self.smeared:
            self._smeared_s += span_s
            return
        self._smeared_s = 0.0
        self._known_s = 0.0 if strange else self._known_s + span_s
        if not strange:
            self.usual_ppb += max(span_s / self._known_s, 1 - math.exp(-span_s / _USUAL_S)) * apart_ppb
