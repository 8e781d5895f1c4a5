"""The state of a clock, as sync publishes it."""

from __future__ import annotations

import math
from typing import Annotated, Literal

import msgspec

from foliot_schemas.bounds import FAR_NS, Bound, Count, Finite, LeapSecond, Name, Rate, Seconds, TaiOffset, Time

ClockStatus = Literal["unsynchronised", "synchronised", "holdover", "disrupted"]
Timescale = Literal["free", "nodes", "utc", "tai"]
"""The source of the common time. `free`: all clocks of the fleet, so that on the whole they need least correction.
`nodes`: the rates of the nodes named in sync's settings. `utc`: the UTC of nodes whose system clock has it, without its
leap seconds. `tai`: TAI, as the same nodes have it."""
UtcDisagreement = Literal["none", "offset", "leap", "both"]
"""The part of UTC about which a host's kernel contradicts the published one: the `offset` from TAI, a `leap` second."""

_SECOND_NS = 1_000_000_000
_SAME_BOOT_NS = 2 * _SECOND_NS
"""The limit to the change of CLOCK_REALTIME's distance from local time between two words of one boot. While a host
runs, its discipline moves that distance by less than a second, and a leap second by one. A boot moves it by far
more."""


def same_boot(epoch_ns: int, former_ns: int) -> bool:
    """Whether a host has run on since an earlier time, by CLOCK_REALTIME minus its local time.

    `epoch_ns` is that difference now, `former_ns` then (0: not known).
    """
    return former_ns != 0 and abs(epoch_ns - former_ns) <= _SAME_BOOT_NS


