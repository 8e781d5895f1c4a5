"""Rules that count: so many flaps within a window, as monitors and switches have them."""

from __future__ import annotations

import collections
import itertools
from typing import TYPE_CHECKING

from foliot_detector.core.state.port_counters import SECOND_NS

if TYPE_CHECKING:
    from foliot_detector.core.state.port_counters import Change
    from foliot_detector.flap_rules import CountRule
    from foliot_schemas import Event
    from foliot_schemas.event import Evidence

_REMEMBERED = 4_096
"""Changes remembered of one port: more than one a second for an hour. Rules count to ten."""


class WindowThreshold:
    """Changes of one port that count, with its node's times. It takes and says what `Damping` does."""

    def __init__(self, rule: CountRule) -> None:
        self._rule = rule
        self._window_ns = round(rule.window_s * SECOND_NS)
        self._counted: collections.deque[tuple[int, int]] = collections.deque(maxlen=_REMEMBERED)
        """When, and how many at once."""
        self._reuse_at_ns = 0

    def resume(self, event: Event) -> None:
        """Takes up what an earlier run had counted, as far as another flap could make it too many."""
        self._reuse_at_ns = int(event.number("reuse_at_ns"))
        ages = event.evidence.get("counted_s_ago")
        if isinstance(ages, str) and event.evidence.get("counts") == self._rule.counts:
            seconds = [int(age) for age in ages.split() if age.isdecimal() and int(age) <= self._rule.window_s]
            for age_s in sorted(seconds, reverse=True):
                self._counted.append((event.at_ns - age_s * SECOND_NS, 1))

    def take(self, change: Change) -> None:
        """Takes what happened at a port. A time before the last one counts as the last one."""
        at_ns = max(change.at_ns, self._counted[-1][0] if self._counted else 0)
        number = self._number(change)
        if number:
            self._counted.append((at_ns, number))
        full_at_ns = self._full_since(at_ns) if number else 0
        if full_at_ns or (self._rule.link_downed and change.link_downed):
            hold_ns = round(self._rule.hold_s * SECOND_NS)
            over_ns = full_at_ns + self._window_ns if full_at_ns else 0
            self._reuse_at_ns = max(self._reuse_at_ns, over_ns, at_ns + hold_ns)

    def reuse_at_ns(self, at_ns: int) -> int:
        """When it may be used again if it flaps no more; 0 if it may already."""
        return self._reuse_at_ns if at_ns < self._reuse_at_ns else 0

    def evidence(self, at_ns: int) -> Evidence:
        """Numbers that the verdict rests on. The ages of the latest that count tell the next run."""
        self._prune(at_ns)
        each = (then_ns for then_ns, number in reversed(self._counted) for _ in range(number))
        latest = itertools.islice(each, self._rule.least)
        return {
            "counts": self._rule.counts,
            "counted": sum(number for _, number in self._counted),
            "counted_s_ago": " ".join(str(max(at_ns - then_ns, 0) // SECOND_NS) for then_ns in latest),
            "least": self._rule.least,
            "window_s": self._rule.window_s,
        }

    def _number(self, change: Change) -> int:
        match self._rule.counts:
            case "falls":
                return change.falls
            case "transitions":
                return change.falls + change.returns
            case "outages":
                return int(change.outage_ns >= max(self._rule.outage_s * SECOND_NS, 1))

    def _full_since(self, at_ns: int) -> int:
        """When the oldest happened of those that make too many within the window; 0: there are not too many."""
        self._prune(at_ns)
        missing = self._rule.least
        for then_ns, number in reversed(self._counted):
            missing -= number
            if missing <= 0:
                return then_ns
        return 0

    def _prune(self, at_ns: int) -> None:
        while self._counted and self._counted[0][0] <= at_ns - self._window_ns:
            self._counted.popleft()
