"""What the flows at a place tell of it, and the event that says so."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from foliot.link_map import is_between_routers, link_in, link_out
from foliot_detector.core.detectors.contention.alternatives import Alternatives
from foliot_detector.core.detectors.contention.flow_shares import BETTER, FlowShares, flow_shares
from foliot_detector.core.detectors.contention.link_loads import FELL

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from numpy.typing import NDArray

    from foliot_detector.core.detectors.contention.flow_table import FlowTable
    from foliot_detector.core.detectors.contention.hot_places import HotPlaces, Place
    from foliot_detector.core.detectors.contention.link_index import LinkIndex
    from foliot_detector.core.detectors.contention.link_loads import LinkLoads
    from foliot_detector.core.detectors.contention.port_rates import PortRates
    from foliot_detector.core.state.inventory import Inventory
    from foliot_schemas.event import Evidence

CONTENDED = "fabric-contention"
"""The state of flows that share a link between routers while others have room."""
_WIDER = 1.2
"""A NIC that carried more than this times what arrives at it now is not what holds that up."""
_GUESSED = 0.8
"""Confidence where no flow ever got more than now, so that only the others' rates tell what it could get."""


class Finding(NamedTuple):
    """A verdict in one moment."""

    who: str
    state: str
    links: tuple[int, ...]
    flows: tuple[str, ...]
    share: float
    """The slowest flow's."""
    usual_bps: float
    """What that flow could get."""
    capacity_bps: float
    confidence: float
    evidence: Evidence
    related: Mapping[str, tuple[str, ...]] = MappingProxyType({})
    """Of an inferred link, the `paths` that share it, and those of these flows that are `free` of it."""

    @property
    def key(self) -> tuple[str, str]:
        """Findings with the same key are of one trouble."""
        return self.who, self.state


class _Load(NamedTuple):
    """What a place carries now, and at best."""

    carried_bps: float
    best_bps: float


