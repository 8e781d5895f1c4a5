"""Reads clocks of NICs by the ways that drivers have; the kernel's part is fabricated, as no NIC is at hand."""

from __future__ import annotations

import errno
import os
import struct
from pathlib import Path

import numpy as np
import pytest

from foliot.clock import HostClock, InjectedError, InjectedNic
from foliot_probe.io import ptp_clock
from foliot_probe.io.ptp_clock import InjectedNicClock, PtpClock, open_clock

PRECISE, EXTENDED, PLAIN = 0xC0403D08, 0xC4C03D09, 0x43403D05
"""As the kernel's headers have them: the size of each structure is in its number."""
TAI_NS = 1_800_000_000_123_456_789
RAW_NS = 5_000_000_000_000


class Driver:
    """A NIC's driver: answers the requests that it knows. Its clock is TAI, and runs with the host's."""

    def __init__(self, *known, raw=True, tai_ns=TAI_NS, refusal=errno.EOPNOTSUPP):
        self.known, self.raw, self.asked, self.tai_ns, self.refusal = known, raw, [], tai_ns, refusal

    def __call__(self, _fd, request, answer):
        """As ``ioctl``."""
        self.asked.append(request)
        assert (request >> 16) & 0x3FFF == len(answer)
        if request not in self.known:
            raise OSError(self.refusal, "no such request")
        if request == PRECISE:
            self.write(answer, 0, self.tai_ns, RAW_NS + 7, RAW_NS)
            return
        count, clock_id = struct.unpack_from("II", answer)
        if clock_id and not self.raw:
            raise OSError(errno.EINVAL, "a former kernel: this is to be zero")
        assert clock_id in {0, 4}
        base_ns = RAW_NS if clock_id else RAW_NS + 1_000_000_000
        times = []
        for each in range(count):
            at_ns = base_ns + 10_000 * each
            times += [at_ns - 300, self.tai_ns + 10_000 * each, at_ns + 500] if request == EXTENDED else [
                at_ns, self.tai_ns + 10_000 * each
            ]  # fmt: skip
        self.write(answer, 16, *times, *([base_ns + 10_000 * count] if request == PLAIN else []))

    @staticmethod
    def write(answer, offset, *times_ns):
        """Times as ``struct ptp_clock_time``."""
        for place, at_ns in enumerate(times_ns):
            struct.pack_into("qII", answer, offset + 16 * place, *divmod(at_ns, 10**9), 0)


class Ruler:
    """CLOCK_REALTIME is a second ahead of CLOCK_MONOTONIC_RAW."""

    def realtime_to_raw(self, stamps_ns):
        """That taken off."""
        return stamps_ns - 1_000_000_000


@pytest.fixture
def opened(monkeypatch, tmp_path):
    """Opens the clock of a driver."""

    def of(driver):
        device = tmp_path / "ptp0"
        device.touch()
        monkeypatch.setattr(ptp_clock.fcntl, "ioctl", driver)
        monkeypatch.setattr(ptp_clock, "RealtimeMap", Ruler)
        return PtpClock(os.fspath(device), HostClock("node0"))

    return of


def test_both_clocks_latched_at_once_are_the_best(opened):
    """A cross timestamp, by CLOCK_MONOTONIC_RAW."""
    clock = opened(Driver(PRECISE, EXTENDED, PLAIN))
    (reading,) = clock.read()
    assert (reading.nic_ns, reading.middle_ns, reading.width_ns) == (TAI_NS, RAW_NS, 200)
    clock.close()


@pytest.mark.parametrize("number", [errno.ENODEV, errno.ETIMEDOUT, errno.EBUSY])
def test_a_driver_whose_cross_timestamps_fail_is_read_by_the_next_way(opened, number):
    """As where the system's clock is not the one that the bus knows: the clock itself is as good as ever."""
    driver = Driver(EXTENDED, PLAIN, refusal=number)
    clock = opened(driver)
    assert len(clock.read()) == 5
    assert driver.asked[-1] == EXTENDED
    clock.close()


@pytest.mark.parametrize("raw", [True, False], ids=["raw", "realtime"])
def test_else_the_hosts_clock_is_read_before_and_after_each_reading(opened, raw):
    """Five times in a call: by CLOCK_MONOTONIC_RAW, or CLOCK_REALTIME where the kernel knows no other."""
    driver = Driver(EXTENDED, PLAIN, raw=raw)
    clock = opened(driver)
    driver.asked.clear()
    readings = clock.read()
    assert driver.asked == [EXTENDED]
    wider = 0 if raw else 50  # by as much CLOCK_REALTIME may be wrong as local time
    assert [tuple(each) for each in readings] == [
        (RAW_NS + at_ns - 300 - wider, TAI_NS + at_ns, RAW_NS + at_ns + 500 + wider)
        for at_ns in range(0, 50_000, 10_000)
    ]
    clock.close()


def test_else_the_clocks_are_read_in_turn(opened):
    """Each reading lies between two of the host's, far apart."""
    readings = opened(Driver(PLAIN)).read()
    assert [tuple(each) for each in readings] == [
        (RAW_NS + at_ns - 50, TAI_NS + at_ns, RAW_NS + at_ns + 10_050) for at_ns in range(0, 50_000, 10_000)
    ]


def test_a_clock_that_no_way_reads_is_none(opened):
    """Nor one that is not there; no descriptor is left."""
    before = len(list(Path("/proc/self/fd").iterdir()))
    with pytest.raises(OSError, match="no such request"):
        opened(Driver())
    with pytest.raises(OSError, match="No such file"):
        PtpClock("/nonexistent/ptp0", HostClock("node0"))
    assert len(list(Path("/proc/self/fd").iterdir())) == before


def test_a_clock_beyond_all_time_is_not_read(opened):
    """Nobody could tell of it in a message."""
    assert opened(Driver(EXTENDED, tai_ns=1 << 62)).read() == []


def test_a_device_without_a_clock_has_none():
    """The kernel itself says so of the loopback device, and of one that is not there."""
    for device in ("lo", "nosuch0"):
        with pytest.raises(OSError, match="has no clock that stamps"):
            open_clock(device, None, HostClock("node0"))


def test_a_labs_clock_is_its_hosts_with_an_error():
    """It drifts, steps and wanders as its arrays say; whoever cannot read it is told."""
    host, stepped_ns, faults = HostClock("node0"), np.array([0]), np.zeros(3, np.int64)
    start_ns = host.local_ns()
    error = InjectedError(start_ns, TAI_NS, 50_000.0, np.array([0.0, 100.0]), stepped_ns)
    clock = InjectedNicClock(InjectedNic(error, faults), host)
    for step_ns in (0, 500_000):
        stepped_ns[0] = step_ns
        for reading in clock.read():
            assert reading.before_ns <= reading.after_ns
            age_s = (reading.middle_ns - start_ns) * 1e-9
            away_ns = reading.nic_ns - reading.middle_ns - TAI_NS - step_ns
            assert abs(away_ns - 50_000 * age_s - 100 * min(age_s, 1.0)) <= reading.width_ns + 2
    faults[2] = 1
    with pytest.raises(OSError, match="cannot be read"):
        clock.read()
