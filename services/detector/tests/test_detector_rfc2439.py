"""Flap damping: the worked values of RFC 2439's arithmetic with the routers' defaults."""

from __future__ import annotations

import math

import pytest

from foliot_detector.core.detectors.port_flap.rfc2439 import Damping
from foliot_detector.core.state.port_counters import Change
from foliot_detector.flap_rules import PRESETS, Rule

SECOND_NS = 1_000_000_000
MINUTE_NS = 60 * SECOND_NS
CISCO, JUNIPER = PRESETS["cisco"], PRESETS["juniper"]


def falls(at_ns, number):
    """So many carriers lost, the last of them back."""
    return Change(at_ns, carrier=True, falls=number, returns=number)


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
        damping.take(falls(number * SECOND_NS, 1))

    assert suppressed == (damping.reuse_at_ns(flaps * SECOND_NS) > 0)


def test_flaps_that_come_in_one_message_weigh_as_much_as_single_ones():
    """A counter that rose by three suppresses like three messages."""
    damping = Damping(CISCO)
    damping.take(falls(0, 3))

    assert (damping.penalty(0), (damping.reuse_at_ns(0) > 0)) == (3000.0, True)


def test_from_3000_to_750_takes_two_half_lives():
    """Suppressed at 3000, trusted again 30 minutes later and not a nanosecond sooner."""
    damping = Damping(CISCO)
    damping.take(falls(0, 3))

    assert damping.reuse_at_ns(0) == 30 * MINUTE_NS
    assert damping.reuse_at_ns(30 * MINUTE_NS - 1) > 0
    assert damping.reuse_at_ns(30 * MINUTE_NS) == 0
    assert damping.penalty(30 * MINUTE_NS) == 750.0


@pytest.mark.parametrize(("minutes", "penalty"), [(0, 1000.0), (15, 500.0), (30, 250.0), (5, 1000 * 0.5 ** (1 / 3))])
def test_the_decay_is_exact(minutes, penalty):
    """P * 2 ** (-dt / H), without steps."""
    damping = Damping(CISCO)
    damping.take(falls(0, 1))

    assert damping.penalty(minutes * MINUTE_NS) == pytest.approx(penalty, rel=1e-12)


def test_the_ceiling_bounds_every_suppression_to_an_hour():
    """750 * 2 ** (60 / 15) = 12000: a thousand flaps weigh no more than twelve."""
    damping = Damping(CISCO)
    damping.take(falls(0, 1000))

    assert CISCO.ceiling == 12_000.0
    assert damping.penalty(0) == 12_000.0
    assert damping.reuse_at_ns(0) == 60 * MINUTE_NS


def test_a_flap_while_suppressed_prolongs_the_suppression():
    """Below suppress but above reuse it stays suppressed, and the new penalty counts from there."""
    damping = Damping(CISCO)
    damping.take(falls(0, 3))
    damping.take(falls(15 * MINUTE_NS, 1))  # 1500 + 1000, two half-lives' worth less log2(3000 / 2500)

    assert damping.reuse_at_ns(15 * MINUTE_NS) == pytest.approx(
        15 * MINUTE_NS + math.log2(2500 / 750) * 15 * MINUTE_NS, abs=1
    )


def test_after_reuse_a_single_flap_does_not_suppress():
    """750 + 1000 lies below 2000."""
    damping = Damping(CISCO)
    damping.take(falls(0, 3))
    damping.take(falls(30 * MINUTE_NS, 1))

    assert damping.penalty(30 * MINUTE_NS) == 1750.0
    assert damping.reuse_at_ns(30 * MINUTE_NS) == 0
    assert damping.reuse_at_ns(30 * MINUTE_NS) == 0


def test_a_clock_set_back_does_not_raise_a_penalty():
    """A time before the last flap counts as that."""
    damping = Damping(CISCO)
    damping.take(falls(MINUTE_NS, 1))
    damping.take(falls(0, 1))

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


# -- RFC 2439's own numbers -------------------------------------------------------------------------------------------


RFC = PRESETS["rfc2439"]


def lost(at_ns):
    """A carrier lost."""
    return Change(at_ns, carrier=False, falls=1)


