r"""The training job: data-parallel, by PyTorch's own DistributedDataParallel over Gloo.

It knows nothing of Foliot, unless it is given a name. Then it tells Foliot of its collectives by that. With
`--replaceable`, Foliot also gives its lost ranks to spares.

    RANK=0 WORLD_SIZE=4 MASTER_ADDR=10.99.1.1 MASTER_PORT=29500 \
        python -m foliot_lab.workload.train.job --address 10.200.0.1 --record FILE

Every step writes a line of JSON to the record as it ends. So a job that is killed or halted leaves a record of all its
steps. The line has rank, step, began_ns and ended_ns (CLOCK_MONOTONIC_RAW), comm_ns and loss. comm_ns runs from the
start of the first all-reduce to the end of the last. loss is the rank's own, exact to the bit.

A job that goes on after the loss of a rank also writes a line when it knows a step's loss, without the times of its
end. Others may do the step to its end where this process does not.
"""

from __future__ import annotations

import argparse
import functools
import itertools
import json
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TextIO

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from foliot_lab.fabric.namespaces import end_with_parent
from foliot_lab.workload.train.checkpoint import Checkpoint
from foliot_lab.workload.train.group import form, join, open_devices, work
from foliot_lab.workload.train.levers import Lever
from foliot_lab.workload.train.model import LENGTH, Model
from foliot_lab.workload.train.toy_language import VOCABULARY, Speaker

if TYPE_CHECKING:
    from collections.abc import Iterator

_RATE = 1e-3


class Group(Protocol):
    """The process group in which steps are done; `foliot.torch.Group` is one."""

    @property
    def rank(self) -> int:
        """This process's rank."""

    @property
    def step(self) -> int:
        """The number of the next step."""

    def end_step(self) -> None:
        """Says that a step is done."""


class OneGroup:
    """The only group of a job whose ranks are not replaced.

    Parameters:
        step: the first one.
    """

    def __init__(self, step: int) -> None:
        self.rank = dist.get_rank()
        self.step = step

    def end_step(self) -> None:
        """Says that a step is done."""
        self.step += 1


class Training:
    """What a process trains: the model, the optimizer, and the record of its steps."""

    def __init__(self, arguments: argparse.Namespace, record: TextIO) -> None:
        torch.manual_seed(arguments.seed)
        torch.use_deterministic_algorithms(mode=True)
        self.model = Model(arguments.gradient_bytes)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=_RATE, fused=True)
        self.checkpoint = Checkpoint(arguments.checkpoints, arguments.checkpoint_steps)
        self._arguments = arguments
        self._record = record
        self._lever = Lever(_own(arguments.lever))
        tell_start(_own(arguments.record))
        self._tells_loss = arguments.replaceable or arguments.checkpoints is not None

    def train(self, group: Group) -> None:
        """Trains in a group until all steps are done, or until the process is ended."""
        # A bucket is full with one table: operations of one size, dealt to the devices in turn.
        bucket_mb = self.model.table_bytes / (1 << 20)
        model = DistributedDataParallel(self.model, bucket_cap_mb=bucket_mb, gradient_as_bucket_view=True)
        model._set_ddp_runtime_logging_sample_rate(1)  # noqa: SLF001 - see `_comm_ns`
        _fill_buckets(model)
        batches = self._batches(group)
        if self._arguments.job:
            batches = _foliot().data(batches)
        began_ns = _now_ns()
        while not self._arguments.steps or group.step < self._arguments.steps:
            self._lever.before_step()
            batch = next(batches)
            self._lever.compute()
            about = {"rank": group.rank, "step": group.step, "began_ns": began_ns}
            loss = self._step(model, batch, about)
            ended_ns = _now_ns()
            self._write(about | {"ended_ns": ended_ns, "comm_ns": _comm_ns(model), "loss": loss})
            began_ns = ended_ns
            if not group.rank:
                self.checkpoint.save(group.step + 1, self.model, self.optimizer)
            group.end_step()

    def _batches(self, group: Group) -> Iterator[torch.Tensor]:
        """The sentences of each step, which follow from the seed, the rank and the step."""
        for _ in itertools.count():
            time.sleep(self._lever.data_wait_s)
            speaker = Speaker(f"{self._arguments.seed}/{group.rank}/{group.step}")
            yield torch.tensor([speaker.sentence(LENGTH + 1) for _ in range(self._arguments.batch)])

    def _step(self, model: DistributedDataParallel, said: torch.Tensor, about: dict[str, int]) -> float:
        logits = model(said[:, :-1])
        loss = torch.nn.functional.cross_entropy(logits.reshape(-1, VOCABULARY), said[:, 1:].reshape(-1))
        if self._tells_loss:
            self._write(about | {"loss": float(loss.item())})
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad()
        return float(loss.item())

    def _write(self, line: dict[str, Any]) -> None:
        self._record.write(json.dumps(line) + "\n")


