"""Puts the flows of jobs on ways over the fabric: free of collisions, or all over one link.

A flow between service addresses takes the home of its destination, and the entropy of a home decides the spine. So does
the source port of a flow between the NICs' own addresses. Which spine that is, the leaf's kernel says.

Source of the search for ways without collisions: `foliot_remediator.core.steering.assignment`.
"""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING, NamedTuple

import msgspec
import numpy as np

from foliot_lab.scenario.job_traffic import hosts_of, pairs_of, rails_of
from foliot_remediator.core.state.homes import pair_number
from foliot_remediator.core.steering.assignment import Assignment, Flows

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from foliot_lab.fabric.fabric import Fabric
    from foliot_lab.scenario.spec import JobSpec, Placed, Scenario
    from foliot_schemas import Node

FLOWS_PORT = 7950
"""The port of the first job's flows, next to the probes' 7946 and the agents' 7947. Any port would do inside the lab's
namespaces."""
NIC_PORTS = range(20_000, 20_016)
"""Source ports among which a flow between NICs has its own. They are no ports of connections of the kernel's choice."""
_SEARCH_STEPS = 2_000
_LEAST_FLOWS = 2

Lane = tuple[str, str]
"""A link of the fabric in one direction: where it begins, where it ends."""


class PlacementError(RuntimeError):
    """The fabric's hash leaves no way to place the jobs as they are to be; the message says what would help."""


class JobFlow(NamedTuple):
    """The ends of one flow of a job."""

    job: int
    """Number of the job in the scenario."""
    source: str
    destination: str
    rail: str


class Carrier(NamedTuple):
    """What one choice decides: a destination's home, or the source port of one flow."""

    source: str
    destination: str
    rail: str
    job: int = -1
    """The flow's job, if it is between NICs; -1: a home, of the flows of all jobs."""


class Placement(msgspec.Struct, frozen=True):
    """The choices that place the flows of jobs."""

    chosen: dict[Carrier, int]
    """Of homes, the index of an entropy; else a source port."""

    def port(self, flow: JobFlow) -> int:
        """The source port of a flow between NICs."""
        return self.chosen[Carrier(flow.source, flow.destination, flow.rail, flow.job)]

    def homes(self) -> dict[tuple[str, str, str], int]:
        """The entropies of homes that are not the remediator's own choice, by source, destination and rail."""
        return {carrier[:3]: choice for carrier, choice in self.chosen.items() if carrier.job < 0}


def job_flows(scenario: Scenario) -> Iterator[JobFlow]:
    """The flows of all jobs of a scenario, job by job."""
    for number, job in enumerate(scenario.jobs):
        for source, destination in pairs_of(job.kind, hosts_of(job, scenario.fabric)):
            for rail in rails_of(job, scenario.fabric):
                yield JobFlow(number, source, destination, rail)


def place(scenario: Scenario, fabric: Fabric, nodes: Sequence[Node]) -> Placement:
    """The choices for all jobs of a scenario.

    Raises:
        PlacementError: no two flows of the jobs that are to collide can share a link.
    """
    entropies = {(node.name, nic.rail): nic.entropies for node in nodes for nic in node.nics}
    first = scenario.services.get("remediator.primary") == "first"

    def spines(carrier: Carrier) -> tuple[str | None, ...]:
        if carrier.job < 0:
            return tuple(fabric.spine(*carrier[:3], port) for port in entropies[carrier.source, carrier.rail])
        to = FLOWS_PORT + carrier.job
        return tuple(fabric.spine(*carrier[:3], port, to, protocol=socket.IPPROTO_TCP) for port in NIC_PORTS)

    search = _Search(scenario.jobs, job_flows(scenario), fabric.plan.leaf, spines, first=first)
    search.collide()
    search.part()
    return Placement(
        {
            carrier: NIC_PORTS[choice] if carrier.job >= 0 else choice
            for carrier, choice in search.chosen.items()
            if carrier.job >= 0 or search.placed[carrier] != "hash"
        }
    )


