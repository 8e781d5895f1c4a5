"""Layers of lower hulls. The twin, which explains the way, is `foliot_probe.core.measure.hull_pruning`."""

import numpy as np

from libc.math cimport INFINITY, fabs, isfinite, isnan
from libc.stdlib cimport free, malloc

cdef double TOUCH_NS = 1e-6


cdef struct Cloud:
    # The points of a row that can be on a layer, in their order.
    Py_ssize_t points
    double *x
    double *y
    Py_ssize_t *place
    unsigned char *found
    # Pairs of points between which a vertex may lie. Their ranges of x do not overlap, so they are fewer than points.
    Py_ssize_t *pending
    # The least residuals so far, in order.
    double *least


cdef inline Py_ssize_t lowest(const Cloud *cloud, double slope) noexcept nogil:
    # The first of the points with the least residual; as in numpy, one that is no number is less than all.
    cdef Py_ssize_t point, best = 0
    cdef double residual, least = cloud.y[0] - slope * cloud.x[0]
    if isnan(least):
        return 0
    for point in range(1, cloud.points):
        residual = cloud.y[point] - slope * cloud.x[point]
        if residual < least:
            least, best = residual, point
        elif isnan(residual):
            return point
    return best


cdef double bound(
    Cloud *cloud, const double *x, const double *y, Py_ssize_t points, double slope, double half, Py_ssize_t layers
) noexcept nogil:
    # No residual above it is among the smallest for any slope that is at most half of the range away.
    cdef Py_ssize_t point, at, kept = 0
    cdef double residual, far = 0
    for point in range(points):
        if fabs(x[point]) > far or isnan(x[point]):
            far = fabs(x[point])
            if isnan(far):
                return far
        residual = y[point] - slope * x[point]
        if kept == layers and not residual < cloud.least[kept - 1] or isnan(residual):
            continue
        at = kept if kept < layers else kept - 1
        kept = at + 1
        while at > 0 and residual < cloud.least[at - 1]:
            cloud.least[at] = cloud.least[at - 1]
            at -= 1
        cloud.least[at] = residual
    return (cloud.least[layers - 1] if kept == layers else INFINITY) + 2 * (half * far)


cdef void touch(Cloud *cloud, double least, double most) noexcept nogil:
    # Finds the points that the lowest line of any slope of a range touches.
    cdef Py_ssize_t pairs = 1, first = lowest(cloud, least), last = lowest(cloud, most), between
    cdef double slope, run
    cloud.found[first] = cloud.found[last] = 1
    cloud.pending[0], cloud.pending[1] = first, last
    while pairs:
        pairs -= 1
        first, last = cloud.pending[2 * pairs], cloud.pending[2 * pairs + 1]
        run = cloud.x[last] - cloud.x[first]
        if first == last or run == 0:
            continue
        slope = (cloud.y[last] - cloud.y[first]) / run
        between = lowest(cloud, slope)
        if not (
            cloud.x[first] < cloud.x[between] < cloud.x[last] or cloud.x[last] < cloud.x[between] < cloud.x[first]
        ):
            continue
        if (cloud.y[first] - slope * cloud.x[first]) - (cloud.y[between] - slope * cloud.x[between]) > TOUCH_NS:
            cloud.found[between] = 1
            cloud.pending[2 * pairs], cloud.pending[2 * pairs + 1] = first, between
            cloud.pending[2 * pairs + 2], cloud.pending[2 * pairs + 3] = between, last
            pairs += 2


cdef void peel(
    Cloud *cloud, const double *x, const double *y, unsigned char *keep, Py_ssize_t points, double least, double most,
    Py_ssize_t layers,
) noexcept nogil:
    cdef Py_ssize_t point, left
    cdef double limit = INFINITY, slope = (least + most) / 2
    if points > layers:
        limit = bound(cloud, x, y, points, slope, (most - least) / 2, layers)
    cloud.points = 0
    for point in range(points):
        if isfinite(y[point]) and (points <= layers or y[point] - slope * x[point] <= limit):
            cloud.x[cloud.points], cloud.y[cloud.points] = x[point], y[point]
            cloud.place[cloud.points] = point
            cloud.found[cloud.points] = 0
            cloud.points += 1
    while layers > 0 and cloud.points > 0:
        layers -= 1
        touch(cloud, least, most)
        left = 0
        for point in range(cloud.points):
            if cloud.found[point]:
                keep[cloud.place[point]] = 1
                cloud.found[point] = 0
            else:
                cloud.x[left], cloud.y[left], cloud.place[left] = cloud.x[point], cloud.y[point], cloud.place[point]
                left += 1
        cloud.points = left


def lower_layers(x, y, least, most, Py_ssize_t layers):
    """Selects the points on the first lower hulls of each row, peeled one after another.

    Parameters:
        x, y: the clouds, a row each. A missing point has y = inf and x = 0.
        least, most: the range of slopes of each row.
        layers: how many hulls are peeled off.

    Raises:
        ValueError: the arrays are not of one shape.
    """
    cdef const double[:, ::1] xs = np.ascontiguousarray(x, np.float64)
    cdef const double[:, ::1] ys = np.ascontiguousarray(y, np.float64)
    cdef const double[::1] leasts = np.ascontiguousarray(least, np.float64)
    cdef const double[::1] mosts = np.ascontiguousarray(most, np.float64)
    cdef Py_ssize_t row, rows = ys.shape[0], points = ys.shape[1]
    if xs.shape[0] != rows or xs.shape[1] != points or leasts.shape[0] != rows or mosts.shape[0] != rows:
        raise ValueError(f"clouds of {rows} by {points} points, with x, slopes or both of another shape")
    result = np.zeros((rows, points), np.bool_)
    if rows == 0 or points == 0 or layers <= 0:
        return result
    cdef unsigned char[:, ::1] keep = result.view(np.uint8)
    cdef Cloud cloud
    cdef Py_ssize_t kept = min(layers, points)
    cdef char *memory = <char *> malloc(
        points * (2 * sizeof(double) + 3 * sizeof(Py_ssize_t) + 1) + kept * sizeof(double) + 2 * sizeof(Py_ssize_t)
    )
    if memory == NULL:
        raise MemoryError
    cloud.x = <double *> memory
    cloud.y = cloud.x + points
    cloud.least = cloud.y + points
    cloud.place = <Py_ssize_t *> (cloud.least + kept)
    cloud.pending = cloud.place + points
    cloud.found = <unsigned char *> (cloud.pending + 2 * points + 2)
    with nogil:
        for row in range(rows):
            peel(&cloud, &xs[row, 0], &ys[row, 0], &keep[row, 0], points, leasts[row], mosts[row], layers)
    free(memory)
    return result
