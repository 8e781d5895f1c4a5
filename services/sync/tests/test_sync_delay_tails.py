"""How the lowest points of a direction usually lie, and what one window's tell beside that."""

from __future__ import annotations

import numpy as np
import pytest

from foliot_sync.core.fit.delay_tails import DelayTails, TailShapes
from foliot_sync.core.fit.least_residual import lowest

WINDOWS = 60
NOISE_NS = 25.0


def lifted(delays, noise_ns=NOISE_NS):
    """Where each direction stands in the later windows by its least point, and with what its lowest ones tell beside.

    Delays have the axes window, direction and probe.
    """
    tails, rows, found = DelayTails(), np.array([0]), []
    for window in delays:
        stand = lowest(window, np.full(2, noise_ns), averaged=True)
        shapes = TailShapes.of(stand, np.ones(2))
        found.append((stand.value, stand.value + tails.lift(rows, shapes, np.array([noise_ns])).ravel()))
        tails.learn(rows, shapes)
    least, stood = np.swapaxes(np.array(found[10:]), 0, 1)
    return least, stood


@pytest.mark.parametrize(("shape", "mean_ns"), [(2.2, 1_800.0), (2.0, 40.0)])
def test_where_no_probe_need_reach_the_floor_the_lowest_points_repeat_better(shape, mean_ns):
    """On a slow machine by a tenth at least, on a quick one by a quarter.

    The difference of both directions, and nothing is biased.
    """
    random = np.random.default_rng(3)
    delays = random.gamma(shape, mean_ns / shape, (5 * WINDOWS, 2, 200)) + random.normal(0, 20.0, (5 * WINDOWS, 2, 200))
    least, stood = lifted(delays)
    before, after = (np.std(each[:, 0] - each[:, 1]) for each in (least, stood))
    assert after < (0.9 if mean_ns > 1_000 else 0.75) * before
    assert abs((stood - least).mean()) < before / 10


def test_where_queues_make_the_heights_the_least_counts_alone():
    """A few probes meet no queue, and the others wait for a millisecond."""
    random = np.random.default_rng(4)
    waits = np.where(random.random((WINDOWS, 2, 200)) < 0.03, 0.0, random.exponential(1e6, (WINDOWS, 2, 200)))
    least, stood = lifted(waits)
    assert (stood == least).all()


def test_a_queue_that_has_just_come_lifts_nothing():
    """The least point is as it was before, however far the others are."""
    random = np.random.default_rng(5)
    delays = random.normal(0, 10.0, (WINDOWS, 2, 200))
    delays[-1, 0, 1:] += 1e6
    least, stood = lifted(delays)
    assert stood[-1, 0] == least[-1, 0]


def test_few_points_are_no_trouble():
    """The mean of the lowest points is known where there are enough of them.

    Else the least counts, and nothing is learnt.
    """
    random = np.random.default_rng(6)
    delays = random.normal(0, 10.0, (WINDOWS, 2, 200))
    delays[-1, 0, 5:] = np.inf
    least, stood = lifted(delays)
    assert stood[-1, 0] == least[-1, 0]
    assert np.isfinite(stood).all()


def test_the_direction_that_is_usually_later_is_remembered():
    """The ratio comes nearer to its mean with each window, and what chance makes of one window is left out."""
    random = np.random.default_rng(7)
    tails, rows = DelayTails(), np.array([0, 1])
    for _ in range(40):
        apart = np.array([np.log(5.0), 0.0]) + random.normal(0, 0.63, 2)
        tails.learn(rows, shapes(apart))
    assert tails.apart(rows)[0] == pytest.approx(np.log(5.0), abs=0.4)
    assert abs(tails.apart(rows)[1]) < 0.3
    assert (tails.lift(rows, shapes(np.zeros(2)), np.full(2, NOISE_NS)) == 0).all()


def shapes(apart, deeper=np.nan):
    """What windows of two streams show where too few points tell a mean height."""
    return TailShapes(np.full((2, 2), np.nan), np.zeros(2), apart, np.broadcast_to(deeper, (2, 2)))


def test_depth_is_that_of_the_latest_windows():
    """From the first one on, which says it badly. After eight of another load, most of it is forgotten."""
    tails, rows = DelayTails(), np.array([0, 1])
    found = []
    for depth in [40.0] * 10 + [0.0] * 16:
        seen = shapes(np.zeros(2), [[0.0, depth], [np.nan, np.nan]])
        found.append(tails.deeper(rows, seen))
        tails.learn(rows, seen)
    assert (np.array(found)[:, [0, 1, 1], [0, 0, 1]] == 0).all()
    assert [each[0, 1] for each in found[:10]] == [40.0] * 10
    assert 10 < found[17][0, 1] < 20
    assert found[-1][0, 1] < 5


def test_no_depth_is_assumed_where_nobody_counted():
    """A window in which hardly a probe came near the floor teaches nothing of how many usually do."""
    tails, rows = DelayTails(), np.array([0, 1])
    told, untold = shapes(np.zeros(2), [[0.0, 40.0]] * 2), shapes(np.zeros(2))
    for seen in (told, untold):
        tails.learn(rows, seen)
    assert (tails.deeper(rows, untold) == 0).all()
    assert tails.deeper(rows, told)[0].tolist() == [0.0, 40.0]
