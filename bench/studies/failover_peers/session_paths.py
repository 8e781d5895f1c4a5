"""The paths that a mesh of sessions takes: its five-tuples, heard on the wire, and the leaf kernel's route of each."""

from __future__ import annotations

import contextlib
import socket
import struct
from typing import TYPE_CHECKING, NamedTuple

from bench.studies.clock_peers.counting import listening, program
from bench.studies.failover_peers.rows import Coverage

if TYPE_CHECKING:
    from collections.abc import Iterable

    from foliot_lab.fabric.fabric import Fabric

_TAKEN_BYTES = 24
"""The IP header, without options, and the ports."""
_ADDRESSES = struct.Struct("!12x4s4sHH")


class Stream(NamedTuple):
    """The packets that one end of a session sends."""

    source: str
    destination: str
    source_port: int
    destination_port: int


class Listeners:
    """Listens for hosts' packets to a port, where they enter the fabric."""

    def __init__(self, fabric: Fabric, port: int) -> None:
        instructions = program((port,), _TAKEN_BYTES)
        self._sockets = [
            listening(fabric.namespace(link.far.owner), link.far.device, instructions) for link in fabric.plan.nics
        ]
        for opened in self._sockets:
            opened.setblocking(False)

    def heard(self) -> set[Stream]:
        """The streams heard since the last call."""
        found = set()
        for opened in self._sockets:
            with contextlib.suppress(BlockingIOError):
                while True:
                    source, destination, *ports = _ADDRESSES.unpack(opened.recv(_TAKEN_BYTES))
                    found.add(Stream(socket.inet_ntoa(source), socket.inet_ntoa(destination), *ports))
        return found

    def close(self) -> None:
        """Closes the sockets."""
        for opened in self._sockets:
            opened.close()


def coverage(fabric: Fabric, tool: str, streams: Iterable[Stream]) -> Coverage:
    """The coverage of these streams.

    Raises:
        KeyError: a stream's address is not a NIC's.
        OSError: a leaf has no route.
    """
    plan = fabric.plan
    nics = {plan.underlay(host, rail): (host, rail) for host in plan.hosts for rail in plan.rails}
    leaves = {nic: plan.leaf(*nic) for nic in nics.values()}
    paths: set[tuple[str, str, str]] = set()
    ways: set[tuple[str, str]] = set()
    sessions = set()
    for stream in streams:
        source, destination = nics[stream.source], nics[stream.destination]
        sessions.add(frozenset((source, destination)))
        ports = (stream.source_port, stream.destination_port)
        spine = fabric.spine(source[0], destination[0], source[1], *ports)
        if spine is not None:
            paths.add((stream.source, stream.destination, spine))
            ways |= {(leaves[source], spine), (spine, leaves[destination])}
    spines = sum(router.kind == "spine" for router in plan.routers) // len(plan.rails)
    apart = sum(a[1] == b[1] and leaves[a] != leaves[b] for a in leaves for b in leaves)
    return Coverage(
        tool=tool, sessions=len(sessions), paths=apart * spines, ridden_paths=len(paths),
        trunk_ways=2 * len(plan.trunks), ridden_trunk_ways=len(ways),
    )  # fmt: skip
