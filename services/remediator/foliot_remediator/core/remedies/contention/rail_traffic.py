"""What a rail carries now, and which of it may be moved, and where to."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from foliot.jobs import NO_PRIORITY
from foliot.link_map import UNNAMED, is_between_routers
from foliot_remediator.core.state.inventory import path_name
from foliot_remediator.core.steering.rail_flows import Carried, Move, Plan, RailFlows
from foliot_schemas import Placement

if TYPE_CHECKING:
    from collections.abc import Collection

    import numpy as np

    from foliot_remediator.core.actions.fleet_view import FleetView
    from foliot_remediator.core.state.inventory import Destination
    from foliot_remediator.core.steering.event_links import EventLinks
    from foliot_schemas.event import Evidence

_PAUSE_NS = 10_000_000_000
"""A flow that has sent within this time will want its link again: a step of a job may be a pause as long."""


_UNMAPPED_SHARE = 0.1
"""Share of a rail's traffic of which it may be unknown over which links it goes. More of it could fill any way that
seems free, as in the half minute after a start in which nodes tell their paths."""


@dataclass(slots=True)
class _Traffic:
    """The flows to one destination together."""

    rate_bps: float = 0.0
    best_bps: float = 0.0
    is_limited: bool = False
    priority: int = NO_PRIORITY
    """The highest of these flows."""


class RailTraffic:
    """The traffic that takes a rail, at one moment.

    Parameters:
        links: of all ways; those that it names are the ones on which flows are said to be short.
        held: destinations that are not to be moved yet.
    """

    def __init__(
        self, view: FleetView, rail: str, links: EventLinks, held: Collection[Destination], now_ns: int
    ) -> None:
        self._view, self._rail, self._all_links, self._held, self._now_ns = view, rail, links, held, now_ns
        found = self._found = self._present()
        ways = {each: view.routing.way(each) for each in found}
        short = [each for each, way in ways.items() if self._links(each, way).intersection(links.named)]
        others = {each: self._others(each, ways[each]) for each in short}
        reached = {link for each, own in others.items() for way in own for link in self._links(each, way)}
        for each, way in ways.items():  # who is there may make room
            if each not in others and self._links(each, way) & reached:
                others[each] = self._others(each, way)
        self._short = short
        self._ways = sum(len(others[each]) for each in short)
        self.carried = [
            Carried(each, ways[each], was.rate_bps, was.best_bps, was.is_limited, others.get(each, ()), was.priority)
            for each, was in found.items()
        ]

    def unmapped(self) -> Evidence | None:
        """The numbers, if too much of the traffic goes over unknown links; None: it does not.

        Where the contended link is inferred, routers are silent, and what fills a way is seen by its delay alone.
        """
        if self._all_links.is_inferred:
            return None
        rates = {each: max(each.rate_bps, each.best_bps) for each in self.carried}
        unmapped = sum(rate for each, rate in rates.items() if not self._is_mapped(each.destination, each.way))
        if unmapped <= _UNMAPPED_SHARE * sum(rates.values()):
            return None
        return {"mbps_of_rail": sum(rates.values()) / 1e6, "mbps_unmapped": unmapped / 1e6}

    def plan(self, rng: np.random.Generator, most: int) -> Plan:
        """See `RailFlows.plan`."""
        if not self._ways:
            return Plan()
        line_bps = self._view.flows.line_bps(self._rail)
        return RailFlows(self.carried, self._all_links, line_bps).plan(rng, most)

    def evidence(self) -> Evidence:
        """The numbers behind a plan without moves."""
        held = sum(each in self._held for each in self._short)
        return {"flows": len(self._short), "flows_held": held, "ways": self._ways, "flows_of_rail": len(self.carried)}

    def came_bps(self, move: Move) -> float:
        """What traffic has now that shares a link with a move's way, and was not there when it was planned; bits/s."""
        links = {*self._all_links.of(path_name(move.destination.node, move.way))}
        known = {move.destination, *move.sharing}
        return sum(
            each.rate_bps for each in self.carried
            if each.destination not in known
            and not links.isdisjoint(self._all_links.of(path_name(each.destination.node, each.way)))
        )  # fmt: skip

    # -- inside -------------------------------------------------------------------------------------------------------

    def _present(self) -> dict[Destination, _Traffic]:
        """The traffic of the rail by destination, in a stable order."""
        view = self._view
        found: dict[Destination, _Traffic] = {}
        for flow, history in view.flows.since(self._now_ns - _PAUSE_NS):
            destination = history.destination
            if view.routing.way(destination).via == self._rail:
                priority = view.jobs.priority_of(flow)
                traffic = found.setdefault(destination, _Traffic(priority=priority))
                traffic.priority = max(traffic.priority, priority)
                traffic.best_bps += history.best_bps
                if view.flows.is_sending(flow, self._now_ns):
                    traffic.rate_bps += history.rate_bps
                    traffic.is_limited |= history.is_limited
        return dict(sorted(found.items()))

    def _links(self, destination: Destination, way: Placement) -> frozenset[str]:
        """The links between routers of a way."""
        return frozenset(filter(is_between_routers, self._all_links.of(path_name(destination.node, way))))

    def _is_mapped(self, destination: Destination, way: Placement) -> bool:
        links = self._all_links.of(path_name(destination.node, way))
        return bool(links) and UNNAMED not in links

    def _others(self, destination: Destination, present: Placement) -> tuple[Placement, ...]:
        """The ways that a destination's traffic may take besides the present one, one for each route."""
        if not self._may_move(destination, present):
            return ()
        node, peer, rail = destination
        known = {self._all_links.of(path_name(node, present))}
        entropies = range(self._view.inventory.entropies(node, peer, self._rail))
        ways = [Placement(peer=peer, rail=rail, via=self._rail, entropy=entropy) for entropy in entropies]
        found = []
        for way in sorted(ways, key=lambda way: self._all_links.rank(path_name(node, way))):
            links = self._all_links.of(path_name(node, way))
            if links in known or not self._is_mapped(destination, way):
                continue
            if self._view.selector.usable(node, way, self._now_ns):
                known.add(links)
                found.append(way)
        return tuple(found)

    def _may_move(self, destination: Destination, way: Placement) -> bool:
        """Whether it is at home and well there.

        Failover's moves are failover's, and what an administrator placed is his.
        """
        view, node = self._view, destination.node
        away = {(node, destination.rail), (node, self._rail)} & view.routing.away.keys()
        if away or destination in view.routing.moved or destination in self._held:
            return False
        if view.selector.homes.is_pinned(destination) or not view.inventory.owns(node):
            return False
        return self._found[destination].rate_bps > 0 and view.selector.usable(node, way, self._now_ns)
