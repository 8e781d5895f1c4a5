"""Jobs as they are now: their flows, the slowest of them, and why it is slow."""

from __future__ import annotations

import functools
from collections import defaultdict
from typing import TYPE_CHECKING, NamedTuple

import msgspec
import numpy as np

from foliot.jobs import Jobs, jobs_of
from foliot_gateway.state.causes import Cause, RankTrouble, cause_of, rank_troubles, standing
from foliot_gateway.state.flow_rates import FlowFigures, FlowRates
from foliot_gateway.state.job_workers import JobWorkers, WorkerView
from foliot_gateway.state.routing_view import path_by
from foliot_schemas import Job
from foliot_schemas.event_kinds import CONTENTION
from foliot_schemas.names import node_of, parse_flow, rail_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from numpy.typing import NDArray

    from foliot_gateway.state.fleet import Fleet
    from foliot_schemas import Event, FlowBatch, Placement, WorkerBatch


class FlowView(msgspec.Struct, frozen=True, kw_only=True):
    """One flow, as its sender last told of it."""

    flow: str
    source: str
    """NIC of the sender's service address."""
    destination: str
    """NIC of the receiver's service address."""
    path: str
    """The path that it takes; empty: not known."""
    rate_bps: float
    """What it gets while it has data on its way, of the last two seconds; 0: it has had none."""
    usual_bps: float
    """The best that it had so, in the last ten to twenty minutes, or could have had, by the event; 0: not known."""
    share: float | None
    """The one as a share of the other; None: not known."""
    carried_bps: float
    """What it gets, pauses included."""
    busy_share: float
    """Share of the intervals in which it sent for which it had data on its way."""
    receiver_limited_share: float
    """Share of that time for which it waited for its receiver, of the last interval, as are the next three."""
    rtt_ns: int
    """Round-trip time as the sender's kernel measures it; 0: it does not."""
    least_rtt_ns: int
    """The least that it has seen; 0: none."""
    retransmitted: int
    """Segments that were sent again."""
    delay_ns: int
    """One-way delay of its path by probes, the median of the last interval; 0: not known."""
    at_ns: int
    """When its sender last told of it, reference time."""
    in_band_ns: int
    """How long its own data take one way, by the stamps of TCP, where both hosts permit it; 0: not known."""


class JobView(msgspec.Struct, frozen=True, kw_only=True):
    """One job in a few figures."""

    job: str
    registered: bool
    """Somebody has registered it; else its workers tell of it, or it is a group of nodes that talk to each other."""
    priority: int
    """The higher, the more it matters."""
    since_ns: int
    """When it was registered; 0: it is not."""
    nodes: tuple[str, ...]
    flows: int
    """So many flows had something to send in the last minute."""
    carried_bps: float
    """What all of them get."""
    slowest: str
    """The flow with the least share of what it usually gets; empty: none has anything to send."""
    slowest_share: float | None
    """Its share; None: not known."""


class JobWhy(msgspec.Struct, frozen=True, kw_only=True):
    """A job, and why its slowest flow is so."""

    job: JobView
    slowest: FlowView | None
    """The first of `flows`; None: none has anything to send."""
    cause: Cause | None
    """The trouble that stands and concerns the slowest flow; None: nobody has said any."""
    flows: tuple[FlowView, ...]
    """The slowest first."""
    ranks: tuple[RankTrouble, ...] = ()
    """What stands of its ranks, the earliest first: those that hold up the others, and those that are slow."""
    workers: tuple[WorkerView, ...] = ()
    """Of a job whose ranks can be replaced, the process of each rank, by rank: 1,024 at most, then those that do no
    steps first."""
    spares: int = 0
    """So many processes of it wait to be given a rank."""


