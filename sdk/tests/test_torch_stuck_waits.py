"""Waits in Gloo that nothing else ends."""

from __future__ import annotations

import asyncio
import importlib.util
import os
import signal
import textwrap

import forked_torch
import pytest

from patience import patience
from ports import port_for

if importlib.util.find_spec("torch") is None:
    pytest.skip("make train installs PyTorch", allow_module_level=True)

PROGRAM = textwrap.dedent(
    """
    import os, signal, sys
    import torch
    import torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel
    import foliot.torch
    from foliot.torch import stuck_waits
    from foliot.torch.changes import Changes
    from foliot.torch.process_groups import default_join
    from foliot.torch.stuck_waits import StuckWaits

    rank, kind = int(os.environ["RANK"]), sys.argv[1]
    if kind == "ddp":  # it goes on by itself, however long the machine stands still meanwhile
        stuck_waits._GIVE_UP_S = float("inf")
    torch.set_num_threads(1)
    foliot.torch.record("stuck", socket="/no/agent")
    store = dist.TCPStore("127.0.0.1", int(os.environ["MASTER_PORT"]), is_master=rank == 1, world_size=2)
    default_join(store, rank, 2)
    model = torch.nn.Linear(64, 64)
    parallel = DistributedDataParallel(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    dist.barrier()
    if rank:  # the other one waits for this
        os.kill(os.getpid(), signal.SIGSTOP)
    waits = StuckWaits(foliot.torch._log, lambda: os._exit(75))
    changes = Changes([optimizer], waits.check)
    waits.entered()
    waits.look()
    try:
        if kind == "plain":
            dist.all_reduce(torch.zeros(64))
        parallel(torch.ones(1, 64)).sum().backward()
    except RuntimeError as error:
        waits.left()
        print("ended with", type(error).__name__, flush=True)
    before = model.weight.detach().clone()
    try:
        optimizer.step()
    except RuntimeError as error:
        print(error, torch.equal(before, model.weight), changes.is_under_way, flush=True)
    waits.entered()
    optimizer.step()
    os._exit(0)
    """
)


@pytest.fixture
async def run(tmp_path):
    """What becomes of a rank whose peer is stopped: exit status, and what it said."""
    peers = []

    async def play(kind):
        port = str(port_for(play))
        meet = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "WORLD_SIZE": "2", "GLOO_SOCKET_IFNAME": "lo"}
        program = tmp_path / "rank.py"
        program.write_text(PROGRAM)
        with (tmp_path / "said").open("wb") as said:
            ranks = [
                forked_torch.start(
                    program, kind, env={**os.environ, **meet, "RANK": rank}, stdout=said.fileno(), stderr=2
                )
                for rank in "10"
            ]
        peers.extend(ranks)
        async with asyncio.timeout(patience(120)):
            status = await ranks[1].wait()
        return status, (tmp_path / "said").read_text()

    yield play
    for peer in peers:
        peer.send_signal(signal.SIGKILL)
        await peer.wait()


async def test_ddp_goes_on_with_an_error_and_no_optimizer_with_what_it_got(run):
    """A step of the optimizer is stopped before it changes anything, until a new group has formed."""
    assert await run("ddp") == (
        0,
        "ended with RuntimeError\nthe group has ended, and with it a collective that was waited for True False\n",
    )


async def test_a_process_that_waits_itself_ends(run):
    """No way is known to end its wait: another process is to take its rank."""
    assert await run("plain") == (75, "")
