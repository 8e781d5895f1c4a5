"""The links that delays tell of where routers are silent: what events about contention name, while it lasts."""

from __future__ import annotations

import collections
from typing import TYPE_CHECKING

from foliot.link_map import is_inferred, link_in, link_out
from foliot_gateway.state.verdicts import Verdicts
from foliot_schemas.event_kinds import CONTENTION, is_relief
from foliot_schemas.names import parse_path

if TYPE_CHECKING:
    from foliot_gateway.state.date import Date
    from foliot_schemas import Event

_MOST = 1_024
"""Links that are remembered, and whether they are over: far more than a fabric has at once."""


class InferredLinks:
    """Which path shares which of them."""

    def __init__(self) -> None:
        self._verdicts = Verdicts()
        self._paths: collections.OrderedDict[str, tuple[str, ...]] = collections.OrderedDict()
        """By link, its paths; none: it is over."""
        self._link_of: dict[str, str] = {}
        self._crossing: collections.Counter[str] = collections.Counter()

    def take(self, event: Event, date: Date) -> None:
        """Takes an event.

        Raises:
            ValueError: it names something that is no path.
        """
        if event.kind != CONTENTION.name or not is_inferred(event.who):
            return
        paths = () if is_relief(event) else event.related.get("paths", ())
        links = {path: _links(path, event.who) for path in paths}
        if not self._verdicts.take(event, date):
            return
        self._forget(event.who)
        free = {path: own for path, own in links.items() if path not in self._link_of}
        self._paths[event.who] = (*free,)
        self._link_of |= dict.fromkeys(free, event.who)
        for own in free.values():
            self._crossing.update(own)
        while len(self._paths) > _MOST:
            link = next(iter(self._paths))
            self._forget(link)
            self._verdicts.forget(link)

    def of(self, path: str) -> tuple[str, ...]:
        """The links of a path that shares one of them, from its source on; none: it shares none."""
        link = self._link_of.get(path)
        return () if link is None else _links(path, link)

    def crossing(self, link: str) -> int:
        """How many such paths cross a link."""
        return self._crossing[link]

    def _forget(self, link: str) -> None:
        for path in self._paths.pop(link, ()):
            del self._link_of[path]
            self._crossing.subtract(_links(path, link))
        self._crossing = +self._crossing


def _links(path: str, link: str) -> tuple[str, ...]:
    source, destination, _ = parse_path(path)
    return link_out(source), link, link_in(destination)
