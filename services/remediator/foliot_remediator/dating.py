"""When what a node says was true, by the time of whoever listens, whatever its clock says and however long it was on its way."""

from __future__ import annotations

from dataclasses import dataclass

_SPAN_NS = 2_000_000_000
"""The least difference of one to two of these counts: twenty reports at least, of which hardly all come late, and a clock that was set back is believed after four
seconds at most."""
_AHEAD_NS = 250_000_000
"""A clock that is synchronised is ahead of this one by less."""


@dataclass(slots=True)
class _Differences:
    """Of arrival and a node's own time: its clock's error and the bus's delay, which alone varies."""

    turned_ns: int
    least_ns: int
    before_ns: int
    """The least of the span before."""


class Dating:
    """Per node, the least difference of late: what came with a greater one is dated that much before its arrival.

    A clock that is set forward is followed at once, and so is one that is synchronised and was ahead. While another one that was set back is not, what its node says is dated too early, so that it proves nothing.
    """

    def __init__(self) -> None:
        self._nodes: dict[str, _Differences] = {}

    def learn(self, node: str, at_ns: int, now_ns: int, *, trusted: bool) -> int:
        """When a report that has just come was true: at its arrival at the latest.

        Parameters:
            at_ns: its own time.
            trusted: its clock is synchronised, so that the first report of all shows how late it is, too.
        """
        difference_ns = now_ns - at_ns
        known = self._nodes.get(node)
        if known is None or (trusted and min(known.least_ns, known.before_ns) < -_AHEAD_NS <= difference_ns):
            # New, or put right: what it was ahead by before says nothing of now.
            first_ns = min(difference_ns, 0) if trusted else difference_ns
            known = self._nodes[node] = _Differences(now_ns, difference_ns, first_ns)
        elif not 0 <= now_ns - known.turned_ns < _SPAN_NS:
            # A node that said nothing for long is still held against what it said before.
            known.turned_ns, known.before_ns, known.least_ns = now_ns, known.least_ns, difference_ns
        elif difference_ns < known.least_ns:
            known.least_ns = difference_ns
        return at_ns + min(known.least_ns, known.before_ns)

    def here_ns(self, node: str, at_ns: int, now_ns: int) -> int:
        """A node's own time by the time of whoever listens; nothing is of later than now."""
        known = self._nodes.get(node)
        return min(at_ns if known is None else at_ns + min(known.least_ns, known.before_ns), now_ns)

    def forget(self, node: str) -> None:
        """A node has left the fleet."""
        self._nodes.pop(node, None)
