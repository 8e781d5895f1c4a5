"""The coded-pair filter: two probes sent shortly after each other must arrive with the same gap.

Where they do not, something queued between or before them, and neither is worth a fit. Where they do, the later of the two stands for both,
because they met the same queues. A wrong stamp makes one of them seem too quick, and a fit would believe that one most. Source: Geng et al.,
Huygens, NSDI '18; the rule as in US patents 10917229 and 11239993.

That holds where pure pairs stand apart from the others. A slow machine delays each probe of a pair by an amount of its own, queues or not.
The differences then spread evenly over far more than any tolerance. Pairs fall within it by chance, and choosing them would leave out the
quickest probes.

The first packet of a tick finds cold caches, and takes longer than the next one. A stream that is alone in its tick always has the first one. So where
the first probes of a stream's pairs are usually the slower ones, the second one stands for a pair, unless it is quicker than usual.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

PAIR_GAP_NS = 1_000_000
"""Greatest gap of a pair. A batch leaves within some hundred microseconds."""
LEAST_TOLERANCE_NS = {"hardware": 25.0, "kernel": 100.0, "user": 5_000.0}
"""Stamps of each kind repeat to within about this, so a finer tolerance would sieve noise."""
_QUARTILE_FACTOR = 6.0
"""The tolerance is so many times the lower quartile of the differences. Where nothing queues, nearly all pairs pass, if noise is near normal."""
_MOST_TIMES = 4.0
"""The tolerance is at most so many times `LEAST_TOLERANCE_NS`. Where hardly any pair is pure, the distribution of all tells nothing of those."""
_FORGOTTEN = 1.02
"""The factor by which the tolerance grows again with each direction of a window. It doubles in some 35 s of two-second windows."""
_APART = 1.5
"""Below this ratio of pairs within twice the tolerance to pairs within it, pure pairs stand apart. It lies halfway: where they stand apart, the
ratio is hardly above 1. Where differences spread evenly, it is 2."""
_PRIOR = 4.0
"""Pairs that stand apart, added to those of a stream, because a few pairs say nothing."""
_MOST_PAIRS = 0.75
"""Of a stream's pure pairs, in which the first probe is slower, before it is so as a rule: of 50, chance makes as many in one window of thousands."""
_KEPT = 0.9
"""The share of a stream's counts in a direction that is left after each window: they reach back some ten windows."""


class CodedPairs:
    """The filter of a node, which remembers how well the stamps repeat when nothing queues."""

    def __init__(self) -> None:
        self._tolerance_ns = np.inf
        self._within = np.zeros((2, 2, 0))
        """Remembered counts of pairs within the tolerance and within twice of it: axes direction, count, row."""

    def forget(self, row: int) -> None:
        """A stream ended; its row may become another's."""
        if row < self._within.shape[2]:
            self._within[:, :, row] = 0.0

    def sift(
        self,
        row: NDArray[np.intp],
        sequence: NDArray[np.int64],
        transmit_ns: NDArray[np.int64],
        receive_ns: NDArray[np.int64],
        least_ns: NDArray[np.float64],
        *,
        direction: int = 0,
    ) -> NDArray[np.bool_]:
        """Selects the probes of one direction (0 or 1) that stand for a pure pair. They may come in any order.

        Stamps of each end are by that end's clock. `least_ns` says for each probe how well its stamps repeat at best.
        """
        pure = np.zeros(len(row), np.bool_)
        order = np.lexsort((sequence, row))
        transmit_gap = np.diff(transmit_ns[order])
        paired = (
            (np.diff(row[order]) == 0)
            & (np.diff(sequence[order]) == 1)
            & (transmit_gap > 0)
            & (transmit_gap <= PAIR_GAP_NS)
        )
        first = np.flatnonzero(paired)
        if not len(first):
            return pure
        difference = np.diff(receive_ns[order])[first] - transmit_gap[first]
        least = least_ns[order[first]]
        tolerance = np.clip(self._tolerance(np.abs(difference)), least, _MOST_TIMES * least)
        same = np.abs(difference) < tolerance
        same &= self._stand_apart(row[order[first]], same, np.abs(difference) < 2 * tolerance, direction)
        usual = _usual(row[order[first]], difference, same)
        pure[order[np.where(difference >= usual, first + 1, first)[same]]] = True
        return pure

    def _stand_apart(
        self, row: NDArray[np.intp], same: NDArray[np.bool_], near: NDArray[np.bool_], direction: int
    ) -> NDArray[np.bool_]:
        """Selects the pairs of streams whose pure pairs, `same` of all that are `near`, stand apart in both directions."""
        missing = int(row.max()) + 1 - self._within.shape[2]
        if missing > 0:
            self._within = np.concatenate((self._within, np.zeros((2, 2, missing))), axis=2)
        rows = self._within.shape[2]
        counts = np.stack([np.bincount(row, weights=each, minlength=rows) for each in (same, near)])
        self._within[direction] = _KEPT * self._within[direction] + counts
        once, twice = self._within[:, 0] + _PRIOR, self._within[:, 1] + _PRIOR
        # A sieve in one direction alone would make that one seem the longer.
        apart: NDArray[np.bool_] = np.logical_and(*(twice < _APART * once))
        return apart[row]

    def _tolerance(self, difference: NDArray[np.int64]) -> float:
        """By how much the gaps of a pure pair may differ, from the distributions of all differences seen lately."""
        quartile = float(np.quantile(difference, 0.25, method="lower"))
        self._tolerance_ns = min(self._tolerance_ns * _FORGOTTEN, _QUARTILE_FACTOR * quartile)
        return self._tolerance_ns


def _usual(row: NDArray[np.intp], difference: NDArray[np.int64], same: NDArray[np.bool_]) -> NDArray[np.int64]:
    """Returns for each pair how much longer second probes of its stream usually take than first ones: the median of its pure pairs, or 0."""
    rows, kept = row[same], difference[same]
    order = np.lexsort((kept, rows))
    counts = np.bincount(rows, minlength=int(row.max()) + 1)
    there = np.flatnonzero(counts)
    start, usual = (np.cumsum(counts) - counts)[there], np.zeros(len(counts), np.int64)
    median, most = (kept[order[start + (counts[there] * share).astype(np.int64)]] for share in (0.5, _MOST_PAIRS))
    usual[there] = np.where(most < 0, median, 0)
    return usual[row]
