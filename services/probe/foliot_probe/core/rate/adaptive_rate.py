"""The rate at which each pair of clocks is measured: as accuracy needs, between a least and a most.

The rate doubles as soon as the least delays lie further apart than is wanted. It halves once they would have been close
enough at half the rate for some windows in a row. So a level that was too slow is tried again only a while later. Where
two levels are nearly right, they take turns at most.

A clock that sync does not know, because it is new or was stepped, is measured at the most. A peer or a sync that is
silent is measured at the least. A window of too few probes changes nothing: a host without time is not given more to
do. The simulated fabric of `bench.clock_sim` has 40 NICs. There, pairs settle at 3.125 coded pairs a second without
load, at 12.5 at 40 % and at 25 from 60 % on.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from foliot_probe.core.rate.clock_neighbours import Pair
    from foliot_probe.core.rate.delay_density import DelayDensity

CALM = 5
"""Calm windows in a row before a pair is measured less often: ten seconds.

Bursts of a training step come within a second or two of each other.
"""


class Sight(NamedTuple):
    """The measurements of a window's streams, per row."""

    density: DelayDensity
    wanted_ns: NDArray[np.float64]
    """How far apart the least delays may lie."""
    trusted: NDArray[np.bool_]
    """Sync knows the clocks of both ends."""
    awake: bool
    """Sync has spoken lately."""


class _Pace:
    """The rate of one pair."""

    def __init__(self) -> None:
        self.level = 0
        """How many times the highest rate has been halved."""
        self.calm = 0


class AdaptiveRates:
    """The rates of a node's pairs of clocks: coded pairs a second on each stream.

    Each begins at the most, so that a new clock settles soon.
    """

    def __init__(self, least_hz: float, most_hz: float) -> None:
        self._least_ms, self._most_ms = 1_000 / least_hz, 1_000 / most_hz
        self._slowest = max(0, math.ceil(math.log2(most_hz / least_hz)))
        self._paces: dict[Pair, _Pace] = {}

    def keep(self, pairs: Mapping[Pair, object]) -> None:
        """Forget all other pairs, and begin with those that are new."""
        self._paces = {pair: self._paces.get(pair) or _Pace() for pair in pairs}

    def interval_ms(self, pair: Pair) -> int:
        """The time between two coded pairs of a pair's streams, in ms."""
        return max(1, round(min(self._most_ms * (1 << self._paces[pair].level), self._least_ms)))

    def judge(self, rows: Mapping[Pair, Sequence[int]], sight: Sight) -> None:
        """Take a window into account."""
        for pair, streams in rows.items():
            self._judge(self._paces[pair], np.array(streams, np.intp), sight)

    def _judge(self, pace: _Pace, rows: NDArray[np.intp], sight: Sight) -> None:
        trusted = bool(sight.trusted[rows].all())
        apart = _together(sight.density.ns[rows] / sight.wanted_ns[rows])
        if not sight.density.heard[rows].any() or not (trusted or sight.awake):
            self._calm(pace)  # No peer answers, or nobody reads the results.
        elif not trusted:
            pace.level = pace.calm = 0
        elif math.isinf(apart):
            # Too few probes came: one of the hosts has no time to spare, and would have less at a higher rate.
            pace.calm = 0
        elif apart > 1:
            pace.level, pace.calm = max(0, pace.level - 1), 0
        elif _together(sight.density.halved_ns[rows] / sight.wanted_ns[rows]) > 1:
            pace.calm = 0
        else:
            self._calm(pace)

    def _calm(self, pace: _Pace) -> None:
        pace.calm += 1
        if pace.calm >= CALM:
            pace.level, pace.calm = min(self._slowest, pace.level + 1), 0


def _together(sigma: NDArray[np.float64]) -> float:
    """The uncertainty of these streams together, weighed as sync weighs them."""
    return float(np.sum(np.maximum(sigma, 1e-9) ** -2.0) ** -0.5) if np.isfinite(sigma).any() else math.inf