class JobTable:
    """All jobs: registered ones, those whose workers tell of them, and those that are found by who talks to whom.

    Parameters:
        now_ns: as of `Fleet`.
    """

    def __init__(self, fleet: Fleet, now_ns: Callable[[], int]) -> None:
        self._fleet = fleet
        self._now_ns = now_ns
        self._rates = FlowRates(fleet.limit)
        self._registered = Jobs()
        self._workers = JobWorkers()
        self.refused = 0
        """Registrations that were refused."""

    def fold_flows(self, batch: FlowBatch) -> None:
        """Takes a node's word of its flows.

        Raises:
            ValueError: as `FlowRates.fold`.
        """
        self._rates.fold(batch, self._now_ns())

    def fold_workers(self, batch: WorkerBatch) -> None:
        """Takes a node's word of a job's workers. Of a registered job, a node without a NIC of it is not believed.

        Raises:
            ValueError: as `JobWorkers.fold`.
        """
        registered = self._registered.get(batch.job)
        if registered is None or any(node_of(nic) == batch.node for nic in registered.nics):
            self._workers.fold(batch, self._now_ns())

    def fold_job(self, name: str, job: Job | None) -> None:
        """Takes a registration; None: the job has ended."""
        wanted = Job(name=name, nics=()) if job is None else job
        self.refused += bool(self._registered.take(wanted, self._now_ns(), self._fleet.limit.nics))

    def views(self, events: Iterable[Event]) -> Iterator[JobView]:
        """Every job, by name."""
        now_ns, usual_bps = self._now_ns(), _said_usual_bps(standing(events))
        for name, flows in sorted(self._flows(now_ns).items()):
            yield self._view(name, self._figures(flows, now_ns, usual_bps))

    def why(self, name: str, events: Iterable[Event]) -> JobWhy | None:
        """A job and its flows; None: there is no such job."""
        now_ns, troubles = self._now_ns(), standing(events)
        names = self._flows(now_ns).get(name)
        if names is None:
            return None
        figures = self._figures(names, now_ns, _said_usual_bps(troubles))
        ways = functools.lru_cache(1)(self._fleet.ways)  # flows of one node follow each other
        views = [self._flow(figures, row, ways) for row in range(len(names))]
        flows = tuple(views[row] for row in figures.by_slowness())
        slowest = flows[0] if flows and flows[0].rate_bps else None
        cause = None
        if slowest is not None:
            path = self._fleet.path(slowest.path)
            hops = () if path is None else path.hops
            cause = cause_of(parse_flow(slowest.flow), slowest.path, hops, troubles)
        return JobWhy(
            job=self._view(name, figures), slowest=slowest, cause=cause, flows=flows,
            ranks=rank_troubles(name, troubles), workers=self._workers.of(name), spares=self._workers.spares(name),
        )  # fmt: skip

    def _flows(self, now_ns: int) -> dict[str, list[str]]:
        """The flows of each job, by name; one that is registered, or has workers, may have none."""
        self._registered.expire(now_ns)
        found: defaultdict[str, list[str]] = defaultdict(list)
        self._workers.expire(now_ns)
        for name in (*(job.name for job in self._registered.all()), *self._workers.names()):
            found[name] = []
        of = jobs_of(self._rates.talking(now_ns), self._registered)
        for flow in sorted(of):
            found[of[flow]].append(flow)
        return dict(found)

    def _figures(self, flows: list[str], now_ns: int, said_bps: Mapping[str, float]) -> _Figures:
        known = self._rates.of(flows, now_ns)
        usual_bps = np.maximum(known.usual_bps, np.array([said_bps.get(flow, 0.0) for flow in flows]))
        share = [
            rate_bps / usual if usual else None
            for rate_bps, usual in zip(known.rate_bps.tolist(), usual_bps.tolist(), strict=True)
        ]
        return _Figures(flows, known, usual_bps, share)

    def _view(self, name: str, figures: _Figures) -> JobView:
        job = self._registered.get(name)
        nics = {nic for flow in figures.flows for nic in flow.split(">")} if job is None else job.nics
        nodes = {node_of(nic) for nic in nics}.union(self._workers.nodes(name))
        order = figures.by_slowness()
        slowest = order[0] if order and figures.known.rate_bps[order[0]] else -1
        return JobView(
            job=name,
            registered=job is not None,
            priority=0 if job is None else job.priority,
            since_ns=0 if job is None else job.since_ns,
            nodes=tuple(sorted(nodes)),
            flows=len(figures.flows),
            carried_bps=float(figures.known.carried_bps.sum()),
            slowest="" if slowest < 0 else figures.flows[slowest],
            slowest_share=None if slowest < 0 else figures.share[slowest],
        )

    def _flow(
        self, figures: _Figures, row: int, ways: Callable[[str], Mapping[tuple[str, str], Placement]]
    ) -> FlowView:
        flow, known = parse_flow(figures.flows[row]), figures.known
        node = node_of(flow.source)
        way = ways(node).get((node_of(flow.destination), rail_of(flow.destination)))
        name = "" if way is None else path_by(node, way)
        path = self._fleet.path(name)
        latest = known.latest[row]
        return FlowView(
            flow=figures.flows[row],
            source=flow.source,
            destination=flow.destination,
            path=name,
            rate_bps=float(known.rate_bps[row]),
            usual_bps=float(figures.usual_bps[row]),
            share=figures.share[row],
            carried_bps=float(known.carried_bps[row]),
            busy_share=float(known.busy_share[row]),
            receiver_limited_share=min(int(latest["receiver_limited_ns"]) / max(int(latest["busy_ns"]), 1), 1.0),
            rtt_ns=int(latest["rtt_ns"]),
            least_rtt_ns=int(latest["least_rtt_ns"]),
            retransmitted=int(latest["retransmitted"]),
            delay_ns=0 if path is None else path.median_ns,
            at_ns=int(known.at_ns[row]),
            in_band_ns=int(latest["in_band_ns"]),
        )


class _Figures(NamedTuple):
    """Some flows by name, with what each could get."""

    flows: list[str]
    known: FlowFigures
    usual_bps: NDArray[np.float64]
    share: list[float | None]

    def by_slowness(self) -> list[int]:
        """Their rows: those that send come first, by their share of what they could get."""

        def order(row: int) -> tuple[bool, float, str]:
            share = self.share[row]
            return not self.known.rate_bps[row], 1.0 if share is None else share, self.flows[row]

        return sorted(range(len(self.flows)), key=order)


def _said_usual_bps(troubles: Iterable[Event]) -> dict[str, float]:
    """By flow, what the detector says that it could get. One that was short from its beginning never had it."""
    return {
        str(event.evidence.get("slowest")): event.number("usual_mbps") * 1e6
        for event in troubles
        if event.kind == CONTENTION.name
    }
