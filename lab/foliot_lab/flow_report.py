"""What became of the TCP flows that a fault may touch."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from foliot_lab.scope import scope

if TYPE_CHECKING:
    from collections.abc import Iterator

    from foliot_lab.explained import Span
    from foliot_lab.faults import Injection
    from foliot_lab.flow_loop import FlowPlan
    from foliot_lab.flow_record import FlowRecord
    from foliot_lab.report import Evidence

BESIDE_NS = 5_000_000_000
"""How much of a flow before and after a fault is taken for its rate: long against TCP's saw-tooth at these rates, short
against the pauses between a scenario's faults."""


class Rates(msgspec.Struct, frozen=True, kw_only=True):
    """Mb/s of goodput; null where nothing was recorded."""

    before: float | None
    during: float | None
    after: float | None


class FlowReport(msgspec.Struct, frozen=True, kw_only=True):
    """A flow that a fault may touch."""

    id: str
    errors: int
    longest_gap_ms: float
    mbps: Rates


def flow_reports(evidence: Evidence, injection: Injection, span: Span, restored_ns: int | None) -> list[FlowReport]:
    """Of each of them, up to the next fault that may touch it."""
    record = evidence.record
    if record is None:
        return []
    since_ns, until_ns = injection.injected_ns, min(span.until_ns, evidence.end_ns)
    healed_ns = injection.healed_ns if injection.healed_ns is not None else until_ns
    ends = {
        flow.id: min([until_ns, *_next_faults(evidence, flow, healed_ns)])
        for flow in evidence.flows if span.scope.has_flow(flow)
    }  # fmt: skip
    after_ns = max(healed_ns, restored_ns or 0)
    return [
        FlowReport(
            id=flow.id,
            errors=record.errors(number, since_ns, ends[flow.id]),
            longest_gap_ms=round(record.longest_gap_ms(number, since_ns, ends[flow.id]), 3),
            mbps=Rates(
                before=_rate(record, number, since_ns - BESIDE_NS, since_ns),
                during=_rate(record, number, since_ns, healed_ns),
                after=_rate(record, number, after_ns, min(after_ns + BESIDE_NS, evidence.end_ns)),
            ),
        )
        for number, flow in enumerate(evidence.flows)
        if flow.id in ends
    ]


def _next_faults(evidence: Evidence, flow: FlowPlan, after_ns: int) -> Iterator[int]:
    """When later faults began that may touch a flow: what it suffers from then on is theirs."""
    for other in evidence.injections:
        if other.injected_ns > after_ns and scope(other.kind, other.where, evidence.fabric).has_flow(flow):
            yield other.injected_ns


def _rate(record: FlowRecord, flow: int, since_ns: int, until_ns: int) -> float | None:
    mbps = record.mbps(flow, since_ns, until_ns)
    return None if mbps is None else round(mbps, 3)
