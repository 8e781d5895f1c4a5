"""The clock by which this host's TCP stamps its packets, held against local time.

A route with the feature `tcp_usec_ts` makes the stamps microseconds of CLOCK_MONOTONIC (Linux 6.7, `tcp_clock_us`). To
that, TCP adds a number of its own for each connection, unless `tcp_timestamps` is 2 (`secure_tcp_ts_off`).
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from foliot.clock import HostClock

_SETTING = Path("/proc/sys/net/ipv4/tcp_timestamps")
_BARE = "2"
_TRIES = 8
"""Of a reading. The quickest counts."""
_LEAST_NS = 500_000_000
"""The shortest time of which a rate is told. Readings are wrong by some 100 ns."""

_MOST_PPB = 200_000.0
"""The worst crystals keep to 0.02 %, which is what a daemon takes out for good. A faster change is a
slew, and its rate says nothing of the next seconds."""


class MonotonicReading(NamedTuple):
    """Both clocks at one moment."""

    local_ns: int
    monotonic_ns: int


class MonotonicOffset(NamedTuple):
    """CLOCK_MONOTONIC minus local time. Names and values are those of `StampBatch`."""

    monotonic_ns: int = 0
    monotonic_ppb: float = 0.0


class TcpClock:
    """This host's.

    Parameters:
        clock: local time.
        setting: the file with `tcp_timestamps`.
    """

    def __init__(self, clock: HostClock, setting: Path = _SETTING) -> None:
        self._clock = clock
        self._setting = setting
        self._before: MonotonicReading | None = None

    def is_bare(self) -> bool:
        """Whether stamps are of the clock alone."""
        try:
            return self._setting.read_text().strip() == _BARE
        except OSError:  # in a container, or behind what systemd permits
            return False

    def reading(self) -> MonotonicReading:
        """Both clocks, now; half the time of the quickest try bounds the error."""
        local = self._clock.local_ns
        tries = [(local(), time.monotonic_ns(), local()) for _ in range(_TRIES)]
        before_ns, monotonic_ns, after_ns = min(tries, key=lambda each: each[2] - each[0])
        return MonotonicReading((before_ns + after_ns) // 2, monotonic_ns)

    def offset(self) -> MonotonicOffset:
        """The difference now, and its rate since the last call; zeros if stamps are of more than the clock.

        The first call has no rate yet, so it tells nothing; nor does one while a daemon slews the clock.
        """
        if not self.is_bare():
            self._before = None
            return MonotonicOffset()
        now = self.reading()
        before, self._before = self._before, now
        if before is None or now.local_ns - before.local_ns < _LEAST_NS:
            return MonotonicOffset()
        gained_ns = now.monotonic_ns - before.monotonic_ns - (now.local_ns - before.local_ns)
        rate_ppb = gained_ns / (now.local_ns - before.local_ns) * 1e9
        if abs(rate_ppb) > _MOST_PPB:
            return MonotonicOffset()
        return MonotonicOffset(now.monotonic_ns - now.local_ns or 1, rate_ppb)
