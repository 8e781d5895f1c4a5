"""Columns that grow keep what they have."""

import numpy as np
import pytest

from foliot.columns import NamedRows, blank, enlarge, grown, put, widen


@pytest.mark.parametrize("rows", [0, 2, 3])
def test_a_column_that_is_long_enough_is_the_same(rows):
    """No copy is made."""
    column = np.arange(3)
    assert grown(column, rows) is column


def test_new_rows_hold_what_is_said():
    """Of every shape and kind."""
    assert grown(np.arange(2), 4, fill=-1).tolist() == [0, 1, -1, -1]
    assert grown(np.ones((1, 2)), 2).tolist() == [[1, 1], [0, 0]]
    rows = grown(np.zeros(1, [("at", np.int64), ("lost", np.bool_)]), 2)
    assert rows.tolist() == [(0, False), (0, False)]


@pytest.mark.parametrize("places", [np.array([2, 0]), np.array([True, False, True]), (np.array([1, 2]), 0)])
def test_rows_are_put_whole(places):
    """What stands there is what an assignment field by field leaves, also where fields are not aligned."""
    kind = np.dtype([("lost", np.bool_), ("at", np.int64)])
    shape = (3, 2) if isinstance(places, tuple) else (3,)
    column, other = np.zeros(shape, kind), np.zeros(shape, kind)
    rows = np.array([(True, 1 << 40), (False, -1)], kind)
    put(column, places, rows)
    other[places] = rows
    assert column.tolist() == other.tolist() != np.zeros(shape, kind).tolist()


def test_an_object_takes_larger_arrays_and_keeps_the_rest():
    """A setting of the larger one is not its own."""

    class Rows:
        def __init__(self, rows, every=0):
            self.every = every
            self.next = np.full(rows, -1)

    small = Rows(2, every=5)
    small.next[:] = [7, 8]
    enlarge(small, 4)
    assert (small.every, small.next.tolist()) == (5, [7, 8, -1, -1])


def test_all_columns_of_an_object_grow_at_once():
    """Each as far as it has to; the rest stays. A row is cleared in all of them."""

    class Rows:
        def __init__(self):
            self.names = ["a"]
            self.short, self.long = np.ones((1, 2), np.int64), np.ones(3, np.bool_)

    rows = Rows()
    widen(rows, 2)
    assert (rows.names, rows.short.tolist(), rows.long.tolist()) == (["a"], [[1, 1], [0, 0]], [True] * 3)
    blank(rows, 0)
    assert (rows.names, rows.short.tolist(), rows.long.tolist()) == (["a"], [[0, 0], [0, 0]], [False, True, True])


def test_rows_of_names_that_were_forgotten_are_others():
    """No more rows are made while some are nobody's."""
    rows = NamedRows()
    assert [rows.take(name) for name in ("a", "b", "c")] == [0, 1, 2]
    assert rows.free("b") == 1
    assert (rows.find("b"), rows.names) == (None, ["a", "", "c"])
    assert (rows.take("d"), rows.find("d"), rows.take("e")) == (1, 1, 3)
    assert rows.names == ["a", "d", "c", "e"]
    with pytest.raises(KeyError):
        rows.free("b")
