"""Reads the clock in a NIC, which Linux calls a PTP hardware clock, between two readings of the host's (linux/ptp_clock.h)."""

from __future__ import annotations

import errno
import fcntl
import os
import struct
import time
from typing import TYPE_CHECKING, Protocol

import numpy as np

from foliot.clock.realtime_map import RealtimeMap
from foliot.node.ethtool import stamping
from foliot_probe.core.measure.nic_readings import Reading
from foliot_schemas.bounds import FAR_NS

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from foliot.clock import HostClock, InjectedNic

_PRECISE, _EXTENDED, _PLAIN = 0xC0403D08, 0xC4C03D09, 0x43403D05
"""PTP_SYS_OFFSET_PRECISE, PTP_SYS_OFFSET_EXTENDED and PTP_SYS_OFFSET."""
_PRECISE_BYTES, _EXTENDED_BYTES, _PLAIN_BYTES = 64, 1_216, 832
_HEAD_BYTES = 16
_TIME = struct.Struct("qII")  # struct ptp_clock_time
_TRIES = 5
"""Of a reading, in one call."""
_PRECISE_NS = 100
"""Half the width of a reading by PTP_SYS_OFFSET_PRECISE. The kernel tells none: host and NIC latch both clocks at once.
That takes PCIe's precision time measurement, which is good to some tens of nanoseconds."""
_MAPPED_NS = 50
"""By how much CLOCK_REALTIME may be wrong as local time: half of what a reading of both takes (`RealtimeMap`)."""
_SECOND_NS = 1_000_000_000
_UNREAD = 2  # of `InjectedNic.faults`
_CLOCK_REALTIME, _CLOCK_MONOTONIC_RAW = 0, 4


class NicClock(Protocol):
    """The clock in a NIC."""

    def read(self) -> list[Reading]:
        """Reads it several times in a row.

        Raises:
            OSError: it cannot be read (any more).
        """

    def close(self) -> None:
        """Reads it no more."""


class PtpClock:
    """A clock of the kernel's, ``/dev/ptp`` and a number, by the best way that its driver has.

    Parameters:
        path: of the device.
        clock: the host's.

    Raises:
        OSError: it is not there, may not be read, or its driver has no way.
    """

    def __init__(self, path: str, clock: HostClock) -> None:
        self._clock = clock
        # A thread reads the clock, and the host's own ruler is for the thread of the event loop.
        self._ruler = RealtimeMap()
        self._fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        self._read = self._precise
        try:
            self._read = self._best()
        except OSError:
            self.close()
            raise

    def close(self) -> None:
        """See `NicClock`."""
        os.close(self._fd)

    def read(self) -> list[Reading]:
        """See `NicClock`."""
        return [each for each in self._read() if abs(each.nic_ns) < FAR_NS]

    def _best(self) -> Callable[[], list[Reading]]:
        ways = (self._precise, self._extended_raw, self._extended, self._plain)
        for way in ways[:-1]:
            try:
                way()
            except OSError:
                # Drivers say by many numbers that a way is none: of cross timestamps, ENODEV where the system's clock is
                # another one, and ETIMEDOUT or EBUSY where the bus does not answer.
                continue
            else:
                return way
        self._plain()
        return self._plain

    def _precise(self) -> list[Reading]:
        answer = self._ask(_PRECISE, _PRECISE_BYTES)
        nic_ns, _, raw_ns = parse_times(answer, 0, 3)
        local_ns = self._clock.raw_to_local(raw_ns)
        return [Reading(local_ns - _PRECISE_NS, nic_ns, local_ns + _PRECISE_NS)]

    def _extended_raw(self) -> list[Reading]:
        # Kernels before 6.12 know CLOCK_REALTIME alone, and refuse a request that is not zero there.
        times = self._tries(_CLOCK_MONOTONIC_RAW)
        local = self._clock.raw_to_local
        return [Reading(local(before_ns), nic_ns, local(after_ns)) for before_ns, nic_ns, after_ns in times]

    def _extended(self) -> list[Reading]:
        return self._by_realtime(self._tries(_CLOCK_REALTIME))

    def _plain(self) -> list[Reading]:
        # Host and NIC are read in turn, and the host at last.
        times = parse_times(self._ask(_PLAIN, _PLAIN_BYTES, _TRIES), _HEAD_BYTES, 2 * _TRIES + 1)
        return self._by_realtime([(times[at], times[at + 1], times[at + 2]) for at in range(0, 2 * _TRIES, 2)])

    def _tries(self, clock_id: int) -> list[tuple[int, int, int]]:
        times = parse_times(self._ask(_EXTENDED, _EXTENDED_BYTES, _TRIES, clock_id), _HEAD_BYTES, 3 * _TRIES)
        return [(times[at], times[at + 1], times[at + 2]) for at in range(0, 3 * _TRIES, 3)]

    def _by_realtime(self, times: list[tuple[int, int, int]]) -> list[Reading]:
        ends = np.array([(before_ns, after_ns) for before_ns, _, after_ns in times], np.int64)
        raw_ns, local = self._ruler.realtime_to_raw(ends.ravel()).reshape(-1, 2).tolist(), self._clock.raw_to_local
        return [
            Reading(local(here[0]) - _MAPPED_NS, nic_ns, local(here[1]) + _MAPPED_NS)
            for here, (_, nic_ns, _) in zip(raw_ns, times, strict=True)
        ]

    def _ask(self, request: int, length: int, *head: int) -> bytes:
        asked = bytearray(length)
        struct.pack_into(f"{len(head)}I", asked, 0, *head)
        fcntl.ioctl(self._fd, request, asked)
        return bytes(asked)