def train(arguments: argparse.Namespace) -> None:
    """Trains in one group, from the last checkpoint on if there is one."""
    with _opened(arguments) as record:
        training = Training(arguments, record)
        training.train(OneGroup(training.checkpoint.load(training.model, training.optimizer)))


def train_replaceable(arguments: argparse.Namespace) -> None:
    """Trains in one group after another, with the ranks that Foliot gives to this process."""
    with _opened(arguments) as record:
        training = Training(arguments, record)
        groups = _foliot().groups(
            {"model": training.model, "optimizer": training.optimizer},
            join=functools.partial(form, timeout_s=arguments.timeout_s),
            job=arguments.job, socket=arguments.rank_socket, seed=arguments.seed,
        )  # fmt: skip
        for group in groups:
            with group:
                training.train(group)


def _opened(arguments: argparse.Namespace) -> TextIO:
    """The record; a process that is started again goes on with the one that there is."""
    goes_on = arguments.replaceable or arguments.checkpoints is not None
    file: TextIO = _own(arguments.record).open("a" if goes_on else "w", buffering=1)
    return file


def tell_start(record: Path) -> None:
    """Adds a line about this process to a file beside its record: when it had its model, and how long that took.

    Python and PyTorch are loaded by then. PyTorch loads a part of itself for the first optimizer.
    """
    began_ns = int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19]) * 1_000_000_000
    began_ns //= os.sysconf("SC_CLK_TCK")
    # A process's beginning is told by the clock that counts on while the machine sleeps.
    import_s = (time.clock_gettime_ns(time.CLOCK_BOOTTIME) - began_ns) * 1e-9
    line = {"pid": os.getpid(), "ready_ns": _now_ns(), "import_s": round(import_s, 3)}
    with record.with_suffix(".starts").open("a") as file:
        file.write(json.dumps(line) + "\n")


def _own(path: Path | None) -> Any:
    """A file of this process, which torchrun has started beside others of its host."""
    return None if path is None else Path(str(path).replace("{local}", os.environ.get("LOCAL_RANK", "0")))


def _foliot() -> Any:
    import foliot.torch  # noqa: PLC0415 - a job that knows nothing of Foliot does not load it

    return foliot.torch


def _fill_buckets(model: DistributedDataParallel) -> None:
    """Gives the gradients their buckets now, in the order of the parameters.

    DDP fills them anew after its first backward pass. A ring adds a number in an order that depends on the number's
    place in its bucket. So the first step of a group would have other sums than the same step in an older group.
    """
    model.reducer._push_all_rebuilt_params()  # noqa: SLF001 - there is no public way
    model.reducer._rebuild_buckets()  # noqa: SLF001 - likewise


def _comm_ns(model: DistributedDataParallel) -> int:
    """PyTorch's own measure of the last backward pass; 0 for the first.

    Ask before the next forward pass, which deletes it.
    """
    model.logger.set_runtime_stats_and_log()
    return int(model._get_ddp_logging_data().get("backward_comm_time", 0))  # noqa: SLF001 - there is no public way


def _now_ns() -> int:
    return time.clock_gettime_ns(time.CLOCK_MONOTONIC_RAW)


def parser_of_job() -> argparse.ArgumentParser:
    """The options of a rank."""
    parser = argparse.ArgumentParser(prog="foliot_lab.workload.train.job")
    parser.add_argument("--address", action="append", required=True, help="of this host; one per device")
    parser.add_argument("--record", type=Path, required=True, help="{local}: torchrun's number of the process")
    parser.add_argument("--gradient-bytes", type=int, default=8_000_000)
    parser.add_argument("--batch", type=int, default=8, help="sentences of a rank and step")
    parser.add_argument("--steps", type=int, default=0, help="0: until ended")
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--timeout-s", type=float, default=1800.0)
    parser.add_argument("--job", default="", help="tell Foliot of the collectives, by this name of the job")
    parser.add_argument("--rank-socket", default="", help="of the node's agent")
    parser.add_argument("--replaceable", action="store_true", help="let Foliot give lost ranks to spares")
    parser.add_argument("--checkpoints", type=Path, help="the folder of the checkpoint; default: none is saved")
    parser.add_argument("--checkpoint-steps", type=int, default=10, help="save one each so many steps")
    parser.add_argument("--pid", type=Path, help="write the process's id to this file")
    parser.add_argument("--lever", type=Path, help="the file in which to look for faults before each step")
    return parser


def main() -> None:
    """Parses the command line, joins, trains."""
    arguments = parser_of_job().parse_args()
    if arguments.pid is not None:
        _own(arguments.pid).write_text(str(os.getpid()))
        end_with_parent()
    if arguments.job:
        _foliot().record(arguments.job, socket=arguments.rank_socket)
    if arguments.replaceable:
        open_devices(arguments.address)
        work(lambda: train_replaceable(arguments))
    join(arguments.address, arguments.timeout_s)
    work(lambda: train(arguments))


if __name__ == "__main__":
    main()
