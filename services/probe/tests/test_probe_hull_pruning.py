"""Pruning: a fit sees the same with and without it."""

from __future__ import annotations

import numpy as np
import pytest

from foliot_probe.core.measure.hull_pruning import lower_layers
from foliot_probe.core.measure.slope_range import SlopeRange

ANY = (-3.0, 3.0)


def within(least, most, clouds=1):
    """The same slopes for all clouds."""
    return SlopeRange(np.full(clouds, least), np.full(clouds, most))


def smallest(x, y, slope, k):
    """The k smallest residuals of a line of this slope.

    All that a fit tolerating k points a side can see of a cloud.
    """
    return np.sort(y - slope * x)[:k]


def cloud(random, size):
    """Points of one of several kinds: queueing above a drifting floor, plain noise, few values with many ties."""
    x = np.sort(random.integers(0, 2_000_000, size))
    kind = random.integers(3)
    if kind == 0:
        y = (30e-6 * x).astype(np.int64) + 1_000 + random.exponential(20_000, size).astype(np.int64)
    elif kind == 1:
        y = random.integers(-50_000, 50_000, size)
    else:
        x, y = random.integers(0, 12, size), random.integers(0, 5, size)
    return x.astype(np.float64), y.astype(np.float64)


@pytest.mark.parametrize("slopes", [ANY, (-2e-4, 2e-4), (30e-6 - 2e-8, 30e-6 + 2e-8), (0.0, 0.0)])
@pytest.mark.parametrize("layers", [1, 2, 5, 12])
def test_the_smallest_residuals_survive_for_every_slope(slopes, layers):
    """Of the range. In any direction the first k layers hold the k most extreme points."""
    for seed in range(40):
        random = np.random.default_rng(seed)
        x, y = cloud(random, int(random.integers(1, 120)))
        (keep,) = lower_layers(x[None], y[None], within(*slopes), layers)
        for slope in np.linspace(*slopes, 41):
            seen, all_of_it = smallest(x[keep], y[keep], slope, layers), smallest(x, y, slope, layers)
            assert np.allclose(seen, all_of_it, rtol=0, atol=1e-5)


def test_clouds_of_all_sizes_are_pruned_together_as_alone():
    """Missing points of the shorter ones are kept nowhere."""
    random = np.random.default_rng(7)
    clouds = [cloud(random, size) for size in (1, 3, 40, 119, 8)]
    x, y = np.zeros((5, 119)), np.full((5, 119), np.inf)
    for row, (xs, ys) in enumerate(clouds):
        x[row, : len(xs)], y[row, : len(ys)] = xs, ys
    together = lower_layers(x, y, within(-1e-3, 1e-3, 5), 4)
    for row, (xs, ys) in enumerate(clouds):
        (alone,) = lower_layers(xs[None], ys[None], within(-1e-3, 1e-3), 4)
        assert together[row, : len(xs)].tolist() == alone.tolist()
        assert not together[row, len(xs) :].any()


def test_most_of_a_cloud_goes_and_more_where_the_slope_is_known():
    """A window of 1,000 points shrinks to some tens."""
    random = np.random.default_rng(1)
    x = np.sort(random.uniform(-1e9, 1e9, 1_000))[None]
    y = random.exponential(20_000, 1_000)[None]
    assert 3 <= np.count_nonzero(lower_layers(x, y, within(-2e-4, 2e-4), 1)) <= 40
    assert np.count_nonzero(lower_layers(x, y, within(-2e-4, 2e-4), 3)) <= 100
    assert np.count_nonzero(lower_layers(x, y, within(-2e-8, 2e-8), 3)) <= 9


def test_one_nanosecond_decides():
    """Above the line through its neighbours a point goes, below it stays."""
    x, y = np.array([[-1e9, 0.0, 1e9]]), np.array([[0.0, 1.0, 0.0]])
    assert lower_layers(x, y, within(*ANY), 1).tolist() == [[True, False, True]]
    assert lower_layers(x, y - [0, 2, 0], within(*ANY), 1).tolist() == [[True, True, True]]


def test_small_clouds_are_kept_whole_and_empty_ones_are_no_trouble():
    """There is nothing to prune in less points than layers can hold."""
    assert lower_layers(np.array([[5.0]]), np.array([[6.0]]), within(*ANY), 3).tolist() == [[True]]
    assert lower_layers(np.array([[0.0]]), np.array([[np.inf]]), within(*ANY), 3).tolist() == [[False]]
    three = lower_layers(np.array([[1.0, 1.0, 1.0]]), np.array([[3.0, 2.0, 1.0]]), within(*ANY), 2)
    assert three.tolist() == [[False, True, True]]


@pytest.mark.parametrize(
    ("x", "y"),
    [
        ([-8.81420739e13, 1.73036654e14, 6.79369207e14], [2.37970794e9, -4.67173830e9, -1.83419818e10]),
        ([-1e18, -3e17, 3e17, 1e18], [1e14, 3e13 + 64, -3e13 - 64, -1e14]),
    ],
)
def test_points_so_far_apart_that_floats_cannot_tell_end_too(x, y):
    """The stamps of a stranger may lie years apart; both ends of the line through them are kept, and once."""
    (keep,) = lower_layers(np.array([x]), np.array([y]), SlopeRange.unknown(1), 1)
    assert keep[[0, -1]].any()


def test_a_cloud_is_pruned_the_same_beside_one_with_more_points_near_the_line():
    """Points that are not near its own line do not come in because another row has room for them."""
    random = np.random.default_rng(0)
    x = np.sort(random.uniform(-1e9, 1e9, (2, 100)))
    y = np.stack([random.exponential(20_000, 100), np.zeros(100)])
    together = lower_layers(x, y, within(-1e-6, 1e-6, 2), 10)
    alone = lower_layers(x[:1], y[:1], within(-1e-6, 1e-6), 10)
    assert together[0].tolist() == alone[0].tolist()
