"""A NIC is used only while its clock is read: a driver that hangs, or is too slow, costs no host its clock."""

from __future__ import annotations

import asyncio
import contextlib
import threading

import numpy as np
import pytest

from foliot.clock import HostClock
from foliot_probe import nic_clocks
from foliot_probe.core.measure.nic_readings import Reading
from foliot_probe.nic_clocks import NicClocks
from foliot_schemas import Nic
from patience import patience

NIC = Nic(
    name="a.rail0", rail="rail0", device="lo", address="127.0.8.1", clock="a", service_address="10.97.0.1",
    path_addresses=("127.0.8.1",), entropies=(49200,),
)  # fmt: skip


class Clock:
    """Of a NIC: TAI. It hangs and gets slow as it is told."""

    def __init__(self, host):
        self.host, self.width_ns, self.closed = host, 1_000, 0
        self.goes = threading.Event()
        self.goes.set()
        self.asked = threading.Event()

    def read(self):
        """One reading."""
        self.asked.set()
        self.goes.wait()
        assert not self.closed, "read after it was closed"
        at_ns = self.host.local_ns()
        return [Reading(at_ns - self.width_ns, at_ns + 37_000_000_000, at_ns)]

    def close(self):
        """Counts."""
        self.closed += 1


class Engine:
    """Notes whose stamps are to be used."""

    def __init__(self):
        self.by_nic, self.shifts = {}, {}
        self.gave_up, self.shifted = asyncio.Event(), asyncio.Event()

    def take_stamp_counts(self):
        """No packets: the verdicts on stamps are none of these tests'."""
        return {"rail0": np.zeros((2, 3), np.int64)}

    def set_by_nic(self, rail, *, by_nic):
        """As the engine's."""
        self.by_nic[rail] = by_nic
        self.gave_up.set()

    def set_nic_shifts(self, shift_ns):
        """As the engine's."""
        self.shifts = dict(shift_ns)
        (self.shifted.set if shift_ns else self.shifted.clear)()


@pytest.fixture
def host():
    """The host's clock; a test may let time pass on it."""

    class Host(HostClock):
        passed_ns = 0

        def local_ns(self):
            return super().local_ns() + self.passed_ns

    return Host("a")


@pytest.fixture
def clock(monkeypatch, host):
    """The clock that a NIC has."""
    made = Clock(host)
    monkeypatch.setattr(nic_clocks, "open_clock", lambda *_: made)
    return made


def trusting(host, engine):
    """Clocks of which the NIC's is read and used."""
    nics = NicClocks((NIC,), host)
    nics.take(nics.read(), engine)
    nics._watched[0].trust.trusted = True
    return nics


def test_a_clock_that_is_read_too_slowly_for_long_is_given_up(host, clock):
    """No reading says anything any more, so nothing joins the NIC to its host."""
    engine = Engine()
    nics = trusting(host, engine)
    clock.width_ns = 5_000_000
    host.passed_ns += 1_000_000_000
    nics.take(nics.read(), engine)
    assert engine.by_nic == {}
    host.passed_ns += 3_000_000_000
    nics.take(nics.read(), engine)
    assert engine.by_nic == {"rail0": False}
    assert engine.shifts == {"rail0": 0}
    nics.close()


async def test_a_driver_that_does_not_come_back_costs_the_nic(host, clock, monkeypatch):
    """Its readings have stopped, though none has failed."""
    monkeypatch.setattr(nic_clocks, "_LONGEST_READ_S", 0.05)
    engine = Engine()
    nics = trusting(host, engine)
    clock.goes.clear()
    task = asyncio.create_task(nics.follow(engine))
    try:
        async with asyncio.timeout(patience(5.0)):
            await engine.gave_up.wait()
        assert engine.by_nic == {"rail0": False}
        await asyncio.sleep(0)
        assert engine.shifts == {}
        clock.goes.set()
        async with asyncio.timeout(patience(5.0)):
            await engine.shifted.wait()  # it is read again
    finally:
        clock.goes.set()
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
    nics.close()


def test_a_clock_is_not_closed_while_a_thread_reads_it(host, clock):
    """Its descriptor may be another file's by then. It is closed once, when the thread is done, and not read again."""
    nics = NicClocks((NIC,), host)
    clock.goes.clear()
    found = []
    thread = threading.Thread(target=lambda: found.append(nics.read()))
    thread.start()
    assert clock.asked.wait(patience(5.0))
    nics.close()
    assert clock.closed == 0
    clock.goes.set()
    thread.join()
    assert found[0]["a.rail0"]
    assert clock.closed == 1
    assert nics.read() == {"a.rail0": None}
    nics.close()
    assert clock.closed == 1
