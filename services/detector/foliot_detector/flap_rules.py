"""Which ports are said to flap: the rules of other tools by their names, each with where it is from."""

from __future__ import annotations

import math
from typing import Literal, TypeAlias

import msgspec

_LARGEST_DOUBLINGS = 1_000
"""Beyond it a float's exponent (1,023) would not hold the ceiling, and nothing reaches it either."""


class Rule(msgspec.Struct, frozen=True, kw_only=True):
    """The numbers of the rule, RFC 2439 section 4.2."""

    penalty: float = 1_000.0
    """For one flap."""
    half_life_s: float = 900.0
    half_life_down_s: float | None = None
    """While the carrier is away (the RFC's decay-ng), so that an outage does not pass for good behaviour; none: the
    same."""
    suppress: float = 2_000.0
    """Above it, what flaps is suppressed."""
    reuse: float = 750.0
    """At it, what was suppressed may be used again."""
    max_suppress_s: float = 3_600.0
    """However often it flapped, it may be used again this long after the last flap, once it has a carrier."""

    def __post_init__(self) -> None:
        """Refuses a rule that could never suppress or never let go.

        Raises:
            ValueError: it is one.
        """
        if self.reuse >= self.suppress:
            raise ValueError(f"reuse: must lie below suppress ({self.suppress:g}), got {self.reuse:g}")
        if self.ceiling <= self.suppress:
            raise ValueError(
                f"max_suppress_s: {self.max_suppress_s:g} s caps the penalty at {self.ceiling:g}, which never exceeds "
                f"suppress ({self.suppress:g}); give more time or a shorter half_life_s"
            )

    @property
    def ceiling(self) -> float:
        """The penalty that decays to `reuse` in `max_suppress_s`; none is higher.

        ``reuse * exp(T-hold / half-life * log(2))``: RFC 2439 section 4.5 has a bracket in the wrong place.
        """
        doublings = self.max_suppress_s / self.half_life_s
        return self.reuse * 2.0**doublings if doublings < _LARGEST_DOUBLINGS else math.inf


class CountRule(msgspec.Struct, frozen=True, kw_only=True):
    """At least so many within a window make a port one that flaps."""

    least: int
    window_s: float
    counts: Literal["falls", "transitions", "outages"] = "falls"
    """``transitions`` are falls and returns; ``outages`` are carriers that came back after `outage_s`."""
    outage_s: float = 0.0
    link_downed: bool = False
    """Any rise of the RDMA device's ``link_downed`` is enough."""
    hold_s: float = 0.0
    """How long a port that was found to flap is held at least, after its last flap. Where the other tool waits for a
    person, the port is back after this time: nobody is to be barred for ever."""


RuleName = Literal[
    "cisco", "juniper", "rfc2439", "cisco-interface", "cisco-xr-interface", "juniper-interface",
    "clockwork", "gpud", "azure", "nvsentinel", "hpe-high", "hpe-medium", "hpe-low",
]  # fmt: skip


FlapRule: TypeAlias = Rule | CountRule

_HOUR_S = 3_600.0

PRESETS: dict[RuleName, FlapRule] = {
    # Cisco IOS, bgp dampening 15 750 2000 60
    "cisco": Rule(),
    # Junos, policy-options damping: 15 min, 750, 3000, 60 min
    "juniper": Rule(suppress=3_000.0),
    # RFC 2439 section 4.7: cut 1.25, reuse 0.5, T-hold 15 min, decay-ok 5 min, decay-ng 15 min; a penalty of 1 is 1000
    # here
    "rfc2439": Rule(half_life_s=300.0, half_life_down_s=900.0, suppress=1_250.0, reuse=500.0, max_suppress_s=900.0),
    # Cisco IOS, IP Event Dampening: dampening 5 1000 2000 20
    "cisco-interface": Rule(half_life_s=5.0, reuse=1_000.0, max_suppress_s=20.0),
    # Cisco IOS XR, interface dampening: 1 min, 750, 2000, 4 min
    "cisco-xr-interface": Rule(half_life_s=60.0, max_suppress_s=240.0),
    # Junos, interfaces damping: 5 s, 1000, 2000, 20 s
    "juniper-interface": Rule(half_life_s=5.0, reuse=1_000.0, max_suppress_s=20.0),
    # clockwork.io: link has flapped more than 8 times within the past hour
    "clockwork": CountRule(least=9, window_s=_HOUR_S),
    # leptonai/gpud, ib_port_flap: down for 25 s or more, then active, 3 times in 12 h; until set-healthy
    "gpud": CountRule(least=3, window_s=12 * _HOUR_S, counts="outages", outage_s=25.0, hold_s=_HOUR_S),
    # Azure's node health checks, NHC2005: lost carrier 5 times in 24 h
    "azure": CountRule(least=5, window_s=24 * _HOUR_S),
    # NVIDIA/NVSentinel, NIC monitor: link_downed delta > 0 (fatal), or carrier_changes delta > 2 in an interval of 5 s
    "nvsentinel": CountRule(least=3, window_s=5.0, counts="transitions", link_downed=True, hold_s=_HOUR_S),
    # ArubaOS-Switch, Management and Configuration Guide, fault-finder link-flap: transitions in 10 s; then an
    # administrator
    "hpe-high": CountRule(least=3, window_s=10.0, counts="transitions", hold_s=_HOUR_S),
    "hpe-medium": CountRule(least=6, window_s=10.0, counts="transitions", hold_s=_HOUR_S),
    "hpe-low": CountRule(least=10, window_s=10.0, counts="transitions", hold_s=_HOUR_S),
}
"""Where the other tool waits for a person, `hold_s` is an hour: what RFC 2439's routers allow themselves at most."""
