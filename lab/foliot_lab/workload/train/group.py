"""Joins the ranks of a job over several addresses of each host.

It uses PyTorch and nothing else, because a job's own program does the same.
"""

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


def open_devices(addresses: Sequence[str]) -> None:
    """Has every group of this process open a device of Gloo's at each of these addresses.

    Gloo deals its operations to them in turn. PyTorch gives its own backend of that name no devices. So a backend of
    another name makes the groups.
    """

    def make(store: dist.Store, rank: int, size: int, timeout: dt.timedelta) -> dist.ProcessGroupGloo:
        options = dist.ProcessGroupGloo._Options()  # noqa: SLF001 - PyTorch has no public name for it
        options._devices = [dist.ProcessGroupGloo.create_device(hostname=address) for address in addresses]  # noqa: SLF001
        options._timeout = timeout  # noqa: SLF001
        return dist.ProcessGroupGloo(store, rank, size, options)

    # A sum is the same in every run only if one thread makes it.
    torch.set_num_threads(1)
    dist.Backend.register_backend(_BACKEND, make, devices=["cpu"])


def form(store: dist.Store, rank: int, size: int, *, timeout_s: float) -> None:
    """Makes the default group of ranks that meet at a store.

    Raises:
        RuntimeError: an address is not this host's, or a rank did not come in time.
    """
    timeout = dt.timedelta(seconds=timeout_s)
    dist.init_process_group(_BACKEND, store=store, rank=rank, world_size=size, timeout=timeout)


def join(addresses: Sequence[str], timeout_s: float) -> None:
    """Makes the default group, by RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT as torchrun sets them.

    Raises:
        RuntimeError: an address is not this host's, or a rank did not come in time.
    """
    open_devices(addresses)
    dist.init_process_group(_BACKEND, timeout=dt.timedelta(seconds=timeout_s))


def work(task: Callable[[], None]) -> NoReturn:
    """Runs a rank's part in the group, waits for the others, and ends the process. On failure: traceback, status 1.

    It ends the process at once, in either case. The group's threads may still be freeing finished work. If a thread
    does so while the interpreter shuts down, it ends the process with SIGABRT. 3 of some hundred ranks ended so.
    """
    try:
        task()
        if dist.is_initialized():
            dist.barrier()
    except SystemExit as end:  # another process has its rank
        sys.stdout.flush()
        os._exit(int(end.code or 0))
    except Exception:  # noqa: BLE001 - whatever it is, it is told and ends the rank
        traceback.print_exc()
        os._exit(1)
    sys.stdout.flush()
    os._exit(0)
