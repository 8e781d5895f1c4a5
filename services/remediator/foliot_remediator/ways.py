"""Which way all traffic goes: what is in force on every node, as far as it is not the primary way."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from foliot_remediator.fleet import Destination

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from foliot_schemas import NodePaths, Placement


class Cause(NamedTuple):
    """Why something is as it is."""

    event: str
    fault: str


class Ways:
    """What is in force, kept as agents keep it, so that only what deviates takes room.

    On a rail that is away, a node's traffic takes its backups; elsewhere what it was `moved` to, else the primary way.
    """

    def __init__(self, primary: Callable[[Destination], Placement]) -> None:
        self.away: dict[tuple[str, str], Cause] = {}
        """Nodes and rails whose traffic goes by the backups."""
        self.moved: dict[Destination, tuple[Placement, Cause]] = {}
        self.backups: dict[str, dict[tuple[str, str], Placement]] = {}
        """Per node, by peer and rail."""
        self._primary = primary
        self._touching: dict[str, set[Destination]] = {}

    def way(self, destination: Destination) -> Placement:
        """The way that the traffic takes."""
        node, peer, rail = destination
        if (node, rail) in self.away:
            backup = self.backups.get(node, {}).get((peer, rail))
            if backup is not None:
                return backup
        return self.placed(destination)

    def placed(self, destination: Destination) -> Placement:
        """The way in the table in force, which counts unless the rail is away."""
        moved = self.moved.get(destination)
        return self._primary(destination) if moved is None else moved[0]

    def backup(self, destination: Destination) -> Placement | None:
        """The armed backup."""
        return self.backups.get(destination.node, {}).get((destination.peer, destination.rail))

    def touching(self, node: str) -> Iterator[Destination]:
        """Moved destinations that begin or end at a node, in a stable order."""
        return iter(sorted(self._touching.get(node, ())))

    def place(self, destination: Destination, way: Placement, cause: Cause) -> None:
        """Puts a way in force, as an agent does."""
        node, peer, rail = destination
        if (node, rail) in self.away and (peer, rail) in self.backups.get(node, {}):
            self.backups[node][peer, rail] = way
        self._put(destination, way, cause)

    def _put(self, destination: Destination, way: Placement, cause: Cause) -> None:
        node, peer, _ = destination
        if way == self._primary(destination):
            self.moved.pop(destination, None)
            for end in (node, peer):
                self._touching.get(end, set()).discard(destination)
        else:
            self.moved[destination] = way, cause
            for end in (node, peer):
                self._touching.setdefault(end, set()).add(destination)

    def adopt(self, paths: NodePaths, cause: Cause) -> None:
        """Takes over what another holder of the lease, or an earlier run, put in force on a node."""
        for rail in [rail for node, rail in self.away if node == paths.node and rail not in paths.away]:
            del self.away[paths.node, rail]
        for rail in paths.away:
            self.away.setdefault((paths.node, rail), cause)
        self.backups[paths.node] = {(backup.peer, backup.rail): backup for backup in paths.backups}
        for way in paths.placements:
            destination = Destination(paths.node, way.peer, way.rail)
            if self.placed(destination) != way:
                self._put(destination, way, cause)

    def forget(self, node: str, peers: Iterable[str]) -> None:
        """Drops a node that has left the fleet."""
        for destination in tuple(self._touching.pop(node, ())):
            self.moved.pop(destination, None)
            for end in (destination.node, destination.peer):
                self._touching.get(end, set()).discard(destination)
        for rail in [rail for of, rail in self.away if of == node]:
            del self.away[node, rail]
        self.backups.pop(node, None)
        for peer in peers:
            armed = self.backups.get(peer, {})
            for key in [key for key in armed if key[0] == node]:
                del armed[key]
