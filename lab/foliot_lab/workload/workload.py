"""The workload of a run: plain flows, a training job, several jobs, or nothing."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from typing import TYPE_CHECKING, TextIO

import msgspec

from foliot_lab.measure.machine import slowness
from foliot_lab.scenario.job_traffic import hosts_of, rails_of
from foliot_lab.scenario.spec import TRAIN, trained
from foliot_lab.services.readiness import NotReadyError
from foliot_lab.workload.flows import Flows, how_it_sends, plan_jobs
from foliot_lab.workload.flows import plan as plan_flows
from foliot_lab.workload.jobs import Jobs
from foliot_lab.workload.train import torchrun
from foliot_lab.workload.train.merged_steps import merge, read_lines
from foliot_lab.workload.train.places import at, file_stem, places
from foliot_lab.workload.train.ranks import IMPORTED, Ranks, last_words
from foliot_lab.workload.train.record import JobRecord, read
from foliot_lab.workload.train.torchrun import Torchrun

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence
    from pathlib import Path

    import numpy as np
    from numpy.typing import NDArray

    from foliot_lab.scenario.spec import Over, Scenario, TrainSpec
    from foliot_lab.services.lab import Lab
    from foliot_lab.workload.flow_loop import FlowPlan
    from foliot_lab.workload.flow_record import FlowRecord
    from foliot_lab.workload.train.merged_steps import MergedSteps

JOB = "foliot_lab.workload.train.job"
_FLOWS_OPEN_S = 60.0
"""The time for all flows to carry their first byte. A second is enough on a quick machine, and a run ends if it is
over."""
_JOB_BEGINS_S = 120.0
"""The time for every rank to import PyTorch, all on the same few processors, where these are quick and not taken. On
others it is longer, see `slowness`."""
_SETTLE_S, _LONGEST_SETTLE_S = 3.0, 30.0
"""The time for traffic to settle. So many imports may stall probes, and the detector takes their paths for dead for
a moment. The run does not count that."""
_POLL_S = 0.05


class Load(msgspec.Struct, frozen=True, kw_only=True):
    """The running workload: flows or a training job; both, if there are several jobs."""

    flows: Flows | None = None
    job: Job | None = None
    jobs: Jobs | None = None
    """None: there is one workload, which runs all the time."""

    @property
    def plans(self) -> tuple[FlowPlan, ...]:
        """The flows, in the order of their record."""
        return () if self.flows is None else self.flows.plans

    def pids(self) -> dict[str, int]:
        """The ids of its processes by name, ``flows`` or ``node3/train``; 0: it has ended."""
        found = {} if self.flows is None else {"flows": self.flows.pid}
        return found if self.job is None else found | self.job.pids()

    @property
    def train_began_ns(self) -> int:
        """When the training job began to count: its steps alone do not; 0: from its first step on."""
        return 0 if self.jobs is None else self.jobs.train_began_ns()

    @property
    def record(self) -> FlowRecord | None:
        """The record of the flows."""
        return None if self.flows is None else self.flows.record


class Job:
    """A training job on hosts of a lab. `begin` it, and `end` it whatever happens.

    Parameters:
        spec: the job's specification; default: the scenario's.
        name: of its folder in the lab's, which no other job has had.
        over: the addresses that it uses: the services', which Foliot moves, or the NICs' own.
        hosts: default: all.
        rails: default: all.
    """

    def __init__(
        self,
        lab: Lab,
        spec: TrainSpec | None = None,
        name: str = TRAIN,
        over: Over = "service",
        *,
        hosts: tuple[str, ...] | None = None,
        rails: tuple[str, ...] | None = None,
    ) -> None:
        self.folder = lab.folder / name
        self.name = name
        self.spec = lab.scenario.train if spec is None else spec
        self._lab = lab
        self._places = places(lab, over, hosts, rails, ranks_per_host=self.spec.ranks_per_host, spares=self.spec.spares)
        self._ranks = (
            Torchrun(self.folder, lab.time, lab.plan.front, lab.rank_forker)
            if self.spec.is_restarted
            else Ranks(
                self.folder, lab.time, imported=IMPORTED, forker=lab.rank_forker, returns=self.spec.is_replaceable,
            )
        )  # fmt: skip

    @property
    def size(self) -> int:
        """The number of its ranks."""
        return sum(not place.is_spare for place in self._places)

    def count_without(self, taken: Sequence[str]) -> int:
        """The number of its processes, spares too, but for those at these places of faults."""
        names = {place.name for place in self._places}
        return len(names.difference(*(at(where, names) for where in taken)))

    async def begin(self) -> None:
        """Returns when every rank has done a step, and every spare stands by.

        Raises:
            NotReadyError: one ended before, or it took too long.
        """
        self._lab.world.job = self._ranks
        if isinstance(self._ranks, Ranks):
            front = self._lab.plan.front(self._places[0].node)
            await self._ranks.start(JOB, self._places, front, self._arguments)
            await self._begun([place.name for place in self._places])
        else:
            await self._ranks.start(JOB, self._places, self._arguments)
            await self._begun([place.name for place in self._places if not place.is_spare])

    def file(self, place: str) -> Path:
        """The record of the process at a place."""
        return self.folder / f"{file_stem(place)}.jsonl"

    def pause(self) -> None:
        """Halts all ranks, of a job that survives it: no other could tell a halted rank from a lost one."""
        for place in self._places if not self.spec.outlives_ranks else ():
            self._ranks.signal(place.name, signal.SIGSTOP)

    def resume(self) -> None:
        """Lets all ranks go on."""
        for place in self._places if not self.spec.outlives_ranks else ():
            self._ranks.signal(place.name, signal.SIGCONT)

    def steps(self) -> dict[str, NDArray[np.void]]:
        """The steps that each process has done so far, of `train.record.STEP`."""
        base_ns = self._lab.time.base_ns
        return {
            place.name: steps
            for place in self._places
            if len(steps := read(self.file(place.name), base_ns)) or not place.is_spare
        }

    def merged(self) -> MergedSteps:
        """The steps that the job has done so far, whichever processes did them."""
        base_ns = self._lab.time.base_ns
        return merge({place.name: read_lines(self.file(place.name), base_ns) for place in self._places}, self.size)

    def record(self, zero_ns: int, since_ns: int = 0) -> JobRecord:
        """The record so far; second 0 of the story is given as lab time.

        Parameters:
            since_ns: steps that began before are left out: the job was alone, or halted.
        """
        return JobRecord(
            name=self.name,
            spec=self.spec,
            folder=str(self.folder),
            steps={name: steps[steps["began_ns"] >= since_ns] for name, steps in self.steps().items()},
            merged=self.merged(),
            ended=tuple(self._ranks.ended),
            zero_ns=zero_ns,
            at_ns=self._lab.time.now_ns(),
        )

    def pids(self) -> dict[str, int]:
        """The processes, by name: ``node3/train``, or ``node3/train0`` of several; 0: it has ended."""
        return {
            f"{place.node}/train{'' if place.local is None else place.local}": self._ranks.pid(place.name)
            for place in self._places
        }

    async def over(self) -> None:
        """Returns when no rank runs any more, or one has ended before its steps were done."""
        # Processes end.
        while not any(each.status for each in self._ranks.ended) and len(self._ranks.ended) < self._started:  # noqa: ASYNC110
            await asyncio.sleep(_POLL_S)

    async def end(self) -> None:
        """Ends all ranks."""
        self._lab.world.job = None
        await self._ranks.stop()

    @property
    def _started(self) -> int:
        """The number of processes that the lab has started: ranks and spares, or torchrun's agents."""
        return len(self._places) // (self.spec.ranks_per_host if self.spec.is_restarted else 1)

    async def _begun(self, names: Sequence[str]) -> None:
        within_s = _JOB_BEGINS_S * await asyncio.to_thread(slowness)
        try:
            async with asyncio.timeout(within_s):
                while waiting := [name for name in names if not self._has_begun(name)]:
                    for ended in self._ranks.ended:
                        raise NotReadyError(f"the rank of {ended.node} ended: {ended.reason} (see {self.folder})")
                    await asyncio.sleep(_POLL_S)
        except TimeoutError:
            said = last_words(self._ranks.log(waiting[0]))
            raise NotReadyError(
                f"after {within_s:.0f} s the job had not begun on {', '.join(waiting)}; {waiting[0]}: {said}"
            ) from None

    def _has_begun(self, name: str) -> bool:
        """Whether a rank has done a step, or a spare has made what it needs."""
        file = self.file(name)
        is_spare = any(place.name == name and place.is_spare for place in self._places)
        return file.exists() and (is_spare or len(read(file, 0)) > 0)

    def _arguments(self, place: str) -> list[str]:
        spec = self.spec
        words = [
            "--record", str(self.file(place)),
            "--lever", str(self._ranks.lever(place)),
            "--gradient-bytes", str(round(spec.gradient_mb * 1e6)),
            "--batch", str(spec.batch),
            "--steps", str(spec.steps or 0),
            "--seed", str(spec.seed),
            "--timeout-s", str(spec.timeout_s),
        ]  # fmt: skip
        if spec.use == "foliot":
            host = place.partition("/")[0]
            words += ["--job", self.name, "--rank-socket", str(self._lab.rank_socket(host))]
        if spec.is_replaceable:
            words += ["--replaceable"]
        if spec.checkpoint_steps is not None:
            words += ["--checkpoints", str(self.folder), "--checkpoint-steps", str(spec.checkpoint_steps)]
        return words


