"""Whether what Foliot says of contention is true, by what the lab knows of its links, jobs and faults. Pure."""

from __future__ import annotations

import itertools
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from foliot.link_map import is_inferred
from foliot_lab.report.message_times import lab_ns
from foliot_lab.scenario.spec import TRAIN
from foliot_schemas.names import node_of, parse_flow, rail_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from foliot_lab.faults.injection import Injection
    from foliot_lab.measure.bus_recorder import Heard
    from foliot_lab.report.contended import Contended
    from foliot_lab.report.evidence import Evidence
    from foliot_lab.workload.flow_loop import FlowPlan
    from foliot_lab.workload.jobs import JobsRecord
    from foliot_schemas import Event

_BEFORE_NS = 5_000_000_000
"""What a verdict is about may have been over for so long when the verdict says that it began."""
_LEAST_FLOWS = 2
_AWAY_NS = 30_000_000_000
"""For so long after a fault has healed, traffic may still go by other NICs than its own."""


class Claim(NamedTuple):
    """What an event says of contention, in the lab's names and lab time."""

    verdict: str
    place: str
    """A link, a NIC or a flow."""
    links: tuple[str, ...]
    """Those that may be the place."""
    flows: tuple[str, ...]
    since_ns: int
    detected_ns: int

    def is_beside(self, since_ns: int, until_ns: int | None) -> bool:
        """Whether the claim is about a time that overlaps this one; None: it has no end."""
        return since_ns <= self.detected_ns and (until_ns is None or until_ns >= self.since_ns - _BEFORE_NS)


def claim_of(heard: Heard[Event], evidence: Evidence) -> Claim:
    """What an event says."""
    event, named = heard.message, evidence.fabric.link_name
    detected_ns = lab_ns(evidence.truth, evidence.lab, event.at_ns, heard.at_ns)
    return Claim(
        verdict=event.state,
        place=flow_name(event.who) if ">" in event.who else named(event.who),
        links=tuple(dict.fromkeys(map(named, event.related.get("links", ())))),
        flows=tuple(map(flow_name, event.related.get("flows", ()))),
        since_ns=detected_ns - (event.at_ns - event.since_ns),
        detected_ns=detected_ns,
    )


def flow_name(called: str) -> str:
    """The lab's name of a flow by its name on the bus; any other name as it is."""
    try:
        flow = parse_flow(called)
    except ValueError:
        return called
    return f"{node_of(flow.source)}>{node_of(flow.destination)}/{rail_of(flow.source)}"


def without_job(flow: str) -> str:
    """A flow's name without that of its job, which it has where two jobs have a flow between the same ends."""
    return flow.rpartition(":")[2]


def shared_by(links: Iterable[str], flows: Iterable[str], row: Contended) -> bool:
    """Whether a contended link is among these, and two of these flows are among those that shared it.

    Of a link that delays alone tell of, all of these flows must be: nothing else says which it is.
    """
    shared = {*flows} & set(map(without_job, row.flows))
    is_it = shared == {*flows} if any(map(is_inferred, links)) else row.link in links
    return is_it and len(shared) >= _LEAST_FLOWS


class ContentionTruth:
    """Judges claims.

    Parameters:
        contended: which links flows of jobs shared, and when.
    """

    def __init__(self, evidence: Evidence, contended: Sequence[Contended]) -> None:
        self._evidence = evidence
        self._contended = contended

    def is_right(self, claim: Claim) -> bool | None:
        """Whether a claim is true; None: the lab does not know.

        It has no jobs, or does not know the verdict, or a fault may have moved other traffic to the NIC.
        """
        match claim.verdict:
            case "fabric-contention" if self._evidence.jobs is not None:
                return self._is_shared_by_ranks(claim, self._evidence.jobs) or any(
                    shared_by(claim.links, claim.flows, row) and claim.is_beside(row.since_ns, row.until_ns)
                    for row in self._contended
                )
            case "own-nic":
                sources = [f"{flow.source}.{flow.rail}" for flow in self._running(claim)]
                return self._meet(claim, [*sources, *self._between_ranks(claim)])
            case "incast":
                destinations = [f"{flow.destination}.{flow.rail}" for flow in self._running(claim)]
                return self._meet(claim, [*destinations, *self._between_ranks(claim)])
            case "slow-receiver" if self._evidence.jobs is not None:
                specs = self._evidence.jobs.specs
                read = {flow for flow in self._running(claim) if specs[flow.job].read_mbps is not None}
                return claim.place in {without_job(flow.id) for flow in read}
            case "reduced-rate":
                return any(
                    fault.kind == "rate"
                    and fault.where in {claim.place, *claim.links}
                    and claim.is_beside(fault.injected_ns, fault.healed_ns)
                    for fault in self._evidence.injections
                )
        return None

    def _meet(self, claim: Claim, nics: list[str]) -> bool | None:
        if nics.count(claim.place) >= _LEAST_FLOWS:
            return True
        return None if any(map(partial(_may_have_moved, claim), self._evidence.injections)) else False

    def _training(self, claim: Claim) -> Iterator[tuple[tuple[str, ...], tuple[str, ...]]]:
        """Hosts and rails of the training jobs that ran at the time of a claim.

        Their ranks have connections of their own with one another, of which the lab knows no more.
        """
        jobs, fabric = self._evidence.jobs, self._evidence.fabric
        if jobs is None:
            if self._evidence.job is not None:
                yield fabric.hosts, fabric.rails
            return
        for number, spec in enumerate(jobs.specs):
            if spec.kind == TRAIN and number in jobs.ran and claim.is_beside(*jobs.ran[number]):
                yield jobs.hosts[number], spec.rails or fabric.rails

    def _between_ranks(self, claim: Claim) -> list[str]:
        """The NICs of ranks, each once for every other host of its job: it sends to each, and hears of each."""
        return [
            f"{host}.{rail}"
            for hosts, rails in self._training(claim)
            for host in hosts
            for rail in rails
            for _ in range(len(hosts) - 1)
        ]

    def _is_shared_by_ranks(self, claim: Claim, jobs: JobsRecord) -> bool:
        """Whether one of the links was full, and two of the flows are between ranks of one job."""
        full = any(
            lane.link in claim.links and any(claim.is_beside(*time) for time in times)
            for lane, times in jobs.full.items()
        )
        return full and any(
            sum(flow in pairs for flow in claim.flows) >= _LEAST_FLOWS
            for pairs in (
                {f"{one}>{other}/{rail}" for one, other in itertools.permutations(hosts, 2) for rail in rails}
                for hosts, rails in self._training(claim)
            )
        )

    def _running(self, claim: Claim) -> Iterator[FlowPlan]:
        """The flows that sent at the time of a claim; without jobs, all of them."""
        jobs = self._evidence.jobs
        for flow in self._evidence.flows:
            if jobs is None or (flow.job in jobs.ran and claim.is_beside(*jobs.ran[flow.job])):
                yield flow


def _may_have_moved(claim: Claim, fault: Injection) -> bool:
    """Whether traffic may have gone by other NICs for a fault at the time of a claim."""
    return claim.is_beside(fault.injected_ns, None if fault.healed_ns is None else fault.healed_ns + _AWAY_NS)
