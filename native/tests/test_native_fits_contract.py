"""The compiled loops of sync say the same as their twins in Python, and stay within their arrays.

They do so to the last bit, but for the equations of a mesh: scipy multiplies its matrix as its own compiler saw fit.
"""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from draws import draws
from foliot import native
from foliot_schemas import StampRow
from foliot_sync.core.fit import delay_floor, line_fit
from foliot_sync.core.fit import point_clouds as clouds_by_numpy
from foliot_sync.core.solve import hard_bounds, least_squares

point_clouds, pair_fits, mesh = (native.compiled(name) for name in ("point_clouds", "pair_fits", "mesh"))
pytestmark = pytest.mark.skipif(
    point_clouds is None or pair_fits is None or mesh is None, reason=f"nothing is compiled: {native.why_python()}"
)

STAMPS = st.one_of(st.integers(-50, 50), st.integers(-(10**12), 10**12), st.integers(-(1 << 62), 1 << 62))
"""Few values, so that there are ties; such as there are; and all that a message may have."""
LIMIT_PPB = 200_000.0
MANY = settings(max_examples=min(len(draws(60)), 300))


def same(ours, theirs):
    """Two results of several arrays are alike, in type too; what is no number equals itself."""
    for one, other in zip(ours, theirs, strict=True):
        assert one.dtype == other.dtype
        np.testing.assert_array_equal(one, other)


@st.composite
def batches(draw):
    """Columns of some batches with their first streams, and limits and pair of each stream."""
    counts = draw(st.lists(st.integers(1, 3), min_size=1, max_size=4))
    columns = []
    for streams in counts:
        rows = np.zeros(draw(st.integers(0, 30)), StampRow)
        rows["stream"] = draw(arrays(np.uint16, len(rows), elements=st.integers(0, streams - 1)))
        rows["direction"] = draw(arrays(np.uint8, len(rows), elements=st.integers(0, 2)))
        for name in ("transmit_ns", "receive_ns"):
            rows[name] = draw(arrays(np.int64, len(rows), elements=STAMPS))
        columns.append(tuple(rows[name].tobytes() for name in StampRow.names))
    starts, streams = np.cumsum([0, *counts]), sum(counts)
    pair = draw(arrays(np.int64, streams, elements=st.integers(0, 4)))
    early, late = np.sort(draw(arrays(np.int64, (2, streams), elements=STAMPS)), axis=0)
    return columns, starts, (early, late), pair


@MANY
@given(batches())
def test_extents_are_the_same(drawn):
    """Of batches without points, of directions that do not exist, and of stamps outside of their limits."""
    same(point_clouds.extents(*drawn, 5), clouds_by_numpy.extents_by_numpy(*drawn, 5))


@MANY
@given(batches(), st.data())
def test_padded_points_are_the_same(drawn, data):
    """Also of streams that are left out, and in the order in which the points of a side came."""
    columns, starts, limits, pair = drawn
    chosen = data.draw(arrays(np.bool_, len(pair)))
    row = np.where(chosen, 2 * (np.cumsum(chosen) - 1), -1)
    at_ns, base_ns = data.draw(arrays(np.int64, (2, len(pair)), elements=STAMPS))
    counts = point_clouds.extents(columns, starts, limits, pair, 5)[0]
    width = int(counts.max(initial=0)) + 1
    asked = columns, starts, limits, (row, at_ns, base_ns), (2 * int(chosen.sum()), width)
    same(point_clouds.fill(*asked), clouds_by_numpy.fill_by_numpy(*asked))


@st.composite
def sides(draw, most=14):
    """Points of some sides: with ties, without any in a half, and one far below the others."""
    shape = draw(st.integers(1, 6)), draw(st.integers(1, most))
    places = st.one_of(st.integers(-2, 2).map(float), st.floats(-1.0, 1.0))
    heights = st.one_of(st.integers(-5, 5).map(float), st.floats(-1e4, 1e4), st.floats(-1e12, 1e12))
    x, y = draw(arrays(np.float64, shape, elements=places)), draw(arrays(np.float64, shape, elements=heights))
    missing = np.arange(shape[1]) >= draw(arrays(np.int64, (shape[0], 1), elements=st.integers(1, shape[1])))
    return np.where(missing, 0.0, x), np.where(missing, np.inf, y)


