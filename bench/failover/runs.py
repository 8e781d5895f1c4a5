"""One run of the job in a lab that is ready, with timed faults, a witness on the wire, and the services' messages."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, NamedTuple

import msgspec
import numpy as np

from foliot_lab.faults.injection import ScenarioTime, run_timeline
from foliot_lab.measure.bus_recorder import Collector
from foliot_lab.measure.host_latency import LatenessSampler
from foliot_lab.report.blast_radius import scope
from foliot_lab.report.evidence import Evidence
from foliot_lab.report.report import build, witnessed
from foliot_lab.scenario.spec import RECOVERY_S
from foliot_lab.workload.workload import Job

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from bench.failover.account import Steps
    from foliot_lab.faults.injection import Injection
    from foliot_lab.measure.outages import Pair, Pulses, Verdict
    from foliot_lab.measure.wire_witness import Watch, Witness
    from foliot_lab.report.report import FaultReport
    from foliot_lab.scenario.spec import FaultSpec, TrainSpec
    from foliot_lab.services.lab import Lab

_BEFORE_S = 0.5
_LOOK_S = 0.25
_HOME_S = 90.0
"""The time after the job until all traffic is home and every backup armed again."""


class Ran(NamedTuple):
    """The results of a run."""

    steps: Mapping[str, Steps]
    failed: str
    """The cause of the first rank's death; `stalled`: the job took too long."""
    faults: Sequence[FaultReport]
    injections: Sequence[Injection]
    seen: Mapping[str, Verdict]
    gap_ms: float | None
    idle_cpu: float


class Runner:
    """A lab, and the jobs that run in it, one after another.

    Parameters:
        witness: of the lab's service addresses; None if nothing of Foliot runs.
    """

    def __init__(self, lab: Lab, witness: Witness | None) -> None:
        self.collector = Collector(lab.time, lab.truth)
        self._lab, self._witness = lab, witness
        self._began_with = self._in_force()
        self._jobs = 0

    async def listen(self) -> None:
        """Listens to the services from now on."""
        await self.collector.follow(self._lab.bus)

    async def run(self, spec: TrainSpec, faults: tuple[FaultSpec, ...], patience_s: float) -> Ran:
        """Runs a job to its end, or until a rank dies or the patience ends.

        Parameters:
            faults: in seconds since all ranks have done a step.
        """
        self._jobs += 1
        job = Job(self._lab, spec, f"train{self._jobs}", "nic" if self._witness is None else "service")
        began_ns = self._lab.time.now_ns()
        sampler = LatenessSampler()
        injections: dict[str, Injection] = {}
        watches: dict[str, Watch] = {}
        try:
            await job.begin()
            sampler.start()
            seconds = ScenarioTime(asyncio.get_running_loop().time())
            timeline = asyncio.create_task(self._timeline(faults, seconds, injections))
            watching = asyncio.create_task(self._watch(faults, seconds, watches))
            try:
                stalled = not await self._over(job, patience_s)
            finally:
                # Faults that are still on are healed now.
                for task in (timeline, watching):
                    task.cancel()
                await asyncio.gather(timeline, watching, return_exceptions=True)
                sampler.stop()
            record = job.record(began_ns)
            failed = next((f"{each.node}: {each.reason}" for each in record.ended if each.status), "")
            if stalled and not failed:
                failed = "stalled"
        finally:
            await job.end()
        await self.home()
        pulses = {name: self._witness.disarm(watch) for name, watch in watches.items() if self._witness is not None}
        done = tuple(injections.values())
        seen = witnessed(done, pulses, self._lab.plan)
        evidence = Evidence(
            fabric=self._lab.plan, injections=done, seen=seen,
            events=[each for each in self.collector.events if each.at_ns >= began_ns],
            commands=[each for each in self.collector.commands if each.at_ns >= began_ns],
            flows=(), record=None, job=None, truth=self._lab.truth, lab=self._lab.time, machine=sampler.machine(),
            end_ns=self._lab.time.now_ns(),
        )  # fmt: skip
        return Ran(
            steps=record.steps,
            failed=failed,
            faults=build(evidence).faults,
            injections=done,
            seen=seen,
            gap_ms=_gap_ms(pulses.values()),
            idle_cpu=evidence.machine.idle_cpu,
        )

    async def _timeline(self, faults: tuple[FaultSpec, ...], seconds: ScenarioTime, done: dict[str, Injection]) -> None:
        ends_s = max((fault.at_s + (fault.lasts_s or 0.0) for fault in faults), default=0.0)
        scenario = msgspec.structs.replace(self._lab.scenario, faults=faults, duration_s=ends_s + RECOVERY_S)

        def injected(injection: Injection) -> None:
            done[injection.fault_id] = injection

        await run_timeline(
            scenario, seconds, self._lab.fabric, self._lab.world, clock=self._lab.time.now_ns, report=injected
        )

    async def _watch(self, faults: tuple[FaultSpec, ...], seconds: ScenarioTime, watches: dict[str, Watch]) -> None:
        """Watches from shortly before the first fault; disarmed when all is over."""
        if self._witness is None or not faults:
            return
        await seconds.until(max(0.0, min(fault.at_s for fault in faults) - _BEFORE_S))
        for fault in faults:
            watches[fault.id] = self._witness.arm(scope(fault.kind, fault.where, self._lab.plan).pairs())

    async def _over(self, job: Job, patience_s: float) -> bool:
        """Waits until the job is over, in any way; returns whether it was."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(patience_s):
                await job.over()
                return True
        return False

    def _in_force(self) -> dict[str, object]:
        """The ways of every node, as the remediator has written them."""
        return {node: (paths.away, paths.placements) for node, paths in self._lab.readiness.placed.items()}

    async def home(self) -> None:
        """Waits until all traffic is where it was and every backup armed. So the next run begins like the first."""
        if self._witness is None:
            return
        deadline_s = asyncio.get_running_loop().time() + _HOME_S
        while asyncio.get_running_loop().time() < deadline_s:
            if not self._lab.readiness.missing() and self._in_force() == self._began_with:
                return
            await asyncio.sleep(_LOOK_S)


def _gap_ms(pulses: Iterable[Mapping[Pair, Pulses]]) -> float | None:
    """The longest silence of any pair between two pulses that arrived."""
    gaps = [
        float(np.diff(np.sort(each.arrived_ns[each.arrived_ns > 0])).max()) * 1e-6
        for own in pulses
        for each in own.values()
        if (each.arrived_ns > 0).sum() > 1
    ]
    return max(gaps, default=None)
