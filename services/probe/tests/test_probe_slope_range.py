"""What the probe makes of what sync says of two clocks' rates."""

from __future__ import annotations

import pytest

from foliot_probe.core.measure.one_way_delay import References
from foliot_probe.core.measure.slope_range import APART, expected
from foliot_schemas import ClockState


def state(clock, drift_ppb, *, growth_ppb=20.0, status="synchronised"):
    """What sync says of a clock, valid up to local time 1,000."""
    return ClockState(
        clock=clock, reference="r", offset_ns=0, drift_ppb=drift_ppb, hard_bound_ns=1, bound_ns=1, growth_ppb=growth_ppb,
        as_of_ns=0, void_after_ns=1_000, status=status,
    )  # fmt: skip


def tilt(own, peer, local_ns=500):
    """Of one stream."""
    references = [References(1), References(1)]
    for each, said in zip(references, (own, peer), strict=True):
        each.set(0, said)
    found = expected(*references, local_ns)
    return found.least[0], found.most[0]


def test_the_slope_is_what_the_peers_clock_gains_on_ours():
    """A clock that the reference gains on is slow: whoever is slower is gained upon."""
    least, most = tilt(state("a", 30_000.0, growth_ppb=100.0), state("b", -10_000.0, growth_ppb=100.0))
    assert (least + most) / 2 == pytest.approx((1 + 30e-6) / (1 - 10e-6) - 1, abs=1e-15)
    assert (most - least) / 2 == pytest.approx(200e-9)


def test_nobody_knows_it_better_than_a_fan_turns_it():
    """However sure sync is."""
    least, most = tilt(state("a", 0.0, growth_ppb=0.0), state("b", 0.0, growth_ppb=0.0))
    assert (least, most) == pytest.approx((-150e-9, 150e-9))


@pytest.mark.parametrize(
    ("own", "peer", "local_ns"),
    [
        (None, state("b", 0.0), 500),
        (state("a", 0.0), None, 500),
        (state("a", 0.0, status="disrupted"), state("b", 0.0), 500),
        (state("a", 0.0), state("b", 0.0), 1_001),
    ],
)
def test_where_sync_says_nothing_any_two_clocks_may_be_meant(own, peer, local_ns):
    """Never heard of, not trusted, or too long ago."""
    assert tilt(own, peer, local_ns) == (-APART, APART)


def test_what_is_said_of_broken_clocks_widens_nothing_beyond_that():
    """A rate that no clock has."""
    least, most = tilt(state("a", 5e8, growth_ppb=1e9), state("b", 0.0))
    assert -APART <= least <= most <= APART