class Judge:
    """Turns hot places into findings.

    Parameters:
        share: a flow with less of what it could get is short.
    """

    def __init__(
        self,
        inventory: Inventory,
        links: LinkIndex,
        flows: FlowTable,
        loads: LinkLoads,
        ports: PortRates,
        *,
        share: float,
    ) -> None:
        self._inventory = inventory
        self._links = links
        self._flows = flows
        self._loads = loads
        self._ports = ports
        self._alternatives = Alternatives(inventory, links, flows, loads)
        self._share = share
        self.correlations: Mapping[str, float] = {}
        """By inferred link, how alike the delays of its paths are."""

    def judge(self, place: Place, slow: NDArray[np.intp], hot: HotPlaces, now_ns: int) -> Finding | None:
        """What a place does to the flows for which it is the hot one; None: nothing that is worth an event."""
        flows = self._flows
        crossing = flows.crossing(list(place.links))
        members = np.flatnonzero(crossing & flows.is_limited)
        link = place.links[0]
        unknown = crossing & (flows.is_unknown | flows.is_lost)
        if unknown.any() or not len(members) or not self._loads.fill(link, now_ns):
            return None
        load = _Load(float(self._loads.carried[link]), self._loads.best(link))
        if load.carried_bps < FELL * load.best_bps:
            is_sure = self._is_all_told(place, now_ns) and not self._links.is_inferred(link)
            if not is_sure or self._are_short_elsewhere(place, members, hot):
                return None
            return self._reduced(place, members, load)
        named = self._name(place, members, load.carried_bps, hot) if len(members) > 1 else None
        if named is None:
            return None
        who, state, helped = named
        shares = flow_shares(flows, self._loads, helped[np.isin(helped, slow)], members, load.carried_bps)
        if not len(shares.rows) or shares.share.min() >= self._share:
            return None
        finding = self._finding((who, state), place, members, shares, load)
        return self._inferred(finding, place, members, hot) if self._links.is_inferred(link) else finding

    def is_still(
        self, place: Place, state: str, usual_bps: Mapping[str, float], capacity_bps: float, least: float
    ) -> bool:
        """Whether flows are still short at a place, by rates alone.

        Parameters:
            usual_bps: what each flow could get when the trouble began.
            least: the share of it that ends the trouble.
        """
        flows = self._flows
        crossing = flows.crossing(list(place.links))
        if (crossing & flows.is_unknown).any():
            return True  # nobody knows
        members = np.flatnonzero(crossing & flows.is_limited)
        carried_bps = float(self._loads.carried[place.links[0]])
        if state == "reduced-rate":
            return bool(len(members)) and carried_bps < least * capacity_bps
        if len(members) < 2:
            return False
        own = flows.best[members].max(axis=1)
        usual = np.array([usual_bps.get(flows.names[row], 0.0) for row in members.tolist()])
        could = np.minimum(np.maximum(own, usual), carried_bps)
        return bool((flows.rate[members] < least * could).any())

    def still_share(self, place: Place, named: Collection[str]) -> bool:
        """Whether two of the flows that an event named take the place still, or nobody knows.

        Others may have come when these went. They are a trouble of their own, with flows that can be moved for it.
        """
        flows = self._flows
        crossing = flows.crossing(list(place.links))
        rows = [row for row in map(flows.row_of, named) if row >= 0]
        return bool((crossing & flows.is_unknown).any()) or int(crossing[rows].sum()) > 1

    def slow_receivers(self, hot: HotPlaces, excess_ns: NDArray[np.float64], rows: NDArray[np.intp]) -> list[Finding]:
        """Flows that wait for their receivers, on paths without a queue (`excess_ns`, one for each row)."""
        flows = self._flows
        cold = rows[excess_ns < hot.least_ns]
        capacity = self._loads.bests(flows.source[cold])
        could = np.maximum(flows.best[cold].max(axis=1), capacity)
        share = flows.rate[cold] / np.maximum(could, 1.0)
        # What never carried more tells nothing of what it could: there the kernel's word has to do.
        short = (share < self._share) | (could <= BETTER * flows.rate[cold])
        return [
            self._unread(row, usual_bps)
            for row, usual_bps in zip(cold[short].tolist(), could[short].tolist(), strict=True)
        ]

    def usual_bps(self, finding: Finding) -> dict[str, float]:
        """What each flow of a finding could get."""
        rows = np.array([self._flows.row_of(flow) for flow in finding.flows], np.intp)
        carried_bps = float(self._loads.carried[finding.links[0]]) if finding.links else 0.0
        could = flow_shares(self._flows, self._loads, rows, rows, carried_bps).could_bps
        return dict(zip(finding.flows, could.tolist(), strict=True))

    # -- inside -------------------------------------------------------------------------------------------------------

    def _name(
        self, place: Place, members: NDArray[np.intp], carried_bps: float, hot: HotPlaces
    ) -> tuple[str, str, NDArray[np.intp]] | None:
        """Who is the place, what is done there, and to which flows; None: nothing that moving or waiting would mend."""
        names = [self._links.names[link] for link in place.links]
        sources, destinations = self._ends(members)
        if len(sources) < 2:
            sender = next(iter(sources))
            # What never had more may be one job's own doing, and TCP shares unevenly.
            had_more = members[self._flows.best[members].max(axis=1) > BETTER * self._flows.rate[members]]
            return (sender, "own-nic", had_more) if link_out(sender) in names else None
        receiver = min(destinations)
        if len(destinations) == 1 and (link_in(receiver) in names or self._is_narrow(receiver, carried_bps)):
            return receiver, "incast", members
        between = sorted(filter(is_between_routers, names))
        helped = self._alternatives.helped(place, members, carried_bps, hot) if between else members[:0]
        return (between[0], CONTENDED, helped) if len(helped) else None

    def _ends(self, members: NDArray[np.intp]) -> tuple[set[str], set[str]]:
        """The NICs at which the paths of these flows begin, and those at which they end."""
        paths = [self._inventory.paths.path(place) for place in self._flows.path[members].tolist()]
        return {path.source for path in paths}, {path.destination for path in paths}

    def _is_narrow(self, receiver: str, carried_bps: float) -> bool:
        """Whether a NIC is not known to take more than this: then its own link would hold up the flows as well."""
        return self._loads.best(self._links.id_of(link_in(receiver))) <= _WIDER * carried_bps

    def _is_all_told(self, place: Place, now_ns: int) -> bool:
        """Whether all nodes with paths over a place are heard. One that is not may send what the others lack."""
        table = self._inventory.paths
        nodes = np.unique(table.source_node[self._links.crossing(place.links[0])]).tolist()
        return all(self._inventory.is_heard(table.nodes[node], now_ns) for node in nodes)

    def _are_short_elsewhere(self, place: Place, members: NDArray[np.intp], hot: HotPlaces) -> bool:
        """Whether flows of the same nodes share another full link.

        A job's flows wait for each other, and acknowledgements for the flows beside them. So these send less, and while
        they send, their own queue stands.
        """
        table, flows = self._inventory.paths, self._flows
        nodes = np.concatenate([table.source_node[flows.path[members]], table.destination_node[flows.path[members]]])
        others = np.flatnonzero(flows.is_limited & (flows.path >= 0) & ~flows.crossing(list(place.links)))
        paths = flows.path[others]
        beside = np.isin(table.source_node[paths], nodes) | np.isin(table.destination_node[paths], nodes)
        return any(self._is_shared(hot.on(path_id)) for path_id in np.unique(paths[beside]).tolist())

    def _is_shared(self, place: Place | None) -> bool:
        """Whether a place carries what it can, of more than one flow."""
        if place is None:
            return False
        link = place.links[0]
        is_full = float(self._loads.carried[link]) >= FELL * self._loads.best(link)
        crossing = self._flows.crossing(list(place.links))
        return is_full and int((crossing & self._flows.is_limited).sum()) > 1

    def _reduced(self, place: Place, members: NDArray[np.intp], load: _Load) -> Finding | None:
        names = [self._links.names[link] for link in place.links]
        between = sorted(filter(is_between_routers, names))
        sources, destinations = self._ends(members)
        who = between[0] if between else ""
        for nic, link, counted in (
            *((nic, link_out(nic), self._ports.sent_bps) for nic in sources),
            *((nic, link_in(nic), self._ports.received_bps) for nic in destinations),
        ):
            if link in names:
                who = nic
                if counted.get(nic, 0.0) > FELL * load.best_bps:
                    return None  # its port carries what it did: others have the rest
        share = load.carried_bps / load.best_bps
        if not who or share >= self._share:
            return None
        rate = self._flows.rate[members]
        shares = FlowShares(members, rate / share, np.full(len(members), share), np.ones(len(members), np.bool_))
        return self._finding((who, "reduced-rate"), place, members, shares, load)

    def _finding(
        self, named: tuple[str, str], place: Place, members: NDArray[np.intp], shares: FlowShares, load: _Load
    ) -> Finding:
        who, state = named
        capacity_bps = max(load)
        slowest = int(shares.share.argmin())
        usual_bps, row = float(shares.could_bps[slowest]), int(shares.rows[slowest])
        share = float(shares.share[slowest])
        return Finding(
            who=who, state=state, links=place.links,
            flows=tuple(sorted(self._flows.names[each] for each in members.tolist())),
            share=share, usual_bps=usual_bps, capacity_bps=capacity_bps,
            confidence=1.0 if shares.has_better[slowest] else _GUESSED,
            evidence={
                "queue_us": round(place.queue_ns / 1e3, 1),
                "paths": place.paths,
                "flows": len(members),
                "slowest": self._flows.names[row],
                "slowest_share": round(share, 3),
                "slowest_mbps": round(float(self._flows.rate[row]) / 1e6, 3),
                "usual_mbps": round(usual_bps / 1e6, 3),
                "carried_mbps": round(load.carried_bps / 1e6, 3),
                "capacity_mbps": round(capacity_bps / 1e6, 3),
            },
        )  # fmt: skip

    def _inferred(self, finding: Finding, place: Place, members: NDArray[np.intp], hot: HotPlaces) -> Finding:
        """What is known of an inferred link besides: nobody can look it up in the map."""
        names = self._inventory.paths.names
        paths = self._links.crossing(place.links[0]).tolist()
        free = self._alternatives.on_time(place, members, hot)
        evidence = finding.evidence | {"correlation": round(self.correlations.get(finding.who, 0.0), 3)}
        return finding._replace(evidence=evidence, related={
            "paths": tuple(sorted(names[path_id] for path_id in paths)), "free": tuple(names[each] for each in free),
        })  # fmt: skip

    def _unread(self, row: int, usual_bps: float) -> Finding:
        flows = self._flows
        flow, rate = flows.names[row], float(flows.rate[row])
        usual_bps = max(usual_bps, rate, 1.0)
        return Finding(
            who=flow, state="slow-receiver", links=(), flows=(flow,), share=rate / usual_bps, usual_bps=usual_bps,
            capacity_bps=usual_bps, confidence=1.0,
            evidence={
                "receiver_limited_share": round(float(flows.unread[row]), 3),
                "busy_share": round(float(flows.busy[row]), 3),
                "flows": 1,
                "slowest": flow,
                "slowest_share": round(rate / usual_bps, 3),
                "slowest_mbps": round(rate / 1e6, 3),
                "usual_mbps": round(usual_bps / 1e6, 3),
            },
        )  # fmt: skip
