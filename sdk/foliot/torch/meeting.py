"""Where the ranks of a new group meet: the store of one of them."""

from __future__ import annotations

import datetime as dt
import os
import socket
import time
from typing import TYPE_CHECKING

import torch.distributed as dist

if TYPE_CHECKING:
    from collections.abc import Callable

_TIMEOUT = dt.timedelta(seconds=8)
"""For an answer of a store."""
_POLL_S = 0.005
_POLL_S_OF_A_RANK = 1e-4
"""All ranks ask one store: the more they are, the less often."""
_POLL_S_FOR_ONE = 0.02
_MOST_NAMED = 8


class MeetingError(RuntimeError):
    """The ranks of a group did not meet."""


class OwnStore:
    """This process's store, at which the ranks of a later group can meet."""

    def __init__(self) -> None:
        self._store = dist.TCPStore("localhost", 0, is_master=True, wait_for_workers=False, timeout=_TIMEOUT)
        self.port: int = self._store.port
        self.place = f"{_own_address()}:{self.port}"
        """Its address and port."""


def meeting(place: str, generation: int) -> dist.Store:
    """What a group's ranks say at a place.

    Raises:
        RuntimeError: nobody is there.
    """
    address, _, port = place.rpartition(":")
    store = dist.TCPStore(address, int(port), is_master=False, wait_for_workers=False, timeout=_TIMEOUT)
    return dist.PrefixStore(f"generation{generation}", store)


def wait_for_all(
    store: dist.Store, name: str, rank: int, size: int, *, within_s: float, give_up: Callable[[], bool]
) -> None:
    """Says that a rank is at a point, and waits for all others.

    Raises:
        MeetingError: some did not come within the time, or it was given up.
        RuntimeError: the store is gone.
    """
    until_s = time.monotonic() + within_s
    store.set(f"{name}/{rank}", "there")
    store.add(name, 1)
    while store.add(name, 0) < size:
        if (is_given_up := give_up()) or time.monotonic() > until_s:
            why = (
                "there is another order"
                if is_given_up
                else f"did not come in {within_s:g} s: {_missing(store, name, size)}"
            )
            store.delete_key(f"{name}/{rank}")  # the others must not take it to be there
            store.add(name, -1)
            raise MeetingError(why)
        time.sleep(max(_POLL_S, size * _POLL_S_OF_A_RANK))


def _missing(store: dist.Store, name: str, size: int) -> str:
    """The ranks that have not been at a point, in words."""
    missing = [str(each) for each in range(size) if not store.check([f"{name}/{each}"])]
    more = f" and {len(missing) - _MOST_NAMED} more" if len(missing) > _MOST_NAMED else ""
    return f"rank {', '.join(missing[:_MOST_NAMED])}{more}"


def wait_for_one(store: dist.Store, name: str, *, give_up: Callable[[], bool]) -> None:
    """Waits until anybody has been at a point, for as long as that takes.

    Raises:
        MeetingError: it was given up.
        RuntimeError: the store is gone.
    """
    while not store.check([name]):
        if give_up():
            raise MeetingError("there is another order")
        time.sleep(_POLL_S_FOR_ONE)


def _own_address() -> str:
    """This host's address on the network by which ranks find one another."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        # It sends nothing: the kernel says by which address it would.
        probe.connect((os.environ.get("MASTER_ADDR", "localhost"), 9))
        address: str = probe.getsockname()[0]
        return address