SLOPES = st.one_of(st.integers(-3, 3).map(float), st.floats(-LIMIT_PPB, LIMIT_PPB))
NOISES = st.floats(1.0, 2_000.0)
SHARES = st.one_of(st.just(np.nan), st.floats(1e-3, 1.0))


@MANY
@given(sides(), st.data())
def test_stands_are_the_same(points, data):
    """Of all sides or some, of few points and many, and where a share of the points is known."""
    x, y = points
    rows = np.flatnonzero(data.draw(arrays(np.bool_, len(x))))
    slope, noise, share = (data.draw(arrays(np.float64, len(rows), elements=each)) for each in (SLOPES, NOISES, SHARES))
    asked = (x, y), rows, (slope, noise, share), LIMIT_PPB
    with np.errstate(all="ignore"):
        same(pair_fits.stand(*asked), line_fit.stand_by_numpy(*asked))


def window(sides, points, seed):
    """Points of a window of two seconds: exponential queues above a floor, and now and then a wrong stamp."""
    random = np.random.default_rng(seed)
    x, y = random.uniform(-1, 1, (sides, points)), random.exponential(9_000, (sides, points)) + 20_000
    return x, np.where(random.random((sides, points)) < 0.01, y - 25_000, y)


@pytest.mark.parametrize("points", [10, 11, 40])
def test_stands_of_a_window_are_the_same(points):
    """As sync computes them, of as many points as a probe keeps and of more."""
    (x, y), random = window(2_000, points, points), np.random.default_rng(1)
    share = np.where(random.random(len(x)) < 0.5, random.uniform(1e-3, 1, len(x)), np.nan)
    slope = random.normal(0, 50, len(x))
    asked = (x, y), np.arange(len(x)), (slope, np.full(len(x), 600.0), share), LIMIT_PPB
    found = pair_fits.stand(*asked)
    same(found, line_fit.stand_by_numpy(*asked))
    assert np.isfinite(found[3]).any()
    assert (found[0] > (y - slope[:, None] * x).min(axis=1)).any(), "no wrong stamp was left out"


@MANY
@given(sides(), st.data())
def test_turns_are_the_same(points, data):
    """Where a side has points in one half alone, too, and where few in a half tell little."""
    x, y = points
    pairs = data.draw(st.integers(1, 3))
    pair = data.draw(arrays(np.int64, len(x), elements=st.integers(0, pairs - 1)))
    slope, noise = (data.draw(arrays(np.float64, pairs, elements=each)) for each in (SLOPES, NOISES))
    excess = data.draw(arrays(np.float64, len(x), elements=st.floats(0, 1e6)))
    asked = (x, y), pair, (slope, noise), excess
    with np.errstate(all="ignore"):
        same(pair_fits.turn(*asked), line_fit.turn_by_numpy(*asked))


def test_turns_of_a_window_are_the_same():
    """As sync computes them."""
    (x, y), random = window(2_000, 10, 3), np.random.default_rng(2)
    pair = np.repeat(np.arange(250), 8)
    asked = (x, y), pair, (random.normal(0, 50, 250), np.full(250, 600.0)), random.exponential(500, len(x))
    found = pair_fits.turn(*asked)
    same(found, line_fit.turn_by_numpy(*asked))
    assert (found[0] > 0).all()


@MANY
@given(st.data())
def test_floors_are_the_same(data):
    """Of streams without a window, of some that agree, and of more windows than one has."""
    streams, windows = data.draw(st.integers(1, 5)), data.draw(st.integers(2, 8))
    value = st.one_of(st.integers(-3, 3).map(float), st.floats(-1e6, 1e6))
    widths, doubts = data.draw(arrays(np.float64, (2, streams, windows), elements=st.one_of(value, st.just(np.inf))))
    rows = data.draw(arrays(np.int64, data.draw(st.integers(0, 6)), elements=st.integers(0, streams - 1)))
    half, doubt = data.draw(arrays(np.float64, (2, len(rows)), elements=value))
    asked = (widths, doubts), rows, (half, doubt), 3
    with np.errstate(all="ignore"):
        same(pair_fits.floors(*asked), delay_floor.floors_by_numpy(*asked))


