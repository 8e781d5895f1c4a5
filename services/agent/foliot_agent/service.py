"""The agent on the bus: subscribes, hands over to its reactions, publishes."""

from __future__ import annotations

import asyncio
import contextlib
import functools
from typing import TYPE_CHECKING, Any, Self

import msgspec
import structlog

from foliot.bus.lease import counted
from foliot.bus.retry import until_done
from foliot.node.link_monitor import LinkMonitor, node_settings
from foliot.runtime import systemd
from foliot.runtime.service import boot_id, node_clock, on_bus
from foliot.settings import load
from foliot_agent.actuators.base import ActuatorError
from foliot_agent.control import actuator_kinds
from foliot_agent.control.action_handlers import NodeView, registered
from foliot_agent.control.command_runner import CommandRunner
from foliot_agent.control.failover import Failover
from foliot_agent.control.lease_fence import LeaseFence
from foliot_agent.control.membership import Membership
from foliot_agent.control.move_queue import MoveQueue
from foliot_agent.control.rank_handler import RankHandler
from foliot_agent.control.reconciler import Reconciler
from foliot_agent.control.restart_cache import RestartCache
from foliot_agent.control.route_handler import RouteHandler
from foliot_agent.core.failed_links import FailedLinks, LinkTransition
from foliot_agent.core.overlay_layout import Layout
from foliot_agent.core.peer_protocol import Seal
from foliot_agent.core.route_guard import Situation
from foliot_agent.kernel.kernel_log import KernelLog
from foliot_agent.kernel.nic_stamping import NicStamping, undo
from foliot_agent.kernel.overlay_devices import OverlayError
from foliot_agent.peers.echo_confirm import EchoConfirmer
from foliot_agent.peers.failure_notifier import FailureNotifier
from foliot_agent.peers.sockets import PeerSockets
from foliot_agent.ranks.rank_socket import RankSocket
from foliot_agent.settings import AgentSettings
from foliot_schemas import WorkerBatch
from foliot_schemas.names import escape
from foliot_schemas.subjects import CLOCK, CLOCKS, COLLECTIVE, COMMAND, GPU, INVENTORY, OUTCOME, PATHS, WORKER

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from foliot.bus.client import Bus
    from foliot.clock import HostClock
    from foliot.node.rtnetlink import LinkChange
    from foliot.settings import NodeSettings
    from foliot_schemas import ClockState, CollectiveBatch, Command, GpuError, Node, Outcome

log = structlog.get_logger()

_BUS_S = 2.0
"""How long to wait for the bus. A bus that is there is joined in a fraction of it; a cut one is noticed after two to
three seconds anyway."""
_TELL_REJECTED_S = 1.0


