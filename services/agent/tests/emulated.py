"""Agents whose behaviour is whole and whose kernel is none: they meet on loopback."""

from __future__ import annotations

import asyncio
import collections
from typing import TYPE_CHECKING

from foliot.bus.lease import Count
from foliot.settings import NicSettings, NodeSettings
from foliot_agent.actuators.overlay import OverlayActuator
from foliot_agent.control.command_runner import CommandRunner
from foliot_agent.control.failover import Failover
from foliot_agent.control.lease_fence import LeaseFence
from foliot_agent.control.move_queue import MoveQueue
from foliot_agent.control.restart_cache import RestartCache
from foliot_agent.control.route_handler import RouteHandler
from foliot_agent.core.failed_links import FailedLinks, LinkTransition
from foliot_agent.core.overlay_layout import Layout, Route
from foliot_agent.core.peer_protocol import Seal
from foliot_agent.core.route_guard import Situation
from foliot_agent.peers.failure_notifier import FailureNotifier
from foliot_agent.peers.sockets import PeerSockets
from foliot_agent.settings import AgentSettings
from foliot_lab.services.emulated_actuator import NoKernel
from foliot_schemas import Command, Placement

if TYPE_CHECKING:
    from foliot_agent.control.reconciler import Reconciler
    from virtual_clock import VirtualClock

KEY = "a key that the fleet shares"
FAULT = "boot1/node0.rail0/carrier-2"


class Wires(PeerSockets):
    """Loses what is sent from or to a NIC without a carrier."""

    def __init__(self, agent: Agent) -> None:
        super().__init__(Seal(KEY), agent.layout.node.agent_port, agent._heard)
        self._agent = agent

    def send(self, datagram: bytes, source: str, destination: str, port: int) -> None:
        """See `PeerSockets`."""
        if not {source, destination} & self._agent.cut:
            super().send(datagram, source, destination, port)


class NoEcho:
    """Confirms nothing: there is no wire."""

    async def confirm(self, destinations, stands) -> list:
        """See `EchoConfirmer`."""
        return []


NO_ECHO = NoEcho()


class Counting(NoKernel):
    """Counts the messages that the kernel would have got."""

    def __init__(self) -> None:
        self.counts: collections.Counter[str] = collections.Counter()

    async def change(self, requests) -> list[int]:
        """See `NoKernel`."""
        self.counts["calls"] += 1
        for request in requests:
            self.counts["routes" if isinstance(request.what, Route) else "rules"] += 1
        return await super().change(requests)


