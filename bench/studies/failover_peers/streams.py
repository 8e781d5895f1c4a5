"""One MPTCP connection for each pair of hosts, written to at a steady pace both ways, with its arrival times."""

from __future__ import annotations

import socket
import struct
import threading
import time
from typing import TYPE_CHECKING, Any

from bench.studies.failover_peers import flowing
from bench.studies.failover_peers.stage import PeerError, until
from foliot_lab.fabric.namespaces import inside
from foliot_lab.measure.outages import End, Pair

if TYPE_CHECKING:
    from collections.abc import Callable

    from bench.studies.failover_peers.stage import Stage

_PORT = 7954
_TURN_NS = 2_500_000
"""The interval of writes, the same as that of the witness's pulses in the other benches."""
_RECORD = bytes(1024)
_READ_BYTES = 1 << 20
_CONNECT_S = 5.0
# linux/mptcp.h
_SOL_MPTCP, _MPTCP_INFO = 284, 1
_INFO = struct.Struct("=B7xI")
"""Subflows beside the first, and flags."""
_FALLEN_BACK = 1


class Streams:
    """Connections between all hosts, begun on one rail or the other in turn.

    Arrivals are stamped when they are read, every 2.5 ms.
    """

    def __init__(self, stage: Stage) -> None:
        self._fabric = stage.fabric
        self._time = stage.time
        self._ends: dict[Pair, tuple[socket.socket, socket.socket]] = {}
        """The writing and the reading end of each direction."""
        self._opened: list[socket.socket] = []
        self._listeners: dict[str, socket.socket] = {}
        self._arrived_ns: dict[Pair, list[int]] = {}
        self._read_ns = 0
        self._closing = False
        self._thread = threading.Thread(target=self._run, name="streams", daemon=True)

    async def connect(self) -> None:
        """Makes the connections, and begins to write.

        Raises:
            OSError: the kernel has no MPTCP, or a connection could not be made.
        """
        plan = self._fabric.plan
        for host in plan.hosts:
            self._listeners[host] = listener = self._open(host)
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            # On every address, and as long as there are connections, because subflows join through it.
            listener.bind(("0.0.0.0", _PORT))
            listener.listen()
        for number, host in enumerate(plan.hosts):
            for other in range(number + 1, len(plan.hosts)):
                rail = plan.rails[(number + other) % len(plan.rails)]
                await self._join(host, plan.hosts[other], rail)
        self._arrived_ns = {pair: [] for pair in self._ends}
        self._thread.start()

    def joined(self) -> bool:
        """Whether every connection has a subflow on each rail.

        Raises:
            PeerError: one is plain TCP.
        """
        wanted = len(self._fabric.plan.rails) - 1
        for writer, _ in self._ends.values():
            more, flags = _INFO.unpack(writer.getsockopt(_SOL_MPTCP, _MPTCP_INFO, _INFO.size))
            if flags & _FALLEN_BACK:
                raise PeerError("a connection has fallen back to plain TCP")
            if more < wanted:
                return False
        return True

    def silences(self, injected_ns: int) -> list[flowing.Silence]:
        """The streams that have fallen silent since the injection."""
        arrived = {pair: arrivals.copy() for pair, arrivals in self._arrived_ns.items()}
        return flowing.of_arrivals(arrived, injected_ns, self._read_ns)

    def came_since(self, at_ns: int) -> bool:
        """Whether bytes have come in every direction since a moment of lab time."""
        return all(arrivals and arrivals[-1] > at_ns for arrivals in self._arrived_ns.values())

    def close(self) -> None:
        """Ends the thread and the connections at once, without a wait for undelivered bytes."""
        self._closing = True
        if self._thread.ident is not None:
            self._thread.join()
        while self._opened:
            self._opened.pop().close()

    async def _join(self, host: str, other: str, rail: str) -> None:
        """Joins two hosts by a connection.

        The event loop's own calls know no protocol but TCP, so it uses none of them.

        Raises:
            PeerError: the connection could not be made.
        """
        listener = self._listeners[other]
        client = self._open(host)
        client.connect_ex((self._fabric.plan.underlay(other, rail), _PORT))
        servers: list[socket.socket] = []

        def accepted() -> bool:
            server = _quietly(lambda _: listener.accept()[0], None)
            if server is not None:
                _settle(server)
                servers.append(server)
                self._opened.append(server)
            return bool(servers)

        if not await until(accepted, _CONNECT_S):
            raise PeerError(f"no MPTCP connection from {host} to {other} by {rail}")
        ends = End(host, rail), End(other, rail)
        self._ends[Pair(*ends)] = client, servers[0]
        self._ends[Pair(*reversed(ends))] = servers[0], client

    def _open(self, host: str) -> socket.socket:
        with inside(self._fabric.host(host)):
            opened = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_MPTCP)
        _settle(opened)
        self._opened.append(opened)
        return opened

    def _run(self) -> None:
        due_ns = time.monotonic_ns()
        while not self._closing:
            for writer, _ in self._ends.values():
                # A stream that takes no more bytes is not written to: its reader is to catch up, and then hear news.
                _quietly(writer.send, _RECORD)
            for pair, (_, reader) in self._ends.items():
                if _quietly(reader.recv, _READ_BYTES):
                    self._arrived_ns[pair].append(self._time.now_ns())
            self._read_ns = self._time.now_ns()
            due_ns = max(due_ns + _TURN_NS, time.monotonic_ns())
            time.sleep(max(due_ns - time.monotonic_ns(), 0) * 1e-9)


def _quietly(call: Callable[[Any], Any], argument: Any) -> Any:
    """The result of a call on a socket; None: there was nothing to do, or the connection broke.

    A broken connection is a silence without end.
    """
    try:
        return call(argument)
    except OSError:
        return None


def _settle(opened: socket.socket) -> None:
    """Makes a socket never wait, neither now nor when it is closed."""
    opened.setblocking(False)
    opened.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
