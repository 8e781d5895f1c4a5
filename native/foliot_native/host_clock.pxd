"""The clocks of a host, for compiled code: readings, the ruler that turns stamps into local time, and a lab's error."""

from libc.math cimport rint
from libc.stdint cimport int64_t


cdef extern from "<time.h>" nogil:
    struct timespec:
        int64_t tv_sec
        long tv_nsec

    int clock_gettime(int clock, timespec *time)
    int CLOCK_MONOTONIC
    int CLOCK_MONOTONIC_RAW
    int CLOCK_REALTIME
    int CLOCK_THREAD_CPUTIME_ID


cdef enum:
    _KEPT = 16


cdef inline int64_t clock_ns(int clock) noexcept nogil:
    cdef timespec now
    clock_gettime(clock, &now)
    return now.tv_sec * <int64_t>1_000_000_000 + now.tv_nsec


cdef class RealtimeMap:
    cdef int64_t _raw_ns[_KEPT]
    cdef int64_t _realtime_ns[_KEPT]
    cdef int _count
    cdef bint _stepped
    cdef int64_t _since_ns
    cdef int64_t _until_ns
    cdef int64_t _by_ns

    cdef void refresh(self, int64_t latest_ns) noexcept nogil
    cdef void read(self) noexcept nogil
    cdef void take(self, int64_t raw_ns, int64_t realtime_ns) noexcept nogil
    cdef int64_t interpolated(self, int64_t stamp_ns) noexcept nogil
    cdef int64_t map(self, int64_t stamp_ns) noexcept nogil
    cdef void settle(self) noexcept nogil


cdef struct Injected:  # the error of a host's clock in a lab, see `foliot.clock.InjectedError`
    bint present
    int64_t start_ns
    int64_t offset_ns
    double rate_ppb
    int64_t seconds
    const double *walk_ns
    const int64_t *stepped_ns


cdef inline int64_t skewed(Injected *error, int64_t raw_ns) noexcept nogil:
    """A host's local time at a time of CLOCK_MONOTONIC_RAW."""
    cdef double age_s
    cdef double moved_ns
    cdef int64_t second
    if not error.present:
        return raw_ns
    age_s = <double>(raw_ns - error.start_ns) * 1e-9
    moved_ns = error.rate_ppb * age_s
    if error.seconds:
        if age_s <= 0:
            moved_ns += error.walk_ns[0]
        elif age_s >= <double>(error.seconds - 1):
            moved_ns += error.walk_ns[error.seconds - 1]
        else:
            second = <int64_t>age_s
            moved_ns += error.walk_ns[second] + (error.walk_ns[second + 1] - error.walk_ns[second]) * (
                age_s - <double>second
            )
    return raw_ns + <int64_t>rint(moved_ns) + error.offset_ns + error.stepped_ns[0]
