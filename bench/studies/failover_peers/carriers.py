"""Records the times of lost carriers from hosts' kernels, by messages of rtnetlink(7).

The messages follow the kernel's own reaction to the loss.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
from typing import TYPE_CHECKING

from foliot_lab.fabric.namespaces import inside

if TYPE_CHECKING:
    from collections.abc import Iterable

    from foliot_lab.fabric.namespaces import Namespace
    from foliot_lab.measure.clock_truth import LabTime

# linux/rtnetlink.h and linux/if.h
_LINKS, _NEW_LINK = 1, 16
_UP, _RUNNING = 0x1, 0x40
_HEADER = struct.Struct("=IHHII")
_LINK = struct.Struct("=BxHiII")
_READ_BYTES = 65536


class Carriers:
    """Listens in these namespaces, in the running event loop, until it is closed."""

    def __init__(self, namespaces: Iterable[Namespace], time: LabTime) -> None:
        self._time = time
        self._lost_ns: int | None = None
        self._sockets = [_listening(namespace) for namespace in namespaces]
        for opened in self._sockets:
            asyncio.get_running_loop().add_reader(opened, self._read, opened)

    def forget(self) -> None:
        """Discards the losses so far."""
        self._lost_ns = None

    def lost(self) -> int | None:
        """Lab time at which the first loss was read; None: there was none."""
        return self._lost_ns

    def close(self) -> None:
        """Stops listening."""
        for opened in self._sockets:
            asyncio.get_running_loop().remove_reader(opened)
            opened.close()
        self._sockets.clear()

    def _read(self, opened: socket.socket) -> None:
        at_ns = self._time.now_ns()
        with contextlib.suppress(BlockingIOError):
            while True:
                if without_carrier(opened.recv(_READ_BYTES)) and self._lost_ns is None:
                    self._lost_ns = at_ns


def without_carrier(data: bytes) -> bool:
    """Whether one of these messages is about a device that is up and has no carrier."""
    offset = 0
    while offset + _HEADER.size + _LINK.size <= len(data):
        length, kind, *_ = _HEADER.unpack_from(data, offset)
        flags = _LINK.unpack_from(data, offset + _HEADER.size)[3]
        if kind == _NEW_LINK and flags & _UP and not flags & _RUNNING:
            return True
        offset += length + -length % 4
    return False


def _listening(namespace: Namespace) -> socket.socket:
    with inside(namespace):
        opened = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, socket.NETLINK_ROUTE)
    opened.setblocking(False)
    opened.bind((0, _LINKS))
    return opened
