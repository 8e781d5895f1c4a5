"""Sees every collective of PyTorch's process groups as the dispatcher passes it on, whoever begins it.

DDP's reducer begins its all-reduces in C++, past all Python functions. The dispatcher sees them too. The kernels here lie
above those that do the work. PyTorch's Flight Recorder has the same records, but a dump of 2,000 entries takes a
processor for 28 ms.
"""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
import torch.distributed as dist
from torch import library

from foliot.torch.collective_log import Entry, Group

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from foliot.torch.collective_log import CollectiveLog


class _Kind(NamedTuple):
    """Where an operation has what, among its arguments."""

    operation: str
    """Its name, as in the Flight Recorder."""
    into: int
    """The tensors that go in."""
    out: int
    group: int
    peer: int = -1
    """The other end of a transfer; -1: it is a collective."""


_KINDS = {
    "allreduce_": _Kind("all_reduce", 0, 0, 1),
    "allreduce_coalesced_": _Kind("allreduce_coalesced", 0, 0, 1),
    "broadcast_": _Kind("broadcast", 0, 0, 1),
    "reduce_": _Kind("reduce", 0, 0, 1),
    "allgather_": _Kind("all_gather", 1, 0, 2),
    "_allgather_base_": _Kind("_all_gather_base", 1, 0, 2),
    "allgather_coalesced_": _Kind("all_gather_coalesced", 1, 0, 2),
    "allgather_into_tensor_coalesced_": _Kind("all_gather_into_tensor_coalesced", 1, 0, 2),
    "reduce_scatter_": _Kind("reduce_scatter", 1, 0, 2),
    "_reduce_scatter_base_": _Kind("_reduce_scatter_base", 1, 0, 2),
    "reduce_scatter_tensor_coalesced_": _Kind("reduce_scatter_tensor_coalesced", 1, 0, 2),
    "gather_": _Kind("gather", 1, 0, 2),
    "scatter_": _Kind("scatter", 1, 0, 2),
    "alltoall_": _Kind("all_to_all", 1, 0, 2),
    "alltoall_base_": _Kind("all_to_all", 1, 0, 2),
    "barrier": _Kind("barrier", 0, 0, 1),
    "monitored_barrier_": _Kind("monitored_barrier", 0, 0, 1),
    "send": _Kind("send", 0, 0, 1, 2),
    "recv_": _Kind("recv", 0, 0, 1, 2),
}
"""By the name of PyTorch's operator. A receipt from whomever has no other end that could be told, and is left out."""
_KEYS = ("AutogradCPU", "AutogradCUDA", "AutogradPrivateUse1")
"""The dispatch keys above those of the kernels that do the work."""
_TYPES = {each: str(each).removeprefix("torch.") for each in vars(torch).values() if isinstance(each, torch.dtype)}

_library: Any = None
"""Its kernels are gone with it."""


def intercept(log: CollectiveLog) -> None:
    """Records all collectives from now on, in this log and in no other."""
    global _library  # noqa: PLW0603 - a process has one
    _library = None
    _library = library.Library("c10d", "IMPL")
    groups: weakref.WeakKeyDictionary[Any, Group] = weakref.WeakKeyDictionary()
    for name, kind in _KINDS.items():
        if (packet := getattr(torch.ops.c10d, name, None)) is None:
            continue
        for key in _KEYS:
            _library.impl(name, _kernel(packet.default, kind, log, groups), key, with_keyset=True)


def stop() -> None:
    """Records none from now on."""
    global _library  # noqa: PLW0603 - as above
    _library = None


def _kernel(
    operator: Any, kind: _Kind, log: CollectiveLog, groups: weakref.WeakKeyDictionary[Any, Group]
) -> Callable[..., Any]:
    below = torch._C._after_autograd_keyset  # noqa: SLF001 - as in PyTorch's own kernels in Python

    def kernel(keys: Any, *arguments: Any) -> Any:
        entry = _begun(kind, arguments, log, groups)
        try:
            answer = operator.redispatch(keys & below, *arguments)
        except BaseException:
            if entry is not None:
                log.withdraw(entry)
            raise
        if entry is not None:
            _follow(entry, answer, log)
        return answer

    return kernel


def _begun(
    kind: _Kind, arguments: tuple[Any, ...], log: CollectiveLog, groups: weakref.WeakKeyDictionary[Any, Group]
) -> Entry | None:
    """The record of an operation that begins; None: it cannot be recorded, and goes on without."""
    try:
        group = dist.ProcessGroup.unbox(arguments[kind.group])
        known = groups.get(group)
        if known is None:
            known = groups[group] = _told_of(group, log)
        entry = Entry(known, kind.operation, -1 if kind.peer < 0 else int(arguments[kind.peer]))
        for tensor in _tensors(arguments[kind.into]):
            entry.elements_in += tensor.numel()
            entry.bytes += tensor.numel() * tensor.element_size()
            entry.type = entry.type or _TYPES.get(tensor.dtype, "")
        entry.elements_out = (
            entry.elements_in if kind.out == kind.into else sum(each.numel() for each in _tensors(arguments[kind.out]))
        )
        log.begin(entry)
    except Exception:  # noqa: BLE001 - the job goes on, whatever it is
        log.dropped += 1
        return None
    return entry


def _follow(entry: Entry, answer: Any, log: CollectiveLog) -> None:
    """Sees to it that the operation's end is recorded: the log asks for it.

    To be called back would cost more. Gloo's own threads would do it, and wait for Python's lock meanwhile.
    """
    try:
        boxed = answer[-1] if isinstance(answer, tuple | list) and answer else answer
        if not isinstance(boxed, torch.ScriptObject):
            log.end(entry)
            return
        work = torch._C._distributed_c10d.Work.unbox(boxed)  # noqa: SLF001 - it has no public name
        entry.work = work
    except Exception:  # noqa: BLE001 - as above
        log.dropped += 1
        log.fail(entry)


def _told_of(group: Any, log: CollectiveLog) -> Group:
    if not log.size:
        log.rank, log.size = dist.get_rank(), dist.get_world_size()
    try:
        members = tuple(dist.get_process_group_ranks(group))
    except Exception:  # noqa: BLE001 - a group that PyTorch does not list
        members = ()
    reference = weakref.ref(group)
    return log.group(group.group_name, group.group_desc, members, lambda: reference() is not None)


def _tensors(argument: Any) -> Iterable[Any]:
    """The tensors of an argument: one, a list, or a list of lists."""
    if isinstance(argument, torch.Tensor):
        yield argument
        return
    for each in argument:
        yield from _tensors(each)
