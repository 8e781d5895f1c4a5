"""Stamps of batches, put in order as clouds of points. The twins are in `foliot_sync.core.fit.point_clouds`."""

import numpy as np

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.math cimport INFINITY
from libc.stdint cimport INT64_MAX, INT64_MIN, int64_t, uint16_t, uint64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy

cdef double SECOND_NS = 1e9


cdef struct Batch:
    # Where the columns of a batch lie. Whoever holds the batches keeps them there.
    Py_ssize_t points
    const char *stream
    const unsigned char *direction
    const char *transmit
    const char *receive


cdef struct Point:
    # A probe of a direction that exists.
    int64_t stream
    int64_t x_ns
    int64_t y_ns
    bint lower


cdef inline int64_t minus(int64_t one, int64_t other) noexcept nogil:
    # Wraps as in numpy, where C leaves it open.
    return <int64_t> (<uint64_t> one - <uint64_t> other)


cdef inline bint take(const Batch *batch, Py_ssize_t at, int64_t start, Point *point) noexcept nogil:
    # Says whether the probe's direction exists. Nothing is known of how the bytes of a message are aligned.
    cdef uint16_t stream
    cdef int64_t transmit_ns, receive_ns
    if batch.direction[at] > 1:
        return False
    memcpy(&stream, batch.stream + at * sizeof(uint16_t), sizeof(uint16_t))
    memcpy(&transmit_ns, batch.transmit + at * sizeof(int64_t), sizeof(int64_t))
    memcpy(&receive_ns, batch.receive + at * sizeof(int64_t), sizeof(int64_t))
    point.stream = start + stream
    point.lower = batch.direction[at] == 1
    point.x_ns = receive_ns if point.lower else transmit_ns
    point.y_ns = minus(transmit_ns, receive_ns) if point.lower else minus(receive_ns, transmit_ns)
    return True


cdef Batch *located(columns, const int64_t[::1] starts) except NULL:
    # The columns of all batches, which fit together; free it.
    cdef Py_ssize_t count = len(columns), at, points, place
    cdef uint16_t stream
    cdef int64_t streams
    if starts.shape[0] != count + 1:
        raise ValueError(f"{count} batches, and the first streams of {starts.shape[0] - 1}")
    cdef Batch *batches = <Batch *> calloc(count + 1, sizeof(Batch))
    if batches == NULL:
        raise MemoryError
    try:
        for at in range(count):
            stream_bytes, direction, transmit, receive = columns[at]
            place_of(&batches[at], stream_bytes, direction, transmit, receive)
            streams = minus(starts[at + 1], starts[at])
            if starts[at] < 0 or streams < 0:
                raise ValueError("first streams are not in order")
            points = batches[at].points
            for place in range(points):
                memcpy(&stream, batches[at].stream + place * sizeof(uint16_t), sizeof(uint16_t))
                if stream >= streams:
                    raise IndexError(f"stream {stream} of a batch of {streams}")
    except BaseException:
        free(batches)
        raise
    return batches


cdef int place_of(Batch *batch, bytes stream, bytes direction, bytes transmit, bytes receive) except -1:
    cdef Py_ssize_t points = PyBytes_GET_SIZE(direction)
    if not (
        PyBytes_GET_SIZE(stream) == points * <Py_ssize_t> sizeof(uint16_t)
        and PyBytes_GET_SIZE(transmit) == PyBytes_GET_SIZE(receive) == points * <Py_ssize_t> sizeof(int64_t)
    ):
        raise ValueError("columns of one batch have different lengths")
    batch.points = points
    batch.stream = PyBytes_AS_STRING(stream)
    batch.direction = <const unsigned char *> PyBytes_AS_STRING(direction)
    batch.transmit = PyBytes_AS_STRING(transmit)
    batch.receive = PyBytes_AS_STRING(receive)
    return 0


