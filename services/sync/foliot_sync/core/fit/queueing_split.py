"""Splits the excess of a stream's width over its floor between its two directions, to find which of them was late.

The width of a stream's margin is its floor plus the excess of either direction's least delay. The offset is wrong by
half the difference of the two excesses. Their sum is known where the floor is. Of two excesses with exponential tails,
the first is then spread over the sum as an exponential cut off at both ends. Its mean and variance have a closed form.
So the direction whose points lie densely was hardly late, whatever the other's queues do.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from foliot_sync.core.arrays import Floats

_STEEPEST = 300.0
"""Past it, the cut at the far end no longer shows.

The square of its hyperbolic sine fits a float; that of much more would not.
"""
_FLAT = 1e-2
"""Below it the series is exact to a float, and the closed form loses its digits."""


_CHANCE = 0.4
"""Variance of the logarithm of a ratio of two means of five gaps each, where queues are alike. It is about twice the
variance of the logarithm of a gamma variable of shape five, 0.22."""


class Share(NamedTuple):
    """The first one's share of a sum of two."""

    mean: Floats
    variance: Floats


def share(total: Floats, first: Floats, second: Floats) -> Share:
    """The first of two exponential excesses with these means, given their sum."""
    steep = total * (1 / first - 1 / second)
    flat = np.abs(steep) < _FLAT
    safe = np.where(flat, 1.0, steep)
    bounded = np.clip(safe, -_STEEPEST, _STEEPEST)
    mean = np.where(flat, 0.5 - steep / 12, 1 / safe - 1 / np.expm1(bounded))
    variance = np.where(flat, 1 / 12 - steep**2 / 240, safe**-2.0 - 1 / (4 * np.sinh(bounded / 2) ** 2))
    return Share(total * mean, total**2 * np.maximum(variance, 0.0))


def credible(first: Floats, second: Floats, usual: Floats | float = 0.0) -> tuple[Floats, Floats]:
    """The means of two excesses, with their ratio nearer to the usual one by what chance alone makes of it.

    A few gaps tell a mean badly: where both directions are alike, one seems twice as late as the other now and then.

    Parameters:
        first: one mean.
        second: the other one.
        usual: logarithm of the ratio, as it usually is.
    """
    apart = usual + surely(np.log(first / second) - usual)
    middle, half = np.sqrt(first * second), np.exp(apart / 2)
    return middle * half, middle / half


def surely(apart: Floats, windows: Floats | float = 1.0) -> Floats:
    """The logarithm of a ratio, in the mean of so many windows, without the part of chance (the positive part of James and Stein's estimator, 1961)."""
    chance = _CHANCE / np.maximum(windows, 1.0)
    kept: Floats = apart * np.maximum(1 - chance / np.maximum(apart**2, chance), 0.0)
    return kept
