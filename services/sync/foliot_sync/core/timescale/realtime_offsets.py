"""Offsets of the hosts' CLOCK_REALTIME from the common time, and UTC by the hosts that have it."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from foliot_sync.core.timescale.time_map import measured_ns
from foliot_sync.core.timescale.utc_phase import agree
from foliot_sync.settings import NANOSECONDS

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from foliot_sync.core.fit.shard_fit import Heard
    from foliot_sync.core.timescale.time_map import Seen, TimeMap
    from foliot_sync.core.timescale.utc_phase import Agreed

_LEAST_ERROR_NS = 1_000.0
"""Least error of a host's UTC. No daemon knows better how far a system clock is off, and some say 0."""


class RealtimeOffset(NamedTuple):
    """A node's report of its CLOCK_REALTIME."""

    local_ns: int
    epoch_ns: int
    """CLOCK_REALTIME minus local time."""
    utc_error_ns: int
    """-1: it does not have UTC."""
    rate_ppb: float | None
    """By how much CLOCK_REALTIME has run faster than the clock since the node's last report, if it had UTC then, too."""


class RealtimeOffsets:
    """The latest report of every node."""

    def __init__(self) -> None:
        self._realtime: dict[str, RealtimeOffset] = {}
        self._heard: set[str] = set()
        """Nodes whose reports are of this window."""

    def hear(self, node: Heard) -> None:
        """Takes a node's report."""
        before, rate_ppb = self._realtime.get(node.node), None
        if before is not None and node.until_ns == before.local_ns:
            rate_ppb = before.rate_ppb  # A further part of the same window.
        # A clock that has just got UTC may have been set to it.
        elif (
            before is not None and node.until_ns > before.local_ns and min(before.utc_error_ns, node.utc_error_ns) >= 0
        ):
            gained_ns = node.epoch_ns - before.epoch_ns
            rate_ppb = gained_ns / (node.until_ns - before.local_ns) * NANOSECONDS
        self._realtime[node.node] = RealtimeOffset(node.until_ns, node.epoch_ns, node.utc_error_ns, rate_ppb)
        self._heard.add(node.node)

    def forget_whom(self) -> None:
        """Forgets which nodes have reported: the window is over."""
        self._heard.clear()

    def epoch_ns(self, name: str) -> int:
        """CLOCK_REALTIME of a clock's host minus its local time; 0: not known."""
        wall = self._realtime.get(name)
        return 0 if wall is None else wall.epoch_ns

    def with_utc(self, seen: Seen, which: NDArray[np.bool_]) -> list[int]:
        """The clocks among these whose hosts said in this window that they have UTC."""
        return [number for number, wall in self._of(seen, np.flatnonzero(which).tolist()) if wall.utc_error_ns >= 0]

    def away_ns(self, seen: Seen, numbers: list[int], time_map: TimeMap) -> NDArray[np.float64]:
        """CLOCK_REALTIME minus the common time, of those of these clocks whose hosts have spoken in this window."""
        away = [
            wall.local_ns + wall.epoch_ns - time_map.of(measured_ns(seen.tracks, number, wall.local_ns))
            for number, wall in self._of(seen, numbers)
        ]
        return np.array(away, np.float64)

    def off_utc(self, seen: Seen, numbers: list[int], time_map: TimeMap) -> Agreed | None:
        """UTC minus the common time, if most of these clocks' hosts, which have it, agree."""
        errors = np.array([wall.utc_error_ns for _, wall in self._of(seen, numbers)], np.float64)
        return agree(self.away_ns(seen, numbers, time_map), errors + _LEAST_ERROR_NS + seen.bound_ns[numbers])

    def rate_ppb(self, seen: Seen, numbers: list[int], time_map: TimeMap) -> float | None:
        """The gain of CLOCK_REALTIME on the common time, in ppb, by the median of these clocks' hosts; None: unknown."""
        rates = [
            wall.rate_ppb - time_map.drift_ppb(float(seen.tracks.drift_ppb[number]))
            for number, wall in self._of(seen, numbers)
            if wall.rate_ppb is not None
        ]
        return float(np.median(rates)) if rates else None

    def _of(self, seen: Seen, numbers: list[int]) -> list[tuple[int, RealtimeOffset]]:
        named = ((number, seen.names[number]) for number in numbers)
        return [(number, self._realtime[name]) for number, name in named if name in self._heard]
