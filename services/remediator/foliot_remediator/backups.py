"""What every node is kept supplied with: the ways in force, and the armed backup of each."""

from __future__ import annotations

import collections
from typing import TYPE_CHECKING

import msgspec

from foliot_schemas import NodePaths

if TYPE_CHECKING:
    from collections.abc import Iterable

    from foliot_remediator.fleet import Destination, Fleet
    from foliot_remediator.placement import Chooser
    from foliot_remediator.settings import RemediatorSettings
    from foliot_remediator.ways import Ways
    from foliot_schemas import Placement


_DESTINATIONS_PER_S = 20_000
"""Looked through at most: some 6 us each, so an eighth of a core. In a fleet with more of them the round takes longer."""
_MOST_CREDIT = 500
"""Destinations at a stretch, but always one node: 3 ms, for which an event may have to wait."""


class Supply(msgspec.Struct, frozen=True, kw_only=True):
    """A node's key in the bucket `paths` is to be written."""

    paths: NodePaths


class Supplier:
    """Looks through one node after the other, and writes what changed, not more often than needed."""

    def __init__(self, settings: RemediatorSettings, fleet: Fleet, ways: Ways, chooser: Chooser) -> None:
        self._fleet = fleet
        self._ways = ways
        self._chooser = chooser
        self._review_ns = round(settings.review_s * 1e9)
        self._gap_ns = round(settings.write_gap_s * 1e9)
        self._turn: collections.deque[tuple[str, int]] = collections.deque()
        self._touched: dict[str, int | None] = {}
        """Nodes of which something in force has changed, and from when on that may be written; None: to be set."""
        self._reviewed: dict[str, None] = {}
        self._credit = 0.0
        self._counted_ns = 0
        self._written: dict[str, NodePaths] = {}

    def join(self, node: str) -> None:
        """A node is new: it is looked through next."""
        self._turn.appendleft((node, 0))
        self._touched[node] = 0

    def leave(self, node: str) -> None:
        """A node has left."""
        self._turn = collections.deque(entry for entry in self._turn if entry[0] != node)
        for kept in (self._touched, self._reviewed, self._written):
            kept.pop(node, None)

    def stored(self, paths: NodePaths) -> None:
        """What the bucket has for a node."""
        self._written[paths.node] = paths

    def touch(self, nodes: Iterable[str]) -> None:
        """What is in force on these nodes has changed: they come before those that are only looked through."""
        for node in nodes:
            self._touched.setdefault(node, None)

    def due(self, now_ns: int) -> list[str]:
        """The nodes whose turn it is to be looked through; each comes once per interval."""
        found = []
        while self._turn and now_ns - self._turn[0][1] >= self._review_ns:
            node, _ = self._turn.popleft()
            self._turn.append((node, now_ns))
            found.append(node)
        self._reviewed |= dict.fromkeys(found)
        return found

    def write(self, lease: int, now_ns: int) -> list[Supply]:
        """What changed on the nodes that were touched, a moment ago: a command is to be there before what it changes is written."""
        earned = (now_ns - self._counted_ns) / 1e9 * _DESTINATIONS_PER_S
        self._credit, self._counted_ns = min(self._credit + max(earned, 0.0), _MOST_CREDIT), now_ns
        supplies = []
        for node in [*self._touched, *(node for node in self._reviewed if node not in self._touched)]:
            if self._credit <= 0:
                break
            due_ns = self._touched.get(node, 0)
            if due_ns is None:
                due_ns = self._touched[node] = now_ns + self._gap_ns
            if now_ns < due_ns:
                continue
            self._touched.pop(node, None)
            self._reviewed.pop(node, None)
            if node in self._fleet.nodes:
                supplies += self._renew(node, lease, now_ns)
        return supplies

    # -- inside -------------------------------------------------------------------------------------------------------

    def _renew(self, node: str, lease: int, now_ns: int) -> list[Supply]:
        self._arm(node, now_ns)
        paths = self._paths(node, lease)
        self._credit -= len(paths.placements)
        if paths == self._written.get(node):
            return []
        self._written[node] = paths
        return [Supply(paths=paths)]

    def _arm(self, node: str, now_ns: int) -> None:
        """Renews the node's backups. One that stands is kept: a change would cost a route, and an armed move its way."""
        armed = self._ways.backups.setdefault(node, {})
        wanted: dict[tuple[str, str], Placement] = {}
        for destination in self._fleet.destinations(node):
            key = destination.peer, destination.rail
            backup = self._backup(destination, armed.get(key), now_ns)
            if backup is not None:
                wanted[key] = backup
        self._ways.backups[node] = wanted

    def _backup(self, destination: Destination, armed: Placement | None, now_ns: int) -> Placement | None:
        node = destination.node
        if armed is not None:
            if (node, destination.rail) in self._ways.away:
                return armed  # it carries the traffic; what to do when it is lost is not decided here
            if armed.via != self._ways.placed(destination).via and self._chooser.stands(node, armed, now_ns):
                return armed
        return self._chooser.spare(destination, self._ways.way(destination), now_ns)

    def _paths(self, node: str, lease: int) -> NodePaths:
        placements = sorted(map(self._ways.placed, self._fleet.destinations(node)), key=_order)
        backups = sorted(self._ways.backups[node].values(), key=_order)
        away = sorted(rail for rail in self._fleet.rails(node) if (node, rail) in self._ways.away)
        return NodePaths(
            node=node, lease_revision=lease, away=tuple(away), placements=tuple(placements), backups=tuple(backups)
        )


def _order(way: Placement) -> tuple[str, str]:
    return way.peer, way.rail
