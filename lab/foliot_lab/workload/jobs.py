"""The jobs of a run: each alone first, then all by their times; and what the lab itself sees of them."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Protocol, TextIO

import msgspec

from foliot_lab.measure.link_load import SAMPLE_S, LinkLoads
from foliot_lab.scenario.job_traffic import hosts_of
from foliot_lab.workload.flow_ways import FlowWays
from foliot_lab.workload.job_registration import registered, wishes
from foliot_schemas.names import nic_name

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from foliot_lab.faults.injection import ScenarioTime
    from foliot_lab.measure.intervals import Interval, Intervals
    from foliot_lab.measure.link_load import Lane
    from foliot_lab.measure.told_delays import Told
    from foliot_lab.scenario.spec import JobSpec
    from foliot_lab.scenario.topology import FabricPlan
    from foliot_lab.services.lab import Lab
    from foliot_lab.workload.flow_loop import FlowPlan
    from foliot_lab.workload.flow_record import FlowRecord
    from foliot_lab.workload.flow_ways import Way
    from foliot_lab.workload.flows import Flows
    from foliot_lab.workload.train.merged_steps import MergedSteps

_DRAINED_S = 0.2
"""A job that was stopped has nothing on its way any more when so long no byte has come."""
_LONGEST_DRAIN_S = 10.0
_POLL_S = 0.05


class Training(Protocol):
    """A training job that has begun; `foliot_lab.workload.workload.Job` is one."""

    def pause(self) -> None:
        """Halts all ranks."""

    def resume(self) -> None:
        """Lets all ranks go on."""

    def steps(self) -> dict[str, NDArray[np.void]]:
        """The steps that each process has done so far, of `train.record.STEP`."""

    def merged(self) -> MergedSteps:
        """The steps that the job has done so far, whichever processes did them."""


class JobsRecord(msgspec.Struct, frozen=True, kw_only=True):
    """What there is to know of the jobs of a run."""

    specs: tuple[JobSpec, ...]
    hosts: tuple[tuple[str, ...], ...]
    """Of each job."""
    flows: tuple[FlowPlan, ...]
    record: FlowRecord
    """The record of `flows`, in their order."""
    alone: Mapping[int, Interval]
    """When each job ran alone, by its number."""
    ran: Mapping[int, Interval]
    """When each job ran after that, by its number; not there: it did not."""
    ways: Sequence[Sequence[tuple[int, Way]]]
    """Of each flow, when it took which way."""
    told: Sequence[Sequence[Told]] = ()
    """Of each flow, its round trips and the delays of its path, as probes told them; empty: nobody listened."""
    full: Mapping[Lane, Intervals]
    """When fabric links were full."""
    fabric: FabricPlan
    train: Mapping[str, NDArray[np.void]] = {}
    """The steps of each rank of the training job, of `train.record.STEP`."""
    merged: MergedSteps | None = None
    """Its steps, whichever processes did them; None: those of `train`."""
    zero_ns: int
    """Second 0 of the scenario."""


class Jobs:
    """Jobs that are ready to run.

    Parameters:
        flows: the flows of all jobs, which wait.
        training: the job of kind train, halted.
    """

    def __init__(self, lab: Lab, flows: Flows, training: Training | None) -> None:
        self._lab = lab
        self._flows = flows
        self._training = training
        self._specs = lab.scenario.jobs
        self._wishes = wishes(self._specs, lab.scenario.fabric)
        self._alone: dict[int, Interval] = {}
        self._ran: dict[int, Interval] = {}
        self._ways = FlowWays(lab.fabric, lab.nodes, flows.plans)
        self._loads = LinkLoads(lab.fabric, lab.time.now_ns)

    async def alone(self, out: TextIO) -> None:
        """Runs each job by itself, if the scenario has a time for that."""
        count = len(self._flows.plans)
        out.write(f"workload: {len(self._specs)} jobs, {count} TCP flows\n")
        if self._lab.scenario.solo_s is None:
            return
        for number, job in enumerate(self._specs):
            out.write(f"job {job.name} runs alone for {self._lab.scenario.solo_s:g} s\n")
            out.flush()
            since_ns = self._begin(number)
            await asyncio.sleep(self._lab.scenario.solo_s)
            self._alone[number] = (since_ns, self._end(number))
            await self._drained()

    async def follow(self, seconds: ScenarioTime, say: Callable[[str], None]) -> None:
        """Begins and ends the jobs by their times, and samples links and ways, until it is cancelled.

        They are registered meanwhile.
        """
        async with asyncio.TaskGroup() as group:
            for number in range(len(self._specs)):
                group.create_task(self._play_registered(number, seconds, say))
            group.create_task(self._sample())

    def began_ns(self, number: int) -> int:
        """When a job began to run; 0: it has not."""
        return self._ran.get(number, (0, 0))[0]

    def train_began_ns(self) -> int:
        """When the training job began to run beside the others; 0: it has not."""
        return max((self.began_ns(number) for number, job in enumerate(self._specs) if job.kind == "train"), default=0)

    def record(self, zero_ns: int) -> JobsRecord:
        """The record of the run, when it is over."""
        return JobsRecord(
            specs=self._specs,
            hosts=tuple(hosts_of(job, self._lab.scenario.fabric) for job in self._specs),
            flows=self._flows.plans,
            record=self._flows.record,
            alone=self._alone,
            ran=self._ran,
            ways=self._ways.taken,
            told=[self._lab.told_delays.of(_name(flow), flow.over) for flow in self._flows.plans],
            full=self._loads.full(),
            fabric=self._lab.plan,
            train={} if self._training is None else self._training.steps(),
            merged=None if self._training is None else self._training.merged(),
            zero_ns=zero_ns,
        )

    async def _play_registered(self, number: int, seconds: ScenarioTime, say: Callable[[str], None]) -> None:
        await seconds.until(self._specs[number].at_s)
        async with registered(self._lab.scheduler, self._wishes.get(number)):
            await self._play(number, seconds, say)

    async def _play(self, number: int, seconds: ScenarioTime, say: Callable[[str], None]) -> None:
        job = self._specs[number]
        since_ns = self._begin(number)
        self._ran[number] = (since_ns, since_ns)
        say(f"job {job.name} begins")
        try:
            await seconds.until(self._lab.scenario.duration_s if job.for_s is None else job.at_s + job.for_s)
            if job.for_s is not None:
                self._ran[number] = (since_ns, self._end(number))
                say(f"job {job.name} ends")
        finally:
            if self._ran[number][1] == since_ns:
                self._ran[number] = (since_ns, self._lab.time.now_ns())

    async def _sample(self) -> None:
        while True:
            self._loads.look()
            self._ways.look(self._lab.time.now_ns())
            await asyncio.sleep(SAMPLE_S)

    def _begin(self, number: int) -> int:
        """Lets a job run; returns when that was."""
        now_ns = self._lab.time.now_ns()
        self._flows.record.want(number, runs=True)
        if self._training is not None and self._specs[number].kind == "train":
            self._training.resume()
        return now_ns

    def _end(self, number: int) -> int:
        """Lets a job run no longer; returns when that was."""
        now_ns = self._lab.time.now_ns()
        self._flows.record.want(number, runs=False)
        if self._training is not None and self._specs[number].kind == "train":
            self._training.pause()
        return now_ns

    async def _drained(self) -> None:
        """Returns when nothing is on its way any more, or after a while."""
        record = self._flows.record
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_LONGEST_DRAIN_S):
                await asyncio.sleep(2 * _DRAINED_S)
                while any(  # noqa: ASYNC110 - another process reads them
                    record.mbps(flow, record.written_ns - round(_DRAINED_S * 1e9), record.written_ns)
                    for flow in range(len(self._flows.plans))
                ):
                    await asyncio.sleep(_POLL_S)


def _name(flow: FlowPlan) -> str:
    """A flow's name on the bus."""
    return f"{nic_name(flow.source, flow.rail)}>{nic_name(flow.destination, flow.rail)}"
