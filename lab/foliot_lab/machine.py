"""What a run's machine and code were: how busy its processors, how quick, and of which commit the code.

Figures of two runs can be compared only where these are alike.
"""

from __future__ import annotations

import subprocess
import time
from pathlib import Path
from typing import NamedTuple, Self

_ADDITIONS = 1_000_000
_TURNS = 5


class CpuTimes(NamedTuple):
    """The first line of ``/proc/stat``, in clock ticks since boot, see proc_stat(5)."""

    idle: int
    """Idle, and waiting for a disk."""
    total: int
    stolen: int = 0
    """What the hypervisor gave to others while something wanted to run here; part of the total."""

    @classmethod
    def parse(cls, text: str) -> Self:
        """From the file's text.

        Raises:
            ValueError: it does not begin with the sum over all cores.
        """
        name, *fields = text.splitlines()[0].split()
        if name != "cpu":
            raise ValueError(f"/proc/stat begins with {name!r}, not with the sum over all cores")
        # The fields after the eighth (guest times) are already counted in the first two.
        ticks = [int(field) for field in fields[:8]]
        return cls(idle=ticks[3] + ticks[4], total=sum(ticks), stolen=ticks[7])

    @classmethod
    def read(cls) -> Self:
        """As they are now."""
        return cls.parse(Path("/proc/stat").read_text())

    def idle_share(self, later: CpuTimes) -> float:
        """Share of the time between this reading and a later one in which cores had nothing to do; 1 if none has passed."""
        passed = later.total - self.total
        return (later.idle - self.idle) / passed if passed > 0 else 1.0

    def stolen_share(self, later: CpuTimes) -> float:
        """Share of the time between this reading and a later one that the hypervisor took; 0 if none has passed."""
        passed = later.total - self.total
        return (later.stolen - self.stolen) / passed if passed > 0 else 0.0


def fixed_work_s() -> float:
    """Seconds that a million additions in a loop of Python take here, the least of five turns: how quick one core is.

    The least, as other processes only add to a turn; what they take shows in the idle share. Takes under a second on most machines.
    """
    turns = []
    for _ in range(_TURNS):
        began_s = time.perf_counter()
        number = 0
        while number < _ADDITIONS:
            number += 1
        turns.append(time.perf_counter() - began_s)
    return round(min(turns), 4)


def commit(folder: Path = Path(__file__).parent) -> str | None:
    """The commit of the checkout that a folder is in, with ``+`` behind it if tracked files differ; None: it is in none, or there is no git."""
    try:
        found = _git(folder, "rev-parse", "HEAD")
        return found + ("+" if _git(folder, "status", "--porcelain", "--untracked-files=no") else "")
    except (OSError, subprocess.SubprocessError):
        return None


def _git(folder: Path, *arguments: str) -> str:
    # As any user: git trusts no folder of another one's, and in a user namespace everybody else is another one.
    command = ("git", "-c", "safe.directory=*", "-C", str(folder), *arguments)
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=10.0)
    return done.stdout.strip()
