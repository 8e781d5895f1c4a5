"""The links of ways, as routers have told, and where they are silent, as an event has them inferred.

Of a way whose routers are silent, nothing is known but its NICs. The detector may have found that it shares a link with
others, as they are late together, or that it is not late. That was so when the event was made.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from foliot.link_map import is_between_routers, is_inferred, link_in, link_out
from foliot_schemas.names import parse_path

if TYPE_CHECKING:
    from foliot.link_map import LinkMap
    from foliot_schemas import Event

_HOLDS_NS = 10_000_000_000
"""For how long an event's word holds of which paths are late, and which are not."""


class EventLinks:
    """What an event and the routers say together. What routers say counts more.

    Parameters:
        links: what routers have told.
        event: it is about flows that share a link.
    """

    def __init__(self, links: LinkMap, event: Event) -> None:
        self._links = links
        self.named = frozenset(filter(is_between_routers, event.related.get("links", ())))
        """The links between routers that may be the contended one."""
        self._at_ns = event.at_ns
        self._inferred = min(filter(is_inferred, self.named), default="")
        inferred = bool(self._inferred)
        self._late = frozenset(event.related.get("paths", ()) if inferred else ())
        self._free = {path: rank for rank, path in enumerate(event.related.get("free", ()) if inferred else ())}

    @property
    def is_inferred(self) -> bool:
        """Whether delays alone tell of the link."""
        return bool(self._inferred)

    def of(self, path: str) -> tuple[str, ...]:
        """The links of a path, from its source on; none: they are not known.

        One that is not late has those of its NICs alone. Whatever else it crosses was not full.
        """
        told = self._links.of(path)
        if told or not (path in self._late or path in self._free):
            return told
        source, destination, _ = parse_path(path)
        between = (self._inferred,) if path in self._late else ()
        return link_out(source), *between, link_in(destination)

    def is_stale(self, now_ns: int) -> bool:
        """Whether an inferred link was said so long ago that other paths may be late by now."""
        return self.is_inferred and now_ns - self._at_ns > _HOLDS_NS

    def rank(self, path: str) -> int:
        """The place of a path among those that are not late, the quickest first; 0 where routers answer."""
        return self._free.get(path, 0)
