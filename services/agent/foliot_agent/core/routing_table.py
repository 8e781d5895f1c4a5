"""The routes to every service address, and the detours when NICs are lost. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from foliot_schemas import Placement

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    Destination = tuple[str, str]
    """Peer and rail: names one service address."""
    Dead = Callable[[str, str], bool]
    """Whether the way to a peer via a rail has lost a NIC, at either end."""


def destination_of(placement: Placement) -> tuple[str, str]:
    """The service address that a placement is about."""
    return placement.peer, placement.rail


class RoutingTable:
    """The routes in force on a node, as its actuator keeps them.

    `placements` stand in the tables in force, `backups` in the backup tables, and the rails in `away` go by the latter.
    `rails` has those that the node and a peer both have, in the node's order.
    """

    def __init__(self) -> None:
        self.placements: dict[Destination, Placement] = {}
        self.backups: dict[Destination, Placement] = {}
        self.away: set[str] = set()
        self.rails: dict[str, tuple[str, ...]] = {}

    def way(self, destination: Destination) -> Placement | None:
        """The way that packets take now, by the kernel's rules: on a rail that is away, a backup comes first."""
        if destination[1] in self.away and destination in self.backups:
            return self.backups[destination]
        return self.placements.get(destination)

    def now(self, destinations: Iterable[Destination]) -> tuple[Placement, ...]:
        """The ways in force of these destinations, those that have one."""
        return tuple(way for way in map(self.way, destinations) if way is not None)

    def of_rail(self, rail: str) -> tuple[Destination, ...]:
        """All destinations on a rail."""
        return tuple(destination for destination in self.placements if destination[1] == rail)

    def of_peer(self, peer: str) -> tuple[Destination, ...]:
        """All destinations on a peer."""
        return tuple(destination for destination in self.placements if destination[0] == peer)

    def can_leave(self, rail: str, dead: Dead) -> bool:
        """Whether at least one destination of the rail has a backup that is alive."""
        return any(
            placement.rail == rail and not dead(placement.peer, placement.via) for placement in self.backups.values()
        )

    def can_return(self, rail: str, dead: Dead) -> bool:
        """Whether a rail that is away has backups, all of them dead, and a placement that is alive."""
        backed = any(backup.rail == rail for backup in self.backups.values())
        alive = any(
            placement.rail == rail and not dead(placement.peer, placement.via) for placement in self.placements.values()
        )
        return backed and alive and not self.can_leave(rail, dead)

    def others(self, destination: Destination) -> Iterator[Placement]:
        """Ways of which nothing is known, by the first entropy.

        The destination's own rail comes first, then the rails behind it, in a ring.
        """
        peer, rail = destination
        rails = self.rails.get(peer, ())
        first = rails.index(rail) if rail in rails else 0
        for via in (*rails[first:], *rails[:first]):
            yield Placement(peer=peer, rail=rail, via=via, entropy=0)

    def forget(self, peer: str) -> None:
        """Drops a peer that has left the fleet."""
        self.rails.pop(peer, None)
        for kept in (self.placements, self.backups):
            for destination in [each for each in kept if each[0] == peer]:
                del kept[destination]


def detours(routing: RoutingTable, destinations: Iterable[Destination], dead: Dead) -> tuple[Placement, ...]:
    """New placements for those destinations whose way in force has lost a NIC and that have another way alive.

    The armed backup comes first, because it was heard to be healthy. The placement in the table in force is next, then
    any rail of which no NIC is known to be lost. No node has heard that one, but the present way is known to carry
    nothing.
    """
    found = []
    for destination in destinations:
        present = routing.way(destination)
        if present is None or not dead(present.peer, present.via):
            continue
        armed = routing.backups.get(destination), routing.placements.get(destination)
        for other in (*armed, *routing.others(destination)):
            if other is not None and not dead(other.peer, other.via):
                found.append(other)
                break
    return tuple(found)
