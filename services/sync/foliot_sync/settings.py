"""``[sync]``: windows, the common time, bounds, and asymmetries."""

from __future__ import annotations

from typing import Annotated

import msgspec

from foliot_schemas.clock import Timescale  # noqa: TC001 - msgspec reads it
from foliot_sync.asymmetry import Asymmetries

Positive = Annotated[float, msgspec.Meta(gt=0)]
AtLeastOne = Annotated[int, msgspec.Meta(ge=1)]
NANOSECONDS = 1_000_000_000
"""Nanoseconds in a second."""


class SyncSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Section `sync` of the configuration."""

    window_s: Positive = 2.0
    """Length of a window, as in Huygens: long enough for probes that met no queue, short enough for a clock to run straight."""
    reference: str = ""
    """The clock that others are measured against; empty: the smallest name heard when sync starts. The choice does
    not change what the common time follows."""
    timescale: Timescale = "free"
    """What the common time follows. `free`: all clocks, so that on the whole they need least correction. `nodes`: the rates of `references`.
    `utc`: the UTC of nodes whose system clock has it, without its leap seconds. `tai`: TAI, by the same UTC and the offset that kernels know."""
    references: tuple[str, ...] = ()
    """For `nodes`: the clocks whose rates count. For `utc` and `tai`: the nodes whose UTC counts; none: all nodes that have it."""
    slew_ppb: Positive = 200.0
    """How much faster or slower than UTC the common time runs to get to it: a millisecond in an hour and a half. No measured delay shows it."""
    steer_ppb_s: Positive = 1.0
    """By how much the rate of the common time may change in a second. Two nodes with states of different windows then differ by
    some nanoseconds."""
    wander_ppb: Positive = 20.0
    """Random walk of a clock's rate, per square root of a second, until its windows have shown what it is. A quartz in a server stays well below."""
    least_wander_ppb: Positive = 5.0
    """The least wander that a bound assumes from now on, however steady the clock was. A processor that begins to work warms its quartz."""
    worst_ppb: Positive = 1_000.0
    """The hard bound's growth. A clock's rate may differ by so much from its last window's, whatever befell it. As chrony's `maxclockerror`."""
    rate_limit_ppb: Positive = 200_000.0
    """Two clocks never run further apart: twice the 100 ppm that the worst PC crystals are sold with."""
    tolerated_share: Annotated[float, msgspec.Meta(ge=0, lt=0.5)] = 0.0125
    """Share of a side's points that a line may ignore. When measured, 5 of 400 did best, and 20 of 200 biased the offset."""
    sigmas: Positive = 4.0
    """Width of the statistical bound, as in fbclock."""
    gate_sigmas: Positive = 6.0
    """A window further than this from its prediction contradicts it: the clock was stepped or slewed."""
    credible_ns: AtLeastOne = 50_000
    """A clock whose bound is wider is not called synchronised. Its time would not order the events of two hosts."""
    settle_windows: AtLeastOne = 2
    """Windows that must agree before a clock is called synchronised: the first one only says where it starts."""
    holdover_after_windows: AtLeastOne = 2
    """Windows in a row without a measurement before a clock is in holdover. One alone comes of the phase of a probe's window against sync's."""
    void_after_windows: int = 10
    """Windows in a row without a measurement after which nothing is promised: by then wander alone is past a microsecond."""
    takeover_windows: AtLeastOne = 3
    """Windows without the reference before another clock takes its place."""
    asymmetry_ns: dict[str, float] = {}
    """Asymmetries that stamps cannot show, measured by other means. That of a NIC (``node3.rail0``) is by how much longer a probe takes out of it
    than into it. That of a link (``node1.rail0>node2.rail0``) is by how much longer it takes from the first NIC to the second than back, with
    any entropy."""

    def __post_init__(self) -> None:
        """Refuse settings that cannot work together.

        Raises:
            ValueError: says which.
        """
        if self.void_after_windows <= self.holdover_after_windows:
            raise ValueError(
                "field `void_after_windows` must be greater than holdover_after_windows, or there is no holdover"
            )
        if self.timescale == "nodes" and not self.references:
            raise ValueError('field `references` must name a clock where timescale is "nodes"')
        if self.timescale == "free" and self.references:
            raise ValueError('field `references` is for a timescale of "nodes", "utc" or "tai", not "free"')
        Asymmetries(self.asymmetry_ns)

    @property
    def window_ns(self) -> int:
        """Length of a window."""
        return round(self.window_s * NANOSECONDS)
