"""One run of a job that loses ranks again and again: with Foliot, under torchrun, under torchft, or without any loss.

It is a process of its own, since it moves into the lab's namespaces. `bench.ranks` starts it.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import itertools
import random
import signal
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Protocol

import msgspec

from bench import place
from bench.ranks.account import Account, Import, account
from bench.ranks.draw import GRADIENT_MB, RANKS, SPARES
from foliot_lab.measure.machine import CpuTimes
from foliot_lab.scenario.spec import ClockSpec, FabricSpec, Scenario, TrainSpec, WorkloadSpec
from foliot_lab.services.lab import Lab
from foliot_lab.workload.train.merged_steps import merge, read_lines
from foliot_lab.workload.train.places import file_stem, places
from foliot_lab.workload.train.ranks import spawn
from foliot_lab.workload.workload import carried

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import numpy as np
    from numpy.typing import NDArray

    from foliot_lab.workload.train.merged_steps import MergedSteps
    from foliot_lab.workload.train.places import Place

Tool = Literal["none", "foliot", "torchrun", "torchft"]
BATCH = 8
_POLL_S = 0.2
_BACK_S = 1.0
"""So long after its end, whoever starts the job's processes starts one again. torchrun does so itself."""
_LIGHTHOUSE_PORT = 29510


class Trial(msgspec.Struct, frozen=True, kw_only=True):
    """What was asked of a run."""

    tool: Tool
    rep: int
    job_seed: int
    steps: int
    checkpoint_steps: int
    failures: int | None
    """None: they go on until the job is over."""
    each_s: float
    """The mean time from a failure to the next."""
    within_s: float
    """It is given up after so long."""


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """What a run came to."""

    trial: Trial
    failures: int
    """That were done before the job was over."""
    finished: bool
    """Whether all steps were done in time."""
    idle_cpu: float
    stolen_cpu: float
    account: Account | None
    failures_ns: list[int]
    """CLOCK_MONOTONIC_RAW."""


def schedule(rep: int, failures: int | None, each_s: float) -> Iterator[tuple[float, int]]:
    """When which rank is killed, in seconds from the first step's end: the same for each tool. None: without an end."""
    rng = random.Random(f"{rep}/failures")
    at_s = 0.0
    for _ in itertools.count() if failures is None else range(failures):
        # Published: a failure each 2,700 to 4,500 s.
        at_s += each_s * rng.uniform(0.75, 1.25)
        yield round(at_s, 2), rng.randrange(RANKS)


class Job(Protocol):
    """A job whose ranks can be killed."""

    def files(self) -> Mapping[str, Path]:
        """The record of each place."""

    def kill(self, rank: int) -> bool:
        """Kills the process that has a rank; False: there is none now."""


class OfLab:
    """The lab's own job: replaceable, under torchrun, or plain."""

    def __init__(self, lab: Lab, folder: Path, *, restarted: bool) -> None:
        self._lab, self._folder, self._restarted = lab, folder, restarted
        self._tasks: set[asyncio.Task[None]] = set()

    def files(self) -> Mapping[str, Path]:
        """See `Job`."""
        return {f"node{host}": self._folder / f"node{host}.jsonl" for host in range(len(self._lab.plan.hosts))}

    def kill(self, rank: int) -> bool:
        """See `Job`."""
        job = self._lab.world.job
        assert job is not None
        where = f"node{rank}" if self._restarted else merged(self.files()).holder(rank, _now_ns())
        if where is None or not job.pid(where):
            return False
        job.signal(f"{where}/rank", signal.SIGKILL)  # and not torchrun's agent, which is on the host, too
        if not self._restarted:
            task = asyncio.get_running_loop().create_task(self._start_again(where))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        return True

    async def _start_again(self, where: str) -> None:
        await asyncio.sleep(_BACK_S)
        if self._lab.world.job is not None:
            self._lab.world.job.start_again(where)


