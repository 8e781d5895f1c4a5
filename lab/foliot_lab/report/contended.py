"""Which fabric links were full while several flows shared them: the truth about contention. Pure.

It rests on the lab's own counters at the links (`link_load`), on the routes of the kernels that send (`flow_ways`), and
on what the flows delivered, and on no word of Foliot's. A training job's connections are not the lab's, and not in it.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from foliot_lab.measure.link_load import FULL_NS
from foliot_lab.workload.flow_ways import lanes, spells

if TYPE_CHECKING:
    from collections.abc import Iterator

    from foliot_lab.measure.intervals import Interval
    from foliot_lab.measure.link_load import Lane
    from foliot_lab.workload.jobs import JobsRecord

_TAKES_PART = 0.02
"""Of the link's rate: a flow that delivers less is not one of those that fill it."""
_LEAST_FLOWS = 2


class Contended(msgspec.Struct, frozen=True, kw_only=True):
    """A time in which a fabric link was full and the same flows shared it. Times are lab time."""

    link: str
    since_ns: int
    until_ns: int
    flows: list[str]
    jobs: list[str]
    """Names of the jobs that these flows are of."""


class _Use(NamedTuple):
    """A time in which a flow's way crossed a link."""

    since_ns: int
    until_ns: int
    flow: int


def contended(jobs: JobsRecord) -> list[Contended]:
    """Every such time, in the order of their beginnings. A link that is full both ways has its times for each."""
    uses = _uses(jobs)
    found = [
        Contended(
            link=lane.link,
            since_ns=since_ns,
            until_ns=until_ns,
            flows=[jobs.flows[flow].id for flow in flows],
            jobs=list(dict.fromkeys(jobs.specs[jobs.flows[flow].job].name for flow in flows)),
        )
        for lane, times in jobs.full.items()
        for full in times
        for since_ns, until_ns, flows in _shared(jobs, full, uses.get(lane, []))
    ]
    return sorted(found, key=lambda each: (each.since_ns, each.link))


def _uses(jobs: JobsRecord) -> dict[Lane, list[_Use]]:
    """When the flows of running jobs crossed which links."""
    found: dict[Lane, list[_Use]] = {}
    for number, (flow, taken) in enumerate(zip(jobs.flows, jobs.ways, strict=True)):
        if flow.job not in jobs.ran:
            continue
        for since_ns, until_ns, way in spells(taken, *jobs.ran[flow.job]):
            for lane in lanes(way, flow, jobs.fabric):
                found.setdefault(lane, []).append(_Use(since_ns, until_ns, number))
    return found


def _shared(jobs: JobsRecord, full: Interval, uses: list[_Use]) -> Iterator[tuple[int, int, tuple[int, ...]]]:
    """The parts of a time in which a link was full, by the flows that shared it."""
    moments = sorted({full[0], full[1], *(at for use in uses for at in use[:2] if full[0] < at < full[1])})
    parts: list[tuple[int, int, tuple[int, ...]]] = []
    for since_ns, until_ns in itertools.pairwise(moments):
        flows = tuple(use.flow for use in uses if use.since_ns <= since_ns and until_ns <= use.until_ns)
        if parts and parts[-1][2] == flows:
            parts[-1] = (parts[-1][0], until_ns, flows)
        else:
            parts.append((since_ns, until_ns, flows))
    least_mbps = _TAKES_PART * jobs.fabric.link_mbps
    for since_ns, until_ns, there in parts:
        flows = tuple(flow for flow in there if (jobs.record.mbps(flow, since_ns, until_ns) or 0.0) >= least_mbps)
        if len(flows) >= _LEAST_FLOWS and until_ns - since_ns >= FULL_NS:
            yield since_ns, until_ns, flows
