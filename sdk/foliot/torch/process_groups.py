"""PyTorch's process groups: how the default one is made, and how all are let go after a failure.

For much of it PyTorch has no public way.
"""

from __future__ import annotations

import collections
import contextlib
import ctypes
import datetime as dt
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d

from foliot.torch.meeting import wait_for_all

_KEPT = 2
"""Groups of NCCL's that were left last. Their threads are idle long before the second one after them is left."""
_CONNECTS = dt.timedelta(seconds=2)
"""Gloo's time limit for connecting two ranks, once all are there. It waits five times as long (torch 2.13). Who waits for
a rank that died meanwhile has no connection that could be ended."""
_ENDLESS = dt.timedelta(days=365)
"""Gloo's time limit for collectives: a wait that something else has ended must not end once more, which would end the
process. What takes longer than the job allows, the worker ends."""


def default_join(store: dist.Store, rank: int, size: int) -> None:
    """Makes the default group, by NCCL where there is a GPU, else by Gloo."""
    if torch.cuda.is_available():
        dist.init_process_group("nccl", store=store, rank=rank, world_size=size)
    else:
        # Not by Gloo's time limit: some ranks may have more to do before they come here.
        wait_for_all(store, "joins", rank, size)
        dist.init_process_group("gloo", store=store, rank=rank, world_size=size, timeout=_CONNECTS)
        distributed_c10d._set_pg_timeout(_ENDLESS, dist.group.WORLD)  # noqa: SLF001


def tensors_device() -> torch.device:
    """The device of the tensors that the default group's backend takes."""
    if "nccl" in dist.get_backend():
        return torch.device("cuda", torch.cuda.current_device())
    return torch.device("cpu")


def waits_in_connections() -> bool:
    """Whether the default group's collectives wait in its connections, and not on a GPU."""
    with contextlib.suppress(Exception):  # the program's thread may be letting go of it
        return "nccl" not in dist.get_backend()
    return True


def abort() -> None:
    """Ends what waits in NCCL, whose collectives wait on the GPU and not in connections."""
    if not dist.is_initialized() or waits_in_connections():
        return
    with contextlib.suppress(Exception):
        group: Any = distributed_c10d._get_default_group()  # noqa: SLF001
        group._get_backend(torch.device("cuda")).abort()  # noqa: SLF001


class FormerGroups:
    """The process groups that were left.

    Gloo's threads may need Python's lock to end their last work, or wait for ever in a transfer that was half done. Who
    lets go of a group waits for them, and has that lock. So groups of Gloo's are kept to the end, at the price of three
    threads and four open files each.
    """

    def __init__(self) -> None:
        self._kept: collections.deque[list[Any]] = collections.deque(maxlen=_KEPT)

    def leave(self) -> None:
        """Leaves all groups, those that were not made to their end too."""
        with contextlib.suppress(Exception):
            backends = {group: made[0] for group, made in distributed_c10d._world.pg_map.items()}  # noqa: SLF001
            self._kept.append(list(backends))
            for group, backend in backends.items():
                if backend != "nccl":
                    # Nor is it let go of when the process ends, which would wait as well.
                    ctypes.pythonapi.Py_IncRef(ctypes.py_object(group))
            if dist.is_initialized():
                dist.destroy_process_group()
            # Of a group that was not made to its end, PyTorch keeps the number, by which ranks find one another.
            distributed_c10d._world.group_count = 0  # noqa: SLF001
