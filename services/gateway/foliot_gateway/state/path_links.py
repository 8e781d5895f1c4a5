"""The links of each path, as the node where it begins has told, and how many paths cross each link."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from foliot.columns import grown
from foliot.link_map import UNNAMED, LinkMap

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from foliot_schemas import HopBatch

NO_ROW = -1
"""Of a path that the table has no room for."""
_FIRST_ROOM = 1_024
_Told = np.dtype(
    [
        ("told_ns", "<i8"),
        ("first", "<u4"),
    ]
)


class Told(NamedTuple):
    """What was last told of a path."""

    links: tuple[str, ...]
    """As `LinkMap` has them, with a link for each router that is missing at the end."""
    first: int
    """The IPv4 address with which the first router answered; 0: it did not."""
    at_ns: int
    """When, by the node's reference time; 0: not yet."""


_NOTHING = Told((), 0, 0)


class PathLinks:
    """What `LinkMap` has, with what belongs to it: when it was told, who answered first, how many share a link.

    Rows are those of the table of all paths.
    """

    def __init__(self) -> None:
        self._map = LinkMap()
        self._told = np.zeros(_FIRST_ROOM, _Told)
        self._crossing: Counter[str] = Counter()
        self.version = 0
        """Another one after each change of any path's links, or of who answers first on it."""

    def fold(self, batch: HopBatch, rows: NDArray[np.int32]) -> None:
        """Takes what a node tells of some of its paths.

        Parameters:
            rows: the row of each of the batch's paths; `NO_ROW`: it is not kept.

        Raises:
            ValueError: as `LinkMap.take`.
        """
        kept = rows != NO_ROW
        if not kept.any():
            return
        before = {path: self._map.of(path) for path in batch.paths}
        has_row = {path for path, row in zip(batch.paths, rows, strict=True) if row != NO_ROW}
        self._map.take(batch, has_row.__contains__)
        self._count(before)
        self._told = grown(self._told, 2 * int(rows.max()))
        first = np.zeros(len(batch.paths), np.uint32)
        answers = batch.rows()
        answers = answers[answers["hop"] == 1]
        first[answers["path"]] = answers["address"]
        self.version += int((self._told["first"][rows[kept]] != first[kept]).any())
        self._told["first"][rows[kept]] = first[kept]
        self._told["told_ns"][rows[kept]] = batch.at_ns

    def forget(self, node: str, rows: Mapping[str, int]) -> None:
        """Forgets the paths that begin or end at a node, which are given with their rows."""
        before = {path: self._map.of(path) for path in rows}
        self._map.forget(node)
        self._map.forget_paths(rows)
        self._count(before)
        places = np.array([row for row in rows.values() if row < len(self._told)], np.intp)
        self._told[places] = np.zeros((), _Told)

    def of(self, path: str, row: int) -> Told:
        """What was last told of a path."""
        if row == NO_ROW or row >= len(self._told):
            return _NOTHING
        told_ns, first = self._told[row].item()
        return Told(self._map.of(path), first, told_ns)

    def crossing(self, link: str) -> int:
        """How many paths cross a link."""
        return self._crossing[link]

    def _count(self, before: Mapping[str, tuple[str, ...]]) -> None:
        """Counts the links of paths that had these links before."""
        for path, links in before.items():
            if (now := self._map.of(path)) == links:
                continue
            self.version += 1
            self._crossing.update(link for link in now if link != UNNAMED)
            for link in links:
                if link == UNNAMED:
                    continue
                self._crossing[link] -= 1
                if not self._crossing[link]:
                    del self._crossing[link]
