"""The parts of the agent that touch the kernel, opened together.

They are the overlay, its actuator, and the keeper of flushed routes.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
from typing import TYPE_CHECKING, Self

import structlog
from pyroute2 import AsyncIPRoute
from pyroute2.netlink.exceptions import NetlinkError

from foliot_agent.actuators.base import ActuatorError
from foliot_agent.actuators.overlay import OverlayActuator
from foliot_agent.control.move_queue import MoveQueue
from foliot_agent.core import overlay_layout
from foliot_agent.core.desired_diff import wanted
from foliot_agent.core.failed_links import FailedLinks
from foliot_agent.kernel.dry_run import DryRun
from foliot_agent.kernel.overlay_devices import Overlay, OverlayError, remove
from foliot_agent.kernel.route_restorer import RouteRestorer
from foliot_agent.kernel.route_socket import RouteSocket

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Mapping

    from foliot.clock import Clock
    from foliot.node.rtnetlink import LinkChange
    from foliot_agent.control.restart_cache import RestartCache
    from foliot_agent.core.overlay_layout import Layout
    from foliot_agent.kernel.dry_run import Change
    from foliot_schemas import Node, NodePaths, Placement

log = structlog.get_logger()

_REMEMBER_S = 5.0
"""How old the copy of a NIC's routes may be when they are flushed: routes of a fabric change when it is configured."""
_AGAIN_S = 1.0
"""Wait after the kernel refused something that the agent needs. A driver that is loaded, or whoever configures the
NIC, may not have finished."""
_LOOK_S = 10.0
"""While anything is owed, the keeper looks this often, whatever the kernel tells. The kernel's word of an address
may be lost, and routes may be refused. By then a driver and whoever configures the NIC are done, or somebody should
know."""


