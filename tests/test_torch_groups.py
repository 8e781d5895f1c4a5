"""`foliot.torch.groups` in real PyTorch jobs over Gloo, whose ranks are lost and replaced by the agent's own handler."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import importlib.util
import json
import os
import signal
import textwrap
import time

import forked_torch
import pytest

from foliot_agent.control.rank_handler import RankHandler
from foliot_agent.control.restart_cache import RestartCache
from foliot_agent.ranks.rank_socket import RankSocket
from foliot_lab.faults.connection_resets import reset_connections
from foliot_schemas import RankChange, ReplaceRank
from patience import patience
from ports import port_for

pytestmark = pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="make train installs PyTorch")

SIZE, STEPS = 3, 80
PROGRAM = textwrap.dedent(
    """
    import faulthandler, json, os, signal, sys, time
    from pathlib import Path
    faulthandler.register(signal.SIGUSR1, chain=False)
    import torch
    from torch.nn.parallel import DistributedDataParallel
    import foliot.torch

    folder, kind = Path(sys.argv[1]), sys.argv[2]
    torch.set_num_threads(1)
    torch.manual_seed(3)
    model = torch.nn.Sequential(torch.nn.Linear(16, 16), torch.nn.BatchNorm1d(16), torch.nn.Dropout(0.1))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)

    class Mean:
        # What each rank has for itself: the mean of its own losses, which its next losses follow.
        def __init__(self):
            self.mean = torch.ones(1)
        def state_dict(self):
            return {"mean": self.mean}
        def load_state_dict(self, state):
            self.mean = state["mean"].clone()

    mean, step = Mean(), 0
    alike = {"model": model, "optimizer": optimizer}

    def checkpoint(rank, step):
        parts = {"mean": mean.state_dict(), "step": step} | {name: part.state_dict() for name, part in alike.items()}
        torch.save(parts, folder / f"checkpoint.{rank}")

    def reload(rank):
        saved = torch.load(folder / f"checkpoint.{rank}", weights_only=False)
        for name, part in {**alike, "mean": mean}.items():
            part.load_state_dict(saved[name])
        return saved["step"]

    more = {
        "alike": {}, "averaging": {"reload": reload},
        "sharded": {"shard": {"mean": mean}, "mirror_steps": 4, "reload": reload},
    }[kind]
    def join(store, rank, size):
        if os.environ.get("RANK") == "1" and (folder / "dies").exists():
            (folder / "joins").touch()
            while (folder / "dies").exists():
                time.sleep(0.02)
            os.kill(os.getpid(), 9)
        foliot.torch.default_join(store, rank, size)

    foliot.torch.record("real", socket=f"{folder}/ranks")
    for group in foliot.torch.groups(alike, join=join, job="real", socket=f"{folder}/ranks", seed=5, wait_s=60, **more):
        with group, (folder / f"losses.{os.getpid()}").open("a", buffering=1) as losses:
            # PyTorch would lay the buckets out anew after the first step, and sum in another order from then on.
            parallel = DistributedDataParallel(model, find_unused_parameters=True)
            while group.step < int(sys.argv[3]):
                while group.step >= int((folder / "allowed").read_text() or 0):
                    time.sleep(0.01)
                batch = torch.randn(8, 16, generator=torch.Generator().manual_seed(1000 * group.step + group.rank))
                loss = ((parallel(batch) - batch) ** 2).mean()
                if kind == "sharded":
                    mean.mean = 0.9 * mean.mean + 0.1 * loss.detach()
                    loss = loss * (1 + mean.mean[0])
                loss.backward()
                optimizer.step()
                optimizer.zero_grad()
                losses.write(json.dumps([group.step, group.rank, loss.item().hex()]) + "\\n")
                if kind != "alike" and group.step == 19:
                    checkpoint(group.rank, 20)
                if kind == "averaging":  # too late for a rank that is lost meanwhile
                    while group.rank == 1 and group.step == 29 and (folder / "halts").exists():
                        time.sleep(0.01)
                    torch.distributed.all_reduce(loss.detach())
                time.sleep(0.02)
                group.end_step()
    os._exit(0)
    """
)


class GaveUpError(Exception):
    """A rank has ended itself."""


def repeated(test):
    """Runs a test anew if a rank gave up, with jobs of other names.

    By chance, Gloo forgets a transfer of a broken connection, and a rank waits for it where nothing can end that. Then
    the rank ends, and a spare takes its place (`test_torch_stuck_waits`). A job without one more shows nothing then.
    """

    @functools.wraps(test)
    async def run(start):
        def named(attempt):
            return lambda name, *words, **more: start(f"{name}{attempt}", *words, **more)

        for attempt in range(4):
            with contextlib.suppress(GaveUpError):
                return await test(named(attempt))
        return pytest.fail("a rank gave up each time")

    return run


class Clock:
    """The host's own, as the reference."""

    def now_ns(self):
        """Reference time."""
        return time.time_ns()

    def bound_ns(self):
        """Its bound."""
        return 100


