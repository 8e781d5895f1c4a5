"""How long what was lost must be good before it is used again. Each loss doubles it, with no cap on attempts."""

from __future__ import annotations

from typing import NamedTuple

_MOST_DOUBLINGS = 32
"""Beyond it every hold is the longest one anyway."""


class HoldDown(NamedTuple):
    """The length of a probation, in ns."""

    first_ns: int
    longest_ns: int
    forget_ns: int
    """Strikes are forgotten after this long in UP."""

    def after(self, strikes: int) -> int:
        """The hold after so many losses: doubled with each, up to the longest."""
        doublings = min(max(strikes - 1, 0), _MOST_DOUBLINGS)
        return min(self.first_ns << doublings, self.longest_ns)
