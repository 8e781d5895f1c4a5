"""Runs a scenario from beginning to end: build, wait until ready, load, break, heal, report."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import time
from typing import TYPE_CHECKING, TextIO

import msgspec

from foliot_lab.faults.injection import ScenarioTime, run_timeline
from foliot_lab.faults.waits import Waits
from foliot_lab.faults.whole_job import generation, is_whole
from foliot_lab.measure.budget import CannotCarryError, Now
from foliot_lab.measure.bus_recorder import Collector
from foliot_lab.measure.capacity_check import measure, refusal
from foliot_lab.measure.clock_truth import SAMPLE_S
from foliot_lab.measure.host_latency import LatenessSampler, Steps
from foliot_lab.measure.machine import commit, versions
from foliot_lab.measure.quota import Group  # noqa: TC001 - msgspec reads annotations at run time
from foliot_lab.measure.usage import OTHER
from foliot_lab.measure.wire_witness import Witness
from foliot_lab.report.attribution import RECOVERY_NS
from foliot_lab.report.blast_radius import scope
from foliot_lab.report.conclusion import conclude, lines
from foliot_lab.report.contention_report import steered
from foliot_lab.report.evidence import Evidence
from foliot_lab.report.map_report import map_report
from foliot_lab.report.narration import Narrator
from foliot_lab.report.report import build, witnessed
from foliot_lab.scenario.promises import class_of, holds_up_all, takes_ranks
from foliot_lab.scenario.spec import armed
from foliot_lab.services.lab import Lab
from foliot_lab.workload.workload import carried, imported
from foliot_schemas import Event

if TYPE_CHECKING:
    import socket
    from collections.abc import AsyncIterator
    from pathlib import Path

    from foliot_lab.fabric.namespaces import Namespace
    from foliot_lab.faults.injection import Injection
    from foliot_lab.measure.bus_recorder import Heard
    from foliot_lab.measure.outages import Pair, Pulses
    from foliot_lab.measure.wire_witness import Watch
    from foliot_lab.report.report import Conclusion, Report
    from foliot_lab.scenario.spec import FaultSpec, Scenario
    from foliot_lab.workload.workload import Job, Load
    from foliot_schemas import Command, Outcome

_PATIENCE_S, _TRY_AGAIN_S = 60.0, 2.0
_WATCH_BEFORE_S = 2.0
"""The time of the witness before a fault. It has to know the former way, and its thread may stand still for a
second."""
_LEAD_S = 1.0
"""The time from the beginning of the story to second 0, for the wire's witness before a fault at second 0."""
_LOOK_S = 0.5
_CALM_S = 3.0
"""A return that lasts so long is final: it is longer than the shortest probation."""
_CLOCKS_SETTLE_S = 6.0
"""Three sync windows between the first synchronised state and second 0: the filters have forgotten their beginning. The
workload begins meanwhile. Where a scenario leaves out waits, it leaves out this one."""


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """The options of a run."""

    folder: Path
    report: Path | None
    stay: bool
    """Go on running after the sequence, until interrupted."""
    address: str
    """The address of the gateway from outside."""
    group: Group | None
    """The CPU quota that this process and all that it starts are under; None: there is none."""
    now: Now
    """The machine before the run."""
    forced: bool
    """Skip the question whether the machine carries it."""


async def run(scenario: Scenario, options: Options, listener: socket.socket | None, out: TextIO) -> bool:
    """Runs the scenario; returns whether every outcome was right.

    Raises:
        CannotCarryError: the machine cannot carry its traffic.
        NotReadyError: the services did not find one another in time.
    """
    interrupted = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, interrupted.set)
    interruption = asyncio.create_task(interrupted.wait())
    lab = Lab(scenario, options.folder, listener, imported=imported(scenario))
    sequence = asyncio.create_task(_sequence(lab, options, out))
    try:
        await asyncio.wait({sequence, interruption}, return_when=asyncio.FIRST_COMPLETED)
        if not sequence.done():
            out.write("interrupted: taking everything down\n")
            sequence.cancel()
            await asyncio.wait({sequence})
            return False
        right = sequence.result()
        if options.stay:
            _say_where(options, out)
            await interruption
            if not right:
                out.write("Not every outcome was right, see above: this ends with status 1.\n")
        return right
    finally:
        interruption.cancel()
        await lab.close()