class Job:
    """A job's processes on one node, the agent's parts that speak with them, and what is done to them."""

    def __init__(self, folder, kind, spares=0, *, dies=False):
        self.folder = folder
        folder.mkdir()
        self.allow(STEPS if not spares else 20)
        if dies:  # rank 1, as the first group forms, once the file is gone
            (folder / "dies").touch()
        self.ranks = RankSocket(str(folder / "ranks"), "node0", Clock(), lambda _: None)
        self.ranks.open()
        self.telling = asyncio.create_task(self.ranks.tell())
        self.handler = RankHandler("node0", self.ranks, Clock(), RestartCache("", "node0", "here"))
        (folder / "rank.py").write_text(PROGRAM)
        port = str(port_for(self))
        meet = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "WORLD_SIZE": str(SIZE), "GLOO_SOCKET_IFNAME": "lo"}
        roles = [{"RANK": str(rank)} for rank in range(SIZE)] + [{"FOLIOT_SPARE": "1"}] * spares
        self.processes = []
        for place, role in enumerate(roles):
            with (folder / f"{place}.log").open("wb") as log:
                self.processes.append(
                    forked_torch.start(
                        folder / "rank.py", str(folder), kind, str(STEPS), env={**os.environ, **meet, **role},
                        stderr=log.fileno(),
                    )
                )  # fmt: skip
        self.generation = 0

    def allow(self, steps):
        """Lets the job do so many steps in all."""
        (self.folder / "next").write_text(str(steps))
        (self.folder / "next").rename(self.folder / "allowed")
        self.allowed = steps

    def workers(self):
        """The workers, by rank; the spares have none."""
        living = self.ranks.workers("real")
        return {each.report.rank: each for each in living if each.report.rank >= 0 and each.report.stage != "over"}

    def spares(self):
        """The spares."""
        return [each for each in self.ranks.workers("real") if each.report.stage == "spare"]

    def pid(self, worker):
        """Its process."""
        return next(each.process.pid for each in self.ranks._connections if each.worker is worker)

    async def until(self, condition):
        """Waits for it; if it does not come, says what all processes have said, and where they stand."""
        try:
            async with asyncio.timeout(patience(180)):
                while not condition():
                    if self.gave_up:
                        raise GaveUpError
                    await asyncio.sleep(0.01)
        except TimeoutError:
            for process in self.processes:
                process.send_signal(signal.SIGUSR1)
            await asyncio.sleep(2)
            logs = [f"{path.name}:\n{path.read_text()}" for path in sorted(self.folder.glob("*.log"))]
            reports = "\n".join(str(each.report) for each in self.ranks.workers("real"))
            pytest.fail(f"waited in vain; reports:\n{reports}\n" + "\n".join(logs))

    async def noticed(self):
        """Waits until a rank has noticed that its group is broken, or for as long as it takes to find that all wait.

        Gloo may have forgotten a transfer of a rank, which then waits until it is told: of one, or of each.
        """
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(patience(20)):
                while all(each.report.stage != "broken" for each in self.workers().values()):  # noqa: ASYNC110 - processes
                    await asyncio.sleep(0.01)

    @property
    def gave_up(self):
        """Whether a rank has ended itself, because it waited in Gloo and no way is known to end that."""
        return any(process.returncode == os.EX_TEMPFAIL for process in self.processes)

    async def until_step(self, step):
        """Waits until a rank has done so many steps in the present generation."""
        await self.until(
            lambda: (
                len(now := self.workers()) == SIZE
                and all(each.report.generation == self.generation for each in now.values())
                and max(each.report.step for each in now.values()) >= step
            )
        )

    def order(self, lost, *, at_step=0):
        """The order that gives ranks to the first spares."""
        self.generation += 1
        stay = min(
            (each for rank, each in self.workers().items() if rank not in lost), key=lambda each: each.report.rank
        )
        changes = [
            RankChange(rank=rank, node="node0", process=process, to_node="node0", to_process=spare.process)
            for (rank, process), spare in zip(lost.items(), self.spares(), strict=False)
        ]
        return ReplaceRank(
            job="real", generation=self.generation, meet=stay.report.meet, at_step=at_step, cause="dead",
            changes=tuple(changes),
        )  # fmt: skip

    async def lose(self, *ranks, by=signal.SIGKILL):
        """Ends or stops ranks, waits until the others have noticed or stand still, and has them replaced."""
        lost = {rank: self.workers()[rank].process for rank in ranks}
        self.allow(self.allowed + 20)
        for rank in ranks:
            os.kill(self.pid(self.workers()[rank]), by)
        if by == signal.SIGKILL:
            await self.until(lambda: not lost.keys() & self.workers().keys())
            await self.noticed()
        result = await self.handler.apply(self.order(lost))
        assert result.status == "done", result.reason

    def losses(self):
        """By step, the losses of all ranks; a step that was done twice counts by its last."""
        told = {}
        for file in sorted(self.folder.glob("losses.*"), key=lambda each: each.stat().st_mtime):
            for line in file.read_text().splitlines():
                step, rank, loss = json.loads(line)
                told.setdefault((step, rank), set()).add(loss)
        return told

    async def end(self):
        """Ends everything."""
        for process in self.processes:
            process.send_signal(signal.SIGCONT)
            process.send_signal(signal.SIGKILL)
            await process.wait()
        self.telling.cancel()
        self.ranks.close()


