"""One-way delays: made, summed up, and compared with the least. The twins are in `foliot_probe.core`."""

import numpy as np

from libc.math cimport INFINITY, rint
from libc.stdint cimport INT64_MIN, UINT16_MAX, UINT32_MAX, int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memset

cdef double BEYOND = 9223372036854775808.0
cdef enum:
    FEW = 32
    BUCKETS = 256
    SOURCES = 4
    DESTINATIONS = 10
    MOST_STREAMS = 32_768


cdef inline int64_t plus(int64_t one, int64_t other) noexcept nogil:
    # Wraps as in numpy, where C leaves it open.
    return <int64_t> (<uint64_t> one + <uint64_t> other)


cdef inline int64_t minus(int64_t one, int64_t other) noexcept nogil:
    return <int64_t> (<uint64_t> one - <uint64_t> other)


cdef inline int64_t whole(double value) noexcept nogil:
    # What no int64 can hold becomes the least of them, as by an x86-64 processor.
    value = rint(value)
    return <int64_t> value if -BEYOND <= value < BEYOND else INT64_MIN


cdef inline int64_t reference(
    int64_t local_ns, int64_t offset_ns, int64_t as_of_ns, double rate
) noexcept nogil:
    return plus(plus(local_ns, offset_ns), whole(<double> minus(local_ns, as_of_ns) * rate))


cdef void order(int64_t *values, Py_ssize_t count) noexcept nogil:
    # In place: by insertion where there are few, as there usually are, else by a heap.
    cdef Py_ssize_t at, parent, child, end
    cdef int64_t value
    if count <= FEW:
        for end in range(1, count):
            value, at = values[end], end
            while at > 0 and values[at - 1] > value:
                values[at] = values[at - 1]
                at -= 1
            values[at] = value
        return
    parent, end = count // 2, count
    while True:
        if parent > 0:
            parent -= 1
            value = values[parent]
        else:
            end -= 1
            if end == 0:
                return
            value = values[end]
            values[end] = values[0]
        at, child = parent, 2 * parent + 1
        while child < end:
            if child + 1 < end and values[child + 1] > values[child]:
                child += 1
            if values[child] <= value:
                break
            values[at] = values[child]
            at, child = child, 2 * child + 1
        values[at] = value


cdef inline uint8_t bucket_of(int64_t delay_ns, const int64_t *begins_ns, Py_ssize_t begins) noexcept nogil:
    cdef Py_ssize_t low = 0, high = begins, middle
    while low < high:
        middle = (low + high) // 2
        if begins_ns[middle] <= delay_ns:
            low = middle + 1
        else:
            high = middle
    return <uint8_t> low


cdef Py_ssize_t wrong_row(const Py_ssize_t[::1] row, Py_ssize_t rows) noexcept nogil:
    # The place of one that the table has not; -1: there is none.
    cdef Py_ssize_t at
    for at in range(row.shape[0]):
        if not 0 <= row[at] < rows:
            return at
    return -1


cdef int check(const Py_ssize_t[::1] row, Py_ssize_t rows) except -1:
    cdef Py_ssize_t at = wrong_row(row, rows)
    if at >= 0:
        raise IndexError(f"row {row[at]} of a table of {rows}")
    return 0


