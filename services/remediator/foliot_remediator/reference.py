"""The reference time where no probe runs, from the times inside nodes' batches."""

from __future__ import annotations

import collections
import statistics
import time
from typing import TYPE_CHECKING

from foliot.clock import BusClock

if TYPE_CHECKING:
    from foliot_schemas import DelayBatch

_SAMPLES = 31
"""Batches in the median: some tenths of a second of a small fleet, less of a large one."""


class FleetClock:
    """The median of what the last batches say, so that one node's wrong clock changes nothing.

    A `BusClock`, which believes whoever is furthest ahead, would believe a clock that was stepped; and deadlines and the age of events
    are judged by this one. It is late by the bus's delay, some hundred microseconds.
    """

    def __init__(self) -> None:
        self.name = "fleet"
        self._until_known = BusClock()
        self._differences_ns: collections.deque[int] = collections.deque(maxlen=_SAMPLES)
        self._offset_ns: int | None = None

    def learn(self, batch: DelayBatch) -> None:
        """Takes a batch that has just arrived; one of a node that is not synchronised says nothing."""
        if batch.bound_ns >= 0:
            self._differences_ns.append(batch.at_ns - self.local_ns())
            self._offset_ns = statistics.median_low(self._differences_ns)

    def local_ns(self) -> int:
        """CLOCK_MONOTONIC_RAW."""
        return time.clock_gettime_ns(time.CLOCK_MONOTONIC_RAW)

    def now_ns(self) -> int:
        """Reference time; before the first batch, CLOCK_REALTIME as it was when the process started."""
        return self._until_known.now_ns() if self._offset_ns is None else self.local_ns() + self._offset_ns

    def bound_ns(self) -> int:
        """-1: nothing is promised."""
        return -1
