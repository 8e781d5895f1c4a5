"""The workload of a run: plain flows, a training job, or nothing."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, TextIO

import msgspec

from foliot_lab.services.readiness import NotReadyError
from foliot_lab.workload.flows import Flows
from foliot_lab.workload.flows import plan as plan_flows
from foliot_lab.workload.train.ranks import Ranks, last_words, places
from foliot_lab.workload.train.record import JobRecord, read

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from foliot_lab.scenario.spec import TrainSpec
    from foliot_lab.services.lab import Lab
    from foliot_lab.workload.flow_loop import FlowPlan
    from foliot_lab.workload.flow_record import FlowRecord
    from foliot_lab.workload.train.ranks import Over

JOB = "foliot_lab.workload.train.job"
_FLOWS_OPEN_S = 60.0
"""The time for all flows to carry their first byte. A second is enough on a quick machine, and a run ends if it is
over."""
_JOB_BEGINS_S = 120.0
"""The time for every rank to import PyTorch, all on the same few processors."""
_SETTLE_S, _LONGEST_SETTLE_S = 3.0, 30.0
"""The time for traffic to settle. So many imports may stall probes, and the detector takes their paths for dead for
a moment. The run does not count that."""
_POLL_S = 0.05


class Load(msgspec.Struct, frozen=True, kw_only=True):
    """The running workload: flows or a job, at most one of the two."""

    flows: Flows | None = None
    job: Job | None = None

    @property
    def plans(self) -> tuple[FlowPlan, ...]:
        """The flows, in the order of their record."""
        return () if self.flows is None else self.flows.plans

    def pids(self) -> dict[str, int]:
        """The ids of its processes by name, ``flows`` or ``node3/train``; 0: it has ended."""
        found = {} if self.flows is None else {"flows": self.flows.pid}
        return found if self.job is None else found | self.job.pids()

    @property
    def record(self) -> FlowRecord | None:
        """The record of the flows."""
        return None if self.flows is None else self.flows.record


class Job:
    """A training job on all hosts of a lab. `begin` it, and `end` it whatever happens.

    Parameters:
        spec: the job's specification; default: the scenario's.
        name: of its folder in the lab's, which no other job has had.
        over: the addresses that it uses: the services', which Foliot moves, or the NICs' own.
    """

    def __init__(self, lab: Lab, spec: TrainSpec | None = None, name: str = "train", over: Over = "service") -> None:
        self.folder = lab.folder / name
        self._lab = lab
        self._spec = lab.scenario.train if spec is None else spec
        self._over: Over = over
        self._ranks = Ranks(self.folder, lab.time)

    async def begin(self) -> None:
        """Returns when every rank has done a step.

        Raises:
            NotReadyError: one ended before, or it took too long.
        """
        self._lab.world.job = self._ranks
        await self._ranks.start(
            JOB, places(self._lab, self._over), self._lab.plan.front(self._lab.plan.hosts[0]), self._arguments
        )
        try:
            async with asyncio.timeout(_JOB_BEGINS_S):
                while not all(_has_begun(self.file(host)) for host in self._lab.plan.hosts):
                    for ended in self._ranks.ended:
                        raise NotReadyError(f"the rank of {ended.node} ended: {ended.reason} (see {self.folder})")
                    await asyncio.sleep(_POLL_S)
        except TimeoutError:
            waiting = [host for host in self._lab.plan.hosts if not _has_begun(self.file(host))]
            said = last_words(self._ranks.log(waiting[0]))
            raise NotReadyError(
                f"after {_JOB_BEGINS_S:.0f} s the job had not begun on {', '.join(waiting)}; {waiting[0]}: {said}"
            ) from None

    def file(self, host: str) -> Path:
        """The record of a host's rank."""
        return self.folder / f"{host}.jsonl"

    def record(self, zero_ns: int) -> JobRecord:
        """The record so far; second 0 of the story is given as lab time."""
        return JobRecord(
            spec=self._spec,
            folder=str(self.folder),
            steps={host: read(self.file(host), self._lab.time.base_ns) for host in self._lab.plan.hosts},
            ended=tuple(self._ranks.ended),
            zero_ns=zero_ns,
            at_ns=self._lab.time.now_ns(),
        )

    def pids(self) -> dict[str, int]:
        """The ranks' processes, by name; 0: it has ended."""
        return {f"{host}/train": self._ranks.pid(host) for host in self._lab.plan.hosts}

    async def over(self) -> None:
        """Returns when no rank runs any more, or one has ended before its steps were done."""
        # Processes end.
        while not any(each.status for each in self._ranks.ended) and len(self._ranks.ended) < len(self._lab.plan.hosts):  # noqa: ASYNC110
            await asyncio.sleep(_POLL_S)

    async def end(self) -> None:
        """Ends all ranks."""
        self._lab.world.job = None
        await self._ranks.stop()

    def _arguments(self, host: str) -> list[str]:
        spec = self._spec
        return [
            "--record", str(self.file(host)), "--gradient-bytes", str(round(spec.gradient_mb * 1e6)),
            "--batch", str(spec.batch),
            "--steps", str(spec.steps or 0), "--seed", str(spec.seed), "--timeout-s", str(spec.timeout_s),
        ]  # fmt: skip