class _Search:
    """The carriers of all flows, and which of its ways each takes; at first that of the hash.

    Parameters:
        leaf: of a host on a rail.
        spines: by the number of each choice for a carrier; None: its ends are on one leaf.
        first: a home that nobody places has the first entropy, in place of the hashed one.
    """

    def __init__(
        self,
        jobs: Sequence[JobSpec],
        flows: Iterable[JobFlow],
        leaf: Callable[[str, str], str],
        spines: Callable[[Carrier], tuple[str | None, ...]],
        *,
        first: bool,
    ) -> None:
        self._flows: dict[Carrier, list[JobFlow]] = {}
        for flow in flows:
            self._flows.setdefault(_carrier(flow, jobs), []).append(flow)
        self.placed: Mapping[Carrier, Placed] = {
            carrier: _strongest({jobs[flow.job].placed for flow in carried}) for carrier, carried in self._flows.items()
        }
        self._leaf = leaf
        self._spines = {carrier: spines(carrier) for carrier in self._flows}
        self.chosen = {
            carrier: 0 if first and carrier.job < 0 else pair_number(*carrier[:3]) % len(ways)
            for carrier, ways in self._spines.items()
        }

    def collide(self) -> None:
        """Leads what is to collide over one link of each rail, as much of it as gets there."""
        carriers = self._of("collide")
        if not carriers:
            return
        most = 0
        for rail in sorted({carrier.rail for carrier in carriers}):
            there: dict[Lane, dict[Carrier, int]] = {}
            for carrier in carriers:
                for choice in range(len(self._spines[carrier])) if carrier.rail == rail else ():
                    for lane in self._lanes(carrier, choice):
                        there.setdefault(lane, {}).setdefault(carrier, choice)
            if there:
                best = max((there[lane] for lane in sorted(there)), key=self._weight)
                self.chosen.update(best)
                most = max(most, self._weight(best)[0])
        if most < _LEAST_FLOWS:
            raise PlacementError(
                "The fabric's hash leads no two flows of the jobs that are to collide over one link,"
                " whatever their entropies. Take another seed in [clock], or fewer spines."
            )

    def part(self) -> None:
        """Leads what is to be apart over links that nothing else uses, as far as that goes."""
        carriers = self._of("apart")
        if not carriers:
            return
        others = [carrier for carrier in self._flows if self.placed[carrier] != "apart"]
        taken = {lane for carrier in others for lane in self._lanes(carrier, self.chosen[carrier])}
        hops = [[self._lanes(carrier, choice) for choice in range(len(self._spines[carrier]))] for carrier in carriers]
        lanes = sorted({lane for ways in hops for way in ways for lane in way})
        numbers = {lane: number for number, lane in enumerate(lanes)}
        room = np.array([0.0 if lane in taken else 1.0 for lane in numbers])
        present = np.array([self.chosen[carrier] for carrier in carriers], dtype=np.intp)
        search = Assignment(_choices(hops, numbers), room, present, np.random.default_rng(0))
        search.improve(_SEARCH_STEPS)
        self.chosen.update(zip(carriers, search.chosen.tolist(), strict=True))

    def _of(self, placed: Placed) -> list[Carrier]:
        return [carrier for carrier in self._flows if self.placed[carrier] == placed]

    def _lanes(self, carrier: Carrier, choice: int) -> tuple[Lane, ...]:
        spine = self._spines[carrier][choice]
        if spine is None:
            return ()
        return (
            (self._leaf(carrier.source, carrier.rail), spine),
            (spine, self._leaf(carrier.destination, carrier.rail)),
        )

    def _weight(self, carriers: Iterable[Carrier]) -> tuple[int, int]:
        """The flows that share a link, and their jobs."""
        flows = [flow for carrier in carriers for flow in self._flows[carrier]]
        return len(flows), len({flow.job for flow in flows})


def _carrier(flow: JobFlow, jobs: Sequence[JobSpec]) -> Carrier:
    own = flow.job if jobs[flow.job].over == "nic" else -1
    return Carrier(flow.source, flow.destination, flow.rail, own)


def _choices(hops: Sequence[Sequence[tuple[Lane, ...]]], numbers: Mapping[Lane, int]) -> Flows:
    """Carriers as flows of one unit each.

    Parameters:
        hops: the links of each choice of each carrier.
        numbers: of the links.
    """
    shape = (len(hops), max(map(len, hops)), 2)
    ways, possible = np.full(shape, -1, dtype=np.intp), np.zeros(shape[:2], dtype=np.bool_)
    for row, choices in enumerate(hops):
        for choice, lanes in enumerate(choices):
            possible[row, choice] = True
            ways[row, choice, : len(lanes)] = [numbers[lane] for lane in lanes]
    return Flows(ways=ways, possible=possible, demand_bps=np.ones(len(hops)))


def _strongest(placed: set[Placed]) -> Placed:
    """Of jobs whose flows share a home: to collide goes before to be apart, and that before the hash."""
    if "collide" in placed:
        return "collide"
    return "apart" if "apart" in placed else "hash"