def one_way_ns(probes, sender, receiver, int64_t within_ns):
    """The rows and one-way delays of the probes for which both ends have a reference.

    Parameters:
        probes: row, transmit_ns and receive_ns of each.
        sender, receiver: of each row of the table, the state of the clock at that end. By it, a local time t is at the
            reference time t + offset_ns + rate * (t - as_of_ns), as long as t is not after void_after_ns. In this
            order: offset_ns, as_of_ns, rate, void_after_ns.
        within_ns: a delay of so much, to either side, is left out.

    Raises:
        ValueError: columns of one table have different lengths.
        IndexError: a row is not in the table.
    """
    cdef const Py_ssize_t[::1] places = np.ascontiguousarray(probes[0], np.intp)
    cdef const int64_t[::1] transmit = np.ascontiguousarray(probes[1], np.int64)
    cdef const int64_t[::1] receive = np.ascontiguousarray(probes[2], np.int64)
    cdef const int64_t[::1] sender_offset = np.ascontiguousarray(sender[0], np.int64)
    cdef const int64_t[::1] sender_as_of = np.ascontiguousarray(sender[1], np.int64)
    cdef const double[::1] sender_rate = np.ascontiguousarray(sender[2], np.float64)
    cdef const int64_t[::1] sender_void = np.ascontiguousarray(sender[3], np.int64)
    cdef const int64_t[::1] receiver_offset = np.ascontiguousarray(receiver[0], np.int64)
    cdef const int64_t[::1] receiver_as_of = np.ascontiguousarray(receiver[1], np.int64)
    cdef const double[::1] receiver_rate = np.ascontiguousarray(receiver[2], np.float64)
    cdef const int64_t[::1] receiver_void = np.ascontiguousarray(receiver[3], np.int64)
    cdef Py_ssize_t count = places.shape[0], rows = sender_offset.shape[0], kept = 0, at, place
    cdef int64_t delay_ns
    if transmit.shape[0] != count or receive.shape[0] != count:
        raise ValueError(f"{count} rows with {transmit.shape[0]} and {receive.shape[0]} stamps")
    if not (
        rows == sender_as_of.shape[0] == sender_rate.shape[0] == sender_void.shape[0]
        == receiver_offset.shape[0] == receiver_as_of.shape[0] == receiver_rate.shape[0] == receiver_void.shape[0]
    ):
        raise ValueError("references of tables of different lengths")
    check(places, rows)
    known_row, known_ns = np.empty(count, np.intp), np.empty(count, np.int64)
    cdef Py_ssize_t[::1] kept_row = known_row
    cdef int64_t[::1] kept_ns = known_ns
    with nogil:
        for at in range(count):
            place = places[at]
            if transmit[at] > sender_void[place] or receive[at] > receiver_void[place]:
                continue
            delay_ns = minus(
                reference(receive[at], receiver_offset[place], receiver_as_of[place], receiver_rate[place]),
                reference(transmit[at], sender_offset[place], sender_as_of[place], sender_rate[place]),
            )
            if -within_ns < delay_ns < within_ns:
                kept_row[kept], kept_ns[kept] = place, delay_ns
                kept += 1
    return known_row[:kept], known_ns[:kept]


