"""Turns stamps of CLOCK_REALTIME into CLOCK_MONOTONIC_RAW, compiled, without Python and without its lock.

It does what `foliot.clock.realtime_map.RealtimeMap` does, its twin; that one says why each step is as it is.
"""

from libc.math cimport fabs, rint
from libc.stdint cimport int64_t

import numpy as np


cdef enum:
    _TRIES = 12
    _SLOWER = 16

cdef int64_t _APART_NS = 5_000_000
cdef double _STEEPEST = 0.15
cdef int64_t _WAITING_NS = 500_000_000
cdef int64_t _NEVER = 0x7FFFFFFFFFFFFFFF


cdef class RealtimeMap:
    """Turns CLOCK_REALTIME into CLOCK_MONOTONIC_RAW, as `foliot.clock.realtime_map.RealtimeMap` does.

    Parameters:
        raw_ns, realtime_ns: a first reading of both clocks.
    """

    def __cinit__(self, int64_t raw_ns, int64_t realtime_ns):
        self._count = 1
        self._raw_ns[0] = raw_ns
        self._realtime_ns[0] = realtime_ns
        self._stepped = False

    def add(self, reading):
        """Takes a reading of both clocks, later than all before: `raw_ns` and `realtime_ns`."""
        self.take(reading[0], reading[1])

    def mapped(self, int64_t[::1] stamps_ns not None):
        """Turns stamps that were made before the last reading."""
        found = np.empty(len(stamps_ns), np.int64)
        cdef int64_t[::1] raw_ns = found
        cdef Py_ssize_t each
        for each in range(stamps_ns.shape[0]):
            raw_ns[each] = self.map(stamps_ns[each])
        self.settle()
        return found

    cdef void refresh(self, int64_t latest_ns) noexcept nogil:
        cdef int64_t last_ns = self._realtime_ns[self._count - 1]
        if latest_ns > last_ns or clock_ns(CLOCK_REALTIME) < last_ns:
            self.read()

    cdef void read(self) noexcept nogil:
        cdef int64_t before_ns[_TRIES]
        cdef int64_t realtime_ns[_TRIES]
        cdef int64_t after_ns[_TRIES]
        cdef int64_t least_ns = _NEVER
        cdef int64_t middle_ns = 0
        cdef int64_t then_ns = 0
        cdef int64_t quick = 0
        cdef int each
        for each in range(_TRIES):
            before_ns[each] = clock_ns(CLOCK_MONOTONIC_RAW)
            realtime_ns[each] = clock_ns(CLOCK_REALTIME)
            after_ns[each] = clock_ns(CLOCK_MONOTONIC_RAW)
            least_ns = min(least_ns, after_ns[each] - before_ns[each])
        for each in range(_TRIES):
            if after_ns[each] - before_ns[each] <= least_ns + least_ns // _SLOWER:
                # Relative to the first try: a sum of twelve times would not fit.
                middle_ns += (before_ns[each] - before_ns[0]) + (after_ns[each] - before_ns[0])
                then_ns += realtime_ns[each] - realtime_ns[0]
                quick += 1
        self.take(before_ns[0] + middle_ns // (2 * quick), realtime_ns[0] + then_ns // quick)

    cdef void take(self, int64_t raw_ns, int64_t realtime_ns) noexcept nogil:
        cdef int last = self._count - 1
        cdef int each
        cdef int64_t in_ns = raw_ns - self._raw_ns[last]
        cdef int64_t gained_ns = realtime_ns - self._realtime_ns[last]
        cdef int64_t by_ns
        cdef double rate
        if fabs(<double>(gained_ns - in_ns)) > _STEEPEST * <double>in_ns:
            rate = 0.0
            if self._raw_ns[last] != self._raw_ns[0]:
                rate = <double>(self._realtime_ns[last] - self._realtime_ns[0]) / <double>(
                    self._raw_ns[last] - self._raw_ns[0]
                ) - 1
            by_ns = gained_ns - in_ns - <int64_t>rint(rate * in_ns)
            for each in range(self._count):
                self._realtime_ns[each] += by_ns
            self._stepped = True
            self._since_ns = self._raw_ns[last]
            self._until_ns = raw_ns
            self._by_ns = by_ns
        elif self._count > 1 and self._raw_ns[last] - self._raw_ns[last - 1] < _APART_NS:
            self._count -= 1
        if self._count == _KEPT:
            for each in range(_KEPT - 1):
                self._raw_ns[each] = self._raw_ns[each + 1]
                self._realtime_ns[each] = self._realtime_ns[each + 1]
            self._count -= 1
        self._raw_ns[self._count] = raw_ns
        self._realtime_ns[self._count] = realtime_ns
        self._count += 1

    cdef int64_t interpolated(self, int64_t stamp_ns) noexcept nogil:
        cdef int64_t base_ns = self._realtime_ns[0]
        cdef int64_t distance_ns = base_ns - self._raw_ns[0]
        cdef int last = self._count - 1
        cdef int each = last - 1
        cdef double moved
        cdef double slope
        if stamp_ns <= base_ns:
            return stamp_ns - distance_ns
        if stamp_ns >= self._realtime_ns[last]:
            return stamp_ns - (self._realtime_ns[last] - self._raw_ns[last])
        while each > 0 and self._realtime_ns[each] > stamp_ns:
            each -= 1
        moved = <double>(self._realtime_ns[each] - self._raw_ns[each] - distance_ns)
        slope = (<double>(self._realtime_ns[each + 1] - self._raw_ns[each + 1] - distance_ns) - moved) / <double>(
            self._realtime_ns[each + 1] - self._realtime_ns[each]
        )
        moved += slope * <double>(stamp_ns - self._realtime_ns[each])
        return stamp_ns - distance_ns - <int64_t>rint(moved)

    cdef int64_t map(self, int64_t stamp_ns) noexcept nogil:
        cdef int64_t raw_ns = self.interpolated(stamp_ns)
        cdef int64_t then_ns
        if not self._stepped:
            return raw_ns
        then_ns = self.interpolated(stamp_ns + self._by_ns)
        if then_ns <= self._since_ns - _WAITING_NS or then_ns > self._until_ns:
            return raw_ns
        if raw_ns > self._raw_ns[self._count - 1] or raw_ns < self._since_ns:
            return then_ns
        return raw_ns

    cdef void settle(self) noexcept nogil:
        """Forgets a step when no stamp of before it can be waiting."""
        if self._stepped and self._raw_ns[self._count - 1] - self._until_ns > _WAITING_NS:
            self._stepped = False