class Agent:
    """An agent's whole behaviour without a kernel: its NICs are loopback addresses."""

    def __init__(self, index: int, port: int, clock: VirtualClock) -> None:
        nics = tuple(
            NicSettings(rail=f"rail{rail}", number=rail, device=f"rail{rail}", address=f"127.77.{rail}.{index + 1}")
            for rail in (0, 1)
        )
        settings = NodeSettings(name=f"node{index}", index=index, nics=nics, agent_port=port)
        self.layout = Layout.of(settings)
        self.kernel = Counting()
        self.actuator = OverlayActuator(None, self.kernel, self.layout, self.kernel)
        self.losses = FailedLinks(self.layout, "boot1")
        self.restart_cache = RestartCache("", settings.name, "boot1")
        self.clock, self.peers, self.outcomes, self.tasks = clock, {}, [], set()
        self.nics_stand = asyncio.Event()
        self.nics_stand.set()
        self.following: Reconciler | None = None
        """None: it hears of no bucket."""
        self.bus_connected, self.leases = True, Count(since_ns=1, last=100)
        self.cut: set[str] = set()
        """Addresses of NICs without a carrier; one set for all who are to be cut off from each other."""
        self.exchange = Wires(self)
        for nic in nics:
            self.exchange.open(nic.address)
        self.handlers: list = []
        """Of other verbs than the agent's own; `arm` takes them up."""
        self.arm("always")

    def arm(self, armed: str, policy: str = "act") -> None:
        """Starts its behaviour anew with these settings."""
        self.move_queue = MoveQueue(self.actuator, self.losses, self.clock)
        self.situation = Situation(
            layout=self.layout, peers=self.peers, routing=self.actuator.routing, losses=self.losses
        )
        routes = RouteHandler(situation=self.situation, move_queue=self.move_queue, confirmer=NO_ECHO, clock=self.clock)
        self.commands = CommandRunner(
            node=self.layout.node.name,
            policy=policy,
            handlers=[routes, *self.handlers],
            clock=self.clock,
            publish=self.outcomes.append,
            fence=LeaseFence(self._leases_counted, self._spawn),
            restart_cache=self.restart_cache,
        )
        self.failover = Failover(
            settings=AgentSettings(armed=armed, policy=policy, key=KEY),
            situation=self.situation,
            move_queue=self.move_queue,
            notifier=FailureNotifier(self.exchange, self.layout.node, self.peers, self.losses, self.clock),
            routes=routes,
            clock=self.clock,
            publish=self.outcomes.append,
            bus_connected=lambda: self.bus_connected,
            spawn=self._spawn,
            restored=self._restored,
            catch_up=self._catch_up,
        )

    async def meet(self, peer: Agent, *, backups: bool = True) -> None:
        """Learns of a peer, and is armed with the other rail for it."""
        record = peer.layout.node
        await self.actuator.welcome(record)
        self.peers[record.name] = record
        if backups:
            for name in self.peers:
                for rail, via in (("rail0", "rail1"), ("rail1", "rail0")):
                    await self.actuator.arm(Placement(peer=name, rail=rail, via=via, entropy=1))

    async def disarm(self) -> None:
        """Takes all its backups away."""
        for destination in tuple(self.actuator.routing.backups):
            await self.actuator.disarm(destination)

    def lose(self, rail: str = "rail0") -> None:
        """Its NIC loses the carrier."""
        fault = f"boot1/{self.layout.node.name}.{rail}/carrier-2"
        self.cut.add(self.layout.node.nic(rail).address)
        self.losses._own[rail] = fault
        self.failover.on_turn(LinkTransition(rail=rail, state="lost", fault=fault))

    def regain(self, rail: str = "rail0") -> None:
        """Its NIC has a carrier again."""
        self.cut.discard(self.layout.node.nic(rail).address)
        self.failover.on_turn(LinkTransition(rail=rail, state="back", fault=self.losses._own.pop(rail)))

    async def quiet(self) -> None:
        """Waits until everything that it started has ended."""
        async with asyncio.timeout(60):
            while self.tasks:
                for ended in await asyncio.gather(*self.tasks, return_exceptions=True):
                    if isinstance(ended, Exception):
                        raise ended

    def via(self, peer: str, rail: str = "rail0") -> str:
        """The rail that carries what goes to a peer."""
        return self.actuator.routing.way((peer, rail)).via

    def _heard(self, message, reply):
        self.failover.on_message(message, reply)

    async def _restored(self, rail: str) -> None:
        await self.nics_stand.wait()

    async def _catch_up(self) -> None:
        if self.following is not None:
            await self.following.catch_up()

    async def _leases_counted(self) -> Count | None:
        return self.leases

    def _spawn(self, work):
        task = asyncio.get_running_loop().create_task(work)
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)
        return task


async def settle(agents) -> None:
    """Until no agent has anything left to do."""
    for agent in agents:
        await agent.quiet()
    for agent in agents:
        await agent.quiet()


def command(agent: Agent, name: str = "c1", **what) -> Command:
    """A command that passes the guards."""
    now_ns = agent.clock.now_ns()
    what = {"lease_revision": 5, "deadline_ns": now_ns + 1_000, **what}
    return Command(id=name, verb="reroute", node=agent.layout.node.name, cause="e1", issued_ns=now_ns, **what)
