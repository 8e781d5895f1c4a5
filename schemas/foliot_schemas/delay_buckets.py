"""Buckets of one-way delays: twelve for each doubling, so each is some 6 % wide.

The first has all delays below 1 µs, also negative ones of clocks that are in error. The last has all from 2.4 s on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

BUCKETS = 256
"""A bucket's number is a byte."""
_PER_DOUBLING = 12
_FIRST_NS = 1_000

BEGINS_NS = np.rint(_FIRST_NS * 2.0 ** (np.arange(BUCKETS - 1) / _PER_DOUBLING)).astype(np.int64)
"""The least delay of each bucket but the first."""

MIDDLE_NS = np.array(
    [0, *np.rint(np.sqrt(BEGINS_NS[:-1].astype(float) * BEGINS_NS[1:])).astype(np.int64), BEGINS_NS[-1]], np.int64
)
"""The delay that stands for those of each bucket, to 3 %. For the first it is 0, and for the last its least."""


def bucket_of(delay_ns: NDArray[np.int64]) -> NDArray[np.uint8]:
    """The buckets of delays."""
    return np.searchsorted(BEGINS_NS, delay_ns, side="right").astype(np.uint8)
