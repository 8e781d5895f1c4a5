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

The last routers of a path may be silent, and nothing in what was told of it shows that. But its last router is the
first one of the way back. So what both ends tell says how many routers are `missing_at_end`.
"""

from __future__ import annotations

import sys
from ipaddress import IPv4Address
from typing import TYPE_CHECKING, NamedTuple

from foliot_schemas.names import node_of, parse_path

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterable

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


def missing_at_end(routers: int, back: int, *, answers: bool) -> int:
    """How many routers are missing at the end of a path, at least; 0: none is, its last router has answered.

    A way that is longer than the way back lacks none for that. One that is shorter may, and so it counts as if it did.

    Parameters:
        routers: how many the path has up to the last one that answered; 1 at least.
        back: the same of the way back; 0: nobody has told of it, or none answered.
        answers: whether the first router of the way back did.
    """
    return max(back - routers, 0 if answers else 1)


def as_told(links: tuple[str, ...]) -> tuple[str, ...]:
    """A path's links, as `LinkMap` has them, without those for routers that are missing at the end."""
    if len(links) < 3 or links[-2] != UNNAMED:
        return links
    end = len(links) - 1
    while links[end - 1] == UNNAMED:
        end -= 1
    return (*links[:end], links[-1])


class Changed(NamedTuple):
    """Paths whose links are others than before."""

    told: list[str]
    """Those of which a node told something new."""
    back: list[str]
    """Others, of which the way back says whether a router is missing at their end."""


class LinkMap:
    """What nodes have told of the routers of their paths, as links.

    A path whose last router is missing has links without a name before its last link, one for each missing router. It
    has one at least until the way back is told.

    It holds a tuple for each path that was told, and each name of a link once: some 190 bytes a path.
    """

    def __init__(self) -> None:
        self._links: dict[str, dict[str, tuple[str, ...]]] = {}
        """By the node where paths begin, and by path."""
        self._silent: dict[str, set[str]] = {}
        """By the node where they begin, the paths whose first router does not answer, but a later one does."""

    def take(self, batch: HopBatch, is_kept: Callable[[str], bool] | None = None) -> Changed:
        """Takes what a node tells of some of its paths.

        Parameters:
            is_kept: whether a path is to be known that is not yet; None: all are.

        Raises:
            ValueError: the batch does not fit together.
        """
        routers: list[dict[int, int]] = [{} for _ in batch.paths]
        for place, hop, address in batch.rows().tolist():
            routers[place][hop] = address
        known, silent = self._links.setdefault(batch.node, {}), self._silent.setdefault(batch.node, set())
        told: list[str] = []
        turned: list[str] = []
        for path, found in zip(batch.paths, routers, strict=True):
            before = known.get(path)
            if before is None and is_kept is not None and not is_kept(path):
                continue
            links, is_silent = _links_of(path, found), bool(found) and 1 not in found
            is_new = before is None or as_told(before) != links
            if is_new:
                known[path] = links
                told.append(path)
            if is_new or is_silent != (path in silent):
                (silent.add if is_silent else silent.discard)(path)
                turned.append(path)
        return Changed(told, self._match(turned, {*told}))

    def of(self, path: str) -> tuple[str, ...]:
        """The links of a path, from its source on; none: its routers are not known."""
        return self._links.get(_source(path), {}).get(path, ())

    def paths(self) -> list[str]:
        """All paths whose links are known."""
        return [path for known in self._links.values() for path in known]

    def forget_paths(self, paths: Iterable[str]) -> None:
        """Forgets these paths. Nobody has told of the way back then of those that lead the other way."""
        gone = []
        for path in paths:
            node = _source(path)
            if self._links.get(node, {}).pop(path, None) is not None:
                self._silent[node].discard(path)
                gone.append(path)
        self._match(gone, set())

    def forget(self, node: str) -> None:
        """Forgets the paths that begin at a node. Nobody has told of the way back then of those that lead there."""
        self.forget_paths([*self._links.get(node, ())])
        self._links.pop(node, None)
        self._silent.pop(node, None)

    def _match(self, paths: Iterable[str], told: Container[str]) -> list[str]:
        """Holds paths against their ways back, and these against them. Returns the ways back that have changed by it."""
        changed = []
        for path in paths:
            parsed = parse_path(path)
            back, node, peer = str(parsed.back), node_of(parsed.source), node_of(parsed.destination)
            self._complete(path, node, back, peer)
            if self._complete(back, peer, path, node) and back not in told:
                changed.append(back)
        return changed

    def _complete(self, path: str, node: str, back: str, peer: str) -> bool:
        """Gives a path as many links without a name as it lacks routers. Returns whether it had another number."""
        links = self._links.get(node, {}).get(path)
        if not links:
            return False
        told, way_back = as_told(links), as_told(self._links.get(peer, {}).get(back, ()))
        answers = bool(way_back) and back not in self._silent[peer]
        missing = missing_at_end(len(told) - 1, max(len(way_back) - 1, 0), answers=answers)
        if len(links) == len(told) + missing:
            return False
        self._links[node][path] = (*told[:-1], *(UNNAMED,) * missing, told[-1])
        return True


def _source(path: str) -> str:
    return node_of(path.partition(">")[0])


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
