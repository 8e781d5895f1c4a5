"""Arrays with a row for each thing, which grow as things come."""

from __future__ import annotations

from typing import Any, TypeVar

import numpy as np

Column = TypeVar("Column", bound=np.ndarray[Any, Any])


def grown(column: Column, rows: int, fill: float = 0) -> Column:
    """The column itself if it has so many rows, else a longer one.

    Parameters:
        column: any shape; its first axis has the rows.
        fill: what new rows hold; of structured arrays, each field.
    """
    missing = rows - len(column)
    if missing <= 0:
        return column
    # Joining two would give fields the byte order of the machine.
    wide = np.full((rows, *column.shape[1:]), fill, column.dtype)
    wide[: len(column)] = column
    return wide  # type: ignore[return-value]


class NamedRows:
    """The row that each name has in columns. Rows of names that were forgotten become others'."""

    def __init__(self) -> None:
        self.names: list[str] = []
        """By row; empty: it is nobody's."""
        self.row_of: dict[str, int] = {}
        """By name, its row. To be read alone."""
        self._free: list[int] = []

    def find(self, name: str) -> int | None:
        """A name's row; None: it has none."""
        return self.row_of.get(name)

    def take(self, name: str) -> int:
        """Gives a name a row that nobody has, the next one if there is no other."""
        row = self._free.pop() if self._free else len(self.names)
        if row == len(self.names):
            self.names.append(name)
        self.row_of[name], self.names[row] = row, name
        return row

    def free(self, name: str) -> int:
        """Takes a name's row from it, and returns that.

        Raises:
            KeyError: it has none.
        """
        row = self.row_of.pop(name)
        self.names[row] = ""
        self._free.append(row)
        return row


def put(column: np.ndarray[Any, Any], places: Any, rows: np.ndarray[Any, Any]) -> None:
    """Sets rows of a structured array, as ``column[places] = rows`` does in eight times as long.

    That copies each field of each row by itself, as ``column[places]`` does. To read rows, `take` and `compress` copy
    them whole.

    Parameters:
        places: an index or several, as in brackets.
        rows: of the same dtype.
    """
    whole = np.dtype((np.void, column.dtype.itemsize))
    column.view(whole)[places] = rows.view(whole)


def widen(owner: object, rows: int) -> None:
    """Gives each array of an object at least so many rows; new ones hold 0."""
    for name, column in vars(owner).items():
        if isinstance(column, np.ndarray):
            setattr(owner, name, grown(column, rows))


def blank(owner: object, row: int) -> None:
    """Sets a row of each array of an object to 0."""
    for column in vars(owner).values():
        if isinstance(column, np.ndarray):
            column[row] = 0


def enlarge(owner: Any, rows: int) -> None:
    """Gives an object the arrays of a larger one, ``type(owner)(rows)``, with its own values in their first rows.

    All that is no array stays as it is.
    """
    larger = type(owner)(rows)
    for name, column in vars(owner).items():
        if isinstance(column, np.ndarray):
            wide = getattr(larger, name)
            wide[: len(column)] = column
            setattr(owner, name, wide)
