r"""The training job: data-parallel, by PyTorch's own DistributedDataParallel over Gloo.

It knows nothing of Foliot, unless it is given a name. Then it tells Foliot of its collectives by that.

    RANK=0 WORLD_SIZE=4 MASTER_ADDR=10.99.1.1 MASTER_PORT=29500 \
        python -m foliot_lab.workload.train.job --address 10.200.0.1 --record FILE

Every step writes a line of JSON to the record as it ends. So a job that is killed or halted leaves a record of all its
steps. The line has step, began_ns and ended_ns (CLOCK_MONOTONIC_RAW), comm_ns and loss. comm_ns runs from the start of
the first all-reduce to the end of the last. loss is the rank's own, exact to the bit.
"""

from __future__ import annotations

import argparse
import itertools
import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from foliot_lab.workload.train.group import join, work
from foliot_lab.workload.train.levers import Lever
from foliot_lab.workload.train.model import LENGTH, Model
from foliot_lab.workload.train.toy_language import VOCABULARY, Speaker

if TYPE_CHECKING:
    from collections.abc import Iterator

_RATE = 1e-3


def train(arguments: argparse.Namespace) -> None:
    """Trains until all steps are done, or until the process is ended."""
    torch.manual_seed(arguments.seed)
    torch.use_deterministic_algorithms(mode=True)
    local = Model(arguments.gradient_bytes)
    # A bucket is full with one table: operations of one size, dealt to the devices in turn.
    model = DistributedDataParallel(local, bucket_cap_mb=local.table_bytes / (1 << 20), gradient_as_bucket_view=True)
    model._set_ddp_runtime_logging_sample_rate(1)  # noqa: SLF001 - see `_comm_ns`
    optimizer = torch.optim.AdamW(model.parameters(), lr=_RATE, fused=True)
    lever = Lever(arguments.lever)
    batches = _batches(Speaker(f"{arguments.seed}/{dist.get_rank()}"), arguments.batch, lever)
    if arguments.job:
        batches = _foliot().data(batches)
    with arguments.record.open("w", buffering=1) as record:
        began_ns = _now_ns()
        for step in range(arguments.steps) if arguments.steps else itertools.count():
            lever.before_step()
            batch = next(batches)
            lever.compute()
            loss = _step(model, optimizer, batch)
            ended_ns = _now_ns()
            comm_ns = _comm_ns(model)
            line = {"step": step, "began_ns": began_ns, "ended_ns": ended_ns, "comm_ns": comm_ns, "loss": loss}
            record.write(json.dumps(line) + "\n")
            began_ns = ended_ns


def _batches(speaker: Speaker, batch: int, lever: Lever) -> Iterator[torch.Tensor]:
    """The sentences of each step."""
    while True:
        time.sleep(lever.data_wait_s)
        yield torch.tensor([speaker.sentence(LENGTH + 1) for _ in range(batch)])


def _step(model: DistributedDataParallel, optimizer: torch.optim.Optimizer, said: torch.Tensor) -> float:
    logits = model(said[:, :-1])
    loss = torch.nn.functional.cross_entropy(logits.reshape(-1, VOCABULARY), said[:, 1:].reshape(-1))
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    return float(loss.item())


def _foliot() -> Any:
    import foliot.torch  # noqa: PLC0415 - a job that knows nothing of Foliot does not load it

    return foliot.torch


def _comm_ns(model: DistributedDataParallel) -> int:
    """PyTorch's own measure of the last backward pass; 0 for the first.

    Ask before the next forward pass, which deletes it.
    """
    model.logger.set_runtime_stats_and_log()
    return int(model._get_ddp_logging_data().get("backward_comm_time", 0))  # noqa: SLF001 - there is no public way


def _now_ns() -> int:
    return time.clock_gettime_ns(time.CLOCK_MONOTONIC_RAW)


def main() -> None:
    """Parses the command line, joins, trains."""
    parser = argparse.ArgumentParser(prog="foliot_lab.workload.train.job")
    parser.add_argument("--address", action="append", required=True, help="of this host; one per device")
    parser.add_argument("--record", type=Path, required=True)
    parser.add_argument("--gradient-bytes", type=int, default=8_000_000)
    parser.add_argument("--batch", type=int, default=8, help="sentences of a rank and step")
    parser.add_argument("--steps", type=int, default=0, help="0: until ended")
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--timeout-s", type=float, default=1800.0)
    parser.add_argument("--job", default="", help="tell Foliot of the collectives, by this name of the job")
    parser.add_argument("--rank-socket", default="", help="of the node's agent")
    parser.add_argument("--lever", type=Path, help="the file in which to look for faults before each step")
    arguments = parser.parse_args()
    if arguments.job:
        _foliot().record(arguments.job, socket=arguments.rank_socket)
    join(arguments.address, arguments.timeout_s)
    work(lambda: train(arguments))


if __name__ == "__main__":
    main()
