"""The report on the TCP flows that a fault may touch."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from foliot_lab.report.blast_radius import scope
from foliot_lab.scenario.promises import OF_PATHS

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from foliot_lab.faults.injection import Injection
    from foliot_lab.measure.intervals import Interval
    from foliot_lab.report.allowances import Allowances
    from foliot_lab.report.attribution import Span
    from foliot_lab.report.evidence import Evidence
    from foliot_lab.workload.flow_loop import FlowPlan
    from foliot_lab.workload.flow_record import FlowRecord

BESIDE_NS = 5_000_000_000
"""The length of a flow before and after a fault from which its rate is taken. It is long against TCP's saw-tooth at
these rates, and short against the pauses between a scenario's faults."""
STANDS_AGAIN = 2
"""TCP waits twice as long after each repetition that is lost (RFC 6298, 5.5). A flow that stood still without a
route may stand still as long again once there is one."""
_BEGINS_NS = 50_000_000
"""A gap that a fault makes began at most so long before it, with the last bytes of a burst or a queue: see
`outages.REACH_NS`."""


class Rates(msgspec.Struct, frozen=True, kw_only=True):
    """Goodput in Mb/s; null if nothing was recorded."""

    before: float | None
    during: float | None
    after: float | None


class FlowReport(msgspec.Struct, frozen=True, kw_only=True):
    """A flow that a fault may touch."""

    id: str
    errors: int
    longest_gap_ms: float
    gap_with_way_ms: float
    """The longest gap that began with the fault or later, less twice the part that does not count: see
    `STANDS_AGAIN`."""
    mbps: Rates


class FlowRest(msgspec.Struct, frozen=True, kw_only=True):
    """A flow in the time for which no fault answers."""

    id: str
    longest_gap_ms: float
    gap_with_way_ms: float


def flow_reports(
    evidence: Evidence, injection: Injection, span: Span, restored_ns: int | None, accounts: Accounts
) -> list[FlowReport]:
    """The report on each flow, up to the next fault that may touch it."""
    record = evidence.record
    if record is None:
        return []
    since_ns, until_ns = injection.injected_ns, min(span.until_ns, evidence.end_ns)
    healed_ns = injection.healed_ns if injection.healed_ns is not None else until_ns
    ends = accounts.ends[injection.fault_id]
    after_ns = max(healed_ns, restored_ns or 0)
    return [
        FlowReport(
            id=flow.id,
            errors=record.errors(number, since_ns, ends[flow.id]),
            longest_gap_ms=round(record.longest_gap_ms(number, since_ns, ends[flow.id]), 3),
            gap_with_way_ms=accounts.gap_with_way_ms(number, injection),
            mbps=Rates(
                before=_rate(record, number, since_ns - BESIDE_NS, since_ns),
                during=_rate(record, number, since_ns, healed_ns),
                after=_rate(record, number, after_ns, min(after_ns + BESIDE_NS, evidence.end_ns)),
            ),
        )
        for number, flow in enumerate(evidence.flows)
        if flow.id in ends
    ]


def flow_rests(evidence: Evidence, accounts: Accounts) -> list[FlowRest]:
    """Every flow in the time that no fault's report covers, from second 0 on."""
    if evidence.record is None:
        return []
    found = []
    for number, flow in enumerate(evidence.flows):
        if not is_foliots(flow):
            continue
        gaps = accounts.rest(number)
        longest_ns = max((until - since for since, until in gaps), default=0)
        found.append(
            FlowRest(
                id=flow.id,
                longest_gap_ms=round(longest_ns * 1e-6, 3),
                gap_with_way_ms=accounts.gap_with_way_ms(number, None),
            )
        )
    return found


