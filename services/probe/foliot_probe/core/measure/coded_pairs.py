"""The coded-pair filter: two probes sent shortly after each other must arrive with the same gap.

Where they do not, something queued between or before them, and neither is worth a fit. Where they do, the later of the
two stands for both, because they met the same queues. A wrong stamp makes one of them seem too quick, and a fit would
believe that one most. Source: Geng et al., Huygens, NSDI '18; the rule as in US patents 10917229 and 11239993.

That is for stamps that can be wrong either way, as those of NICs. A kernel stamps a packet before it leaves and after
it has come, so no probe seems quicker than it was. Of such stamps the quickest of all probes tell most, and a sieve
would leave out most of these.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

SIEVED = {"hardware": True, "kernel": False, "user": False}
"""Whether stamps of a kind may make a probe seem quicker than it was."""
PAIR_GAP_NS = 1_000_000
"""Greatest gap of a pair. A batch leaves within some hundred microseconds."""
LEAST_TOLERANCE_NS = {"hardware": 25.0, "kernel": 100.0, "user": 5_000.0}
"""Stamps of each kind repeat to within about this, so a finer tolerance would sieve noise."""
_QUARTILE_FACTOR = 6.0
"""The tolerance is so many times the lower quartile of the differences.

Where nothing queues, nearly all pairs pass, if noise is near normal.
"""
_MOST_TIMES = 4.0
"""The tolerance is at most so many times `LEAST_TOLERANCE_NS`.

Where hardly any pair is pure, the distribution of all tells nothing of those.
"""
_FORGOTTEN = 1.02
"""The factor by which the tolerance grows again with each direction of a window.

It doubles in some 35 s of two-second windows.
"""


class CodedPairs:
    """The filter of a node, which remembers how well the stamps repeat when nothing queues."""

    def __init__(self) -> None:
        self._tolerance_ns = np.inf

    def sift(
        self,
        row: NDArray[np.intp],
        sequence: NDArray[np.int64],
        transmit_ns: NDArray[np.int64],
        receive_ns: NDArray[np.int64],
        least_ns: NDArray[np.float64],
    ) -> NDArray[np.bool_]:
        """Selects the probes of one direction that stand for a pure pair. They may come in any order.

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
        pure[order[np.where(difference >= 0, first + 1, first)[same]]] = True
        return pure

    def _tolerance(self, difference: NDArray[np.int64]) -> float:
        """By how much the gaps of a pure pair may differ, from the distributions of all differences seen lately."""
        quartile = float(np.quantile(difference, 0.25, method="lower"))
        self._tolerance_ns = min(self._tolerance_ns * _FORGOTTEN, _QUARTILE_FACTOR * quartile)
        return self._tolerance_ns