def back(at_ns):
    """And back."""
    return Change(at_ns, carrier=True, returns=1)


def test_the_sample_configuration_of_section_4_7():
    """A cut of 1.25, reuse 0.5, T-hold 15 min, decay-ok 5 min, decay-ng 15 min.

    Its ceiling by section 4.5 is 0.5 * 2 ** (15 / 5) = 4.
    """
    assert Rule(half_life_s=300, half_life_down_s=900, suppress=1250, reuse=500, max_suppress_s=900) == RFC
    assert RFC.ceiling == 4_000.0


@pytest.mark.parametrize(("period_min", "flaps"), [(2, 6), (4, 3)])
@pytest.mark.parametrize("up_share", [0.25, 0.5, 0.75])
def test_flaps_of_two_and_four_minutes_for_twelve_are_held_for_nine_to_fifteen(period_min, flaps, up_share):
    """What figure 3 shows for the sample configuration.

    The second loss suppresses it, and 9 to 15 minutes after it is stable it is reused.
    """
    damping = Damping(RFC)
    for number in range(flaps):
        lost_ns = number * period_min * MINUTE_NS
        damping.take(lost(lost_ns))
        assert (damping.reuse_at_ns(lost_ns) > 0) == (number > 0)
        back_ns = lost_ns + round((1 - up_share) * period_min * MINUTE_NS)
        damping.take(back(back_ns))

    assert 9 * MINUTE_NS < damping.reuse_at_ns(back_ns) - back_ns < 15 * MINUTE_NS


def test_an_outage_decays_by_its_own_half_life():
    """1 becomes 1/2 in the fifteen minutes that it is away (decay-ng), and 1/8 in the next fifteen (decay-ok)."""
    damping = Damping(RFC)
    damping.take(lost(0))
    assert damping.penalty(15 * MINUTE_NS) == 500.0
    damping.take(back(15 * MINUTE_NS))

    assert damping.penalty(30 * MINUTE_NS) == pytest.approx(62.5)


def test_the_longest_hold_counts_from_the_return():
    """However often it flapped, and however long it was away: T-hold after it is back it may be used."""
    damping = Damping(RFC)
    for number in range(100):
        damping.take(lost(number * SECOND_NS))
    damping.take(back(100 * SECOND_NS))

    assert damping.reuse_at_ns(100 * SECOND_NS) <= 100 * SECOND_NS + 15 * MINUTE_NS


@pytest.mark.parametrize("period", [0.25, 0.5, 1.0, 2.0])
def test_a_steady_flap_converges(period):
    """To 1 / (1 - 2 ** -period) penalties, the period in half-lives.

    At one half-life it is twice the penalty, and never above.
    """
    rule = Rule(suppress=100_000.0, reuse=75_000.0)
    damping = Damping(rule)
    for number in range(400):
        damping.take(falls(round(number * period * 15 * MINUTE_NS), 1))
    last_ns = round(399 * period * 15 * MINUTE_NS)

    assert damping.penalty(last_ns) == pytest.approx(1_000 / (1 - 2**-period))


def test_what_flaps_every_half_life_is_never_suppressed_at_twice_the_penalty():
    """The limit of that sum is 2000, which is not exceeded; what flaps twice as fast is, with the third."""
    for period, first in ((1.0, None), (0.5, 2)):
        damping, found = Damping(CISCO), []
        for number in range(100):
            at_ns = round(number * period * 15 * MINUTE_NS)
            damping.take(falls(at_ns, 1))
            found += [number] * (damping.reuse_at_ns(at_ns) > 0)
        assert (found[0] if found else None) == first


def test_the_decay_is_that_of_the_tables():
    """Those of section 4.5, here of 5 s for an hour.

    ``decay[i] = decay[1] ** i`` with ``decay[1] = exp(ln(1/2) / (half-life / delta-t))``.
    """
    damping, step = Damping(CISCO), math.exp(math.log(0.5) / (900 / 5))
    damping.take(falls(0, 1))

    for tick in range(720):
        assert damping.penalty(tick * 5 * SECOND_NS) == pytest.approx(1_000 * step**tick)
