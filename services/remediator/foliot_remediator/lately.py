"""What happened a moment ago: remembered for one to two spans of time, at a cost that does not grow with how much it is."""

from __future__ import annotations


class Lately:
    """Names, each noted again whenever it happens again."""

    def __init__(self, span_ns: int) -> None:
        self._span_ns = span_ns
        self._span = 0
        self._now: set[str] = set()
        self._before: set[str] = set()

    def note(self, who: str, now_ns: int) -> None:
        """It happens now."""
        self._turn(now_ns)
        self._now.add(who)

    def has(self, who: str, now_ns: int) -> bool:
        """Whether it happened within the last span, or up to another one before that."""
        self._turn(now_ns)
        return who in self._now or who in self._before

    def _turn(self, now_ns: int) -> None:
        span = now_ns // self._span_ns
        if span != self._span:
            self._before = self._now if span == self._span + 1 else set()
            self._now, self._span = set(), span
