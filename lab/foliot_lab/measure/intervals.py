"""Sets of times, as intervals of lab time in ns: joined, and measured within a span."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

Interval = tuple[int, int]
"""Beginning and end."""


class Intervals:
    """Disjoint intervals in their order. Those given may overlap; empty and reversed ones are left out."""

    def __init__(self, given: Iterable[Interval] = ()) -> None:
        self._parts: list[Interval] = []
        for since, until in sorted(given):
            if until <= since:
                continue
            if self._parts and since <= self._parts[-1][1]:
                self._parts[-1] = (self._parts[-1][0], max(self._parts[-1][1], until))
            else:
                self._parts.append((since, until))

    def __iter__(self) -> Iterator[Interval]:
        return iter(self._parts)

    def __or__(self, other: Intervals) -> Intervals:
        return Intervals([*self, *other])

    def within(self, since_ns: int, until_ns: int) -> int:
        """The length of the part of a span that they cover."""
        return sum(max(0, min(until, until_ns) - max(since, since_ns)) for since, until in self._parts)

    def longer(self, by_ns: int) -> Intervals:
        """The same intervals, each with its end so much later."""
        return Intervals((since, until + by_ns) for since, until in self._parts)
