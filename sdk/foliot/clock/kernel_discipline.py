"""Asks the kernel for the discipline of CLOCK_REALTIME, and for what it knows of UTC (adjtimex(2))."""

from __future__ import annotations

import ctypes
from typing import NamedTuple

UNSYNCHRONISED = 0x0040
"""STA_UNSYNC: no daemon disciplines the clock, or none has for long."""
_MICROSECOND_NS, _SECOND_NS, _DAY_S = 1_000, 1_000_000_000, 86_400
_INSERT, _DELETE, _ERROR = 1, 2, 5
"""Clock states: TIME_INS and TIME_DEL, while STA_INS or STA_DEL announces a leap second; TIME_ERROR, which hides
them."""
_LEAST_TAI_S = 10
"""UTC began in 1972 with so much. Where no daemon has set the offset, the kernel counts leap seconds from 0."""


class Timex(ctypes.Structure):
    """struct timex. `modes` 0 asks and changes nothing, which needs no right."""

    _fields_ = (
        ("modes", ctypes.c_uint),
        ("offset", ctypes.c_long),
        ("freq", ctypes.c_long),
        ("maxerror", ctypes.c_long),
        ("esterror", ctypes.c_long),
        ("status", ctypes.c_int),
        ("constant", ctypes.c_long),
        ("precision", ctypes.c_long),
        ("tolerance", ctypes.c_long),
        ("time_s", ctypes.c_long),
        ("time_fraction", ctypes.c_long),
        ("tick", ctypes.c_long),
        ("ppsfreq", ctypes.c_long),
        ("jitter", ctypes.c_long),
        ("shift", ctypes.c_int),
        ("stabil", ctypes.c_long),
        ("jitcnt", ctypes.c_long),
        ("calcnt", ctypes.c_long),
        ("errcnt", ctypes.c_long),
        ("stbcnt", ctypes.c_long),
        ("tai", ctypes.c_int),
        ("rest", ctypes.c_int * 32),
    )


class KernelUtc(NamedTuple):
    """The kernel's knowledge of UTC at one moment. Names and values are those of `StampBatch`."""

    utc_error_ns: int
    """The largest error of CLOCK_REALTIME; -1: unknown."""
    tai_offset_s: int
    """TAI minus UTC; 0: unknown."""
    leap_s: int | None
    """The leap second announced for the end of the day: 1 inserted, -1 deleted, 0 none; None: unknown."""
    leap_utc_ns: int
    """UTC at which it begins; 0: there is none."""


_libc = ctypes.CDLL(None, use_errno=True)


def ask() -> tuple[int, Timex]:
    """Returns the kernel's clock state (negative: it refuses to say), and its answer."""
    told = Timex(modes=0)
    return _libc.adjtimex(ctypes.byref(told)), told


def kernel_utc() -> KernelUtc:
    """The kernel's knowledge of UTC, now.

    ptpd, ptp4l, phc2sys, chrony, ntpd and timesyncd tell the kernel, which lets the error grow while they are silent.
    Some say 0.
    """
    return read_utc(*ask())


def read_utc(state: int, told: Timex) -> KernelUtc:
    """Reads the kernel's answer: its clock state (negative: refused), and what it says."""
    if state < 0:
        return KernelUtc(-1, 0, None, 0)
    tai_offset_s = told.tai if told.tai >= _LEAST_TAI_S else 0
    disciplined = not told.status & UNSYNCHRONISED and told.maxerror >= 0
    error_ns = told.maxerror * _MICROSECOND_NS if disciplined else -1
    if not disciplined or state == _ERROR:
        return KernelUtc(error_ns, tai_offset_s, None, 0)
    leap_s = {_INSERT: 1, _DELETE: -1}.get(state, 0)
    # As the kernel finds the end of the day. Its time is of the same moment as its state, so the day is right just
    # before midnight, too.
    leap_utc_s = told.time_s + _DAY_S - (told.time_s + (leap_s < 0)) % _DAY_S if leap_s else 0
    return KernelUtc(error_ns, tai_offset_s, leap_s, leap_utc_s * _SECOND_NS)
