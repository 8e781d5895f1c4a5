"""The report on ranks of a training job that were said to hold it up, or to be slow. Pure."""

from __future__ import annotations

import statistics
from collections import defaultdict
from typing import TYPE_CHECKING

import msgspec

from foliot_lab.measure.host_latency import SECOND_NS
from foliot_lab.report.message_times import lab_ns
from foliot_schemas.event_kinds import HANG, STRAGGLER, is_relief
from foliot_schemas.fault import trace_id

if TYPE_CHECKING:
    from collections.abc import Mapping

    from foliot_lab.measure.bus_recorder import Heard
    from foliot_lab.measure.host_latency import Second
    from foliot_lab.report.evidence import Evidence
    from foliot_schemas import Event


_BORNE_OUT = 0.25
"""Share of what a rank was said to cost for which it is to have had no processor by the lab's count."""


class HangReport(msgspec.Struct, frozen=True, kw_only=True):
    """One event about a job that hangs; times are lab time."""

    fault: str | None
    """The fault that explains it; null: none does."""
    job: str
    rank: int | None
    """Null: no rank was named, but the job."""
    node: str | None
    why: str
    collective: str
    """Empty: it was not said."""
    seq: int
    """The number of the collective in its group; 0: it was not said."""
    detected_ns: int
    ended_ns: int | None
    trace_id: str


class StragglerReport(msgspec.Struct, frozen=True, kw_only=True):
    """One event about a slow rank; times are lab time."""

    fault: str | None
    """The fault that explains it; null: none does."""
    job: str
    rank: int | None
    """Null: it is about the job."""
    node: str | None
    cause: str
    share: float
    """The part of the job's time that it was said to cost."""
    since_ns: int
    detected_ns: int
    ended_ns: int | None
    confidence: float
    trace_id: str


def hang_reports(evidence: Evidence, faults: Mapping[str, str]) -> list[HangReport]:
    """A report on each event that finds a hang, in the order of arrival.

    Parameters:
        faults: by event, the fault that explains it.
    """
    return [
        HangReport(
            fault=faults.get(heard.message.id), job=_job(heard.message), rank=_rank(heard.message),
            node=_node(heard.message), why=heard.message.state,
            collective=str(heard.message.evidence.get("collective", "")), seq=int(heard.message.number("number")),
            detected_ns=_detected_ns(heard, evidence), ended_ns=_ended_ns(heard, evidence),
            trace_id=f"{trace_id(heard.message.fault):032x}",
        )
        for heard in _found(evidence, HANG.name)
    ]  # fmt: skip


def straggler_reports(evidence: Evidence, faults: Mapping[str, str]) -> list[StragglerReport]:
    """A report on each event that finds a slow rank, in the order of arrival; see `hang_reports`."""
    return [
        StragglerReport(
            fault=faults.get(heard.message.id), job=_job(heard.message), rank=_rank(heard.message),
            node=_node(heard.message), cause=heard.message.state, share=heard.message.number("share"),
            since_ns=_detected_ns(heard, evidence) - (heard.message.at_ns - heard.message.since_ns),
            detected_ns=_detected_ns(heard, evidence), ended_ns=_ended_ns(heard, evidence),
            confidence=heard.message.confidence, trace_id=f"{trace_id(heard.message.fault):032x}",
        )
        for heard in _found(evidence, STRAGGLER.name)
    ]  # fmt: skip


def starved(evidence: Evidence) -> frozenset[str]:
    """The ids of events that a rank has no processor, where its process waited for one beyond those of its peers.

    The detector says so if half of what the rank costs is for want of a processor. The lab counts once a second, and the
    detector's windows may be as short. So half of that is enough here.
    """
    found = set()
    for heard in _found(evidence, STRAGGLER.name):
        until_ns = _detected_ns(heard, evidence)
        since_ns = until_ns - (heard.message.at_ns - heard.message.since_ns)
        seconds = [each for each in evidence.seconds if since_ns < each.until_ns <= until_ns + SECOND_NS]
        beyond_s = sum(_beyond_peers_s(each, _node(heard.message)) for each in seconds)
        if heard.message.state == "processor" and beyond_s > _BORNE_OUT * heard.message.number("share") * len(seconds):
            found.add(heard.message.id)
    return frozenset(found)


def _beyond_peers_s(second: Second, node: str | None) -> float:
    """For how long the rank on a node had no processor in a second, beyond the median of the others."""
    by_node: defaultdict[str, float] = defaultdict(float)
    for name, waited_s in second.waited_s.items():
        host, _, process = name.partition("/")
        if process.startswith("train"):
            by_node[host] += waited_s
    peers = [waited_s for host, waited_s in by_node.items() if host != node]
    return by_node.get(node or "", 0.0) - statistics.median(peers or [0.0])


def _found(evidence: Evidence, kind: str) -> list[Heard[Event]]:
    events = [each for each in evidence.events if each.message.kind == kind and not is_relief(each.message)]
    return sorted(events, key=lambda each: each.at_ns)


def _detected_ns(heard: Heard[Event], evidence: Evidence) -> int:
    return lab_ns(evidence.truth, evidence.lab, heard.message.at_ns, heard.at_ns)


def _ended_ns(heard: Heard[Event], evidence: Evidence) -> int | None:
    return next(
        (_detected_ns(each, evidence) for each in evidence.events if each.message.cause == heard.message.id), None
    )


def _job(event: Event) -> str:
    return event.who.partition("/")[0]


def _rank(event: Event) -> int | None:
    number = event.who.partition("/rank")[2]
    return int(number) if number.isdecimal() else None


def _node(event: Event) -> str | None:
    nodes = event.related.get("nodes", ())
    return nodes[0] if len(nodes) == 1 else None
