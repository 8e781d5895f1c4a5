"""A node's wires and its peers: a veth pair per rail, with ten probes' engines at its far end.

The engines run in this process, and in a network namespace of their own.
"""

from __future__ import annotations

import asyncio
import subprocess
import time
from typing import TYPE_CHECKING, Self

from foliot.clock import HostClock
from foliot.node.addressing import describe
from foliot.settings import NicSettings, NodeSettings
from foliot_lab.fabric.iproute import IP
from foliot_lab.fabric.namespaces import Namespace, inside
from foliot_probe.core.rate.demand import in_use
from foliot_probe.engine import Engine

if TYPE_CHECKING:
    from foliot_probe.settings import ProbeSettings
    from foliot_schemas import Node

_NANOSECONDS = 1_000_000_000
_MASK = 16


def node_settings(name: str, index: int, rails: int) -> NodeSettings:
    """The settings of a node with so many NICs and the default entropies."""
    nics = tuple(
        NicSettings(
            rail=f"rail{number}", number=number, device=f"rail{number}", address=f"10.{16 + number}.0.{index + 1}"
        )
        for number in range(rails)
    )
    return NodeSettings(name=name, index=index, nics=nics)


class Wires:
    """The wires of a node: its ends are in the calling thread's namespace, the far ends in another.

    All vanish together.

    Parameters:
        rails: the number of veth pairs.
        node: the node at the near ends.
        peers: the nodes at the far ends.
    """

    def __init__(self, rails: int, node: Node, peers: list[Node]) -> None:
        self.far = Namespace.make("peers")
        descriptor = f"/proc/self/fd/{self.far.fd}"
        lines = [
            f"link add rail{number} type veth peer name rail{number} netns {descriptor}" for number in range(rails)
        ]
        _ip(["link set lo up", *lines, *_ends([node])], self.far.fd)
        with inside(self.far):
            _ip(["link set lo up", *_ends(peers)], self.far.fd)

    def close(self) -> None:
        """Removes the wires: both ends of a veth pair go together."""
        self.far.close()


def _ends(nodes: list[Node]) -> list[str]:
    """An address in its rail's /16 for every NIC and path, as a host's overlay devices have them."""
    addresses = [
        f"addr add {address}/{_MASK} dev {nic.device}"
        for node in nodes
        for nic in node.nics
        for address in (nic.address, *nic.path_addresses)
    ]
    return [*addresses, *(f"link set {nic.device} up" for nic in nodes[0].nics)]


def _ip(lines: list[str], fd: int) -> None:
    subprocess.run((IP, "-batch", "-"), input="\n".join(lines), text=True, check=True, pass_fds=(fd,))


class Peers:
    """The engines of some nodes, all of which exchange probes with one node."""

    def __init__(self, names: list[str], rails: int, settings: ProbeSettings) -> None:
        self.nodes = [describe(node_settings(name, index, rails)) for index, name in enumerate(names, 1)]
        self._settings = settings
        self._engines: list[Engine] = []
        self._ticking: asyncio.Task[None] | None = None

    def start(self, node: Node, wires: Wires) -> Self:
        """Open the sockets at the far ends and begin to probe."""
        for own in self.nodes:
            engine = Engine(own, HostClock(own.name), self._settings, time.monotonic_ns())
            with inside(wires.far):
                missing = engine.bind()
            if missing:
                raise RuntimeError(f"{missing} addresses of {own.name} are not there")
            engine.set_peer(node)
            engine.demand.set_in_use(in_use(engine.table.rows, None))
            self._engines.append(engine)
        self._ticking = asyncio.create_task(self._tick())
        return self

    async def _tick(self) -> None:
        began_ns, tick_ns = time.monotonic_ns(), self._settings.tick_ms * 1_000_000
        while True:
            now_ns = time.monotonic_ns()
            tick = (now_ns - began_ns) // tick_ns
            for engine in self._engines:
                engine.listen(now_ns)
                engine.speak(tick)
                engine.packets.take_report()
            await asyncio.sleep((began_ns + (tick + 1) * tick_ns - time.monotonic_ns()) / _NANOSECONDS)

    async def stop(self) -> None:
        """Stops the engines and closes the sockets."""
        if self._ticking is not None:
            self._ticking.cancel()
            await asyncio.gather(self._ticking, return_exceptions=True)
        for engine in self._engines:
            engine.close()
