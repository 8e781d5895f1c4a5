"""Finds the daemon that disciplines this host's system clock, and its stated error. It only reads."""

from __future__ import annotations

from pathlib import Path

import msgspec

from foliot.clock.kernel_discipline import UNSYNCHRONISED, ask

_KEEPERS = {
    "chronyd": "chrony", "ntpd": "ntpd", "systemd-timesyn": "systemd-timesyncd", "phc2sys": "phc2sys",
    "ptp4l": "ptp4l", "openntpd": "openntpd",
}  # fmt: skip
"""By the first 15 characters of the process's name, which is all that the kernel keeps."""


class Discipline(msgspec.Struct, frozen=True, kw_only=True):
    """The kernel's own account of CLOCK_REALTIME, see adjtimex(2)."""

    synchronised: bool
    greatest_error_us: int
    frequency_ppm: float
    keepers: tuple[str, ...]
    """Programs that are known to discipline clocks and run on this host."""


def discipline() -> Discipline | None:
    """The present discipline; None: the kernel does not say."""
    answer, state = ask()
    if answer < 0:
        return None
    return Discipline(
        synchronised=not state.status & UNSYNCHRONISED,
        greatest_error_us=state.maxerror,
        frequency_ppm=state.freq / 65_536,
        keepers=keepers(Path("/proc")),
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
