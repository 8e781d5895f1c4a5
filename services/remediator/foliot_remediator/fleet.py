"""Who there is: nodes and their NICs, and by rail, who can reach whom."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from foliot_schemas.names import nic_name, parse_path

if TYPE_CHECKING:
    from collections.abc import Iterator

    from foliot_schemas import Node, Placement
    from foliot_schemas.names import Path


class Destination(NamedTuple):
    """The traffic of a node to one service address of a peer."""

    node: str
    peer: str
    rail: str


def path_name(node: str, way: Placement) -> str:
    """The name of the path that a node's traffic takes by a way."""
    return f"{node}.{way.via}>{way.peer}.{way.via}#{way.entropy}"


class Fleet:
    """The inventory, indexed. A path or destination exists between two nodes that share its rail."""

    def __init__(self) -> None:
        self.nodes: dict[str, Node] = {}
        self.nics: dict[str, tuple[str, str]] = {}
        """Node and rail of every NIC by name."""
        self._rails: dict[str, dict[str, int]] = {}
        """Per rail, the number of entropies of each node on it."""

    def learn(self, node: Node) -> bool:
        """Takes a node's record, which without NICs means that it has left; whether anything changed."""
        before = self.nodes.get(node.name)
        if before == node or (before is None and not node.nics):
            return False
        for nic in () if before is None else before.nics:
            self.nics.pop(nic.name, None)
            self._rails[nic.rail].pop(node.name, None)
        self.nodes.pop(node.name, None)
        if node.nics:
            self.nodes[node.name] = node
            for nic in node.nics:
                self.nics[nic_name(node.name, nic.rail)] = node.name, nic.rail
                self._rails.setdefault(nic.rail, {})[node.name] = len(nic.entropies)
        return True

    def rails(self, node: str) -> tuple[str, ...]:
        """The node's rails."""
        record = self.nodes.get(node)
        return () if record is None else tuple(nic.rail for nic in record.nics)

    def shared(self, node: str, peer: str) -> tuple[str, ...]:
        """Rails on which both have a NIC."""
        return tuple(rail for rail in self.rails(node) if peer in self._rails[rail])

    def peers(self, node: str, rail: str) -> Iterator[str]:
        """The other nodes on a rail."""
        return (peer for peer in self._rails.get(rail, {}) if peer != node)

    def entropies(self, node: str, peer: str, rail: str) -> int:
        """How many paths lead from the one to the other on a rail; 0 if none."""
        members = self._rails.get(rail, {})
        return min(members.get(node, 0), members.get(peer, 0))

    def destinations(self, node: str) -> Iterator[Destination]:
        """All the node's traffic, by peer."""
        for peer in self.nodes:
            if peer != node:
                for rail in self.shared(node, peer):
                    yield Destination(node, peer, rail)

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
