"""Readings of the clock in a NIC: what they bound, and how a clock that was set shows."""

from __future__ import annotations

import random

import pytest

from foliot_probe.core.measure.nic_readings import NicReadings, Reading

TURN_NS = 100_000_000
TAI_NS = 1_800_000_000_000_000_000


def read(at_ns, nic_ns, width_ns=1_200, tries=(1.0, 2.0, 5.0)):
    """Some tries in a row of a clock that shows this at the middle of the narrowest."""
    return [Reading(at_ns - round(width_ns * wide / 2), nic_ns, at_ns + round(width_ns * wide / 2)) for wide in tries]


def run(readings, turns, rate, *, begins_ns=0, ahead_ns=TAI_NS, draw=None):
    """Reads a clock that runs faster by `rate` so many times; returns the turns at which it was found to be set."""
    found = []
    for turn in range(turns):
        at_ns = begins_ns + turn * TURN_NS
        off_ns = 0 if draw is None else draw.uniform(-500, 500)
        if readings.add(read(at_ns, at_ns + ahead_ns + round(rate * at_ns + off_ns))):
            found.append(turn)
    return found


@pytest.mark.parametrize("rate", [0.0, 40e-6, -150e-6])
def test_a_clock_that_runs_on_is_never_taken_for_one_that_was_set(rate):
    """At whatever rate, wherever within its reading it was read."""
    readings = NicReadings()
    assert run(readings, 300, rate, draw=random.Random(7)) == []
    local_ns = 300 * TURN_NS
    assert abs(readings.shift_ns(local_ns) - TAI_NS - rate * local_ns) < 2_000


@pytest.mark.parametrize("by_ns", [5_000, -5_000, 37 * 10**9])
def test_a_clock_that_was_set_shows_at_once(by_ns):
    """A few microseconds, or TAI in place of UTC; nothing of before is told, nor expected."""
    readings = NicReadings()
    run(readings, 30, 20e-6)
    at_ns = 30 * TURN_NS
    assert run(readings, 1, 20e-6, begins_ns=at_ns, ahead_ns=TAI_NS + by_ns) == [0]
    assert len(readings.take()) == 1
    assert run(readings, 30, 20e-6, begins_ns=at_ns + TURN_NS, ahead_ns=TAI_NS + by_ns) == []


def test_the_narrowest_try_counts_and_one_that_was_interrupted_does_not():
    """A window tells one of each turn; of many turns, those that say most."""
    readings = NicReadings()
    readings.add(read(0, TAI_NS, tries=(5.0, 1.0, 2.0)))
    readings.add(read(TURN_NS, TAI_NS + TURN_NS, width_ns=3_000_000))
    readings.add([])
    assert [each.width_ns for each in readings.take()] == [1_200]
    assert readings.take() == []
    for turn in range(600):
        at_ns = turn * TURN_NS
        readings.add(read(at_ns, TAI_NS + at_ns, width_ns=1_000 if turn % 4 == 1 else 9_000))
    widths = [each.width_ns for each in readings.take()]
    assert len(widths) <= 64
    assert widths.count(1_000) >= 30


def test_nothing_is_expected_of_a_clock_that_was_not_read():
    """Nor after a gap that tells nothing of it."""
    readings = NicReadings()
    assert readings.shift_ns(5) is None
    readings.add(read(0, TAI_NS))
    assert readings.shift_ns(5) == TAI_NS
    readings.forget()
    assert readings.shift_ns(5) is None
