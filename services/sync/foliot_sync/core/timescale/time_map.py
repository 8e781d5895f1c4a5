"""Maps measured time to the published common time, by continuous pieces of lines.

Clocks are measured against one of them, which sets the pace of the measured time. The common time is the measured time,
steered alike for all clocks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, TypeVar

import numpy as np

from foliot_schemas.bounds import FAR_NS
from foliot_sync.settings import NANOSECONDS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from foliot_sync.core.arrays import Floats, Ints, Mask
    from foliot_sync.core.track.kalman import ClockTracks

_FAR_NS = (1 << 63) - 1
"""No time is further away, however wrong: times of clocks fit into 64 bits."""

Rates = TypeVar("Rates", float, np.ndarray[tuple[int, ...], np.dtype[np.float64]])
"""One rate, or one of each clock."""


class TimeMap(NamedTuple):
    """A line: at a measured time u, the common time is ``u + ahead_ns + rate_ppb * 1e-9 * (u - since_ns)``."""

    since_ns: int = 0
    ahead_ns: int = 0
    rate_ppb: float = 0.0

    def of(self, measured_ns: int) -> int:
        """The common time."""
        common_ns = measured_ns + self.ahead_ns + round(self.rate_ppb / NANOSECONDS * (measured_ns - self.since_ns))
        return min(max(common_ns, -_FAR_NS), _FAR_NS)

    def ahead_at(self, measured_ns: Ints) -> Ints:
        """The lead of the common time at many measured times, in ns."""
        ahead_ns: Ints = np.rint(self.rate_ppb / NANOSECONDS * (measured_ns - self.since_ns)).astype(np.int64)
        return ahead_ns + self.ahead_ns

    def drift_ppb(self, drift_ppb: Rates) -> Rates:
        """The gain of the common time on a clock, in ppb, from that of the measured time."""
        return drift_ppb + self.rate_ppb + drift_ppb * self.rate_ppb / NANOSECONDS

    def turned(self, at_ns: int, by_ppb: float) -> TimeMap:
        """Faster by so much from a measured time on, without a jump."""
        rate_ppb = self.rate_ppb + by_ppb * (1 + self.rate_ppb / NANOSECONDS)
        return TimeMap(at_ns, self.of(at_ns) - at_ns, rate_ppb)

    def shifted(self, by_ns: int) -> TimeMap:
        """Ahead by so much more."""
        return self._replace(ahead_ns=min(max(self.ahead_ns + by_ns, 1 - FAR_NS), FAR_NS - 1))


class Seen(NamedTuple):
    """The clocks as a window leaves them."""

    names: Sequence[str]
    tracks: ClockTracks
    bound_ns: Floats
    measured: Mask
    """Whether this window measured a host's clock; the reference is among them. No clock in a NIC is: whoever keeps
    those is not asked for the time, and a host has several."""
    synchronised: Mask
    """Whether a host's clock is."""
    reference: int


class PriorStates(NamedTuple):
    """The states that clocks were told before, by number."""

    as_of_ns: Ints
    offset_ns: Ints
    drift_ppb: Floats
    believed: Mask


def measured_ns(tracks: ClockTracks, number: int, local_ns: int) -> int:
    """The measured time at a local time of a clock."""
    age_s = (local_ns - int(tracks.as_of_ns[number])) / NANOSECONDS
    return local_ns + int(tracks.offset_ns[number]) + round(float(tracks.drift_ppb[number]) * age_s)
