"""The round trips of streams, which show whose clock is near: under the same leaf there are fewer queues on the way.

A least round trip needs no right clock: what a clock's error adds to one direction, it takes from the other.
"""

from __future__ import annotations

import collections
from typing import TYPE_CHECKING

import numpy as np

from foliot.columns import blank, widen
from foliot_probe.core.measure.one_way_delay import one_way_ns
from foliot_probe.core.measure.sessions import joined
from foliot_probe.core.rate.clock_neighbours import NEAR, Pair

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from foliot_probe.core.measure.one_way_delay import References
    from foliot_probe.core.measure.sessions import Completed
    from foliot_probe.core.stream_table import StreamEnds

WINDOWS = 30
"""Windows after which the near clocks are chosen anew: a minute. In as many, a path probed five times a second has met empty queues at 80 % load."""
_WITHIN, _STAYS_WITHIN = 1.1, 1.2
"""How much longer than the shortest round trips a near clock's may be, and one's that has been near. Two switches more make a tenth where the
kernel takes stamps, and twice as much and more where NICs do. Under one leaf, cables and noise make a few hundredths."""
_UNKNOWN_NS = np.iinfo(np.int64).max // 2


class RoundTrips:
    """The least round trip of each row's stream, of the last one to two minutes."""

    def __init__(self, rows: int) -> None:
        self._present_ns = np.zeros(rows, np.int64)
        """In the present minute; 0: not known."""
        self._former_ns = np.zeros(rows, np.int64)
        """In the one before."""
        self._windows = 0
        self._near: frozenset[Pair] = frozenset()

    def grow(self, rows: int) -> None:
        """Make room for this many rows."""
        widen(self, rows)

    def forget(self, row: int) -> None:
        """The row's stream has ended."""
        blank(self, row)

    def take(self, probes: Sequence[Sequence[Completed]], own: References, peers: References) -> bool:
        """Take a window's probes; says whether a minute is over, and near clocks are to be chosen.

        Parameters:
            probes: of the window, on the outgoing and on the incoming paths.
            own, peers: the references of the clocks of both ends. Rows without a reference do not count.
        """
        rows = len(self._present_ns)
        least_ns = np.full((2, rows), _UNKNOWN_NS)
        for least, some, sender, receiver in zip(least_ns, probes, (own, peers), (peers, own), strict=True):
            row, delay_ns = one_way_ns(joined(some), receiver, sender)
            np.minimum.at(least, row, delay_ns)
        trip_ns = least_ns.sum(axis=0)
        known = (least_ns < _UNKNOWN_NS).all(axis=0) & (trip_ns > 0)
        self._present_ns = _shorter(self._present_ns, np.where(known, trip_ns, 0))
        self._windows += 1
        return self._windows % WINDOWS == 0

    def near(self, ends: Sequence[StreamEnds | None]) -> frozenset[Pair]:
        """The clocks that are near each of the node's own ones, and none where too few are known. Begins the next minute."""
        trip_ns = _shorter(self._present_ns, self._former_ns)
        self._former_ns, self._present_ns = self._present_ns, np.zeros_like(self._present_ns)
        of_clock: dict[str, dict[Pair, int]] = collections.defaultdict(dict)
        for row in np.flatnonzero(trip_ns[: len(ends)]).tolist():
            if (each := ends[row]) is not None:
                pair, found = Pair(each.own_clock, each.peer_clock), of_clock[each.own_clock]
                found[pair] = min(found.get(pair, _UNKNOWN_NS), int(trip_ns[row]))
        self._near = frozenset(pair for found in of_clock.values() for pair in self._nearest(found))
        return self._near

    def _nearest(self, found: Mapping[Pair, int]) -> list[Pair]:
        if len(found) <= NEAR:
            return []
        reach_ns = sorted(found.values())[NEAR - 1]
        return [
            pair
            for pair, trip_ns in found.items()
            if trip_ns <= reach_ns * (_STAYS_WITHIN if pair in self._near else _WITHIN)
        ]


def _shorter(one_ns: NDArray[np.int64], other_ns: NDArray[np.int64]) -> NDArray[np.int64]:
    """The shorter of two, or the one that is known."""
    known = (one_ns > 0) & (other_ns > 0)
    return np.where(known, np.minimum(one_ns, other_ns), np.maximum(one_ns, other_ns))
