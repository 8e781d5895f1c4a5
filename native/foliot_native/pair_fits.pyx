"""Where clouds of points stand on lines. The twins are in `foliot_sync.core.fit`: `line_fit` and `delay_floor`.

Floats are added in the order in which numpy adds them, so that both say the same to the last bit.
"""

import numpy as np

from libc.math cimport INFINITY, NAN, fabs, hypot, isfinite, isnan, sqrt
from libc.stdint cimport int64_t
from libc.stdlib cimport free, malloc

# As `foliot_sync.core.fit.least_residual` and `line_fit` have them, with their reasons.
cdef enum:
    MOST_LEFT_OUT = 2
    NEXT = 5
    AVERAGED = 8
    SPACINGS = 5
    FEW = 4
    # Points that are looked at: with a mean height, and without.
    HIGH = MOST_LEFT_OUT + AVERAGED
    LOW = MOST_LEFT_OUT + NEXT + 1
cdef double WRONG = 40.0
cdef double FAR = 6.0
cdef double CAUTION = 2.0
cdef double FAR_NS = 1e6


cdef struct Lowest:
    # The lowest points of a side, in order; inf where it has no more.
    double height[HIGH]
    Py_ssize_t wanted
    Py_ssize_t first
    Py_ssize_t finite


cdef inline void insert(Lowest *lowest, double height) noexcept nogil:
    cdef Py_ssize_t at = lowest.wanted - 1
    if not height < lowest.height[at]:
        return
    while at > 0 and height < lowest.height[at - 1]:
        lowest.height[at] = lowest.height[at - 1]
        at -= 1
    lowest.height[at] = height


cdef inline void empty(Lowest *lowest, Py_ssize_t wanted) noexcept nogil:
    cdef Py_ssize_t at
    lowest.wanted = wanted
    for at in range(wanted):
        lowest.height[at] = INFINITY


cdef inline void believe(Lowest *lowest, double noise) noexcept nogil:
    # Finds the first that is believed.
    cdef Py_ssize_t place, at
    cdef double usual, gap
    lowest.first = lowest.finite = 0
    for at in range(lowest.wanted):
        lowest.finite += isfinite(lowest.height[at]) != 0
    for place in range(MOST_LEFT_OUT):
        if place + 1 + NEXT >= lowest.finite:
            break
        usual = 0
        for at in range(place + 1, place + 1 + NEXT):
            usual += lowest.height[at + 1] - lowest.height[at]
        gap = lowest.height[place + 1] - lowest.height[place]
        if gap > FAR * (usual / NEXT) + 2 * noise and gap < WRONG * noise:
            lowest.first = place + 1


cdef inline double spacing_of(const Lowest *lowest) noexcept nogil:
    cdef Py_ssize_t others = min(<Py_ssize_t> SPACINGS, lowest.finite - 1 - lowest.first)
    if others <= 0:
        return INFINITY
    return (lowest.height[lowest.first + others] - lowest.height[lowest.first]) / others


cdef inline double sum_of_eight(const double *value) noexcept nogil:
    return ((value[0] + value[1]) + (value[2] + value[3])) + ((value[4] + value[5]) + (value[6] + value[7]))


cdef inline double rise_of(const Lowest *lowest) noexcept nogil:
    cdef Py_ssize_t place
    cdef double total
    if lowest.finite < AVERAGED + lowest.first:
        return NAN
    total = sum_of_eight(lowest.height)
    for place in range(lowest.first):
        total += lowest.height[AVERAGED + place] - lowest.height[place]
    return total / AVERAGED - lowest.height[lowest.first]


cdef inline double deeper_of(const Lowest *lowest, double share) noexcept nogil:
    cdef double weight[HIGH]
    cdef double part[HIGH]
    cdef double power = 1, total, known, count = HIGH - lowest.first, last
    cdef Py_ssize_t at
    if isnan(share):
        return NAN
    for at in range(HIGH):
        weight[at] = part[at] = 0
        if at > lowest.first:
            power *= 1 - share
        if at >= lowest.first and at < lowest.finite:
            weight[at] = share * power
            if weight[at] > 0:
                part[at] = weight[at] * (lowest.height[at] - lowest.height[lowest.first])
    total = (sum_of_eight(weight) + weight[8]) + weight[9]
    known = (sum_of_eight(part) + part[8]) + part[9]
    if lowest.finite < HIGH:
        return known / total
    last = lowest.height[HIGH - 1] - lowest.height[lowest.first] if weight[HIGH - 1] > 0 else 0
    return known + (1 - total) * (last * (sqrt(count + 1 / share) - 1) / (sqrt(count) - 1))


