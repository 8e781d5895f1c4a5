"""The map of links that Foliot makes of its paths, held against the ways that the lab's kernels send them. Pure."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import msgspec

from foliot.link_map import UNNAMED, is_inferred
from foliot_schemas.event_kinds import CONTENTION

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from foliot_lab.measure.told_routers import ToldRouters
    from foliot_lab.scenario.topology import FabricPlan
    from foliot_schemas import Event

Links = tuple[str, ...]
"""The links of a path in the lab's names, from its source on."""


class MapReport(msgspec.Struct, frozen=True, kw_only=True):
    """How many paths Foliot knows the links of, at the end of the run."""

    paths: int
    """All: each pair of hosts, rail and entropy, one way."""
    right: int
    wrong: int
    """A link of the path is said to be one that it is not; or to be shared with others, with which it shares none."""
    inferred: int = 0
    """No router of the path is known, and an event has said with which others it shares a link. It does."""
    unknown: int
    """A router of the path is not known, and nothing wrong is said of it."""
    took_s: float | None
    """From the first word about any router until the last path that is right now was; null: none is."""


def map_report(
    told: ToldRouters, truth: Mapping[str, Links], plan: FabricPlan, events: Iterable[Event] = ()
) -> MapReport:
    """How far what was told is true.

    Parameters:
        told: what probes have told.
        truth: the links of each path, by its name.
        plan: the fabric, which has the lab's names for links.
        events: all that were published.
    """
    said = {path: tuple(map(plan.link_name, told.links.of(path))) for path in truth}
    right = [path for path, links in truth.items() if said[path] == links]
    sharing, strange = _inferred(events, truth)
    wrong = {path for path, links in truth.items() if _contradicts(said[path], links)} | strange
    inferred = {path for path in sharing - wrong if not said[path]}
    last_ns = max((told.changed_ns[path] for path in right), default=None)
    return MapReport(
        paths=len(truth),
        right=len(right),
        wrong=len(wrong),
        inferred=len(inferred),
        unknown=len(truth) - len(right) - len(wrong) - len(inferred),
        took_s=None if last_ns is None or told.began_ns is None else round((last_ns - told.began_ns) / 1e9, 2),
    )


def _inferred(events: Iterable[Event], truth: Mapping[str, Links]) -> tuple[set[str], set[str]]:
    """The paths that are said to share a link, where routers are silent: those that do, and those that do not."""
    sharing, strange = set[str](), set[str]()
    for event in events:
        if event.kind != CONTENTION.name or not is_inferred(event.who):
            continue
        paths = [path for path in event.related.get("paths", ()) if path in truth]
        crossed = Counter(link for path in paths for link in truth[path][1:-1])
        link = max(crossed, key=crossed.__getitem__, default="")
        own = {path for path in paths if link in truth[path]}
        sharing |= own if len(own) > 1 else set()
        strange |= {*paths} - own
    return sharing, strange


def _contradicts(said: Links, links: Links) -> bool:
    """Whether a link is named that the path does not cross.

    Where routers are silent, nobody knows how many there are.
    """
    if UNNAMED in said or not said:
        return not {*said} - {UNNAMED} <= {*links}
    return said != links
