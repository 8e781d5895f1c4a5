"""The ways of all traffic to service addresses, as the bucket `paths` tells them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from foliot_schemas.names import Path, nic_name, node_of, parse_flow, rail_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from foliot.jobs import Jobs
    from foliot_schemas import NodePaths, Placement


class Ways:
    """By node, the way of its traffic to each service address.

    It keeps the newest value of each node. A node without one has ways that nobody knows.
    """

    def __init__(self) -> None:
        self._told: dict[str, NodePaths] = {}
        self._found: dict[str, dict[tuple[str, str], Path]] = {}
        """By node and service address, made when somebody asks for the node."""
        self.changed_ns: dict[str, int] = {}
        """By node, when its ways last changed, on the timeline. A first telling is no change."""
        self.turns = 0
        """How often anything changed."""

    def take(self, paths: NodePaths, now_ns: int) -> None:
        """Takes a value of the bucket. One without ways takes the node out."""
        before = self._of(paths.node) if paths.node in self._told else None
        self._found.pop(paths.node, None)
        self.turns += 1
        if not paths.placements and not paths.backups:
            self._told.pop(paths.node, None)
            self.changed_ns.pop(paths.node, None)
            return
        self._told[paths.node] = paths
        if before is not None and before != self._of(paths.node):
            self.changed_ns[paths.node] = now_ns

    def path_of(self, flow: str) -> str:
        """The path that a flow takes; empty: nobody knows."""
        source, destination = parse_flow(flow)
        ways = self._of(node_of(source))
        found = ways.get((node_of(destination), rail_of(destination)))
        return "" if found is None else str(found)

    def in_use(self, node: str) -> Iterator[Path]:
        """The paths that a node's traffic takes."""
        yield from self._of(node).values()

    def within(self, node: str, job: str, jobs: Jobs) -> Iterator[Path]:
        """The paths that a node's traffic within a registered job takes."""
        for (peer, rail), path in self._of(node).items():
            if job == jobs.of_nic(nic_name(node, rail)) == jobs.of_nic(nic_name(peer, rail)):
                yield path

    def nodes(self) -> list[str]:
        """All nodes with known ways."""
        return list(self._told)

    def _of(self, node: str) -> dict[tuple[str, str], Path]:
        found = self._found.get(node)
        if found is None:
            told = self._told.get(node)
            found = self._found[node] = {} if told is None else _ways(told)
        return found


def _ways(told: NodePaths) -> dict[tuple[str, str], Path]:
    ways = {(each.peer, each.rail): _path(told.node, each) for each in told.placements}
    return ways | {(each.peer, each.rail): _path(told.node, each) for each in told.backups if each.rail in told.away}


def _path(node: str, way: Placement) -> Path:
    return Path(nic_name(node, way.via), nic_name(way.peer, way.via), way.entropy)
