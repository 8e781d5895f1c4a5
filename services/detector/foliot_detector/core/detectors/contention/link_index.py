"""Links and the paths that cross them, by number."""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from foliot.link_map import UNNAMED, LinkMap

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from foliot_detector.core.state.inventory import Inventory
    from foliot_schemas import HopBatch

MOST_LINKS = 18
"""Links of a path: those between 16 routers, and that of each NIC."""
NONE = -1
_STRANGE = -1
"""The place of a path between NICs that the inventory does not know."""


class Changed(NamedTuple):
    """Paths of which a node told something new."""

    paths: list[int]
    elsewhere: list[int]
    """Those of them that took other links before."""


class LinkIndex:
    """What `LinkMap` has, turned round: the paths of each link."""

    def __init__(self, inventory: Inventory) -> None:
        self._inventory = inventory
        self._map = LinkMap()
        self.names: list[str] = []
        self._ids: dict[str, int] = {}
        self._paths: list[array[int]] = []
        self._found: dict[int, NDArray[np.intp]] = {}
        self._links: dict[int, tuple[int, ...]] = {}
        """By path, its links from the source on; `NONE` for one without a name."""
        self._unplaced: dict[str, None] = {}
        """Paths of which a node told before the inventory knew their NICs."""

    def __len__(self) -> int:
        return len(self.names)

    def take(self, batch: HopBatch) -> Changed:
        """Takes what a node tells of its paths."""
        changed = [*self._map.take(batch), *self._unplaced]
        if not changed:
            return Changed([], [])
        self._unplaced = {}
        ids = self._inventory.paths.ids(tuple(changed), self._inventory.nics)
        found = Changed([], [])
        for path_id, path in zip(ids.tolist(), changed, strict=True):
            if path_id == _STRANGE:
                self._unplaced[path] = None
            elif path_id >= 0:
                found.paths.append(path_id)
                if self._set(path_id, self._map.of(path)):
                    found.elsewhere.append(path_id)
        return found

    def forget(self, node: str) -> None:
        """Forgets the paths that begin at a node, which has left."""
        table = self._inventory.paths
        self._map.forget(node)
        for path_id in [each for each in self._links if table.nodes[table.source_node[each]] == node]:
            self._set(path_id, ())

    def id_of(self, link: str) -> int:
        """A link's number, made where it is new."""
        number = self._ids.setdefault(link, len(self.names))
        if number == len(self.names):
            self.names.append(link)
            self._paths.append(array("i"))
        return number

    def of(self, path_id: int) -> tuple[int, ...]:
        """The links of a path; none: they are not known."""
        return self._links.get(path_id, ())

    def crossing(self, link: int) -> NDArray[np.intp]:
        """The paths that cross a link, sorted."""
        found = self._found.get(link)
        if found is None:
            found = self._found[link] = np.sort(np.array(self._paths[link], np.intp))
        return found

    def _set(self, path_id: int, names: tuple[str, ...]) -> bool:
        """Gives a path its links. Returns whether it had others before."""
        before = self._links.pop(path_id, ())
        for link in before:
            if link != NONE:
                self._paths[link].remove(path_id)
                self._found.pop(link, None)
        links = tuple(NONE if name == UNNAMED else self.id_of(name) for name in names)
        if links:
            self._links[path_id] = links
        for link in links:
            if link != NONE:
                self._paths[link].append(path_id)
                self._found.pop(link, None)
        return bool(before)
