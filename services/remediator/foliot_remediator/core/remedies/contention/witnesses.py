"""What the senders of an event's flows say themselves: the detector's word alone moves nothing, nor does one node's."""

from __future__ import annotations

import collections
from typing import TYPE_CHECKING, Literal

from foliot.link_map import UNNAMED
from foliot_remediator.core.state.inventory import Destination, path_name

if TYPE_CHECKING:
    from foliot_remediator.core.actions.fleet_view import FleetView
    from foliot_remediator.core.actions.guards import Guard
    from foliot_remediator.core.steering.event_links import EventLinks
    from foliot_schemas import Event
    from foliot_schemas.event import Evidence

_Word = Literal["unknown", "stale", "idle", "unmapped", "elsewhere", "sharing"]
_LEAST = 2
"""Flows that must share a link, by the words of so many nodes."""


class Witnesses:
    """The words of the senders of an event's flows, at one moment.

    Parameters:
        links: what is known of links, with what the event says.
    """

    def __init__(self, view: FleetView, event: Event, links: EventLinks, now_ns: int) -> None:
        self._view = view
        self._links = links
        self._words: collections.Counter[_Word] = collections.Counter()
        self._sharing: dict[Destination, str] = {}
        """The rail that carries each flow that shares a named link."""
        for flow in dict.fromkeys(event.related.get("flows", ())):
            self._words[self._word_of(flow, now_ns)] += 1

    def rails(self) -> list[str]:
        """The rails of the flows that share the link."""
        return sorted(set(self._sharing.values()))

    def doubt(self) -> tuple[Guard, Evidence] | None:
        """The guard against moves, and its numbers; None: enough senders say that they use the link."""
        nodes = len({each.node for each in self._sharing})
        if len(self._sharing) >= _LEAST and nodes >= _LEAST:
            return None
        words = self._words
        evidence: Evidence = {"flows": words.total(), "nodes_sharing": nodes, **{f"flows_{name}": words[name]
            for name in ("unknown", "stale", "idle", "unmapped", "elsewhere", "sharing")}}  # fmt: skip
        if not self._links.named:
            return "unknown-links", evidence
        if words["unknown"] and words["unknown"] == words.total():
            return "unknown", evidence
        if words["stale"]:
            return "stale-observation", evidence
        return ("unknown-links" if words["unmapped"] else "contradicted"), evidence

    def _word_of(self, flow: str, now_ns: int) -> _Word:
        inventory, flows = self._view.inventory, self._view.flows
        ends = [inventory.nics.get(end) for end in flow.split(">")]
        if len(ends) != 2 or ends[0] is None or ends[1] is None:
            return "unknown"
        (node, _), (peer, rail) = ends[0], ends[1]
        if not flows.is_fresh(node, now_ns):
            return "stale"
        if not flows.is_sending(flow, now_ns):
            return "idle"
        destination = Destination(node, peer, rail)
        way = self._view.routing.way(destination)
        links = self._links.of(path_name(node, way))
        if self._links.named.intersection(links):
            self._sharing[destination] = way.via
            return "sharing"
        return "elsewhere" if links and UNNAMED not in links else "unmapped"
