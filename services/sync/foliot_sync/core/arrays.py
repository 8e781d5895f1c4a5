"""Named tuples of arrays of one length, with selection, replacement and concatenation of rows.

A column may be such a tuple itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    Floats = NDArray[np.float64]
    Ints = NDArray[np.int64]
    Mask = NDArray[np.bool_]
    Chosen = Mask | Ints | list[int]

Columns = TypeVar("Columns", bound=tuple[Any, ...])


def take(rows: Columns, chosen: Chosen) -> Columns:
    """The chosen rows."""
    return type(rows)(*(take(column, chosen) if isinstance(column, tuple) else column[chosen] for column in rows))


def put(rows: Columns, chosen: Chosen, others: Columns) -> Columns:
    """All rows, with the others in the chosen places."""
    return type(rows)(*(_put(column, chosen, new) for column, new in zip(rows, others, strict=True)))


def changed(rows: Columns, chosen: Chosen | int, **values: Any) -> Columns:
    """All rows, with these columns of the chosen ones changed."""
    named: Any = rows
    columns = {name: getattr(rows, name).copy() for name in values}
    for name, value in values.items():
        columns[name][chosen] = value
    found: Columns = named._replace(**columns)
    return found


def joined(several: Sequence[Columns]) -> Columns:
    """Concatenates the rows of several tuples."""
    columns = zip(*several, strict=True)
    return type(several[0])(*(joined(each) if isinstance(each[0], tuple) else np.concatenate(each) for each in columns))


def _put(column: Any, chosen: Chosen, new: Any) -> Any:
    if isinstance(column, tuple):
        return put(column, chosen, new)
    column = column.copy()
    column[chosen] = new
    return column
