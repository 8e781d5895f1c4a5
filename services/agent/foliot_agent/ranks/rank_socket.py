"""The socket on which processes of training jobs report, and what the kernel says of them.

Any process of the host may connect. Its word counts for one rank of one job alone, or for itself as one worker of one
job: what its first packet names. A job's processes on a node are one user's. Recorders tell of collectives. Workers tell
of ranks that can be replaced, and are told of it by the same connection.
"""

from __future__ import annotations

import asyncio
import socket
import time
from pathlib import Path
from typing import TYPE_CHECKING

import structlog

from foliot_agent.core import worker_report
from foliot_agent.core.job_ranks import JobRanks
from foliot_agent.core.job_workers import JobWorkers, Worker
from foliot_agent.core.rank_report import MOST_BYTES, read
from foliot_agent.ranks.peer_process import PeerProcess

if TYPE_CHECKING:
    from collections.abc import Callable

    from foliot.clock.clocks import Clock
    from foliot_agent.core.job_ranks import Rank
    from foliot_schemas import CollectiveBatch, WorkerBatch

log = structlog.get_logger()

_MOST_CONNECTIONS = 256
"""More than the ranks and the workers that a node tells of, 64 and 128: some connect anew, and some are strangers."""
_EACH_S = 0.25
"""How often the fleet is told, and processes are looked at."""
_APART_S = 0.01
"""Between two tellings of news of workers, at least: all workers of a node change together."""
_MOST_PACKETS = 32
"""Packets that are read of a connection until then. A rank sends one or two. The others wait in the kernel."""
_SAYS_NOTHING_S = 5.0
"""A connection by which nothing came for so long is not a rank's."""
_CONNECTS_ANEW_S = 3.0
"""A process that has lost its agent connects again within two seconds."""


class _Connection:
    """One process that reports: as a recorder, a worker, or not yet as either."""

    def __init__(self, made: socket.socket) -> None:
        self.socket = made
        self.process = PeerProcess(made)
        self.rank: Rank | None = None
        self.worker: Worker | None = None
        self.made_s = time.monotonic()
        self.packets = 0
        """Since the fleet was told last."""

    @property
    def speaker(self) -> Rank | Worker | None:
        """The one for whom it speaks; None: it has said nothing yet."""
        return self.rank if self.rank is not None else self.worker

    @property
    def is_displaced(self) -> bool:
        """Whether another process has the rank for which it spoke."""
        return self.rank is not None and self.rank.is_displaced