def digest(row, delay_ns, Py_ssize_t rows):
    """Least, median and 99th percentile of the delays of each row of a table, by nearest rank; 0: it has none.

    Raises:
        ValueError: as many rows as delays are needed.
        IndexError: a row is not in the table.
    """
    cdef const Py_ssize_t[::1] places = np.ascontiguousarray(row, np.intp)
    cdef const int64_t[::1] delays = np.ascontiguousarray(delay_ns, np.int64)
    cdef Py_ssize_t count = places.shape[0], at, place, start, some
    if delays.shape[0] != count:
        raise ValueError(f"{count} rows with {delays.shape[0]} delays")
    check(places, rows)
    least_ns, median_ns, p99_ns = np.zeros(rows, np.int64), np.zeros(rows, np.int64), np.zeros(rows, np.int64)
    if count == 0:
        return least_ns, median_ns, p99_ns
    cdef int64_t[::1] least = least_ns, median = median_ns, p99 = p99_ns
    # Where the delays of each row begin among all; as they are put there, it becomes where they end.
    cdef Py_ssize_t *ends = <Py_ssize_t *> calloc(rows + 1, sizeof(Py_ssize_t))
    cdef int64_t *ordered = <int64_t *> malloc(count * sizeof(int64_t))
    if ends == NULL or ordered == NULL:
        free(ends)
        free(ordered)
        raise MemoryError
    with nogil:
        for at in range(count):
            ends[places[at] + 1] += 1
        for place in range(rows):
            ends[place + 1] += ends[place]
        for at in range(count):
            ordered[ends[places[at]]] = delays[at]
            ends[places[at]] += 1
        start = 0
        for place in range(rows):
            some = ends[place] - start
            if some:
                order(ordered + start, some)
                least[place] = ordered[start]
                median[place] = ordered[start + (some - 1) // 2]
                p99[place] = ordered[start + (some * 99 - 1) // 100]
                start = ends[place]
    free(ends)
    free(ordered)
    return least_ns, median_ns, p99_ns


def interval_columns(rows, told, source, destination, int64_t shift_ns):
    """The columns of a report of some rows of a table, as bytes. See `DelayRow` of foliot_schemas.

    Parameters:
        rows: the streams. Stream i has the path 2i, which begins here, and the path 2i + 1, which ends here.
        told: whether each of both paths of each row of the table has a row; None: all have.
        source: columns by row of the table: sent, last_ns, sequence, unsent.
        destination: the same: sent, received, least_ns, median_ns, p99_ns, last_ns, sequence, full_sent, full_received,
            full_bytes.
        shift_ns: what is added to `last_ns`, but to 0.

    Raises:
        ValueError: columns have different lengths.
        IndexError: a row is not in the table.
    """
    cdef const Py_ssize_t[::1] wanted = np.ascontiguousarray(rows, np.intp)
    cdef Py_ssize_t streams = wanted.shape[0], stream, row, count = 0, end, each
    cdef const int64_t[::1] column
    cdef const int64_t *columns[SOURCES + DESTINATIONS]
    cdef const uint8_t[:, ::1] both
    cdef Py_ssize_t table_rows = len(source[0])
    held = [np.ascontiguousarray(values, np.int64) for values in (*source, *destination)]
    if len(held) != SOURCES + DESTINATIONS or streams > MOST_STREAMS:
        raise ValueError(f"{len(held)} columns, or {streams} streams")
    for each in range(SOURCES + DESTINATIONS):
        column = held[each]
        if column.shape[0] != table_rows:
            raise ValueError(f"a column of {column.shape[0]} values for {table_rows} rows")
        columns[each] = &column[0] if table_rows else NULL
    check(wanted, table_rows)
    if told is not None:
        both = np.ascontiguousarray(told, np.bool_).view(np.uint8)
        if both.shape[0] != table_rows or both.shape[1] != 2:
            raise ValueError(f"told of {both.shape[0]} rows, and there are {table_rows}")
    for stream in range(streams):
        for end in range(2):
            count += told is None or both[wanted[stream], end]
    path, witness = np.zeros(count, np.uint16), np.zeros(count, np.uint8)
    counts, times, small = np.zeros((2, count), np.uint32), np.zeros((5, count), np.int64), np.zeros((4, count), np.uint16)
    cdef uint16_t[::1] paths = path
    cdef uint8_t[::1] witnesses = witness
    cdef uint32_t[:, ::1] numbers = counts
    cdef int64_t[:, ::1] ns = times
    cdef uint16_t[:, ::1] few = small
    cdef bint is_told_all = told is None
    cdef Py_ssize_t at = 0
    with nogil:
        for stream in range(streams):
            row = wanted[stream]
            for end in range(2):
                if not is_told_all and not both[row, end]:
                    continue
                paths[at] = <uint16_t> (2 * stream + end)
                witnesses[at] = <uint8_t> end
                if end == 0:
                    numbers[0, at] = many(columns[0][row])
                    ns[3, at] = shifted(columns[1][row], shift_ns)
                    ns[4, at] = columns[2][row]
                    few[3, at] = little(columns[3][row])
                else:
                    numbers[0, at] = many(columns[4][row])
                    numbers[1, at] = many(columns[5][row])
                    for each in range(3):
                        ns[each, at] = columns[6 + each][row]
                    ns[3, at] = shifted(columns[9][row], shift_ns)
                    ns[4, at] = columns[10][row]
                    for each in range(3):
                        few[each, at] = little(columns[11 + each][row])
                at += 1
    return (path.tobytes(), witness.tobytes(), *(each.tobytes() for each in (*counts, *times, *small)))


cdef inline int64_t shifted(int64_t value_ns, int64_t shift_ns) noexcept nogil:
    return plus(value_ns, shift_ns) if value_ns else 0


cdef inline uint32_t many(int64_t value) noexcept nogil:
    return <uint32_t> (value if value < UINT32_MAX else UINT32_MAX)


cdef inline uint16_t little(int64_t value) noexcept nogil:
    return <uint16_t> (value if value < UINT16_MAX else UINT16_MAX)


def count_by_bucket(rows, row, delay_ns, Py_ssize_t table_rows, begins_ns):
    """The delays of some rows of a table, counted by row and bucket: where in `rows`, the bucket, and how many.

    Parameters:
        rows: those whose delays count.
        row, delay_ns: of each delay.
        begins_ns: the least delay of each bucket but the first, in order; at most 255.

    Raises:
        ValueError: as many rows as delays are needed, and a byte must hold a bucket's number.
        IndexError: a row is not in the table.
    """
    cdef const Py_ssize_t[::1] wanted = np.ascontiguousarray(rows, np.intp)
    cdef const Py_ssize_t[::1] places = np.ascontiguousarray(row, np.intp)
    cdef const int64_t[::1] delays = np.ascontiguousarray(delay_ns, np.int64)
    cdef const int64_t[::1] begins = np.ascontiguousarray(begins_ns, np.int64)
    cdef Py_ssize_t count = places.shape[0], streams = wanted.shape[0], at, stream, start, known, kept = 0
    if delays.shape[0] != count:
        raise ValueError(f"{count} rows with {delays.shape[0]} delays")
    if begins.shape[0] >= BUCKETS:
        raise ValueError(f"{begins.shape[0] + 1} buckets, and a byte has a number for {BUCKETS}")
    check(wanted, table_rows)
    check(places, table_rows)
    all_streams, all_buckets = np.empty(count, np.intp), np.empty(count, np.uint8)
    all_probes = np.empty(count, np.int64)
    if count == 0 or streams == 0:
        return all_streams[:0], all_buckets[:0], all_probes[:0]
    cdef Py_ssize_t[::1] kept_stream = all_streams
    cdef uint8_t[::1] kept_bucket = all_buckets
    cdef int64_t[::1] kept_probes = all_probes
    cdef const int64_t *first_begin = &begins[0] if begins.shape[0] else NULL
    cdef Py_ssize_t *stream_of = <Py_ssize_t *> calloc(table_rows, sizeof(Py_ssize_t))
    cdef Py_ssize_t *ends = <Py_ssize_t *> calloc(streams + 1, sizeof(Py_ssize_t))
    cdef uint8_t *bucket = <uint8_t *> malloc(count)
    cdef uint32_t[BUCKETS] probes
    cdef Py_ssize_t number
    if stream_of == NULL or ends == NULL or bucket == NULL:
        free(stream_of)
        free(ends)
        free(bucket)
        raise MemoryError
    with nogil:
        # Stream numbers from 1 on; 0: the row is not wanted.
        for stream in range(streams):
            stream_of[wanted[stream]] = stream + 1
        for at in range(count):
            stream = stream_of[places[at]]
            if stream:
                ends[stream] += 1
        for stream in range(streams):
            ends[stream + 1] += ends[stream]
        for at in range(count):
            stream = stream_of[places[at]]
            if stream:
                bucket[ends[stream - 1]] = bucket_of(delays[at], first_begin, begins.shape[0])
                ends[stream - 1] += 1
        start = 0
        for stream in range(streams):
            known = ends[stream]
            if known - start <= FEW:
                order_bytes(bucket + start, known - start)
                while start < known:
                    number = start + 1
                    while number < known and bucket[number] == bucket[start]:
                        number += 1
                    kept_stream[kept], kept_bucket[kept], kept_probes[kept] = stream, bucket[start], number - start
                    kept += 1
                    start = number
                continue
            memset(probes, 0, sizeof(probes))
            while start < known:
                probes[bucket[start]] += 1
                start += 1
            for number in range(BUCKETS):
                if probes[number]:
                    kept_stream[kept], kept_bucket[kept], kept_probes[kept] = stream, <uint8_t> number, probes[number]
                    kept += 1
    free(stream_of)
    free(ends)
    free(bucket)
    return all_streams[:kept], all_buckets[:kept], all_probes[:kept]


cdef void order_bytes(uint8_t *values, Py_ssize_t count) noexcept nogil:
    cdef Py_ssize_t at, end
    cdef uint8_t value
    for end in range(1, count):
        value, at = values[end], end
        while at > 0 and values[at - 1] > value:
            values[at] = values[at - 1]
            at -= 1
        values[at] = value


def least_gaps(row, delay_ns, Py_ssize_t rows, Py_ssize_t left_out, Py_ssize_t gaps):
    """The mean gap (ns) between the least delays of each row of a table, of all and of every second; inf: too few.

    Parameters:
        row, delay_ns: of each delay, in any order.
        left_out: so many of the least do not count.
        gaps: so many count; of every second delay, each reaches over two.

    Raises:
        ValueError: as many rows as delays are needed, nothing can be left out but delays, and a mean needs a gap.
        IndexError: a row is not in the table.
    """
    cdef const Py_ssize_t[::1] places = np.ascontiguousarray(row, np.intp)
    cdef const int64_t[::1] delays = np.ascontiguousarray(delay_ns, np.int64)
    cdef Py_ssize_t count = places.shape[0], needed, at, place, first, known
    cdef int64_t value
    if delays.shape[0] != count:
        raise ValueError(f"{count} rows with {delays.shape[0]} delays")
    if not (0 <= left_out < FEW and 1 <= gaps < FEW // 2 - left_out):
        raise ValueError(f"{left_out} delays left out, and {gaps} gaps: {FEW // 2} or more, or less than none")
    needed = 2 * (left_out + gaps) + 1
    check(places, rows)
    of_all, of_halved = np.full(rows, np.inf), np.full(rows, np.inf)
    if count == 0:
        return of_all, of_halved
    cdef double[::1] gap_ns = of_all, halved_ns = of_halved
    # The least delays of each row, in order, and how many of them are known yet.
    cdef int64_t *least = <int64_t *> malloc(rows * needed * sizeof(int64_t))
    cdef uint8_t *kept = <uint8_t *> calloc(rows, 1)
    if least == NULL or kept == NULL:
        free(least)
        free(kept)
        raise MemoryError
    with nogil:
        for at in range(count):
            place, value = places[at], delays[at]
            first, known = place * needed, kept[place]
            if known == needed:
                if value >= least[first + known - 1]:
                    continue
                known -= 1
            kept[place] = <uint8_t> (known + 1)
            while known > 0 and value < least[first + known - 1]:
                least[first + known] = least[first + known - 1]
                known -= 1
            least[first + known] = value
        for place in range(rows):
            first = place * needed
            if kept[place] > left_out + gaps:
                gap_ns[place] = <double> minus(least[first + left_out + gaps], least[first + left_out]) / <double> gaps
            if kept[place] == needed:
                halved_ns[place] = (
                    <double> minus(least[first + needed - 1], least[first + 2 * left_out]) / <double> gaps
                )
    free(least)
    free(kept)
    return of_all, of_halved


cdef double at_rank(double *values, Py_ssize_t count, Py_ssize_t rank) noexcept nogil:
    # The value at a rank from 0 on, by a heap of those up to it, the largest on top. The values change their places.
    cdef Py_ssize_t at, parent, child, size = rank + 1
    cdef double value
    for at in range(size // 2 - 1, -1, -1):
        sink(values, size, at, values[at])
    for at in range(size, count):
        if values[at] < values[0]:
            sink(values, size, 0, values[at])
    return values[0]


cdef inline void sink(double *heap, Py_ssize_t size, Py_ssize_t at, double value) noexcept nogil:
    cdef Py_ssize_t child = 2 * at + 1
    while child < size:
        if child + 1 < size and heap[child + 1] > heap[child]:
            child += 1
        if not heap[child] > value:
            break
        heap[at] = heap[child]
        at, child = child, 2 * child + 1
    heap[at] = value


cdef void heights_above_floor(
    const Py_ssize_t[::1] row, const int64_t[::1] transmit_ns, const int64_t[::1] receive_ns, bint back,
    const double[::1] least, const double[::1] most, double share, double *height, double *scratch, double *width,
) noexcept nogil:
    cdef Py_ssize_t first = 0, stop, at, count = row.shape[0]
    cdef int64_t first_ns, run_ns
    cdef double slope, floor
    while first < count:
        slope = (least[row[first]] + most[row[first]]) / 2
        first_ns = minus(receive_ns[first], transmit_ns[first])
        stop, floor = first, INFINITY
        while stop < count and row[stop] == row[first]:
            run_ns = (
                minus(receive_ns[first], receive_ns[stop]) if back else minus(transmit_ns[stop], transmit_ns[first])
            )
            height[stop] = (
                <double> minus(minus(receive_ns[stop], transmit_ns[stop]), first_ns) - slope * <double> run_ns
            )
            if height[stop] < floor:
                floor = height[stop]
            stop += 1
        for at in range(first, stop):
            height[at] -= floor
            scratch[at - first] = height[at]
        width[row[first]] = at_rank(scratch, stop - first, min(<Py_ssize_t> (share * (stop - first)), stop - first - 1))
        first = stop


def near_floor(forth, back, slopes, double bent, double share):
    """The number of probes near the quickest one, of each row of the table, forth and back; 0: nobody counted.

    Parameters:
        forth, back: the probes of a direction: row, transmit_ns and receive_ns of each. They are ordered by row.
        slopes: least and most of each row of the table, the range that its line can have.
        bent: where the range is so wide, nothing is counted.
        share: near is what lies within this quantile of the heights above the floor, at least 0 and less than 1. The
            direction counts in which that is narrower.

    Raises:
        ValueError: columns of one table have different lengths, rows are not in order, or the share is none.
        IndexError: a row is not in the table.
    """
    cdef const Py_ssize_t[::1] forth_row = np.ascontiguousarray(forth[0], np.intp)
    cdef const int64_t[::1] forth_transmit = np.ascontiguousarray(forth[1], np.int64)
    cdef const int64_t[::1] forth_receive = np.ascontiguousarray(forth[2], np.int64)
    cdef const Py_ssize_t[::1] back_row = np.ascontiguousarray(back[0], np.intp)
    cdef const int64_t[::1] back_transmit = np.ascontiguousarray(back[1], np.int64)
    cdef const int64_t[::1] back_receive = np.ascontiguousarray(back[2], np.int64)
    cdef const double[::1] leasts = np.ascontiguousarray(slopes[0], np.float64)
    cdef const double[::1] mosts = np.ascontiguousarray(slopes[1], np.float64)
    cdef Py_ssize_t rows = leasts.shape[0], forths = forth_row.shape[0], backs = back_row.shape[0], at
    if not (
        mosts.shape[0] == rows and forth_transmit.shape[0] == forth_receive.shape[0] == forths
        and back_transmit.shape[0] == back_receive.shape[0] == backs
    ):
        raise ValueError("columns of one table have different lengths")
    if not 0 <= share < 1:
        raise ValueError(f"a share of {share}")
    check(forth_row, rows)
    check(back_row, rows)
    if not (in_order(forth_row) and in_order(back_row)):
        raise ValueError("rows are not in order")
    near_forth, near_back = np.zeros(rows, np.int64), np.zeros(rows, np.int64)
    if rows == 0:
        return near_forth, near_back
    cdef int64_t[::1] counted_forth = near_forth, counted_back = near_back
    cdef double *width = <double *> calloc(2 * rows, sizeof(double))
    cdef double *height = <double *> malloc((forths + backs + max(forths, backs) + 1) * sizeof(double))
    cdef double *scratch = height + forths + backs
    if width == NULL or height == NULL:
        free(width)
        free(height)
        raise MemoryError
    with nogil:
        heights_above_floor(
            forth_row, forth_transmit, forth_receive, False, leasts, mosts, share, height, scratch, width
        )
        heights_above_floor(
            back_row, back_transmit, back_receive, True, leasts, mosts, share, height + forths, scratch, width + rows
        )
        for at in range(rows):
            if width[rows + at] < width[at]:
                width[at] = width[rows + at]
            if not mosts[at] - leasts[at] < bent:
                width[at] = 0
        for at in range(forths):
            if width[forth_row[at]] > 0 and height[at] <= width[forth_row[at]]:
                counted_forth[forth_row[at]] += 1
        for at in range(backs):
            if width[back_row[at]] > 0 and height[forths + at] <= width[back_row[at]]:
                counted_back[back_row[at]] += 1
    free(width)
    free(height)
    return near_forth, near_back


cdef bint in_order(const Py_ssize_t[::1] row) noexcept nogil:
    cdef Py_ssize_t at
    for at in range(1, row.shape[0]):
        if row[at] < row[at - 1]:
            return False
    return True
