"""The clocks of services: local time that nobody disciplines, and the reference time read off it."""

from __future__ import annotations

import time
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy as np
    from numpy.typing import NDArray

    from foliot.clock.realtime_map import CrossTimestamp
    from foliot_schemas import ClockState


class Clock(Protocol):
    """The time as a service reads it."""

    name: str

    def local_ns(self) -> int:
        """Undisciplined local time."""

    def now_ns(self) -> int:
        """Reference time, as far as it is known here."""

    def bound_ns(self) -> int:
        """Statistical bound of `now_ns`; -1 while it is not synchronised."""


class Moment(NamedTuple):
    """The reference time and CLOCK_REALTIME of one moment."""

    utc_ns: int
    """UTC made of the reference time; where that follows neither UTC nor TAI, itself."""
    realtime_ns: int
    leap_s: int
    """A leap second that is to come: 1 inserted, -1 deleted."""


class InjectedError(NamedTuple):
    """The error that a lab injects in a host's clock, as arrays, for compiled code.

    Local time is CLOCK_MONOTONIC_RAW and `offset_ns`, `stepped_ns`, and what it has gained since `start_ns` of
    CLOCK_MONOTONIC_RAW: by `rate_ppb`, and by the straight lines between the values of `walk_ns`.
    """

    start_ns: int
    offset_ns: int
    rate_ppb: float
    walk_ns: NDArray[np.float64]
    """At each whole second since `start_ns`. Before the first it is like that, after the last like that; empty: 0."""
    stepped_ns: NDArray[np.int64]
    """The sum of all steps so far: one value, which changes."""


class InjectedNic(NamedTuple):
    """The clock of its own that a lab gives to a NIC, as arrays, for compiled code.

    The NIC stamps each packet that the kernel stamps, at the same moment. Its time is the local time of its host with an
    error, which is as `InjectedError` has it, with local time in place of CLOCK_MONOTONIC_RAW.
    """

    error: InjectedError
    faults: NDArray[np.int64]
    """What the NIC does wrong, by three values that change: by how many ns its stamps are off while its clock is read
    right, how many of eight packets get no stamp, and whether its clock cannot be read (1)."""


