"""Finds the rows of a table for the paths that a node reports on, without looking up each path every time."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

_REGULAR = 8
"""Least paths of a report to remember. Shorter reports, of silences, are read as fast as looked up, and would displace
a longer one."""


class ReportRows:
    """The rows of each node's last regular report. Mostly the next report names the same paths."""

    def __init__(self) -> None:
        self.known: dict[str, tuple[int, NDArray[np.int32]]] = {}
        """A hash of the names, which themselves take 15 kB, and their rows, by node."""

    def of(self, node: str, names: tuple[str, ...], row: Callable[[str], int]) -> NDArray[np.int32]:
        """The rows of a report's paths; `row` finds or makes that of one name."""
        known, said = self.known.get(node), hash(names)
        if known is not None and known[0] == said and len(known[1]) == len(names):
            return known[1]
        rows = np.array([row(name) for name in names], np.int32)
        if len(names) >= _REGULAR:
            self.known[node] = said, rows
        return rows

    def forget(self) -> None:
        """Forgets all rows, because they may have changed: all names are looked up anew."""
        self.known.clear()