class Agent:
    """One node's agent.

    Parameters:
        bus: connected, or to be so one day. Until then the agent goes by what it finds in the kernel and remembers.
        boot: identity of the host's present boot, see `foliot.runtime.service.boot_id`.
    """

    def __init__(self, node: NodeSettings, settings: AgentSettings, bus: Bus, clock: HostClock, boot: str) -> None:
        self.layout = Layout.of(node, tcp_usec_ts=settings.tcp_usec_ts)
        self.losses = FailedLinks(self.layout, boot)
        self.peers: dict[str, Node] = {}
        self._settings = settings
        self._bus = bus
        self._clock = clock
        self._early: list[LinkTransition] | None = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._stack = contextlib.AsyncExitStack()
        # What a run with another index or address remembers is not this one's.
        place = " ".join([boot, str(node.index), *(nic.address for nic in node.nics)])
        armed = settings.armed == "always" and settings.policy == "act"
        self.membership = Membership(bus, node, msgspec.structs.replace(self.layout.node, armed=armed))
        self._renewing: asyncio.Task[None] | None = None
        self._restart_cache = RestartCache(settings.memory, node.name, place)
        self._view = NodeView(layout=self.layout, peers=self.peers, clock=clock, restart_cache=self._restart_cache)
        self._kernel = actuator_kinds.backend(settings.actuator, self._view)
        self._others = actuator_kinds.others(self._view)
        self._exchange = PeerSockets(Seal(settings.secret()), node.agent_port, self._on_message)
        self._confirmer = EchoConfirmer(self._exchange, self.layout.node, self.peers, clock)
        self._notifier = FailureNotifier(self._exchange, self.layout.node, self.peers, self.losses, clock)
        self._ranks = RankSocket(settings.rank_socket, node.name, clock, self._publish_ranks)
        self._kernel_log = KernelLog(settings.kernel_log, node.name, clock, self._publish_gpu_error)
        self._monitor = LinkMonitor(self._on_link, self._kernel.take_address)

    @property
    def remembers(self) -> bool:
        """Whether it has run in this boot before, and knows its peers."""
        return bool(self._restart_cache.recall().peers)

    async def __aenter__(self) -> Self:
        """Builds or adopts the overlay, and listens.

        If it remembers its peers, it looks at what was lost already. `join_fleet` comes next.
        """
        self._stack.callback(self._restart_cache.flush)
        await self._stack.enter_async_context(self._kernel)
        for actuator in self._others:
            await self._stack.enter_async_context(actuator)
        self._make_reactions()
        self._stack.callback(self._following.close)
        await self._listen()
        await self._meet_remembered()
        self._bus.when_away(self.failover.on_bus_away)
        await self._kernel.remember(self.losses)
        self._spawn(self._kernel.keep_routes(self.losses))
        self._spawn(self._kernel.keep(self.peers, self.move_queue, self._following.arm_again))
        for source in (self._exchange, self._ranks):
            self._spawn(self._tell_rejected(source))
        self._spawn(self._ranks.tell())
        self._keep_stamps()
        log.info(
            "agent_adopted",
            node=self.layout.node.name,
            peers=sorted(self.peers),
            away=sorted(self.move_queue.routing.away),
        )
        return self

    def _keep_stamps(self) -> None:
        """Turns the stamps of the NICs on, or off again where an earlier run turned them on."""
        folder = self._settings.memory
        if self._settings.nic_stamps == "auto":
            stamps = NicStamping(folder, [nic.device for nic in self.layout.node.nics])
            self._spawn(stamps.keep())
        elif folder:
            for change in undo(folder):
                log.info("nic_stamps_put_back", device=change.name, **change.detail)

    def _make_reactions(self) -> None:
        """Makes what reacts: it needs the actuator, which is there once the kernel was opened."""
        self.move_queue = MoveQueue(self._kernel.actuator, self.losses, self._clock)
        fence = LeaseFence(functools.partial(counted, self._bus), self._spawn)
        situation = Situation(layout=self.layout, peers=self.peers, routing=self.move_queue.routing, losses=self.losses)
        routes = RouteHandler(
            situation=situation,
            move_queue=self.move_queue,
            confirmer=self._confirmer,
            clock=self._clock,
            others=self._others,
        )
        ranks = RankHandler(self.layout.node.name, self._ranks, self._clock, self._restart_cache)
        self.commands = CommandRunner(
            node=self.layout.node.name,
            policy=self._settings.policy,
            handlers=[routes, ranks, *registered(self._view)],
            clock=self._clock,
            publish=self._publish,
            fence=fence,
            restart_cache=self._restart_cache,
        )
        self.failover = Failover(
            situation=situation,
            settings=self._settings,
            move_queue=self.move_queue,
            notifier=self._notifier,
            routes=routes,
            clock=self._clock,
            publish=self._publish,
            bus_connected=lambda: self._bus.connected,
            spawn=self._spawn,
            restored=self._kernel.restored,
            catch_up=self._catch_up,
        )
        self._following = Reconciler(
            situation=situation,
            move_queue=self.move_queue,
            kernel=self._kernel,
            others=self._others,
            restart_cache=self._restart_cache,
            fence=fence,
            policy=self._settings.policy,
            forget=self.failover.forget,
        )

    async def _listen(self) -> None:
        """Hears peers and the kernel's word of NICs from now on."""
        self._stack.callback(self._exchange.close)
        for nic in self.layout.node.nics:
            for address in (nic.address, nic.service_address):
                self._exchange.open(address)
        if self._settings.rank_socket:
            self._ranks.open()
            self._stack.callback(self._ranks.close)
        if self._settings.kernel_log:
            self._kernel_log.open()
            self._stack.callback(self._kernel_log.close)
        await self._stack.enter_async_context(self._monitor)
        for change in await self._monitor.present():
            self._on_link(change)

    async def _meet_remembered(self) -> None:
        """Joins the peers of the last run, and acts with them."""
        for peer in self._restart_cache.recall().peers:
            await self._following.join(peer)
            self.peers[peer.name] = peer
        if self.peers:
            self._spawn(self._awake_alone())

    async def __aexit__(self, *_: object) -> None:
        """Leaves the overlay as it is: traffic goes on."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._stack.aclose()

    async def join_fleet(self) -> None:
        """Waits for the bus, says that the node is there, and follows what it hears."""
        bus, own = self._bus, self.layout.node
        await bus.opened()
        await bus.subscribe(CLOCK, self._on_clock, own.name)
        known = await until_done(functools.partial(bus.get, CLOCKS, own.name), "clock_awaited")
        if known is not None:
            self._clock.update(known)
        await until_done(self.membership.announce, "inventory_awaited")
        bus.when_back(self._renew_place)
        for peer in own.peers or ("",):
            await bus.watch(INVENTORY, self._following.on_node, key=peer)
        self._spawn(self._following.leave_unnamed(lambda: bus.connected))
        await bus.watch(PATHS, self._following.on_paths, key=own.name)
        await bus.subscribe_kept(COMMAND, self._on_command, "", own.name, durable=f"agent-{escape(own.name)}")
        self._awake()
        systemd.ready(f"keeps the ways of {own.name}")
        log.info("agent_ready", node=own.name, peers=sorted(self.peers), actuator=self._settings.actuator)

    def _renew_place(self) -> None:
        if self._renewing is not None:
            self._renewing.cancel()
        self._renewing = self._spawn(self.membership.renew())

    async def _awake_alone(self) -> None:
        """Begins to act with what it remembers.

        Where it may act only without the bus, the bus is given a moment to be there.
        """
        if self._settings.armed != "always":
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._bus.opened(), _BUS_S)
                return
        self._awake()

    def _awake(self) -> None:
        """Acts now on what was heard from the kernel before, as peers and backups are known."""
        early, self._early = self._early or [], None
        for turn in early:
            self.failover.on_turn(turn)

    # -- what arrives -------------------------------------------------------------------------------------------------

    def _on_link(self, change: LinkChange) -> None:
        turn = self.losses.take_link(change)
        if turn is not None and self._early is not None:
            self._early.append(turn)  # acted upon when peers and backups are known too
        elif turn is not None:
            self.failover.on_turn(turn)
        self._kernel.take_link(change)

    def _on_message(self, message: Any, reply: Any) -> None:
        self.failover.on_message(message, reply)

    async def _tell_rejected(self, source: PeerSockets | RankSocket) -> None:
        """Reports rejected datagrams, once a second at most: a sender of what nobody can read may send a lot of it."""
        told = 0
        while True:
            await asyncio.sleep(_TELL_REJECTED_S)
            if (count := source.rejected - told) > 0:
                told += count
                sender, data, reason = source.last_rejected
                await self._bus.reject(sender, data, f"{count} datagrams, the last: {reason}")

    async def _on_clock(self, state: ClockState, _subject: str) -> None:
        self._clock.update(state)

    async def _on_command(self, command: Command, _subject: str) -> None:
        # A confirmation may take two seconds, and the next command must not wait for it.
        self._spawn(self.commands.on_command(command))

    # -- what the reactions need --------------------------------------------------------------------------------------

    async def _catch_up(self) -> None:
        await self._following.catch_up()

    def _publish(self, outcome: Outcome) -> None:
        self._bus.publish_kept(OUTCOME, outcome, outcome.verb, outcome.node)

    def _publish_ranks(self, batch: CollectiveBatch | WorkerBatch) -> None:
        channel = WORKER if isinstance(batch, WorkerBatch) else COLLECTIVE
        self._spawn(self._bus.publish(channel, batch, batch.job, batch.node))

    def _publish_gpu_error(self, error: GpuError) -> None:
        self._ranks.note_gpu_error(error.xid)
        self._spawn(self._bus.publish(GPU, error, error.node))

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("task_failed", reason=repr(error), exc_info=error)


async def main() -> None:
    """Runs the agent until cancelled."""
    node, settings = await node_settings(), load(AgentSettings, "agent")
    clock = node_clock(node.name)
    async with on_bus("agent", clock, node.name, wait=False) as bus:
        try:
            agent = Agent(node, settings, bus, clock, boot_id())
            if not agent.remembers:
                await agent.membership.claim()
            async with agent:
                await agent.membership.claim()
                await agent.join_fleet()
                await asyncio.Event().wait()
        except (OverlayError, ActuatorError) as error:
            raise SystemExit(f"foliot_agent: {error}") from error
