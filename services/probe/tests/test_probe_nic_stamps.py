"""Whose stamps are used: a NIC's, as long as they are there and agree with the kernel's."""

from __future__ import annotations

import numpy as np
import pytest

from foliot_probe.core.measure.nic_stamps import EARLY_NS, LATE_NS, NicTrust, odd

GOOD = (100, 100, 0)


def check(trust, left=GOOD, came=GOOD, known=True):
    """One check."""
    return trust.check(np.array([left, came]), known=known)


def settle(trust):
    """Checks until the NIC is trusted; returns how many."""
    for count in range(1, 5_000):
        check(trust)
        if trust.trusted:
            return count
    raise AssertionError("it is never trusted")


def test_a_nic_is_offered_when_it_stamps_well_and_used_when_its_clock_is_known():
    """Not by what its driver promises, and not before peers can read its stamps."""
    trust = NicTrust()
    for _ in range(4):
        check(trust, known=False)
    assert not trust.offered
    check(trust, known=False)
    assert trust.offered
    assert not trust.trusted
    check(trust)
    assert trust.trusted


@pytest.mark.parametrize(
    ("counts", "reason"),
    [((100, 40, 0), "lost"), ((100, 0, 0), "lost"), ((100, 100, 30), "odd"), ((100, 100, 100), "odd")],
)
@pytest.mark.parametrize("direction", ["left", "came"])
def test_a_nic_that_loses_stamps_or_lies_is_given_up_at_once(counts, reason, direction):
    """In either direction. It is left alone for a minute, and each time for twice as long, up to an hour."""
    trust = NicTrust()
    settle(trust)
    holds = []
    for _ in range(8):
        assert check(trust, **{direction: counts}) == reason
        assert not trust.trusted
        assert not trust.offered
        holds.append(settle(trust) - 5)
    assert holds == [60, 120, 240, 480, 960, 1_920, 3_600, 3_600]


def test_a_nic_that_was_good_for_long_is_not_held_its_past_against():
    """After ten minutes it is left alone for a minute again."""
    trust = NicTrust()
    for checks, hold in ((0, 60), (0, 120), (600, 60)):
        settle(trust)
        for _ in range(checks):
            check(trust)
        assert check(trust, left=(100, 0, 0)) == "lost"
        assert settle(trust) - 5 == hold


@pytest.mark.parametrize("counts", [(100, 0, 0), (100, 80, 0), (100, 100, 20)])
def test_a_nic_that_does_not_stamp_well_is_never_used(counts):
    """One that stamps packets of PTP alone, or some, or wrongly; nobody is told that it is given up."""
    trust = NicTrust()
    assert {check(trust, came=counts) for _ in range(50)} == {None}
    assert not trust.offered


def test_few_packets_decide_nothing():
    """They are counted until there are enough; one direction alone may speak against a NIC, but not for it."""
    trust = NicTrust()
    for _ in range(30):
        check(trust, left=(3, 3, 0), came=(1, 1, 0))
    assert not trust.offered
    for _ in range(60):
        check(trust, left=(3, 3, 0), came=(1, 1, 0))
    assert trust.offered
    for _ in range(5):
        check(trust, left=(0, 0, 0), came=(0, 0, 0))
    assert trust.trusted
    assert check(trust, left=(40, 0, 0), came=(0, 0, 0)) == "lost"


def test_a_clock_that_is_set_before_it_is_used_costs_no_waiting():
    """It begins to be good anew."""
    trust = NicTrust()
    for _ in range(5):
        check(trust, known=False)
    assert trust.give_up("set") is None
    assert settle(trust) == 5


def test_a_stamp_is_odd_that_no_packet_on_its_way_explains():
    """Before the kernel had sent it, or long after."""
    gaps = np.array([-EARLY_NS - 1, -EARLY_NS, 0, LATE_NS, LATE_NS + 1])
    assert odd(gaps).tolist() == [True, False, False, False, True]