def stand(points, rows, lines, double limit_ppb):
    """Where some sides stand on lines through the origin: value, spacing, rise, deeper, ceiling and least_at_s of each.

    Parameters:
        points: x and y, a side a row; missing ones have x = 0 and y = inf.
        rows: the sides asked for.
        lines: slope, noise_ns and share of each of these.
        limit_ppb: two clocks never run further apart.

    Raises:
        ValueError: columns of one table have different lengths, or sides have no points.
        IndexError: there is no such side.
    """
    cdef const double[:, ::1] all_x = np.ascontiguousarray(points[0], np.float64)
    cdef const double[:, ::1] all_y = np.ascontiguousarray(points[1], np.float64)
    cdef const int64_t[::1] wanted = np.ascontiguousarray(rows, np.int64)
    cdef const double[::1] slopes = np.ascontiguousarray(lines[0], np.float64)
    cdef const double[::1] noises = np.ascontiguousarray(lines[1], np.float64)
    cdef const double[::1] shares = np.ascontiguousarray(lines[2], np.float64)
    cdef Py_ssize_t count = wanted.shape[0], width = all_x.shape[1], at, point
    check_tables(all_x, all_y, wanted)
    if not count == slopes.shape[0] == noises.shape[0] == shares.shape[0]:
        raise ValueError("columns of one table have different lengths")
    found = np.empty((6, count))
    cdef double[:, ::1] told = found
    cdef Lowest lowest
    cdef double height, before, after, before_s, after_s, alone
    cdef const double *side_x
    cdef const double *side_y
    with nogil:
        for at in range(count):
            side_x, side_y = &all_x[wanted[at], 0], &all_y[wanted[at], 0]
            empty(&lowest, HIGH)
            before = after = INFINITY
            before_s = after_s = side_x[0]
            for point in range(width):
                height = side_y[point] - slopes[at] * side_x[point]
                insert(&lowest, height)
                if side_x[point] <= 0:
                    if height < before:
                        before, before_s = height, side_x[point]
                elif height < after:
                    after, after_s = height, side_x[point]
            believe(&lowest, noises[at])
            told[0, at] = lowest.height[lowest.first]
            told[1, at] = spacing_of(&lowest)
            told[2, at] = rise_of(&lowest)
            told[3, at] = deeper_of(&lowest, shares[at])
            if isfinite(before) and isfinite(after):
                told[4, at] = (before * after_s - after * before_s) / (after_s - before_s)
            else:
                alone = INFINITY
                for point in range(width):
                    alone = min(alone, side_y[point] + limit_ppb * fabs(side_x[point]))
                told[4, at] = alone
            told[5, at] = before_s if before <= after else after_s
    return tuple(found)


cdef struct Half:
    double value
    double at_s
    double late_ns


cdef inline Half half_of(
    Lowest *lowest, const double *x, const double *height, Py_ssize_t width, Py_ssize_t points, bint later, double noise
) noexcept nogil:
    cdef Half half
    cdef Py_ssize_t point
    believe(lowest, noise)
    half.value, half.at_s = lowest.height[lowest.first], x[0]
    if not isfinite(half.value):
        half.value, half.late_ns = 0, INFINITY
        return half
    for point in range(width):
        if (x[point] > 0) == later and height[point] == half.value:
            half.at_s = x[point]
            break
    half.late_ns = hypot(CAUTION * (FAR_NS if points < FEW else spacing_of(lowest)), noise)
    return half


