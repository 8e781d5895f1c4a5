"""Which trouble that stands concerns a flow: the cause of what it gets, as far as anybody has said one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, TypeAlias

import msgspec

from foliot.link_map import UNNAMED, link_in, link_out
from foliot.text.events import sentence
from foliot_schemas.event import Evidence  # noqa: TC001 - msgspec reads annotations at run time
from foliot_schemas.event_kinds import HANG, MISMATCH, STRAGGLER, THRESHOLD, detects, find, is_relief
from foliot_schemas.names import parse_path

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from collections.abc import Set as AbstractSet

    from foliot_schemas import Event
    from foliot_schemas.names import Flow

_OF_RANKS = frozenset({HANG.name, STRAGGLER.name})
Part: TypeAlias = Literal["flow", "path", "nic", "link"]
_ORDER: tuple[Part, ...] = ("flow", "path", "nic", "link")
"""What names the flow itself says most of it; what names one of its links may be about others."""


_UNTROUBLED = ("jobs", "free")
"""What an event names that tells nothing of a flow: others of its job, and ways that are not late."""


class Cause(msgspec.Struct, frozen=True, kw_only=True):
    """A trouble that stands and concerns a flow."""

    event: str
    """Id of the event that says so."""
    kind: str
    state: str
    who: str
    part: Part
    """What of the flow it concerns: itself, its path, a NIC at its ends, or a link."""
    sentence: str
    """The event in words."""
    since_ns: int
    """When the trouble began, reference time."""
    confidence: float
    """From 0 to 1."""
    evidence: Evidence
    """The numbers that the event rests on, by name."""


class RankTrouble(msgspec.Struct, frozen=True, kw_only=True):
    """A trouble that stands and is about a rank of a training job, or about all of its ranks."""

    event: str
    """Id of the event that says so."""
    kind: str
    state: str
    who: str
    """The rank, such as pretrain-7/rank3, or the job."""
    nodes: tuple[str, ...]
    """Where it runs."""
    sentence: str
    """The event in words."""
    since_ns: int
    """When the trouble began, reference time."""
    confidence: float
    """From 0 to 1."""


def rank_troubles(job: str, troubles: Iterable[Event]) -> tuple[RankTrouble, ...]:
    """What stands of a job's ranks, the earliest first."""
    found = [event for event in troubles if event.kind in _OF_RANKS and event.who.partition("/")[0] == job]
    return tuple(
        RankTrouble(
            event=event.id, kind=event.kind, state=event.state, who=event.who, nodes=event.related.get("nodes", ()),
            sentence=sentence(event), since_ns=event.since_ns, confidence=event.confidence,
        )
        for event in sorted(found, key=lambda each: (each.since_ns, each.id))
    )  # fmt: skip


def standing(events: Iterable[Event]) -> list[Event]:
    """The detector's verdicts that nothing has ended since."""
    last: dict[tuple[str, str], Event] = {}
    for event in sorted(events, key=lambda each: (each.at_ns, is_relief(each))):
        if (kind := find(event.kind)) is not None and kind.publisher == "detector":
            last[event.kind, event.who] = event
    return [event for event in last.values() if detects(event)]


def cause_of(flow: Flow, path: str, hops: tuple[str, ...], troubles: Iterable[Event]) -> Cause | None:
    """The trouble that says most of a flow; None: nobody has said any.

    Parameters:
        path: the one that its traffic takes; empty: it is not known.
        hops: the path's routers, as `PathView` has them.
    """
    parts = _parts(flow, path, hops)
    # A mismatch says where the traffic is not, and not why it is slow.
    causes = (event for event in troubles if event.kind != MISMATCH.name)
    found = [(event, part) for event in causes if (part := _part(event, parts))]
    if not found:
        return None
    # A threshold says that something is late, and not why.
    event, part = min(
        found, key=lambda each: (each[0].kind == THRESHOLD.name, _ORDER.index(each[1]), each[0].since_ns, each[0].id)
    )
    return Cause(
        event=event.id, kind=event.kind, state=event.state, who=event.who, part=part, sentence=sentence(event),
        since_ns=event.since_ns, confidence=event.confidence, evidence=event.evidence,
    )  # fmt: skip


def _parts(flow: Flow, path: str, hops: tuple[str, ...]) -> dict[Part, set[str]]:
    """All names by which an event may mean a flow."""
    parts: dict[Part, set[str]] = {"flow": {str(flow)}, "path": set(), "nic": {*flow}, "link": set()}
    if path:
        source, destination, _ = parse_path(path)
        parts["path"].add(path)
        parts["nic"] |= {source, destination}
        # The port by which the first router is entered is the other end of the NIC's own link.
        parts["link"] = {link_out(source), *hops[1:], link_in(destination)} - {UNNAMED}
    return parts


def _part(event: Event, parts: Mapping[Part, AbstractSet[str]]) -> Part | None:
    """What of a flow an event concerns: what it names that is in trouble or, if it names nothing, its subject."""
    related = {name for what, names in event.related.items() if what not in _UNTROUBLED for name in names}
    named = related or {event.who}
    return next((part for part in _ORDER if not named.isdisjoint(parts[part])), None)
