"""Gives the reference time to chrony (or ntpd) on the same host, by its driver for shared memory, "SHM".

chrony makes one segment for each ``refclock SHM`` of its settings, which also say who may write to it. Layout and
protocol are those of ntpd's driver 28 (ntp.org, "Shared Memory Driver"), with nanoseconds as chrony has them. In its
mode 1, the writer counts before and after.
"""

from __future__ import annotations

import ctypes
import errno
import os

_KEY = 0x4E545030
"""Key of unit 0: "NTP0". The other units' keys follow."""
_MODE = 1
_PRECISION = -20
"""Precision of the samples, as a power of two of a second: a microsecond. chrony goes by its own ``precision``."""
_LEAPS = {0: 0, 1: 1, -1: 2}
"""NTP's numbers for a second that is inserted or deleted at the end of the day (RFC 5905)."""
_SECOND_NS = 1_000_000_000
_MICROSECOND_NS = 1_000

_libc = ctypes.CDLL(None, use_errno=True)
_libc.shmget.argtypes = (ctypes.c_int, ctypes.c_size_t, ctypes.c_int)
_libc.shmat.argtypes = (ctypes.c_int, ctypes.c_void_p, ctypes.c_int)
_libc.shmat.restype = ctypes.c_void_p
_libc.shmdt.argtypes = (ctypes.c_void_p,)
_FAILED = ctypes.c_void_p(-1).value


class Segment(ctypes.Structure):
    """``struct shmTime``."""

    _fields_ = (
        ("mode", ctypes.c_int), ("count", ctypes.c_int),
        ("clock_s", ctypes.c_long), ("clock_us", ctypes.c_int),
        ("receive_s", ctypes.c_long), ("receive_us", ctypes.c_int),
        ("leap", ctypes.c_int), ("precision", ctypes.c_int), ("nsamples", ctypes.c_int), ("valid", ctypes.c_int),
        ("clock_ns", ctypes.c_uint), ("receive_ns", ctypes.c_uint), ("dummy", ctypes.c_int * 8),
    )  # fmt: skip


class Refclock:
    """A unit of the driver: 2 in ``refclock SHM 2``."""

    def __init__(self, unit: int) -> None:
        self._unit = unit
        self._id = -1
        self._address = 0

    def tell(self, reference_ns: int, realtime_ns: int, leap_s: int = 0) -> None:
        """Writes one sample: the reference time and CLOCK_REALTIME at one moment, and a leap second that is to come.

        Raises:
            OSError: chrony has made no such segment, or it may not be written to.
        """
        self._attach()
        segment = Segment.from_address(self._address)
        segment.valid = 0
        segment.count += 1
        segment.mode = _MODE
        segment.clock_s, nanoseconds = divmod(reference_ns, _SECOND_NS)
        segment.clock_ns, segment.clock_us = nanoseconds, nanoseconds // _MICROSECOND_NS
        segment.receive_s, nanoseconds = divmod(realtime_ns, _SECOND_NS)
        segment.receive_ns, segment.receive_us = nanoseconds, nanoseconds // _MICROSECOND_NS
        segment.leap, segment.precision = _LEAPS[leap_s], _PRECISION
        segment.count += 1
        segment.valid = 1

    def close(self) -> None:
        """Lets go of the segment."""
        if self._address:
            _libc.shmdt(self._address)
        self._id, self._address = -1, 0

    def _attach(self) -> None:
        found = _libc.shmget(_KEY + self._unit, ctypes.sizeof(Segment), 0)
        if found < 0:
            raise self._error()
        if found != self._id:  # the first time, or somebody removed it and chrony made another
            self.close()
            address = _libc.shmat(found, None, 0)
            if address == _FAILED:
                raise self._error()
            self._id, self._address = found, address

    def _error(self) -> OSError:
        number = ctypes.get_errno()
        self.close()
        hints = {
            errno.ENOENT: f"chrony has no 'refclock SHM {self._unit}', or does not run",
            errno.EACCES: f"it is not for this user: give it 'refclock SHM {self._unit}:perm=0666'",
        }
        return OSError(number, hints.get(number, os.strerror(number)))
