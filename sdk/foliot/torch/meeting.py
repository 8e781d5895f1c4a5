"""Where the ranks of a new group meet: the store of one of them."""

from __future__ import annotations

import contextlib
import datetime as dt
import fcntl
import ipaddress
import math
import os
import socket
import struct
import threading
import time
from typing import TYPE_CHECKING

import torch.distributed as dist

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

_TIMEOUT = dt.timedelta(seconds=8)
"""For an answer of a store."""
_POLL_S = 0.005
_POLL_S_OF_A_RANK = 1e-4
"""All ranks ask one store: the more they are, the less often."""
_POLL_S_FOR_ONE = 0.02
_MOST_NAMED = 8
_ANY_PORT = 9
_FAR = ("198.51.100.1", "2001:db8::1")
"""Addresses for documents (RFC 5737, RFC 3849), which are on no host's own network. Nothing is sent there."""
_SIOCGIFADDR = 0x8915
"""Asks for an interface's address (netdevice(7))."""


class MeetingError(RuntimeError):
    """The ranks of a group did not meet."""


class OwnStore:
    """This process's store, at which the ranks of a later group can meet."""

    def __init__(self) -> None:
        self._store = dist.TCPStore("localhost", 0, is_master=True, wait_for_workers=False, timeout=_TIMEOUT)
        self.port: int = self._store.port
        self.place = f"{_own_address()}:{self.port}"
        """Its address and port."""


class FirstMeeting:
    """The place at which the environment has the ranks of a job's first group meet.

    Where nobody listens, PyTorch tries again until its time limit is over. It does so in a call that nothing ends, as
    there is no connection yet. So a thread of its own calls, and is left behind where the wait is given up.

    Parameters:
        timeout_s: PyTorch's time limit.
    """

    def __init__(self, rank: int, size: int, timeout_s: float) -> None:
        self._asked = rank, size, dt.timedelta(seconds=timeout_s)
        self._news = threading.Event()
        self._store: dist.Store | None = None
        self._error: Exception | None = None

    def wait(self) -> dist.Store:
        """The place's store.

        Raises:
            MeetingError: it was given up.
            RuntimeError: the time limit is over, or the connection to the store ended.
            ValueError: the environment does not say where the place is.
        """
        threading.Thread(target=self._run, name="foliot-meeting", daemon=True).start()
        self._news.wait()
        if self._error is not None:
            raise self._error
        if self._store is None:
            raise MeetingError("the place of meeting was given up")
        return self._store

    def give_up(self) -> None:
        """Ends the wait, in another thread than the one that waits."""
        self._news.set()

    def _run(self) -> None:
        rank, size, timeout = self._asked
        try:
            self._store, _, _ = next(dist.rendezvous("env://", rank, size, timeout=timeout))
        except Exception as error:  # noqa: BLE001 - whoever waits raises it
            self._error = error
        self._news.set()


def meeting(place: str, generation: int) -> dist.Store:
    """What a group's ranks say at a place.

    Raises:
        RuntimeError: nobody is there.
    """
    address, _, port = place.rpartition(":")
    store = dist.TCPStore(address, int(port), is_master=False, wait_for_workers=False, timeout=_TIMEOUT)
    return dist.PrefixStore(f"generation{generation}", store)


def wait_for_all(
    store: dist.Store, name: str, rank: int, size: int, *, within_s: float = math.inf,
    give_up: Callable[[], bool] = lambda: False,
) -> None:  # fmt: skip
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
    """This host's address on the network by which ranks find one another.

    Raises:
        OSError: `MASTER_ADDR` has no address, or none that can be reached from here.
    """
    name = os.environ.get("MASTER_ADDR", "localhost")
    found = _towards(name)
    if not _is_loopback(found) or name == "localhost" or _is_loopback(name):
        return found
    # Where the name is this host's own, /etc/hosts may give it an address of the loopback, as Debian's 127.0.1.1.
    others = (*_of_chosen_interfaces(), *_by_route(), *_of_interfaces(name for _, name in socket.if_nameindex()))
    return next((each for each in others if not _is_loopback(each)), found)


def _towards(name: str) -> str:
    """The address by which this host would send to another: if possible none of the loopback, and one of IPv4.

    Raises:
        OSError: there is none.
    """
    sources: list[str] = []
    failed: OSError | None = None
    found = socket.getaddrinfo(name, _ANY_PORT, type=socket.SOCK_DGRAM)
    for family, _, _, _, there in sorted(found, key=lambda each: each[0] != socket.AF_INET):
        try:
            with socket.socket(family, socket.SOCK_DGRAM) as probe:
                # It sends nothing: the kernel says by which address it would.
                probe.connect(there)
                sources.append(probe.getsockname()[0])
        except OSError as error:
            failed = error
    if not sources:
        raise failed or OSError(f"{name} has no address")
    return next((each for each in sources if not _is_loopback(each)), sources[0])


def _by_route() -> Iterator[str]:
    """The addresses by which this host would send far away."""
    for far in _FAR:
        with contextlib.suppress(OSError):
            yield _towards(far)


def _of_chosen_interfaces() -> Iterator[str]:
    """The addresses of the interfaces that the ranks' connections are to take."""
    names = [name for _, name in socket.if_nameindex()]
    for chosen in ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME"):
        for each in os.environ.get(chosen, "").split(","):
            wanted = each.removeprefix("=")
            # NCCL takes beginnings of names, and leaves out those after a circumflex.
            if wanted and not wanted.startswith("^"):
                yield from _of_interfaces(name for name in names if name.startswith(wanted))


def _of_interfaces(names: Iterable[str]) -> Iterator[str]:
    """The addresses of interfaces (IPv4), of those that have one."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
        for name in names:
            with contextlib.suppress(OSError):
                answer = fcntl.ioctl(asking, _SIOCGIFADDR, struct.pack("256s", name.encode()[:15]))
                yield socket.inet_ntoa(answer[20:24])


def _is_loopback(address: str) -> bool:
    with contextlib.suppress(ValueError):
        return ipaddress.ip_address(address).is_loopback
    return False
