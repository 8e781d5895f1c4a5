"""A connection to the agent of the node, for which nobody waits: where no agent listens, nothing is said."""

from __future__ import annotations

import contextlib
import socket
import time


class AgentSocket:
    """The connection, which is made again when it was lost.

    Parameters:
        path: of the agent's socket.
        again_s: how long after a try to connect the next one comes.
    """

    def __init__(self, path: str, again_s: float) -> None:
        self._path = path
        self._again_s = again_s
        self._at_s = 0.0
        """Before this, it is not tried again."""
        self._socket: socket.socket | None = None

    @property
    def file(self) -> int:
        """Its file's number; -1: it is not connected."""
        return -1 if self._socket is None else self._socket.fileno()

    def connect(self) -> bool:
        """Connects, if it is not connected and the last try is long enough ago; says whether it is connected."""
        if self._socket is not None:
            return True
        if time.monotonic() < self._at_s:
            return False
        self._at_s = time.monotonic() + self._again_s
        made = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)
        try:
            made.connect(self._path)
        except OSError:
            made.close()
            return False
        self._socket = made
        return True

    def send(self, packet: bytes) -> bool:
        """Sends a packet; False: it is not connected, or the agent has not read what was sent before."""
        if self._socket is None:
            return False
        try:
            self._socket.send(packet)
        except BlockingIOError:
            return False
        except OSError:
            self.close()
            return False
        return True

    def receive(self, most: int) -> bytes:
        """A packet of so many bytes at most; empty: there is none."""
        if self._socket is None:
            return b""
        try:
            packet = self._socket.recv(most)
        except BlockingIOError:
            return b""
        except OSError:
            packet = b""
        if not packet:
            self.close()
        return packet

    def close(self) -> None:
        """Ends the connection."""
        if self._socket is not None:
            with contextlib.suppress(OSError):
                self._socket.close()
            self._socket = None
