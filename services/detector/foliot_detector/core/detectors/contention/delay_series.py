"""The delays of a few paths in the last seconds, tenth by tenth."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from foliot.columns import grown

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

    from foliot_detector.core.state.path_table import Delays, PathTable

BIN_NS = 100_000_000
"""The interval of reports."""
BINS = 50
"""Five seconds: whoever shares a link is told before they are over, or is seen to vary alike for as long."""
_NOBODY = -1


class DelaySeries:
    """Per watched path and tenth of a second, the least delay of its reports.

    The least is of one moment in which the host was not late itself. Paths are watched by their places in the table.
    """

    def __init__(self, table: PathTable) -> None:
        self._table = table
        self._rows = np.full(0, _NOBODY, np.int32)
        """By path, its row in the next two; `_NOBODY`: it is not watched."""
        self._sum = np.zeros((0, BINS))
        self._count = np.zeros((0, BINS), np.int32)
        self.paths = np.zeros(0, np.intp)
        """By row, the path; sorted."""
        self._numbers = np.zeros(BINS, np.int64)
        """By column, the number of its tenth since the beginning of the timeline."""

    def watch(self, path_ids: NDArray[np.intp]) -> None:
        """Watches these paths from now on, and no others.

        Parameters:
            path_ids: sorted, each once.
        """
        if np.array_equal(path_ids, self.paths):
            return
        rows = self._rows = grown(self._rows, self._table.room, _NOBODY)
        before = rows[path_ids]
        rows[self.paths] = _NOBODY
        rows[path_ids] = np.arange(len(path_ids))
        was_there = before != _NOBODY
        for name in ("_sum", "_count"):
            column = getattr(self, name)
            kept = np.zeros((len(path_ids), BINS), column.dtype)
            kept[was_there] = column[before[was_there]]
            setattr(self, name, kept)
        self.paths = path_ids

    def add(self, seen: Delays) -> None:
        """Takes the receiving end's rows of a batch."""
        if not len(self.paths) or seen.bound_ns < 0:
            return
        found = seen.rows
        rows = self.rows_of(seen.ids)
        chosen = seen.timed & (rows != _NOBODY)
        number = seen.at_here_ns // BIN_NS
        column = number % BINS
        if not chosen.any() or number < self._numbers[column]:
            return
        if number > self._numbers[column]:
            self._numbers[column] = number
            self._sum[:, column], self._count[:, column] = 0.0, 0
        self._sum[rows[chosen], column] += found["least_ns"][chosen]
        self._count[rows[chosen], column] += 1

    def forget(self, path_ids: Iterable[int]) -> None:
        """Forgets the delays of paths, as they lead elsewhere or a clock was set."""
        ids = np.fromiter(path_ids, np.intp)
        rows = self.rows_of(ids)
        self._count[rows[rows != _NOBODY]] = 0

    def rows_of(self, path_ids: NDArray[np.intp]) -> NDArray[np.int32]:
        """The rows of watched paths; below 0: it is not watched."""
        self._rows = grown(self._rows, self._table.room, _NOBODY)
        return self._rows[path_ids]

    def delays_ns(self, rows: NDArray[np.intp]) -> NDArray[np.float64]:
        """The delays of some rows, shape (rows, `BINS`), the earliest first; NaN: none was heard."""
        newest = int(self._numbers.max())
        numbers = np.arange(newest - BINS + 1, newest + 1)
        columns = numbers % BINS
        some = np.ix_(rows, columns)
        total, count = self._sum[some], self._count[some]
        known = (count > 0) & (self._numbers[columns] == numbers)
        with np.errstate(invalid="ignore", divide="ignore"):
            return np.where(known, total / count, np.nan)
