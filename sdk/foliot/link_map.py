"""The links of each path, by the routers that its packets have found. A link has one direction.

=========================== ==================================================================
``node0.rail0/out``          from a NIC to its router
``10.110.0.5``               between routers, by the address of the port that it enters
``node3.rail0/in``           from a router to a NIC
``inferred:`` and a path     between routers that do not answer, by the first of the paths that
                             are late together
=========================== ==================================================================

Two paths with the same link share it. A link that enters a router which does not answer has no name, as it may be any.
Only delays can tell then that paths share one: no `LinkMap` has an inferred link.
"""

from __future__ import annotations

import sys
from ipaddress import IPv4Address
from typing import TYPE_CHECKING

from foliot_schemas.names import node_of, parse_path

if TYPE_CHECKING:
    from collections.abc import Iterable

    from foliot_schemas import HopBatch

UNNAMED = ""
"""A link of which nothing is known but that it is there."""
_INFERRED = "inferred:"


def link_out(nic: str) -> str:
    """The link from a NIC to its router."""
    return f"{nic}/out"


def link_in(nic: str) -> str:
    """The link from a router to a NIC."""
    return f"{nic}/in"


def is_between_routers(link: str) -> bool:
    """Whether no end of a link is a NIC. Only such a link can be avoided."""
    return link != UNNAMED and not link.endswith(("/out", "/in"))


def inferred_link(paths: Iterable[str]) -> str:
    """The link that paths share whose routers do not answer, as their delays tell."""
    return f"{_INFERRED}{min(paths)}"


def is_inferred(link: str) -> bool:
    """Whether delays alone tell of a link."""
    return link.startswith(_INFERRED)


class LinkMap:
    """What nodes have told of the routers of their paths, as links.

    It holds a tuple for each path that was told, and each name of a link once: some 190 bytes a path.
    """

    def __init__(self) -> None:
        self._links: dict[str, dict[str, tuple[str, ...]]] = {}
        """By the node where paths begin, and by path."""

    def take(self, batch: HopBatch) -> list[str]:
        """Takes what a node tells of some of its paths. Returns those of which it told something new.

        Raises:
            ValueError: the batch does not fit together.
        """
        routers: list[dict[int, int]] = [{} for _ in batch.paths]
        for place, hop, address in batch.rows().tolist():
            routers[place][hop] = address
        known = self._links.setdefault(batch.node, {})
        changed = []
        for path, found in zip(batch.paths, routers, strict=True):
            links = _links_of(path, found)
            if known.get(path) != links:
                known[path] = links
                changed.append(path)
        return changed

    def of(self, path: str) -> tuple[str, ...]:
        """The links of a path, from its source on; none: its routers are not known."""
        return self._links.get(node_of(path.partition(">")[0]), {}).get(path, ())

    def paths(self) -> list[str]:
        """All paths whose links are known."""
        return [path for known in self._links.values() for path in known]

    def forget_paths(self, paths: Iterable[str]) -> None:
        """Forgets these paths."""
        for path in paths:
            self._links.get(node_of(path.partition(">")[0]), {}).pop(path, None)

    def forget(self, node: str) -> None:
        """Forgets the paths that begin at a node."""
        self._links.pop(node, None)


def _links_of(path: str, routers: dict[int, int]) -> tuple[str, ...]:
    """None, where no router answered: nothing tells such a path from one that was not asked yet."""
    if not routers:
        return ()
    source, destination, _ = parse_path(path)
    # The port by which the first router is entered is the other end of the NIC's own link.
    between = (_entered(routers.get(hop)) for hop in range(2, max(routers) + 1))
    return tuple(map(sys.intern, (link_out(source), *between, link_in(destination))))


def _entered(address: int | None) -> str:
    return UNNAMED if address is None else str(IPv4Address(address))
