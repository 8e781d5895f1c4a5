"""When a node's words were true, on the detector's timeline, however late they come.

A node dates its words by its own clock, which may be any; the bus delivers them soon, or late: if it was away, if the detector was, or if their
sender stood still between composing and sending. The promptest word of the last seconds says how the clock and the timeline lie; by that all others are dated.
"""

from __future__ import annotations

_SPAN_NS = 5_000_000_000
"""Half of what is remembered. In ten seconds two clocks drift apart by a millisecond at most, and a delay that lasts as long is how it is from now on."""
_SET_BACK_NS = 20_000_000
"""A clock that says earlier times than before by more was set back. Steering it never takes so much at once."""


class Arrivals:
    """The words of one node, in the order in which they came."""

    __slots__ = ("_before_ns", "_least_ns", "_newest_ns", "_since_ns")

    def __init__(self, at_ns: int, now_ns: int) -> None:
        self._begin(at_ns, now_ns)

    def _begin(self, at_ns: int, now_ns: int) -> None:
        self._newest_ns = at_ns
        self._since_ns = now_ns
        self._least_ns = self._before_ns = now_ns - at_ns

    def learn(self, at_ns: int, now_ns: int) -> None:
        """A word of this time of the node's has arrived now."""
        apart_ns = now_ns - at_ns
        if at_ns < self._newest_ns - _SET_BACK_NS:
            self._begin(at_ns, now_ns)  # what was known of the clock is void
            return
        self._newest_ns = max(self._newest_ns, at_ns)
        if now_ns - self._since_ns >= _SPAN_NS:
            self._before_ns = self._least_ns if now_ns - self._since_ns < 2 * _SPAN_NS else apart_ns
            self._least_ns, self._since_ns = apart_ns, now_ns
        self._least_ns = min(self._least_ns, apart_ns)

    @property
    def apart_ns(self) -> int:
        """What is to be added to a time of the node's to get that of the timeline."""
        return min(self._least_ns, self._before_ns)
