"""Named tuples of arrays of one length, with selection, replacement and concatenation of rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    Chosen = NDArray[np.bool_] | NDArray[np.int64] | list[int]

Columns = TypeVar("Columns", bound=tuple[Any, ...])


def take(rows: Columns, chosen: Chosen) -> Columns:
    """The chosen rows."""
    return type(rows)(*(column[chosen] for column in rows))


def put(rows: Columns, chosen: Chosen, others: Columns) -> Columns:
    """All rows, with the others in the chosen places."""
    columns = [column.copy() for column in rows]
    for column, new in zip(columns, others, strict=True):
        column[chosen] = new
    return type(rows)(*columns)


def joined(several: Sequence[Columns]) -> Columns:
    """Concatenates the rows of several tuples."""
    return type(several[0])(*(np.concatenate(each) for each in zip(*several, strict=True)))
