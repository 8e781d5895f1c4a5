"""Which ports are said to flap: the rules of other tools by their names, each with where it is from.

All of them say the same two things of a port: whether it is held back, and until when.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NamedTuple, Protocol, TypeAlias

from foliot_detector.counting import CountRule
from foliot_detector.damping import Rule

if TYPE_CHECKING:
    from foliot_detector.ports import Change, Evidence
    from foliot_schemas import Event

RuleName = Literal[
    "cisco", "juniper", "rfc2439", "cisco-interface", "cisco-xr-interface", "juniper-interface",
    "clockwork", "gpud", "azure", "nvsentinel", "hpe-high", "hpe-medium", "hpe-low",
]  # fmt: skip
FlapRule: TypeAlias = Rule | CountRule

_HOUR_S = 3_600.0


class Preset(NamedTuple):
    """A rule and its source."""

    rule: FlapRule
    source: str


class Judge(Protocol):
    """What a rule says of one port. Deterministic; all times are those of its node."""

    def resume(self, event: Event) -> None:
        """Takes up what an earlier run came to, from its last event."""

    def take(self, change: Change) -> None:
        """Takes what happened at the port."""

    def suppressed(self, at_ns: int) -> bool:
        """Whether it is held back at a time."""

    def reuse_at_ns(self, at_ns: int) -> int:
        """Until when, if it flaps no more; 0: it is not."""

    def evidence(self, at_ns: int) -> Evidence:
        """What that rests on, in numbers."""


_HPE = "ArubaOS-Switch, Management and Configuration Guide, fault-finder link-flap: 10, 6 or 3 transitions in 10 s; then an administrator"

PRESETS: dict[RuleName, Preset] = {
    "cisco": Preset(Rule(), "Cisco IOS, bgp dampening 15 750 2000 60"),
    "juniper": Preset(Rule(suppress=3_000.0), "Junos, policy-options damping: 15 min, 750, 3000, 60 min"),
    "rfc2439": Preset(
        Rule(half_life_s=300.0, half_life_down_s=900.0, suppress=1_250.0, reuse=500.0, max_suppress_s=900.0),
        "RFC 2439 section 4.7: cut 1.25, reuse 0.5, T-hold 15 min, decay-ok 5 min, decay-ng 15 min; a penalty of 1 is 1000 here",
    ),
    "cisco-interface": Preset(
        Rule(half_life_s=5.0, reuse=1_000.0, max_suppress_s=20.0),
        "Cisco IOS, IP Event Dampening: dampening 5 1000 2000 20",
    ),
    "cisco-xr-interface": Preset(
        Rule(half_life_s=60.0, max_suppress_s=240.0), "Cisco IOS XR, interface dampening: 1 min, 750, 2000, 4 min"
    ),
    "juniper-interface": Preset(
        Rule(half_life_s=5.0, reuse=1_000.0, max_suppress_s=20.0), "Junos, interfaces damping: 5 s, 1000, 2000, 20 s"
    ),
    "clockwork": Preset(
        CountRule(least=9, window_s=_HOUR_S), "clockwork.io: link has flapped more than 8 times within the past hour"
    ),
    "gpud": Preset(
        CountRule(least=3, window_s=12 * _HOUR_S, counts="outages", outage_s=25.0, hold_s=_HOUR_S),
        "leptonai/gpud, ib_port_flap: down for 25 s or more, then active, 3 times in 12 h; until set-healthy",
    ),
    "azure": Preset(
        CountRule(least=5, window_s=24 * _HOUR_S), "Azure's node health checks, NHC2005: lost carrier 5 times in 24 h"
    ),
    "nvsentinel": Preset(
        CountRule(least=3, window_s=5.0, counts="transitions", link_downed=True, hold_s=_HOUR_S),
        "NVIDIA/NVSentinel, NIC monitor: link_downed delta > 0 (fatal), or carrier_changes delta > 2 in an interval of 5 s",
    ),
    "hpe-high": Preset(CountRule(least=3, window_s=10.0, counts="transitions", hold_s=_HOUR_S), _HPE),
    "hpe-medium": Preset(CountRule(least=6, window_s=10.0, counts="transitions", hold_s=_HOUR_S), _HPE),
    "hpe-low": Preset(CountRule(least=10, window_s=10.0, counts="transitions", hold_s=_HOUR_S), _HPE),
}
"""Where the other tool waits for a person, `hold_s` is an hour: what RFC 2439's routers allow themselves at most."""
