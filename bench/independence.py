"""The number of independent windows in a series of successive ones.

A filter with memory makes neighbours alike. So a run of good windows proves less than as many drawn at random would.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

_FEWEST = 6
"""Below this length, a series says nothing about how alike neighbours are."""
_RULE_OF_THREE = 3.0
"""The rule of three. After n independent trials without a failure, the failures' share is below 3/n with 95 %
confidence."""


def effective(series: ArrayLike) -> float | None:
    """The number of independent values with as uncertain a mean as these successive ones; None: too few to tell.

    The model is a first-order autoregressive process: n (1 - r) / (1 + r), by the correlation r of neighbours. An
    estimate of r from n values is too low by about (1 + 4 r) / n (Marriott and Pope, 1954). The function corrects that.
    """
    values = np.asarray(series, np.float64)
    count = len(values)
    if count < _FEWEST:
        return None
    apart = values - values.mean()
    power = float(apart @ apart)
    if power == 0.0:
        return None
    measured = float(apart[1:] @ apart[:-1]) / power
    correlation = min(max((count * measured + 1) / (count - 4), 0.0), 1.0)
    return max(1.0, count * (1 - correlation) / (1 + correlation))


def outside_at_most(independent: float | None) -> float | None:
    """The share of windows that may exceed a bound, with 95 % confidence, if none of so many did; None: unknown."""
    return None if independent is None else min(_RULE_OF_THREE / independent, 1.0)
