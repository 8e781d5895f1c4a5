"""Lossless pruning: of a cloud of points only those that can decide a line's fit.

For a line under a cloud that may leave up to k points on its wrong side, only the k smallest residuals matter, whatever the
slope. Peel the lower hull k times: in any direction each of these layers holds a point at least as extreme as any point outside
of them, so the k-th smallest residual is always found inside. Hulls by Andrew's monotone chain (Inf. Proc. Letters 9, 1979).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray


def lower_layers(x: NDArray[np.int64], y: NDArray[np.int64], layers: int) -> NDArray[np.bool_]:
    """Which points lie on the first lower hulls, peeled one after another; exact for |x| < 2^62, |y| < 2^62."""
    keep = np.zeros(len(x), np.bool_)
    rest = np.lexsort((y, x)).tolist()
    # Plain integers: a product of two differences of nanoseconds does not fit into 64 bits, nor a float.
    at_x, at_y = x.tolist(), y.tolist()
    for _ in range(layers):
        hull = _lower_hull(rest, at_x, at_y)
        keep[hull] = True
        if len(hull) == len(rest):
            break
        peeled = set(hull)
        rest = [point for point in rest if point not in peeled]
    return keep


def upper_layers(x: NDArray[np.int64], y: NDArray[np.int64], layers: int) -> NDArray[np.bool_]:
    """Which points lie on the first upper hulls."""
    return lower_layers(x, -y, layers)


def _lower_hull(points: list[int], x: list[int], y: list[int]) -> list[int]:
    """Of points ordered by x, then y: the lower hull's vertices."""
    hull: list[int] = []
    for point in points:
        if hull and x[hull[-1]] == x[point]:
            continue  # straight above the one before
        while len(hull) > 1:
            before, last = hull[-2], hull[-1]
            turn = (x[last] - x[before]) * (y[point] - y[before]) - (y[last] - y[before]) * (x[point] - x[before])
            if turn > 0:
                break
            hull.pop()
        hull.append(point)
    return hull
