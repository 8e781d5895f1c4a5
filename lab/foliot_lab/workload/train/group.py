"""Joins the ranks of a job over several addresses of each host. PyTorch and nothing else: this is what a job's own program does."""

from __future__ import annotations

import datetime as dt
import os
import sys
import traceback
from typing import TYPE_CHECKING, NoReturn

import torch
import torch.distributed as dist

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_BACKEND = "gloo-devices"


def join(addresses: Sequence[str], timeout_s: float) -> None:
    """Makes the default group, by RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT as torchrun sets them.

    Gloo opens a device at each address and deals its operations to them in turn. PyTorch hands no devices to its own backend
    of that name, so the group is made by a backend of another.

    Raises:
        RuntimeError: an address is not this host's, or a rank did not come in time.
    """

    def make(store: dist.Store, rank: int, size: int, timeout: dt.timedelta) -> dist.ProcessGroupGloo:
        options = dist.ProcessGroupGloo._Options()  # noqa: SLF001 - PyTorch has no public name for it
        options._devices = [dist.ProcessGroupGloo.create_device(hostname=address) for address in addresses]  # noqa: SLF001
        options._timeout = timeout  # noqa: SLF001
        return dist.ProcessGroupGloo(store, rank, size, options)

    # A sum is the same in every run only if one thread makes it.
    torch.set_num_threads(1)
    dist.Backend.register_backend(_BACKEND, make, devices=["cpu"])
    dist.init_process_group(_BACKEND, timeout=dt.timedelta(seconds=timeout_s))


def work(task: Callable[[], None]) -> NoReturn:
    """Runs a rank's part in the group, waits for the others, and ends the process: status 1 with a traceback on failure.

    At once, in either case: the group's threads may still be letting go of what they have done, and one that does so while the
    interpreter shuts down takes the process down with SIGABRT (3 of some hundred ranks ended so).
    """
    try:
        task()
        dist.barrier()
    except Exception:  # noqa: BLE001 - whatever it is, it is told and ends the rank
        traceback.print_exc()
        os._exit(1)
    sys.stdout.flush()
    os._exit(0)
