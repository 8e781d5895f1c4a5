"""Finds the daemon that disciplines this host's system clock, and its stated error. It only reads."""

from __future__ import annotations

import ctypes
from pathlib import Path

import msgspec

_STA_UNSYNC = 0x0040
_KEEPERS = {
    "chronyd": "chrony", "ntpd": "ntpd", "systemd-timesyn": "systemd-timesyncd", "phc2sys": "phc2sys",
    "ptp4l": "ptp4l", "openntpd": "openntpd",
}  # fmt: skip
"""By the first 15 characters of the process's name, which is all that the kernel keeps."""

_libc = ctypes.CDLL(None, use_errno=True)


class _Timex(ctypes.Structure):
    """``struct timex`` of <sys/timex.h>, 64-bit."""

    _fields_ = (
        ("modes", ctypes.c_uint), ("offset", ctypes.c_long), ("freq", ctypes.c_long), ("maxerror", ctypes.c_long),
        ("esterror", ctypes.c_long), ("status", ctypes.c_int), ("constant", ctypes.c_long),
        ("precision", ctypes.c_long), ("tolerance", ctypes.c_long), ("seconds", ctypes.c_long),
        ("microseconds", ctypes.c_long), ("tick", ctypes.c_long), ("rest", ctypes.c_long * 16),
    )  # fmt: skip


class Discipline(msgspec.Struct, frozen=True, kw_only=True):
    """The kernel's own account of CLOCK_REALTIME, see adjtimex(2)."""

    synchronised: bool
    greatest_error_us: int
    frequency_ppm: float
    keepers: tuple[str, ...]
    """Programs that are known to discipline clocks and run on this host."""


def discipline(proc: Path = Path("/proc")) -> Discipline:
    """The present discipline.

    Raises:
        OSError: the kernel does not say.
    """
    state = _Timex(modes=0)
    if _libc.adjtimex(ctypes.byref(state)) < 0:
        raise OSError(ctypes.get_errno(), "adjtimex")
    return Discipline(
        synchronised=not state.status & _STA_UNSYNC,
        greatest_error_us=state.maxerror,
        frequency_ppm=state.freq / 65_536,
        keepers=keepers(proc),
    )


def keepers(proc: Path) -> tuple[str, ...]:
    """The programs that discipline clocks among the running processes."""
    found = set()
    for comm in proc.glob("[0-9]*/comm"):
        try:
            found.add(_KEEPERS.get(comm.read_text().strip(), ""))
        except OSError:  # it has just ended
            continue
    return tuple(sorted(found - {""}))
