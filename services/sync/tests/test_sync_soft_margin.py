"""The separating line, against the linear programme that it solves."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import linprog

from foliot_sync.core.fit.soft_margin import Sides, at_middle, separate, slope_uncertainty, touch

LIMIT_PPB = 200_000.0


def limits(groups, limit_ppb=LIMIT_PPB):
    """The least and the most slope of so many groups."""
    return np.full(groups, -limit_ppb), np.full(groups, limit_ppb)


def cloud(random, points, slope_ppb=30_000.0, floor_ns=10_000.0):
    """Upper and lower points around a line, with queues of tens of microseconds."""
    x = random.uniform(-1, 1, (2, points))
    y = slope_ppb * x + 500.0 + np.array([[1.0], [-1.0]]) * (floor_ns + random.exponential(30_000, (2, points)))
    return x, y


def sides(streams, k=1):
    """Streams of (x, y), each of shape (2, points), as sides."""
    most = max(x.shape[1] for x, _ in streams)
    rows_x, rows_y = np.zeros((2 * len(streams), most)), np.full((2 * len(streams), most), np.inf)
    for number, (x, y) in enumerate(streams):
        for side, sign in enumerate((1, -1)):
            rows_x[2 * number + side, : x.shape[1]] = sign * x[side]
            rows_y[2 * number + side, : x.shape[1]] = sign * y[side]
    counts = np.repeat([x.shape[1] for x, _ in streams], 2)
    return Sides(rows_x, rows_y, np.full(len(rows_x), k), counts)


def objective(both, slope):
    """What the search maximises, for one group."""
    return touch(both, np.full(len(both.x), slope)).mean.sum()


def by_programme(x, y, k):
    """The optimum of the soft-margin linear programme by HiGHS: objective and slope."""
    points = x.shape[1]
    # Variables: slope, upper intercept, lower intercept, a slack per point.
    cost = np.concatenate(([0.0, -1.0, 1.0], np.full(2 * points, 1 / k)))
    slack = -np.eye(2 * points)
    upper = np.column_stack((x[0], np.ones(points), np.zeros(points)))
    lower = np.column_stack((-x[1], np.zeros(points), -np.ones(points)))
    ranges = [(-LIMIT_PPB, LIMIT_PPB), (None, None), (None, None)] + [(0, None)] * (2 * points)
    rows = np.column_stack((np.vstack((upper, lower)), slack))
    found = linprog(cost, rows, np.concatenate((y[0], -y[1])), bounds=ranges, method="highs")
    assert found.success
    return -found.fun, found.x[0]


@pytest.mark.parametrize("k", [1, 2, 5])
@pytest.mark.parametrize("seed", range(5))
def test_line_equals_the_linear_programme(seed, k):
    """The search reaches the optimum that HiGHS finds for the soft margin, to a millionth of a nanosecond."""
    x, y = cloud(np.random.default_rng(seed), 60)
    both = sides([(x, y)], k)
    slope = separate(both, np.zeros(2, dtype=int), *limits(1))
    best, slope_by_programme = by_programme(x, y, k)
    assert objective(both, slope[0]) == pytest.approx(best, abs=1e-6)
    assert slope[0] == pytest.approx(slope_by_programme, abs=1e-5)


def test_many_streams_at_once_equal_each_alone():
    """Fitting streams of different lengths together changes nothing about each."""
    random = np.random.default_rng(5)
    streams = [cloud(random, points, slope_ppb=random.uniform(-3e4, 3e4)) for points in (1, 2, 7, 40, 90)]
    together = separate(sides(streams), np.repeat(np.arange(5), 2), *limits(5))
    alone = [separate(sides([stream]), np.zeros(2, dtype=int), *limits(1))[0] for stream in streams]
    assert [
        objective(sides([stream]), slope) for stream, slope in zip(streams, together, strict=True)
    ] == pytest.approx(
        [objective(sides([stream]), slope) for stream, slope in zip(streams, alone, strict=True)], abs=1e-6
    )


def test_streams_of_a_pair_share_the_slope_that_separates_all_best():
    """No other slope gives streams with different floors a larger sum of margins."""
    random = np.random.default_rng(6)
    both = sides([cloud(random, 12, floor_ns=floor) for floor in (5_000, 9_000, 20_000)])
    slope = separate(both, np.zeros(6, dtype=int), *limits(1))[0]
    others = slope + np.linspace(-20_000, 20_000, 4001)
    assert objective(both, slope) >= max(objective(both, other) for other in others)


def test_slope_stays_within_the_limit():
    """Two points that would allow any slope give one that clocks can have."""
    both = sides([(np.array([[-1.0], [1.0]]), np.array([[1e6], [-1e6]]))])
    assert abs(separate(both, np.zeros(2, dtype=int), *limits(1, 100.0))[0]) == 100.0


@pytest.mark.parametrize("k", [1, 3])
def test_pruned_cloud_gives_the_same_line(k):
    """With only the points of the first k convex layers the line is the same."""
    x, y = cloud(np.random.default_rng(7), 200)
    kept = [layers(x[0], y[0], k), layers(-x[1], -y[1], k)]
    most = max(map(len, kept))
    rows_x, rows_y = np.zeros((2, most)), np.full((2, most), np.inf)
    for side, sign in enumerate((1, -1)):
        rows_x[side, : len(kept[side])] = sign * x[side, kept[side]]
        rows_y[side, : len(kept[side])] = sign * y[side, kept[side]]
    counts = np.array([len(each) for each in kept])
    pruned = Sides(rows_x, rows_y, np.full(2, k), counts)
    whole = sides([(x, y)], k)
    group = np.zeros(2, dtype=int)
    slopes = [separate(each, group, *limits(1)) for each in (pruned, whole)]
    assert slopes[0] == pytest.approx(slopes[1], abs=1e-6)
    assert touch(pruned, slopes[0][group]).intercept == pytest.approx(
        touch(whole, slopes[1][group]).intercept, abs=1e-6
    )


def layers(x, y, k):
    """Points that are among the k least for some slope: at least the first k lower layers' deciding ones."""
    slopes = np.tan(np.linspace(-np.pi / 2 + 1e-9, np.pi / 2 - 1e-9, 20_001)) * 1e4
    found = {int(point) for slope in slopes for point in np.argsort(y - slope * x)[:k]}
    return sorted(found)