@contextlib.asynccontextmanager
async def carried(lab: Lab, out: TextIO) -> AsyncIterator[Load]:
    """Runs a lab's workload for the length of the block, from its beginning.

    Raises:
        NotReadyError: a job did not begin.
        TimeoutError: the flows did not open.
    """
    if lab.scenario.workload.kind == "train":
        async with _training(lab, out) as load:
            yield load
    else:
        async with _flowing(lab, out) as load:
            yield load


@contextlib.asynccontextmanager
async def _training(lab: Lab, out: TextIO) -> AsyncIterator[Load]:
    job, home = Job(lab), _ways(lab)
    try:
        await job.begin()
        await _settle(lab, home)
        out.write(
            f"workload: train, {len(lab.plan.hosts)} ranks on {len(lab.plan.rails)} rails, "
            f"{lab.scenario.train.gradient_mb:g} MB of"
            f" gradients a step; each rank's steps in {job.folder}\n"
        )
        yield Load(job=job)
    finally:
        await job.end()


@contextlib.asynccontextmanager
async def _flowing(lab: Lab, out: TextIO) -> AsyncIterator[Load]:
    spec, link_mbps = lab.scenario.workload, lab.scenario.fabric.link_mbps
    plans = plan_flows(spec.kind, lab.nodes, link_mbps=link_mbps, load=spec.load)
    if not plans:
        yield Load()
        return
    flows = Flows.start(plans, {host: lab.fabric.host(host) for host in lab.plan.hosts}, lab.time)
    try:
        async with asyncio.timeout(_FLOWS_OPEN_S):
            while not flows.open:  # noqa: ASYNC110 - another process opens them
                await asyncio.sleep(_POLL_S)
        out.write(f"workload: {spec.kind}, {len(plans)} TCP flows, {spec.load * link_mbps:.0f} Mb/s out of every NIC\n")
        yield Load(flows=flows)
    finally:
        flows.stop()


async def _settle(lab: Lab, home: dict[str, tuple[object, ...]]) -> None:
    """Returns when all traffic goes its former way again, or after a while."""
    await asyncio.sleep(_SETTLE_S)
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_LONGEST_SETTLE_S):
            while _ways(lab) != home:  # noqa: ASYNC110 - the remediator's word comes over the bus
                await asyncio.sleep(_POLL_S)


def _ways(lab: Lab) -> dict[str, tuple[object, ...]]:
    """The placements of every node's traffic, as the remediator has written them."""
    return {node: (paths.away, paths.placements) for node, paths in lab.readiness.placed.items()}


def _has_begun(file: Path) -> bool:
    return file.exists() and file.stat().st_size > 0
