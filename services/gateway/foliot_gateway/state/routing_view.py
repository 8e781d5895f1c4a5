"""The way that the traffic of every service address goes: as its node's agent last reported, else as the remediator wants it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from foliot_gateway.state.cardinality_limit import MOST_STRANGERS
from foliot_schemas import NodePaths, Outcome, Placement
from foliot_schemas.names import nic_name

if TYPE_CHECKING:
    from collections.abc import Iterable

    from foliot_gateway.state.cardinality_limit import CardinalityLimit

_Address = tuple[str, str]
"""A service address: its node and its rail."""


class RoutingView:
    """The ways in force. A method that takes a message returns the NICs whose traffic it may have moved.

    Parameters:
        limit: says for which ways there is room.
    """

    def __init__(self, limit: CardinalityLimit) -> None:
        self._limit = limit
        self._addresses = 0
        """The number of service addresses with a report, of all nodes."""
        self._wanted: dict[str, NodePaths] = {}
        self._away: dict[_Address, tuple[int, bool]] = {}
        """Per node and rail: when its agent last reported of it, and whether its traffic is away."""
        self._reported: dict[str, dict[_Address, tuple[int, Placement]]] = {}
        """Per node and service address: when its agent last reported of it, and the way in force."""
        self._out: dict[str, _Tally] = {}
        self._into: dict[str, _Tally] = {}
        """Per NIC: the service addresses that its traffic goes to, or that traffic to it comes from."""

    def want(self, node: str, wanted: NodePaths | None) -> set[str]:
        """Takes the ways that the remediator wants in force on a node."""
        if wanted is not None and node not in self._limit.nodes and not self._limit.has_for(node, self._wanted):
            return set()
        before = self._wanted.pop(node, None)
        if wanted is not None:
            self._wanted[node] = wanted
        reported = self._reported.get(node, {})
        olds = _by_address(() if before is None else before.placements)
        news = _by_address(() if wanted is None else wanted.placements)
        touched = {
            nic
            for address in (olds.keys() | news.keys()) - reported.keys()
            for nic in self._count(node, address, news.get(address))
        }
        rails = {rail for each in (before, wanted) if each is not None for rail in each.away}
        return touched | {nic_name(node, rail) for rail in rails}

    def report(self, outcome: Outcome, at_ns: int) -> set[str]:
        """Takes the ways that an agent has put in force; an older report never overrides a newer one."""
        touched: set[str] = set()
        for rails, is_away in ((outcome.away, True), (outcome.back, False)):
            for rail in rails:
                if not self._limit.has_for((outcome.node, rail), self._away) and not self._limit.knows_rail(
                    outcome.node, rail
                ):
                    continue
                if at_ns >= self._away.get((outcome.node, rail), (0, False))[0]:
                    self._away[outcome.node, rail] = at_ns, is_away
                    touched.add(nic_name(outcome.node, rail))
        reported = self._reported.get(outcome.node, {})
        for address, placement in _by_address(outcome.placements).items():
            if address not in reported:
                if self._addresses >= MOST_STRANGERS and not self._knows(outcome.node, address):
                    continue
                self._addresses += 1
                reported = self._reported.setdefault(outcome.node, {})
            if address not in reported or at_ns >= reported[address][0]:
                reported[address] = at_ns, placement
                touched.update(self._count(outcome.node, address, placement))
        return touched

    def forget(self, node: str) -> set[str]:
        """Forgets a node that has left: neither what was wanted nor what was reported of it says anything of its return."""
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
        wanted = self._wanted.get(node)
        return wanted is not None and rail in wanted.away

    def is_moved(self, node: str, rail: str) -> bool:
        """Whether all of a NIC's traffic goes elsewhere, out of it or to it."""
        nic = nic_name(node, rail)
        return self.is_away(node, rail) or any(
            tally is not None and tally.all_elsewhere for tally in (self._out.get(nic), self._into.get(nic))
        )

    def in_force_of(self, node: str) -> set[str]:
        """The paths that traffic of jobs takes from a node."""
        wanted = self._wanted.get(node, NodePaths(node=node, lease_revision=0))
        ways = _by_address(wanted.placements)
        ways |= {address: way for address, (_, way) in self._reported.get(node, {}).items()}
        # While a rail's own NIC is lost, the rule for the armed backups comes before the routes of `ways`.
        ways |= _by_address(way for way in wanted.backups if self.is_away(node, way.rail))
        return {f"{nic_name(node, way.via)}>{nic_name(way.peer, way.via)}#{way.entropy}" for way in ways.values()}

    def _knows(self, node: str, address: _Address) -> bool:
        return node in self._limit.nodes and self._limit.knows_rail(*address)

    def _count(self, node: str, address: _Address, way: Placement | None) -> tuple[str, str]:
        peer, rail = address
        source, destination = nic_name(node, rail), nic_name(peer, rail)
        for tally, end in (
            (self._out.setdefault(source, _Tally()), destination),
            (self._into.setdefault(destination, _Tally()), source),
        ):
            tally.all.discard(end)
            tally.elsewhere.discard(end)
            if way is not None:
                tally.all.add(end)
            if way is not None and way.via != rail:
                tally.elsewhere.add(end)
        for tallies, nic in ((self._out, source), (self._into, destination)):
            if not tallies[nic].all:
                del tallies[nic]
        return source, destination


class _Tally:
    """The far ends of a NIC's traffic, and those of them that are reached by another rail."""

    __slots__ = ("all", "elsewhere")

    def __init__(self) -> None:
        self.all: set[str] = set()
        self.elsewhere: set[str] = set()

    @property
    def all_elsewhere(self) -> bool:
        return bool(self.all) and len(self.elsewhere) == len(self.all)


def _by_address(ways: Iterable[Placement]) -> dict[_Address, Placement]:
    return {(way.peer, way.rail): way for way in ways}
