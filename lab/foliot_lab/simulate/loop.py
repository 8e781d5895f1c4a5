"""Virtual time: a queue of calls, ordered by their due times."""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

START_NS = 1_700_000_000_000_000_000
"""A date of this decade, so that times have the size that they have in service."""
MS = 1_000_000
SECOND = 1_000 * MS


class Loop:
    """Does one thing after the other, each at its time. Its state can be pickled if all calls are bound methods."""

    def __init__(self) -> None:
        self.now_ns = START_NS
        self._waiting: list[tuple[int, int, Callable[..., None], tuple[Any, ...]]] = []
        self._count = 0

    def at(self, at_ns: int, work: Callable[..., None], *arguments: Any) -> None:
        """Schedules a call, for now if its time is past.

        Of two calls at the same time, the one scheduled first runs first.
        """
        self._count += 1
        heapq.heappush(self._waiting, (max(at_ns, self.now_ns), self._count, work, arguments))

    def run(self, until_ns: int) -> None:
        """Lets time pass up to a moment."""
        while self._waiting and self._waiting[0][0] <= until_ns:
            self.now_ns, _, work, arguments = heapq.heappop(self._waiting)
            work(*arguments)
        self.now_ns = max(self.now_ns, until_ns)
