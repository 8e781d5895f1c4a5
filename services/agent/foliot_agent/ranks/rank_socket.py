"""The socket on which ranks of training jobs report, and what the kernel says of their processes.

Any process of the host may connect. Its word counts for one rank of one job alone: the one that its first packet names.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import struct
import time
from pathlib import Path
from typing import TYPE_CHECKING

import structlog

from foliot_agent.core.job_ranks import JobRanks
from foliot_agent.core.rank_report import MOST_BYTES, read

if TYPE_CHECKING:
    from collections.abc import Callable

    from foliot.clock.clocks import Clock
    from foliot_agent.core.job_ranks import Rank
    from foliot_schemas import CollectiveBatch

log = structlog.get_logger()

_MOST_CONNECTIONS = 128
_EACH_S = 0.25
"""How often the fleet is told."""
_MOST_PACKETS = 32
"""Packets that are read of a connection until then. A rank sends one or two. The others wait in the kernel."""
_SAYS_NOTHING_S = 5.0
"""A connection by which nothing came for so long is not a rank's."""
_STOPPED = frozenset("tT")
"""States of a process that a signal or a debugger stopped (proc(5))."""
_ZOMBIES = frozenset("ZX")
"""Those of one that has ended, and waits for its parent to hear of it."""
_CREDENTIALS = struct.Struct("iII")


class _Connection:
    """One process that reports."""

    def __init__(self, made: socket.socket) -> None:
        self.socket = made
        self.pid, _, _ = _CREDENTIALS.unpack(made.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size))
        self.rank: Rank | None = None
        self.made_s = time.monotonic()
        self.packets = 0
        """Since the fleet was told last."""


class RankSocket:
    """Listens for ranks. Open it by `open`, and `close` it.

    Parameters:
        path: of the socket.
        publish: called four times a second with what there is to tell.
    """

    def __init__(self, path: str, node: str, clock: Clock, publish: Callable[[CollectiveBatch], None]) -> None:
        self.rejected = 0
        self.last_rejected = ("", b"", "")
        """The last packet that was rejected: where it came from, itself, why."""
        self._path = Path(path)
        self._clock = clock
        self._publish = publish
        self._ranks = JobRanks(node)
        self._listening: socket.socket | None = None
        self._connections: set[_Connection] = set()
        self._silent: list[_Connection] = []
        """Those of whose end the process has not ended yet."""

    def open(self) -> None:
        """Begins to listen. Where it cannot, the reason is in the log: all else goes on."""
        made = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._path.unlink(missing_ok=True)
            made.bind(str(self._path))
            self._path.chmod(0o666)
            made.listen(_MOST_CONNECTIONS)
        except OSError as error:
            made.close()
            log.warning("ranks_not_heard", path=str(self._path), reason=str(error))
            return
        self._listening = made
        asyncio.get_running_loop().add_reader(made, self._accept)

    def close(self) -> None:
        """Hears nobody any more."""
        if self._listening is None:
            return
        asyncio.get_running_loop().remove_reader(self._listening)
        self._listening.close()
        self._listening = None
        for connection in list(self._connections):
            self._leave(connection)
        self._path.unlink(missing_ok=True)

    async def tell(self) -> None:
        """Tells the fleet what ranks say, until it is cancelled."""
        while self._listening is not None:
            await asyncio.sleep(_EACH_S)
            self._look_at_processes()
            self._read_on()
            for batch in self._ranks.batches(self._clock.now_ns(), self._clock.bound_ns()):
                self._publish(batch)

    def _accept(self) -> None:
        assert self._listening is not None
        try:
            made, _ = self._listening.accept()
        except OSError:
            return
        made.setblocking(False)
        if len(self._connections) >= _MOST_CONNECTIONS:
            made.close()
            self._reject(0, b"", f"there are {_MOST_CONNECTIONS} connections already")
            return
        connection = _Connection(made)
        self._connections.add(connection)
        asyncio.get_running_loop().add_reader(made, self._read, connection)

    def _read(self, connection: _Connection) -> None:
        loop = asyncio.get_running_loop()
        while True:
            if connection.packets >= _MOST_PACKETS:
                loop.remove_reader(connection.socket)
                return
            connection.packets += 1
            try:
                packet = connection.socket.recv(MOST_BYTES)
            except BlockingIOError:
                return
            except OSError:
                packet = b""
            if not packet:
                self._leave(connection)
                return
            try:
                self._take(connection, packet)
            except ValueError as error:
                self._reject(connection.pid, packet, str(error))
                if connection.rank is None:  # a stranger
                    self._leave(connection)
                    return

    def _take(self, connection: _Connection, packet: bytes) -> None:
        report, known = read(packet), connection.rank
        if known is not None and (report.job, report.rank, report.began_ns) != (known.job, known.rank, known.began_ns):
            raise ValueError(f"it spoke as rank {known.rank} of {known.job} before")
        if known is None and any(
            other.rank is not None and (other.rank.job, other.rank.rank) == (report.job, report.rank)
            for other in self._connections
        ):
            raise ValueError(f"rank {report.rank} of {report.job} is another process")
        now_ns = self._clock.now_ns()
        epoch_ns = now_ns - time.clock_gettime_ns(time.CLOCK_MONOTONIC_RAW)
        connection.rank = self._ranks.take(report, epoch_ns, now_ns)
        self._silent = [each for each in self._silent if each.rank is not connection.rank]

    def _read_on(self) -> None:
        """Lets those be read again that had said too much."""
        loop = asyncio.get_running_loop()
        for connection in self._connections:
            if connection.packets >= _MOST_PACKETS:
                loop.add_reader(connection.socket, self._read, connection)
            connection.packets = 0

    def _look_at_processes(self) -> None:
        now_s = time.monotonic()
        for connection in list(self._connections):
            if (rank := connection.rank) is None:
                if now_s - connection.made_s > _SAYS_NOTHING_S:
                    self._leave(connection)
            elif not rank.over_ns:
                if _has_ended(connection.pid):  # a child that it had forked keeps the socket open
                    self._leave(connection)
                else:
                    rank.process = "stopped" if _state(connection.pid) in _STOPPED else "running"
        for connection in list(self._silent):
            if _has_ended(connection.pid) and (rank := connection.rank) is not None:
                self._silent.remove(connection)
                rank.ended("gone", self._clock.now_ns())

    def _leave(self, connection: _Connection) -> None:
        self._connections.discard(connection)
        asyncio.get_running_loop().remove_reader(connection.socket)
        connection.socket.close()
        if connection.rank is None or connection.rank.over_ns:
            return
        if connection.pid and not _has_ended(connection.pid):
            self._silent.append(connection)  # the kernel closes it before the process is gone
        else:
            connection.rank.ended("gone", self._clock.now_ns())

    def _reject(self, pid: int, packet: bytes, reason: str) -> None:
        self.rejected += 1
        self.last_rejected = f"process {pid}", packet, reason


def _has_ended(pid: int) -> bool:
    """Whether a process is over, as far as the agent may know. One of a foreign PID namespace has the id 0."""
    if not pid:
        return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        pass
    return _state(pid) in _ZOMBIES


def _state(pid: int) -> str:
    """The state of a process, by one letter; empty: there is none, or it is hidden from the agent."""
    with contextlib.suppress(OSError):
        told = Path(f"/proc/{pid}/stat").read_text(errors="replace")
        return told.rpartition(")")[2].strip()[:1]
    return ""
