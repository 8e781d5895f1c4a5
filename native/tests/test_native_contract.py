"""Each compiled function says the same as its twin in Python, to the last bit, and stays within its arrays."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from draws import draws
from foliot import native
from foliot_probe.core.measure import hull_pruning, near_floor, one_way_delay
from foliot_probe.core.rate import delay_density
from foliot_schemas.delay_buckets import BEGINS_NS

hull, delays = native.compiled("hull"), native.compiled("delays")
pytestmark = pytest.mark.skipif(hull is None or delays is None, reason=f"nothing is compiled: {native.why_python()}")

INT64 = st.integers(-(1 << 63), (1 << 63) - 1)
TIMES = st.one_of(st.integers(-50, 50), st.integers(-(10**12), 10**12), INT64)
"""Few values, so that there are ties; such as there are; and all that 64 bits can hold."""
ANY_NUMBERS = st.floats(width=64)
MANY = settings(max_examples=min(len(draws(60)), 300))


def same(ours, theirs):
    """Two results of several arrays are alike, in type too."""
    for one, other in zip(ours, theirs, strict=True):
        assert one.dtype == other.dtype
        assert one.tolist() == other.tolist()


@st.composite
def probes(draw, most=60):
    """The number of rows of a table, and the row of each of some probes."""
    rows = draw(st.integers(1, 6))
    return rows, draw(arrays(np.intp, draw(st.integers(0, most)), elements=st.integers(0, rows - 1)))


@st.composite
def windows(draw, most=40):
    """Probes ordered by row, with the range of slopes of each row of the table."""
    rows, row = draw(probes(most))
    stamps = [draw(arrays(np.int64, len(row), elements=TIMES)) for _ in range(2)]
    slope = st.one_of(st.integers(-3, 3).map(float), st.floats(-2e-4, 2e-4), st.floats(-2e-8, 2e-8))
    slopes = np.sort([draw(arrays(np.float64, rows, elements=slope)) for _ in range(2)], axis=0)
    return (np.sort(row), *stamps), (slopes[0], slopes[1])


def queued(rows, most, seed):
    """Probes of streams with a floor that drifts and queues above it, some streams longer than others."""
    random = np.random.default_rng(seed)
    counts = random.integers(0, most, rows)
    row = np.repeat(np.arange(rows), counts)
    transmit_ns = 10**18 + np.concatenate([np.sort(random.integers(0, 2 * 10**9, count)) for count in counts])
    delay_ns = 20_000 + random.exponential(20_000, len(row)).astype(np.int64)
    return row, transmit_ns, transmit_ns + delay_ns + (20e-6 * (transmit_ns - 10**18)).astype(np.int64)


@MANY
@given(windows(), st.booleans(), st.sampled_from([0.0, 2e-4, 1.0]), st.integers(0, 14))
def test_pruning_is_the_same(window, back, apart, layers):
    """Of clouds with ties, of stamps years apart, and of less points than layers."""
    stamps, slopes = window
    asked = stamps, back, slopes, apart, layers
    same([hull.prune(*asked)], [hull_pruning.prune_by_numpy(*asked)])


@pytest.mark.parametrize("tilt", [2e-4, 1e-6, 2e-8])
@pytest.mark.parametrize("back", [False, True])
def test_pruning_of_a_window_is_the_same(tilt, back):
    """As a probe closes it, before sync has spoken and after that."""
    slopes = np.full(40, 20e-6 - tilt), np.full(40, 20e-6 + tilt)
    asked = queued(40, 130, 5), back, slopes, 2e-4, 10
    kept = hull.prune(*asked)
    same([kept], [hull_pruning.prune_by_numpy(*asked)])
    assert 0 < np.count_nonzero(kept) < len(kept)


@MANY
@given(windows(), st.booleans(), st.data())
def test_pruning_by_any_slopes_ends_and_keeps_points_of_the_window(window, back, data):
    """Also by infinite ones, by what is no number, and where the least is above the most."""
    stamps, slopes = window
    slopes = tuple(data.draw(arrays(np.float64, len(each), elements=ANY_NUMBERS)) for each in slopes)
    assert hull.prune(stamps, back, slopes, data.draw(ANY_NUMBERS), 10).shape == stamps[0].shape


def test_arrays_that_lie_otherwise_are_taken_too():
    """Every second value of another, or read-only: what numpy takes, a compiled function takes."""
    stamps = tuple(np.repeat(each, 2)[::2] for each in queued(8, 60, 2))
    asked = stamps, False, (np.broadcast_to(-1e-6, 8), np.broadcast_to(1e-6, 8)), 2e-4, 10
    same([hull.prune(*asked)], [hull_pruning.prune_by_numpy(*asked)])


@MANY
@given(windows(), windows(), st.sampled_from([1e-6, 1.0, np.inf]), st.sampled_from([0.0, 0.3, 0.5, 0.99]))
def test_counts_near_the_floor_are_the_same(forth, back, bent, share):
    """Where a row has probes in one direction alone, too; of stamps as they come, and of any that 64 bits hold."""
    rows = max(len(forth[1][0]), len(back[1][0]))
    slopes = tuple(np.resize(each, rows) for each in (forth if len(forth[1][0]) == rows else back)[1])
    asked = forth[0], back[0], slopes, bent, share
    same(delays.near_floor(*asked), near_floor.near_floor_by_numpy(*asked))


def test_counts_near_the_floor_of_a_window_are_the_same():
    """Of streams with many probes, of which half lie near the floor in the quicker direction."""
    slopes = np.full(40, 20e-6 - 1e-7), np.full(40, 20e-6 + 1e-7)
    asked = queued(40, 300, 1), queued(40, 300, 2), slopes, 1e-6, 0.5
    forth, back = delays.near_floor(*asked)
    same((forth, back), near_floor.near_floor_by_numpy(*asked))
    assert forth.any()
    assert back.any()


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
    asked = (row, transmit_ns, receive_ns), sender, receiver, data.draw(st.sampled_from([0, 40, 3_600_000_000_000]))
    same(delays.one_way_ns(*asked), one_way_delay.one_way_ns_by_numpy(*asked))


def test_rates_that_are_no_numbers_do_no_harm():
    """A delay by them is left out, or is any number."""
    row, stamps = np.zeros(4, np.intp), np.array([0, 1, -(1 << 63), (1 << 63) - 1])
    for rate in (np.inf, -np.inf, np.nan, 1e300):
        columns = np.zeros(1, np.int64), np.zeros(1, np.int64), np.array([rate]), np.full(1, (1 << 63) - 1)
        kept, delay_ns = delays.one_way_ns((row, stamps, stamps[::-1]), columns, columns, 1 << 62)
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


@MANY
@given(st.data(), st.integers(0, 10), st.integers(1, 5))
def test_gaps_between_the_least_delays_are_the_same(data, left_out, gaps):
    """Of rows with enough delays, and of those with too few."""
    rows, row = data.draw(probes(150))
    delay_ns = data.draw(arrays(np.int64, len(row), elements=TIMES))
    asked = row, delay_ns, rows, left_out, gaps
    same(delays.least_gaps(*asked), delay_density.least_gaps_by_numpy(*asked))


@pytest.mark.parametrize("row", [-1, 3, 1 << 62, -(1 << 63)])
def test_a_row_that_the_table_has_not_is_refused(row):
    """Before anything is read or written there."""
    rows, one = np.array([row]), np.zeros(1, np.int64)
    columns = np.zeros(3, np.int64), np.zeros(3, np.int64), np.zeros(3), np.zeros(3, np.int64)
    slopes, none = (np.zeros(3), np.zeros(3)), (np.zeros(0, np.intp), one[:0], one[:0])
    for wrong in (
        lambda: hull.prune((rows, one, one), False, slopes, 1.0, 1),
        lambda: delays.near_floor((rows, one, one), none, slopes, 1.0, 0.5),
        lambda: delays.near_floor(none, (rows, one, one), slopes, 1.0, 0.5),
        lambda: delays.one_way_ns((rows, one, one), columns, columns, 1),
        lambda: delays.digest(rows, one, 3),
        lambda: delays.least_gaps(rows, one, 3, 1, 1),
        lambda: delays.count_by_bucket(rows, np.zeros(1, np.intp), one, 3, BEGINS_NS),
        lambda: delays.count_by_bucket(np.zeros(1, np.intp), rows, one, 3, BEGINS_NS),
    ):
        with pytest.raises(IndexError, match="of a table of 3"):
            wrong()


def test_columns_that_do_not_fit_together_are_refused():
    """Stamps for other probes, references or slopes of another table, and rows in disorder where order is needed."""
    row, one, two = np.zeros(1, np.intp), np.zeros(1, np.int64), np.zeros(2, np.int64)
    fit, columns, slopes = (row, one, one), (one, one, np.zeros(1), one), (np.zeros(1), np.zeros(1))
    disorder, wide = (np.array([1, 0]), two, two), (np.zeros(2), np.zeros(2))
    for wrong in (
        lambda: delays.one_way_ns((row, two, one), columns, columns, 1),
        lambda: delays.one_way_ns((row, one, two), columns, columns, 1),
        lambda: delays.one_way_ns(fit, (one, one, np.zeros(1), two), columns, 1),
        lambda: delays.one_way_ns(fit, columns, (two, two, np.zeros(2), two), 1),
        lambda: delays.digest(row, two, 1),
        lambda: delays.least_gaps(row, two, 1, 1, 1),
        lambda: delays.count_by_bucket(row, row, two, 1, BEGINS_NS),
        lambda: hull.prune((row, two, one), False, slopes, 1.0, 1),
        lambda: hull.prune((row, one, two), False, slopes, 1.0, 1),
        lambda: hull.prune(fit, False, (np.zeros(1), np.zeros(2)), 1.0, 1),
        lambda: hull.prune(disorder, False, wide, 1.0, 1),
        lambda: delays.near_floor((row, two, one), fit, slopes, 1.0, 0.5),
        lambda: delays.near_floor(fit, (row, one, two), slopes, 1.0, 0.5),
        lambda: delays.near_floor(fit, fit, (np.zeros(1), np.zeros(2)), 1.0, 0.5),
        lambda: delays.near_floor(disorder, disorder, wide, 1.0, 0.5),
    ):
        with pytest.raises(ValueError, match=r"stamps|references|delays|different lengths|not in order"):
            wrong()


@pytest.mark.parametrize("share", [-0.1, 1.0, np.inf, np.nan])
def test_numbers_that_would_lead_out_of_an_array_are_refused(share):
    """More buckets than a byte has numbers, a quantile that no delay has, and gaps between none."""
    row, one = np.zeros(1, np.intp), np.zeros(1, np.int64)
    with pytest.raises(ValueError, match="256"):
        delays.count_by_bucket(row, row, one, 1, np.arange(256))
    with pytest.raises(ValueError, match="share"):
        delays.near_floor((row, one, one), (row, one, one), (np.zeros(1), np.zeros(1)), 1.0, share)
    for left_out, gaps in ((-1, 3), (0, 0), (10, 6), (1 << 62, 1 << 62)):
        with pytest.raises(ValueError, match="gaps"):
            delays.least_gaps(row, one, 1, left_out, gaps)


@MANY
@given(data=st.data())
def test_columns_of_a_report_are_the_same(data):
    """Whatever the counts, with all paths or some of them, in any order."""
    table_rows = data.draw(st.integers(1, 6))
    rows = np.array(data.draw(st.lists(st.integers(0, table_rows - 1), unique=True, max_size=6)), np.intp)
    column = arrays(np.int64, table_rows, elements=st.one_of(st.integers(0, 5), st.integers(0, 1 << 40)))
    source = one_way_delay.SourceColumns(*(data.draw(column) for _ in range(4)))
    destination = one_way_delay.DestinationColumns(*(data.draw(column) for _ in range(10)))
    told = data.draw(st.one_of(st.none(), arrays(np.bool_, (table_rows, 2))))
    shift_ns = data.draw(st.integers(-(1 << 40), 1 << 40))
    given_to_both = rows, told, source, destination, shift_ns
    assert delays.interval_columns(*given_to_both) == one_way_delay.interval_columns_by_numpy(*given_to_both)


def test_columns_that_do_not_fit_are_refused():
    """Nothing outside of them is read."""
    column = np.zeros(3, np.int64)
    for rows, told, source, error in (
        ([3], None, (column,) * 4, IndexError),
        ([-1], None, (column,) * 4, IndexError),
        ([0], np.ones((2, 2), np.bool_), (column,) * 4, ValueError),
        ([0], None, (column,) * 3 + (column[:2],), ValueError),
        ([0], None, (column,) * 3, ValueError),
    ):
        with pytest.raises(error):
            delays.interval_columns(np.array(rows), told, source, (column,) * 10, 0)
