"""Simulated processors: halts, stolen time, and hogs that make every step late."""

from __future__ import annotations

import bisect
import math
from typing import TYPE_CHECKING, NamedTuple

from foliot_lab.simulate.loop import MS

if TYPE_CHECKING:
    import random

_TAIL = 1.6
"""Exponent of the lateness behind a hog (a Lomax distribution). Most steps wait for a slice or two, a few for very
long."""
_SCALE_NS = 1.5 * MS
"""Its scale if half of the processors is taken. It grows like a queue, with busy over idle: 28 ms at 95 %.

That is harsher than the measurement: two cores, sixteen processes ready, the lateness of a sleeper. It was 5 ms in the
median, 37 at the p99 and 45 at most. The model has 15 and 400 at 95 %, 3 and 100 at 80 %."""
_MOST_LATE_NS = 400 * MS
_PREEMPTED = 0.04
"""The probability that a running process loses its processor to a hog at any given point between two system calls."""
_SOFTIRQ = 0.02
"""The probability that a packet is left to the kernel's own thread, which has to wait for a processor like any
other."""
_SOFTIRQ_SHARE = 0.25
"""The lateness of that thread as a share of a process's. It sleeps most of the time, and the scheduler prefers
sleepers."""


_REMEMBERED = 128
"""Steps of a core that are remembered; those of some hundred milliseconds."""


class Span(NamedTuple):
    """A span of time."""

    since_ns: int
    until_ns: int


class Outages:
    """Times in which a thing stands still, in any order and overlapping."""

    def __init__(self) -> None:
        self._spans: list[Span] = []

    def add(self, span: Span) -> None:
        """Adds a span in which it stands still."""
        bisect.insort(self._spans, span)

    def past(self, at_ns: int) -> int:
        """The first moment from a time on in which it does not stand still."""
        for since_ns, until_ns in self._spans:
            if since_ns <= at_ns < until_ns:
                at_ns = until_ns
        return at_ns

    def done(self, at_ns: int, work_ns: int) -> int:
        """The end of work that begins at a time."""
        end_ns = at_ns + work_ns
        for since_ns, until_ns in self._spans:
            if until_ns > at_ns and since_ns < end_ns:
                end_ns += until_ns - max(since_ns, at_ns)
        return end_ns

    def __bool__(self) -> bool:
        return bool(self._spans)


class Cores:
    """Processors that several hosts share, as in a lab on one machine.

    The first to ask gets the first time that is free for as long as its step takes.

    Parameters:
        count: the number of processors.
        speed: 1.0 is that of the core for which the steps' costs were noted.
    """

    def __init__(self, count: int, speed: float) -> None:
        self._taken: list[list[Span]] = [[] for _ in range(count)]
        self._speed = speed

    def ready(self, at_ns: int) -> int:
        """The first time from a moment on at which one of them is free."""
        return min(_free(taken, at_ns, 1) for taken in self._taken)

    def run(self, at_ns: int, work_ns: int) -> int:
        """The end of a step that becomes ready at a time."""
        need_ns = round(work_ns / self._speed)
        start_ns, taken = min(
            ((_free(taken, at_ns, need_ns), taken) for taken in self._taken), key=lambda each: each[0]
        )
        bisect.insort(taken, Span(start_ns, start_ns + need_ns))
        if len(taken) > _REMEMBERED:
            del taken[: _REMEMBERED // 2]
        return start_ns + need_ns


def _free(taken: list[Span], at_ns: int, need_ns: int) -> int:
    for since_ns, until_ns in taken:
        if since_ns - at_ns >= need_ns:
            break
        at_ns = max(at_ns, until_ns)
    return at_ns


class Host:
    """The processors of one host, or of the machine that the central services share.

    Parameters:
        chance: the random source of all lateness.
    """

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        self.stolen = Outages()
        """Times stolen by the hypervisor: nothing runs, not even the kernel."""
        self.cores: Cores | None = None
        """The shared processors; None: there are enough of them."""
        self._hogs: list[tuple[Span, float]] = []

    def hog(self, span: Span, share: float) -> None:
        """Takes a share of all processors for a while."""
        self._hogs.append((span, share))

    def late_ns(self, at_ns: int) -> int:
        """The wait for a processor of a process that becomes ready then, in ns."""
        for span, share in self._hogs:
            if span.since_ns <= at_ns < span.until_ns:
                scale_ns = _SCALE_NS * share / (1.0 - share)
                return min(round(scale_ns * (math.pow(self.chance.random(), -1.0 / _TAIL) - 1.0)), _MOST_LATE_NS)
        return 0

    def is_hogged(self, at_ns: int) -> bool:
        """Whether a hog runs."""
        return any(span.since_ns <= at_ns < span.until_ns for span, _ in self._hogs)

    def arrive(self, at_ns: int) -> int:
        """The time at which the kernel sees, and stamps, a packet that arrives at the NIC at a time."""
        if self._hogs and self.is_hogged(at_ns) and self.chance.random() < _SOFTIRQ:
            at_ns += round(_SOFTIRQ_SHARE * self.late_ns(at_ns))
        return self.stolen.past(at_ns) if self.stolen else at_ns


class Process:
    """One process on a host: it does one step after the other."""

    def __init__(self, host: Host) -> None:
        self.host = host
        self.halted = Outages()

    def wake(self, at_ns: int) -> int:
        """The time at which the process runs after a wake-up."""
        at_ns = self._past(at_ns + self.host.late_ns(at_ns))
        return at_ns if self.host.cores is None else self.host.cores.ready(at_ns)

    def work(self, at_ns: int, work_ns: int) -> int:
        """The end of a step that begins at a time."""
        host = self.host
        if host.is_hogged(at_ns) and host.chance.random() < _PREEMPTED:
            at_ns += host.late_ns(at_ns)
        at_ns = self._past(at_ns)
        if host.cores is not None:
            work_ns = host.cores.run(at_ns, work_ns) - at_ns
        if not self.halted and not host.stolen:
            return at_ns + work_ns
        return self._past(self.halted.done(at_ns, host.stolen.done(at_ns, work_ns) - at_ns))

    def _past(self, at_ns: int) -> int:
        if not self.halted and not self.host.stolen:
            return at_ns
        while at_ns != (later_ns := self.halted.past(self.host.stolen.past(at_ns))):
            at_ns = later_ns
        return at_ns
