"""Ends the TCP connections of a process with a reset at both ends, as a firewall does that forgot them."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import socket
import struct
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

_PIDFD_GETFD = 438
"""Of all architectures (Linux 5.6)."""
_NOBODY = struct.pack("H14x", socket.AF_UNSPEC)
"""A ``struct sockaddr``. To connect to it ends a connection (connect(2)): the peer is sent a reset, and the own end has
the same error. The kernel's other way, ``ss -K``, leaves an error that no network gives (ECONNABORTED), and Gloo ends
its process by that."""

_libc = ctypes.CDLL(None, use_errno=True)


def reset_connections(pid: int) -> None:
    """Ends all TCP connections of a process. Those that it opens afterwards are well.

    Parameters:
        pid: 0: there is no such process, and nothing to do.

    Raises:
        OSError: the kernel does not permit it, or a connection is still there.
    """
    if not pid:
        return
    for connection in _connections(pid):
        with connection:
            if _libc.connect(connection.fileno(), _NOBODY, len(_NOBODY)) != 0:
                number = ctypes.get_errno()
                raise OSError(number, os.strerror(number))
            # There is nothing to read any more, for whoever waits for that: a reset that comes does so by itself.
            with contextlib.suppress(OSError):  # ENOTCONN, and yet it is done
                connection.shutdown(socket.SHUT_RDWR)


def _connections(pid: int) -> Iterator[socket.socket]:
    """The sockets of its established connections, for this process to close."""
    process = os.pidfd_open(pid)
    try:
        for link in Path(f"/proc/{pid}/fd").iterdir():
            with contextlib.suppress(FileNotFoundError):  # it has closed it meanwhile
                if not str(link.readlink()).startswith("socket:"):
                    continue
                descriptor = _libc.syscall(_PIDFD_GETFD, process, int(link.name), 0)
                if descriptor < 0:
                    number = ctypes.get_errno()
                    if number == errno.EBADF:  # since its name was read
                        continue
                    raise OSError(number, os.strerror(number))
                found = socket.socket(fileno=descriptor)
                if _is_connection(found):
                    yield found
                else:
                    found.close()
    finally:
        os.close(process)


def _is_connection(found: socket.socket) -> bool:
    if found.family not in {socket.AF_INET, socket.AF_INET6} or found.type != socket.SOCK_STREAM:
        return False
    try:
        found.getpeername()
    except OSError:
        return False
    return True