@pytest.fixture
async def start(tmp_path):
    """Starts jobs, and ends them."""
    jobs = []

    def make(name, *words, **more):
        jobs.append(Job(tmp_path / name, *words, **more))
        return jobs[-1]

    yield make
    for job in jobs:
        await job.end()


async def finished(job):
    """Waits until its ranks have done their work."""
    await job.until(lambda: sum(step == STEPS - 1 for step, _ in job.losses()) == SIZE)


@repeated
async def test_losses_are_the_same_to_the_bit_whatever_became_of_the_ranks(start):
    """One dies as the first group forms, one in a step, one leaves at a step's end, one is stopped; no step is missing."""
    undisturbed = start("undisturbed", "alike")
    await finished(undisturbed)
    job = start("disturbed", "alike", spares=4, dies=True)
    await job.until(lambda: len(job.spares()) == 4 and len(job.workers()) == SIZE and (job.folder / "joins").exists())
    first = job.workers()[1].process
    (job.folder / "dies").unlink()
    await job.until(lambda: 1 not in job.workers())
    await job.handler.apply(job.order({1: first}))
    await job.until_step(20)
    await job.lose(0)
    await job.until_step(40)
    await job.handler.apply(job.order({2: job.workers()[2].process}, at_step=50))
    job.allow(60)
    await job.until_step(60)
    await job.lose(1, by=signal.SIGSTOP)
    await finished(job)

    assert job.losses() == undisturbed.losses()
    assert job.ranks.rejected == 0, job.ranks.last_rejected
    # Who loses its rank at a step's end ends well.
    await job.until(lambda: job.processes[2].returncode == 0)
    assert {each.report.lost_steps for each in job.workers().values()} <= {0}


@repeated
async def test_what_a_lost_rank_had_for_itself_comes_from_the_next_rank_or_a_checkpoint(start):
    """A rank is lost, and later one with the keeper of its copy: the losses are those of a job that lost none."""
    undisturbed = start("undisturbed", "sharded")
    await finished(undisturbed)
    job = start("disturbed", "sharded", spares=3)
    await job.until(lambda: len(job.spares()) == 3)
    await job.until_step(20)
    await job.lose(1)
    await job.until_step(40)
    assert max(each.report.lost_steps for each in job.workers().values()) <= 4
    await job.lose(1, 2)
    said = "all are back at step 20, by the last checkpoint"
    await job.until(lambda: any(said in each.report.reason for each in job.workers().values()))
    job.allow(STEPS)
    await finished(job)

    assert job.losses() == undisturbed.losses()


@repeated
async def test_a_step_whose_end_was_not_said_does_not_change_parameters_twice(start):
    """A rank is lost when all have stepped their optimizers, and wait for it once more: they go back to a checkpoint."""
    undisturbed = start("undisturbed", "averaging")
    await finished(undisturbed)
    job = start("disturbed", "averaging", spares=1)
    (job.folder / "halts").touch()
    job.allow(30)
    await job.until(lambda: len(job.spares()) == 1 and {(29, rank) for rank in range(SIZE)} <= job.losses().keys())
    await job.lose(1)
    (job.folder / "halts").unlink()
    said = "all are back at step 20, by the last checkpoint: each rank that is left had begun to change its state"
    await job.until(lambda: any(said in each.report.reason for each in job.workers().values()))
    job.allow(STEPS)
    await finished(job)

    assert job.losses() == undisturbed.losses()


@repeated
async def test_ranks_whose_connections_are_reset_form_their_group_anew(start):
    """Nobody is lost, and no spare is there. The kernel ends all connections of one rank, as a firewall does."""
    undisturbed = start("undisturbed", "alike")
    await finished(undisturbed)
    job = start("disturbed", "alike")
    job.allow(30)
    await job.until_step(30)
    job.allow(60)
    reset_connections(job.pid(job.workers()[1]))
    await job.noticed()
    result = await job.handler.apply(job.order({}))
    assert result.status == "done", result.reason
    await job.until_step(60)
    assert [each.report.lost_steps for each in job.workers().values()] == [0] * SIZE
    job.allow(STEPS)
    await finished(job)

    assert job.losses() == undisturbed.losses()
    assert all(process.returncode in (None, 0) for process in job.processes)
