"""How late the loops of all probes were, as their reports say.

It is a histogram without names, so that its size never changes.
"""

from __future__ import annotations

from bisect import bisect_left
from itertools import accumulate

BOUNDS_S = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0)
"""Upper bounds of the buckets, those of the services' own histograms (`foliot.runtime.loop_steps`). A probe's quickest
period is 10 ms."""


class Lateness:
    """Counts reports by `DelayBatch.late_ns`."""

    def __init__(self) -> None:
        self._counts = [0] * (len(BOUNDS_S) + 1)
        self.total_s = 0.0

    def add(self, late_ns: int) -> None:
        """Counts a report."""
        late_s = late_ns * 1e-9
        self._counts[bisect_left(BOUNDS_S, late_s)] += 1
        self.total_s += late_s

    def buckets(self) -> list[tuple[str, float]]:
        """The buckets as Prometheus has them: reports up to each bound."""
        return list(zip((*map(str, BOUNDS_S), "+Inf"), map(float, accumulate(self._counts)), strict=True))
