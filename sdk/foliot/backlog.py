"""What a service does with observations that come faster than it can take them: it leaves the oldest out, and says so."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import structlog

if TYPE_CHECKING:
    import collections

log = structlog.get_logger()

_MOST, _FEW = 8_192, 256
"""Batches that may wait, and how many are left of them then. A fleet of a thousand nodes says 10,000 a second, so the oldest is late by less
than a second when it is left out, and what is read next is recent."""
_SAY_S = 1.0


class Backlog:
    """Of one subscription.

    Parameters:
        counts: `behind` is raised by what is left out.
    """

    def __init__(self, subject: str, counts: collections.Counter[str]) -> None:
        self._subject = subject
        self._counts = counts
        self._is_leaving_out = False
        self._left_out = 0
        self._say_from_s = 0.0

    def is_behind(self, waiting: int) -> bool:
        """Whether the message at hand, with so many waiting behind it, is to be left out."""
        self._is_leaving_out = waiting > (_FEW if self._is_leaving_out else _MOST)
        if not self._is_leaving_out:
            return False
        self._counts["behind"] += 1
        self._left_out += 1
        if time.monotonic() >= self._say_from_s:
            self._say_from_s = time.monotonic() + _SAY_S
            log.warning("fell_behind", subject=self._subject, waiting=waiting, left_out=self._left_out)
        return True
