"""How long the collectives of a group take now, beside what they usually take."""

from __future__ import annotations

import statistics
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from foliot_detector.core.detectors.rank_straggler.own_time import Excess

_PACES, _LEAST_PACES = 30, 3
_LASTING = 60
"""Windows after which a longer time is a job's usual one."""


@dataclass(slots=True)
class Pace:
    """How long the collectives of a group take, by windows."""

    usual_ns: deque[float] = field(default_factory=lambda: deque(maxlen=_PACES))
    """Of windows that were as long as those before, and in which no process was stopped."""
    longer: int = 0
    """Windows since then."""

    def slowdown(self, window: Excess, share: float, *, is_disturbed: bool) -> float:
        """By what share of a window its collectives took longer than usual. What lasts becomes usual."""
        pace_ns = window.window_ns / window.numbers
        usual_ns = statistics.median(self.usual_ns) if len(self.usual_ns) >= _LEAST_PACES else pace_ns
        slowdown = 1 - usual_ns / pace_ns
        if is_disturbed:
            return slowdown
        self.longer = self.longer + 1 if slowdown >= share else 0
        if self.longer > _LASTING:
            self.usual_ns.clear()
        if not self.longer or self.longer > _LASTING:
            self.usual_ns.append(pace_ns)
        return slowdown
