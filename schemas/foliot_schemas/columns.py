"""Columns of a batch: numpy on both sides, little-endian bytes on the wire."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from foliot_schemas.bounds import FAR_NS

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from numpy.typing import NDArray


def pack(rows: NDArray[Any]) -> dict[str, bytes]:
    """The columns of a structured array, one contiguous bytes value each."""
    assert rows.dtype.names is not None
    return {name: rows[name].tobytes() for name in rows.dtype.names}


def rows_once(batch: Any, make: Callable[[], NDArray[Any]], name: str = "unpacked") -> NDArray[Any]:
    """The rows of a batch, or another array of it: made and checked once, and then kept with it under this name.

    Decoding checks them, and the receiver reads them again.
    """
    rows: NDArray[Any] | None = batch.__dict__.get(name)
    if rows is None:
        rows = batch.__dict__[name] = make()
        rows.flags.writeable = False
    return rows


def unpack(columns: Mapping[str, bytes], dtype: np.dtype[Any], later: Collection[str] = ()) -> NDArray[Any]:
    """The structured array that `pack` took apart. Unknown columns are ignored, so that new ones may be added.

    Parameters:
        later: columns that older senders do not have; their values are then 0.

    Raises:
        ValueError: a column is missing, or columns differ in length.
    """
    return _rows(_views(columns, dtype, later), dtype)


def unpack_checked(
    columns: Mapping[str, bytes],
    dtype: np.dtype[Any],
    bounded: tuple[str, ...],
    index: str,
    named: int,
    *,
    later: Collection[str] = (),
) -> NDArray[Any]:
    """As `unpack`, of rows that name things of the batch by number.

    Parameters:
        bounded: columns of int64 whose values lie within `FAR_NS`, so that the difference of two is one, too.
        index: the column that names things.
        named: how many the batch has.

    Raises:
        ValueError: as `unpack`; a row names none of these things, or a bounded value is beyond its bound.
    """
    return _rows(check_columns(columns, dtype, bounded, index, named, later=later), dtype)


def check_columns(
    columns: Mapping[str, bytes],
    dtype: np.dtype[Any],
    bounded: tuple[str, ...],
    index: str,
    named: int,
    *,
    later: Collection[str] = (),
) -> dict[str, NDArray[Any]]:
    """Refuses what `unpack_checked` would refuse. Returns the columns as they are, which takes less time than rows."""
    views = _views(columns, dtype, later)
    if len(views[index]):
        if int(views[index].max()) >= named:
            raise ValueError(f"a row names a {index} that the batch does not have")
        every = np.frombuffer(b"".join([columns[name] for name in bounded if name in columns]), "<i8")
        # In wrapping arithmetic the sum is above 0 for exactly those that lie within the limits.
        if len(every) and int((every + FAR_NS).min()) <= 0:
            raise ValueError("a row has a time further than 146 years from 0, or a sequence beyond 2^62")
    return views


def _views(columns: Mapping[str, bytes], dtype: np.dtype[Any], later: Collection[str]) -> dict[str, NDArray[Any]]:
    """The columns that there are, all of one length."""
    assert dtype.names is not None
    views = {}
    for name in dtype.names:
        column = columns.get(name)
        if column is not None:
            views[name] = np.frombuffer(column, dtype[name])
        elif name not in later:
            raise ValueError(f"the batch has no column {name!r}")
    if len({len(view) for view in views.values()}) != 1:
        of_columns = {name: len(view) for name, view in views.items()}
        raise ValueError(f"the batch's columns differ in length: {of_columns}")
    return views


def _rows(views: Mapping[str, NDArray[Any]], dtype: np.dtype[Any]) -> NDArray[Any]:
    rows = np.zeros(len(next(iter(views.values()))), dtype)
    for name, view in views.items():
        rows[name] = view
    return rows