class OfTorchft:
    """A job of torchft's in a lab's namespaces: a lighthouse, and a replica on each host. `close` it whatever happens."""

    def __init__(self, lab: Lab, trial: Trial) -> None:
        self._lab, self._trial = lab, trial
        self._folder = lab.folder / "torchft"
        self._processes: dict[int, asyncio.subprocess.Process] = {}
        self._lighthouse: asyncio.subprocess.Process | None = None
        self._places: list[Place] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._closed = False

    async def start(self) -> None:
        """Starts the lighthouse and the replicas."""
        self._folder.mkdir()
        self._places = places(self._lab)[:RANKS]
        first = self._places[0]
        self._lighthouse = await spawn(
            first.namespace, {}, ["bench.ranks.lighthouse", f"[::]:{_LIGHTHOUSE_PORT}"],
            self._folder / "lighthouse.log",
        )  # fmt: skip
        for rank in range(RANKS):
            await self._spawn(rank)

    def files(self) -> Mapping[str, Path]:
        """See `Job`."""
        return {f"node{rank}": self._folder / f"node{rank}.jsonl" for rank in range(RANKS)}

    def kill(self, rank: int) -> bool:
        """See `Job`."""
        process = self._processes[rank]
        if process.returncode is not None:
            return False
        process.kill()
        task = asyncio.get_running_loop().create_task(self._start_again(rank))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return True

    async def close(self) -> None:
        """Ends all processes."""
        self._closed = True
        for process in (*self._processes.values(), *filter(None, [self._lighthouse])):
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()

    async def _start_again(self, rank: int) -> None:
        await asyncio.sleep(_BACK_S)
        if not self._closed:
            await self._spawn(rank)

    async def _spawn(self, rank: int) -> None:
        here = self._places[rank]
        front = self._lab.plan.front
        environment = {
            "TORCHFT_RANK": str(rank), "OMP_NUM_THREADS": "1",
            "TORCHFT_LIGHTHOUSE": f"http://{front(self._places[0].node)}:{_LIGHTHOUSE_PORT}",
        }  # fmt: skip
        words = [
            "bench.ranks.torchft_job", *(word for address in here.addresses for word in ("--address", address)),
            "--front", front(here.node), "--record", str(self.files()[f"node{rank}"]),
            "--gradient-bytes", str(round(GRADIENT_MB * 1e6)), "--batch", str(BATCH),
            "--steps", str(self._trial.steps), "--seed", str(self._trial.job_seed),
        ]  # fmt: skip
        log = self._folder / f"{file_stem(here.name)}.log"
        self._processes[rank] = await spawn(here.namespace, environment, words, log)


def merged(files: Mapping[str, Path]) -> MergedSteps:
    """The steps of a job so far; times are CLOCK_MONOTONIC_RAW."""
    return merge(lines_of(files), RANKS)


def lines_of(files: Mapping[str, Path]) -> dict[str, NDArray[np.void]]:
    """The lines of all processes."""
    return {name: read_lines(file, 0) for name, file in files.items()}


def done(files: Mapping[str, Path]) -> int:
    """How many steps are done, by any rank."""
    steps = [
        int(rows["step"][rows["ended_ns"] > 0].max(initial=-1)) + 1 for rows in lines_of(files).values() if len(rows)
    ]
    return max(steps, default=0)


def imports(files: Mapping[str, Path]) -> dict[str, list[Import]]:
    """Of each place, when its processes were there, and how long that had taken."""
    found = {}
    for name, file in files.items():
        told = file.with_suffix(".starts")
        text = told.read_bytes() if told.exists() else b""
        found[name] = [msgspec.json.decode(line, type=Import) for line in text.split(b"\n")[:-1]]
    return found


def scenario(trial: Trial) -> Scenario:
    """The lab of a run. Each tool has the same fabric and hosts; without a loss, there is none that stands by."""
    train = TrainSpec(
        gradient_mb=GRADIENT_MB, batch=BATCH, steps=trial.steps, seed=trial.job_seed,
        use="foliot" if trial.tool == "foliot" else "plain", spares=0 if trial.tool == "none" else SPARES,
        checkpoint_steps=trial.checkpoint_steps if trial.tool == "torchrun" else None,
    )  # fmt: skip
    return Scenario(
        fabric=FabricSpec(hosts=RANKS + (0 if trial.tool == "none" else SPARES), rails=1, spines=2),
        clock=ClockSpec(seed=trial.rep), workload=WorkloadSpec(kind="none" if trial.tool == "torchft" else "train"),
        train=train if trial.tool != "torchft" else TrainSpec(),
    )  # fmt: skip