class RankSocket:
    """Listens for ranks and workers. Open it by `open`, and `close` it.

    Parameters:
        path: of the socket.
        publish: called with what there is to tell: of ranks four times a second, of workers each second and at once
            when there is news.
    """

    def __init__(
        self, path: str, node: str, clock: Clock, publish: Callable[[CollectiveBatch | WorkerBatch], None]
    ) -> None:
        self.rejected = 0
        self.last_rejected = ("", b"", "")
        """The last packet that was rejected: where it came from, itself, why."""
        self.heard: Callable[[Worker], None] = lambda _: None
        """Called with each worker that has just spoken, when it can be answered."""
        self._path = Path(path)
        self._clock = clock
        self._publish = publish
        self._ranks = JobRanks(node)
        self._workers = JobWorkers(node)
        self._listening: socket.socket | None = None
        self._opened_s = 0.0
        self._connections: set[_Connection] = set()
        self._silent: set[_Connection] = set()
        """Those of whose end the process has not ended yet."""
        self._due: asyncio.TimerHandle | None = None
        self._told_s = 0.0
        self._news = asyncio.Event()

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
        loop = asyncio.get_running_loop()
        self._opened_s = loop.time()
        loop.add_reader(made, self._accept)

    def close(self) -> None:
        """Hears nobody any more."""
        if self._listening is None:
            return
        loop = asyncio.get_running_loop()
        loop.remove_reader(self._listening)
        self._listening.close()
        self._listening = None
        for connection in self._connections:
            loop.remove_reader(connection.socket)
            connection.socket.close()
        for connection in self._connections | self._silent:
            self._let_go(connection)
        self._connections.clear()
        self._silent.clear()
        if self._due is not None:
            self._due.cancel()
            self._due = None
        self._path.unlink(missing_ok=True)

    async def tell(self) -> None:
        """Tells the fleet what is said here, until it is cancelled."""
        while self._listening is not None:
            await asyncio.sleep(_EACH_S)
            self._look_at_processes()
            self._read_on()
            for batch in self._ranks.batches(self._clock.now_ns(), self._clock.bound_ns()):
                self._publish(batch)
            self._tell_workers()

    # -- workers ------------------------------------------------------------------------------------------------------

    @property
    def is_settled(self) -> bool:
        """Whether workers have had the time to connect since it was opened."""
        return self._listening is None or asyncio.get_running_loop().time() - self._opened_s >= _CONNECTS_ANEW_S

    def workers(self, job: str) -> list[Worker]:
        """The workers of a job whose process is there."""
        return self._workers.living(job)

    def worker(self, job: str, process: int) -> Worker | None:
        """The worker of this name, which may have ended; None: it is not known."""
        return self._workers.find(job, process)

    def send(self, worker: Worker, packet: bytes) -> str:
        """Sends a packet to a worker. It never waits.

        Returns:
            Why it could not; empty: it has.
        """
        connection = next((each for each in self._connections if each.worker is worker), None)
        if connection is None:
            return "is not connected"
        try:
            connection.socket.send(packet)
        except BlockingIOError:
            return "does not read its socket, which is full"
        except OSError as error:
            return f"cannot be told: {error.strerror}"
        return ""

    def note_gpu_error(self, xid: int) -> None:
        """Tells the fleet, with the workers of each job, that a GPU of the node has an error."""
        if self._workers.note_gpu_error(xid, self._clock.now_ns()) and self._listening is not None:
            self._tell_soon()

    async def news(self) -> None:
        """Waits until a worker has spoken or ended."""
        await self._news.wait()

    def _tell_workers(self) -> None:
        if self._due is not None:
            self._due.cancel()
            self._due = None
        self._told_s = asyncio.get_running_loop().time()
        for batch in self._workers.batches(self._clock.now_ns(), self._clock.bound_ns()):
            self._publish(batch)

    def _learnt(self, worker: Worker) -> None:
        """Passes on what has become of a worker."""
        self._news.set()
        self._news = asyncio.Event()
        if worker.is_news:
            self._tell_soon()

    def _tell_soon(self) -> None:
        if self._due is None:
            loop = asyncio.get_running_loop()
            self._due = loop.call_at(max(self._told_s + _APART_S, loop.time()), self._tell_workers)

    # -- connections --------------------------------------------------------------------------------------------------

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
        loop = asyncio.get_running_loop()
        loop.add_reader(made, self._read, connection)
        if connection.process.handle >= 0:
            loop.add_reader(connection.process.handle, self._process_ended, connection)

    def _read(self, connection: _Connection) -> None:
        while True:
            if connection.packets >= _MOST_PACKETS:
                asyncio.get_running_loop().remove_reader(connection.socket)
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
                self._reject(connection.process.pid, packet, str(error))
                if connection.speaker is None:  # a stranger
                    self._leave(connection)
                    return

    def _take(self, connection: _Connection, packet: bytes) -> None:
        """Takes a packet of the kind that the connection's first had."""
        if connection.worker is not None or (connection.rank is None and worker_report.is_of_worker(packet)):
            self._take_worker(connection, packet)
        else:
            self._take_rank(connection, packet)
        for silent in [each for each in self._silent if each.speaker is connection.speaker or each.is_displaced]:
            self._silent.discard(silent)
            self._let_go(silent)
        if connection.worker is not None:
            self.heard(connection.worker)
            self._learnt(connection.worker)

    def _take_rank(self, connection: _Connection, packet: bytes) -> None:
        report, known = read(packet), connection.rank
        if known is not None and (report.job, report.rank, report.began_ns) != (known.job, known.rank, known.began_ns):
            raise ValueError(f"it spoke as rank {known.rank} of {known.job} before")
        if known is not None and known.is_displaced:
            raise ValueError(f"rank {known.rank} of {known.job} is another process by now")
        if known is None and any(
            (other.job, other.rank) == (report.job, report.rank) and other.generation >= report.generation
            for other in [each.rank for each in self._connections if each.rank is not None]
            if not other.is_displaced
        ):
            raise ValueError(f"rank {report.rank} of {report.job} is another process")
        if known is None:
            self._check_user(connection, report.job)
        connection.rank = self._ranks.take(report, *self._dates())

    def _take_worker(self, connection: _Connection, packet: bytes) -> None:
        report, known = worker_report.read(packet), connection.worker
        if known is not None and (report.job, report.process) != (known.job, known.process):
            raise ValueError(f"it spoke as process {known.process} of {known.job} before")
        if known is None:
            self._check_user(connection, report.job)
            self._end_former(connection, report)
        worker = self._workers.take(report, *self._dates())
        if known is None:
            worker.told = None  # what it has not read of its former connection is lost
        connection.worker, worker.user = worker, connection.process.user

    def _check_user(self, connection: _Connection, job: str) -> None:
        """Checks that a job's processes are not another user's.

        Raises:
            ValueError: they are.
        """
        for other in self._connections | self._silent:
            if other.speaker is None or other.speaker.job != job:
                continue
            if other.process.user != connection.process.user:
                raise ValueError(f"{job} is user {other.process.user}'s here, and not user {connection.process.user}'s")

    def _end_former(self, connection: _Connection, report: worker_report.WorkerReport) -> None:
        """Ends the connection that a process had before: it may connect anew before the end of the old one was read.

        Raises:
            ValueError: that one is another process's.
        """
        for other in self._connections | self._silent:
            if other.worker is None or (other.worker.job, other.worker.process) != (report.job, report.process):
                continue
            if not connection.process.pid or other.process.pid != connection.process.pid:
                raise ValueError(f"process {report.process} of {report.job} is another process")
            if other in self._connections:
                self._leave(other)

    def _dates(self) -> tuple[int, int]:
        """Reference time minus CLOCK_MONOTONIC_RAW, and the former."""
        now_ns = self._clock.now_ns()
        return now_ns - time.clock_gettime_ns(time.CLOCK_MONOTONIC_RAW), now_ns

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
            if (speaker := connection.speaker) is None:
                if now_s - connection.made_s > _SAYS_NOTHING_S:
                    self._leave(connection)
            elif not speaker.over_ns:
                self._look_at(connection, speaker)
        for connection in list(self._silent):
            if (speaker := connection.speaker) is not None:
                self._look_at(connection, speaker)

    def _look_at(self, connection: _Connection, speaker: Rank | Worker) -> None:
        seen = connection.process.look()
        if seen == "gone":  # a child that it had forked may keep the socket open
            self._process_ended(connection)
        else:
            speaker.runs(is_stopped=seen == "stopped")

    def _process_ended(self, connection: _Connection) -> None:
        if connection in self._connections:
            connection.packets = 0
            self._read(connection)  # its last words
        if connection in self._connections:
            self._leave(connection)
        elif connection in self._silent:
            self._silent.discard(connection)
            self._end(connection)

    def _leave(self, connection: _Connection) -> None:
        self._connections.discard(connection)
        asyncio.get_running_loop().remove_reader(connection.socket)
        connection.socket.close()
        if connection.speaker is None or connection.speaker.over_ns or connection.is_displaced:
            self._let_go(connection)
        elif not connection.process.pid or connection.process.look() == "gone":
            self._end(connection)
        else:
            self._silent.add(connection)  # it lives, and may connect again

    def _end(self, connection: _Connection) -> None:
        """Takes the end of a process."""
        self._let_go(connection)
        if (speaker := connection.speaker) is not None:
            speaker.ended(self._clock.now_ns())
        if connection.worker is not None:
            self._learnt(connection.worker)

    def _let_go(self, connection: _Connection) -> None:
        if connection.process.handle >= 0:
            asyncio.get_running_loop().remove_reader(connection.process.handle)
            connection.process.close()

    def _reject(self, pid: int, packet: bytes, reason: str) -> None:
        self.rejected += 1
        self.last_rejected = f"process {pid}", packet, reason
