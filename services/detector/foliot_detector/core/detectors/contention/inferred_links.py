"""The links between silent routers that flows share, by their paths' delays, and names for them.

Of a silent path, its NICs are known, and how late it is. Flows whose paths are late together by no doing of their NICs
share a link between routers. It is given a name while that lasts. Nothing is said where that is not clear.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import numpy as np

from foliot.link_map import inferred_link
from foliot_detector.core.detectors.contention.delay_series import DelaySeries
from foliot_detector.core.detectors.contention.shared_delays import shared_delays
from foliot_schemas.names import rail_of

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from numpy.typing import NDArray

    from foliot_detector.core.detectors.contention.flow_table import FlowTable
    from foliot_detector.core.detectors.contention.hot_places import HotPlaces
    from foliot_detector.core.detectors.contention.link_index import LinkIndex
    from foliot_detector.core.detectors.contention.link_loads import LinkLoads
    from foliot_detector.core.detectors.contention.path_queues import PathQueues
    from foliot_detector.core.detectors.contention.shared_delays import Group
    from foliot_detector.core.state.inventory import Inventory
    from foliot_detector.core.state.path_table import Delays

_S = 1_000_000_000
_KEPT_NS = 3 * _S
"""How long a link keeps its name though its paths are not seen to be late together: a job's step may end meanwhile."""
_MOST_WATCHED = 16_384
"""Paths in use that are watched before they have a flow: all of 128 NICs. 600 bytes each."""
_MOST_LATE = 128
"""Late paths of a rail that are looked at together. Each is held against each."""
_AGAIN_NS = _S
"""How often to look which paths are in use."""


