"""The report on traffic that was said not to take the path that is probed for it. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from foliot_lab.report.contention_truth import flow_name, without_job
from foliot_lab.report.message_times import lab_ns
from foliot_schemas.event_kinds import MISMATCH, is_relief
from foliot_schemas.names import nic_name

if TYPE_CHECKING:
    from foliot_lab.measure.bus_recorder import Heard
    from foliot_lab.report.evidence import Evidence
    from foliot_lab.workload.flow_loop import FlowPlan
    from foliot_lab.workload.flow_ways import Way
    from foliot_lab.workload.jobs import JobsRecord
    from foliot_schemas import Event

_BEFORE_NS = 5_000_000_000
"""What an event is about may have been over for so long when it says that it began."""


class MismatchReport(msgspec.Struct, frozen=True, kw_only=True):
    """One event about traffic that does not take the path that is probed for it."""

    event: str
    job: str | None
    """Null: no job that ran then has such a flow."""
    flow: str
    at_ns: int
    """When it was said, as lab time."""
    right: bool | None
    """Null: the lab does not know."""


def mismatch_reports(evidence: Evidence) -> list[MismatchReport]:
    """A report on each of these events, in the order of arrival."""
    events = [each for each in evidence.events if each.message.kind == MISMATCH.name and not is_relief(each.message)]
    return [_report(each, evidence) for each in sorted(events, key=lambda each: each.at_ns)]


def _report(heard: Heard[Event], evidence: Evidence) -> MismatchReport:
    event, jobs = heard.message, evidence.jobs
    at_ns = lab_ns(evidence.truth, evidence.lab, event.at_ns, heard.at_ns)
    number = None if jobs is None else _flow(event, jobs, at_ns - (event.at_ns - event.since_ns), at_ns)
    return MismatchReport(
        event=event.id,
        job=None if jobs is None or number is None else jobs.specs[jobs.flows[number].job].name,
        flow=flow_name(event.who) if jobs is None or number is None else jobs.flows[number].id,
        at_ns=at_ns,
        right=_is_right(event, evidence, jobs, number, at_ns),
    )


def _flow(event: Event, jobs: JobsRecord, since_ns: int, at_ns: int) -> int | None:
    """The number of the flow that an event names, of the jobs that ran then."""
    over = "nic" if event.evidence.get("addresses") == "nic" else "service"
    for number, flow in enumerate(jobs.flows):
        began_ns, ended_ns = jobs.ran.get(flow.job, (at_ns + 1, at_ns))
        runs = began_ns <= at_ns and ended_ns >= since_ns - _BEFORE_NS
        if runs and flow.over == over and without_job(flow.id) == flow_name(event.who):
            return number
    return None


def _is_right(event: Event, evidence: Evidence, jobs: JobsRecord | None, number: int | None, at_ns: int) -> bool | None:
    """Whether a flow or its acknowledgements took other links than those of the paths that an event names."""
    said = event.related.get("paths", ())
    if jobs is None or number is None or len(said) != 2:
        return None if jobs is None else False
    taken = [way for since_ns, way in jobs.ways[number] if since_ns <= at_ns]
    flow = jobs.flows[number]
    if not taken or evidence.fabric.spray:
        return None
    if flow.over == "service":
        return said[0] != _path(flow, taken[-1])
    known = [evidence.paths.get(path) for path in said]
    return None if None in known else known != _links(flow, taken[-1], evidence)


def _path(flow: FlowPlan, way: Way) -> str:
    return f"{nic_name(flow.source, way.rail)}>{nic_name(flow.destination, way.rail)}#{way.entropy}"


def _links(flow: FlowPlan, way: Way, evidence: Evidence) -> list[tuple[str, ...]]:
    """The links of a flow between NICs, and of its acknowledgements."""
    between = evidence.fabric.links_between
    return [
        between(flow.source, flow.destination, way.rail, way.spine),
        between(flow.destination, flow.source, way.rail, way.acks_spine),
    ]
