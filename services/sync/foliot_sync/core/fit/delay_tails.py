"""The lower tail of each direction's delays.

How the lowest points usually lie above the least one, and what that tells of it.

The least of a window's delays is one sample. Where many probes come near the floor and none has to reach it, the mean
of the lowest points repeats better. So it is where stamps are noisy, and on slow machines. But the mean lies higher,
and in each direction by another amount. So what counts is the least, and a share of the difference of this window's
mean from the usual one above the least.

The share is what makes the stream's width repeat best. The width is the sum of both directions' least residuals, in
which the clocks cancel. So it needs no truth. Where queues make the heights, nothing is shared. The least is then late
in one direction, and the width's excess tells by how much.

Of a direction that has more probes near its floor than the other, the least lies deeper. What that is worth in the mean
of the latest windows puts both at equal depth. One window's points tell it badly.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from foliot.columns import widen
from foliot_sync.core.fit.queueing_split import surely

if TYPE_CHECKING:
    from foliot_sync.core.arrays import Floats, Ints
    from foliot_sync.core.fit.least_residual import LeastResidual

_REMEMBERED = 30.0
"""Windows that count, as of a floor: a minute at two seconds each."""
_DEPTHS = 8.0
"""Windows whose mean depth counts: loads do not stay the same for long."""
_FEWEST = 3.0
"""Windows of a direction before its mean is trusted to repeat."""
_PRIOR = 10.0
"""Windows that the share of 1 is worth at first, by which the mean of the lowest points counts in full."""
_FAR = 3.0
"""Deviations by which a window's mean counts at most."""
_NOISY, _QUEUED = 6.0, 12.0
"""Mean height, in the stamps' noise, up to which it counts in full, and from which on not at all: queues have made
it."""


class TailShapes(NamedTuple):
    """How the lowest points of streams lay in a window, one row a stream."""

    rise: Floats
    """Mean height of the lowest points above the least, one column a direction; nan: there were too few."""
    width: Floats
    """Sum of both directions' least residuals."""
    apart: Floats
    """Logarithm of how much further above its floor the first direction is expected to be than the second."""
    deeper: Floats
    """By how much deeper each direction reaches than with as few probes as the other, one column a direction; nan: that
    is not known."""

    @classmethod
    def of(cls, stand: LeastResidual, late_ns: Floats) -> TailShapes:
        """By where the sides stand, and how far above their floors they are expected to be."""
        width = stand.value[0::2] + stand.value[1::2]
        apart = np.log(late_ns[0::2] / late_ns[1::2])
        return cls(stand.rise.reshape(-1, 2), width, apart, stand.deeper.reshape(-1, 2))


class DelayTails:
    """What the latest windows of each stream have shown.

    Means, variances and covariances, in which older windows count less.
    """

    def __init__(self) -> None:
        self._windows, self._width, self._width_variance, self._apart = np.zeros((4, 0))
        self._rises, self._rise, self._rise_variance, self._covariance = np.zeros((4, 0, 2))
        self._depths, self._deeper = np.zeros((2, 0, 2))

    def lift(self, rows: Ints, shapes: TailShapes, noise_ns: Floats) -> Floats:
        """By how much higher each direction stands than its least point says, in ns, one column a direction."""
        self._make_room(rows)
        count, variance = self._rises[rows], self._rise_variance[rows]
        known = (count >= _FEWEST) & np.isfinite(shapes.rise) & (variance > 0)
        # The ridge estimate of the slope of widths by rises, towards 1.
        prior = _PRIOR * self._width_variance[rows][:, None]
        total = np.where(known, prior + count * variance, 1.0)
        share = np.clip((prior - count * self._covariance[rows]) / total, 0.0, 1.0)
        most = _FAR * np.sqrt(variance)
        away = np.clip(np.where(known, shapes.rise - self._rise[rows], 0.0), -most, most)
        height = np.maximum(np.where(known, shapes.rise, 0.0), self._rise[rows]) / noise_ns[:, None]
        share *= np.clip((_QUEUED - height) / (_QUEUED - _NOISY), 0.0, 1.0)
        return np.where(known, share * away, 0.0)

    def deeper(self, rows: Ints, shapes: TailShapes) -> Floats:
        """By how much deeper each direction usually reaches than the other's probes do, this window included; 0: unknown."""
        self._make_room(rows)
        return np.where(np.isfinite(shapes.deeper), self._with_depth(rows, shapes)[1], 0.0)

    def apart(self, rows: Ints) -> Floats:
        """The logarithm of the ratio of both directions' distances from their floors, as the latest windows surely show it."""
        self._make_room(rows)
        return surely(self._apart[rows], self._windows[rows])

    def learn(self, rows: Ints, shapes: TailShapes) -> None:
        """Remembers how the points lay in a window that held no step."""
        self._make_room(rows)
        self._windows[rows] = np.minimum(self._windows[rows] + 1, _REMEMBERED)
        weight = 1 / self._windows[rows]
        self._apart[rows] += weight * (shapes.apart - self._apart[rows])
        wider = shapes.width - self._width[rows]
        self._width[rows] += weight * wider
        self._width_variance[rows] = (1 - weight) * (self._width_variance[rows] + weight * wider**2)
        self._depths[rows], self._deeper[rows] = self._with_depth(rows, shapes)
        seen = np.isfinite(shapes.rise)
        self._rises[rows] = np.minimum(self._rises[rows] + seen, _REMEMBERED)
        share = np.where(seen, 1 / np.maximum(self._rises[rows], 1.0), 0.0)
        higher = np.where(seen, shapes.rise - self._rise[rows], 0.0)
        self._rise[rows] += share * higher
        self._rise_variance[rows] = (1 - share) * (self._rise_variance[rows] + share * higher**2)
        self._covariance[rows] = (1 - share) * (self._covariance[rows] + share * higher * wider[:, None])

    def _with_depth(self, rows: Ints, shapes: TailShapes) -> tuple[Floats, Floats]:
        """The windows that count and their mean depth, with this one."""
        seen, known = np.isfinite(shapes.deeper), self._deeper[rows]
        count = np.minimum(self._depths[rows] + seen, _DEPTHS)
        return count, known + np.where(seen, shapes.deeper - known, 0.0) / np.maximum(count, 1.0)

    def _make_room(self, rows: Ints) -> None:
        known, needed = len(self._windows), int(rows.max(initial=-1)) + 1
        if needed > known:
            widen(self, max(needed, 2 * known, 64))