async def run(trial: Trial, folder: Path) -> tuple[Outcome, list[float]]:
    """Runs the job to its end; returns what it came to, and the losses of each step."""
    lab = Lab(scenario(trial), folder)
    lab.build()
    try:
        await lab.start()
        await lab.ready()
        if trial.tool == "torchft":
            peer = OfTorchft(lab, trial)
            try:
                await peer.start()
                return await _through(peer, trial)
            finally:
                await peer.close()
        async with carried(lab, sys.stdout) as load:
            assert load.job is not None
            return await _through(OfLab(lab, load.job.folder, restarted=trial.tool == "torchrun"), trial)
    finally:
        await lab.close()


async def _through(job: Job, trial: Trial) -> tuple[Outcome, list[float]]:
    files = job.files()
    deadline_s = time.monotonic() + trial.within_s
    while not done(files):
        if time.monotonic() > deadline_s:
            raise TimeoutError(f"the job of {trial.tool} did no step in {trial.within_s:g} s")
        await asyncio.sleep(_POLL_S)
    began = CpuTimes.read()
    failures_ns: list[int] = []
    killing = asyncio.create_task(_kill(job, trial, failures_ns))
    try:
        while (steps := done(files)) < trial.steps and time.monotonic() < deadline_s:  # noqa: ASYNC110 - processes end
            await asyncio.sleep(_POLL_S)
        await asyncio.sleep(1.0)  # the other ranks end the step too
    finally:
        killing.cancel()
        await asyncio.gather(killing, return_exceptions=True)
    now = CpuTimes.read()
    lines = lines_of(files)
    whole = merge(lines, RANKS)
    outcome = Outcome(
        trial=trial, failures=len(failures_ns), finished=steps >= trial.steps,
        idle_cpu=round(began.idle_share(now), 3), stolen_cpu=round(began.stolen_share(now), 3),
        account=account(
            lines, ranks=RANKS, steps=trial.steps, batch=BATCH, failures_ns=failures_ns, imports=imports(files)
        ),
        failures_ns=failures_ns,
    )  # fmt: skip
    return outcome, whole.losses.tolist()


async def _kill(job: Job, trial: Trial, failures_ns: list[int]) -> None:
    began_s = time.monotonic()
    for at_s, rank in schedule(trial.rep, trial.failures, trial.each_s):
        await asyncio.sleep(max(0.0, began_s + at_s - time.monotonic()))
        at_ns = _now_ns()
        while not job.kill(rank):
            await asyncio.sleep(_POLL_S)
            at_ns = _now_ns()
        failures_ns.append(at_ns)
        sys.stdout.write(f"{time.monotonic() - began_s:8.2f} s  rank {rank} is killed\n")
        sys.stdout.flush()


def _now_ns() -> int:
    return time.clock_gettime_ns(time.CLOCK_MONOTONIC_RAW)


def main() -> int:
    """Reads what is asked, runs it, and writes what it came to."""
    parser = argparse.ArgumentParser(prog="bench.ranks.failures")
    parser.add_argument("trial", type=Path, help="a file with a `Trial`")
    parser.add_argument("outcome", type=Path, help="the file for what it comes to; its losses come beside it")
    parser.add_argument("--folder", type=Path, required=True)
    arguments = parser.parse_args()
    trial = msgspec.json.decode(arguments.trial.read_bytes(), type=Trial)
    if not place.enter():
        return place.CANNOT
    outcome, losses = asyncio.run(run(trial, arguments.folder))
    arguments.outcome.with_suffix(".losses").write_bytes(msgspec.json.encode(losses))
    arguments.outcome.write_bytes(msgspec.json.encode(outcome))
    return 0


if __name__ == "__main__":
    sys.exit(main())
