"""Layers of lower hulls. The twin, which explains the way, is `foliot_probe.core.measure.hull_pruning`."""

import numpy as np

from libc.math cimport INFINITY, fabs, isnan
from libc.stdint cimport int64_t, uint64_t
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
    if layers <= 0:
        return
    if points > layers:
        limit = bound(cloud, x, y, points, slope, (most - least) / 2, layers)
    cloud.points = 0
    for point in range(points):
        if points <= layers or y[point] - slope * x[point] <= limit:
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


cdef inline double since(int64_t value, int64_t first) noexcept nogil:
    # Wraps as in numpy, where C leaves it open.
    return <double> <int64_t> (<uint64_t> value - <uint64_t> first)


cdef void prune_cloud(
    Cloud *cloud, double *x, double *y, const int64_t *transmit_ns, const int64_t *receive_ns, bint back,
    Py_ssize_t points, double least, double most, double apart, Py_ssize_t layers, unsigned char *keep,
) noexcept nogil:
    # Relative to the first point, so that floats hold them, and then to the middle.
    cdef Py_ssize_t point
    cdef int64_t first_ns = <int64_t> (<uint64_t> receive_ns[0] - <uint64_t> transmit_ns[0])
    cdef double low = 0, high = 0
    for point in range(points):
        x[point] = (
            since(receive_ns[0], receive_ns[point]) if back else since(transmit_ns[point], transmit_ns[0])
        )
        y[point] = since(<int64_t> (<uint64_t> receive_ns[point] - <uint64_t> transmit_ns[point]), first_ns)
        if x[point] < low:
            low = x[point]
        if x[point] > high:
            high = x[point]
    for point in range(points):
        x[point] -= (high + low) / 2
    peel(cloud, x, y, keep, points, -apart, apart, 1)
    peel(cloud, x, y, keep, points, least, most, layers)


def prune(probes, bint back, slopes, double apart, Py_ssize_t layers):
    """Selects the probes of each row that can decide the fit of a line under the cloud of its delays.

    Parameters:
        probes: row, transmit_ns and receive_ns of each; they are ordered by row.
        back: they came from the responder. A point's x is the initiator's clock in either direction.
        slopes: least and most of each row of the table, the range that its line can have.
        apart: one layer is kept for all slopes that are at most so large.
        layers: so many are kept for the range.

    Raises:
        ValueError: columns of one table have different lengths, or rows are not in order.
        IndexError: a row is not in the table.
    """
    cdef const Py_ssize_t[::1] places = np.ascontiguousarray(probes[0], np.intp)
    cdef const int64_t[::1] transmit = np.ascontiguousarray(probes[1], np.int64)
    cdef const int64_t[::1] receive = np.ascontiguousarray(probes[2], np.int64)
    cdef const double[::1] leasts = np.ascontiguousarray(slopes[0], np.float64)
    cdef const double[::1] mosts = np.ascontiguousarray(slopes[1], np.float64)
    cdef Py_ssize_t count = places.shape[0], longest, first, stop
    if transmit.shape[0] != count or receive.shape[0] != count or leasts.shape[0] != mosts.shape[0]:
        raise ValueError("columns of one table have different lengths")
    longest = longest_run(places, leasts.shape[0])
    result = np.zeros(count, np.bool_)
    if count == 0:
        return result
    cdef unsigned char[::1] keep = result.view(np.uint8)
    cdef Cloud cloud
    cdef Py_ssize_t kept = min(max(layers, 1), longest)
    cdef char *memory = <char *> malloc(
        longest * (4 * sizeof(double) + 3 * sizeof(Py_ssize_t) + 1) + kept * sizeof(double) + 2 * sizeof(Py_ssize_t)
    )
    if memory == NULL:
        raise MemoryError
    cdef double *x = <double *> memory
    cdef double *y = x + longest
    cloud.x = y + longest
    cloud.y = cloud.x + longest
    cloud.least = cloud.y + longest
    cloud.place = <Py_ssize_t *> (cloud.least + kept)
    cloud.pending = cloud.place + longest
    cloud.found = <unsigned char *> (cloud.pending + 2 * longest + 2)
    with nogil:
        first = 0
        while first < count:
            stop = first + 1
            while stop < count and places[stop] == places[first]:
                stop += 1
            prune_cloud(
                &cloud, x, y, &transmit[first], &receive[first], back, stop - first,
                leasts[places[first]], mosts[places[first]], apart, layers, &keep[first],
            )
            first = stop
    free(memory)
    return result


cdef Py_ssize_t longest_run(const Py_ssize_t[::1] row, Py_ssize_t rows) except -1:
    cdef Py_ssize_t at, first = 0, longest = 0
    for at in range(row.shape[0]):
        if not 0 <= row[at] < rows:
            raise IndexError(f"row {row[at]} of a table of {rows}")
        if at and row[at] != row[at - 1]:
            if row[at] < row[at - 1]:
                raise ValueError("rows are not in order")
            first = at
        longest = max(longest, at + 1 - first)
    return longest
