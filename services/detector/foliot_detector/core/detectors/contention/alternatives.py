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

    def has_room(self, place: Place, members: NDArray[np.intp], carried_bps: float, hot: HotPlaces) -> bool:
        """Whether one of the flows that share a place has another path, on which there is room for it."""
        wanted_bps = _GAIN * carried_bps / len(members)
        ways = (self._links.of(path_id) for path_id in self._others(members))
        return any(self._is_free(links, place, carried_bps, wanted_bps, hot) for links in ways)

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
        if not links or NONE in links or not set(links).isdisjoint(place.links):
            return False
        between = [link for link in links if is_between_routers(self._links.names[link])]
        return all(
            hot.is_cold(link, place.queue_ns) and self._room_bps(link, carried_bps) >= wanted_bps for link in between
        )

    def _room_bps(self, link: int, least_bps: float) -> float:
        """What one more flow would get on a link that can carry `least_bps`, as another one does."""
        flows = self._flows
        crossing = flows.crossing([link])
        fixed_bps = float(flows.rate[crossing & flows.is_active & ~flows.is_limited].sum())
        capacity_bps = max(self._loads.best(link), least_bps)
        return (capacity_bps - fixed_bps) / (1 + int(np.count_nonzero(crossing & flows.is_limited)))
