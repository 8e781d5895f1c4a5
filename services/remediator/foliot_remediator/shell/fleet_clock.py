"""The reference time where no probe runs, from the times inside nodes' batches."""

from __future__ import annotations

import collections
import statistics
import time
from typing import TYPE_CHECKING

from foliot.clock import BusClock
from foliot.clock.message_dating import MinimumOffsets

if TYPE_CHECKING:
    from foliot_schemas import DelayBatch

_SAMPLES = 31
"""Batches in the median: some tenths of a second of a small fleet, less of a large one."""
_LATE_NS = 250_000_000
"""A batch that lies this far back has waited in the bus, or before this process while it was stopped. Nodes report
every 100 ms."""
_PATIENCE_NS = 5_000_000_000
"""If for so long only batches came that lie so far back, the reference was set back."""


class FleetClock:
    """The median of what the last batches say, so that one node's wrong clock changes nothing.

    A `BusClock` believes whoever is furthest ahead, so it would believe a clock that was stepped. Deadlines and the age
    of events are judged by this one.

    It is late by the least delay of the bus in the last seconds, some hundred microseconds. A moment in which all
    batches are late does not set it back.
    """

    def __init__(self) -> None:
        self.name = "fleet"
        self._until_known = BusClock()
        self._offsets = MinimumOffsets()
        self._differences_ns: collections.deque[int] = collections.deque(maxlen=_SAMPLES)
        self._offset_ns: int | None = None
        self._late_since_ns: int | None = None

    def learn(self, batch: DelayBatch) -> None:
        """Takes a batch that has just arrived.

        One of long ago, or of a node that is not synchronised, says nothing of the time.
        """
        if batch.bound_ns < 0:
            return
        local_ns = self.local_ns()
        difference_ns = batch.at_ns - local_ns
        if self._offset_ns is not None and difference_ns < self._offset_ns - _LATE_NS:
            if self._late_since_ns is None:
                self._late_since_ns = local_ns
            if local_ns - self._late_since_ns < _PATIENCE_NS:
                return
            self._differences_ns.clear()
            self._offsets = MinimumOffsets()
        self._late_since_ns = None
        said_ns = self._offsets.learn(batch.node, batch.at_ns, local_ns, trusted=False)
        self._differences_ns.append(batch.at_ns - said_ns)
        self._offset_ns = statistics.median_low(self._differences_ns)

    def forget(self, node: str) -> None:
        """Forgets a node that has left the fleet."""
        self._offsets.forget(node)

    def local_ns(self) -> int:
        """CLOCK_MONOTONIC_RAW."""
        return time.clock_gettime_ns(time.CLOCK_MONOTONIC_RAW)

    def now_ns(self) -> int:
        """Reference time; before the first batch, CLOCK_REALTIME as it was when the process started."""
        return self._until_known.now_ns() if self._offset_ns is None else self.local_ns() + self._offset_ns

    def bound_ns(self) -> int:
        """-1: nothing is promised."""
        return -1
