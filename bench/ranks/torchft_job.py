"""The lab's training job under torchft: each rank is a replica group of its own, which the others go on without.

It has the model, the seeds, the data and the record of `foliot_lab.workload.train.job`. A step that its group did not
commit is done again. torchft.Manager makes the groups anew, and gives the state to a replica that comes back.

Source: docs.pytorch.org/torchft.
"""

from __future__ import annotations

import argparse
import datetime as dt
import json
import os
import socket
import time
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torchft

from foliot_lab.workload.train.job import tell_start
from foliot_lab.workload.train.model import LENGTH, Model
from foliot_lab.workload.train.toy_language import VOCABULARY, Speaker

_RATE = 1e-3
_LIKE_MB = 1 << 20


class Devices(torchft.ProcessGroupGloo):  # type: ignore[misc]  # torchft is not there for mypy
    """Gloo's group at the addresses of the rails, as in `foliot_lab.workload.train.group`."""

    def __init__(self, addresses: list[str], timeout: dt.timedelta) -> None:
        super().__init__(timeout=timeout)
        self._addresses = addresses

    def _create_pg(self, store: Any, rank: int, world_size: int) -> Any:
        options = dist.ProcessGroupGloo._Options()  # noqa: SLF001 - PyTorch has no public name for it
        options._devices = [dist.ProcessGroupGloo.create_device(hostname=each) for each in self._addresses]  # noqa: SLF001
        options._timeout = self._timeout  # noqa: SLF001
        group = dist.ProcessGroup(store, rank, world_size)
        group._set_default_backend(dist.ProcessGroup.BackendType.GLOO)  # noqa: SLF001 - as torchft does
        backend = dist.ProcessGroupGloo(store, rank, world_size, options)
        backend._set_sequence_number_for_group()  # noqa: SLF001 - likewise
        group._register_backend(torch.device("cpu"), dist.ProcessGroup.BackendType.GLOO, backend)  # noqa: SLF001
        return group


def _hook(manager: Any, bucket: Any) -> Any:
    manager.allreduce(bucket.buffer()).wait()
    done: Any = torch.futures.Future()
    done.set_result(bucket.buffer())
    return done


_hook.__annotations__.clear()  # DDP looks at them, and takes none or its own classes


class Parallel(torchft.DistributedDataParallel):  # type: ignore[misc]  # likewise
    """torchft's DDP, but for the hook that it has for a bucket.

    Where a collective fails, torchft 0.2.0 tells the manager, which drops the step. Its own hook then asks a future for
    what only that of a collective that did not fail has, and the replica ends with an AttributeError or AssertionError.
    """

    _comm_hook = staticmethod(_hook)


def train(arguments: argparse.Namespace, rank: int) -> None:
    """Trains until all steps are done."""
    torch.set_num_threads(1)
    torch.manual_seed(arguments.seed)
    torch.use_deterministic_algorithms(mode=True)
    model = Model(arguments.gradient_bytes)
    optimizer = torch.optim.AdamW(model.parameters(), lr=_RATE, fused=True)
    tell_start(arguments.record)
    # Where a replica gives its state is told by the machine's name, which all of the lab's hosts share.
    socket.gethostname = lambda: arguments.front
    timeout = dt.timedelta(seconds=arguments.timeout_s)
    store = dist.TCPStore(arguments.front, 0, is_master=True, wait_for_workers=False)

    def load(state: dict[str, Any]) -> None:
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])

    manager = torchft.Manager(
        pg=Devices(arguments.address, timeout), load_state_dict=load,
        state_dict=lambda: {"model": model.state_dict(), "optimizer": optimizer.state_dict()},
        min_replica_size=1, replica_id=f"replica_{rank}", rank=0, world_size=1, store_addr=arguments.front,
        store_port=store.port, hostname=arguments.front, timeout=timeout, init_sync=False,
    )  # fmt: skip
    parallel = Parallel(manager, model, bucket_cap_mb=model.table_bytes / _LIKE_MB)
    wrapped = torchft.Optimizer(manager, optimizer)
    with arguments.record.open("a", buffering=1) as record:
        began_ns = _now_ns()
        while manager.current_step() < arguments.steps:
            step = manager.current_step()
            wrapped.zero_grad()
            speaker = Speaker(f"{arguments.seed}/{rank}/{step}")
            batch = torch.tensor([speaker.sentence(LENGTH + 1) for _ in range(arguments.batch)])
            logits = parallel(batch[:, :-1])
            loss = torch.nn.functional.cross_entropy(logits.reshape(-1, VOCABULARY), batch[:, 1:].reshape(-1))
            loss.backward()
            wrapped.step()
            ended_ns = _now_ns()
            # Who was behind takes the others' state within the step, and has no part in it.
            if manager.current_step() == step + 1 and manager.is_participating():
                line = {"rank": rank, "step": step, "began_ns": began_ns, "ended_ns": ended_ns, "loss": loss.item()}
                said = json.dumps(line)
                record.write(f"{said}\n")
            began_ns = ended_ns
    manager.shutdown(wait=False)


def _now_ns() -> int:
    return time.clock_gettime_ns(time.CLOCK_MONOTONIC_RAW)


def main() -> None:
    """Parses the command line and trains; the rank is the environment's."""
    parser = argparse.ArgumentParser(prog="bench.ranks.torchft_job")
    parser.add_argument("--address", action="append", required=True, help="of this host; one per device")
    parser.add_argument("--front", required=True, help="the address by which the managers find one another")
    parser.add_argument("--record", type=Path, required=True)
    parser.add_argument("--gradient-bytes", type=int, required=True)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--timeout-s", type=float, default=60.0)
    arguments = parser.parse_args()
    train(arguments, int(os.environ["TORCHFT_RANK"]))
    os._exit(0)


if __name__ == "__main__":
    main()
