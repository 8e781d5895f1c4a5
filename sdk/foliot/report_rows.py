"""Which rows of a table the paths have that nodes report on, without looking up each of them every time."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

_REGULAR = 8
"""Paths of a report that is worth remembering. Shorter ones, of silences, are read as fast as looked up, and would displace it."""


class ReportRows:
    """Per node, the rows of its last regular report: mostly it names those that it named last."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[int, NDArray[np.int32]]] = {}
        """By node: a hash of the names, which themselves take 15 kB, and their rows."""

    def of(self, node: str, names: tuple[str, ...], row: Callable[[str], int]) -> NDArray[np.int32]:
        """The rows of a report's paths.

        Parameters:
            row: finds or makes that of one name.
        """
        known, said = self._known.get(node), hash(names)
        if known is not None and known[0] == said and len(known[1]) == len(names):
            return known[1]
        rows = np.array([row(name) for name in names], np.int32)
        if len(names) >= _REGULAR:
            self._known[node] = said, rows
        return rows

    def forget(self) -> None:
        """What names mean may have changed: all are looked up anew."""
        self._known.clear()
