"""How well the machine keeps up: how late a sleeper is woken, and how much CPU was left over."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, NamedTuple

import msgspec
import numpy as np

from foliot_lab.machine import CpuTimes

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_SECOND_NS = 1_000_000_000
_SLEEP_NS = 1_000_000
"""Long enough to cost nothing (a thousand wakings a second), short enough to meet every stall of a millisecond or more."""
_KEPT = 1 << 20
"""Wakings kept, the newest: a quarter of an hour, in 8 MB."""


class Lateness(msgspec.Struct, frozen=True, kw_only=True):
    """Percentiles of the delay between the moment a sleeper asked for and its waking, in ms; null without a sample."""

    p50: float | None
    p99: float | None


class Machine(msgspec.Struct, frozen=True, kw_only=True):
    """What the machine had to spare during a run."""

    idle_cpu: float
    """Share of all cores' time."""
    stolen_cpu: float = 0.0
    """Share of it that the hypervisor gave to others."""
    scheduler_lateness_ms: Lateness


class Second(NamedTuple):
    """What the machine had to spare in one second."""

    until_ns: int
    """By the sampler's clock."""
    idle_cpu: float
    late_ms: float
    """The most that a sleeper was late."""


def worst(seconds: Sequence[Second], since_ns: int, until_ns: int) -> Second | None:
    """The second that had least to spare of those in an interval; None: there is none."""
    some = [second for second in seconds if since_ns < second.until_ns <= until_ns + _SECOND_NS]
    return min(some, key=lambda second: (second.idle_cpu, -second.late_ms), default=None)


class LatenessSampler:
    """A thread that sleeps a millisecond at a time and writes down by how much it overslept. Start it, then `stop` it.

    Parameters:
        clock: that dates the seconds.
    """

    def __init__(self, clock: Callable[[], int] = time.monotonic_ns) -> None:
        self.seconds: list[Second] = []
        self._clock = clock
        self._overslept_ns = np.zeros(_KEPT, dtype=np.int64)
        self._count = 0
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._sleep_on, name="lateness", daemon=True)
        self._at_start = CpuTimes.read()

    def start(self) -> None:
        """Begins to sample, and the interval of the idle share."""
        self._at_start = CpuTimes.read()
        self._thread.start()

    def stop(self) -> None:
        """Ends the thread; what was sampled stays."""
        self._stopping.set()
        if self._thread.ident is not None:
            self._thread.join()

    def machine(self) -> Machine:
        """What the machine had to spare since `start`."""
        kept = self._overslept_ns[: min(self._count, _KEPT)]
        now = CpuTimes.read()
        return Machine(
            idle_cpu=self._at_start.idle_share(now),
            stolen_cpu=self._at_start.stolen_share(now),
            scheduler_lateness_ms=percentiles(kept),
        )

    def _sleep_on(self) -> None:
        before, most_ns, ends_ns = CpuTimes.read(), 0, time.monotonic_ns() + _SECOND_NS
        while not self._stopping.is_set():
            due_ns = time.monotonic_ns() + _SLEEP_NS
            time.sleep(_SLEEP_NS * 1e-9)
            late_ns = time.monotonic_ns() - due_ns
            self._overslept_ns[self._count % _KEPT] = late_ns
            self._count += 1
            most_ns = max(most_ns, late_ns)
            if due_ns >= ends_ns:
                now = CpuTimes.read()
                self.seconds.append(Second(self._clock(), before.idle_share(now), most_ns * 1e-6))
                before, most_ns, ends_ns = now, 0, due_ns + _SECOND_NS


def percentiles(overslept_ns: np.ndarray[tuple[int, ...], np.dtype[np.int64]]) -> Lateness:
    """The median and the 99th percentile of these delays, in ms."""
    if not len(overslept_ns):
        return Lateness(p50=None, p99=None)
    middle, high = np.percentile(overslept_ns, (50, 99))
    return Lateness(p50=round(float(middle) * 1e-6, 3), p99=round(float(high) * 1e-6, 3))