@pytest.mark.parametrize("wrong_ppb", [0.0, 300.0, 30_000.0])
def test_no_straight_line_below_a_cloud_is_above_its_ceiling(wrong_ppb):
    """The most that a line below all points can reach at x = 0, as HiGHS finds it, is below, and just below for a slope that is nearly right."""
    x, y = cloud(np.random.default_rng(8), 50)
    both = sides([(x, y)])
    slope = separate(both, np.arange(2), *limits(2)) + wrong_ppb
    found = at_middle(both.x, both.y, both.y - slope[:, None] * both.x, LIMIT_PPB).ceiling
    for side in range(2):
        rows = np.column_stack((both.x[side], np.ones(50)))
        hull = -linprog([0, -1], rows, both.y[side], bounds=[(-LIMIT_PPB, LIMIT_PPB), (None, None)], method="highs").fun
        assert hull - 1e-6 <= found[side]
        if wrong_ppb < 1_000:
            assert found[side] <= hull + wrong_ppb + 1e-6


def test_points_on_one_side_of_the_middle_bound_by_the_fastest_drift():
    """They say no more than that clocks cannot run faster than the limit."""
    both = sides([(np.array([[0.5], [0.5]]), np.array([[700.0], [-100.0]]))])
    assert at_middle(both.x, both.y, both.y, 1_000.0).ceiling == pytest.approx([1_200.0, 600.0])


def test_slope_uncertainty_is_what_noise_allows():
    """Clouds that touch at both ends of two seconds lose 2 ns a ppb, so 100 ns of noise hide 50 ppb.

    64 in doublings.
    """
    both = sides([(np.array([[-1.0, 1.0], [-1.0, 1.0]]), np.array([[10.0, 10.0], [-10.0, -10.0]]))])
    group = np.zeros(2, dtype=int)
    slope = separate(both, group, *limits(1))
    assert slope_uncertainty(both, group, slope, np.array([100.0]), LIMIT_PPB).tolist() == [64.0]


def test_slope_of_a_single_point_is_unknown():
    """One point a side, at the same time, can be turned up to the limit."""
    both = sides([(np.zeros((2, 1)), np.array([[10.0], [-10.0]]))])
    group = np.zeros(2, dtype=int)
    slope = separate(both, group, *limits(1))
    assert slope_uncertainty(both, group, slope, np.array([100.0]), LIMIT_PPB).tolist() == [LIMIT_PPB]
