"""Keeps every node supplied with the ways in force, and with the armed backup of each."""

from __future__ import annotations

import hashlib
import operator
from typing import TYPE_CHECKING

import msgspec

from foliot_remediator.core.scheduling import Round, Soon
from foliot_schemas import NodePaths, encode

if TYPE_CHECKING:
    from collections.abc import Iterable

    from foliot_remediator.core.routing.path_selection import PathSelector
    from foliot_remediator.core.state.inventory import Destination, Inventory
    from foliot_remediator.core.state.routing_table import RoutingTable
    from foliot_remediator.settings import RemediatorSettings
    from foliot_schemas import Placement


_ORDER = operator.attrgetter("peer", "rail")
_WRITE_GAP_NS = 100_000_000
"""Time between a change of a node's ways and its being written. The command is there first, and a burst of changes
is one write. Until then, probes watch the way of before."""
_CHANGED_PER_S = 20_000
"""Most destinations a second to look through on nodes where something has changed. Each takes some 6 us, so this is
an eighth of a core."""
_ROUND_PER_S = 8_000
"""Most destinations a second to look through on all the others in turn, less those looked through because of a
change. It takes a second for 64 nodes on two rails that all know each other. In a larger fleet the round takes
longer: it finds backups that fell silent, which events say as well."""
_STRETCH_S = 0.025
"""How much to look through at a stretch: the destinations of so many seconds, but always one node. That takes 3 ms,
for which an event may have to wait."""


class _Credit:
    """Destinations that may be looked through, so many more with each second."""

    def __init__(self, per_s: float) -> None:
        self.left = 0.0
        self._per_s = per_s
        self._earned_ns = 0

    def earn(self, now_ns: int) -> None:
        """Takes what the time since the last call has brought."""
        more = max(now_ns - self._earned_ns, 0) / 1e9 * self._per_s
        self.left, self._earned_ns = min(self.left + more, self._per_s * _STRETCH_S), now_ns

    def spend(self, count: int) -> None:
        """Takes off so many that were looked through; never more than a second's are owed."""
        self.left = max(self.left - count, -self._per_s)


class BackupArmer:
    """Looks through one node after the other, and writes what changed, not more often than needed."""

    def __init__(
        self, settings: RemediatorSettings, inventory: Inventory, routing: RoutingTable, selector: PathSelector
    ) -> None:
        self._inventory = inventory
        self._routing = routing
        self._selector = selector
        self._changed, self._affected = Soon(_WRITE_GAP_NS), Soon(_WRITE_GAP_NS)
        self._round = Round(round(settings.review_s * 1e9))
        self._round_credit = _Credit(_ROUND_PER_S)
        self._turns = ((self._changed, _Credit(_CHANGED_PER_S)), (self._affected, _Credit(_CHANGED_PER_S)),
            (self._round, self._round_credit))  # fmt: skip
        self._written: dict[str, bytes] = {}
        """Per node, a digest of what its key holds: the values themselves would take a kilobyte and more each."""

    def join(self, node: str) -> None:
        """Adds a new node, to be looked through next."""
        self._round.join(node)

    def leave(self, node: str) -> None:
        """Forgets a node that has left."""
        self._written.pop(node, None)
        for turns in (self._changed, self._affected, self._round):
            turns.leave(node)

    def stored(self, paths: NodePaths) -> bool:
        """Takes what the bucket has for a node; says whether that is news."""
        before, self._written[paths.node] = self._written.get(paths.node), _digest(paths)
        return self._written[paths.node] != before

    def mark_changed(self, nodes: Iterable[str]) -> None:
        """Puts these nodes before all others: what is in force on them has changed."""
        self._changed.name(nodes)

    def mark_affected(self, nodes: Iterable[str]) -> None:
        """Puts these nodes before those that are only looked through: something beside them has changed."""
        self._affected.name(nodes)

    def begin_anew(self) -> None:
        """Lets a new holder of the lease look through all nodes, and write each: the bus may have lost what it had."""
        self._written.clear()
        self._round.begin_anew()

    def write(self, lease: int, now_ns: int) -> list[NodePaths]:
        """The values that changed, of nodes that were marked a moment ago or whose turn it is.

        A command is to be there before what it changes is written.
        """
        supplies = []
        for turns, credit in self._turns:
            credit.earn(now_ns)
            while credit.left > 0 and (node := turns.take(now_ns)) is not None:
                if node in self._round:
                    self._arm(node, now_ns)
                    paths = self._paths(node, lease)
                    credit.spend(len(paths.placements))
                    if credit is not self._round_credit:  # the round has what is left of its share
                        self._round_credit.spend(len(paths.placements))
                    digest = _digest(paths)
                    if digest != self._written.get(node):
                        self._written[node] = digest
                        supplies.append(msgspec.structs.replace(paths, decided_ns=now_ns))
        return supplies

    # -- inside -------------------------------------------------------------------------------------------------------

    def _arm(self, node: str, now_ns: int) -> None:
        """Renews the node's backups.

        One that stands is kept: a change would cost a route, and an armed move its way.
        """
        backups = ((each, self._backup(each, now_ns)) for each in self._inventory.destinations(node))
        self._routing.backups[node] = {(each.peer, each.rail): backup for each, backup in backups if backup is not None}

    def _backup(self, destination: Destination, now_ns: int) -> Placement | None:
        node, armed = destination.node, self._routing.backup(destination)
        if armed is not None:
            if (node, destination.rail) in self._routing.away:
                return armed  # it carries the traffic; what to do when it is lost is not decided here
            if armed.via != self._routing.placed(destination).via and self._selector.stands(node, armed, now_ns):
                return armed
        return self._selector.spare(destination, self._routing.way(destination), now_ns)

    def _paths(self, node: str, lease: int) -> NodePaths:
        placements = sorted(map(self._routing.placed, self._inventory.destinations(node)), key=_ORDER)
        backups = sorted(self._routing.backups[node].values(), key=_ORDER)
        away = sorted(rail for rail in self._inventory.rails(node) if (node, rail) in self._routing.away)
        return NodePaths(
            node=node, lease_revision=lease, away=tuple(away), placements=tuple(placements), backups=tuple(backups),
            homes=tuple(self._routing.homes_left(node)),
        )  # fmt: skip


def _digest(paths: NodePaths) -> bytes:
    """Of all but the time: the same ways are not written again."""
    return hashlib.blake2b(encode(msgspec.structs.replace(paths, decided_ns=0)), digest_size=16).digest()