def extents(columns, starts, limits, pair, Py_ssize_t pairs):
    """How many points each side of each stream has, and the least and the greatest x and y of each pair.

    Parameters:
        columns: of each batch the columns stream, direction, transmit_ns and receive_ns, as bytes of a message.
        starts: the number of each batch's first stream, and of all streams.
        limits: early_ns and late_ns of each stream; points with an x before or after that are left out.
        pair: of each stream.

    Raises:
        ValueError: columns of one table have different lengths.
        IndexError: a row names a stream that its batch has not, or a pair that there is not.
    """
    columns = list(columns)
    cdef const int64_t[::1] first = np.ascontiguousarray(starts, np.int64)
    cdef const int64_t[::1] early = np.ascontiguousarray(limits[0], np.int64)
    cdef const int64_t[::1] late = np.ascontiguousarray(limits[1], np.int64)
    cdef const int64_t[::1] pair_of = np.ascontiguousarray(pair, np.int64)
    cdef Py_ssize_t streams = pair_of.shape[0], batch, at, batches = len(columns)
    if pairs < 0 or early.shape[0] != streams or late.shape[0] != streams or not (
        first.shape[0] and first[first.shape[0] - 1] == streams
    ):
        raise ValueError("columns of one table have different lengths")
    for at in range(streams):
        if not 0 <= pair_of[at] < pairs:
            raise IndexError(f"pair {pair_of[at]} of {pairs}")
    counts = np.zeros(2 * streams, np.int64)
    low, high = np.full((2, pairs), INT64_MAX, np.int64), np.full((2, pairs), INT64_MIN, np.int64)
    cdef int64_t[::1] count = counts
    cdef int64_t[:, ::1] least = low, most = high
    cdef Batch *where = located(columns, first)
    cdef Point point
    cdef int64_t of
    with nogil:
        for batch in range(batches):
            for at in range(where[batch].points):
                if not take(&where[batch], at, first[batch], &point):
                    continue
                if point.x_ns < early[point.stream] or point.x_ns > late[point.stream]:
                    continue
                count[2 * point.stream + point.lower] += 1
                of = pair_of[point.stream]
                least[0, of] = min(least[0, of], point.x_ns)
                most[0, of] = max(most[0, of], point.x_ns)
                least[1, of] = min(least[1, of], point.y_ns)
                most[1, of] = max(most[1, of], point.y_ns)
    free(where)
    return counts, low, high


def fill(columns, starts, limits, places, shape):
    """The points of some streams as two padded tables x and y, a side a row, in the order in which they came.

    Lower sides are reflected through the origin. Missing points have x = 0 and y = inf.

    Parameters:
        columns, starts, limits: as `extents` has them.
        places: row, at_ns and base_ns of each stream. The row is that of its upper side, and its lower side is the next
            one; -1: it is left out. The others are where x = 0 and y = 0.
        shape: how many sides there are, and points that a row holds.

    Raises:
        ValueError: columns of one table have different lengths, or a side has more points than a row holds.
        IndexError: a row names a stream that its batch has not, or there is no such side.
    """
    columns = list(columns)
    cdef const int64_t[::1] first = np.ascontiguousarray(starts, np.int64)
    cdef const int64_t[::1] early = np.ascontiguousarray(limits[0], np.int64)
    cdef const int64_t[::1] late = np.ascontiguousarray(limits[1], np.int64)
    cdef const int64_t[::1] row_of = np.ascontiguousarray(places[0], np.int64)
    cdef const int64_t[::1] middle = np.ascontiguousarray(places[1], np.int64)
    cdef const int64_t[::1] base = np.ascontiguousarray(places[2], np.int64)
    cdef Py_ssize_t streams = row_of.shape[0], batch, at, batches = len(columns), sides = shape[0], width = shape[1]
    if sides < 0 or width < 0 or not (
        streams == early.shape[0] == late.shape[0] == middle.shape[0] == base.shape[0]
        and first.shape[0] and first[first.shape[0] - 1] == streams
    ):
        raise ValueError("columns of one table have different lengths")
    for at in range(streams):
        if row_of[at] != -1 and not 0 <= row_of[at] < sides - 1:
            raise IndexError(f"side {row_of[at]} of {sides}")
    all_x, all_y, filled = np.zeros((sides, width)), np.full((sides, width), INFINITY), np.zeros(sides, np.int64)
    cdef double[:, ::1] x = all_x, y = all_y
    cdef int64_t[::1] count = filled
    cdef Batch *where = located(columns, first)
    cdef Point point
    cdef int64_t side
    cdef double sign
    cdef bint full = False
    with nogil:
        for batch in range(batches):
            for at in range(where[batch].points):
                if not take(&where[batch], at, first[batch], &point) or row_of[point.stream] < 0:
                    continue
                if point.x_ns < early[point.stream] or point.x_ns > late[point.stream]:
                    continue
                side = row_of[point.stream] + point.lower
                if count[side] >= width:
                    full = True
                    continue
                sign = -1.0 if point.lower else 1.0
                x[side, count[side]] = sign * (<double> minus(point.x_ns, middle[point.stream]) / SECOND_NS)
                y[side, count[side]] = sign * <double> minus(point.y_ns, base[point.stream])
                count[side] += 1
    free(where)
    if full:
        raise ValueError(f"a side has more than {width} points")
    return all_x, all_y
