"""Lossless pruning of clouds of points to those that can decide a line's fit.

A line under a cloud may leave up to k points on its wrong side. Then only the k smallest residuals ``y - b x`` matter.
For each slope b of a range, the point with the least residual is a vertex of the cloud's lower hull. Of the vertices,
only those that the range's lines touch can be that point. Peel these off k times: whatever the slope within the range,
the k-th smallest residual is always found inside. Once sync has spoken, it is well known how fast one clock runs
against the other. So the range is narrow, and a layer has one or two points.

The vertices are found as quickhull finds them (Barber, Dobkin and Huhdanpaa, ACM TOMS 22, 1996), for many clouds at
once. Of the points between two vertices, the lowest against the line through both is a third vertex. If no point is
below the line, there is none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from foliot import native
from foliot_probe.core.measure.slope_range import APART, SlopeRange

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from foliot_probe.core.measure.sessions import Completed

    Floats = NDArray[np.float64]
    Stamps = tuple[NDArray[np.intp], NDArray[np.int64], NDArray[np.int64]]

_TOUCH_NS = 1e-6
"""A point that is lower than the line by less is on it.

Floats cannot tell: for times within a window, they resolve a tenth of that.
"""


def prune(probes: Completed, *, back: bool, tilt: SlopeRange, layers: int) -> NDArray[np.bool_]:
    """Selects the probes of each row that can decide the fit of a line under the cloud of its delays.

    Parameters:
        probes: ordered by row.
        back: they came from the responder. A point's x is the initiator's clock in either direction. Reflected, the
            upper cloud is a lower one too.
        tilt: the range of slopes of each row of the table.
        layers: so many layers are kept for that range. One is kept whatever the slope: the hard bound of the offset
            rests on nothing that was said before.
    """
    return _prune((probes.row, probes.transmit_ns, probes.receive_ns), back, tilt, APART, layers)


def prune_by_numpy(
    probes: Stamps, back: bool, slopes: tuple[Floats, Floats], apart: float, layers: int
) -> NDArray[np.bool_]:
    """The twin of `foliot_native.hull.prune`."""
    row, transmit_ns, receive_ns = probes
    if not len(row):
        return np.zeros(0, np.bool_)
    present, first, cloud = np.unique(row, return_index=True, return_inverse=True)
    x_ns, y_ns = -receive_ns if back else transmit_ns, receive_ns - transmit_ns
    # Relative to their cloud's first point, so that floats hold them.
    x_ns, y_ns = x_ns - x_ns[first][cloud], y_ns - y_ns[first][cloud]
    place = np.arange(len(cloud)) - first[cloud]
    shape = len(first), int(place.max()) + 1
    x, y = np.zeros(shape), np.full(shape, np.inf)
    x[cloud, place], y[cloud, place] = x_ns, y_ns
    x -= (x.max(axis=1) + x.min(axis=1))[:, None] / 2
    whatever = SlopeRange(np.full(len(first), -apart), np.full(len(first), apart))
    keep = lower_layers(x, y, whatever, 1) | lower_layers(x, y, SlopeRange(*slopes).of(present), layers)
    kept: NDArray[np.bool_] = keep[cloud, place]
    return kept


_compiled = native.compiled("hull")
_prune: Callable[[Stamps, bool, tuple[Floats, Floats], float, int], NDArray[np.bool_]] = (
    _compiled.prune if _compiled else prune_by_numpy
)


def lower_layers(x: Floats, y: Floats, tilt: SlopeRange, layers: int) -> NDArray[np.bool_]:
    """Selects the points on the first lower hulls, peeled one after another, for the slopes of each row.

    Each row is a cloud, and no row changes what is kept of another. `x` and `y` are relative to anything near; missing
    points have y = inf and x = 0.
    """
    keep = np.zeros(y.shape, np.bool_)
    place, x, left = _near_the_line(x, y, tilt, layers)
    for _ in range(min(layers, left.shape[1])):
        layer = _touched(x, left, tilt)
        at = np.nonzero(layer)
        keep[at[0], place[at]] = True
        left[layer] = np.inf
    return keep & np.isfinite(y)


def _near_the_line(x: Floats, y: Floats, tilt: SlopeRange, layers: int) -> tuple[NDArray[np.intp], Floats, Floats]:
    """Each row's points that can be among the smallest for any of the slopes: their places, x, and y.

    Where other rows have more, points that cannot fill the row up, with y = inf. From the middle of the slopes to any
    other, no residual changes by more than half their range times the largest x.
    """
    row, points = np.arange(len(y))[:, None], y.shape[1]
    if points <= layers:
        return np.broadcast_to(np.arange(points), y.shape), x, y.copy()
    residuals = y - ((tilt.least + tilt.most) / 2)[:, None] * x
    smallest = np.partition(residuals, layers - 1, axis=1)[:, layers - 1]
    change = (tilt.most - tilt.least) / 2 * np.abs(x).max(axis=1)
    near = residuals <= (smallest + 2 * change)[:, None]
    place = np.argsort(~near, axis=1, kind="stable")[:, : int(near.sum(axis=1).max(initial=0))]
    return place, x[row, place], np.where(near[row, place], y[row, place], np.inf)


def _touched(x: Floats, y: Floats, tilt: SlopeRange) -> NDArray[np.bool_]:
    """Selects the points that the lowest line of any slope touches, in all rows that have points."""
    found = np.zeros(y.shape, np.bool_)
    row = np.flatnonzero(np.isfinite(y).any(axis=1))
    first, last = (_lowest(x, y, row, slope[row]) for slope in tilt)
    found[row, first] = found[row, last] = True
    while len(row):
        apart = first != last
        row, first, last = row[apart], first[apart], last[apart]
        run = x[row, last] - x[row, first]
        # Where one point lies above another, only one of the two is touched at either end, unless floats cannot tell
        # them apart. Nothing lies between them.
        slope = (y[row, last] - y[row, first]) / np.where(run == 0, 1.0, run)
        between = _lowest(x, y, row, slope)
        depth = (y[row, first] - slope * x[row, first]) - (y[row, between] - slope * x[row, between])
        # Not only lower but between: far from 0, rounding may put an end of the line below it, again and again.
        begins, at, ends = x[row, first], x[row, between], x[row, last]
        new = (depth > _TOUCH_NS) & (((begins < at) & (at < ends)) | ((ends < at) & (at < begins)))
        row, first, between, last = row[new], first[new], between[new], last[new]
        found[row, between] = True
        row, first, last = np.tile(row, 2), np.concatenate((first, between)), np.concatenate((between, last))
    return found


def _lowest(x: Floats, y: Floats, row: NDArray[np.intp], slope: Floats) -> NDArray[np.intp]:
    """The point with the least residual in each of these rows."""
    lowest: NDArray[np.intp] = (y[row] - slope[:, None] * x[row]).argmin(axis=1)
    return lowest