def parse_times(answer: bytes, offset: int, count: int) -> list[int]:
    """So many ``struct ptp_clock_time`` of an answer, in ns."""
    times = (_TIME.unpack_from(answer, offset + place * _TIME.size) for place in range(count))
    return [seconds * _SECOND_NS + nanoseconds for seconds, nanoseconds, _ in times]


class InjectedNicClock:
    """The clock that a lab gives to a NIC."""

    def __init__(self, injected: InjectedNic, clock: HostClock) -> None:
        self._injected = injected
        self._clock = clock

    def close(self) -> None:
        """See `NicClock`."""

    def read(self) -> list[Reading]:
        """See `NicClock`."""
        if self._injected.faults[_UNREAD]:
            raise OSError(errno.EIO, "a lab says that it cannot be read")
        return [self._try() for _ in range(_TRIES)]

    def _try(self) -> Reading:
        # In local time only afterwards: what that takes would be in the width.
        before_ns, then_ns, after_ns = map(self._clock.raw_to_local, (_raw_ns(), _raw_ns(), _raw_ns()))
        return Reading(before_ns, int(nic_ns(self._injected, np.array([then_ns]))[0]), after_ns)


def _raw_ns() -> int:
    return time.clock_gettime_ns(time.CLOCK_MONOTONIC_RAW)


def nic_ns(injected: InjectedNic, local_ns: NDArray[np.int64]) -> NDArray[np.int64]:
    """What the clock that a lab gives to a NIC shows at local times of its host."""
    error = injected.error
    age_s = (local_ns - error.start_ns) * 1e-9
    moved = error.rate_ppb * age_s
    if len(error.walk_ns):
        moved = moved + np.interp(age_s, np.arange(len(error.walk_ns)), error.walk_ns)
    shown_ns: NDArray[np.int64] = (
        local_ns + np.rint(moved).astype(np.int64) + error.offset_ns + int(error.stepped_ns[0])
    )
    return shown_ns


def open_clock(device: str, injected: InjectedNic | None, clock: HostClock) -> NicClock:
    """The clock in the NIC of a network device, or the one that a lab gives to it.

    Raises:
        OSError: it has none, or it may not be read.
    """
    if injected is not None:
        return InjectedNicClock(injected, clock)
    told = stamping(device)
    if told is None or told.phc_index is None or not told.hardware:
        raise OSError(errno.ENODEV, f"{device} has no clock that stamps")
    return PtpClock(f"/dev/ptp{told.phc_index}", clock)
