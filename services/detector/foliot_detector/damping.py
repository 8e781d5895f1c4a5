"""Route flap damping, RFC 2439: a penalty for each flap that decays by halves, and a suppression between two thresholds.

The decay is exact, ``p * 2 ** (-dt / H)``, where routers look it up in tables of some seconds' steps.
"""

from __future__ import annotations

import math

import msgspec

_SECOND_NS = 1_000_000_000
_LARGEST_DOUBLINGS = 1_000
"""Beyond it a float's exponent (1,023) would not hold the ceiling, and nothing reaches it either."""


class Rule(msgspec.Struct, frozen=True, kw_only=True):
    """The numbers of the rule, RFC 2439 section 4.2."""

    penalty: float = 1_000.0
    """For one flap."""
    half_life_s: float = 900.0
    suppress: float = 2_000.0
    """Above it, what flaps is suppressed."""
    reuse: float = 750.0
    """At it, what was suppressed may be used again."""
    max_suppress_s: float = 3_600.0
    """However often it flapped, this long after the last flap it may be used again."""

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
        """The penalty that decays to `reuse` in `max_suppress_s`; none is higher."""
        doublings = self.max_suppress_s / self.half_life_s
        return self.reuse * 2.0**doublings if doublings < _LARGEST_DOUBLINGS else math.inf


PRESETS = {"cisco": Rule(suppress=2_000.0), "juniper": Rule(suppress=3_000.0)}
"""The routers' own defaults; they differ in the threshold alone."""


class Damping:
    """The penalty of one thing that flaps, by the times it is told."""

    def __init__(self, rule: Rule) -> None:
        self._rule = rule
        self._penalty = 0.0
        self._as_of_ns = 0
        self._reuse_at_ns = 0

    def resume(self, at_ns: int, penalty: float, reuse_at_ns: int) -> None:
        """Takes up what an earlier run had come to at a time."""
        self._penalty, self._as_of_ns, self._reuse_at_ns = penalty, at_ns, reuse_at_ns

    def add(self, at_ns: int, flaps: int) -> None:
        """Takes flaps that happened at or shortly before a time. A time before the last one counts as the last one."""
        penalty = self.penalty(at_ns)
        suppressed = self.suppressed(at_ns)
        self._as_of_ns = max(at_ns, self._as_of_ns)
        self._penalty = min(penalty + flaps * self._rule.penalty, self._rule.ceiling)
        if suppressed or self._penalty > self._rule.suppress:
            half_lives = max(math.log2(self._penalty / self._rule.reuse), 0.0)
            self._reuse_at_ns = self._as_of_ns + math.ceil(half_lives * self._rule.half_life_s * _SECOND_NS)

    def penalty(self, at_ns: int) -> float:
        """The penalty at a time."""
        age_s = max(at_ns - self._as_of_ns, 0) / _SECOND_NS
        return float(self._penalty * 2.0 ** (-age_s / self._rule.half_life_s))

    def suppressed(self, at_ns: int) -> bool:
        """Whether it is not to be trusted at a time."""
        return at_ns < self._reuse_at_ns

    def reuse_at_ns(self, at_ns: int) -> int:
        """When it may be used again if it flaps no more; 0 if it may already."""
        return self._reuse_at_ns if self.suppressed(at_ns) else 0