class Accounts:
    """The faults that answer for the gaps of flows.

    A fault answers for gaps of the flows that it may touch. Such a gap begins after the fault's injection. It begins
    before the end of the recovery, and before the next fault that may touch the flow. A fault that is not a path's
    answers for no gap for which a path's fault does.
    """

    def __init__(self, evidence: Evidence, spans: Sequence[Span], allowances: Allowances) -> None:
        self.allowances = allowances
        self._evidence = evidence
        self.ends = {
            injection.fault_id: _ends(evidence, injection, span)
            for injection, span in zip(evidence.injections, spans, strict=True)
        }
        """By fault: the end of the time in which it answers, for each flow that it may touch."""

    def rest(self, flow: int) -> list[Interval]:
        """The gaps of a flow for which no fault answers, from second 0 on."""
        start_ns = self._evidence.start_ns
        gaps = [(max(since, start_ns), until) for since, until in self._gaps(flow) if until > start_ns]
        return [gap for gap in gaps if not any(self._answers(each, flow, gap) for each in self._evidence.injections)]

    def gap_with_way_ms(self, flow: int, injection: Injection | None) -> float:
        """The longest gap for which a fault answers, less the part that does not count, in ms.

        Without a fault: the longest gap for which no fault answers.
        """
        if injection is None:
            return max((self._left_ms(flow, gap, self._last_of_paths(gap)) for gap in self.rest(flow)), default=0.0)
        mine = [gap for gap in self._gaps(flow) if self._answers(injection, flow, gap)]
        if injection.kind in OF_PATHS:
            return max((self._left_ms(flow, gap, injection) for gap in mine), default=0.0)
        paths = [each for each in self._evidence.injections if each.kind in OF_PATHS]
        alone = [gap for gap in mine if not any(self._answers(each, flow, gap) for each in paths)]
        return max((self._left_ms(flow, gap, self._last_of_paths(gap)) for gap in alone), default=0.0)

    def _gaps(self, flow: int) -> list[Interval]:
        record = self._evidence.record
        return [] if record is None else record.gaps(flow, self._evidence.start_ns, self._evidence.end_ns)

    def _answers(self, injection: Injection, flow: int, gap: Interval) -> bool:
        until_ns = self.ends[injection.fault_id].get(self._evidence.flows[flow].id)
        return until_ns is not None and injection.injected_ns - _BEGINS_NS <= gap[0] < until_ns

    def _last_of_paths(self, gap: Interval) -> Injection | None:
        """The fault of a path after which a gap came, at any place: another fault may have sent traffic its way."""
        before = [each for each in self._evidence.injections if each.kind in OF_PATHS and each.injected_ns <= gap[1]]
        return max(before, key=lambda each: each.injected_ns, default=None)

    def _left_ms(self, flow: int, gap: Interval, injection: Injection | None) -> float:
        plan = self._evidence.flows[flow]
        standing = self.allowances.standing(plan.source, plan.destination, injection)
        since_ns, until_ns = gap
        left_ns = until_ns - since_ns - STANDS_AGAIN * standing.within(since_ns, until_ns)
        return round(max(0, left_ns) * 1e-6, 3)


def is_foliots(flow: FlowPlan) -> bool:
    """Whether Foliot moves a flow, and so answers for it. One between the NICs' own addresses stays where it is."""
    return flow.over == "service"


def _ends(evidence: Evidence, injection: Injection, span: Span) -> dict[str, int]:
    until_ns = min(span.until_ns, evidence.end_ns)
    healed_ns = injection.healed_ns if injection.healed_ns is not None else until_ns
    return {
        flow.id: min([until_ns, *_next_faults(evidence, flow, healed_ns)])
        for flow in evidence.flows if is_foliots(flow) and span.scope.has_flow(flow)
    }  # fmt: skip


def _next_faults(evidence: Evidence, flow: FlowPlan, after_ns: int) -> Iterator[int]:
    """The beginnings of later faults that may touch a flow, each of which answers for the gaps from then on."""
    for other in evidence.injections:
        if other.injected_ns > after_ns and scope(other.kind, other.where, evidence.fabric).has_flow(flow):
            yield other.injected_ns


def _rate(record: FlowRecord, flow: int, since_ns: int, until_ns: int) -> float | None:
    mbps = record.mbps(flow, since_ns, until_ns)
    return None if mbps is None else round(mbps, 3)
