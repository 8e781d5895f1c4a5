"""The process at the other end of a Unix socket, as the kernel knows it."""

from __future__ import annotations

import contextlib
import os
import select
import socket
import struct
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from foliot_schemas.collective import ProcessState

_STOPPED = frozenset("tT")
"""States of a process that a signal or a debugger stopped (proc(5))."""
_ZOMBIES = frozenset("ZX")
"""Those of one that has ended, and waits for its parent to hear of it."""
_EXITING = 0x4
"""PF_EXITING of <linux/sched.h>: it is on its way out, and runs none of its program any more."""
_FLAGS = 6
"""The place of a process's flags in its stat file, counted from its state (proc(5))."""
_CREDENTIALS = struct.Struct("iII")


class PeerProcess:
    """A process that has connected.

    Attributes:
        pid: its id; 0: it is in a PID namespace that this process cannot see.
        user: the number of the user who ran it when it connected, in this process's user namespace.
        handle: a file descriptor that becomes readable when the process ends (pidfd_open(2)); -1: there is none.
    """

    def __init__(self, connected: socket.socket) -> None:
        credentials = connected.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
        self.pid, self.user, _ = _CREDENTIALS.unpack(credentials)
        self.handle = -1
        if self.pid:
            with contextlib.suppress(OSError):  # it has ended, or this process may not
                self.handle = os.pidfd_open(self.pid)

    def look(self) -> ProcessState:
        """`running`, `stopped` or `gone`, as far as this process may know.

        It is gone as soon as its end has begun. Of one with much memory, that takes the kernel seconds.
        """
        if not self.pid:
            return "running"
        if self._has_ended():
            return "gone"
        fields = self._stat().split()
        if len(fields) > _FLAGS and int(fields[_FLAGS]) & _EXITING:
            return "gone"
        return "stopped" if fields and fields[0] in _STOPPED else "running"

    def close(self) -> None:
        """Lets go of the handle."""
        if self.handle >= 0:
            os.close(self.handle)
            self.handle = -1

    def _has_ended(self) -> bool:
        if self.handle >= 0:
            asked = select.poll()
            asked.register(self.handle, select.POLLIN)
            return bool(asked.poll(0))
        try:
            os.kill(self.pid, 0)
        except ProcessLookupError:
            return True
        except PermissionError:
            pass
        return self._stat()[:1] in _ZOMBIES

    def _stat(self) -> str:
        """What the kernel says of it, from its state on; empty: it is not there, or hidden."""
        with contextlib.suppress(OSError):
            told = Path(f"/proc/{self.pid}/stat").read_text(errors="replace")
            return told.rpartition(")")[2].strip()
        return ""
