"""Hard bounds: never broken, and as tight as the intervals allow."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import linprog

from foliot_sync.core.solve.hard_bounds import HardBounds, hard_bounds


def fabric(seed, nodes=7):
    """True values, and intervals around their differences with the truth anywhere in them."""
    random = np.random.default_rng(seed)
    start, end = np.triu_indices(nodes, 1)
    chosen = random.random(len(start)) < 0.7
    chosen[end - start == 1] = True
    start, end = start[chosen], end[chosen]
    truth = np.concatenate(([0.0], random.uniform(-1e4, 1e4, nodes - 1)))
    width, place = random.uniform(5e3, 4e4, len(start)), random.random(len(start))
    lower = truth[start] - truth[end] - place * width
    return truth, start, end, lower, lower + width


@pytest.mark.parametrize("seed", range(20))
def test_truth_is_inside_whatever_the_asymmetry(seed):
    """However the truth lies within the pairs' intervals and whatever was published, the bound holds it."""
    truth, start, end, lower, upper = fabric(seed)
    published = truth + np.random.default_rng(seed + 100).normal(0, 1e4, len(truth))
    published[0] = 0
    shift = published[start] - published[end]
    room = hard_bounds(HardBounds(start, end, lower - shift, upper - shift), len(truth), 0)
    assert (np.abs(truth - published) <= room).all()
    assert room[0] == 0


@pytest.mark.parametrize("seed", range(5))
def test_bound_is_the_tightest_that_the_intervals_imply(seed):
    """For a value that the intervals allow, a linear programme finds the same largest distance."""
    truth, start, end, lower, upper = fabric(seed)
    shift = truth[start] - truth[end]
    room = hard_bounds(HardBounds(start, end, lower - shift, upper - shift), len(truth), 0)
    rows = np.zeros((len(start), len(truth)))
    rows[np.arange(len(start)), start], rows[np.arange(len(start)), end] = 1, -1
    for node in range(1, len(truth)):
        reach = []
        for sign in (1, -1):
            cost = np.zeros(len(truth))
            cost[node] = -sign
            limits = [(0, 0)] + [(None, None)] * (len(truth) - 1)
            found = linprog(
                cost, np.vstack((rows, -rows)), np.concatenate((upper - shift, shift - lower)), bounds=limits
            )
            reach.append(-found.fun)
        assert room[node] == pytest.approx(max(reach), abs=0.1)


def test_unconnected_node_has_no_bound():
    """Nothing bounds a clock that no pair connects to the reference."""
    room = hard_bounds(HardBounds(np.array([0]), np.array([1]), np.array([-3.0]), np.array([5.0])), 3, 0)
    assert room.tolist() == [0.0, 5.0, np.inf]


def test_shortest_of_parallel_intervals_counts():
    """Of two intervals between the same clocks, each end is bounded by the narrower one."""
    ends = np.zeros(2, dtype=int), np.ones(2, dtype=int)
    room = hard_bounds(HardBounds(*ends, np.array([-9.0, -2.0]), np.array([1.0, 8.0])), 2, 0)
    assert room[1] == 2.0
