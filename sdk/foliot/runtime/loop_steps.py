"""Measures the steps of a service's event loop: during a step, the loop reads no socket and fires no timer.

Every step is counted, at some two microseconds each. Two histograms, with buckets an eighth wide, have the time that
passed and the processor time of the loop's thread. The second is the service's own work. A step that took long but used
little waited for a processor, for another thread of the service, or for a disk. A file keeps both, and can be read
while the service runs and after it was killed.
"""

from __future__ import annotations

import asyncio
import mmap
import os
import selectors
from time import perf_counter_ns, thread_time_ns
from typing import TYPE_CHECKING, NamedTuple, Self

import msgspec
import structlog

from foliot.settings import SettingsError

if TYPE_CHECKING:
    from pathlib import Path

log = structlog.get_logger()

LONG_MS = 10.0
"""A step that takes longer delays the work that waits for it. It is as long as a probe's period at its quickest."""
_UNIT_NS = 9765
"""LONG_MS / 1024, so that LONG_MS is a bucket's bound, but for 640 ns."""
_BITS = 3
"""Bits of a bucket's number below its power of two: buckets are an eighth wide."""
_PART = 1 << _BITS
_BUCKETS = 240
"""Number of buckets. The last one begins at five hours."""
_SIZE = 8 * _BUCKETS
"""Size of one histogram in bytes; there are two, one behind the other."""
_TELL_S = 60.0
_BOUNDS_MS = (1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1000.0)
"""Bounds of the histogram in the log."""


class Histogram(msgspec.Struct, frozen=True):
    """Counts of steps by their length."""

    counts: tuple[int, ...] = (0,) * _BUCKETS

    def since(self, earlier: Histogram) -> Histogram:
        """The steps that came after an earlier reading."""
        return Histogram(tuple(now - then for now, then in zip(self.counts, earlier.counts, strict=True)))

    @property
    def steps(self) -> int:
        """The number of steps."""
        return sum(self.counts)

    @property
    def long(self) -> int:
        """The number of steps of `LONG_MS` and more."""
        return sum(self.counts[_bucket(round(LONG_MS * 1e6)) :])

    def within_ms(self, share: float) -> float:
        """The length (ms) that this share of the steps did not exceed, rounded up by up to an eighth; 0: no steps."""
        left = share * self.steps
        for bucket, count in enumerate(self.counts):
            left -= count
            if count and left <= 0:
                return round(_ends_ms(bucket), 3)
        return 0.0

    def by_bound(self) -> dict[str, int]:
        """Steps by the least of `_BOUNDS_MS` that they did not exceed; longer ones under ``more``.

        Bounds without steps are left out.
        """
        found: dict[str, int] = {}
        for bucket, count in enumerate(self.counts):
            if count:
                bound = next((f"{bound:g}" for bound in _BOUNDS_MS if _ends_ms(bucket) <= bound), "more")
                found[bound] = found.get(bound, 0) + count
        return found


class Counted(NamedTuple):
    """The steps of a service's loop."""

    took: Histogram
    """By the time that passed."""
    own: Histogram
    """By the processor time that the loop's thread used, and the kernel on its behalf."""

    def since(self, earlier: Counted) -> Counted:
        """The steps that came after an earlier reading."""
        return Counted(*(now.since(then) for now, then in zip(self, earlier, strict=True)))


class Steps:
    """Counts the steps of loops. Make it by `kept`.

    Parameters:
        counts: the buckets of both histograms, which the caller may share with others.
    """

    def __init__(self, counts: memoryview[int]) -> None:
        self._took, self._own = counts[:_BUCKETS], counts[_BUCKETS:]

    @classmethod
    def kept(cls, path: str = "") -> Self:
        """Counts into a file, behind what is in it already; empty: into memory.

        Raises:
            SettingsError: the file cannot be written.
        """
        if not path:
            return cls(memoryview(bytearray(2 * _SIZE)).cast("Q"))
        try:
            file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
            try:
                os.ftruncate(file, 2 * _SIZE)
                return cls(memoryview(mmap.mmap(file, 2 * _SIZE)).cast("Q"))
            finally:
                os.close(file)
        except OSError as error:
            raise SettingsError(f"telemetry.loop_steps: {path} cannot be written: {error.strerror}") from error

    def add(self, took_ns: int, own_ns: int) -> None:
        """Counts a step, and the processor time that it used."""
        self._took[_bucket(took_ns)] += 1
        self._own[_bucket(own_ns)] += 1

    def counted(self) -> Counted:
        """All steps so far."""
        return Counted(Histogram(tuple(self._took)), Histogram(tuple(self._own)))

    def loop(self) -> asyncio.SelectorEventLoop:
        """A new loop, whose steps are counted."""
        return asyncio.SelectorEventLoop(_Selector(self))


class _Selector(selectors.EpollSelector):
    """The selector that the loop waits in. Outside of it, the loop works."""

    def __init__(self, steps: Steps) -> None:
        super().__init__()
        self._add = steps.add
        self._woke_ns, self._used_ns = perf_counter_ns(), thread_time_ns()

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        # The thread's time is read once a step, because it is a system call. So the time of waiting itself, some 10 us,
        # counts to the next step.
        used_ns = thread_time_ns()
        self._add(perf_counter_ns() - self._woke_ns, used_ns - self._used_ns)
        self._used_ns = used_ns
        try:
            return super().select(timeout)
        finally:
            self._woke_ns = perf_counter_ns()


def read(path: Path) -> Counted:
    """Reads a service's counts from its file; nothing, where there is none."""
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        content = b""
    return Steps(memoryview(content if len(content) == 2 * _SIZE else bytes(2 * _SIZE)).cast("Q")).counted()


async def tell(steps: Steps) -> None:
    """Logs the steps of a minute, if one of them was long."""
    before = steps.counted()
    while True:
        await asyncio.sleep(_TELL_S)
        now = steps.counted()
        (took, own), before = now.since(before), now
        if took.long:
            log.info(
                "loop_steps", steps=took.steps, over_10ms=took.long, p99_ms=took.within_ms(0.99),
                max_ms=took.within_ms(1), own_over_10ms=own.long, own_max_ms=own.within_ms(1),
                by_bound_ms=took.by_bound(),
            )  # fmt: skip


def _bucket(took_ns: int) -> int:
    units = took_ns // _UNIT_NS
    if units < _PART:
        return max(units, 0)
    bits = units.bit_length() - _BITS
    return min(bits * _PART + (units >> (bits - 1)) % _PART, _BUCKETS - 1)


def _ends_ms(bucket: int) -> float:
    following = bucket + 1
    bits, part = divmod(following, _PART)
    units = following if bits == 0 else (_PART + part) << (bits - 1)
    return units * _UNIT_NS * 1e-6
