"""Route flap damping, RFC 2439: a penalty for each flap that decays by halves, and suppression between two thresholds.

The decay is exact, ``p * 2 ** (-dt / H)``, where routers look it up in tables of some seconds' steps.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from foliot_detector.core.state.port_counters import SECOND_NS

if TYPE_CHECKING:
    from foliot_detector.core.state.port_counters import Change
    from foliot_detector.flap_rules import Rule
    from foliot_schemas import Event
    from foliot_schemas.event import Evidence


class Damping:
    """The penalty of one port, by its node's times."""

    def __init__(self, rule: Rule) -> None:
        self._rule = rule
        self._penalty = 0.0
        self._as_of_ns = 0
        self._reuse_at_ns = 0
        self._up = True

    def resume(self, event: Event) -> None:
        """Takes up what an earlier run had come to."""
        self._penalty = min(max(event.number("penalty"), 0.0), self._rule.ceiling)
        self._as_of_ns, self._reuse_at_ns = event.at_ns, int(event.number("reuse_at_ns"))

    def take(self, change: Change) -> None:
        """Takes what happened at a port. A time before the last one counts as the last one."""
        penalty, suppressed = self.penalty(change.at_ns), self.reuse_at_ns(change.at_ns) > 0
        before_s, self._up = self._half_life_s, change.carrier
        if not change.falls and self._half_life_s == before_s:
            return
        self._as_of_ns = max(change.at_ns, self._as_of_ns)
        self._penalty = min(penalty + change.falls * self._rule.penalty, self._rule.ceiling)
        if suppressed or (change.falls and self._penalty > self._rule.suppress):
            half_lives = max(math.log2(self._penalty / self._rule.reuse), 0.0)
            self._reuse_at_ns = self._as_of_ns + math.ceil(half_lives * self._half_life_s * SECOND_NS)

    def penalty(self, at_ns: int) -> float:
        """The penalty at a time."""
        age_s = max(at_ns - self._as_of_ns, 0) / SECOND_NS
        return float(self._penalty * 2.0 ** (-age_s / self._half_life_s))

    def reuse_at_ns(self, at_ns: int) -> int:
        """When it may be used again if it flaps no more; 0 if it may already."""
        return self._reuse_at_ns if at_ns < self._reuse_at_ns else 0

    def evidence(self, at_ns: int) -> Evidence:
        """Numbers that the verdict rests on."""
        return {"penalty": round(self.penalty(at_ns), 3), "half_life_s": self._half_life_s}

    @property
    def _half_life_s(self) -> float:
        slower_s = self._rule.half_life_down_s
        return self._rule.half_life_s if self._up or slower_s is None else slower_s
