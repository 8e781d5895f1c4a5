"""Flap damping: the worked values of RFC 2439's arithmetic with the routers' defaults."""

from __future__ import annotations

import math

import pytest

from foliot_detector.damping import PRESETS, Damping, Rule

SECOND_NS = 1_000_000_000
MINUTE_NS = 60 * SECOND_NS
CISCO, JUNIPER = PRESETS["cisco"], PRESETS["juniper"]


def test_the_presets_are_the_routers_defaults():
    """1000 a flap, half-life 15 min, reuse 750, at most 60 min; suppress at 2000 or 3000."""
    assert Rule(penalty=1000, half_life_s=900, suppress=2000, reuse=750, max_suppress_s=3600) == CISCO
    assert Rule(penalty=1000, half_life_s=900, suppress=3000, reuse=750, max_suppress_s=3600) == JUNIPER


@pytest.mark.parametrize(
    ("rule", "flaps", "suppressed"),
    [(CISCO, 2, False), (CISCO, 3, True), (JUNIPER, 3, False), (JUNIPER, 4, True)],
)
def test_quick_flaps_suppress_once_they_exceed_the_threshold(rule, flaps, suppressed):
    """With 2000, two give exactly the threshold less their decay, so three are needed; with 3000, four."""
    damping = Damping(rule)
    for number in range(flaps):
        damping.add(number * SECOND_NS, 1)

    assert suppressed == damping.suppressed(flaps * SECOND_NS)


def test_flaps_that_come_in_one_message_weigh_as_much_as_single_ones():
    """A counter that rose by three suppresses like three messages."""
    damping = Damping(CISCO)
    damping.add(0, 3)

    assert (damping.penalty(0), damping.suppressed(0)) == (3000.0, True)


def test_from_3000_to_750_takes_two_half_lives():
    """Suppressed at 3000, trusted again 30 minutes later and not a nanosecond sooner."""
    damping = Damping(CISCO)
    damping.add(0, 3)

    assert damping.reuse_at_ns(0) == 30 * MINUTE_NS
    assert damping.suppressed(30 * MINUTE_NS - 1)
    assert not damping.suppressed(30 * MINUTE_NS)
    assert damping.penalty(30 * MINUTE_NS) == 750.0


@pytest.mark.parametrize(("minutes", "penalty"), [(0, 1000.0), (15, 500.0), (30, 250.0), (5, 1000 * 0.5 ** (1 / 3))])
def test_the_decay_is_exact(minutes, penalty):
    """P * 2 ** (-dt / H), without steps."""
    damping = Damping(CISCO)
    damping.add(0, 1)

    assert damping.penalty(minutes * MINUTE_NS) == pytest.approx(penalty, rel=1e-12)


def test_the_ceiling_bounds_every_suppression_to_an_hour():
    """750 * 2 ** (60 / 15) = 12000: a thousand flaps weigh no more than twelve."""
    damping = Damping(CISCO)
    damping.add(0, 1000)

    assert CISCO.ceiling == 12_000.0
    assert damping.penalty(0) == 12_000.0
    assert damping.reuse_at_ns(0) == 60 * MINUTE_NS


def test_a_flap_while_suppressed_prolongs_the_suppression():
    """Below suppress but above reuse it stays suppressed, and the new penalty counts from there."""
    damping = Damping(CISCO)
    damping.add(0, 3)
    damping.add(15 * MINUTE_NS, 1)  # 1500 + 1000, two half-lives' worth less log2(3000 / 2500)

    assert damping.reuse_at_ns(15 * MINUTE_NS) == pytest.approx(
        15 * MINUTE_NS + math.log2(2500 / 750) * 15 * MINUTE_NS, abs=1
    )


def test_after_reuse_a_single_flap_does_not_suppress():
    """750 + 1000 lies below 2000."""
    damping = Damping(CISCO)
    damping.add(0, 3)
    damping.add(30 * MINUTE_NS, 1)

    assert damping.penalty(30 * MINUTE_NS) == 1750.0
    assert not damping.suppressed(30 * MINUTE_NS)
    assert damping.reuse_at_ns(30 * MINUTE_NS) == 0


def test_a_clock_set_back_does_not_raise_a_penalty():
    """A time before the last flap counts as that."""
    damping = Damping(CISCO)
    damping.add(MINUTE_NS, 1)
    damping.add(0, 1)

    assert damping.penalty(MINUTE_NS) == 2000.0


@pytest.mark.parametrize(
    ("numbers", "named"),
    [
        ({"reuse": 2000.0}, "reuse"),
        ({"max_suppress_s": 900.0}, "max_suppress_s"),
    ],
)
def test_a_rule_that_could_never_work_is_refused(numbers, named):
    """One that never lets go, and one whose ceiling lies below its threshold."""
    with pytest.raises(ValueError, match=f"^{named}: "):
        Rule(**numbers)


def test_a_half_life_far_below_the_longest_suppression_has_no_ceiling():
    """2 ** 3600 is no float; no penalty comes near."""
    assert math.isinf(Rule(half_life_s=1.0).ceiling)