async def _sequence(lab: Lab, options: Options, out: TextIO) -> bool:
    started_s = time.monotonic()
    fabric = lab.scenario.fabric
    out.write(
        f"building {fabric.hosts} hosts on {fabric.rails} rails, each {fabric.leaves} leaves x {fabric.spines} spines"
        f" at {fabric.link_mbps:g} Mb/s; seed {lab.scenario.clock.seed}\n"
    )
    lab.build()
    if not options.forced:
        await _check_carrying(lab, options.now.speed, out)
    await lab.start()
    out.write(f"{len(lab.supervisor.names())} processes started; logs in {options.folder}\n")
    await lab.ready()
    settled_s = asyncio.get_running_loop().time() + (0.0 if lab.scenario.skip_waits else _CLOCKS_SETTLE_S)
    out.write(f"ready after {time.monotonic() - started_s:.0f} s: clocks in step, all paths heard, all backups armed\n")
    out.write(f"watch it in a browser: {options.address}/\n")
    return await _Run(lab, out, settled_s).through(options)


async def _check_carrying(lab: Lab, speed: float, out: TextIO) -> None:
    """Refuses a scenario that the machine cannot carry. Other load may come and go, so the check waits for a while."""
    deadline_s = time.monotonic() + _PATIENCE_S
    told = False
    while problem := refusal(await measure(lab.fabric, speed), lab.scenario):
        if time.monotonic() > deadline_s:
            raise CannotCarryError(problem)
        if not told:
            out.write(f"waiting for up to {_PATIENCE_S:.0f} s for a better moment: {problem}\n")
        told = True
        await asyncio.sleep(_TRY_AGAIN_S)


def processes(lab: Lab, load: Load, group: Group | None) -> dict[str, int]:
    """The lab's processes by name; under a quota all processes in it, with the nameless as ``other``."""
    named = lab.pids() | load.pids()
    nameless = () if group is None else set(group.pids()) - set(named.values())
    return named | {f"{OTHER}/{pid}": pid for pid in nameless}


def _say_where(options: Options, out: TextIO) -> None:
    out.write(
        f"\nThe lab goes on until you interrupt it (Ctrl-C). Its page is at {options.address}/, its API at\n"
        f"{options.address}/api/v1/ (fleet, paths, clocks, events, commands, traces; /metrics; /schema). In another "
        "terminal:\n"
        f"  .venv/bin/foliot trace --gateway {options.address} --last\n"
        f"  .venv/bin/foliot lab exec node3 -- ip -br addr\n"
    )
    out.flush()