def imported(scenario: Scenario) -> tuple[str, ...]:
    """What the processes of a scenario's training job import, which the lab starts: ranks, or torchrun's agents."""
    job = trained(scenario)
    if job is None:
        return ()
    return torchrun.IMPORTED if job[1].is_restarted else IMPORTED


@contextlib.asynccontextmanager
async def carried(lab: Lab, out: TextIO) -> AsyncIterator[Load]:
    """Runs a lab's workload for the length of the block, from its beginning.

    Several jobs are ready to run then, and each has run alone if it was to.

    Raises:
        NotReadyError: a job did not begin.
        TimeoutError: the flows did not open.
    """
    if lab.scenario.jobs:
        async with _several(lab, out) as load:
            yield load
    elif lab.scenario.workload.kind == "train":
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
            f"workload: train, {job.size} ranks on {len(lab.plan.rails)} rails, "
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
        await _opened(flows)
        out.write(f"workload: {spec.kind}, {len(plans)} TCP flows, {spec.load * link_mbps:.0f} Mb/s out of every NIC\n")
        yield Load(flows=flows)
    finally:
        flows.stop()


@contextlib.asynccontextmanager
async def _several(lab: Lab, out: TextIO) -> AsyncIterator[Load]:
    async with contextlib.AsyncExitStack() as stack:
        training = None
        for job in lab.scenario.jobs:
            if job.kind == "train":
                hosts, rails = hosts_of(job, lab.scenario.fabric), rails_of(job, lab.scenario.fabric)
                training, home = Job(lab, job.train(), job.name, job.over, hosts=hosts, rails=rails), _ways(lab)
                stack.push_async_callback(training.end)
                await training.begin()
                await _settle(lab, home)
                training.pause()
        flows = Flows.start(
            plan_jobs(lab.scenario, lab.plan, lab.nodes, lab.placement),
            {host: lab.fabric.host(host) for host in lab.plan.hosts},
            lab.time,
            jobs=tuple(how_it_sends(job) for job in lab.scenario.jobs),
        )
        stack.callback(flows.stop)
        await _opened(flows)
        jobs = Jobs(lab, flows, training)
        await jobs.alone(out)
        yield Load(flows=flows, job=training, jobs=jobs)


async def _opened(flows: Flows) -> None:
    async with asyncio.timeout(_FLOWS_OPEN_S):
        while not flows.open:  # noqa: ASYNC110 - another process opens them
            await asyncio.sleep(_POLL_S)


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
