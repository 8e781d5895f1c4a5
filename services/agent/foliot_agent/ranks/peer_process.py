"""The process at the other end of a Unix socket, as the kernel knows it."""

from __future__ import annotations

import contextlib
import os
import select
import socket
import struct
from pathlib import Path

_STOPPED = frozenset("tT")
"""States of a process that a signal or a debugger stopped (proc(5))."""
_ZOMBIES = frozenset("ZX")
"""Those of one that has ended, and waits for its parent to hear of it."""
_EXITING = 0x4
"""PF_EXITING of <linux/sched.h>: it is on its way out, and runs none of its program any more."""
_FLAGS = 6
"""The place of a process's flags in its stat file, after its name (proc(5))."""
_CREDENTIALS = struct.Struct("iII")


class PeerProcess:
    """A process that has connected.

    Attributes:
        pid: its id; 0: it is in a PID namespace that this process cannot see.
        handle: a file descriptor that becomes readable when the process ends (pidfd_open(2)); -1: there is none.
    """

    def __init__(self, connected: socket.socket) -> None:
        credentials = connected.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
        self.pid, _, _ = _CREDENTIALS.unpack(credentials)
        self.handle = -1
        if self.pid:
            with contextlib.suppress(OSError):  # it has ended, or this process may not
                self.handle = os.pidfd_open(self.pid)

    def has_ended(self) -> bool:
        """Whether it has ended, as far as this process may know."""
        if self.handle >= 0:
            asked = select.poll()
            asked.register(self.handle, select.POLLIN)
            return bool(asked.poll(0))
        if not self.pid:
            return False
        try:
            os.kill(self.pid, 0)
        except ProcessLookupError:
            return True
        except PermissionError:
            pass
        return self._stat()[:1] in _ZOMBIES

    def is_ending(self) -> bool:
        """Whether it has ended or is about to. The kernel takes its files first, and that of a GPU may take long."""
        if not self.pid or self.has_ended():
            return True
        fields = self._stat().split()
        return len(fields) > _FLAGS and bool(int(fields[_FLAGS]) & _EXITING)

    def is_stopped(self) -> bool:
        """Whether a signal or a debugger has stopped it, as far as this process may know."""
        return self._stat()[:1] in _STOPPED

    def close(self) -> None:
        """Lets go of the handle."""
        if self.handle >= 0:
            os.close(self.handle)
            self.handle = -1

    def _stat(self) -> str:
        """What the kernel says of it, from its state on; empty: it is not there, or hidden."""
        with contextlib.suppress(OSError):
            told = Path(f"/proc/{self.pid}/stat").read_text(errors="replace")
            return told.rpartition(")")[2].strip()
        return ""
