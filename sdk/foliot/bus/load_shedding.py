"""Sheds load: where observations come faster than a service takes them, it drops the oldest and says so."""

from __future__ import annotations

import time
from collections import deque
from typing import TYPE_CHECKING

import structlog

if TYPE_CHECKING:
    import collections

log = structlog.get_logger()

LATE_S, _RECENT_S = 1.0, 0.2
"""How long ago a batch may have come, and how recent the first is that is taken after some were left out. Observations
about the same trouble come over several subscriptions. Where one of these lags far behind another, a port is back
before the silence of its paths is heard."""
_MOST, _FEW = 8_192, 256
"""The same limits as numbers of waiting batches, for the memory that they take. The first is for each second that they
may be late."""
_MARK_S = 0.05
_SAY_S = 1.0


class LoadShedding:
    """Sheds the load of one subscription: batches that came more than `late_s` ago, which it counts as `behind`."""

    def __init__(self, subject: str, counts: collections.Counter[str], late_s: float = LATE_S) -> None:
        self._subject = subject
        self._counts = counts
        self._longest_s = late_s
        self._most = round(_MOST * late_s / LATE_S)
        self._marks: deque[tuple[float, int]] = deque()
        """Times, and how many messages had come by then."""
        self._taken = 0
        self._is_leaving_out = False
        self._left_out = 0
        self._say_from_s = 0.0

    def is_behind(self, waiting: int) -> bool:
        """Whether the message at hand, with so many waiting behind it, is to be left out."""
        now_s = time.monotonic()
        late_s = self._late_s(waiting, now_s)
        most, longest_s = (_FEW, _RECENT_S) if self._is_leaving_out else (self._most, self._longest_s)
        self._is_leaving_out = waiting > most or late_s > longest_s
        if not self._is_leaving_out:
            return False
        self._counts["behind"] += 1
        self._left_out += 1
        if now_s >= self._say_from_s:
            self._say_from_s = now_s + _SAY_S
            log.warning(
                "fell_behind", subject=self._subject, waiting=waiting, late_s=round(late_s, 2), left_out=self._left_out
            )
        return True

    def _late_s(self, waiting: int, now_s: float) -> float:
        """The least time that the message at hand has waited."""
        self._taken += 1
        marks = self._marks
        if not marks or now_s - marks[-1][0] >= _MARK_S:
            marks.append((now_s, self._taken + waiting))
        while marks and marks[0][1] < self._taken:  # the message came after that mark
            marks.popleft()
        return now_s - marks[0][0] if marks else 0.0
