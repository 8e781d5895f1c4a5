"""Measures the machine's spare capacity: the lateness of a sleeping thread, and the idle share of the processors."""

from __future__ import annotations

import os
import threading
import time
from typing import TYPE_CHECKING, NamedTuple, Self

import msgspec
import numpy as np

from foliot_lab.measure.machine import CpuTimes
from foliot_lab.measure.usage import Usage, left_over

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from foliot.runtime.loop_steps import Counted

SECOND_NS = 1_000_000_000
_SLEEP_NS = 2_000_000
"""Long enough to cost little: five hundred wakings a second take a per cent of a core. Short enough to meet every
stall of two milliseconds or more."""
_PROCESSORS = os.cpu_count() or 1
"""All processors of the machine, as in /proc/stat."""
_KEPT = 1 << 19
"""Wakings kept, the newest: a quarter of an hour, in 4 MB."""


class Lateness(msgspec.Struct, frozen=True, kw_only=True):
    """Percentiles of a sleeper's delay, from the moment it asked for to its waking, in ms; null without a sample."""

    p50: float | None
    p99: float | None


class Steps(msgspec.Struct, frozen=True, kw_only=True):
    """The lengths of the steps of a process's event loop, each from its wake-up to the next wait."""

    p50_ms: float
    p99_ms: float
    max_ms: float
    steps_over_10ms: int
    own_p99_ms: float
    """Processor time that the loop's thread used in a step."""
    own_max_ms: float
    own_over_10ms: int
    """Steps that used more than 10 ms of processor time. Other steps over 10 ms waited for a processor, or for
    something else."""
    by_bound_ms: dict[str, int] = {}
    """The histogram: steps by the least bound that they did not exceed, in ms, see `Histogram.by_bound`."""
    own_by_bound_ms: dict[str, int] = {}
    """The same of the processor time."""

    @classmethod
    def of(cls, steps: Counted) -> Self:
        """The steps from the counts of histograms. Times are rounded up by up to an eighth, as the buckets are."""
        took, own = steps
        return cls(
            p50_ms=took.within_ms(0.5), p99_ms=took.within_ms(0.99), max_ms=took.within_ms(1),
            steps_over_10ms=took.long,
            own_p99_ms=own.within_ms(0.99), own_max_ms=own.within_ms(1), own_over_10ms=own.long,
            by_bound_ms=took.by_bound(), own_by_bound_ms=own.by_bound(),
        )  # fmt: skip


class Machine(msgspec.Struct, frozen=True, kw_only=True):
    """The machine's spare processor time during a run."""

    idle_cpu: float
    """Idle share of all cores' time; under a quota, of the time that it allows, see `usage.left_over`."""
    stolen_cpu: float = 0.0
    """Share of all cores' time that the hypervisor took."""
    speed: float = 1.0
    """The share of all cores that the lab was kept to; 1: all of them."""
    fixed_work_s: float | None = None
    """Processor time of a fixed piece of work right before the run, see `machine.fixed_work_s`; None: not measured."""
    scheduler_lateness_ms: Lateness
    processes: dict[str, float] = {}
    """Share of one core that each process used."""
    loops: dict[str, Steps] = {}
    """The steps of each service's event loop."""


class Second(NamedTuple):
    """The machine's spare processor time in one second."""

    until_ns: int
    """End of the second, by the sampler's clock."""
    idle_cpu: float
    late_ms: float
    """The greatest lateness of a sleeper."""
    waited_s: Mapping[str, float] = {}
    """For how long the first thread of each process could have run and had no processor."""


def worst(seconds: Sequence[Second], since_ns: int, until_ns: int) -> Second | None:
    """The second of an interval with the least spare capacity; None: the interval has none."""
    some = [second for second in seconds if since_ns < second.until_ns <= until_ns + SECOND_NS]
    return min(some, key=lambda second: (second.idle_cpu, -second.late_ms), default=None)


class LatenessSampler:
    """A thread that sleeps two milliseconds at a time and records by how much it overslept. Call `start`, then `stop`.

    Parameters:
        clock: the clock that dates the seconds.
        pids: processes by name, whose cost is added up; under a quota, all processes in it.
        speed: the quota, as a share of all cores.
    """

    def __init__(
        self,
        clock: Callable[[], int] = time.monotonic_ns,
        pids: Callable[[], Mapping[str, int]] = dict,
        speed: float = 1.0,
    ) -> None:
        self.seconds: list[Second] = []
        self._clock = clock
        self._overslept_ns = np.zeros(_KEPT, dtype=np.int64)
        self._count = 0
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._sleep_on, name="lateness", daemon=True)
        self._at_start = CpuTimes.read()
        self._pids, self._speed = pids, speed
        # The quota is of the processors that may be used, which need not be all.
        self._allowed = speed if speed >= 1 else speed * len(os.sched_getaffinity(0)) / _PROCESSORS
        self._usage = Usage(pids)
        self._used_s, self._began_s = 0.0, time.monotonic()

    def start(self) -> None:
        """Begins to sample, and begins the interval of the idle share."""
        self._at_start = CpuTimes.read()
        self._usage = Usage(self._pids)
        self._used_s, self._began_s = 0.0, time.monotonic()
        self._thread.start()

    def stop(self) -> None:
        """Ends the thread; the samples stay."""
        self._stopping.set()
        if self._thread.ident is not None:
            self._thread.join()
            self._used_s += self._usage.look()

    def machine(self) -> Machine:
        """The machine's spare processor time since `start`."""
        kept = self._overslept_ns[: min(self._count, _KEPT)]
        now = CpuTimes.read()
        idle_cpu = self._left(self._at_start.idle_share(now), self._used_s, time.monotonic() - self._began_s)
        return Machine(
            idle_cpu=idle_cpu, stolen_cpu=self._at_start.stolen_share(now), speed=self._speed,
            scheduler_lateness_ms=percentiles(kept), processes=self._usage.shares(),
        )  # fmt: skip

    def _left(self, idle_cpu: float, used_s: float, passed_s: float) -> float:
        return left_over(idle_cpu, used_s / (max(passed_s, 1e-9) * _PROCESSORS), self._allowed)

    def _sleep_on(self) -> None:
        before, most_ns, began_ns = CpuTimes.read(), 0, time.monotonic_ns()
        while not self._stopping.is_set():
            due_ns = time.monotonic_ns() + _SLEEP_NS
            time.sleep(_SLEEP_NS * 1e-9)
            late_ns = time.monotonic_ns() - due_ns
            self._overslept_ns[self._count % _KEPT] = late_ns
            self._count += 1
            most_ns = max(most_ns, late_ns)
            if due_ns >= began_ns + SECOND_NS:
                now, used_s = CpuTimes.read(), self._usage.look()
                idle_cpu = self._left(before.idle_share(now), used_s, (due_ns - began_ns) * 1e-9)
                self.seconds.append(Second(self._clock(), idle_cpu, most_ns * 1e-6, self._usage.waited_s))
                self._used_s += used_s
                before, most_ns, began_ns = now, 0, due_ns


def percentiles(overslept_ns: np.ndarray[tuple[int, ...], np.dtype[np.int64]]) -> Lateness:
    """The median and the 99th percentile of these delays, in ms."""
    if not len(overslept_ns):
        return Lateness(p50=None, p99=None)
    middle, high = np.percentile(overslept_ns, (50, 99))
    return Lateness(p50=round(float(middle) * 1e-6, 3), p99=round(float(high) * 1e-6, 3))
