"""How long a program waits for its data."""

from __future__ import annotations

import contextlib
import functools
import threading
from typing import TYPE_CHECKING, Any, TypeVar

import torch.utils.data.dataloader

from foliot.torch.collective_log import now_ns

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from foliot.torch.collective_log import CollectiveLog

_T = TypeVar("_T")


class _Waiting(threading.local):
    is_timed = False
    """Whether this thread waits for data already: a loader may draw from another."""


_waiting = _Waiting()


@contextlib.contextmanager
def _timing(log: CollectiveLog) -> Iterator[None]:
    if _waiting.is_timed:
        yield
        return
    began_ns, _waiting.is_timed = now_ns(), True
    try:
        yield
    finally:
        _waiting.is_timed = False
        log.data_ns += now_ns() - began_ns


def timed(batches: Iterable[_T], log: CollectiveLog) -> Iterator[_T]:
    """The same batches; the time until each is there goes to the log."""
    source = iter(batches)
    while True:
        with _timing(log):
            try:
                batch = next(source)
            except StopIteration:
                return
        yield batch


def time_loaders(log: CollectiveLog) -> None:
    """Times the batches of every `torch.utils.data.DataLoader` from now on."""
    iterator = getattr(torch.utils.data.dataloader, "_BaseDataLoaderIter", None)
    if iterator is None:
        return
    following = iterator.__next__

    @functools.wraps(following)
    def next_batch(self: Any) -> Any:
        with _timing(log):
            return following(self)

    iterator.__next__ = next_batch
