"""The least credible residual of a cloud on its line, and its possible distance from the floor.

The least of many delays lies nearer to the floor than that of few. So of a stream's two directions, the one with fewer
probes near the floor seems longer. At equal depth it does not: in place of the least residual of the other direction
counts what a random share of its probes would have for one, in the mean. That mean needs no draw. It is a sum over the
lowest points, weighed by the chance that a point is the least one in the share.
"""

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
    deeper: Floats
    """By how much further down the least lies than that of a random share of the points, in the mean; nan: no share is
    known."""


def lowest(
    residuals: Floats, noise_ns: Floats, share: Floats | None = None, *, averaged: bool = False
) -> LeastResidual:
    """The least credible residual of each side, from its points' heights above a line; inf where a row has no more.

    A residual far below all others is a stamp that was wrong. It has to be farther than noise and the others' gaps
    explain.

    Parameters:
        residuals: one row a side; inf where there is no point.
        noise_ns: of the stamps of each side.
        share: of each side's points, how many a random draw would take; nan: nobody knows.
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
    deeper = np.full(len(residuals), np.nan) if share is None else _deeper(there, first, value, share)
    return LeastResidual(value, np.where(alone, np.inf, spacing), rise, deeper)


def _rise(there: Floats, first: NDArray[np.intp], value: Floats) -> Floats:
    """The mean height of the lowest points above the first that is believed; nan where points are missing."""
    total = there[:, :_AVERAGED].sum(axis=1)
    for place in range(_MOST_LEFT_OUT):
        total += np.where(first > place, there[:, _AVERAGED + place] - there[:, place], 0.0)
    found: Floats = total / _AVERAGED - value
    return found


def _deeper(there: Floats, first: NDArray[np.intp], value: Floats, share: Floats) -> Floats:
    """How far the expected least of a share of the points lies above the first that is believed; nan: no share is known.

    If a probe has left points out, heights go on above the last one as the square root of their rank. So they do near a
    floor to which each of two stamps adds by chance.
    """
    rank = np.arange(there.shape[1]) - first[:, None]
    left_out = np.ones(there.shape)
    for column in range(
        1, there.shape[1]
    ):  # Compiled code multiplies likewise; powers round otherwise in each library.
        left_out[:, column] = left_out[:, column - 1] * np.where(rank[:, column] > 0, 1 - share, 1.0)
    weight = np.where((rank >= 0) & np.isfinite(there), share[:, None] * left_out, 0.0)
    height = np.where(weight > 0, there - value[:, None], 0.0)
    total, known = weight.sum(axis=1), (weight * height).sum(axis=1)
    last, count = height[:, -1], there.shape[1] - first
    cut = np.isfinite(there[:, -1])
    beyond = last * (np.sqrt(count + 1 / share) - 1) / (np.sqrt(count) - 1)
    found: Floats = np.where(cut, known + (1 - total) * beyond, known / total)
    return found