def turn(points, pair, lines, excess_ns):
    """By how much each pair's clouds want their line turned: the weight of that, and the turn times its weight.

    Parameters:
        points: those of all sides, as `stand` has them.
        pair: of each side.
        lines: slope and noise_ns of each pair.
        excess_ns: of each side, how much wider its stream is than at its best.

    Raises:
        ValueError: columns of one table have different lengths, or sides have no points.
        IndexError: there is no such pair.
    """
    cdef const double[:, ::1] all_x = np.ascontiguousarray(points[0], np.float64)
    cdef const double[:, ::1] all_y = np.ascontiguousarray(points[1], np.float64)
    cdef const int64_t[::1] pair_of = np.ascontiguousarray(pair, np.int64)
    cdef const double[::1] slopes = np.ascontiguousarray(lines[0], np.float64)
    cdef const double[::1] noises = np.ascontiguousarray(lines[1], np.float64)
    cdef const double[::1] excess = np.ascontiguousarray(excess_ns, np.float64)
    cdef Py_ssize_t sides = all_x.shape[0], width = all_x.shape[1], pairs = slopes.shape[0], side, point
    check_tables(all_x, all_y, pair_of[:0])
    if pairs != noises.shape[0] or pair_of.shape[0] != sides or excess.shape[0] != sides:
        raise ValueError("columns of one table have different lengths")
    check(pair_of, pairs)
    weights, turns = np.zeros(pairs), np.zeros(pairs)
    cdef double[::1] total = weights, wanted = turns
    cdef double *height = <double *> malloc(width * sizeof(double))
    if height == NULL:
        raise MemoryError
    cdef Lowest lowest, highest
    cdef Half before, after
    cdef Py_ssize_t earlier, later
    cdef double span_s, weight, tilt, noise
    with nogil:
        for side in range(sides):
            empty(&lowest, LOW)
            empty(&highest, LOW)
            earlier = later = 0
            tilt, noise = slopes[pair_of[side]], noises[pair_of[side]]
            for point in range(width):
                height[point] = all_y[side, point] - tilt * all_x[side, point]
                if all_x[side, point] > 0:
                    insert(&highest, height[point])
                    later += isfinite(height[point]) != 0
                else:
                    insert(&lowest, height[point])
                    earlier += isfinite(height[point]) != 0
            before = half_of(&lowest, &all_x[side, 0], height, width, earlier, False, noise)
            after = half_of(&highest, &all_x[side, 0], height, width, later, True, noise)
            span_s = after.at_s - before.at_s
            if span_s > 0:
                weight = span_s * span_s / (
                    before.late_ns * before.late_ns + after.late_ns * after.late_ns + 2 * (excess[side] * excess[side])
                )
                total[pair_of[side]] += weight
                wanted[pair_of[side]] += weight * (after.value - before.value) / span_s
    free(height)
    return weights, turns


def floors(windows, rows, own, Py_ssize_t agreeing):
    """The floor of each stream's half-width by the windows remembered and this one, and how doubtful it is.

    Parameters:
        windows: the half-widths of the windows that are remembered, and by how much each may be too wide, a stream a
            row; inf where there was none.
        rows: the streams of this window.
        own: the same two of this window, one a stream.
        agreeing: windows whose least widths show how far above the floor they may be.

    Raises:
        ValueError: columns of one table have different lengths, or more shall agree than are known.
        IndexError: there is no such stream.
    """
    cdef const double[:, ::1] width = np.ascontiguousarray(windows[0], np.float64)
    cdef const double[:, ::1] doubt = np.ascontiguousarray(windows[1], np.float64)
    cdef const int64_t[::1] wanted = np.ascontiguousarray(rows, np.int64)
    cdef const double[::1] half = np.ascontiguousarray(own[0], np.float64)
    cdef const double[::1] spare = np.ascontiguousarray(own[1], np.float64)
    cdef Py_ssize_t count = wanted.shape[0], remembered = width.shape[1], at, window, place, row
    if width.shape[0] != doubt.shape[0] or remembered != doubt.shape[1] or not count == half.shape[0] == spare.shape[0]:
        raise ValueError("columns of one table have different lengths")
    if not 0 < agreeing <= remembered + 1:
        raise ValueError(f"{agreeing} windows of {remembered + 1} cannot agree")
    check(wanted, width.shape[0])
    found = np.empty((2, count))
    cdef double[:, ::1] told = found
    cdef double best, best_doubt, floor, value
    cdef double *least = <double *> malloc(agreeing * sizeof(double))
    if least == NULL:
        raise MemoryError
    with nogil:
        for at in range(count):
            row = wanted[at]
            floor, best_doubt = half[at], spare[at]
            if remembered:
                floor, best_doubt = width[row, 0], doubt[row, 0]
            best = floor + best_doubt
            for place in range(agreeing):
                least[place] = INFINITY
            for window in range(remembered + 1):
                value = half[at] if window == remembered else width[row, window]
                if value < least[agreeing - 1]:
                    place = agreeing - 1
                    while place > 0 and value < least[place - 1]:
                        least[place] = least[place - 1]
                        place -= 1
                    least[place] = value
                if value + (spare[at] if window == remembered else doubt[row, window]) < best:
                    best_doubt = spare[at] if window == remembered else doubt[row, window]
                    best, floor = value + best_doubt, value
            if least[agreeing - 1] - least[0] < best_doubt:
                floor, best_doubt = least[0], least[agreeing - 1] - least[0]
            told[0, at], told[1, at] = floor, best_doubt
    free(least)
    return tuple(found)


