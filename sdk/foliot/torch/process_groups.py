"""PyTorch's process groups: how the default one is made, and how all are let go after a failure.

For much of it PyTorch has no public way.
"""

from __future__ import annotations

import collections
import contextlib
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d

_KEPT = 2
"""A group's threads are idle long before the second one after it is left."""


def default_join(store: dist.Store, rank: int, size: int) -> None:
    """Makes the default group, by NCCL where there is a GPU, else by Gloo."""
    backend = "nccl" if torch.cuda.is_available() else "gloo"
    dist.init_process_group(backend, store=store, rank=rank, world_size=size)


def tensors_device() -> torch.device:
    """The device of the tensors that the default group's backend takes."""
    if "nccl" in dist.get_backend():
        return torch.device("cuda", torch.cuda.current_device())
    return torch.device("cpu")


def abort() -> None:
    """Ends what waits in NCCL, whose collectives wait on the GPU and not in connections."""
    if not dist.is_initialized() or "nccl" not in dist.get_backend():
        return
    with contextlib.suppress(Exception):
        group: Any = distributed_c10d._get_default_group()  # noqa: SLF001
        group._get_backend(torch.device("cuda")).abort()  # noqa: SLF001


class FormerGroups:
    """The process groups that were left last.

    Gloo's threads may need Python's lock to end their last work. Who lets go of a group, as DDP's reducer does, waits
    for them, and has that lock. So the last groups are kept for a while.
    """

    def __init__(self) -> None:
        self._kept: collections.deque[list[Any]] = collections.deque(maxlen=_KEPT)

    def leave(self) -> None:
        """Leaves all groups, those that were not made to their end too."""
        with contextlib.suppress(Exception):
            self._kept.append(list(distributed_c10d._world.pg_map))  # noqa: SLF001
            if dist.is_initialized():
                dist.destroy_process_group()
            # Of a group that was not made to its end, PyTorch keeps the number, by which ranks find one another.
            distributed_c10d._world.group_count = 0  # noqa: SLF001
