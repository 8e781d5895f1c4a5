"""Measures the load of the node's processors, from the kernel's counters."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, NamedTuple

import structlog

from foliot_schemas import HostLoad

if TYPE_CHECKING:
    from pathlib import Path

log = structlog.get_logger()

_STEAL = 7
"""Column of stolen time in /proc/stat, after the name (proc(5)).

The first eight columns are all of the processors' time.
"""
_TIMES = 8
_DROPPED, _SQUEEZED = 1, 2
"""Columns of /proc/net/softnet_stat, in hexadecimal, a line for each processor (net/core/net-procfs.c)."""


class _Counts(NamedTuple):
    now_ns: int
    total: int
    stolen: int
    waited_us: int
    squeezed: int
    dropped: int


class HostLoadMeter:
    """Reads the counters, and says by how much they grew since the last reading.

    The kernel writes all of /proc/stat anew for each reading, with each interrupt of the host (fs/proc/stat.c:
    `show_stat`). Where there are thousands of interrupts, that takes milliseconds. So a thread reads, and the event
    loop runs on meanwhile.
    """

    def __init__(self, proc: Path) -> None:
        self._proc = proc
        self._last: _Counts | None = None
        for name in ("stat", "pressure/cpu", "net/softnet_stat"):
            if not os.access(proc / name, os.R_OK):
                log.info("host_load_unknown", file=str(proc / name))

    def read(self, now_ns: int) -> HostLoad | None:
        """The load since the last call, by a time that never steps; None at the first call, or if it is not told."""
        before, self._last = self._last, self._count(now_ns)
        now = self._last
        if before is None or now is None or now_ns <= before.now_ns:
            return None
        span_ns, total = now_ns - before.now_ns, now.total - before.total
        return HostLoad(
            span_ns=span_ns,
            stolen=_share(now.stolen - before.stolen, total),
            waiting=_share((now.waited_us - before.waited_us) * 1_000, span_ns),
            squeezed=max(now.squeezed - before.squeezed, 0),
            dropped=max(now.dropped - before.dropped, 0),
        )

    def _count(self, now_ns: int) -> _Counts | None:
        stat = self._read("stat").partition(b"\n")[0].split()[1:]
        if len(stat) < _TIMES:
            return None
        times = [int(each) for each in stat[:_TIMES]]
        some = self._read("pressure/cpu").partition(b"\n")[0]
        waited_us = int(some.rpartition(b"total=")[2]) if b"total=" in some else 0
        softnet = [line.split() for line in self._read("net/softnet_stat").splitlines()]
        return _Counts(
            now_ns=now_ns,
            total=sum(times),
            stolen=times[_STEAL],
            waited_us=waited_us,
            squeezed=sum(int(line[_SQUEEZED], 16) for line in softnet),
            dropped=sum(int(line[_DROPPED], 16) for line in softnet),
        )

    def _read(self, name: str) -> bytes:
        try:
            return (self._proc / name).read_bytes()
        except OSError:
            return b""  # pressure may be there, but not switched on (psi=0)


def _share(part: int, whole: int) -> float:
    return min(max(part / whole, 0.0), 1.0) if whole > 0 else 0.0
