"""The connections of a process group, and how to end all that waits in them.

A collective of Gloo's waits in its connections, and nothing of PyTorch's ends that wait: `abort` comes back, and the
blocked call stays where it is (torch 2.13). Shut down, each of them ends with an error at once.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import socket
import sys
import termios
import time
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

_FAMILIES = (socket.AF_INET, socket.AF_INET6)
_SETTLES_S = 0.3
"""So long one waits for transfers at most."""
_STANDS_S = 0.02
"""What has not moved for so long does not move."""
_READS_S = 0.05
"""Gloo has found the end by then."""


class GroupSockets:
    """The TCP connections that this process has opened while a group was formed.

    Parameters:
        own_port: of this process, at which others connect for something else.
    """

    def __init__(self, own_port: int) -> None:
        self._own_port = own_port
        self._before = frozenset(number for number, _ in _connections())
        self._own: frozenset[int] | None = None

    def formed(self, *, but_ports: set[int]) -> None:
        """Takes that the group is there: connections that are opened from now on are none of it.

        Parameters:
            but_ports: of the stores at which ranks meet.
        """
        others = {self._own_port, *but_ports}
        self._own = frozenset(number for number, connection in self._opened() if not others & _ports(connection))

    def _settle(self) -> None:
        """Waits until nothing moves in the connections, for a moment. Between processes that live, it is through soon."""
        until_s, before = time.monotonic() + _SETTLES_S, None
        while time.monotonic() < until_s:
            now = [(number, _queued(connection)) for number, connection in self._opened()]
            if now == before:
                return
            before = now
            time.sleep(_STANDS_S)

    def shut_down(self) -> None:
        """Ends the connections, those of a group that is being formed too.

        Gloo forgets a transfer that it was about to begin as a connection ended, and waits for it (torch 2.13). So
        this waits until nothing is on its way, and lets Gloo find the end by reading, not by writing.
        """
        self._settle()
        if self._shut_down(socket.SHUT_RD):
            time.sleep(_READS_S)
            self._shut_down(socket.SHUT_RDWR)

    def _shut_down(self, how: int) -> int:
        """Returns how many connections there were."""
        count = 0
        for _, connection in self._opened():
            with contextlib.suppress(OSError):
                if connection.getsockname()[1] != self._own_port:
                    connection.shutdown(how)
                    count += 1
        return count

    @property
    def is_whole(self) -> bool:
        """Whether all connections of the group are there still, and nobody has ended one."""
        standing = {number for number, connection in _connections() if not _is_ended(connection)}
        return self._own is not None and self._own <= standing

    def _opened(self) -> Iterator[tuple[int, socket.socket]]:
        for number, connection in _connections():
            if number not in self._before and (self._own is None or number in self._own):
                yield number, connection


def _queued(connection: socket.socket) -> tuple[int, int]:
    """Bytes that wait to be acknowledged, and to be read (tcp(7))."""
    with contextlib.suppress(OSError):
        sent, come = (fcntl.ioctl(connection, what, bytes(4)) for what in (termios.TIOCOUTQ, termios.FIONREAD))
        return int.from_bytes(sent, sys.byteorder), int.from_bytes(come, sys.byteorder)
    return 0, 0


def _ports(connection: socket.socket) -> set[int]:
    with contextlib.suppress(OSError):
        return {connection.getsockname()[1], connection.getpeername()[1]}
    return set()


def _connections() -> Iterator[tuple[int, socket.socket]]:
    """The TCP connections of this process, by their inode's number. Each is closed as the next is asked for."""
    for file in Path("/proc/self/fd").iterdir():
        try:
            if not str(file.readlink()).startswith("socket:"):
                continue
            copy = _copy(int(file.name))
        except OSError:  # it was closed meanwhile
            continue
        with copy:
            if copy.family not in _FAMILIES or copy.type != socket.SOCK_STREAM:
                continue
            with contextlib.suppress(OSError):
                copy.getpeername()
                yield os.fstat(copy.fileno()).st_ino, copy


def _copy(number: int) -> socket.socket:
    """The socket of a file's number, as one more file.

    Raises:
        OSError: it is closed, or another file by now.
    """
    copy, usual_s = os.dup(number), socket.getdefaulttimeout()
    try:
        # With a default time limit, Python would change whether all copies of the socket wait.
        socket.setdefaulttimeout(None)
        return socket.socket(fileno=copy)
    except OSError:
        os.close(copy)
        raise
    finally:
        socket.setdefaulttimeout(usual_s)


def _is_ended(connection: socket.socket) -> bool:
    try:
        return not connection.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
    except BlockingIOError:
        return False
    except OSError:
        return True