class InferredLinks:
    """Finds such links, and tells the index of links which paths cross them."""

    def __init__(
        self, inventory: Inventory, links: LinkIndex, flows: FlowTable, loads: LinkLoads, queues: PathQueues
    ) -> None:
        self._inventory = inventory
        self._links = links
        self._flows = flows
        self._loads = loads
        self._queues = queues
        self._series = DelaySeries(inventory.paths)
        self._seen_ns: dict[str, int] = {}
        """By link, when it was last seen."""
        self.correlation: dict[str, float] = {}
        """By link, how alike the delays of its paths are."""
        self._watch_ns = 0
        self._in_use: NDArray[np.intp] = np.zeros(0, np.intp)
        self._turns = (-1, -1)

    def add(self, seen: Delays) -> None:
        """Takes the receiving end's rows of a batch."""
        self._series.add(seen)

    def forget(self, path_ids: Collection[int]) -> None:
        """Forgets the delays of paths, as they lead elsewhere or a clock was set."""
        self._series.forget(path_ids)

    def resume(self, link: str, paths: tuple[str, ...]) -> list[int]:
        """Takes a link of an earlier run. Returns its paths."""
        ids = self._inventory.paths.ids(paths, self._inventory.nics)
        self._seen_ns[link], self.correlation[link] = 0, 0.0
        return self._links.infer(link, ids[ids >= 0].tolist())

    def look(self, hot: HotPlaces, held: Collection[str], now_ns: int) -> list[int]:
        """Looks for links. Returns the paths of which something new is known.

        Parameters:
            held: links that stay, whether they are seen or not.
        """
        self._watch(now_ns)
        changed: list[int] = []
        for late, groups in self._groups(hot):
            for group in groups:
                paths = late[list(group.places)]
                if self._is_between_several(paths):
                    changed += self._note(paths, late, group.correlation, now_ns)
        for link in [link for link, seen_ns in self._seen_ns.items() if now_ns - seen_ns > _KEPT_NS]:
            if link not in held:
                del self._seen_ns[link], self.correlation[link]
                changed += self._links.infer(link, ())
        return changed

    # -- inside -------------------------------------------------------------------------------------------------------

    def _watch(self, now_ns: int) -> None:
        """Watches silent paths in use, also those without a flow: it may begin as a queue rises."""
        if now_ns < self._watch_ns:
            return
        self._watch_ns = now_ns + _AGAIN_NS
        flows, table = self._flows, self._inventory.paths
        turns = self._inventory.ways.turns, len(table)
        if turns != self._turns and not self._links.is_all_told:
            self._turns = turns
            self._in_use = np.array([*itertools.islice(self._used(), _MOST_WATCHED + 1)], np.intp)
        own = flows.path[flows.is_active & (flows.path >= 0)]
        some = np.union1d(own, self._in_use) if len(self._in_use) <= _MOST_WATCHED else np.unique(own)
        is_silent = [self._links.is_silent(path_id) for path_id in some.tolist()]
        self._series.watch(some[np.array(is_silent, np.bool_)])

    def _used(self) -> Iterator[int]:
        ways, table = self._inventory.ways, self._inventory.paths
        for node in ways.nodes():
            for path in ways.in_use(node):
                if (path_id := table.id_of(path)) >= 0:
                    yield path_id

    def _groups(self, hot: HotPlaces) -> Iterator[tuple[NDArray[np.intp], list[Group]]]:
        """By rail, the late paths with a flow, and which of them share a queue."""
        if self._links.is_all_told:
            return
        flows, table = self._flows, self._inventory.paths
        rows = np.flatnonzero(flows.is_active & ~flows.is_unknown & (flows.path >= 0))
        paths, rates = _by_path(flows.path[rows], flows.rate[rows])
        is_late = np.array([self._is_late(path_id, hot) for path_id in paths.tolist()], np.bool_)
        is_late &= self._series.rows_of(paths) >= 0
        paths, rates = paths[is_late], rates[is_late]
        rails = np.array([rail_of(table.nics[nic]) for nic in table.ends[paths, 0].tolist()])
        for rail in np.unique(rails):
            late, carried_bps = paths[rails == rail], rates[rails == rail]
            if 1 < len(late) <= _MOST_LATE:
                yield late, shared_delays(self._between_ns(late), hot.least_ns, carried_bps, self._line_bps(rail))

    def _between_ns(self, late: NDArray[np.intp]) -> NDArray[np.float64]:
        """What late paths have more than the quickest ones from the same NICs and to the same NICs, tenth by tenth.

        Where a NIC has no other path in use, nothing tells what of a delay is its own.
        """
        series, ends = self._series, self._inventory.paths.ends
        beside = np.isin(ends[series.paths], ends[late]).any(axis=1)
        paths = series.paths[beside]
        excess_ns = series.delays_ns(np.flatnonzero(beside)) - self._queues.bases_ns(paths)[:, None]
        found: NDArray[np.float64] = excess_ns[np.searchsorted(paths, late)]
        for side in (0, 1):
            at = ends[paths, side]
            for nic in np.unique(ends[late, side]).tolist():
                own_ns = excess_ns[at == nic]
                if len(own_ns) > 1:
                    found[ends[late, side] == nic] -= np.maximum(np.fmin.reduce(own_ns, axis=0), 0.0)
        return found

    def _is_late(self, path_id: int, hot: HotPlaces) -> bool:
        """Whether a silent path is late by no doing of its NICs."""
        if not self._links.is_silent(path_id):
            return False
        excess_ns = hot.excess_ns(path_id)
        first, _, last = self._links.of(path_id)
        return hot.is_late(path_id) and hot.is_cold(first, excess_ns) and hot.is_cold(last, excess_ns)

    def _line_bps(self, rail: str) -> float:
        """The most that a NIC of a rail has carried: the NICs of a rail are alike, and links between routers too.

        Where senders are often not heard, it is known of single flows alone.
        """
        flows = self._flows
        links = np.unique(flows.source)
        own = [
            link for link in links[links >= 0].tolist() if rail_of(self._links.names[link].partition("/")[0]) == rail
        ]
        flow_bps = flows.best[np.isin(flows.source, own)].max(initial=0.0)
        return max(float(flow_bps), *map(self._loads.best, own))

    def _is_between_several(self, paths: NDArray[np.intp]) -> bool:
        """Whether paths have several NICs at either end. Else the one may be why they are late."""
        ends = self._inventory.paths.ends[paths]
        return len(np.unique(ends[:, 0])) > 1 and len(np.unique(ends[:, 1])) > 1

    def _note(self, paths: NDArray[np.intp], late: NDArray[np.intp], correlation: float, now_ns: int) -> list[int]:
        """Gives a group of late paths its link: the one that some of them have, or a new one."""
        names = [self._inventory.paths.names[path_id] for path_id in paths.tolist()]
        known = {self._links.inferred_of(path_id) for path_id in paths.tolist()} - {""}
        link = min(known) if known else self._new_name(names)
        self._seen_ns[link], self.correlation[link] = now_ns, correlation
        stay = {*self._links.crossing(self._links.id_of(link)).tolist()} - {*late.tolist()}
        return self._links.infer(link, {*paths.tolist(), *stay})

    def _new_name(self, names: list[str]) -> str:
        link = inferred_link(names)
        self._loads.forget(self._links.id_of(link))  # another link may have had this name before
        return link


def _by_path(paths: NDArray[np.intp], rates: NDArray[np.float64]) -> tuple[NDArray[np.intp], NDArray[np.float64]]:
    """Each path once, and what all flows on it get."""
    found, places = np.unique(paths, return_inverse=True)
    return found, np.bincount(places, rates, len(found)).astype(np.float64)
