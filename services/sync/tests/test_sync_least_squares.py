"""The mesh: loops that close, pairs that are outvoted, and what no mesh can see."""

from __future__ import annotations

import numpy as np
import pytest

from foliot_sync.core.solve.least_squares import Edges, solve


def complete(nodes):
    """Both ends of every edge of a complete graph."""
    return np.triu_indices(nodes, 1)


def edges(start, end, difference, variance=1.0):
    """Edges of equal variance."""
    return Edges(np.asarray(start), np.asarray(end), np.asarray(difference, float), np.full(len(start), variance))


def test_loop_is_closed_as_in_the_paper():
    """A loop of 20, -15 and 5 has a surplus of 10, a third of which is taken from each pair."""
    found = solve(edges([0, 1, 2], [1, 2, 0], [20.0, -15.0, 5.0]), 3, 0)
    assert found.value[0] - found.value[1] == pytest.approx(20 - 10 / 3)
    assert found.surplus == pytest.approx(np.sqrt(3 * (10 / 3) ** 2))


def test_error_falls_with_the_mesh():
    """In a complete graph of n nodes a pair's error power falls to 2/n, and the solution says so."""
    random, (start, end) = np.random.default_rng(1), complete(16)
    noise = random.normal(0, 100, (300, len(start)))
    found = [solve(edges(start, end, row, 100.0**2), 16, 0) for row in noise]
    assert np.mean([each.value[1:] ** 2 for each in found]) == pytest.approx(100**2 * 2 / 16, rel=0.1)
    assert np.mean([each.variance[1:] for each in found]) == pytest.approx(100**2 * 2 / 16, rel=0.1)
    assert np.mean([each.surplus for each in found]) == pytest.approx(100, rel=0.05)


@pytest.mark.parametrize("seed", range(5))
def test_outvoted_pair_is_left_out(seed):
    """One pair 20 us off among honest ones to 50 ns is found, and moves nobody."""
    random, (start, end) = np.random.default_rng(seed), complete(8)
    truth = random.uniform(-1e6, 1e6, 8)
    truth[0] = 0
    difference = truth[start] - truth[end] + random.normal(0, 50, len(start))
    bad = int(random.integers(len(start)))
    difference[bad] += 20_000
    found = solve(edges(start, end, difference, 50.0**2), 8, 0)
    assert not found.accepted[bad]
    assert found.accepted.sum() >= len(start) - 2
    assert np.abs(found.value - truth).max() < 150


def test_where_nobody_outvotes_both_stay_and_the_variance_says_so():
    """Two clusters joined by two pairs that disagree stay joined, in the middle, with the disagreement as variance."""
    start, end = np.array([0, 0, 1, 3, 3, 4, 0, 1]), np.array([1, 2, 2, 4, 5, 5, 3, 4])
    difference = np.zeros(8)
    difference[6] = 1_000.0
    found = solve(edges(start, end, difference), 6, 0)
    assert found.accepted.all()
    assert found.value[3:] == pytest.approx([-500.0] * 3, abs=200)
    assert np.sqrt(found.variance[3]) > 200


def test_unconnected_clock_has_no_value():
    """What no pair connects to the ground has nan for a value, and does not disturb the others."""
    found = solve(edges([0, 2], [1, 3], [5.0, 7.0]), 5, 0)
    assert found.value[:2] == pytest.approx([0, -5])
    assert np.isnan(found.value[2:]).all()
    assert found.neighbours.tolist() == [1, 1, 0, 0, 0]


def test_asymmetry_of_one_node_towards_all_is_invisible():
    """A node whose every pair is off by the same is moved by that, with no surplus: no mesh can know."""
    start, end = complete(6)
    difference = np.where(end == 3, 800.0, np.where(start == 3, -800.0, 0.0))
    found = solve(edges(start, end, difference), 6, 0)
    assert found.value[3] == pytest.approx(-800)
    assert found.surplus == pytest.approx(0, abs=1e-6)
    assert found.accepted.all()


def test_parallel_pairs_count_as_one_neighbour():
    """Two measurements between the same clocks weigh twice and are one neighbour."""
    found = solve(edges([0, 1], [1, 0], [10.0, -20.0]), 2, 0)
    assert found.value[1] == pytest.approx(-15)
    assert found.neighbours.tolist() == [1, 1]


