"""``foliot.torch`` in a real PyTorch job over Gloo, heard by the agent's socket and judged by the detector."""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import forked_torch
import pytest

from foliot_agent.ranks.rank_socket import RankSocket
from foliot_detector.core.pipeline import Pipeline
from foliot_detector.settings import DetectorSettings
from foliot_schemas import Nic, Node
from foliot_schemas.collective import ranks_of, runs
from patience import patience

pytestmark = pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="make train installs PyTorch")

WORLD = 4
COUNTS = Path("/proc/self/schedstat").exists()
"""Whether the kernel counts how long processes wait for a processor."""
RANK = textwrap.dedent(
    """
    import os, sys, time
    from pathlib import Path
    import torch
    import torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel
    from torch.utils.data import DataLoader
    import foliot.torch

    folder, rank, world, fault = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
    torch.set_num_threads(1)
    foliot.torch.record("real", socket=f"{folder}/ranks")
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=world)
    pairs = [dist.new_group([0, 1], group_desc="left"), dist.new_group([2, 3], group_desc="right")]
    model = DistributedDataParallel(torch.nn.Linear(64, 64))
    if rank < 2:
        dist.send(torch.ones(2), 1) if rank == 0 else dist.recv(torch.ones(2), 0)
    step = 0
    while True:
        for batch in DataLoader(torch.ones(1, 64)):
            model(batch).sum().backward()
        dist.all_reduce(torch.ones(10), group=pairs[rank // 2])
        ended = torch.tensor([(folder / "over").exists()])
        if rank == 2 and fault == "hang" and step == 40:
            time.sleep(1_000)
        if rank == 1 and fault == "mismatch" and step == 40:
            dist.barrier()
        # All end at the same step.
        dist.all_reduce(ended, op=dist.ReduceOp.MAX)
        if ended:
            break
        step += 1
        time.sleep(0.02)
    dist.destroy_process_group()
    """
)


class Clock:
    """The host's own, as the reference."""

    def now_ns(self):
        """Reference time."""
        return time.time_ns()

    def bound_ns(self):
        """Its bound."""
        return 100


@pytest.fixture
async def make_job(tmp_path):
    """Starts a job with a fault, whose ranks are heard; gives its batches and events."""
    (tmp_path / "rank.py").write_text(RANK)
    batches, events, ranks = [], [], []
    pipeline = Pipeline(DetectorSettings(hang_s=1.0))
    nic = Nic(
        name="node0.rail0", rail="rail0", device="eth0", address="10.0.0.1", clock="node0", entropies=(0,),
        service_address="10.200.0.1", path_addresses=("100.64.0.1",),
    )  # fmt: skip
    pipeline.observe(Node(name="node0", nics=(nic,)))
    told_ns = time.monotonic_ns()

    def hear(batch):
        nonlocal told_ns
        batch.check()
        batches.append(batch)
        now_ns = time.monotonic_ns()
        events.extend(pipeline.observe(batch, now_ns - told_ns))
        told_ns = now_ns

    heard = RankSocket(str(tmp_path / "ranks"), "node0", Clock(), hear)
    heard.open()
    telling = asyncio.create_task(heard.tell())

    def make(fault):
        environment = {**os.environ, "GLOO_SOCKET_IFNAME": "lo"}
        for rank in range(WORLD):
            with (tmp_path / f"{rank}.log").open("wb") as log:
                ranks.append(
                    forked_torch.start(
                        tmp_path / "rank.py", str(tmp_path), str(rank), str(WORLD), fault, env=environment,
                        stderr=log.fileno(),
                    )
                )  # fmt: skip
        return batches, events, ranks

    yield make
    for rank in ranks:
        rank.send_signal(signal.SIGKILL)
        await rank.wait()
    telling.cancel()
    heard.close()
    assert heard.rejected == 0, heard.last_rejected


@contextlib.contextmanager
def starved(process):
    """While another process has the processor on which it may run."""
    place = min(os.sched_getaffinity(0))
    session = Path(f"/proc/{process.pid}/autogroup")
    if session.exists():  # niceness counts within a session alone, and each rank has its own (sched(7))
        session.write_text("10")
    for thread in Path(f"/proc/{process.pid}/task").iterdir():
        os.sched_setaffinity(int(thread.name), {place})
        os.setpriority(os.PRIO_PROCESS, int(thread.name), 19)
    with subprocess.Popen([sys.executable, "-c", "while True: pass"]) as busy:
        os.sched_setaffinity(busy.pid, {place})
        try:
            yield
        finally:
            busy.kill()


