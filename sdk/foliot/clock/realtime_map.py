"""Maps CLOCK_REALTIME to CLOCK_MONOTONIC_RAW, which takes the discipline of the former out of stamps."""

from __future__ import annotations

import time
from collections import deque
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

_TRIES = 5
_KEPT = 16
"""Readings kept. Each but the last is at least `_APART_NS` after the one before. So they reach back over the ticks of 40 ms that stamps wait for."""
_APART_NS = 5_000_000
_STEEPEST = 0.15
"""A faster change of the distance is a step. No slew is so fast: chrony's fastest is a twelfth, and the kernel's ticks permit a tenth."""


class Reading(NamedTuple):
    """Both clocks at one moment."""

    raw_ns: int
    realtime_ns: int


class RealtimeMap:
    """Turns stamps of CLOCK_REALTIME into times of CLOCK_MONOTONIC_RAW by readings of both before and after them.

    Between two readings, one clock is taken to run evenly against the other. A change of the rate by d, halfway between two that are T apart,
    makes a stamp there wrong by d T / 4. That is 10 ns for a change of 1 ppm and a tick of 40 ms. A step is not made up for: stamps of the
    tick that it fell in are wrong by it.
    """

    def __init__(self) -> None:
        self._readings: deque[Reading] = deque([self.reading()], _KEPT)

    def realtime_to_raw(self, stamps_ns: NDArray[np.int64]) -> NDArray[np.int64]:
        """Turns stamps that were made before the call."""
        last = self._readings[-1]
        if len(stamps_ns) and int(stamps_ns.max()) > last.realtime_ns:
            self._add(self.reading())
        base = self._readings[0]
        at_ns = [each.realtime_ns - base.realtime_ns for each in self._readings]
        moved_ns = [each.realtime_ns - each.raw_ns - (base.realtime_ns - base.raw_ns) for each in self._readings]
        moved: NDArray[np.int64] = np.rint(np.interp(stamps_ns - base.realtime_ns, at_ns, moved_ns)).astype(np.int64)
        return stamps_ns - (base.realtime_ns - base.raw_ns) - moved

    def reading(self) -> Reading:
        """Reads both clocks: of several tries, the one that took least time counts."""
        best = (1 << 62, 0, 0)
        for _ in range(_TRIES):
            before_ns = time.clock_gettime_ns(time.CLOCK_MONOTONIC_RAW)
            realtime_ns = time.clock_gettime_ns(time.CLOCK_REALTIME)
            after_ns = time.clock_gettime_ns(time.CLOCK_MONOTONIC_RAW)
            best = min(best, (after_ns - before_ns, (before_ns + after_ns) // 2, realtime_ns))
        return Reading(best[1], best[2])

    def _add(self, reading: Reading) -> None:
        last = self._readings[-1]
        raw_ns, realtime_ns = reading.raw_ns - last.raw_ns, reading.realtime_ns - last.realtime_ns
        if abs(realtime_ns - raw_ns) > _STEEPEST * raw_ns:
            self._readings.clear()
        elif len(self._readings) > 1 and last.raw_ns - self._readings[-2].raw_ns < _APART_NS:
            self._readings.pop()
        self._readings.append(reading)
