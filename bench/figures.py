"""What figures come to where some rows have none; None: no row has one."""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable


def median(values: Iterable[float | None]) -> float | None:
    """Their median, to three decimals."""
    known = [value for value in values if value is not None]
    return round(statistics.median(known), 3) if known else None


def least(values: Iterable[float | None]) -> float | None:
    """The least of them."""
    return min((value for value in values if value is not None), default=None)


def most(values: Iterable[float | None]) -> float | None:
    """The greatest of them."""
    return max((value for value in values if value is not None), default=None)