class _Run:
    """One timeline over a lab that is ready.

    Parameters:
        settled_s: the event loop's time before which it does not begin.
    """

    def __init__(self, lab: Lab, out: TextIO, settled_s: float) -> None:
        self._lab = lab
        self._out = out
        self._settled_s = settled_s
        self._scenario = lab.scenario
        self._narrator = Narrator(lab.time, lab.truth, out, lab.plan.link_name)
        self._collector = Collector(lab.time, lab.truth, self._heard)
        self._narrates = True
        self._pulses: dict[str, dict[Pair, Pulses]] = {}
        self._injections: dict[str, Injection] = {}
        self._of_ranks = {
            fault.id: scope(fault.kind, fault.where, lab.plan)
            for fault in lab.scenario.faults
            if class_of(fault.kind, fault.where) == "rank"
        }

    async def through(self, options: Options) -> bool:
        """Runs workload, faults and report; returns whether every outcome was right."""
        async with carried(self._lab, self._out) as load:
            await asyncio.sleep(self._settled_s - asyncio.get_running_loop().time())
            report, conclusion = await self._story(load, options)
            self._narrates = False  # the workload's own end is no news
        self._narrates = True
        if options.report is not None:
            whole = msgspec.structs.replace(report, commit=commit(), versions=versions(), scenario=self._scenario)
            options.report.write_bytes(whole.json())
        self._narrator.finish()
        self._out.write("".join(f"{line}\n" for line in ("", *lines(report, conclusion))))
        self._out.flush()
        return conclusion.right

    async def _story(self, load: Load, options: Options) -> tuple[Report, Conclusion]:
        """What happens under a workload that runs, and what to make of it."""
        async with self._clock_samples():
            await self._collector.follow(self._lab.bus)
            sampler = LatenessSampler(
                self._lab.time.now_ns, lambda: processes(self._lab, load, options.group), options.now.speed
            )
            with Witness.over(self._lab.nodes, self._namespaces(), self._lab.time) as witness:
                steps = self._lab.loop_steps()
                sampler.start()
                await self._timeline(witness, load)
                sampler.stop()
                loops = {name: Steps.of(now.since(steps[name])) for name, now in self._lab.loop_steps().items()}
            evidence = Evidence(
                fabric=self._lab.plan,
                injections=tuple(self._injections.values()),
                seen={},
                events=self._collector.events,
                commands=self._collector.commands,
                outcomes=self._collector.outcomes,
                workers=self._collector.workers,
                flows=load.plans,
                record=load.record,
                job=None if load.job is None else load.job.record(self._narrator.zero_ns, load.train_began_ns),
                jobs=None if load.jobs is None else load.jobs.record(self._narrator.zero_ns),
                truth=self._lab.truth,
                lab=self._lab.time,
                machine=msgspec.structs.replace(sampler.machine(), loops=loops, fixed_work_s=options.now.fixed_work_s),
                seconds=sampler.seconds,
                start_ns=self._narrator.zero_ns,
                end_ns=self._lab.time.now_ns(),
                paths=self._lab.links_of_paths(),
                armed=armed(self._scenario),
            )
            seen = witnessed(evidence.injections, self._pulses, self._lab.plan, steered(evidence))
            evidence = msgspec.structs.replace(evidence, seen=seen)
            events = [heard.message for heard in self._collector.events]
            routers = map_report(self._lab.told_routers, evidence.paths, self._lab.plan, events)
            whole = msgspec.structs.replace(build(evidence), map=routers)
            return conclude(whole, self._scenario, evidence.seen)

    async def _timeline(self, witness: Witness, load: Load) -> None:
        seconds = ScenarioTime(asyncio.get_running_loop().time() + _LEAD_S)
        self._waits = Waits(self._scenario, seconds, _WATCH_BEFORE_S)
        self._narrator.start(self._scenario.faults, _LEAD_S)
        skipping = [asyncio.create_task(self._waits.leave_out())] if self._scenario.skip_waits else []
        watching = [asyncio.create_task(self._watch(witness, fault, seconds)) for fault in self._scenario.faults]
        if load.job is not None and load.job.spec.is_replaceable:
            held = (each for each in self._scenario.faults if holds_up_all(each.kind, each.where))
            watching += [asyncio.create_task(self._mended(load.job, fault)) for fault in held]
        try:
            async with self._jobs(load, seconds):
                await run_timeline(
                    self._scenario,
                    seconds,
                    self._lab.fabric,
                    self._lab.world,
                    clock=self._lab.time.now_ns,
                    report=self._injected,
                )
                await seconds.until(self._scenario.duration_s)
        finally:
            for task in (*watching, *skipping):
                task.cancel()
            await asyncio.gather(*watching, *skipping, return_exceptions=True)
            self._narrator.finish()

    @contextlib.asynccontextmanager
    async def _jobs(self, load: Load, seconds: ScenarioTime) -> AsyncIterator[None]:
        """Plays the jobs, if there are several, for the length of the block."""
        if load.jobs is None:
            yield
            return
        playing = asyncio.create_task(load.jobs.follow(seconds, self._narrator.say))
        try:
            yield
        finally:
            playing.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await playing

    async def _watch(self, witness: Witness, fault: FaultSpec, seconds: ScenarioTime) -> None:
        """Sends pulses over the fault's pairs from shortly before it until it is over, however long that takes."""
        pairs = scope(fault.kind, fault.where, self._lab.plan).pairs()
        if not pairs:
            return
        await seconds.until(max(fault.at_s - _WATCH_BEFORE_S, -_LEAD_S))
        watch = witness.arm(pairs, full_size=fault.kind == "mtu")
        try:
            await self._until_over(witness, watch, fault.id)
        finally:
            self._pulses[fault.id] = witness.disarm(watch)
            self._waits.over(fault.id)

    async def _until_over(self, witness: Witness, watch: Watch, fault_id: str) -> None:
        """Reports when all pairs flow again, and when all are back; returns then, or long after the healing."""
        told_moved = False
        while True:
            await asyncio.sleep(_LOOK_S)
            injection = self._injections.get(fault_id)
            if injection is None:
                continue
            so_far = tuple(self._injections.values())
            seen = witnessed(so_far, {fault_id: witness.look(watch)}, self._lab.plan)[fault_id]
            if seen.moved_ns is not None and not told_moved:
                told_moved = True
                self._waits.moved(fault_id)
                self._narrator.moved(seen.changed, seen.moved_ns, injection.injected_ns)
            if injection.healed_ns is None:
                continue
            if seen.restored_ns is not None:
                self._narrator.say("on the wire: every pair is back on its way of before", at_ns=seen.restored_ns)
                await asyncio.sleep(_CALM_S)
                return
            if not told_moved and self._lab.time.now_ns() > injection.healed_ns + RECOVERY_NS:
                return

    async def _mended(self, job: Job, fault: FaultSpec) -> None:
        """Reports when the job has all its ranks again after a fault, until it is cancelled."""
        before = -1
        while True:
            told = {each.message.node: each.message for each in self._collector.workers}.values()
            if fault.id not in self._injections:
                before = generation(told)
            elif is_whole(told, before, job.count_without(self._taken())):
                self._waits.whole(fault.id)
            await asyncio.sleep(_LOOK_S)

    def _taken(self) -> list[str]:
        """The places whose processes a fault has taken from the job, and that it does not have back."""
        lasting = [each for each in self._injections.values() if each.healed_ns is None]
        return [each.where for each in lasting if takes_ranks(each.kind, each.where)]

    @contextlib.asynccontextmanager
    async def _clock_samples(self) -> AsyncIterator[None]:
        async def sample() -> None:
            while True:
                self._lab.truth.sample(time.clock_gettime_ns(time.CLOCK_MONOTONIC_RAW))
                await asyncio.sleep(SAMPLE_S)

        task = asyncio.create_task(sample())
        try:
            yield
        finally:
            task.cancel()

    def _namespaces(self) -> dict[str, Namespace]:
        return {host: self._lab.fabric.host(host) for host in self._lab.plan.hosts}

    def _heard(self, heard: Heard[Event | Command | Outcome]) -> None:
        if self._narrates:
            self._narrator.hear(heard.message)
        if isinstance(heard.message, Event):
            for fault_id in self._injections.keys() & self._of_ranks.keys():
                if self._of_ranks[fault_id].has_event(heard.message):
                    self._waits.told(fault_id, heard.message)

    def _injected(self, injection: Injection) -> None:
        self._injections[injection.fault_id] = injection
        self._waits.injected(injection)
        self._narrator.injected(injection)
