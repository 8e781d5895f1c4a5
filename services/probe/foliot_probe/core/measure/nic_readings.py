"""Readings of the clock in a NIC, each between two of its host's: they bound how far the two clocks are apart."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable

_KEPT_NS = 2_500_000_000
"""The rate between the clocks is that of the readings of so long: a window's, and some more."""
_LEAST_SPAN_NS = 1_000_000_000
"""Readings within a shorter time tell no rate."""
_MOST_WIDE_NS = 1_000_000
"""A reading that took longer was interrupted. A NIC's register is read in a microsecond, over a bus in some ten."""
_UNKNOWN_RATE = 2e-3
"""How fast the clocks may run apart before readings have told: a NIC's may be tuned by a thousandth and more."""
_TURNS = 20e-6
"""How much the rate may turn between readings. A servo that is locked turns it by less than one millionth at a time."""
_MOST = 64
"""Readings that a window tells of, at most."""


class Reading(NamedTuple):
    """The clock in a NIC was read between two readings of its host's, in local time."""

    before_ns: int
    nic_ns: int
    after_ns: int

    @property
    def width_ns(self) -> int:
        """How long it took."""
        return self.after_ns - self.before_ns

    @property
    def middle_ns(self) -> int:
        """Local time of its middle."""
        return self.before_ns + self.width_ns // 2


class NicReadings:
    """The readings of one NIC's clock."""

    def __init__(self) -> None:
        self._kept: deque[Reading] = deque()
        self._window: list[Reading] = []

    def add(self, tries: Iterable[Reading]) -> bool:
        """Takes a reading that was tried several times in a row: the narrowest says most.

        Returns whether the clock was set since the reading before, or runs at quite another rate.
        """
        sound = [each for each in tries if 0 <= each.width_ns <= _MOST_WIDE_NS]
        if not sound:
            return False
        best = min(sound, key=lambda each: each.width_ns)
        is_set = bool(self._kept) and self._contradicts(best)
        if is_set:
            self.forget()
        self._kept.append(best)
        while best.before_ns - self._kept[0].before_ns > _KEPT_NS and len(self._kept) > 1:
            self._kept.popleft()
        self._window.append(best)
        if len(self._window) > _MOST:
            self._window = [min(pair, key=lambda each: each.width_ns) for pair in _pairs(self._window)]
        return is_set

    def is_old(self, local_ns: int) -> bool:
        """Whether there was a sound reading, and none for longer than a window by now."""
        return bool(self._kept) and local_ns - self._kept[-1].before_ns > _KEPT_NS

    def forget(self) -> None:
        """Forgets all: the clock goes on from somewhere else."""
        self._kept.clear()
        self._window.clear()

    def take(self) -> list[Reading]:
        """The readings since the last call."""
        window, self._window = self._window, []
        return window

    def shift_ns(self, local_ns: int) -> int | None:
        """The NIC's clock minus local time, at a local time close by; None: it was not read."""
        if not self._kept:
            return None
        last, (rate, _) = self._kept[-1], self._rate()
        return last.nic_ns - last.middle_ns + round(rate * (local_ns - last.middle_ns))

    def _rate(self) -> tuple[float, float]:
        """How much the NIC's clock gains on the host's, in ns per ns, and how far that may be off."""
        first, last = self._kept[0], self._kept[-1]
        span_ns = last.middle_ns - first.middle_ns
        if span_ns < _LEAST_SPAN_NS:
            return 0.0, _UNKNOWN_RATE
        return (last.nic_ns - first.nic_ns - span_ns) / span_ns, _TURNS

    def _contradicts(self, reading: Reading) -> bool:
        """Whether no clock that ran on could show this."""
        last, (_, doubt) = self._kept[-1], self._rate()
        expected_ns = self.shift_ns(reading.middle_ns)
        assert expected_ns is not None
        away_ns = abs(reading.nic_ns - reading.middle_ns - expected_ns)
        passed_ns = abs(reading.middle_ns - last.middle_ns)
        return away_ns > (reading.width_ns + last.width_ns) / 2 + doubt * passed_ns + 1


def _pairs(readings: list[Reading]) -> list[list[Reading]]:
    return [readings[first : first + 2] for first in range(0, len(readings), 2)]