def least(widths, rows):
    """The least value of some rows of a table; inf where there is none.

    Raises:
        IndexError: there is no such row.
    """
    cdef const double[:, ::1] width = np.ascontiguousarray(widths, np.float64)
    cdef const int64_t[::1] wanted = np.ascontiguousarray(rows, np.int64)
    cdef Py_ssize_t at, column
    check(wanted, width.shape[0])
    found = np.full(wanted.shape[0], INFINITY)
    cdef double[::1] told = found
    with nogil:
        for at in range(wanted.shape[0]):
            for column in range(width.shape[1]):
                told[at] = min(told[at], width[wanted[at], column])
    return found


def quiet(gaps, rows, double share, Py_ssize_t fewest):
    """A low quantile of what there is of some rows of a table; nan where a row has too few.

    Parameters:
        gaps: inf where there is none.
        rows: the rows asked for.
        share: so many of a row's values lie below.
        fewest: values that a row needs.

    Raises:
        ValueError: there is no such share.
        IndexError: there is no such row.
    """
    cdef const double[:, ::1] gap = np.ascontiguousarray(gaps, np.float64)
    cdef const int64_t[::1] wanted = np.ascontiguousarray(rows, np.int64)
    cdef Py_ssize_t count = wanted.shape[0], columns = gap.shape[1], at, column, place, known, kept
    cdef double value
    if not 0 <= share < 1:
        raise ValueError(f"a share of {share}")
    check(wanted, gap.shape[0])
    found = np.empty(count)
    cdef double[::1] told = found
    cdef double *lowest = <double *> malloc((columns + 1) * sizeof(double))
    if lowest == NULL:
        raise MemoryError
    with nogil:
        for at in range(count):
            known = 0
            for column in range(columns):
                known += isfinite(gap[wanted[at], column]) != 0
            if known < max(fewest, 1):
                told[at] = NAN
                continue
            kept = <Py_ssize_t> (share * (known - 1)) + 1
            for place in range(kept):
                lowest[place] = INFINITY
            for column in range(columns):
                value = gap[wanted[at], column]
                if value < lowest[kept - 1]:
                    place = kept - 1
                    while place > 0 and value < lowest[place - 1]:
                        lowest[place] = lowest[place - 1]
                        place -= 1
                    lowest[place] = value
            told[at] = lowest[kept - 1]
    free(lowest)
    return found


cdef int check(const int64_t[::1] number, Py_ssize_t count) except -1:
    cdef Py_ssize_t at
    for at in range(number.shape[0]):
        if not 0 <= number[at] < count:
            raise IndexError(f"row {number[at]} of a table of {count}")
    return 0


cdef int check_tables(const double[:, ::1] x, const double[:, ::1] y, const int64_t[::1] rows) except -1:
    if x.shape[0] != y.shape[0] or x.shape[1] != y.shape[1] or (x.shape[0] and not x.shape[1]):
        raise ValueError("sides have no points, or tables of points have different lengths")
    return check(rows, x.shape[0])
