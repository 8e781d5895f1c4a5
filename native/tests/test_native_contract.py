"""Each compiled function says the same as its twin in Python, to the last bit, and stays within its arrays."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from foliot import native
from foliot_probe.core.measure import hull_pruning, one_way_delay
from foliot_schemas.delay_buckets import BEGINS_NS

hull, delays = native.compiled("hull"), native.compiled("delays")
pytestmark = pytest.mark.skipif(hull is None or delays is None, reason=f"nothing is compiled: {native.why_python()}")

INT64 = st.integers(-(1 << 63), (1 << 63) - 1)
TIMES = st.one_of(st.integers(-50, 50), st.integers(-(10**12), 10**12), INT64)
"""Few values, so that there are ties; such as there are; and all that 64 bits can hold."""
NUMBERS = st.one_of(st.integers(-6, 6).map(float), st.floats(-1e9, 1e9), st.floats(-1e18, 1e18))
ANY_NUMBERS = st.floats(width=64)
MANY = settings(max_examples=300)


def same(ours, theirs):
    """Two results of several arrays are alike, in type too."""
    for one, other in zip(ours, theirs, strict=True):
        assert one.dtype == other.dtype
        assert one.tolist() == other.tolist()


@st.composite
def clouds(draw, numbers=NUMBERS):
    """Clouds of the same number of places, of which some are empty, with the slopes of each and a number of layers."""
    rows, points = draw(st.integers(0, 5)), draw(st.integers(0, 24))
    x, y = (draw(arrays(np.float64, (rows, points), elements=numbers)) for _ in "xy")
    missing = draw(arrays(np.bool_, (rows, points)))
    x[missing], y[missing] = 0, np.inf
    slopes = st.one_of(st.integers(-3, 3).map(float), st.floats(-2e-4, 2e-4)) if numbers is NUMBERS else numbers
    least, most = np.sort([draw(arrays(np.float64, rows, elements=slopes)) for _ in "lm"], axis=0)
    return x, y, least, most, draw(st.integers(0, 26))


@MANY
@given(clouds())
def test_layers_are_the_same(cloud):
    """Of clouds with ties, of empty ones, and of some with less points than layers."""
    same([hull.lower_layers(*cloud)], [hull_pruning.lower_layers_by_numpy(*cloud)])


@pytest.mark.parametrize("tilt", [2e-4, 1e-6, 2e-8])
@pytest.mark.parametrize("layers", [1, 10])
def test_layers_of_a_window_are_the_same(tilt, layers):
    """Of streams with a floor that drifts and queues above it, some shorter than others, as a window has them."""
    random = np.random.default_rng(5)
    x = np.sort(random.uniform(-1e9, 1e9, (40, 130)))
    y = np.round(20e-6 * x + random.exponential(20_000, x.shape))
    short = np.arange(130) >= random.integers(1, 131, (40, 1))
    x[short], y[short] = 0, np.inf
    cloud = x, y, np.full(40, 20e-6 - tilt), np.full(40, 20e-6 + tilt), layers
    same([hull.lower_layers(*cloud)], [hull_pruning.lower_layers_by_numpy(*cloud)])


@MANY
@given(clouds(ANY_NUMBERS))
def test_layers_of_any_numbers_end_and_are_points_of_the_cloud(cloud):
    """Also of infinite ones, and of what is no number."""
    kept = hull.lower_layers(*cloud)
    assert kept.shape == cloud[1].shape
    assert not (kept & ~np.isfinite(cloud[1])).any()


def test_layers_of_arrays_that_lie_otherwise_are_the_same():
    """Transposed, read-only, or of every second value: what numpy takes, the compiled function takes."""
    random = np.random.default_rng(2)
    x, y = np.sort(random.normal(size=(30, 8)), axis=0).T, random.normal(size=(8, 60))[:, ::2]
    least, most = np.broadcast_to(-1.0, 8), np.broadcast_to(1.0, 8)
    same([hull.lower_layers(x, y, least, most, 3)], [hull_pruning.lower_layers_by_numpy(x, y, least, most, 3)])


@pytest.mark.parametrize(("x", "y", "slopes"), [((2, 3), (2, 4), 2), ((2, 3), (3, 3), 3), ((2, 3), (2, 3), 1)])
def test_clouds_that_do_not_fit_together_are_refused(x, y, slopes):
    """Before anything is read."""
    with pytest.raises(ValueError, match="shape"):
        hull.lower_layers(np.zeros(x), np.zeros(y), np.zeros(slopes), np.zeros(slopes), 1)


@st.composite
def probes(draw, most=60):
    """The number of rows of a table, and the row of each of some probes."""
    rows = draw(st.integers(1, 6))
    return rows, draw(arrays(np.intp, draw(st.integers(0, most)), elements=st.integers(0, rows - 1)))


@st.composite
def references(draw, rows):
    """The state of a clock of each row."""
    rates = st.one_of(st.floats(-1e-3, 1e-3), st.floats(-0.5, 0.5))
    offset_ns, as_of_ns, void_after_ns = (draw(arrays(np.int64, rows, elements=TIMES)) for _ in range(3))
    rate = draw(arrays(np.float64, rows, elements=rates))
    return one_way_delay.ReferenceColumns(offset_ns, as_of_ns, rate, void_after_ns)


@MANY
@given(st.data())
def test_one_way_delays_are_the_same(data):
    """By stamps of all times and clocks of any state; what 64 bits cannot hold wraps in both."""
    rows, row = data.draw(probes())
    transmit_ns, receive_ns = (data.draw(arrays(np.int64, len(row), elements=TIMES)) for _ in range(2))
    sender, receiver = data.draw(references(rows)), data.draw(references(rows))
    asked = row, transmit_ns, receive_ns, sender, receiver
    same(delays.one_way_ns(*asked), one_way_delay.one_way_ns_by_numpy(*asked))


def test_rates_that_are_no_numbers_do_no_harm():
    """A delay by them is left out, or is any number."""
    row, stamps = np.zeros(4, np.intp), np.array([0, 1, -(1 << 63), (1 << 63) - 1])
    for rate in (np.inf, -np.inf, np.nan, 1e300):
        columns = np.zeros(1, np.int64), np.zeros(1, np.int64), np.array([rate]), np.full(1, (1 << 63) - 1)
        kept, delay_ns = delays.one_way_ns(row, stamps, stamps[::-1], columns, columns)
        assert len(kept) == len(delay_ns) <= 4


@MANY
@given(st.data())
def test_digests_are_the_same(data):
    """Of few delays a row, which are sorted in one way, and of many, which are in another."""
    rows, row = data.draw(probes(400))
    delay_ns = data.draw(arrays(np.int64, len(row), elements=TIMES))
    same(delays.digest(row, delay_ns, rows), one_way_delay.digest_by_numpy(row, delay_ns, rows))


@pytest.mark.parametrize("count", [31, 32, 33, 34, 35, 64, 1_000])
def test_digests_of_many_delays_are_the_same(count):
    """Around the number from which on another sort takes over."""
    random = np.random.default_rng(count)
    row = np.repeat([2, 0], count)
    delay_ns = random.integers(0, 50, 2 * count)
    same(delays.digest(row, delay_ns, 3), one_way_delay.digest_by_numpy(row, delay_ns, 3))


@MANY
@given(st.data())
def test_counts_are_the_same(data):
    """For streams in any order, of which some are left out, and of which one may be named twice."""
    table_rows, row = data.draw(probes(200))
    delay_ns = data.draw(arrays(np.int64, len(row), elements=st.one_of(TIMES, st.sampled_from(BEGINS_NS.tolist()))))
    rows = np.array(data.draw(st.lists(st.integers(0, table_rows - 1))), np.intp)
    asked = rows, row, delay_ns, table_rows, BEGINS_NS
    same(delays.count_by_bucket(*asked), one_way_delay.count_by_bucket_by_numpy(*asked))


@pytest.mark.parametrize("row", [-1, 3, 1 << 62, -(1 << 63)])
def test_a_row_that_the_table_has_not_is_refused(row):
    """Before anything is read or written there."""
    rows, one = np.array([row]), np.zeros(1, np.int64)
    columns = np.zeros(3, np.int64), np.zeros(3, np.int64), np.zeros(3), np.zeros(3, np.int64)
    for wrong in (
        lambda: delays.one_way_ns(rows, one, one, columns, columns),
        lambda: delays.digest(rows, one, 3),
        lambda: delays.count_by_bucket(rows, np.zeros(1, np.intp), one, 3, BEGINS_NS),
        lambda: delays.count_by_bucket(np.zeros(1, np.intp), rows, one, 3, BEGINS_NS),
    ):
        with pytest.raises(IndexError, match="of a table of 3"):
            wrong()


def test_columns_that_do_not_fit_together_are_refused():
    """Stamps for other probes, references of another table, and more buckets than a byte has numbers."""
    row, one, two = np.zeros(1, np.intp), np.zeros(1, np.int64), np.zeros(2, np.int64)
    columns = one, one, np.zeros(1), one
    for wrong in (
        lambda: delays.one_way_ns(row, two, one, columns, columns),
        lambda: delays.one_way_ns(row, one, two, columns, columns),
        lambda: delays.one_way_ns(row, one, one, (one, one, np.zeros(1), two), columns),
        lambda: delays.one_way_ns(row, one, one, columns, (two, two, np.zeros(2), two)),
        lambda: delays.digest(row, two, 1),
        lambda: delays.count_by_bucket(row, row, two, 1, BEGINS_NS),
        lambda: delays.count_by_bucket(row, row, one, 1, np.arange(256)),
    ):
        with pytest.raises(ValueError, match=r"stamps|references|delays|buckets"):
            wrong()
