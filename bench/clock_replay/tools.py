"""A tool's words after a window, and the tools that Foliot is held against on the same stamps."""

from __future__ import annotations

import bisect
from collections import deque
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from bench.clock_replay.recording import Window

    Floats = NDArray[np.float64]


class Said(NamedTuple):
    """A tool's claim about the offset, b's clock less a's, until it speaks again."""

    claim: Callable[[int], tuple[float, float | None] | None]
    """The offset at a time by a's clock, with a bound where there is one; None: nothing that anybody may believe."""


class MinimumFilter:
    """Half the difference of the least delays of both directions in a window, which counts until the next one's.

    It is right for clocks that do not run apart.
    """

    def window(self, window: Window) -> Said:
        """The offset of this window."""
        if not len(window.forth.transmit_ns) or not len(window.back.transmit_ns):
            return Said(lambda _at_ns: None)
        # Halves of whole numbers, so that the offset of two epochs is not rounded as a float is.
        offset = (int(window.forth.delay_ns.min()) - int(window.back.delay_ns.min())) / 2
        return Said(lambda _at_ns: (offset, None))


_RATED = 8
"""Windows that tell a minimum filter how fast the clocks run apart."""


class GuidedMinimumFilter:
    """A minimum filter for clocks that run apart.

    Within a window it is told how they do, so that it is as good as any. From there, a line through its last windows
    goes on.

    Parameters:
        course: the true offset at times by a's clock.
    """

    def __init__(self, course: Callable[[NDArray[np.int64]], Floats]) -> None:
        self._course = course
        self._found: deque[tuple[int, float]] = deque(maxlen=_RATED)

    def window(self, window: Window) -> Said:
        """The offset of this window, as much beside the truth as the least residuals have it."""
        if not len(window.forth.transmit_ns) or not len(window.back.transmit_ns):
            return Said(lambda _at_ns: None)
        forth = window.forth.delay_ns - self._course(window.forth.transmit_ns)
        back = window.back.delay_ns + self._course(window.back.receive_ns)
        at_ns = (window.since_ns + window.until_ns) // 2
        offset = float(self._course(np.array([at_ns]))[0] + (forth.min() - back.min()) / 2)
        self._found.append((at_ns, offset))
        rate = self._rate()
        return Said(lambda later_ns: (offset + rate * (later_ns - at_ns), None))

    def _rate(self) -> float:
        """The gain of the offset in a nanosecond."""
        at_ns, offset = (np.array(each) for each in zip(*self._found, strict=True))
        run_ns = at_ns - at_ns.mean()
        return float((run_ns * (offset - offset[0])).sum() / max((run_ns**2).sum(), 1.0))


_FILTERED = 16
"""`filter 16`: exchanges of which one sample is made."""
_QUANTILE = 0.1
"""`maxdelayquant 0.1`: of the round trips seen lately, only this share counts."""
_REMEMBERED = 1_000
"""Round trips that the quantile is of. chrony follows it by steps, over about as many."""
_MOST_SAMPLES, _LEAST_SAMPLES = 64, 6
"""`maxsamples`, as it is by default, and the fewest that chrony fits a line to and tests."""
_RUNS_SIGMAS = 1.64
"""Fewer changes of sign than by chance (5 %): the line does not fit, and the oldest samples go, as in chrony's
regress.c."""