class KernelBackend:
    """What moves service addresses in this host's kernel.

    Closing it leaves everything in place, so that traffic goes on while the agent is away; `uninstall` takes it away.
    """

    actuator: OverlayActuator
    _overlay: Overlay
    _restorer: RouteRestorer

    def __init__(self, layout: Layout, restart_cache: RestartCache) -> None:
        self._layout = layout
        self._restart_cache = restart_cache
        self._stack = contextlib.AsyncExitStack()
        self._nics = {nic.device: nic for nic in layout.node.nics}
        self._devices = frozenset(device.name for device in overlay_layout.devices(layout))
        self._downs: dict[str, int] = {}
        """By NIC: how often it has lost its carrier, as last told."""
        self._due = asyncio.Event()
        self._is_stale = False
        """Whether devices of the overlay are gone, or stand on a NIC that is another now."""
        self._made: set[str] = set()
        """Devices that were made anew and have not all of their entries and routes."""
        self._changing = asyncio.Lock()
        self._looked = asyncio.Event()
        """Set whenever `keep` has restored what can be restored, and replaced by another then."""

    async def __aenter__(self) -> Self:
        """Builds the overlay, or adopts what an earlier run left.

        Raises:
            OverlayError: it cannot be built.
        """
        # Several sockets: no dump of one may stand before a move of another.
        building = await self._stack.enter_async_context(AsyncIPRoute())
        moving = await self._stack.enter_async_context(RouteSocket())
        keeping = await self._stack.enter_async_context(AsyncIPRoute(strict_check=True))
        self._overlay = Overlay(building, self._layout)
        await self._overlay.build()
        self.actuator = OverlayActuator(keeping, moving, self._layout)
        await self.actuator.adopt()
        self._restorer = RouteRestorer(keeping)
        # Those of a NIC that is down now: what is flushed with it, only an earlier run has seen.
        self._restorer.kept = dict(self._restart_cache.recall().routes)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    async def join(self, peer: Node) -> None:
        """Makes a peer reachable, and routes to it."""
        async with self._changing:
            await self._overlay.join(peer)
            await self.actuator.welcome(peer)

    async def leave(self, peer: Node) -> None:
        """Forgets a peer."""
        async with self._changing:
            await self.actuator.dismiss(peer)
            await self._overlay.leave(peer)

    def take_link(self, change: LinkChange) -> None:
        """Takes what the kernel tells of a device: what goes with it may be gone, or can be made now."""
        if change.name not in self._nics:
            if change.gone and change.name in self._devices:
                self._is_stale = True
                self._due.set()
            return
        unseen = change.carrier and change.carrier_down_count > self._downs.get(change.name, change.carrier_down_count)
        self._downs[change.name] = change.carrier_down_count
        if change.gone or not change.admin_up or unseen:
            self._restorer.owed.add(change.name)
        if change.gone:
            return
        if not self._overlay.stands_on(change.name, change.index, change.mtu):
            self._is_stale = True
            self._due.set()
        elif change.admin_up and change.name in self._restorer.owed:
            self._due.set()

    def take_address(self, address: str) -> None:
        """Takes an address that a device was given."""
        if any(nic.address == address and nic.device in self._restorer.owed for nic in self._nics.values()):
            self._due.set()

    async def restored(self, rail: str) -> None:
        """Waits until what the kernel dropped with the NIC of a rail is there again, for as long as that takes.

        A NIC without its address or its routes carries nothing.
        """
        nic, told = self._layout.node.nic(rail), False
        since_s = asyncio.get_running_loop().time()
        while nic.device in self._restorer.owed:
            await self._looked.wait()
            if (
                not told
                and asyncio.get_running_loop().time() - since_s >= _LOOK_S
                and nic.device in self._restorer.owed
            ):
                told = True
                hint = (
                    f"it has a carrier, but is not up with the address {nic.address}, or its routes are refused: "
                    "peers keep away from it until then"
                )
                log.warning("nic_not_restored", rail=rail, device=nic.device, hint=hint)

    async def keep(
        self, peers: Mapping[str, Node], move_queue: MoveQueue, on_restored: Callable[[], Awaitable[None]]
    ) -> None:
        """Makes again what the kernel drops, until cancelled.

        A NIC that is taken out, or whose driver is loaded again, takes along its VXLAN devices, their entries and
        routes, and its own routes. The devices are made anew as soon as there is a NIC of that name, which may be long
        before it has a carrier. The NIC's own routes come back when it is up and whoever configures it has given it its
        address.

        Parameters:
            on_restored: called after devices were made anew, and their routes put.
        """
        while True:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._due.wait(), _LOOK_S if self._restorer.owed else None)
            self._due.clear()
            try:
                async with self._changing:
                    made = await self._restore(peers, move_queue)
                if made:
                    await on_restored()
            except (OverlayError, ActuatorError, NetlinkError, OSError) as error:
                log.warning("overlay_not_restored", reason=str(error))
                self._is_stale = True
                asyncio.get_running_loop().call_later(_AGAIN_S, self._due.set)
            looked, self._looked = self._looked, asyncio.Event()
            looked.set()

    async def _restore(self, peers: Mapping[str, Node], move_queue: MoveQueue) -> frozenset[str]:
        """Restores what can be restored now; returns the devices that were made."""
        if self._is_stale:
            self._is_stale = False
            self._made |= await self._overlay.build(missing_ok=True)
        if made := frozenset(self._made):
            for peer in tuple(peers.values()):
                await self._overlay.join(peer)
            await move_queue.renew(functools.partial(self._goes_by, made))
            self._made -= made
            log.info("overlay_restored", devices=sorted(made))
        for device in sorted(self._restorer.owed):
            with contextlib.suppress(OSError, NetlinkError):  # it is out
                if await self._restorer.is_ready(device, self._nics[device].address):
                    await self._restorer.put_back(device)
        return made

    def _goes_by(self, devices: frozenset[str], placement: Placement) -> bool:
        return overlay_layout.device_name(self._layout.numbers[placement.via], placement.entropy) in devices

    async def remember(self, losses: FailedLinks) -> None:
        """Copies the routes over the NICs that are up."""
        for nic in self._layout.node.nics:
            if nic.rail not in losses.own:
                try:
                    await self._restorer.remember(nic.device)
                except (NetlinkError, OSError) as error:
                    log.warning("routes_not_remembered", device=nic.device, reason=str(error))
        self._restart_cache.keep_routes(self._restorer.kept)

    async def keep_routes(self, losses: FailedLinks) -> None:
        """Goes on remembering, until cancelled."""
        while True:
            await asyncio.sleep(_REMEMBER_S)
            await self.remember(losses)

    async def rehearse(
        self, peers: Iterable[Node], paths: NodePaths | None, clock: Clock, *, act: bool
    ) -> tuple[Change, ...]:
        """The changes that a start would make here and now, by the code that makes them.

        See `foliot_agent.install.plan_command`.
        """
        known = {peer.name: peer for peer in peers}
        async with AsyncIPRoute() as netlink:
            rehearsal = DryRun(netlink)
            overlay = Overlay(rehearsal, self._layout, rehearsal)
            await overlay.build()
            actuator = OverlayActuator(rehearsal, rehearsal, self._layout, rehearsal)
            await actuator.adopt()
            for peer in known.values():
                await overlay.join(peer)
                await actuator.welcome(peer)
            if paths is not None:
                losses = FailedLinks(self._layout, "")
                changes = wanted(
                    None, paths, actuator.routing, losses, is_known=lambda placement: placement.peer in known
                )
                await MoveQueue(actuator, losses, clock).follow(changes, act=act)
            return tuple(rehearsal.changes)


async def uninstall() -> None:
    """Takes away every device, route and rule that any run of the agent left in this network namespace."""
    async with AsyncIPRoute() as netlink:
        await remove(netlink)
    log.info("overlay_removed")


async def rehearse_uninstall() -> tuple[Change, ...]:
    """The changes that `uninstall` would make in this network namespace, as it is now."""
    async with AsyncIPRoute() as netlink:
        rehearsal = DryRun(netlink)
        await remove(rehearsal)
        return tuple(rehearsal.changes)