class ClockState(msgspec.Struct, frozen=True, kw_only=True, tag="clock.v1"):
    """A clock's relation to the reference time, and the bounds of its error.

    At local time ``t`` of the clock (CLOCK_MONOTONIC_RAW of its host, or its PHC), the reference time is:

    ``t + offset_ns + drift_ppb * 1e-9 * (t - as_of_ns)``
    """

    clock: Name
    """Name of the clock, as the inventory has it."""
    reference: Annotated[str, msgspec.Meta(max_length=255)]
    """The clock that others were measured against. Their bounds are relative to it: they bound the distance to the
    common time as this clock has it. Its own bounds are 0. It has an offset and a drift like any other clock,
    because the common time follows `timescale`."""
    offset_ns: Time
    """Reference minus local time at `as_of_ns`."""
    drift_ppb: Rate
    """By how much the reference runs faster than the clock."""
    hard_bound_ns: Bound
    """The hard bound: no asymmetry of the paths can put the true offset further away at `as_of_ns`."""
    bound_ns: Bound
    """The statistical bound at `as_of_ns`; it assumes that the least delays of a path's two directions are equal."""
    growth_ppb: Finite
    """The growth of the statistical bound with age, in ns per second, before the clock's wander adds to it: see
    `bound_at_ns`."""
    as_of_ns: Time
    """Local time of the clock."""
    void_after_ns: Time
    """Local time after which the bounds no longer hold."""
    status: ClockStatus
    """Believe `synchronised`, and believe `holdover` with the bound that has grown by now. `disrupted`: a
    measurement contradicts the last state. `unsynchronised`: nothing is known."""
    window: Count = 0
    """Number of the sync window, counted from the start of sync."""
    neighbours: Count = 0
    """The number of clocks that this one was measured against in the window."""
    surplus_ns: Finite = 0.0
    """Root mean square of the closing errors of the mesh's loops: an honest measure of pair errors."""
    hard_growth_ppb: Finite = 0.0
    """The growth of the hard bound with age, in ns per second; never slower than that of the statistical one."""
    timescale: Timescale = "free"
    """The source of the common time, whose rate changes slowly and which never jumps."""
    wander_ppb: Finite = 0.0
    """The part of the statistical bound that the clock's wander adds, in ns after one second. After t seconds it is
    t^1.5 times as much."""
    epoch_ns: Time = 0
    """CLOCK_REALTIME of the clock's host minus its local time, as its node last said; 0: not known."""
    utc_error_ns: Bound = -1
    """The greatest error of the common time against UTC, according to the nodes that have UTC. It includes their own
    errors. -1: no node has UTC, or most do not agree."""
    utc_offset_s: Seconds = 0
    """How far UTC is behind the common time, in whole seconds; from `leap_at_ns` on, `leap_s` more."""
    tai_offset_s: TaiOffset = 0
    """How far UTC is behind TAI, in whole seconds, as the kernel of the reference's host has it; from `leap_at_ns` on,
    `leap_s` more. 0: no kernel knows."""
    leap_s: LeapSecond = 0
    """A leap second that the same kernel has announced, and for a day after it: 1 is inserted, -1 is deleted, 0: there
    is none."""
    leap_at_ns: Time = 0
    """The common time at which that leap second begins: the end of a UTC day if one is inserted, a second before it if
    one is deleted. 0: there is none."""
    utc_offset_error_ns: Bound = -1
    """The greatest error against UTC of the common time less `utc_offset_s`; -1 as in `utc_error_ns`."""
    utc_disagreement: UtcDisagreement = "none"
    """What the kernel of this clock's host says of UTC otherwise than this state."""
    stamp_noise_ns: Finite = 0.0
    """The noise of the clock's stamps: how well they repeat. Sync measures it in the stamps of each pair of clocks, and
    no node states it of itself. 0: not measured."""
    rate_wander_ppb: Finite = 0.0
    """The random walk of the clock's rate against the reference's, in ppb per root of a second, as sync's filter takes
    it. It is what the settings say until the clock's windows have shown it. 0: nothing is known, or this is the
    reference. `wander_ppb` is made of what windows have shown, which is less, and of `sync.least_wander_ppb`."""
    monotonic_ns: Time = 0
    """CLOCK_MONOTONIC of the clock's host minus its local time at `as_of_ns`, if the host's TCP stamps packets by it
    alone (`tcp_timestamps` is 2). 0: it does not, or nothing is known."""
    monotonic_ppb: Rate = 0.0
    """By how much CLOCK_MONOTONIC runs faster than local time."""

    def reference_ns(self, local_ns: int) -> int:
        """The reference time at a local time."""
        age_ns = local_ns - self.as_of_ns
        return local_ns + self.offset_ns + round(self.drift_ppb * 1e-9 * age_ns)

    def monotonic_at_ns(self, reference_ns: int) -> int:
        """CLOCK_MONOTONIC of the clock's host at a reference time; of use where `monotonic_ns` is known."""
        passed_ns = reference_ns - self.as_of_ns - self.offset_ns
        age_ns = passed_ns - round(passed_ns * self.drift_ppb * 1e-9 / (1 + self.drift_ppb * 1e-9))
        return self.as_of_ns + age_ns + self.monotonic_ns + round(self.monotonic_ppb * 1e-9 * age_ns)

    def utc_offset_at_s(self, reference_ns: int) -> int:
        """How far UTC is behind the common time at such a time, in whole seconds."""
        return self.utc_offset_s + (self.leap_s if reference_ns >= self.leap_at_ns else 0)

    def tai_offset_at_s(self, reference_ns: int) -> int:
        """How far UTC is behind TAI at a common time, in whole seconds; 0: not known."""
        return self.tai_offset_s and self.tai_offset_s + (self.leap_s if reference_ns >= self.leap_at_ns else 0)

    def utc_ns(self, reference_ns: int) -> int:
        """UTC at a common time, in ns since 1970 as POSIX counts: in an inserted second those before it come again."""
        return reference_ns - self.utc_offset_at_s(reference_ns) * _SECOND_NS

    def bound_at_ns(self, local_ns: int) -> int:
        """The statistical bound at a local time, t seconds from `as_of_ns`.

        It is sqrt((bound + growth t)² + (wander t^1.5)²).
        """
        return round(min(self._grown_ns(local_ns), FAR_NS))

    def hard_bound_at_ns(self, local_ns: int) -> int:
        """The hard bound at a local time.

        It grows linearly, by the larger of the two growths, and is never below the statistical one.
        """
        growth_ppb = max(self.growth_ppb, self.hard_growth_ppb)
        hard_ns = self.hard_bound_ns + abs(local_ns - self.as_of_ns) * 1e-9 * growth_ppb
        return round(min(max(hard_ns, self._grown_ns(local_ns)), FAR_NS))

    def _grown_ns(self, local_ns: int) -> float:
        age_s = abs(local_ns - self.as_of_ns) * 1e-9
        return math.hypot(self.bound_ns + self.growth_ppb * age_s, self.wander_ppb * age_s**1.5)
