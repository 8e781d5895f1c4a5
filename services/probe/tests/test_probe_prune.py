"""Pruning: a fit sees the same with and without it."""

from __future__ import annotations

import numpy as np
import pytest

from foliot_probe.prune import lower_layers, upper_layers

SLOPES = np.concatenate([np.linspace(-2e-4, 2e-4, 401), np.linspace(-3, 3, 61)])


def smallest(x, y, slope, k):
    """The k smallest residuals of a line of this slope: all that a fit tolerating k points a side can see of a cloud."""
    residuals = np.sort(y - slope * x)
    return residuals[:k]


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
    return x, y


@pytest.mark.parametrize("seed", range(40))
@pytest.mark.parametrize("layers", [1, 2, 5])
def test_the_smallest_residuals_survive_for_every_slope(seed, layers):
    """In any direction the first k layers hold the k most extreme points."""
    random = np.random.default_rng(seed)
    x, y = cloud(random, int(random.integers(1, 120)))
    keep = lower_layers(x, y, layers)
    for slope in SLOPES:
        assert np.allclose(smallest(x[keep], y[keep], slope, layers), smallest(x, y, slope, layers), rtol=0, atol=1e-6)


@pytest.mark.parametrize("seed", range(10))
def test_upper_layers_mirror_lower_ones(seed):
    """What lies lowest upside down lies highest."""
    x, y = cloud(np.random.default_rng(seed), 60)
    assert (upper_layers(x, y, 2) == lower_layers(x, -y, 2)).all()


def test_most_of_a_cloud_goes():
    """A window of 1,000 points shrinks to some tens."""
    random = np.random.default_rng(1)
    x = np.sort(random.integers(0, 2_000_000_000, 1_000))
    y = random.exponential(20_000, 1_000).astype(np.int64)
    assert 3 <= np.count_nonzero(lower_layers(x, y, 1)) <= 40
    assert np.count_nonzero(lower_layers(x, y, 3)) <= 100


def test_it_is_exact_for_times_since_1970():
    """One nanosecond decides at nanoseconds since 1970, where a float knows only 256."""
    base = 1_780_000_000_000_000_000
    x = base + np.array([0, 1_000_000_000, 2_000_000_000])
    y = base + np.array([0, 1, 0])
    assert lower_layers(x, y, 1).tolist() == [True, False, True]
    assert lower_layers(x, y - np.array([0, 2, 0]), 1).tolist() == [True, True, True]


def test_small_clouds_are_kept_whole_and_empty_ones_are_no_trouble():
    """There is nothing to prune in less points than layers can hold."""
    assert lower_layers(np.array([5]), np.array([6]), 3).tolist() == [True]
    assert lower_layers(np.array([], np.int64), np.array([], np.int64), 3).tolist() == []
    assert lower_layers(np.array([1, 1, 1]), np.array([3, 2, 1]), 2).tolist() == [False, True, True]
