"""What measurements are usually off by: learnt from what others say, worth having where weights change, and forgotten."""

from __future__ import annotations

import numpy as np
import pytest

from foliot_sync.core.fit.pair_estimate import combine
from foliot_sync.core.lasting_misfit import LastingMisfits
from foliot_sync.core.solve.least_squares import Edges, solve

WINDOWS = 60
UNEVEN_NS = 15.0
SETTLED = 10


def test_what_lasts_is_known_after_some_windows_and_nothing_of_others():
    """A misfit of 40 ns in each window is nearly all believed where windows are good, and half of it where they are bad."""
    lasting, key = LastingMisfits(), np.array([7, 3])
    for window in range(20):
        assert (lasting.of(key) == 0).all() == (window < 4)
        lasting.learn(key, np.array([40.0, -40.0]), np.array([25.0, 2_000.0]))
    assert lasting.of(key) == pytest.approx([40, -20], rel=0.05)
    assert lasting.of(np.array([3, 5, 9])) == pytest.approx([-20, 0, 0], rel=0.05)


def test_a_drift_is_followed_within_the_memory():
    """A misfit that turns around by less than is strange: after a minute two thirds are new, later all."""
    lasting, key, variance = LastingMisfits(), np.array([1]), np.array([9.0])
    for _ in range(40):
        lasting.learn(key, np.array([15.0]), variance)
    for _ in range(30):
        lasting.learn(key, np.array([-15.0]), variance)
    assert lasting.of(key)[0] < -2.5
    for _ in range(60):
        lasting.learn(key, np.array([-15.0]), variance)
    assert lasting.of(key)[0] == pytest.approx(-15, rel=0.1)


def test_a_strange_misfit_is_not_remembered():
    """As after a resume, when clocks are placed wrong for a window: whether it comes early, late or thrice in a row."""
    lasting, key, variance = LastingMisfits(), np.array([1, 2]), np.array([200.0, 200.0])
    for window in range(40):
        strange = window in {3, 20, 21, 22}
        lasting.learn(key, np.array([-2_209.8 if strange else 30.0, 5.0]), variance)
    assert lasting.of(key) == pytest.approx([30, 5], rel=0.1)


def test_a_path_that_changes_is_learnt_anew_after_few_windows():
    """The fourth strange window is of another way, of which nothing was known; so it is if the first was strange."""
    lasting, key, variance = LastingMisfits(), np.array([1]), np.array([9.0])
    lasting.learn(key, np.array([9_000.0]), variance)
    for _ in range(7):
        lasting.learn(key, np.array([300.0]), variance)
    assert lasting.of(key)[0] == pytest.approx(300, rel=0.05)
    for window in range(8):
        assert lasting.of(key)[0] == pytest.approx(300 if window < 4 else 0 if window < 7 else -300, rel=0.05)
        lasting.learn(key, np.array([-300.0]), variance)


def test_what_is_not_measured_any_more_is_forgotten():
    """So that clocks that come and go leave nothing behind."""
    lasting, old, new = LastingMisfits(), np.array([1, 2]), np.array([2, 3])
    for _ in range(5):
        lasting.learn(old, np.full(2, 30.0), np.full(2, 1.0))
    for _ in range(30):
        assert lasting.of(old)[0] > 0
        lasting.learn(new, np.zeros(2), np.full(2, 1.0))
    lasting.learn(new, np.zeros(2), np.full(2, 1.0))
    assert lasting.of(np.array([1])) == [0.0]
    assert lasting.of(new)[0] == pytest.approx(30 * 5 / 30, rel=0.3)


@pytest.mark.parametrize("seed", range(3))
def test_a_pair_varies_less_from_window_to_window_as_other_streams_count(seed):
    """Of six uneven streams, other ones have met short queues in each window. Its mean repeats better by a third."""
    random = np.random.default_rng(seed)
    uneven, pair, keys = random.normal(0, UNEVEN_NS, 6), np.zeros(6, int), np.arange(6)
    lasting, found = LastingMisfits(), []
    for _ in range(WINDOWS):
        variance = random.choice([3.0, 60.0], 6) ** 2
        offset = uneven + random.normal(0, np.sqrt(variance))
        plain, stated, _ = combine(offset, variance, pair, 1)
        mean, with_it, misfits = combine(offset, variance, pair, 1, lasting.of(keys))
        lasting.learn(keys, misfits.off, misfits.variance)
        found.append((plain[0], mean[0], stated[0], with_it[0]))
    plain, mean, stated, with_it = np.array(found[SETTLED:]).T
    assert mean.std() < 0.67 * plain.std()
    assert abs(mean.mean() - uneven.mean()) < UNEVEN_NS
    # How uneven streams are tells how far their mean may be off, also when each is corrected.
    assert np.median(with_it) > 0.8 * np.median(stated)


@pytest.mark.parametrize("seed", range(3))
def test_a_mesh_varies_less_from_window_to_window_and_says_as_much_as_before(seed):
    """Of a mesh whose pairs are uneven, others are good in each window. The surplus and the variances stay as they were."""
    random, (start, end) = np.random.default_rng(seed), np.triu_indices(8, 1)
    uneven, keys = random.normal(0, UNEVEN_NS, len(start)), (start << 32) | end
    lasting, found = LastingMisfits(), []
    for _ in range(WINDOWS):
        variance = random.choice([3.0, 60.0], len(start)) ** 2
        edges = Edges(start, end, uneven + random.normal(0, np.sqrt(variance)), variance)
        plain, learnt = solve(edges, 8, 0), solve(edges, 8, 0, lasting.of(keys))
        known = np.isfinite(learnt.misfit)
        lasting.learn(keys[known], learnt.misfit[known], variance[known])
        assert learnt.surplus == plain.surplus
        assert (learnt.variance == plain.variance).all()
        assert (learnt.accepted == plain.accepted).all()
        found.append((plain.value[1:], learnt.value[1:]))
    plain_ns, learnt_ns = np.swapaxes(np.array(found[SETTLED:]), 0, 1)
    assert learnt_ns.std(axis=0).mean() < 0.75 * plain_ns.std(axis=0).mean()


def test_what_was_measured_of_an_outvoted_pair_tells_nothing():
    """It counts for no value, so it has no misfit either."""
    start, end = np.triu_indices(6, 1)
    difference = np.random.default_rng(1).normal(0, 10, len(start))
    difference[4] += 5_000.0
    found = solve(Edges(start, end, difference, np.full(len(start), 100.0)), 6, 0)
    assert np.flatnonzero(np.isnan(found.misfit)).tolist() == [4]
