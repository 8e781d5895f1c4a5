"""The way that the traffic of every service address goes.

It is that which its node's agent last reported, else that which the remediator wants.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from foliot_gateway.state.cardinality_limit import MOST_STRANGERS
from foliot_schemas import NodePaths, Outcome, Placement
from foliot_schemas.names import nic_name

if TYPE_CHECKING:
    from collections.abc import Iterable

    from foliot_gateway.state.cardinality_limit import CardinalityLimit
    from foliot_gateway.state.date import Date

_Address = tuple[str, str]
"""A service address: its node and its rail."""
_NOTHING = NodePaths(node="", lease_revision=0)
"""The wanted ways of a node of which none are wanted."""


class RoutingView:
    """The ways in force. A method that takes a message returns the NICs whose traffic it may have moved."""

    def __init__(self, limit: CardinalityLimit) -> None:
        self._limit = limit
        self._addresses = 0
        """The number of service addresses with a report, of all nodes."""
        self._wanted: dict[str, NodePaths] = {}
        self._away: dict[_Address, tuple[Date, bool]] = {}
        """Per node and rail: when its agent last reported of it, and whether its traffic is away."""
        self._reported: dict[str, dict[_Address, tuple[Date, Placement]]] = {}
        """Per node and service address: when its agent last reported of it, and the way in force."""
        self._out: dict[str, dict[str, bool]] = {}
        self._into: dict[str, dict[str, bool]] = {}
        """Per NIC: the NICs that its traffic goes to, or that traffic to it comes from; and whether another rail
        carries it."""

    def want(self, node: str, wanted: NodePaths | None) -> set[str]:
        """Takes the ways that the remediator wants in force on a node."""
        if wanted is not None and node not in self._limit.nodes and not self._limit.has_for(node, self._wanted):
            return set()
        before, now = self._wanted.pop(node, _NOTHING), wanted or _NOTHING
        if wanted is not None:
            self._wanted[node] = wanted
        olds, news = _by_address(before.placements), _by_address(now.placements)
        unreported = (olds.keys() | news.keys()) - self._reported.get(node, {}).keys()
        touched = {nic for address in unreported for nic in self._count(node, address, news.get(address))}
        return touched | {nic_name(node, rail) for rail in (*before.away, *now.away)}

    def report(self, outcome: Outcome, date: Date) -> set[str]:
        """Takes the ways that an agent has put in force; an older report never overrides a newer one."""
        touched: set[str] = set()
        for rails, is_away in ((outcome.away, True), (outcome.back, False)):
            for rail in rails:
                own, nic = (outcome.node, rail), nic_name(outcome.node, rail)
                if not self._limit.has_for(own, self._away) and nic not in self._limit.nics:
                    continue
                if own not in self._away or not date.is_before(self._away[own][0]):
                    self._away[own] = date, is_away
                    touched.add(nic)
        reported = self._reported.get(outcome.node, {})
        for address, placement in _by_address(outcome.placements).items():
            if address not in reported:
                known = outcome.node in self._limit.nodes and nic_name(*address) in self._limit.nics
                if self._addresses >= MOST_STRANGERS and not known:
                    continue
                self._addresses += 1
                reported = self._reported.setdefault(outcome.node, {})
            if address not in reported or not date.is_before(reported[address][0]):
                reported[address] = date, placement
                touched.update(self._count(outcome.node, address, placement))
        return touched

    def forget(self, node: str) -> set[str]:
        """Forgets a node that has left, as nothing wanted or reported of it says anything of its return."""
        reported = self._reported.pop(node, {})
        self._addresses -= len(reported)
        touched = {nic for address in reported for nic in self._count(node, address, None)} | self.want(node, None)
        for rail in [rail for name, rail in self._away if name == node]:
            del self._away[node, rail]
            touched.add(nic_name(node, rail))
        return touched

    def is_away(self, node: str, rail: str) -> bool:
        """Whether the traffic of a node's NIC goes another way because the node does not use it."""
        if (node, rail) in self._away:
            return self._away[node, rail][1]
        return rail in self._wanted.get(node, _NOTHING).away

    def is_moved(self, node: str, rail: str) -> bool:
        """Whether all of a NIC's traffic goes elsewhere, out of it or to it."""
        nic = nic_name(node, rail)
        ends = (self._out.get(nic), self._into.get(nic))
        return self.is_away(node, rail) or any(each and all(each.values()) for each in ends)

    def in_force_of(self, node: str) -> set[str]:
        """The paths that traffic of jobs takes from a node."""
        return {path_by(node, way) for way in self.ways(node).values()}

    def ways(self, node: str) -> dict[tuple[str, str], Placement]:
        """The way of a node's traffic to each service address, which is a node and a rail."""
        wanted = self._wanted.get(node, _NOTHING)
        ways = _by_address(wanted.placements)
        ways |= {address: way for address, (_, way) in self._reported.get(node, {}).items()}
        # While a rail's own NIC is lost, the rule for the armed backups comes before the routes of `ways`.
        return ways | _by_address(way for way in wanted.backups if self.is_away(node, way.rail))

    def _count(self, node: str, address: _Address, way: Placement | None) -> tuple[str, str]:
        peer, rail = address
        source, destination = nic_name(node, rail), nic_name(peer, rail)
        for ends_of, nic, end in ((self._out, source, destination), (self._into, destination, source)):
            if way is not None:
                ends_of.setdefault(nic, {})[end] = way.via != rail
            elif nic in ends_of:
                ends_of[nic].pop(end, None)
                if not ends_of[nic]:
                    del ends_of[nic]
        return source, destination


def path_by(node: str, way: Placement) -> str:
    """The path of a way from a node."""
    return f"{nic_name(node, way.via)}>{nic_name(way.peer, way.via)}#{way.entropy}"


def _by_address(ways: Iterable[Placement]) -> dict[_Address, Placement]:
    return {(way.peer, way.rail): way for way in ways}
