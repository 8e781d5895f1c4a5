"""Asks the kernel for the discipline of CLOCK_REALTIME, and for its error from UTC (adjtimex(2))."""

from __future__ import annotations

import ctypes

UNSYNCHRONISED = 0x0040
"""STA_UNSYNC: no daemon disciplines the clock, or none has for long."""
_MICROSECOND_NS = 1_000


class Timex(ctypes.Structure):
    """struct timex. `modes` 0 asks and changes nothing, which needs no right."""

    _fields_ = (
        ("modes", ctypes.c_uint),
        ("offset", ctypes.c_long),
        ("freq", ctypes.c_long),
        ("maxerror", ctypes.c_long),
        ("esterror", ctypes.c_long),
        ("status", ctypes.c_int),
        ("rest", ctypes.c_long * 40),
    )


_libc = ctypes.CDLL(None, use_errno=True)


def ask() -> tuple[int, Timex]:
    """Returns the kernel's clock state (negative: it refuses to say), and its answer."""
    told = Timex(modes=0)
    return _libc.adjtimex(ctypes.byref(told)), told


def utc_error_ns() -> int:
    """The largest error of CLOCK_REALTIME from UTC, in ns; -1: unknown.

    ptpd, ptp4l, phc2sys, chrony, ntpd and timesyncd tell the kernel, which lets the error grow while they are silent. Some say 0.
    """
    state, told = ask()
    return error_ns(state, told.status, told.maxerror)


def error_ns(state: int, status: int, maxerror_us: int) -> int:
    """Reads the kernel's answer: its clock state (negative: refused), the status bits, and the error in microseconds."""
    if state < 0 or status & UNSYNCHRONISED or maxerror_us < 0:
        return -1
    return maxerror_us * _MICROSECOND_NS