@MANY
@given(st.data(), st.sampled_from([0.0, 0.25, 0.99]), st.integers(1, 5))
def test_least_and_quiet_values_are_the_same(data, share, fewest):
    """Of rows that have all values, some, or none."""
    value = st.one_of(st.integers(-3, 3).map(float), st.floats(-1e6, 1e6), st.just(np.inf))
    table = data.draw(arrays(np.float64, (4, data.draw(st.integers(1, 12))), elements=value))
    rows = data.draw(arrays(np.int64, data.draw(st.integers(0, 6)), elements=st.integers(0, 3)))
    same([pair_fits.least(table, rows)], [delay_floor.least_by_numpy(table, rows)])
    same([pair_fits.quiet(table, rows, share, fewest)], [delay_floor.quiet_by_numpy(table, rows, share, fewest)])


@MANY
@given(st.data(), st.integers(0, 40))
def test_distances_are_the_same(data, edges):
    """Of meshes with parallel edges, with parts that nothing joins, and with lengths that add up otherwise by turns."""
    nodes = data.draw(st.integers(1, 8))
    ends = data.draw(arrays(np.int64, (2, edges), elements=st.integers(0, nodes - 1)))
    length = st.one_of(st.integers(0, 3).map(float), st.floats(1e-3, 1e9), st.just(np.inf))
    room = data.draw(arrays(np.float64, (2, edges), elements=length))
    asked = tuple(ends), tuple(room), nodes, data.draw(st.integers(0, nodes - 1)), 40
    ours, settled = mesh.distances(*asked)
    same([ours], [hard_bounds.distances_by_numpy(*asked)[0]])
    assert settled


@pytest.mark.parametrize("rounds", [0, 5, 100])
def test_a_mesh_that_takes_more_rounds_is_not_settled(rounds):
    """As a chain whose edges are in the order against the way."""
    start = np.arange(50)[::-1].copy()
    found, settled = mesh.distances((start, start + 1), (np.ones(50), np.ones(50)), 51, 0, rounds)
    assert settled == (rounds == 100)
    assert found[0] == 0.0
    if settled:
        assert found.tolist() == list(range(51))


def equations(nodes, parts, seed):
    """The scaled equations of a random mesh, as `least_squares` has them, with parts that light edges join."""
    random = np.random.default_rng(seed)
    start = np.concatenate((np.arange(nodes - 1), random.integers(0, nodes, 4 * nodes)))
    end = np.concatenate((np.arange(1, nodes), random.integers(0, nodes, 4 * nodes)))
    start, end = start[start != end], end[start != end]
    part = np.arange(nodes) * parts // nodes
    weight = np.where(part[start] == part[end], random.uniform(0.5, 2.0, len(start)), 1e-4)
    unknown = np.arange(nodes) > 0
    edges = least_squares.Edges(start, end, random.normal(0, 100, len(start)), 1 / weight)
    system = least_squares._System(edges, unknown)
    held = np.bincount(start, weight, nodes) + np.bincount(end, weight, nodes)
    scale = np.where(unknown, 1 / np.sqrt(held), 1.0)
    matrix = system.matrix(weight, scale)
    rigid = np.where(unknown, 1 / scale, 0.0)
    moved = least_squares._whole_parts(matrix, least_squares._parts(edges, weight, nodes), rigid)
    pull = np.bincount(start, weight * edges.difference, nodes) - np.bincount(end, weight * edges.difference, nodes)
    rows = matrix.indptr.astype(np.int64), matrix.indices.astype(np.int64), matrix.data
    return rows, np.where(unknown, pull, 0.0) * scale, np.zeros(nodes), moved


@pytest.mark.parametrize("nodes", [40, 120, 1_000, 3_001])
@pytest.mark.parametrize("parts", [1, 3])
@pytest.mark.parametrize("steps", [0, 1, 5, 1_000])
def test_equations_have_the_same_solution(nodes, parts, steps):
    """After few steps, and after all of them; a rounded digit grows from step to step."""
    asked = equations(nodes, parts, nodes)
    assert len(asked[3][2]) == (parts if parts > 1 else 0)
    limits = steps, 10, 0.05**2
    ours, theirs = mesh.conjugate(*asked, limits), least_squares.conjugate_by_numpy(*asked, limits)
    assert ours.dtype == theirs.dtype
    np.testing.assert_allclose(ours, theirs, rtol=1e-9, atol=1e-9 * np.abs(theirs).max())
    if steps == 1_000:
        (starts, columns, values), pull = asked[:2]
        product = np.add.reduceat(values * ours[columns], starts[:-1])
        assert np.linalg.norm(pull - product) < 1e-2 * np.linalg.norm(pull)


