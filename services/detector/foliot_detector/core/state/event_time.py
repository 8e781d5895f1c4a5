"""The detector's own timeline: how much time has passed, by what the observations say.

Nodes may disagree about the time, before they are synchronised or when a clock is stepped. So the times of one node are
compared with each other, and everything else by where it fell on this line, which never runs back. Its values are
called *here*.
"""

from __future__ import annotations

_STEP_NS = 500_000_000
"""How far one node alone may push the line. Nodes speak every 100 ms, so a further jump is a bad clock, unless a
second node of a recording makes it too. It is half of the shortest silence that anything is declared dead by."""


class EventTime:
    """Starts at the first observation and never runs back.

    Where the passing of time is measured, two nodes that agree do not make it jump: they may be wrong by the same. In a
    recording there is no other time than theirs.
    """

    def __init__(self) -> None:
        self.now_ns = 0
        self._is_measured = False
        self._nodes: set[str] = set()
        self._ahead: dict[str, int] = {}

    def advance(self, elapsed_ns: int) -> None:
        """Lets measured time pass; none passes before the first observation."""
        if self.now_ns:
            self.now_ns += max(elapsed_ns, 0)
        self._is_measured |= elapsed_ns > 0

    def forget(self, node: str) -> None:
        """Forgets a node that has left the fleet."""
        self._nodes.discard(node)
        self._ahead.pop(node, None)

    def learn(self, node: str, at_ns: int) -> None:
        """Takes the time inside an observation of a node."""
        self._nodes.add(node)
        if not self.now_ns or at_ns - self.now_ns <= _STEP_NS or len(self._nodes) == 1:
            self.now_ns = max(self.now_ns, at_ns)
            self._ahead.pop(node, None)
            return
        if self._is_measured:
            return
        others = [ahead_ns for name, ahead_ns in self._ahead.items() if name != node]
        self._ahead[node] = at_ns
        agreed_ns = min(at_ns, max(others, default=0))
        if agreed_ns > self.now_ns + _STEP_NS:
            self.now_ns = agreed_ns
            self._ahead.clear()
