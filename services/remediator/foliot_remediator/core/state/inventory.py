"""The nodes, their NICs and, by rail, their peers."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import msgspec

from foliot.node.shard import WHOLE
from foliot_schemas.names import nic_name, node_of, parse_path

if TYPE_CHECKING:
    from collections.abc import Iterator

    from foliot.node.shard import Shard
    from foliot_schemas import Node, NodePaths, Placement
    from foliot_schemas.names import Path


class Destination(NamedTuple):
    """The traffic of a node to one service address of a peer."""

    node: str
    peer: str
    rail: str


def path_name(node: str, way: Placement) -> str:
    """The name of the path that a node's traffic takes by a way."""
    return f"{node}.{way.via}>{way.peer}.{way.via}#{way.entropy}"


def is_nic(who: str) -> bool:
    """Whether a name is a NIC's, and not a path's."""
    return ">" not in who


def nics_of(who: str) -> tuple[str, ...]:
    """The NICs that a name has in it: of a path its two, of a NIC itself."""
    return tuple(end.partition("#")[0] for end in who.split(">"))


def ends_of(destination: Destination) -> tuple[str, ...]:
    """The nodes at the ends of a destination's traffic; one for a whole rail's, which has no peer."""
    return destination[: 2 if destination.peer else 1]


class Inventory:
    """The inventory, indexed. A path or destination exists between two peers that share its rail.

    Parameters:
        shard: the nodes that the inventory is told of, with their peers.
    """

    def __init__(self, shard: Shard = WHOLE) -> None:
        self.is_whole = shard.is_whole
        """Whether all nodes are commanded from here."""
        self.owns = shard.owns
        """Whether a node is commanded from here; the others are peers of such nodes."""
        self.own_nics = 0
        """How many NICs they have."""
        self.nodes: dict[str, Node] = {}
        self.nics: dict[str, tuple[str, str]] = {}
        """Node and rail of every NIC by name."""
        self._rails: dict[str, dict[str, int]] = {}
        """Per rail, the number of entropies of each node on it."""

    def learn(self, node: Node) -> bool:
        """Takes a node's record; without NICs it means that the node has left. Returns whether anything changed."""
        before = self.nodes.get(node.name)
        if before == node or (before is None and not node.nics):
            return False
        for nic in () if before is None else before.nics:
            self.nics.pop(nic.name, None)
            self._rails[nic.rail].pop(node.name, None)
            self.own_nics -= self.owns(node.name)
        self.nodes.pop(node.name, None)
        if node.nics:
            self.nodes[node.name] = node
            for nic in node.nics:
                self.nics[nic_name(node.name, nic.rail)] = node.name, nic.rail
                self._rails.setdefault(nic.rail, {})[node.name] = len(nic.entropies)
                self.own_nics += self.owns(node.name)
        return True

    def rails(self, node: str) -> tuple[str, ...]:
        """The node's rails."""
        record = self.nodes.get(node)
        return () if record is None else tuple(nic.rail for nic in record.nics)

    def fabric_rails(self) -> list[str]:
        """Rails on which two nodes or more have a NIC."""
        return [rail for rail, members in self._rails.items() if len(members) > 1]

    def shared(self, node: str, peer: str) -> tuple[str, ...]:
        """Rails on which both have a NIC; none if they are no peers."""
        if not self.talk(node, peer):
            return ()
        return tuple(rail for rail in self.rails(node) if peer in self._rails[rail])

    def talk(self, node: str, peer: str) -> bool:
        """Whether two nodes exchange traffic."""
        record, other = self.nodes.get(node), self.nodes.get(peer)
        return record is not None and other is not None and record.talks_to(other)

    def neighbours(self, node: str) -> Iterator[str]:
        """The nodes that it exchanges traffic with."""
        record = self.nodes.get(node)
        if record is None:
            return
        for peer in record.peers or self.nodes:
            other = self.nodes.get(peer)
            if other is not None and record.talks_to(other):
                yield peer

    def peers(self, node: str, rail: str) -> Iterator[str]:
        """The neighbours that have a NIC on a rail."""
        members = self._rails.get(rail, {})
        return (peer for peer in self.neighbours(node) if peer in members)

    def entropies(self, node: str, peer: str, rail: str) -> int:
        """The number of paths from one node to another on a rail; 0 if none."""
        members = self._rails.get(rail, {})
        return min(members.get(node, 0), members.get(peer, 0))

    def destinations(self, node: str) -> Iterator[Destination]:
        """All the node's traffic, by peer."""
        rails = self.rails(node)
        for peer in self.neighbours(node):
            for rail in rails:
                if peer in self._rails[rail]:
                    yield Destination(node, peer, rail)

    def concerns(self, who: str) -> bool:
        """Whether what befell this NIC, path or process is to be heard here.

        If it is unknown, the owner of its node says so.
        """
        nodes = [nic.partition("/")[0] if "/" in nic else node_of(nic) for nic in nics_of(who)]
        return any(map(self.owns, nodes)) or (len(nodes) == 1 and nodes[0] in self.nodes)

    def paths_of(self, node: str) -> Iterator[str]:
        """All paths between a node and those that it exchanges traffic with, both ways."""
        for peer in self.neighbours(node):
            for rail in self.shared(node, peer):
                own, other = nic_name(node, rail), nic_name(peer, rail)
                for entropy in range(self.entropies(node, peer, rail)):
                    yield f"{own}>{other}#{entropy}"
                    yield f"{other}>{own}#{entropy}"

    def has_path(self, name: str) -> bool:
        """Whether a path is between two nodes that exchange traffic."""
        path = self.path(name)
        return path is not None and self.talk(self.nics[path.source][0], self.nics[path.destination][0])

    def has_nic(self, nic: str, node: str) -> bool:
        """Whether a node has a NIC."""
        return self.nics.get(nic, ("", ""))[0] == node

    def knows(self, node: str, way: Placement) -> bool:
        """Whether a node's traffic to a service address can take this way at all."""
        shared = self.shared(node, way.peer) if node != way.peer else ()
        return way.rail in shared and way.via in shared and way.entropy < self.entropies(node, way.peer, way.via)

    def known_part(self, paths: NodePaths) -> NodePaths:
        """The part of a node's routes that the inventory knows."""
        node = paths.node
        return msgspec.structs.replace(
            paths,
            away=tuple(rail for rail in paths.away if rail in self.rails(node)),
            placements=tuple(way for way in paths.placements if self.knows(node, way)),
            backups=tuple(way for way in paths.backups if self.knows(node, way)),
        )

    def path(self, name: str) -> Path | None:
        """The path of this name, if the fleet has it."""
        try:
            path = parse_path(name)
        except ValueError:
            return None
        source, destination = self.nics.get(path.source), self.nics.get(path.destination)
        if source is None or destination is None or source[1] != destination[1]:
            return None
        return path if path.entropy < self.entropies(source[0], destination[0], source[1]) else None
