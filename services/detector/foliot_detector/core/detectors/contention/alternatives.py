"""Whether flows that share a place have another way, with room on it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from foliot.link_map import is_between_routers
from foliot_detector.core.detectors.contention.link_index import NONE

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from foliot_detector.core.detectors.contention.flow_table import FlowTable
    from foliot_detector.core.detectors.contention.hot_places import HotPlaces, Place
    from foliot_detector.core.detectors.contention.link_index import LinkIndex
    from foliot_detector.core.detectors.contention.link_loads import LinkLoads
    from foliot_detector.core.state.inventory import Inventory

_GAIN = 1.2
"""There is another way for a flow if it would get this times an even part of the place there."""


class Alternatives:
    """The other paths between the NICs of flows."""

    def __init__(self, inventory: Inventory, links: LinkIndex, flows: FlowTable, loads: LinkLoads) -> None:
        self._inventory = inventory
        self._links = links
        self._flows = flows
        self._loads = loads

    def helped(self, place: Place, members: NDArray[np.intp], carried_bps: float, hot: HotPlaces) -> NDArray[np.intp]:
        """Those of the flows that share a place whom another path would help; none: there is no such path.

        It helps all if one of them has a path with room for it. Else it helps those of the highest priority, if one
        that matters less has a path on which nobody matters as much: then it may yield.
        """
        if self._links.is_inferred(place.links[0]):
            return members if self.on_time(place, members, hot) else members[:0]
        wanted_bps = _GAIN * carried_bps / len(members)
        ways = (self._links.of(path_id) for path_id in self._others(members))
        if any(self._is_free(links, place, carried_bps, wanted_bps, hot) for links in ways):
            return members
        priorities = self._priorities(members)
        highest = int(priorities.max())
        ways = (self._links.of(path_id) for path_id in self._others(members[priorities < highest]))
        may_yield = any(self._may_be_shared(links, place, highest) for links in ways)
        return members[np.flatnonzero(priorities == highest)] if may_yield else members[:0]

    def on_time(self, place: Place, members: NDArray[np.intp], hot: HotPlaces) -> list[int]:
        """The other silent paths of flows that share an inferred link, of those that are not late, the quickest first.

        How much room they have, nobody knows.
        """
        silent = [path_id for path_id in self._others(members) if self._links.is_silent(path_id)]
        found = [path_id for path_id in silent if hot.is_on_time(path_id, place.queue_ns)]
        return sorted(found, key=lambda path_id: (hot.excess_ns(path_id), path_id))

    def _others(self, members: NDArray[np.intp]) -> list[int]:
        table, nics = self._inventory.paths, self._inventory.nics
        found = []
        for path_id in self._flows.path[members].tolist():
            path = table.path(path_id)
            entropies = range(min(nics.get(path.source, 0), nics.get(path.destination, 0)))
            others = (table.id_of(path._replace(entropy=each)) for each in entropies if each != path.entropy)
            found += [other for other in others if other >= 0 and not table.silent[other]]
        return found

    def _is_free(
        self, links: tuple[int, ...], place: Place, carried_bps: float, wanted_bps: float, hot: HotPlaces
    ) -> bool:
        return self._is_another(links, place) and all(
            hot.is_cold(link, place.queue_ns) and self._room_bps(link, carried_bps) >= wanted_bps
            for link in self._between(links)
        )

    def _may_be_shared(self, links: tuple[int, ...], place: Place, highest: int) -> bool:
        """Whether nobody whom the network limits there matters as much as that."""
        if not self._is_another(links, place):
            return False
        there = np.flatnonzero(self._flows.crossing(self._between(links)) & self._flows.is_limited)
        return bool((self._priorities(there) < highest).all())

    def _is_another(self, links: tuple[int, ...], place: Place) -> bool:
        """Whether a path is known, and crosses no link of a place."""
        return bool(links) and NONE not in links and set(links).isdisjoint(place.links)

    def _between(self, links: tuple[int, ...]) -> list[int]:
        return [link for link in links if is_between_routers(self._links.names[link])]

    def _priorities(self, rows: NDArray[np.intp]) -> NDArray[np.intp]:
        jobs, names = self._inventory.jobs, self._flows.names
        return np.array([jobs.priority_of(names[row]) for row in rows.tolist()], np.intp)

    def _room_bps(self, link: int, least_bps: float) -> float:
        """What one more flow would get on a link that can carry `least_bps`, as another one does."""
        flows = self._flows
        crossing = flows.crossing([link])
        fixed_bps = float(flows.rate[crossing & flows.is_active & ~flows.is_limited].sum())
        capacity_bps = max(self._loads.best(link), least_bps)
        return (capacity_bps - fixed_bps) / (1 + int(np.count_nonzero(crossing & flows.is_limited)))
