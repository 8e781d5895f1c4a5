"""Schedules work: on nodes in rounds, or a moment after a node was named, and on anything at a time of its own.

None costs more with the size of the fleet than with the number of those whose turn has come.
"""

from __future__ import annotations

import collections
import heapq
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable


class Round:
    """Nodes in a round: each one's turn comes once per interval, or later where there is no time for all of them."""

    def __init__(self, interval_ns: int) -> None:
        self._interval_ns = interval_ns
        self._looked_ns: collections.OrderedDict[str, int] = collections.OrderedDict()
        """The longest ago first."""

    def __contains__(self, node: str) -> bool:
        """Whether it takes part."""
        return node in self._looked_ns

    def join(self, node: str) -> None:
        """Adds a node; it is next."""
        self._looked_ns[node] = 0
        self._looked_ns.move_to_end(node, last=False)

    def wait(self, node: str, now_ns: int) -> None:
        """Adds a node, or puts it off; its turn comes an interval from now."""
        self._looked_ns[node] = now_ns
        self._looked_ns.move_to_end(node)

    def leave(self, node: str) -> None:
        """Removes a node."""
        self._looked_ns.pop(node, None)

    def begin_anew(self) -> None:
        """Makes it every node's turn at once, in the same order."""
        self._looked_ns = collections.OrderedDict.fromkeys(self._looked_ns, 0)

    def take(self, now_ns: int) -> str | None:
        """The node whose turn it is; None: nobody's."""
        if not self._looked_ns:
            return None
        node, looked_ns = next(iter(self._looked_ns.items()))
        if now_ns - looked_ns < self._interval_ns:
            return None
        self.wait(node, now_ns)
        return node


class Soon:
    """Nodes whose turn comes a gap after they were first named. To be named again until then changes nothing."""

    def __init__(self, gap_ns: int) -> None:
        self._gap_ns = gap_ns
        self._named: dict[str, None] = {}
        self._due_ns: dict[str, int] = {}

    def name(self, nodes: Iterable[str]) -> None:
        """Names nodes to be seen to."""
        self._named.update(dict.fromkeys(nodes))

    def leave(self, node: str) -> None:
        """Removes a node."""
        self._named.pop(node, None)
        self._due_ns.pop(node, None)

    def take(self, now_ns: int) -> str | None:
        """A node whose turn it is; None: nobody's. The gap of those named since the last call begins now."""
        for node in self._named:
            self._due_ns.setdefault(node, now_ns + self._gap_ns)
        self._named.clear()
        first = next(iter(self._due_ns.items()), None)
        if first is None or now_ns < first[1]:
            return None
        del self._due_ns[first[0]]
        return first[0]


class DueQueue:
    """Names, each of which is due once, at the time that it was given last."""

    def __init__(self) -> None:
        self._due_ns: dict[str, int] = {}
        self._heap: list[tuple[int, str]] = []
        """Times and names. Some have been given another time since."""

    def put(self, name: str, at_ns: int) -> None:
        """Names what is due at a time, and not at another one any more."""
        self._due_ns[name] = at_ns
        heapq.heappush(self._heap, (at_ns, name))

    def take(self, now_ns: int) -> list[str]:
        """The names that are due, by their times. They are due no more."""
        due = []
        while self._heap and self._heap[0][0] <= now_ns:
            at_ns, name = heapq.heappop(self._heap)
            if self._due_ns.get(name) == at_ns:
                del self._due_ns[name]
                due.append(name)
        return due