def test_equations_of_nothing_have_no_solution():
    """Of no node at all, and of one that nothing pulls."""
    none, no_parts = np.zeros(0), (ONE[:0], np.zeros(0), np.zeros((0, 0)))
    assert len(mesh.conjugate((ONE, ONE[:0], none), none, none, no_parts, (9, 1, 0.0))) == 0
    lone = (np.array([0, 1]), ONE, np.ones(1)), FLOATS, FLOATS + 7, (ONE - 1, FLOATS, np.zeros((0, 0))), (9, 1, 0.0)
    assert mesh.conjugate(*lone).tolist() == least_squares.conjugate_by_numpy(*lone).tolist() == [0.0]


@MANY
@given(st.data())
def test_any_floats_are_survived(data):
    """Points, slopes and noises may be infinite or no numbers."""
    anything = st.floats(width=64)
    x, y = data.draw(arrays(np.float64, (2, 3, data.draw(st.integers(1, 12))), elements=anything))
    three = data.draw(arrays(np.float64, (4, 3), elements=anything))
    rows = np.arange(3)
    assert len(pair_fits.stand((x, y), rows, three[:3], LIMIT_PPB)[0]) == 3
    assert len(pair_fits.turn((x, y), rows, three[:2], three[2])[0]) == 3
    assert len(pair_fits.floors((x, y), rows, three[:2], 1)[0]) == 3
    assert len(pair_fits.least(x, rows)) == len(pair_fits.quiet(x, rows, 0.5, 1)) == 3
    assert len(mesh.distances((rows, rows[::-1]), three[:2], 3, 0, 9)[0]) == 3
    parts = rows % 2, three[3], three[:2, :2]
    assert len(mesh.conjugate((np.arange(4), rows[::-1], three[0]), *three[1:3], parts, (9, 2, 1.0))) == 3


ONE = np.zeros(1, np.int64)
BATCH = tuple(np.zeros(1, StampRow[name]).tobytes() for name in StampRow.names)
TABLE, FLOATS = np.zeros((3, 2)), np.zeros(1)
STARTS, SQUARE = np.array([0, 1]), np.ones((1, 1))


@pytest.mark.parametrize("row", [-1, 3, 1 << 62, -(1 << 63)])
def test_a_row_that_the_table_has_not_is_refused(row):
    """Before anything is read or written there."""
    rows = np.array([row])
    for wrong in (
        lambda: point_clouds.extents([BATCH], [0, 1], (ONE, ONE), rows, 3),
        lambda: point_clouds.fill([BATCH], [0, 1], (ONE, ONE), (np.where(rows == -1, -2, rows), ONE, ONE), (4, 1)),
        lambda: pair_fits.stand((TABLE, TABLE), rows, (FLOATS, FLOATS, FLOATS), 1.0),
        lambda: pair_fits.turn((TABLE[:1], TABLE[:1]), rows, (np.zeros(3), np.zeros(3)), FLOATS),
        lambda: pair_fits.floors((TABLE, TABLE), rows, (FLOATS, FLOATS), 1),
        lambda: pair_fits.least(TABLE, rows),
        lambda: pair_fits.quiet(TABLE, rows, 0.5, 1),
        lambda: mesh.distances((rows, ONE), (FLOATS, FLOATS), 3, 0, 1),
        lambda: mesh.distances((ONE, rows), (FLOATS, FLOATS), 3, 0, 1),
        lambda: mesh.distances((ONE, ONE), (FLOATS, FLOATS), 3, row, 1),
        lambda: mesh.conjugate((STARTS, rows, FLOATS), FLOATS, FLOATS, (ONE, FLOATS, SQUARE), (9, 1, 0.0)),
        lambda: mesh.conjugate(
            (STARTS, ONE, FLOATS), FLOATS, FLOATS, (np.where(rows == -1, -2, rows), FLOATS, SQUARE), (9, 1, 0.0)
        ),
    ):
        with pytest.raises(IndexError, match=r"row|pair|side|node|part"):
            wrong()


def test_a_stream_that_a_batch_has_not_is_refused():
    """Also where a batch after it has one of that number."""
    stream = np.ones(1, "<u2").tobytes()
    for columns, starts in (([(stream, *BATCH[1:])], [0, 1]), ([(stream, *BATCH[1:]), BATCH], [0, 1, 2])):
        streams = np.zeros(starts[-1], np.int64)
        with pytest.raises(IndexError, match="stream 1 of a batch of 1"):
            point_clouds.extents(columns, starts, (streams, streams), streams, 1)
        with pytest.raises(IndexError, match="stream 1 of a batch of 1"):
            point_clouds.fill(columns, starts, (streams, streams), (streams, streams, streams), (2, 1))


