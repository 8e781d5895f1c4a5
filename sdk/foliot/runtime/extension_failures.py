"""Counts the failures of extensions' parts.

They are logged once a while, and a part that fails again and again is left out for a time.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

_SAID_EVERY_NS = 60_000_000_000
"""Least time between two logs of a part. A part that fails with every message would fill the log."""
_FREE = 3
"""Failures in a row after which a part still sees the next message: a few messages may be odd."""
_FIRST_REST_NS, _LONGEST_REST_NS = 1_000_000_000, 60_000_000_000
"""From the next failure on, a part is left out for this long, and for twice as long each time, up to the longest."""
_MOST_DOUBLINGS = 6
_FORGIVEN_NS = 60_000_000_000
"""A part that has not failed for this long since it was let in again counts as one that never failed."""


class Failure(NamedTuple):
    """The failures of a part that are to be logged."""

    part: str
    reason: str
    """The last failure's."""
    failures: int
    """Their number since the last log."""
    left_out_s: float
    """How long the part is left out from the last failure on; 0: not at all."""


@dataclass(slots=True)
class _Part:
    in_a_row: int = 0
    at_ns: int = 0
    until_ns: int = 0
    unsaid: int = 0
    said_ns: int | None = None
    reason: str = ""


class ExtensionFailures:
    """Failures by the name of the part. All times are by the caller's clock."""

    def __init__(self) -> None:
        self._parts: dict[str, _Part] = {}

    def is_left_out(self, name: str, now_ns: int) -> bool:
        """Whether a part is left out now."""
        part = self._parts.get(name)
        return part is not None and part.at_ns <= now_ns < part.until_ns

    def note(self, name: str, error: Exception, now_ns: int) -> None:
        """Notes that a part has failed."""
        part = self._parts.setdefault(name, _Part())
        if now_ns - max(part.at_ns, part.until_ns) >= _FORGIVEN_NS:
            part.in_a_row = 0
        part.in_a_row += 1
        over = part.in_a_row - _FREE
        rest_ns = min(_FIRST_REST_NS << min(over - 1, _MOST_DOUBLINGS), _LONGEST_REST_NS) if over > 0 else 0
        part.at_ns, part.until_ns = now_ns, now_ns + rest_ns
        part.unsaid += 1
        part.reason = f"{type(error).__name__}: {error}"

    def news(self, now_ns: int) -> list[Failure]:
        """Takes the failures to log: of each part its first one, and once a minute how many there were since."""
        found = []
        for name, part in self._parts.items():
            if part.unsaid and (part.said_ns is None or not 0 <= now_ns - part.said_ns < _SAID_EVERY_NS):
                left_out_s = (part.until_ns - part.at_ns) / 1e9
                found.append(Failure(name, part.reason, part.unsaid, left_out_s))
                part.unsaid, part.said_ns = 0, now_ns
        return found