async def until(condition):
    """Waits for it."""
    async with asyncio.timeout(patience(120)):
        while not condition():  # noqa: ASYNC110 - processes
            await asyncio.sleep(0.05)


def collectives(batches):
    """All that was told: rank, group, name of the operation, number, bytes, and whether it is done."""
    return {
        (batch.ranks[rank].rank, batch.groups[group], batch.operations[operation], number, peer, bytes_)
        for batch in batches
        for rank, group, operation, number, peer, bytes_, ended_ns in batch.rows()[
            ["rank", "group", "operation", "number", "peer", "bytes", "ended_ns"]
        ].tolist()
        if ended_ns
    }


async def test_all_that_a_job_does_is_told(make_job, tmp_path):
    """By its program and by DDP, in all groups, with transfers; until it says that it is over."""
    batches, events, ranks = make_job("")
    await until(lambda: any(each[1] in {"1", "2"} and each[3] > 50 for each in collectives(batches)))
    (tmp_path / "over").touch()
    await until(lambda: all(rank.returncode is not None for rank in ranks))
    await until(lambda: batches[-1].ranks and {each.process for each in batches[-1].ranks} == {"ended"})

    assert [rank.returncode for rank in ranks] == [0] * WORLD, (tmp_path / "0.log").read_text()
    told = collectives(batches)
    groups = {
        group.name: (group.description, [*ranks_of(group.members)]) for batch in batches for group in batch.members
    }
    assert groups == {"0": ("default_pg", [0, 1, 2, 3]), "1": ("left", [0, 1]), "2": ("right", [2, 3])}
    # Two all-reduces of all ranks a step: DDP's of 64 x 64 weights and 64 biases, and the program's.
    sizes = {bytes_ for _, group, operation, _, _, bytes_ in told if (group, operation) == ("0", "all_reduce")}
    assert sizes == {4 * (64 * 64 + 64), 1}
    assert {each[0] for each in told if each[1] == "1"} == {0, 1}
    assert {(each[0], each[2], each[4]) for each in told if each[4] >= 0} == {(0, "send", 1), (1, "recv", 0)}
    for rank in range(WORLD):
        numbers = sorted(each[3] for each in told if each[0] == rank and each[1] == "0" and each[4] < 0)
        assert numbers == [*range(1, len(numbers) + 1)]
    assert all(each.data_ns > 0 and each.dropped == 0 for each in batches[-1].ranks)
    assert all((each.cpu_delay_ns > 0) is COUNTS for each in batches[-1].ranks)
    assert [event for event in events if event.kind == "hang"] == []


@pytest.mark.parametrize(("fault", "rank", "state"), [("hang", 2, "absent"), ("mismatch", 1, "mismatch")])
async def test_the_rank_that_holds_up_a_real_job_is_named(make_job, fault, rank, state):
    """One that sleeps, and one that begins a barrier in place of an all-reduce."""
    _, events, _ = make_job(fault)
    await until(lambda: any(event.kind == "hang" for event in events))
    await asyncio.sleep(1.0)

    assert {(event.who, event.state) for event in events if event.kind == "hang"} == {(f"real/rank{rank}", state)}


@pytest.mark.skipif(not COUNTS, reason="the kernel does not count how long processes wait for a processor")
async def test_a_real_rank_that_has_no_processor_is_named(make_job):
    """Another process has the one on which it may run."""
    batches, events, ranks = make_job("")
    who = "real/rank1"
    await until(lambda: any(each[3] > 50 for each in collectives(batches)))
    with starved(ranks[1]):
        await until(lambda: any((event.kind, event.who) == ("straggler", who) for event in events))

    assert next(event.state for event in events if (event.kind, event.who) == ("straggler", who)) == "processor"


@pytest.mark.parametrize("ranks", [(), (3,), (0, 1, 2, 3), (1, 9, 17, 25), (0, 1, 2, 8, 9, 10), (5, 4, 3), (0, 2, 3)])
def test_a_job_and_the_contract_write_the_ranks_of_a_group_alike(ranks):
    """A job's own process imports PyTorch and the standard library alone, and has its own."""
    from foliot.torch.reporter import _runs  # noqa: PLC0415 - PyTorch may not be there

    assert tuple(map(tuple, _runs(ranks))) == runs(ranks)
    assert tuple(ranks_of(runs(ranks))) == ranks
