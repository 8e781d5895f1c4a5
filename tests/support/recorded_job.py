"""A real PyTorch job over Gloo, recorded by ``foliot.torch``, heard by the agent's socket and judged by the detector."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import textwrap
import time
from pathlib import Path

import forked_torch

from foliot_agent.ranks.rank_socket import RankSocket
from foliot_detector.core.pipeline import Pipeline
from foliot_detector.settings import DetectorSettings
from foliot_schemas import Nic, Node
from patience import patience

WORLD = 4
IS_COUNTED = Path("/proc/self/schedstat").exists()
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


@contextlib.asynccontextmanager
async def recorded_job(folder, fault=""):
    """A job with a fault (``hang``, ``mismatch``) whose ranks are heard. Gives its batches, events and processes."""
    (folder / "rank.py").write_text(RANK)
    batches, events, ranks = [], [], []
    pipeline = Pipeline(DetectorSettings())
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

    heard = RankSocket(str(folder / "ranks"), "node0", Clock(), hear)
    heard.open()
    telling = asyncio.create_task(heard.tell())

    environment = {**os.environ, "GLOO_SOCKET_IFNAME": "lo"}
    for rank in range(WORLD):
        with (folder / f"{rank}.log").open("wb") as log:
            ranks.append(
                forked_torch.start(
                    folder / "rank.py", str(folder), str(rank), str(WORLD), fault, env=environment, stderr=log.fileno()
                )
            )
    try:
        yield batches, events, ranks
    finally:
        for rank in ranks:
            rank.send_signal(signal.SIGKILL)
            await rank.wait()
        telling.cancel()
        heard.close()
    assert heard.rejected == 0, heard.last_rejected


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
