"""Links and the paths that cross them, by number."""

from __future__ import annotations

import itertools
from array import array
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from foliot.columns import NamedRows, grown
from foliot.link_map import UNNAMED, LinkMap, is_between_routers, is_inferred, link_in, link_out

if TYPE_CHECKING:
    from collections.abc import Collection

    from numpy.typing import NDArray

    from foliot_detector.core.state.inventory import Inventory
    from foliot_schemas import HopBatch, Node

MOST_LINKS = 18
"""Links of a path: those between 16 routers, and that of each NIC."""
NONE = -1
_MOST_UNUSED = 1_024
"""Links between routers that are remembered though no path crosses them: one that is down may come back."""
_NOWHERE = np.zeros(0, np.intp)


class Changed(NamedTuple):
    """Paths of whose links something new is known."""

    paths: list[int]
    elsewhere: list[int]
    """Those of them that took other links before."""


class LinkIndex:
    """What `LinkMap` has of paths between NICs of the inventory, turned round: the paths of each link.

    A path is silent while no router of it has answered. Of such a path the NICs' links are known, and between them what
    was inferred.
    """

    def __init__(self, inventory: Inventory) -> None:
        self._inventory = inventory
        self._map = LinkMap()
        self._numbers = NamedRows()
        self.names = self._numbers.names
        self._unused: dict[str, None] = {}
        """Links between routers that no path crosses, those that were crossed last at the end."""
        self._paths: list[array[int]] = []
        self._found: dict[int, tuple[int, NDArray[np.intp]]] = {}
        """By link, its paths, and how many paths there were when they were found."""
        self._links: dict[int, tuple[int, ...]] = {}
        """By path that is not silent, its links from the source on; `NONE` for one without a name."""
        self._routes = np.zeros(0, np.int64)
        """By path that is not silent, a number that those between the same NICs have in common that cross the same
        links."""
        self._is_told = np.zeros(0, np.bool_)
        """By path, whether it is not silent."""
        self._inferred: dict[int, int] = {}
        """By silent path, the link that was inferred."""
        self._entropies: dict[str, dict[str, int]] = {}
        """By node of the inventory, its NICs, and how many entropies each has."""

    def __len__(self) -> int:
        return len(self.names)

    @property
    def is_all_told(self) -> bool:
        """Whether no path is silent."""
        return len(self._links) == len(self._inventory.paths)

    def take(self, batch: HopBatch) -> Changed:
        """Takes what a node tells of its paths."""
        table, nics = self._inventory.paths, self._inventory.nics
        told, back = self._map.take(batch, lambda path: bool(table.ids((path,), nics)[0] >= 0))
        ids = table.ids((*told, *back), nics).tolist()
        had_links = [self._set(path_id, self._map.of(path)) for path_id, path in zip(ids, (*told, *back), strict=True)]
        # What the way back says of a path's end tells of no other way.
        return Changed(ids, list(itertools.compress(ids[: len(told)], had_links)))

    def refresh(self, node: Node) -> list[int]:
        """Takes a node's record, which the inventory has. Returns the paths that are no more, whose links it forgets."""
        self._found.clear()
        before = self._entropies.pop(node.name, {})
        present = {nic.name: len(nic.entropies) for nic in node.nics}
        if present:
            self._entropies[node.name] = present
        table, gone = self._inventory.paths, list[int]()
        for nic in (nic for nic, entropies in before.items() if present.get(nic, 0) < entropies):
            paths = np.array(table.at_nic(nic), np.intp)
            gone += paths[~table.are_present(paths, self._inventory.nics)].tolist()
        self._map.forget_paths(table.names[path_id] for path_id in gone)
        if not present:
            self._map.forget(node.name)
        if gone:
            self._forget(gone)
        return gone

    def reclaim(self, held: Collection[str]) -> list[int]:
        """Forgets the links that were unused for longest, if there are many. Returns their numbers: others may get them.

        Parameters:
            held: links that stay.
        """
        spare = len(self._unused) - _MOST_UNUSED
        forgotten = []
        for link in [link for link in itertools.islice(self._unused, max(spare, 0)) if link not in held]:
            number = self._numbers.free(link)
            del self._unused[link]
            self._found.pop(number, None)
            forgotten.append(number)
        return forgotten

    def id_of(self, link: str) -> int:
        """A link's number, made where it is new."""
        number = self._numbers.find(link)
        if number is None:
            number = self._numbers.take(link)
            if number == len(self._paths):
                self._paths.append(array("i"))
            if is_between_routers(link):
                self._unused[link] = None
        return number

    def of(self, path_id: int) -> tuple[int, ...]:
        """The links of a path; none: it is no path."""
        told = self._links.get(path_id)
        if told is not None or path_id < 0:
            return told or ()
        table = self._inventory.paths
        source, destination = (table.nics[nic] for nic in table.ends[path_id].tolist())
        between = self._inferred.get(path_id, NONE)
        return self.id_of(link_out(source)), between, self.id_of(link_in(destination))

    def is_silent(self, path_id: int) -> bool:
        """Whether no router of a path has answered."""
        return path_id not in self._links

    def inferred_of(self, path_id: int) -> str:
        """The link that was inferred of a silent path; empty: none was."""
        link = self._inferred.get(path_id, NONE)
        return "" if link == NONE else self.names[link]

    def is_inferred(self, link: int) -> bool:
        """Whether delays alone tell of a link."""
        return is_inferred(self.names[link])

    def count_routes(self, paths: NDArray[np.intp]) -> int:
        """How many of these paths differ in their ends or links, as each silent one does.

        Of those that do not, a probe may send on one alone.
        """
        self._grow()
        return len(np.unique(np.where(self._is_told[paths], self._routes[paths], paths)))

    def crossing(self, link: int) -> NDArray[np.intp]:
        """The paths that cross a link, sorted."""
        paths = len(self._inventory.paths)
        count, found = self._found.get(link, (-1, _NOWHERE))
        if count != paths:
            told = np.array(self._paths[link], np.intp)
            found = np.sort(np.concatenate([told, self._silent_at(self.names[link])]))
            self._found[link] = paths, found
        return found

    def infer(self, name: str, path_ids: Collection[int]) -> list[int]:
        """Has these silent paths cross an inferred link, and no others. Returns the paths of which that is new."""
        link = self.id_of(name)
        wanted = {path_id for path_id in path_ids if self.is_silent(path_id)}
        before = {path_id for path_id in self._paths[link] if path_id not in wanted}
        added = [path_id for path_id in sorted(wanted) if self._inferred.get(path_id) != link]
        for path_id in (*before, *added):
            self._uninfer(path_id)
        for path_id in added:
            self._inferred[path_id] = link
            self._cross(link, path_id)
        return [*before, *added]

    def _silent_at(self, link: str) -> NDArray[np.intp]:
        """The silent paths at a NIC, by its link, of those between NICs of the inventory."""
        if is_between_routers(link):
            return _NOWHERE
        table, nics = self._inventory.paths, self._inventory.nics
        nic, _, side = link.rpartition("/")
        paths = table.beginning_at(nic) if side == "out" else table.ending_at(nic)
        self._grow()
        paths = paths[~self._is_told[paths]]
        return paths[table.are_present(paths, nics)]

    def _grow(self) -> None:
        room = self._inventory.paths.room
        self._is_told, self._routes = grown(self._is_told, room), grown(self._routes, room)

    def _forget(self, path_ids: list[int]) -> None:
        """Has these paths cross nothing. A link may have many of them, so they are not taken out one by one."""
        self._grow()
        self._is_told[path_ids] = False
        is_gone = np.zeros(len(self._is_told), np.bool_)
        is_gone[path_ids] = True
        crossed = [
            link
            for path_id in path_ids
            for link in (*self._links.pop(path_id, ()), self._inferred.pop(path_id, NONE))
        ]  # fmt: skip
        for link in dict.fromkeys(crossed):
            if link != NONE:
                paths = np.frombuffer(self._paths[link], np.int32)
                self._paths[link] = array("i", paths[~is_gone[paths]].tobytes())
                self._note_left(link)

    def _uninfer(self, path_id: int) -> None:
        link = self._inferred.pop(path_id, NONE)
        if link != NONE:
            self._leave(link, path_id)

    def _cross(self, link: int, path_id: int) -> None:
        self._paths[link].append(path_id)
        self._unused.pop(self.names[link], None)
        self._found.pop(link, None)

    def _leave(self, link: int, path_id: int) -> None:
        self._paths[link].remove(path_id)
        self._note_left(link)

    def _note_left(self, link: int) -> None:
        """Takes it that fewer paths cross a link."""
        self._found.pop(link, None)
        if not self._paths[link] and is_between_routers(self.names[link]):
            self._unused[self.names[link]] = None

    def _set(self, path_id: int, names: tuple[str, ...]) -> bool:
        """Gives a path its links. Returns whether it had others before."""
        before = self._links.pop(path_id, ())
        links = tuple(NONE if name == UNNAMED else self.id_of(name) for name in names)
        self._grow()
        self._is_told[path_id] = bool(links)
        if links:
            self._uninfer(path_id)
            self._links[path_id] = links
        ends = self._inventory.paths.ends[path_id].tolist()
        # One of which a link is not known is like no other.
        self._routes[path_id] = hash((*ends, *links)) if NONE not in links else path_id
        # Of links that many paths cross, it takes long to find one path.
        for link in dict.fromkeys(before):
            if link != NONE and link not in links:
                self._leave(link, path_id)
        for link in dict.fromkeys(links):
            if link != NONE and link not in before:
                self._cross(link, path_id)
        return bool(before)
