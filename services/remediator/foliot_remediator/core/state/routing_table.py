"""The routes in force on every node, where they differ from home."""

from __future__ import annotations

import collections
from typing import TYPE_CHECKING, NamedTuple

from foliot_remediator.core.state.inventory import Destination, ends_of
from foliot_remediator.core.state.retention import Index, Retained, node_alone

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from foliot_schemas import NodePaths, Placement


FIRST = "losses"
"""The remedy that was there before there were others."""


class Cause(NamedTuple):
    """The reason of a route: an event, and its fault."""

    event: str
    fault: str
    remedy: str = FIRST
    """The remedy that decided it; empty: none did, another home was chosen for what goes this way."""
    left_ns: int = 0
    """When a node left its home, as it reported itself, by the time of this process; 0: it was commanded here."""


class RoutingTable:
    """The routes in force, kept as agents keep them, so that only deviations take room.

    On a rail that is away, a node's traffic takes its backups; elsewhere what it was `moved` to, else the home.
    """

    def __init__(self, home: Callable[[Destination], Placement]) -> None:
        self.away: dict[tuple[str, str], Cause] = {}
        """Nodes and rails whose traffic goes by the backups. Changed by `leave` and `come_back` alone."""
        self.moved: dict[Destination, tuple[Placement, Cause]] = {}
        self.backups: dict[str, dict[tuple[str, str], Placement]] = {}
        """Per node, by peer and rail."""
        self.told_ns: Retained[Destination, int] = Retained(ends_of)
        """When a node was last told which way to send a destination's traffic. Without a peer it is a whole rail's, and
        without a rail all of it. If it reported a later move, when it began that."""
        self._stored: dict[str, tuple[int, int]] = {}
        """Per node, of the newest value of the bucket that was told: its lease's revision, and when it was decided."""
        self._home = home
        self._moved_at = Index(ends_of)
        self._away_at: Index[tuple[str, str]] = Index(node_alone)
        self.away_by: collections.Counter[str] = collections.Counter()
        """How many rails are away, by the remedy that sent them."""
        self.strayed: dict[str, None] = {}
        """Nodes on which something left its home since `is_astray` was last asked for them."""

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
        return self._home(destination) if moved is None else moved[0]

    def backup(self, destination: Destination) -> Placement | None:
        """The armed backup."""
        return self.backups.get(destination.node, {}).get((destination.peer, destination.rail))

    def touching(self, node: str) -> list[Destination]:
        """Moved destinations that begin or end at a node, in a stable order."""
        return sorted(self._moved_at.of(node))

    def leave(self, node: str, rail: str, cause: Cause) -> bool:
        """Sends a node's rail away by its backups; False: it was away before, and its cause stands."""
        if (node, rail) in self.away:
            return False
        self.away[node, rail] = cause
        self.away_by[cause.remedy] += 1
        self._away_at.add((node, rail))
        self.strayed[node] = None
        return True

    def come_back(self, node: str, rail: str) -> bool:
        """Uses a node's rail again; False: it was not away."""
        cause = self.away.pop((node, rail), None)
        if cause is None:
            return False
        self.away_by[cause.remedy] -= 1
        self._away_at.discard((node, rail))
        return True

    def homes_left(self, node: str) -> list[Placement]:
        """The homes of a node's destinations that were moved, in a stable order."""
        return [self._home(each) for each in self.touching(node) if each.node == node]

    def is_astray(self, node: str) -> bool:
        """Whether anything on the node does not go its home."""
        return bool(self._away_at.of(node)) or any(each.node == node for each in self._moved_at.of(node))

    def place(self, destination: Destination, way: Placement, cause: Cause) -> None:
        """Puts a way in force, as an agent does."""
        node, peer, rail = destination
        if (node, rail) in self.away and (peer, rail) in self.backups.get(node, {}):
            self.backups[node][peer, rail] = way
        self._put(destination, way, cause)

    def keep(self, destination: Destination, way: Placement, cause: Cause) -> None:
        """Keeps a destination's traffic on this way although its home is another now.

        Traffic that a loss has moved stays moved by that.
        """
        self._put(
            destination, way, cause._replace(remedy="") if self.is_at_home(destination) else self.moved[destination][1]
        )

    def is_at_home(self, destination: Destination) -> bool:
        """Whether nothing has moved a destination's traffic from its home, or from its former one."""
        moved = self.moved.get(destination)
        return moved is None or not moved[1].remedy

    def _put(self, destination: Destination, way: Placement, cause: Cause) -> None:
        if way == self._home(destination):
            self.moved.pop(destination, None)
            self._moved_at.discard(destination)
        else:
            self.moved[destination] = way, cause
            self.strayed[destination.node] = None
            self._moved_at.add(destination)

    def revision(self, node: str) -> int:
        """The revision of the lease under which the newest value of a node was written; 0: none was told."""
        return self._stored.get(node, (0, 0))[0]

    def is_newest(self, paths: NodePaths, now_ns: int) -> bool:
        """Takes note of a value of the bucket; says whether none was told that is newer.

        An older remediator's has no time. One that lies ahead says nothing: the reference was set back since.
        """
        revision, decided_ns = self._stored.get(paths.node, (0, 0))
        is_earlier = paths.lease_revision == revision and 0 < paths.decided_ns < decided_ns <= now_ns
        if paths.lease_revision < revision or is_earlier:
            return False
        self._stored[paths.node] = paths.lease_revision, paths.decided_ns
        return True

    def forget_revisions(self, *, above: int) -> None:
        """Forgets values of leases above what the bus has given: it counts leases anew."""
        self._stored = {node: stored for node, stored in self._stored.items() if stored[0] <= above}

    def adopt(self, paths: NodePaths, cause: Cause) -> None:
        """Takes over what another holder of the lease, or an earlier run, put in force on a node."""
        for node, rail in [*self._away_at.of(paths.node)]:
            if rail not in paths.away:
                self.come_back(node, rail)
        for rail in paths.away:
            self.leave(paths.node, rail, cause)
        self.told_ns[Destination(paths.node, "", "")] = paths.decided_ns
        self.backups[paths.node] = {(backup.peer, backup.rail): backup for backup in paths.backups}
        for way in paths.placements:
            destination = Destination(paths.node, way.peer, way.rail)
            if self.placed(destination) != way:
                self._put(destination, way, cause)

    def forget(self, node: str, peers: Iterable[str]) -> None:
        """Drops a node that has left the fleet."""
        for destination in self.touching(node):
            del self.moved[destination]
            self._moved_at.discard(destination)
        for way in [*self._away_at.of(node)]:
            self.come_back(*way)
        self.backups.pop(node, None)
        self._stored.pop(node, None)
        for peer in peers:
            armed = self.backups.get(peer, {})
            for key in [key for key in armed if key[0] == node]:
                del armed[key]