def regular(nodes, neighbours, random):
    """A random mesh: the union of rings."""
    rings = [random.permutation(nodes) for _ in range(neighbours // 2)]
    return np.concatenate(rings), np.concatenate([np.roll(ring, -1) for ring in rings])


def test_a_large_mesh_is_solved_as_a_small_one(monkeypatch):
    """By steps instead of whole.

    Values to a thousandth of their deviation, variances to some per cent, and the same pairs left out.
    """
    random = np.random.default_rng(3)
    start, end = regular(250, 8, random)
    truth, sigma = random.normal(0, 1e5, 250), random.uniform(3, 300, len(start))
    difference = truth[start] - truth[end] + random.normal(0, sigma)
    difference[::50] += 20_000
    given = Edges(start, end, difference, sigma**2)
    whole = solve(given, 250, 0)
    monkeypatch.setattr("foliot_sync.core.solve.least_squares._FEW", 10)
    stepped = solve(given, 250, 0)
    deviation = np.sqrt(whole.variance[1:])
    assert (np.abs(stepped.value - whole.value)[1:] < 0.02 * deviation).all()
    assert np.median(stepped.variance[1:] / whole.variance[1:]) == pytest.approx(1, abs=0.1)
    assert (stepped.variance[1:] > 0.5 * whole.variance[1:]).all()
    assert (stepped.accepted == whole.accepted).mean() > 0.99


def test_a_node_that_hangs_on_one_edge_of_a_large_mesh_is_as_doubtful_as_that(monkeypatch):
    """Whatever the others know of one another."""
    monkeypatch.setattr("foliot_sync.core.solve.least_squares._FEW", 10)
    random = np.random.default_rng(4)
    start, end = regular(60, 8, random)
    start, end = np.append(start, [60, 61]), np.append(end, [7, 60])
    found = solve(edges(start, end, np.zeros(len(start)), 100.0), 62, 0)
    assert found.variance[60] == pytest.approx(found.variance[7] + 100, rel=0.05)
    assert found.variance[61] == pytest.approx(found.variance[7] + 200, rel=0.05)


@pytest.mark.parametrize("nodes", [4, 40, 150])
def test_a_part_that_hangs_on_next_to_nothing_is_as_doubtful_as_floats_can_say(nodes):
    """Its own pairs are so much better than the one to the rest that there is no difference between holding on to that and to nothing."""
    start, end = complete(nodes - 1)
    hanging = Edges(
        np.append(start + 1, 0),
        np.append(end + 1, 1),
        np.append(np.zeros(len(start)), 50.0),
        np.append(np.full(len(start), 1e-9), 1e37),
    )
    found = solve(hanging, nodes, 0)
    assert np.isfinite(found.value).all()
    assert (found.variance[1:] > 100.0**2 * np.median(hanging.variance)).all()


def leaves(count, each, near, far, random):
    """A mesh of nodes in leaves: with `near` neighbours under the same leaf, and `far` anywhere."""
    nodes = count * each
    start, end = [], []
    for first in range(0, nodes, each):
        leaf = np.arange(first, first + each)
        for step in range(1, near // 2 + 1):
            start.append(leaf)
            end.append(np.roll(leaf, -step))
    across = regular(nodes, far, random)
    start, end = np.concatenate([*start, across[0]]), np.concatenate([*end, across[1]])
    return start, end, start // each == end // each


@pytest.mark.parametrize("contrast", [1.0, 10.0, 100.0, 1e4])
@pytest.mark.parametrize("near", [2, 4, 6])
def test_leaves_whose_nodes_know_each_other_well_are_as_doubtful_as_what_joins_them(monkeypatch, contrast, near):
    """Spines are loaded and leaves are not.

    All nodes of a leaf are off together, which none of the leaf's own pairs shows.
    """
    random = np.random.default_rng(5)
    start, end, inside = leaves(16, 16, near, 6, random)
    sigma = np.where(inside, 10.0, 10.0 * contrast) * random.uniform(0.5, 2.0, len(start))
    truth = random.normal(0, 1e5, 256)
    given = Edges(start, end, truth[start] - truth[end] + random.normal(0, sigma), sigma**2)
    monkeypatch.setattr("foliot_sync.core.solve.least_squares._FEW", 1_000)
    whole = solve(given, 256, 0)
    monkeypatch.setattr("foliot_sync.core.solve.least_squares._FEW", 100)
    stepped = solve(given, 256, 0)

    deviation = np.sqrt(whole.variance[1:])
    assert (np.abs(stepped.value - whole.value)[1:] < 0.05 * deviation).all()
    assert (stepped.variance[1:] > 0.6 * whole.variance[1:]).all()
    assert (stepped.variance[1:] < 5.0 * whole.variance[1:]).all()