def test_what_does_not_fit_together_is_refused():
    """Columns of other lengths, batches of other streams, rows that are too short, and more windows than there are."""
    two, floats = np.zeros(2, np.int64), np.zeros(2)
    short = (BATCH[0], BATCH[1], BATCH[2][:-1], BATCH[3])
    for wrong in (
        lambda: point_clouds.extents([short], [0, 1], (ONE, ONE), ONE, 1),
        lambda: point_clouds.extents([BATCH], [0, 2], (ONE, ONE), ONE, 1),
        lambda: point_clouds.extents([BATCH], [0, 1, 1], (ONE, ONE), ONE, 1),
        lambda: point_clouds.extents([BATCH, BATCH], [0, 2, 1], (ONE, ONE), ONE, 1),
        lambda: point_clouds.extents([], [], (ONE[:0], ONE[:0]), ONE[:0], 0),
        lambda: point_clouds.extents([BATCH], [0, 1], (two, ONE), ONE, 1),
        lambda: point_clouds.fill([BATCH], [0, 1], (ONE, ONE), (ONE, two, ONE), (2, 1)),
        lambda: point_clouds.fill([BATCH], [0, 1], (ONE - 1, ONE + 1), (ONE, ONE, ONE), (2, 0)),
        lambda: pair_fits.stand((TABLE, TABLE[:2]), ONE, (FLOATS, FLOATS, FLOATS), 1.0),
        lambda: pair_fits.stand((TABLE[:, :0], TABLE[:, :0]), ONE, (FLOATS, FLOATS, FLOATS), 1.0),
        lambda: pair_fits.stand((TABLE, TABLE), ONE, (floats, FLOATS, FLOATS), 1.0),
        lambda: pair_fits.turn((TABLE, TABLE), ONE, (FLOATS, FLOATS), np.zeros(3)),
        lambda: pair_fits.turn((TABLE[:1], TABLE[:1]), ONE, (FLOATS, floats), FLOATS),
        lambda: pair_fits.floors((TABLE, TABLE[:2]), ONE, (FLOATS, FLOATS), 1),
        lambda: pair_fits.floors((TABLE, TABLE), ONE, (FLOATS, floats), 1),
        lambda: pair_fits.floors((TABLE, TABLE), ONE, (FLOATS, FLOATS), 4),
        lambda: pair_fits.floors((TABLE, TABLE), ONE, (FLOATS, FLOATS), 0),
        lambda: pair_fits.quiet(TABLE, ONE, 1.0, 1),
        lambda: pair_fits.quiet(TABLE, ONE, np.nan, 1),
        lambda: mesh.distances((ONE, two), (FLOATS, FLOATS), 3, 0, 1),
        lambda: mesh.distances((ONE, ONE), (FLOATS, floats), 3, 0, 1),
        lambda: mesh.conjugate((ONE, ONE, FLOATS), FLOATS, FLOATS, (ONE, FLOATS, SQUARE), (9, 1, 0.0)),
        lambda: mesh.conjugate((STARTS + 1, ONE, FLOATS), FLOATS, FLOATS, (ONE, FLOATS, SQUARE), (9, 1, 0.0)),
        lambda: mesh.conjugate((STARTS[::-1], ONE, FLOATS), FLOATS, FLOATS, (ONE, FLOATS, SQUARE), (9, 1, 0.0)),
        lambda: mesh.conjugate((STARTS, ONE, FLOATS), FLOATS, floats, (ONE, FLOATS, SQUARE), (9, 1, 0.0)),
        lambda: mesh.conjugate((STARTS, ONE, FLOATS), FLOATS, FLOATS, (ONE, FLOATS, SQUARE[:, :0]), (9, 1, 0.0)),
        lambda: mesh.conjugate((STARTS, ONE, FLOATS), FLOATS, FLOATS, (ONE, FLOATS, SQUARE), (9, 0, 0.0)),
    ):
        with pytest.raises(ValueError, match=r"lengths|streams|in order|points|agree|share"):
            wrong()


def test_batches_are_columns_of_bytes():
    """An array would have to be kept where it lies as long as the loop reads it."""
    with pytest.raises(TypeError):
        point_clouds.extents([tuple(map(bytearray, BATCH))], [0, 1], (ONE, ONE), ONE, 1)
