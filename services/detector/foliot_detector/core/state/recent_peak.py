"""The highest value of the last seconds, at the cost of two numbers."""

from __future__ import annotations

_SPAN_NS = 1_000_000_000
"""Half of what is remembered at most. A node that was late is late again: a process or a hypervisor with too much to
do stays so for longer than a second."""


class RecentPeak:
    """The highest value of the last one to two seconds."""

    __slots__ = ("_before", "_now", "_since_ns")

    def __init__(self) -> None:
        self._now = self._before = 0
        self._since_ns = 0

    def note(self, value: int, now_ns: int) -> None:
        """Notes that the value is so high now."""
        self._turn(now_ns)
        self._now = max(self._now, value)

    def at(self, now_ns: int) -> int:
        """The highest; 0: nothing was noted."""
        self._turn(now_ns)
        return max(self._now, self._before)

    def _turn(self, now_ns: int) -> None:
        passed_ns = now_ns - self._since_ns
        if passed_ns >= _SPAN_NS:
            self._before = self._now if passed_ns < 2 * _SPAN_NS else 0
            self._now, self._since_ns = 0, now_ns
