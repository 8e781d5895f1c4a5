"""How long a program waits for its data."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, TypeVar

import torch.utils.data.dataloader

from foliot.torch.collective_log import now_ns

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from foliot.torch.collective_log import CollectiveLog

_T = TypeVar("_T")


def timed(batches: Iterable[_T], log: CollectiveLog) -> Iterator[_T]:
    """The same batches; the time until each is there goes to the log."""
    source = iter(batches)
    while True:
        began_ns = now_ns()
        try:
            batch = next(source)
        except StopIteration:
            return
        finally:
            log.data_ns += now_ns() - began_ns
        yield batch


def time_loaders(log: CollectiveLog) -> None:
    """Times the batches of every `torch.utils.data.DataLoader` from now on."""
    iterator = getattr(torch.utils.data.dataloader, "_BaseDataLoaderIter", None)
    if iterator is None:
        return
    following = iterator.__next__

    @functools.wraps(following)
    def next_batch(self: Any) -> Any:
        began_ns = now_ns()
        try:
            return following(self)
        finally:
            log.data_ns += now_ns() - began_ns

    iterator.__next__ = next_batch
