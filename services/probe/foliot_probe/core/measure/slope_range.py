"""The range of slopes that a fit of a stream's two clocks can find, from their expected drifts."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from foliot_probe.core.measure.one_way_delay import References

    Floats = NDArray[np.float64]
    Rows = NDArray[np.intp] | slice

APART = 200e-6
"""Two clocks never run further apart: twice the 100 ppm that the worst PC crystals are sold with."""
_LEAST_RANGE = 150e-9
"""A slope is never known better, however steady both clocks were: a fan turns the rate of a quartz by as much."""


class SlopeRange(NamedTuple):
    """Per row, the least and the most that the responder's clock gains on the initiator's, in ns per ns."""

    least: Floats
    most: Floats

    def of(self, rows: Rows) -> SlopeRange:
        """The ranges of some rows."""
        return SlopeRange(self.least[rows], self.most[rows])

    @classmethod
    def unknown(cls, rows: int) -> SlopeRange:
        """The range that any two clocks keep."""
        return cls(np.full(rows, -APART), np.full(rows, APART))


def expected(own: References, peers: References, local_ns: int | NDArray[np.int64]) -> SlopeRange:
    """The slopes by sync's states of both ends of every row, as long as these are valid at a local time."""
    known = own.valid(local_ns) & peers.known
    rate, range_ = own.rate - peers.rate, np.maximum(own.growth + peers.growth, _LEAST_RANGE)
    slope = rate / (1 + peers.rate)
    apart = SlopeRange.unknown(len(known))
    return SlopeRange(
        np.where(known, np.clip(slope - range_, -APART, APART), apart.least),
        np.where(known, np.clip(slope + range_, -APART, APART), apart.most),
    )
