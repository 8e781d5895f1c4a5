"""Maps CLOCK_REALTIME to CLOCK_MONOTONIC_RAW, which takes the discipline of the former out of stamps."""

from __future__ import annotations

import time
from collections import deque
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

_TRIES = 12
"""Of a reading. Caches are cold for the first few."""
_SLOWER = 16
"""A try counts that took longer than the quickest by at most this part of it. The others were disturbed, which makes
their middles wrong."""
_KEPT = 16
"""Readings kept. Each but the last is at least `_APART_NS` after the one before. So they reach back over the ticks of
40 ms that stamps wait for."""
_APART_NS = 5_000_000
_STEEPEST = 0.15
"""A faster change of the distance is a step. No slew is so fast: chrony's fastest is a twelfth, and the kernel's ticks
permit a tenth."""
_WAITING_NS = 500_000_000
"""The longest wait of a stamp in a socket across a step. It is less than a leap second, so that old stamps are not
taken for new ones."""


class CrossTimestamp(NamedTuple):
    """Both clocks at one moment. Linux has the term for its PTP clocks (`system_device_crosststamp`)."""

    raw_ns: int
    realtime_ns: int


class Step(NamedTuple):
    """A step of CLOCK_REALTIME."""

    since_ns: int
    """CLOCK_MONOTONIC_RAW before it."""
    until_ns: int
    """After it."""
    by_ns: int


class RealtimeMap:
    """Turns stamps of CLOCK_REALTIME into times of CLOCK_MONOTONIC_RAW by readings of both before and after them.

    Between two readings, one clock is taken to run evenly against the other. A change of the rate by d, halfway between
    two that are T apart, makes a stamp there wrong by d T / 4. That is 10 ns for a change of 1 ppm and a tick of 40 ms.
    A step by more than the time between two readings, as a leap second is, costs no stamp. Each fits between them
    either as older than the step or as newer. A shorter step makes stamps of its tick wrong by its length.
    """

    def __init__(self) -> None:
        self._readings: deque[CrossTimestamp] = deque([self.reading()], _KEPT)
        self._step: Step | None = None
        """The latest step, as long as older stamps may wait."""

    def realtime_to_raw(self, stamps_ns: NDArray[np.int64]) -> NDArray[np.int64]:
        """Turns stamps that were made before the call."""
        last = self._readings[-1]
        # A clock that was set back makes stamps that lie before those of earlier.
        if len(stamps_ns) and (
            int(stamps_ns.max()) > last.realtime_ns or time.clock_gettime_ns(time.CLOCK_REALTIME) < last.realtime_ns
        ):
            self.add(self.reading())
        return self.mapped(stamps_ns)

    @property
    def stepped(self) -> bool:
        """Whether there was a step, and older stamps may wait."""
        return self._step is not None

    def mapped(self, stamps_ns: NDArray[np.int64]) -> NDArray[np.int64]:
        """Turns stamps that were made before the last reading."""
        raw_ns = self._interpolated(stamps_ns)
        if self._step is None:
            return raw_ns
        last_ns, step = self._readings[-1].raw_ns, self._step
        if last_ns - step.until_ns > _WAITING_NS:
            self._step = None
        then_ns = self._interpolated(stamps_ns + step.by_ns)
        fits = (then_ns > step.since_ns - _WAITING_NS) & (then_ns <= step.until_ns)
        # As stamps of now, these would be of the future, or of before the step.
        return np.where(fits & ((raw_ns > last_ns) | (raw_ns < step.since_ns)), then_ns, raw_ns)

    def _interpolated(self, stamps_ns: NDArray[np.int64]) -> NDArray[np.int64]:
        base = self._readings[0]
        at_ns = [each.realtime_ns - base.realtime_ns for each in self._readings]
        moved_ns = [each.realtime_ns - each.raw_ns - (base.realtime_ns - base.raw_ns) for each in self._readings]
        moved: NDArray[np.int64] = np.rint(np.interp(stamps_ns - base.realtime_ns, at_ns, moved_ns)).astype(np.int64)
        return stamps_ns - (base.realtime_ns - base.raw_ns) - moved

    def reading(self) -> CrossTimestamp:
        """Reads both clocks, in several tries.

        The mean of the quickest counts; half the time that they took bounds its error.
        """
        look, raw, realtime = time.clock_gettime_ns, time.CLOCK_MONOTONIC_RAW, time.CLOCK_REALTIME
        tries = [(look(raw), look(realtime), look(raw)) for _ in range(_TRIES)]
        least_ns = min(after_ns - before_ns for before_ns, _, after_ns in tries)
        quick = [each for each in tries if each[2] - each[0] <= least_ns + least_ns // _SLOWER]
        before_ns, realtime_ns, after_ns = (sum(each) for each in zip(*quick, strict=True))
        return CrossTimestamp((before_ns + after_ns) // (2 * len(quick)), realtime_ns // len(quick))

    def add(self, reading: CrossTimestamp) -> None:
        """Takes a reading of both clocks, later than all before."""
        last = self._readings[-1]
        raw_ns, realtime_ns = reading.raw_ns - last.raw_ns, reading.realtime_ns - last.realtime_ns
        if abs(realtime_ns - raw_ns) > _STEEPEST * raw_ns:
            self._take_out(last, reading)
        elif len(self._readings) > 1 and last.raw_ns - self._readings[-2].raw_ns < _APART_NS:
            self._readings.pop()
        self._readings.append(reading)

    def _take_out(self, last: CrossTimestamp, reading: CrossTimestamp) -> None:
        """Moves what was read before a step by the step, as if there had been none."""
        first = self._readings[0]
        gained_ns, in_ns = last.realtime_ns - first.realtime_ns, last.raw_ns - first.raw_ns
        rate = gained_ns / in_ns - 1 if in_ns else 0.0
        in_ns = reading.raw_ns - last.raw_ns
        by_ns = reading.realtime_ns - last.realtime_ns - in_ns - round(rate * in_ns)
        moved = [each._replace(realtime_ns=each.realtime_ns + by_ns) for each in self._readings]
        self._readings = deque(moved, _KEPT)
        self._step = Step(last.raw_ns, reading.raw_ns, by_ns)
