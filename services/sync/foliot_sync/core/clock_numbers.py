"""Numbers for the names of clocks, which index arrays."""

from __future__ import annotations


class ClockNumbers(dict[str, int]):
    """Names, in the order in which they were asked for first."""

    def __missing__(self, name: str) -> int:
        """The next number."""
        number = self[name] = len(self)
        return number
