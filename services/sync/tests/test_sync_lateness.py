"""Where a cloud stands, and which of two directions was late."""

from __future__ import annotations

import numpy as np
import pytest

from foliot_sync.core.fit.least_residual import lowest
from foliot_sync.core.fit.queueing_split import credible, share
from foliot_sync.core.fit.soft_margin import Sides


def side(*clouds):
    """Clouds of residuals on a level line, spread over a window."""
    most = max(map(len, clouds))
    y = np.full((len(clouds), most), np.inf)
    for row, values in enumerate(clouds):
        y[row, : len(values)] = values
    x = np.tile(np.linspace(-1, 1, most), (len(clouds), 1))
    counts = np.array([len(values) for values in clouds])
    return Sides(x, y, np.ones(len(clouds), np.int64), counts)


def stand(*clouds, noise_ns=4.0):
    """Where they stand."""
    return lowest(side(*clouds).y, np.full(len(clouds), noise_ns))


def test_a_cloud_stands_on_its_least_point():
    """And is expected to float above its floor by as much as its points lie apart."""
    found = stand([500.0, 100.0, 200.0, 300.0, 400.0, 600.0, 700.0])
    assert found.value.tolist() == [100.0]
    assert found.spacing.tolist() == [100.0]


@pytest.mark.parametrize("wrong", [[-60.0], [-90.0, -40.0]])
def test_stamps_that_were_too_early_are_left_out(wrong):
    """A point far below all others, which lie densely, is no probe that was quick."""
    random = np.random.default_rng(1)
    dense = random.normal(0, 4, 60)
    assert stand([*wrong, *dense]).value[0] == dense.min()


def test_the_mean_height_of_the_lowest_points_is_known_where_there_are_enough():
    """Of eight believed ones; fewer tell nothing."""
    clouds = side(np.arange(0.0, 1_000.0, 100.0), np.arange(0.0, 700.0, 100.0), [-90.0, *np.arange(0.0, 10.0)])
    found = lowest(clouds.y, np.full(3, 4.0), averaged=True)
    assert found.rise[[0, 2]].tolist() == [350.0, 3.5]
    assert np.isnan(found.rise[1])


def test_of_a_share_of_the_points_the_least_is_expected_higher():
    """By as much as that of many random draws is; and not at all where the share is all."""
    random = np.random.default_rng(3)
    points = np.sort(random.gamma(2.0, 40.0, 9))
    found = lowest(side(points).y, np.array([4.0]), np.array([0.4]), averaged=True)
    draws = np.where(random.random((20_000, len(points))) < 0.4, points, np.inf).min(axis=1)
    assert found.deeper[0] == pytest.approx(draws[np.isfinite(draws)].mean() - points[0], rel=0.03)
    assert found.value[0] == points[0]
    every, nobody = lowest(side(points, points).y, np.full(2, 4.0), np.array([1.0, np.nan]), averaged=True).deeper
    assert every == 0.0
    assert np.isnan(nobody)


def test_a_wrong_stamp_makes_no_share_deeper():
    """What is left out as wrong is no point to draw."""
    dense = np.arange(0.0, 40.0, 4.0)
    shares = np.full(2, 0.3)
    right, wrong = lowest(side(dense, [-90.0, *dense]).y, np.full(2, 4.0), shares, averaged=True).deeper
    assert wrong == pytest.approx(right, rel=0.15)


@pytest.mark.parametrize("share", [0.5, 0.2, 0.1, 0.05])
def test_the_points_that_pruning_kept_are_enough_to_tell_that(share):
    """Of 200 probes ten are left; the share of one in twenty has its least beyond these as often as not."""
    random = np.random.default_rng(4)
    delays = np.sort(random.gamma(2.0, 900.0, (2_000, 200)), axis=1)
    weight = share * (1 - share) ** np.arange(200)
    truth = (delays * weight).sum(axis=1) / weight.sum() - delays[:, 0]
    found = lowest(delays[:, :10], np.full(2_000, 20.0), np.full(2_000, share), averaged=True).deeper
    assert found.mean() == pytest.approx(truth.mean(), rel=0.1)


def test_where_queues_make_the_gaps_the_quickest_counts():
    """A gap as wide as others is no mistake, and nor is one of noise."""
    sparse = np.array([0.0, 900.0, 1_500.0, 2_900.0, 3_300.0, 4_100.0, 5_000.0])
    assert stand(sparse).value.tolist() == [0.0]
    assert stand([-10.0, *np.zeros(20)], noise_ns=6.0).value.tolist() == [-10.0]


def test_few_points_are_no_trouble():
    """Of one nothing is known but that it is there."""
    found = stand([7.0], [3.0, 5.0])
    assert found.value.tolist() == [7.0, 3.0]
    assert found.spacing.tolist() == [np.inf, 2.0]


@pytest.mark.parametrize(("first", "second"), [(100.0, 100.0), (10.0, 1_000.0), (1_000.0, 10.0), (50.0, 60.0)])
@pytest.mark.parametrize("total", [5.0, 100.0, 3_000.0])
def test_the_share_is_that_of_two_exponential_delays(first, second, total):
    """Of many of them, those whose sum is near the one asked for."""
    random = np.random.default_rng(2)
    # Given the sum, the first is spread as its density times the other's of the rest: weights instead of rejection.
    drawn = random.uniform(0, total, 400_000)
    weight = np.exp(-drawn / first - (total - drawn) / second + min(total / first, total / second))
    mean = np.average(drawn, weights=weight)
    variance = np.average((drawn - mean) ** 2, weights=weight)
    found = share(np.array([total]), np.array([first]), np.array([second]))
    assert found.mean[0] == pytest.approx(mean, rel=0.03, abs=0.3)
    assert found.variance[0] == pytest.approx(variance, rel=0.05, abs=0.3)


def test_nothing_is_shared_where_there_is_nothing():
    """And what is beyond any doubt is one's alone."""
    found = share(np.array([0.0, 1e9]), np.array([5.0, 1.0]), np.array([5.0, 1e6]))
    assert found.mean.tolist() == pytest.approx([0.0, 1.0], rel=1e-5)
    assert (found.variance >= 0).all()


def test_a_ratio_that_chance_makes_is_not_believed():
    """Of five gaps each, one direction's mean is twice the other's now and then.

    Ten times is no chance, and is believed but for a little.
    """
    alike, apart = credible(np.array([100.0, 100.0, 3_000.0]), np.array([100.0, 180.0, 30.0]))
    assert alike[:2] == pytest.approx([100.0, np.sqrt(100.0 * 180.0)])
    assert apart[:2] == pytest.approx(alike[:2])
    assert 80 < alike[2] / apart[2] < 100


def test_the_usual_ratio_is_believed_where_a_window_does_not_contradict_it():
    """A window that says the same as chance would is no reason to leave it; one that says far more is believed."""
    first, second = credible(np.array([150.0, 3_000.0]), np.array([100.0, 30.0]), np.log(2.0))
    assert first[0] / second[0] == pytest.approx(2.0)
    assert 80 < first[1] / second[1] < 100


def test_chance_makes_few_ratios_of_alike_directions():
    """Where queues are alike, hardly any pair of directions is told apart by half and more."""
    random = np.random.default_rng(5)
    first, second = (random.exponential(50.0, (2_000, 5)).mean(axis=1) for _ in range(2))
    believed = np.abs(np.log(np.divide(*credible(first, second))))
    assert np.mean(believed > np.log(1.5)) < 0.25
    assert np.mean(np.abs(np.log(first / second)) > np.log(1.5)) > 0.4
