"""``[sync]``: windows, the common time, bounds, and asymmetries."""

from __future__ import annotations

from typing import Annotated, ClassVar

import msgspec

from foliot_schemas.clock import Timescale  # noqa: TC001 - msgspec reads it
from foliot_sync.asymmetry import Asymmetries

Positive = Annotated[float, msgspec.Meta(gt=0)]
NANOSECONDS = 1_000_000_000
"""Nanoseconds in a second."""


class SyncSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Section `sync` of the configuration."""

    removed: ClassVar[frozenset[str]] = frozenset(
        {
            "worst_ppb", "rate_limit_ppb", "sigmas", "gate_sigmas", "credible_ns", "settle_windows", "holdover_after_windows",
            "takeover_windows", "tolerated_share",
        }
    )  # fmt: skip
    tolerated_share: ClassVar[float] = 0.0125
    """Share of a side's points that a line may ignore. When measured, 5 of 400 did best, and 20 of 200 biased the
    offset."""

    window_s: Positive = 2.0
    """Length of a window, as in Huygens: long enough for probes that met no queue, short enough for a clock to run
    straight."""
    reference: str = ""
    """The clock that others are measured against; empty: the smallest name heard when sync starts. The choice does
    not change what the common time follows."""
    timescale: Timescale = "free"
    """The source that the common time follows. `free`: all clocks, so that on the whole they need least correction.
    `nodes`: the rates of `references`. `utc`: the UTC of nodes whose system clock has it, without its leap seconds.
    `tai`: TAI, by the same UTC and the offset that kernels know."""
    references: tuple[str, ...] = ()
    """For `nodes`: the clocks whose rates count.

    For `utc` and `tai`: the nodes whose UTC counts; none: all nodes that have it.
    """
    slew_ppb: Positive = 200.0
    """How much faster or slower than UTC the common time runs to get to it: a millisecond in an hour and a half.

    No measured delay shows it.
    """
    steer_ppb_s: Positive = 1.0
    """By how much the rate of the common time may change in a second. Two nodes with states of different windows then
    differ by some nanoseconds."""
    wander_ppb: Positive = 20.0
    """Random walk of a clock's rate, per square root of a second, until its windows have shown what it is.

    A quartz in a server stays well below.
    """
    least_wander_ppb: Positive = 1.0
    """The least wander that a bound assumes from now on, however steady the clock was.

    That of a server's quartz at a steady temperature. A rate that turns widens the bound once a window has shown it.
    """
    void_after_windows: Annotated[int, msgspec.Meta(ge=3)] = 10
    """Windows in a row without a measurement after which nothing is promised: by then wander alone is past a
    microsecond. After two of them a clock is in holdover."""
    asymmetry_ns: dict[str, float] = {}
    """Asymmetries that stamps cannot show, measured by other means. That of a NIC (``node3.rail0``) is by how much
    longer a probe takes out of it than into it. That of a link (``node1.rail0>node2.rail0``) is by how much longer it
    takes from the first NIC to the second than back, with any entropy."""

    def __post_init__(self) -> None:
        """Refuse settings that cannot work together.

        Raises:
            ValueError: says which.
        """
        if self.timescale == "nodes" and not self.references:
            raise ValueError('field `references` must name a clock where timescale is "nodes"')
        if self.timescale == "free" and self.references:
            raise ValueError('field `references` is for a timescale of "nodes", "utc" or "tai", not "free"')
        Asymmetries(self.asymmetry_ns)

    @property
    def window_ns(self) -> int:
        """Length of a window."""
        return round(self.window_s * NANOSECONDS)
