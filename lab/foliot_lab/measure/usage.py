"""Adds up the processor time of processes, by name, over their restarts, and counts what they waited for it."""

from __future__ import annotations

import os
import time
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

OTHER = "other"
"""The sum of processes without a name of their own: those whose key begins with this and a slash."""
_TICKS_A_SECOND = os.sysconf("SC_CLK_TCK")


class Usage:
    """Adds up the cost of processes from now on.

    Call `look` every second or so: it misses the cost of a process between the last look and the process's end.

    Parameters:
        pids: the processes that run now, by name; 0: it does not run.
    """

    def __init__(self, pids: Callable[[], Mapping[str, int]]) -> None:
        self._pids = pids
        self._last: dict[str, tuple[int, float]] = {}
        self._spent_s: defaultdict[str, float] = defaultdict(float)
        self._waited: dict[int, float] = {}
        """By process, in all."""
        self.waited_s: dict[str, float] = {}
        """For how long each had no processor between the last two looks, but those without a name of their own."""
        self._began_s = time.monotonic()
        self.look()
        self._spent_s.clear()

    def look(self) -> float:
        """Adds the time spent since the last look, and returns it, in seconds."""
        spent_s, before = 0.0, self._waited
        self._waited, self.waited_s = {}, {}
        for name, pid in self._pids().items():
            now_s = spent_by(pid) if pid else None
            if now_s is None:
                continue
            if not name.startswith(f"{OTHER}/"):
                self._waited[pid] = waited_by(pid)
                self.waited_s[name] = self._waited[pid] - before.get(pid, 0.0)
            before_pid, before_s = self._last.get(name, (0, 0.0))
            self._last[name] = pid, now_s
            more_s = now_s - (before_s if before_pid == pid else 0.0)
            self._spent_s[OTHER if name.startswith(f"{OTHER}/") else name] += more_s
            spent_s += more_s
        return spent_s

    def shares(self) -> dict[str, float]:
        """The share of one core that each has used since this was made, the most expensive first."""
        passed_s = max(time.monotonic() - self._began_s, 1e-9)
        dear = sorted(self._spent_s.items(), key=lambda item: -item[1])
        return {name: round(spent_s / passed_s, 4) for name, spent_s in dear}


def spent_by(pid: int) -> float | None:
    """Processor time of a process with all its threads, in seconds; None: it has ended."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return (int(fields[11]) + int(fields[12])) / _TICKS_A_SECOND


def waited_by(pid: int) -> float:
    """For how long a process's first thread could have run and had no processor, in seconds; 0: that is not counted."""
    try:
        return int(Path(f"/proc/{pid}/schedstat").read_bytes().split()[1]) * 1e-9
    except (OSError, ValueError, IndexError):
        return 0.0


def left_over(idle_cpu: float, used_cpu: float, speed: float) -> float:
    """The share that is left of a quota.

    Parameters:
        idle_cpu: idle share of all processors' time.
        used_cpu: share of all processors' time that the processes under the quota used.
        speed: the quota, as a share of all processors; 1: none.
    """
    return idle_cpu if speed >= 1 else max(0.0, min(idle_cpu, speed - used_cpu)) / speed
