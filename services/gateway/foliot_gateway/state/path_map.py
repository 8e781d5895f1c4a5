"""The map of the fabric: over which links each path goes, how many share a link, and which routers links join."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, TypeAlias

import msgspec

from foliot.link_map import UNNAMED, is_inferred, link_in, link_out
from foliot_gateway.state.router_finder import RouterFinder, RouterRole
from foliot_schemas.names import node_of, parse_path, rail_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from foliot_gateway.state.inferred_links import InferredLinks
    from foliot_gateway.state.path_links import Told
    from foliot_gateway.state.path_table import PathTable
    from foliot_gateway.state.router_finder import Router
    from foliot_schemas.names import Path


class MapPath(msgspec.Struct, frozen=True, kw_only=True):
    """A path, and the links that it crosses."""

    path: str
    source: str
    """NIC that it begins at."""
    destination: str
    """NIC that it ends at."""
    rail: str
    """Rail that it begins on."""
    entropy: int
    links: tuple[str, ...]
    """From the source on; empty: one that enters a router which does not answer. Without any, nothing is known of
    them."""
    known: bool
    """Each of its links has a name, and none is missing: its last router answers, and the way back is no longer."""
    told_ns: int
    """When its source last told of it; 0: not yet."""


class MapLink(msgspec.Struct, frozen=True, kw_only=True):
    """A link, in one direction."""

    link: str
    """``node0.rail0/out`` from a NIC, ``node3.rail0/in`` to a NIC; between routers the address of the port that it
    enters. ``inferred:`` and the first of its paths, where routers are silent."""
    source: str
    """Router or NIC that it begins at; empty: not known."""
    destination: str
    """Router or NIC that it ends at; empty: not known."""
    paths: int
    """So many paths of the fleet cross it."""
    inferred: bool = False
    """Delays alone tell of it: its routers are silent, and these paths are late together."""


class MapRouter(msgspec.Struct, frozen=True, kw_only=True):
    """A router, by what is known of it."""

    router: str
    """The lowest of its addresses; of one that never answers, ``above`` one of its NICs."""
    role: RouterRole
    """``leaf``: NICs are cabled to it; ``spine``: routers alone."""
    rails: tuple[str, ...]
    """Rails whose paths cross it."""
    nics: tuple[str, ...]
    """NICs that are cabled to it."""
    addresses: tuple[str, ...]
    """Those with which it answered, the lowest first."""


class PathMap(msgspec.Struct, frozen=True, kw_only=True):
    """Paths, with the links that they cross and the routers between these."""

    paths: tuple[MapPath, ...]
    """By name."""
    links: tuple[MapLink, ...]
    """Those that the paths cross."""
    routers: tuple[MapRouter, ...]
    """Those that the links join."""


Entry: TypeAlias = MapPath | MapLink | MapRouter
"""A part of a map."""


class MapQuery(msgspec.Struct, frozen=True, kw_only=True):
    """The paths that are asked for. What is empty asks for any."""

    source: str = ""
    """The node or NIC where they begin."""
    destination: str = ""
    """The node or NIC where they end."""
    rail: str = ""
    """The rail on which they begin."""
    path: str = ""
    link: str = ""
    """A link that they cross."""
    after: str = ""
    """Only those that come after this one."""
    limit: int = 0
    """At most so many; 0: all."""


class MapReader:
    """Answers questions for the map. It reads the table of all paths, and keeps what it has found of the routers.

    Parameters:
        table: all paths.
        inferred: what is known of paths whose routers are silent.
    """

    def __init__(self, table: PathTable, inferred: InferredLinks) -> None:
        self._table = table
        self._inferred = inferred
        self._routers = RouterFinder()
        self._version = -1
        """Of the links from which the routers were found."""

    def read(self, asked: MapQuery) -> Iterator[Entry | None]:
        """The paths that are asked for, by name; then the links that they cross; then the routers between these.

        None is a pause: there was work to do, and no entry yet. Who goes on after a path gets the routers as they were.
        """
        if not asked.after:
            yield from self._find_routers()
        crossed: dict[str, None] = {}
        left = asked.limit or sys.maxsize
        for path in self._paths(asked):
            yield path
            if path is not None:
                crossed |= dict.fromkeys(path.links)
                left -= 1
                if not left:
                    break
        crossed.pop(UNNAMED, None)
        joined: dict[Router, None] = {}
        for link in crossed:
            yield self._link(link)
            joined |= dict.fromkeys(self._routers.at(link))
        yield from map(_shown, joined)

    def _paths(self, asked: MapQuery) -> Iterator[MapPath | None]:
        for name in self._names(asked):
            path, told = parse_path(name), self._table.told(name)
            links = told.links or self._inferred.of(name)
            is_asked = _is_asked(asked, path, links) and (told.at_ns or self._table.is_expected(path))
            yield self._path(name, path, told) if is_asked else None

    def _names(self, asked: MapQuery) -> Iterable[str]:
        if asked.path:
            return (asked.path,) if asked.path in self._table else ()
        return self._table.names(source=asked.source, after=asked.after)

    def _path(self, name: str, path: Path, told: Told) -> MapPath:
        return MapPath(
            path=name,
            **path._asdict(),
            rail=rail_of(path.source),
            links=told.links or self._inferred.of(name),
            known=bool(told.links) and UNNAMED not in told.links,
            told_ns=told.at_ns,
        )

    def _link(self, link: str) -> MapLink:
        source, destination = self._routers.ends_of(link)
        nic = link.rpartition("/")[0]
        return MapLink(
            link=link,
            source=nic if link == link_out(nic) else source,
            destination=nic if link == link_in(nic) else destination,
            paths=self._table.links.crossing(link) + self._inferred.crossing(link),
            inferred=is_inferred(link),
        )

    def _find_routers(self) -> Iterator[None]:
        """Finds the routers, if any path has other links than when they were found last."""
        version = self._table.links.version
        if version == self._version:
            return
        finder = RouterFinder()
        for name in self._table.names():
            path, told = parse_path(name), self._table.told(name)
            finder.join(path.source, told.links, told.first)
            yield
        yield from finder.pair()
        for name in self._table.names():
            finder.check(self._table.told(name).links, rail_of(name.partition(">")[0]))
            yield
        yield from finder.name()
        self._routers, self._version = finder, version


def collected(entries: Sequence[Entry]) -> PathMap:
    """Entries as one map."""
    return PathMap(
        paths=tuple(each for each in entries if isinstance(each, MapPath)),
        links=tuple(each for each in entries if isinstance(each, MapLink)),
        routers=tuple(each for each in entries if isinstance(each, MapRouter)),
    )


def _is_asked(asked: MapQuery, path: Path, links: tuple[str, ...]) -> bool:
    return (
        asked.source in {"", path.source, node_of(path.source)}
        and asked.destination in {"", path.destination, node_of(path.destination)}
        and asked.rail in {"", rail_of(path.source)}
        and (not asked.link or asked.link in links)
    )


def _shown(router: Router) -> MapRouter:
    return MapRouter(
        router=router.name, role=router.role, rails=router.rails, nics=router.nics, addresses=router.addresses
    )
