"""What of the agent touches the kernel, opened together: the overlay, its actuator, and the keeper of flushed routes."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Self

import structlog
from pyroute2 import AsyncIPRoute
from pyroute2.netlink.exceptions import NetlinkError

from foliot_agent.actuator import EmulatedActuator
from foliot_agent.overlay import Overlay, remove
from foliot_agent.repair import RouteKeeper
from foliot_agent.routes import OverlayActuator

if TYPE_CHECKING:
    from collections.abc import Mapping

    from foliot_agent.actuator import Actuator
    from foliot_agent.armed import Losses, Turn
    from foliot_agent.memory import Memory
    from foliot_agent.plan import Layout
    from foliot_agent.settings import ActuatorKind
    from foliot_schemas import Node

log = structlog.get_logger()

_REMEMBER_S = 5.0
"""How old the copy of a NIC's routes may be when they are flushed: routes of a fabric change when it is configured."""


class Kernel:
    """The real thing, or with the emulated actuator nothing at all.

    Closing it leaves everything in place, so that traffic goes on while the agent is away; `uninstall` takes it away.
    """

    actuator: Actuator

    def __init__(self, kind: ActuatorKind, layout: Layout, memory: Memory) -> None:
        self.is_real = kind == "overlay"
        self._layout = layout
        self._memory = memory
        self._stack = contextlib.AsyncExitStack()
        self._overlay: Overlay | None = None
        self._keeper: RouteKeeper | None = None

    async def __aenter__(self) -> Self:
        """Builds the overlay, or adopts what an earlier run left.

        Raises:
            OverlayError: it cannot be built.
        """
        if not self.is_real:
            self.actuator = EmulatedActuator(self._layout)
            return self
        # Three sockets: no dump of one may stand before a move of another.
        building = await self._stack.enter_async_context(AsyncIPRoute())
        moving = await self._stack.enter_async_context(AsyncIPRoute())
        keeping = await self._stack.enter_async_context(AsyncIPRoute(strict_check=True))
        self._overlay = Overlay(building, self._layout)
        await self._overlay.build()
        actuator = OverlayActuator(moving, self._layout)
        await actuator.adopt()
        self.actuator = actuator
        self._keeper = RouteKeeper(keeping)
        # Those of a NIC that is down now: what is flushed with it, only an earlier run has seen.
        self._keeper.kept = dict(self._memory.recall().routes)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    async def join(self, peer: Node) -> None:
        """Makes a peer reachable, and routes to it."""
        if self._overlay is not None:
            await self._overlay.join(peer)
        await self.actuator.welcome(peer)

    async def leave(self, peer: Node) -> None:
        """Forgets a peer."""
        await self.actuator.dismiss(peer)
        if self._overlay is not None:
            await self._overlay.leave(peer)

    async def recover(self, turn: Turn, peers: Mapping[str, Node]) -> None:
        """An own NIC is back: what the kernel dropped with it comes back too."""
        if self._overlay is None or self._keeper is None:
            return
        if turn.remade:
            await self._overlay.build()
            for peer in peers.values():
                await self._overlay.join(peer)
            await self.actuator.renew()
        await self._keeper.put_back(self._layout.node.nic(turn.rail).device)

    async def remember(self, losses: Losses) -> None:
        """Copies the routes over the NICs that are up."""
        for nic in self._layout.node.nics:
            if self._keeper is not None and nic.rail not in losses.own:
                try:
                    await self._keeper.remember(nic.device)
                except (NetlinkError, OSError) as error:
                    log.warning("routes_not_remembered", device=nic.device, reason=str(error))
        if self._keeper is not None:
            self._memory.keep_routes(self._keeper.kept)

    async def keep_routes(self, losses: Losses) -> None:
        """Goes on remembering, until cancelled."""
        while self.is_real:
            await asyncio.sleep(_REMEMBER_S)
            await self.remember(losses)


async def uninstall() -> None:
    """Takes away every device, route and rule that any run of the agent left in this network namespace."""
    async with AsyncIPRoute() as netlink:
        await remove(netlink)
    log.info("overlay_removed")
