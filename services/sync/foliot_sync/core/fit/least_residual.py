"""The least credible residual of a cloud on its line, and its possible distance from the floor."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from foliot_sync.core.arrays import Floats


_MOST_LEFT_OUT = 2
"""Points below the line that are not believed: of 100 stamps of a NIC, one or two are wrong by up to a hundred
nanoseconds."""
_WRONG = 40.0
"""No stamp is wrong by more than so many times the usual noise. A queue makes a wider gap."""
_NEXT = 5
"""Gaps between the residuals above a point, whose mean the gap below them is compared with."""
_FAR = 6.0
"""A point that lies so many times that mean below the next does not belong to the others. Where queues alone make the
gaps, one in 60 is left out wrongly, and the next takes its place."""
_AVERAGED = 8
"""Points whose mean height counts. A probe keeps ten layers, of which two points may be left out."""
_SPACINGS = 5
"""Gaps whose mean tells how far the least residual may lie above the floor; one alone is too noisy."""


class LeastResidual(NamedTuple):
    """The least residual of each side."""

    value: Floats
    """The least one that is believed, in ns."""
    spacing: Floats
    """Mean gap between the residuals next to it.

    For a tail that falls exponentially, it is expected so far above the floor. inf without others.
    """
    rise: Floats
    """Mean height of the lowest points above the least, that one included; nan: there are too few, or nobody asked."""


def lowest(residuals: Floats, noise_ns: Floats, *, averaged: bool = False) -> LeastResidual:
    """The least credible residual of each side, from its points' heights above a line; inf where a row has no more.

    A residual far below all others is a stamp that was wrong. It has to be farther than noise and the others' gaps
    explain.

    Parameters:
        residuals: one row a side; inf where there is no point.
        noise_ns: of the stamps of each side.
        averaged: whether to tell the mean height of the lowest points too, which takes time.
    """
    wanted = _MOST_LEFT_OUT + (_AVERAGED if averaged else _NEXT + 1)
    if residuals.shape[1] > wanted:
        residuals = np.partition(residuals, wanted - 1, axis=1)[:, :wanted]
    residuals = np.sort(residuals, axis=1)
    missing = wanted - residuals.shape[1]
    if missing > 0:
        residuals = np.concatenate((residuals, np.full((len(residuals), missing), np.inf)), axis=1)
    there = np.where(np.isfinite(residuals), residuals, np.nan)
    gaps = np.diff(there[:, : _MOST_LEFT_OUT + _NEXT + 1], axis=1)
    first = np.zeros(len(residuals), np.intp)
    for place in range(_MOST_LEFT_OUT):
        usual = gaps[:, place + 1 : place + 1 + _NEXT].mean(axis=1)
        gap = gaps[:, place]
        alone = (gap > _FAR * usual + 2 * noise_ns) & (gap < _WRONG * noise_ns)
        first = np.where(alone, place + 1, first)  # never where one is missing: nan
    rows = np.arange(len(residuals))
    value = residuals[rows, first]
    others = np.minimum(_SPACINGS, np.maximum(np.isfinite(residuals).sum(axis=1) - 1 - first, 0))
    alone = others == 0
    spacing = (residuals[rows, first + others] - np.where(alone, 0.0, value)) / np.maximum(others, 1)
    rise = _rise(there, first, value) if averaged else np.full(len(residuals), np.nan)
    return LeastResidual(value, np.where(alone, np.inf, spacing), rise)


def _rise(there: Floats, first: NDArray[np.intp], value: Floats) -> Floats:
    """The mean height of the lowest points above the first that is believed; nan where points are missing."""
    total = there[:, :_AVERAGED].sum(axis=1)
    for place in range(_MOST_LEFT_OUT):
        total += np.where(first > place, there[:, _AVERAGED + place] - there[:, place], 0.0)
    found: Floats = total / _AVERAGED - value
    return found