class HostClock:
    """The system clock of a node: CLOCK_MONOTONIC_RAW, read as reference time by sync's last state of it.

    Parameters:
        name: the clock's name in the inventory.
    """

    injected: InjectedError | None = None
    """None: on no host but those of a lab is there any."""
    injected_nics: Mapping[str, InjectedNic] = MappingProxyType({})
    """By rail; empty but in a lab."""

    def __init__(self, name: str) -> None:
        from foliot.clock.realtime_map import RealtimeMap  # noqa: PLC0415 - it needs numpy, and a program that only wants the time has no such clock

        self.name = name
        self.state: ClockState | None = None
        self._ruler = RealtimeMap()
        self._epoch_ns = self.epoch_ns()

    def local_ns(self) -> int:
        """CLOCK_MONOTONIC_RAW."""
        return time.clock_gettime_ns(time.CLOCK_MONOTONIC_RAW)

    def reading(self) -> CrossTimestamp:
        """Local time and CLOCK_REALTIME of one moment, to some ten nanoseconds."""
        return self._ruler.reading()

    def epoch_ns(self) -> int:
        """CLOCK_REALTIME minus local time, now."""
        local_ns, realtime_ns = self.reading()
        return realtime_ns - local_ns

    def update(self, state: ClockState) -> bool:
        """Takes sync's state, if it is of this clock; says whether it was taken.

        Sync knows of a boot once it has heard the host again. Until then it has only states of before, and they hold
        for 20 s. They are told by CLOCK_REALTIME: its distance from local time was another one. So it is for a window
        after the date was set.

        A former leader's promise may come late: none that is older than the last state is taken, unless local time has
        run back since.
        """
        from foliot_schemas.clock import same_boot  # noqa: PLC0415 - a program that only wants the time need not load the contract

        is_promise = state.status in {"synchronised", "holdover"}
        is_of_boot = state.epoch_ns == 0 or same_boot(self.epoch_ns(), state.epoch_ns)
        is_late = self.state is not None and state.as_of_ns < self.state.as_of_ns <= self.local_ns()
        is_taken = state.clock == self.name and (not is_promise or (is_of_boot and not is_late))
        if is_taken:
            self.state = state
        return is_taken

    def now_ns(self) -> int:
        """Reference time; before sync's first state, CLOCK_REALTIME as it was when the process started."""
        local_ns = self.local_ns()
        return local_ns + self._epoch_ns if self.state is None else self.state.reference_ns(local_ns)

    def bound_ns(self) -> int:
        """Statistical bound of `now_ns`; -1 without a valid state from sync."""
        local_ns = self.local_ns()
        if self.state is None or self.state.status not in {"synchronised", "holdover"}:
            return -1
        return -1 if local_ns > self.state.void_after_ns else self.state.bound_at_ns(local_ns)

    def moment(self) -> Moment | None:
        """The reference time for a daemon that keeps CLOCK_REALTIME by it; None without a valid state from sync."""
        if self.state is None or self.bound_ns() < 0:
            return None
        local_ns, realtime_ns = self.reading()
        reference_ns, state = self.state.reference_ns(local_ns), self.state
        if state.timescale not in {"utc", "tai"}:
            return Moment(reference_ns, realtime_ns, 0)
        leap_s = state.leap_s if reference_ns < state.leap_at_ns else 0
        return Moment(state.utc_ns(reference_ns), realtime_ns, leap_s)

    def raw_to_local(self, raw_ns: int) -> int:
        """CLOCK_MONOTONIC_RAW as local time, which it is."""
        return raw_ns

    def realtime_to_local(self, stamps_ns: NDArray[np.int64]) -> NDArray[np.int64]:
        """Kernel packet timestamps (CLOCK_REALTIME, recent) as local time.

        A daemon that disciplines CLOCK_REALTIME bends the kernel's stamps; local time stays straight.
        """
        return self._ruler.realtime_to_raw(stamps_ns)


class BusClock:
    """Reference time where no probe runs, learnt from the times inside arriving messages.

    A message cannot arrive before its time, so the largest difference of the last seconds is the closest. It is late by
    the least delay of the bus, some hundred microseconds. A message from the future is believed for those seconds only.
    This time is good for deadlines and for the order of spans; no measurement rests on it.
    """

    _REMEMBERED_NS = 10_000_000_000
    """The largest difference counts for so long, and at most twice as long. Nodes speak ten times a second. The local
    clock's drift, at most 30 ppm by the published figures (Huygens, NSDI '18), makes it wrong by less than 1 ms
    meanwhile."""

    def __init__(self, name: str = "bus") -> None:
        self.name = name
        self._largest_ns: int | None = None
        self._before_ns: int | None = None
        """The largest difference of the span of time before."""
        self._since_ns = 0
        self._epoch_ns = time.clock_gettime_ns(time.CLOCK_REALTIME) - self.local_ns()

    def local_ns(self) -> int:
        """CLOCK_MONOTONIC_RAW."""
        return time.clock_gettime_ns(time.CLOCK_MONOTONIC_RAW)

    def learn(self, at_ns: int) -> None:
        """Takes the reference time inside a message that has just arrived."""
        local_ns = self.local_ns()
        difference_ns = at_ns - local_ns
        if self._largest_ns is None or local_ns - self._since_ns > self._REMEMBERED_NS:
            recent = self._largest_ns is not None and local_ns - self._since_ns <= 2 * self._REMEMBERED_NS
            self._before_ns = self._largest_ns if recent else None
            self._largest_ns, self._since_ns = difference_ns, local_ns
        self._largest_ns = max(difference_ns, self._largest_ns)

    def now_ns(self) -> int:
        """Reference time; before the first message, CLOCK_REALTIME as it was when the process started."""
        if self._largest_ns is None:
            return self.local_ns() + self._epoch_ns
        known_ns = self._largest_ns if self._before_ns is None else max(self._largest_ns, self._before_ns)
        return self.local_ns() + known_ns

    def bound_ns(self) -> int:
        """-1: nothing is promised."""
        return -1
