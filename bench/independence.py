"""How many independent windows some that follow one another are worth.

A filter that remembers makes neighbours alike, so that a run of good windows proves less than as many drawn at random would.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

_FEWEST = 6
"""Below that nothing can be said of how alike neighbours are."""
_RULE_OF_THREE = 3.0
"""Of n independent trials without a failure: with 95 % confidence the failures' share is below 3/n."""


def effective(series: ArrayLike) -> float | None:
    """Independent values that have as uncertain a mean as these, which follow one another, as of a first-order autoregressive process; None: too few to tell.

    n (1 - r) / (1 + r), by the correlation r of neighbours. From n values it comes out too low by about (1 + 4 r) / n (Marriott and Pope, 1954), which is put right.
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
    """The share of windows that may still be outside of a bound, with 95 % confidence, where none of so many was; None: nobody can tell."""
    return None if independent is None else min(_RULE_OF_THREE / independent, 1.0)
