"""``foliot analyse`` on dumps of a real PyTorch job over Gloo, in which a rank stops or does something else."""

from __future__ import annotations

import asyncio
import importlib.util
import json
import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import forked_torch
import pytest

from patience import patience

pytestmark = pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="make train installs PyTorch")

FOLIOT = Path(sys.executable).with_name("foliot")
WORLD = 4
RANK = textwrap.dedent(
    """
    import os, sys, threading, time
    from pathlib import Path
    import torch
    import torch.distributed as dist
    from torch._C import _distributed_c10d as c10d

    folder, rank, world, fault = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]

    def dump():
        while not (folder / "dump").exists():
            time.sleep(0.02)
        (folder / "pickles" / f"trace_{rank}").write_bytes(c10d._dump_fr_trace())
        (folder / "texts" / f"trace_{rank}.json").write_bytes(c10d._dump_fr_trace_json())
        (folder / f"dumped_{rank}").touch()
        # Whoever ends breaks the connections of the others, which would end before they have dumped.
        while not all((folder / f"dumped_{each}").exists() for each in range(world)):
            time.sleep(0.02)
        os._exit(0)

    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=world)
    pairs = [dist.new_group([0, 1]), dist.new_group([2, 3])]
    threading.Thread(target=dump, daemon=True).start()
    tensor = torch.ones(1000)
    for step in range(8):
        dist.all_reduce(tensor, group=pairs[rank // 2])
        is_faulty = rank == 2 and step == 5
        if is_faulty and fault == "stop":
            (folder / f"at_{rank}").touch()
            time.sleep(1_000)
        began = dist.barrier(async_op=True) if is_faulty else dist.all_reduce(tensor, async_op=True)
        if step == 5:
            (folder / f"at_{rank}").touch()
        began.wait()
    time.sleep(1_000)
    """
)


async def hung(folder, fault):
    """Runs the job until nothing moves, and has its ranks dump."""
    for form in ("pickles", "texts"):
        (folder / form).mkdir()
    (folder / "rank.py").write_text(RANK)
    environment = {**os.environ, "TORCH_FR_BUFFER_SIZE": "2000", "GLOO_SOCKET_IFNAME": "lo"}
    with (folder / "said").open("wb") as said:
        ranks = [
            forked_torch.start(
                folder / "rank.py", str(folder), str(rank), str(WORLD), fault, env=environment, stderr=said.fileno()
            )
            for rank in range(WORLD)
        ]
    try:
        async with asyncio.timeout(patience(120)):
            while not all((folder / f"at_{rank}").exists() for rank in range(WORLD)):  # noqa: ASYNC110 - processes
                await asyncio.sleep(0.05)
            (folder / "dump").touch()
            ended = [await rank.wait() for rank in ranks]
    finally:
        for rank in ranks:
            rank.send_signal(signal.SIGKILL)
            await rank.wait()
    assert ended == [0] * WORLD, (folder / "said").read_text()


def analysed(folder):
    """What the command finds."""
    done = subprocess.run(
        [FOLIOT, "analyse", str(folder), "--json"], capture_output=True, timeout=patience(60), check=True
    )
    return json.loads(done.stdout)


async def test_a_rank_that_does_not_enter_is_named(tmp_path):
    """Also without a dump of another. Gloo's dumps name no members, and mark nothing but what is retired."""
    await hung(tmp_path, "stop")

    for form in ("pickles", "texts"):
        found = analysed(tmp_path / form)
        assert (found["expected"], found["read"], found["broken"]) == (WORLD, WORLD, [])
        assert [(each["rank"], each["why"], each["collective"]) for each in found["blamed"]] == [
            (2, "absent", "all_reduce")
        ]
        assert found["certain"]
    (tmp_path / "pickles" / "trace_1").unlink()
    found = analysed(tmp_path / "pickles")
    assert [each["rank"] for each in found["blamed"]] == [2]
    assert not found["certain"]


async def test_a_rank_that_does_something_else_is_named(tmp_path):
    """A barrier where the others reduce."""
    await hung(tmp_path, "other")

    for form in ("pickles", "texts"):
        found = analysed(tmp_path / form)
        assert [(each["rank"], each["why"]) for each in found["blamed"]] == [(2, "mismatch")]
        assert [(each["field"], each["ranks"]) for each in found["mismatches"]] == [("op", [2])]
