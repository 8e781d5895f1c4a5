"""Names by number, so that arrays can have a place for each."""

from __future__ import annotations


class ClockNumbers(dict[str, int]):
    """Names, in the order in which they were asked for first."""

    def __missing__(self, name: str) -> int:
        """The next number."""
        number = self[name] = len(self)
        return number
