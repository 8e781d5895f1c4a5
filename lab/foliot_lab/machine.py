"""What the machine is like, for whoever publishes a figure: how quick it is, what it has left over, and what its hypervisor takes.

Of this process, since it imported this module: ``msgspec.to_builtins(had())``. Of an interval: two readings of `CpuTimes`.
"""

from __future__ import annotations

import socket
import time
from pathlib import Path
from typing import NamedTuple, Self

import msgspec
import numpy as np

_ROUNDS = 60
"""Of the fixed piece of work: 0.2 s in all on a quick 2-core virtual machine, long enough for a clock of a millisecond."""
_ADDITIONS, _NUMBERS, _MESSAGES = 25_000, 65_536, 700
"""In a round: about a third of its time each on that machine, as a probe's or a detector's mix is."""
_BYTES = bytes(144)
"""A probe's datagram."""


class CpuTimes(NamedTuple):
    """The first line of ``/proc/stat``, in clock ticks since boot, see proc_stat(5)."""

    idle: int
    """Idle, and waiting for a disk."""
    stolen: int
    """Taken by the hypervisor for somebody else."""
    total: int

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
        return cls(idle=ticks[3] + ticks[4], stolen=ticks[7], total=sum(ticks))

    @classmethod
    def read(cls) -> Self:
        """As they are now."""
        return cls.parse(Path("/proc/stat").read_text())

    def idle_share(self, later: CpuTimes) -> float:
        """Share of the time between this reading and a later one in which cores had nothing to do; 1 if none has passed."""
        passed = later.total - self.total
        return (later.idle - self.idle) / passed if passed > 0 else 1.0

    def stolen_from_work_share(self, later: CpuTimes) -> float:
        """Of the time between this reading and a later one in which cores had something to do, the share that the hypervisor took; 0 if they had nothing to do.

        From a core that has nothing to do nothing is taken, so that this tells more of what a load will meet.
        """
        passed = (later.total - later.idle) - (self.total - self.idle)
        return (later.stolen - self.stolen) / passed if passed > 0 else 0.0

    def stolen_share(self, later: CpuTimes) -> float:
        """Share of all cores' time between this reading and a later one that the hypervisor took; 0 if none has passed."""
        passed = later.total - self.total
        return (later.stolen - self.stolen) / passed if passed > 0 else 0.0


AT_START = CpuTimes.read()
"""When this process imported this module."""


class Had(msgspec.Struct, frozen=True, kw_only=True):
    """What the machine was like while something was measured."""

    idle_cpu: float
    """Share of all cores' time in which they had nothing to do."""
    stolen_cpu: float
    """Share of all cores' time that the hypervisor took."""
    fixed_work_s: float
    """Processor time that a fixed piece of work takes now, see `fixed_work_s`."""


def had(since: CpuTimes = AT_START) -> Had:
    """What the machine was like from a reading until now; takes a quarter of a second of a processor."""
    now = CpuTimes.read()
    return Had(
        idle_cpu=round(since.idle_share(now), 3),
        stolen_cpu=round(since.stolen_share(now), 3),
        fixed_work_s=round(fixed_work_s(), 3),
    )


def fixed_work_s() -> float:
    """Processor time that a fixed piece of work takes, in seconds: what services do, which is Python, numpy and system calls.

    Of the calling thread alone: what it waits for a processor, or loses to a quota, is in the idle and the stolen share, not in this.
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
        return time.thread_time() - began_s


def _add() -> int:
    found: dict[int, int] = {}
    for number in range(_ADDITIONS):
        found[number & 0xFF] = found.get(number & 0xFF, 0) + number
    return len(found)
