"""When a node said something. Its clock may be wrong, and may be set between two words."""

from __future__ import annotations

from typing import NamedTuple


class Date(NamedTuple):
    """The date of a word."""

    at_ns: int
    """By the clock of its node."""
    here_ns: int
    """The same moment by the gateway's clock, as far as the node's other messages tell how far the two are apart."""

    def is_before(self, other: Date) -> bool:
        """Whether it lies before another date of the same node, by both clocks.

        One of them alone may have been set, or be known badly.
        """
        return self.at_ns < other.at_ns and self.here_ns < other.here_ns
