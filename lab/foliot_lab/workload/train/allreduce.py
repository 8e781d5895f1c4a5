r"""Bandwidth of all-reduces of growing size, in the manner of nccl-tests.

Source: github.com/NVIDIA/nccl-tests, doc/PERFORMANCE.md.

    RANK=0 WORLD_SIZE=4 MASTER_ADDR=10.99.1.1 MASTER_PORT=29500 \
        python -m foliot_lab.workload.train.allreduce --address 10.200.0.1 --json FILE

algbw is the size divided by the time. busbw is algbw times 2(n - 1)/n. A ring of n ranks sends that much over each
rank's links, so busbw can be compared with their rate. An operation of Gloo's travels over one device. So every size
goes in as many pieces as there are devices, at once, like the buckets of a job.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist

from foliot_lab.workload.train.group import join, work

if TYPE_CHECKING:
    from collections.abc import Iterator

_FLOAT_BYTES = 4
_WARM_UPS = 2
_LEAST_COUNT, _MOST_COUNT = 4, 50
_BUDGET_BYTES = 64_000_000
"""Bytes for all repetitions of a size. Small sizes are repeated often, large ones a few times: a second or two each
on links of 200 Mb/s."""


def measure(bytes_: int, devices: int) -> dict[str, Any]:
    """One size: the repetitions, the mean time of each over ranks and repetitions, and the number of wrong sums."""
    ranks = dist.get_world_size()
    values = torch.empty(bytes_ // _FLOAT_BYTES)
    count = max(_LEAST_COUNT, min(_MOST_COUNT, _BUDGET_BYTES // bytes_))
    for _ in range(_WARM_UPS):
        _reduce(values.fill_(dist.get_rank() + 1), devices)
    wrong = (values != ranks * (ranks + 1) / 2).sum().to(torch.float64)
    values.zero_()
    dist.barrier()
    began_s = time.perf_counter()
    for _ in range(count):
        _reduce(values, devices)
    means = torch.tensor([(time.perf_counter() - began_s) / count / ranks, wrong], dtype=torch.float64)
    dist.all_reduce(means)
    seconds = float(means[0])
    algbw = bytes_ * 1e-6 / seconds
    return {
        "bytes": bytes_, "count": count, "time_ms": round(seconds * 1e3, 3), "algbw_mb_s": round(algbw, 3),
        "busbw_mb_s": round(algbw * 2 * (ranks - 1) / ranks, 3), "wrong": int(means[1]),
    }  # fmt: skip


def sizes(least: int, most: int, factor: int) -> Iterator[int]:
    """Bytes, each `factor` times the one before."""
    while least <= most:
        yield least
        least *= factor


def sweep(arguments: argparse.Namespace) -> None:
    """Measures all sizes; rank 0 writes the rows measured so far."""
    rows = []
    for bytes_ in sizes(arguments.least, arguments.most, arguments.factor):
        rows.append(measure(bytes_, len(arguments.address)))
        if dist.get_rank() == 0:
            arguments.json.write_text(json.dumps(rows))


def _reduce(values: torch.Tensor, devices: int) -> None:
    operations = [dist.all_reduce(piece, async_op=True) for piece in values.chunk(devices)]
    for operation in operations:
        operation.wait()


def main() -> None:
    """Parses the command line, joins, measures."""
    parser = argparse.ArgumentParser(prog="foliot_lab.workload.train.allreduce")
    parser.add_argument("--address", action="append", required=True, help="of this host; one per device")
    parser.add_argument("--json", type=Path, required=True)
    parser.add_argument("--least", type=int, default=4_000, help="bytes")
    parser.add_argument("--most", type=int, default=16_384_000, help="bytes")
    parser.add_argument("--factor", type=int, default=4)
    parser.add_argument("--timeout-s", type=float, default=1800.0)
    arguments = parser.parse_args()
    join(arguments.address, arguments.timeout_s)
    work(lambda: sweep(arguments))


if __name__ == "__main__":
    main()
