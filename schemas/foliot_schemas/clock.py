"""The state of a clock, as sync publishes it."""

from __future__ import annotations

import math
from typing import Annotated, Literal

import msgspec

from foliot_schemas.bounds import FAR_NS, Bound, Count, Finite, Name, Rate, Time

ClockStatus = Literal["unsynchronised", "synchronised", "holdover", "disrupted"]
Timescale = Literal["free", "nodes", "utc"]
"""What the common time follows: `free`, all clocks of the fleet, so that on the whole they need least correction; `nodes`, the rates of those named in
sync's settings; `utc`, the UTC of nodes whose system clock has it."""


class ClockState(msgspec.Struct, frozen=True, kw_only=True, tag="clock.v1"):
    """How to read the reference time off one clock, and how far to trust it.

    At local time ``t`` of the clock (CLOCK_MONOTONIC_RAW of its host, or its PHC), the reference time is
    ``t + offset_ns + drift_ppb * 1e-9 * (t - as_of_ns)``.
    """

    clock: Name
    """Name of the clock, as the inventory has it."""
    reference: Annotated[str, msgspec.Meta(max_length=255)]
    """The clock that others were measured against, and that their bounds are relative to: how far theirs is from the common time as this one has it. Its own
    bounds are 0. It has an offset and a drift like any other, for what the common time follows is `timescale`."""
    offset_ns: Time
    """Reference minus local time at `as_of_ns`."""
    drift_ppb: Rate
    """By how much the reference runs faster than the clock."""
    hard_bound_ns: Bound
    """No asymmetry of the paths can put the true offset further away at `as_of_ns`."""
    bound_ns: Bound
    """The statistical bound at `as_of_ns`; it assumes that the least delays of a path's two directions are equal."""
    growth_ppb: Finite
    """How fast the statistical bound grows with age, in ns per second, before the clock's wander adds to it: see `bound_at_ns`."""
    as_of_ns: Time
    """Local time of the clock."""
    void_after_ns: Time
    """Local time after which nothing is promised."""
    status: ClockStatus
    """Believe `synchronised`, and `holdover` with the bound that has grown by now. `disrupted`: it was measured away from what was
    said before. `unsynchronised`: nothing is known."""
    window: Count = 0
    """Number of the sync window, counted from the start of sync."""
    neighbours: Count = 0
    """Clocks that this one was measured against in the window."""
    surplus_ns: Finite = 0.0
    """Root mean square of what the mesh's loops failed to close by: an honest measure of pair errors."""
    hard_growth_ppb: Finite = 0.0
    """How fast the hard bound grows with age, in ns per second; never slower than the statistical one."""
    timescale: Timescale = "free"
    """What the common time follows. Its rate changes slowly, and it never jumps."""
    wander_ppb: Finite = 0.0
    """What the clock's wander adds to the statistical bound, in ns after one second; after t seconds t^1.5 times as much."""
    epoch_ns: Time = 0
    """CLOCK_REALTIME of the clock's host minus its local time, as its node last said; 0: not known."""
    utc_error_ns: Bound = -1
    """How far the common time may be from UTC, by the nodes that have it, their own errors included; -1: none has, or most do not agree."""

    def reference_ns(self, local_ns: int) -> int:
        """The reference time at a local time."""
        age_ns = local_ns - self.as_of_ns
        return local_ns + self.offset_ns + round(self.drift_ppb * 1e-9 * age_ns)

    def bound_at_ns(self, local_ns: int) -> int:
        """The statistical bound at a local time: sqrt((bound + growth t)² + (wander t^1.5)²), t seconds from `as_of_ns`."""
        return round(min(self._grown_ns(local_ns), FAR_NS))

    def hard_bound_at_ns(self, local_ns: int) -> int:
        """The hard bound at a local time: it grows straight, by hard_growth or at least growth, and is no less than the statistical one."""
        growth_ppb = max(self.growth_ppb, self.hard_growth_ppb)
        hard_ns = self.hard_bound_ns + abs(local_ns - self.as_of_ns) * 1e-9 * growth_ppb
        return round(min(max(hard_ns, self._grown_ns(local_ns)), FAR_NS))

    def _grown_ns(self, local_ns: int) -> float:
        age_s = abs(local_ns - self.as_of_ns) * 1e-9
        return math.hypot(self.bound_ns + self.growth_ppb * age_s, self.wander_ppb * age_s**1.5)
