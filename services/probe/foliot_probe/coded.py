"""The coded-pair filter: two probes sent shortly after each other must arrive with the same gap.

Where they do not, something queued between or before them and neither is worth a fit. Probes without a partner pass: their lot
is decided by the fit, which rests on the least delays. Source: Geng et al., Huygens, NSDI '18; the rule as in
US patents 10917229 and 11239993.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

PAIR_GAP_NS = 1_000_000
"""Two probes further apart are no pair; a batch leaves within some hundred microseconds."""
LEAST_TOLERANCE_NS = 100
"""Kernel stamps repeat to within about this, so that a finer tolerance would sieve noise."""
_QUARTILE_FACTOR = 3.0
"""Of the lower quartile: as long as a quarter of the pairs is pure, which holds under heavy load, the tolerance follows them,
and three times the typical noise lets nearly all of them pass."""


def pure(
    row: NDArray[np.intp],
    sequence: NDArray[np.int64],
    transmit_ns: NDArray[np.int64],
    receive_ns: NDArray[np.int64],
) -> NDArray[np.bool_]:
    """Which of these probes of one direction to keep, in any order; stamps of each end by that end's clock."""
    keep = np.ones(len(row), np.bool_)
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
        return keep
    difference = np.abs(np.diff(receive_ns[order])[first] - transmit_gap[first])
    impure = first[difference >= tolerance_ns(difference)]
    keep[order[impure]] = False
    keep[order[impure + 1]] = False
    return keep


def tolerance_ns(difference: NDArray[np.int64]) -> float:
    """By how much the gaps of a pure pair may differ, from the distribution of all differences seen (ns, at least one)."""
    quartile = float(np.quantile(difference, 0.25, method="lower"))
    return max(LEAST_TOLERANCE_NS, _QUARTILE_FACTOR * quartile)