class ChronyModel:
    """A model of chrony's client in its best known configuration (`xleave filter 16 maxdelayquant 0.1`), not chrony.

    An exchange is a probe and the next one back. Of those whose round trip is among the least tenth, the median of each
    sixteen is a sample. A line through up to 64 samples, weighed by their round trips, is the offset. The oldest
    samples go until the residuals' signs change as often as by chance.

    Parameters:
        origin_ns: any time near the first one, by a's clock.
        course: the true offset at times by a's clock, for clocks that run apart. chrony steers its own, so that no
            drift passes for a round trip. Here the course takes its place, within each exchange alone.
    """

    def __init__(self, origin_ns: int, course: Callable[[NDArray[np.int64]], Floats] | None = None) -> None:
        self._origin_ns = origin_ns
        self._course = course
        self._base: int | None = None
        self._trips = _LastValues(_REMEMBERED)
        self._waiting: list[tuple[float, float, float]] = []
        self._samples: deque[tuple[float, float, float]] = deque(maxlen=_MOST_SAMPLES)

    def window(self, window: Window) -> Said:
        """The line after this window's exchanges."""
        self._take(window)
        if len(self._samples) < _LEAST_SAMPLES or self._base is None:
            return Said(lambda _at_ns: None)
        base, origin_ns = self._base, self._origin_ns
        middle_s, offset, slope = self._line()
        return Said(lambda at_ns: (base + offset + slope * ((at_ns - origin_ns) / 1e9 - middle_s), None))

    def _take(self, window: Window) -> None:
        forth, back = window.forth, window.back
        if not len(forth.transmit_ns) or not len(back.transmit_ns):
            return
        place = np.searchsorted(back.transmit_ns, forth.receive_ns)
        there = place < len(back.transmit_ns)
        # Of several probes answered by one, the last.
        there &= np.append(place[1:] != place[:-1], True)
        ahead, behind = forth.delay_ns[there], back.delay_ns[place[there]]
        left_ns, heard_ns = forth.transmit_ns[there], back.receive_ns[place[there]]
        trips: NDArray[np.float64] = (ahead + behind).astype(np.float64)
        if self._course is not None:
            trips += self._course(heard_ns) - self._course(left_ns)
        if self._base is None:
            self._base = int(ahead.min())
        offset = ((ahead - self._base) - (behind + self._base)) / 2
        # An offset of two clocks that run apart is of the middle of its exchange.
        at_s = ((left_ns - self._origin_ns) + (heard_ns - self._origin_ns)) / 2e9
        for at, wrong, trip in zip(at_s.tolist(), offset.tolist(), trips.tolist(), strict=True):
            self._trips.add(trip)
            if trip > self._trips.quantile(_QUANTILE):
                continue
            self._waiting.append((at, wrong, trip))
            if len(self._waiting) == _FILTERED:
                self._samples.append(tuple(np.median(self._waiting, axis=0).tolist()))
                self._waiting.clear()

    def _line(self) -> tuple[float, float, float]:
        """Its middle in s, the offset there less the base, and its slope in ns a second."""
        samples = np.array(self._samples)
        while True:
            at_s, offset, trip = samples.T
            spread = max(float(np.std(offset)), 1.0)
            weight = (1 + (trip - trip.min()) / spread) ** -2.0
            middle_s = float(np.average(at_s, weights=weight))
            mean = float(np.average(offset, weights=weight))
            run_s = at_s - middle_s
            slope = float((weight * run_s * (offset - mean)).sum() / max((weight * run_s**2).sum(), 1e-12))
            if len(samples) <= _LEAST_SAMPLES or _runs_well(offset - mean - slope * run_s):
                return middle_s, mean, slope
            samples = samples[max(1, len(samples) // 8) :]


def _runs_well(residuals: Floats) -> bool:
    """Whether signs change as often as they do by chance (the runs test)."""
    signs = residuals > 0
    changes, count = int((signs[1:] != signs[:-1]).sum()), len(residuals) - 1
    return bool(changes >= count / 2 - _RUNS_SIGMAS * (count**0.5) / 2)


class _LastValues:
    """The last values, so many at most, in order: `numpy.quantile` of them took longer than all else."""

    def __init__(self, most: int) -> None:
        self._values: deque[float] = deque()
        self._ordered: list[float] = []
        self._most = most

    def add(self, value: float) -> None:
        """Takes the next; the oldest is forgotten where there are too many."""
        if len(self._values) == self._most:
            del self._ordered[bisect.bisect_left(self._ordered, self._values.popleft())]
        self._values.append(value)
        bisect.insort(self._ordered, value)

    def quantile(self, share: float) -> float:
        """What `numpy.quantile` says, to the last digit."""
        ordered, place = self._ordered, share * (len(self._ordered) - 1)
        below = int(place)
        first, second, part = ordered[below], ordered[min(below + 1, len(ordered) - 1)], place - below
        return second - (second - first) * (1 - part) if part >= 0.5 else first + (second - first) * part
