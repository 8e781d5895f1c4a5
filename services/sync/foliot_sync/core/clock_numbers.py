"""Numbers for the names of clocks, which index arrays."""

from __future__ import annotations


class ClockNumbers(dict[str, int]):
    """The numbers of names, in the order in which they were first asked for."""

    def __missing__(self, name: str) -> int:
        """Gives a new name the next number."""
        number = self[name] = len(self)
        return number
