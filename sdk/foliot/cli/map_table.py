"""The map of the fabric as text: its routers and links, and its paths."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from foliot.cli.colours import BOLD, DIM, YELLOW, paint
from foliot.link_map import UNNAMED, is_between_routers
from foliot.text.messages import clock_time

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence


class MapPath(msgspec.Struct, frozen=True, kw_only=True):
    """The shown part of a path; the gateway's answer has more."""

    path: str
    source: str
    destination: str
    rail: str
    links: tuple[str, ...]
    known: bool
    told_ns: int


class MapLink(msgspec.Struct, frozen=True, kw_only=True):
    """A link, in one direction."""

    link: str
    source: str
    destination: str
    paths: int


class MapRouter(msgspec.Struct, frozen=True, kw_only=True):
    """The shown part of a router."""

    router: str
    role: str
    rails: tuple[str, ...]
    nics: tuple[str, ...]


class PathMap(msgspec.Struct, frozen=True, kw_only=True):
    """The gateway's answer."""

    paths: tuple[MapPath, ...]
    links: tuple[MapLink, ...]
    routers: tuple[MapRouter, ...]


def render(found: PathMap, *, each_path: bool, colour: bool = False) -> Iterator[str]:
    """The lines of a map: a block per rail, the links between routers, and each path if that is wanted."""
    for rail in sorted({path.rail for path in found.paths}):
        yield from _rail(rail, found, colour=colour)
    roles = {router.router: router.role for router in found.routers}
    between = [link for link in found.links if is_between_routers(link.link)]
    named = [
        (_place(each.source, roles), _place(each.destination, roles), str(each.paths), each.link) for each in between
    ]
    if named:
        yield ""
        yield from _table(("from", "to", "paths", "link"), sorted(named), colour=colour)
    if each_path:
        yield ""
        yield from _table(("path", "told", "links between routers"), map(_path, found.paths), colour=colour)


def _rail(rail: str, found: PathMap, *, colour: bool) -> Iterator[str]:
    paths = [path for path in found.paths if path.rail == rail]
    routers = [router for router in found.routers if rail in router.rails]
    leaves = [router for router in routers if router.role == "leaf"]
    spines = [router for router in routers if router.role != "leaf"]
    nics = {nic for path in paths for nic in (path.source, path.destination)}
    known = sum(path.known for path in paths)
    text = (
        f"{rail}: {_count(len(nics), 'NIC')}, {_count(len(leaves), 'leaf', 'leaves')}, "
        f"{_count(len(spines), 'spine')}; {_count(len(paths), 'path')}"
    )
    yield paint(text, BOLD, colour) + ("" if known == len(paths) else paint(f", {known} known", YELLOW, colour))
    for leaf in leaves:
        yield f"  leaf {leaf.router}: {' '.join(leaf.nics)}"
    for spine in spines:
        yield f"  spine {spine.router}"
    if unplaced := sorted(nics - {nic for leaf in leaves for nic in leaf.nics}):
        yield f"  below no known leaf: {' '.join(unplaced)}"


def _place(router: str, roles: dict[str, str]) -> str:
    """A router as it is named beside a link."""
    return f"{roles.get(router, 'router')} {router}" if router else "?"


def _path(path: MapPath) -> tuple[str, str, str]:
    if not path.told_ns:
        return path.path, "", "not told yet"
    between = ", ".join(link or "?" for link in path.links if link == UNNAMED or is_between_routers(link))
    said = between or ("none" if path.links else "no router answers")
    return path.path, clock_time(path.told_ns), said if path.known or not path.links else f"{said} (not known)"


def _table(head: Sequence[str], rows: Iterable[Sequence[str]], *, colour: bool) -> Iterator[str]:
    lines = [head, *rows]
    widths = [max(len(line[column]) for line in lines) for column in range(len(head))]
    for number, line in enumerate(lines):
        cells = (
            f"{cell:>{width}}" if cell.isdigit() or head[at] == "paths" else f"{cell:<{width}}"
            for at, (cell, width) in enumerate(zip(line, widths, strict=True))
        )
        text = "  ".join(cells).rstrip()
        yield text if number else paint(text, DIM, colour)


def _count(number: int, one: str, several: str = "") -> str:
    return f"{number} {one if number == 1 else several or f'{one}s'}"
