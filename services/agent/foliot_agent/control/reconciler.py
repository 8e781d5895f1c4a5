"""Keeps the kernel by what the bus's buckets say: who the peers are, and which ways are to be in force."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import structlog

from foliot_agent.core.desired_diff import Wanted, wanted
from foliot_agent.core.route_guard import Situation, unknown
from foliot_schemas import NodePaths

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from foliot_agent.actuators.base import Actuator
    from foliot_agent.control.actuator_kinds import ServiceAddressBackend
    from foliot_agent.control.move_queue import MoveQueue
    from foliot_agent.control.restart_cache import RestartCache
    from foliot_agent.core.failed_links import FailedLinks
    from foliot_agent.core.overlay_layout import Layout
    from foliot_agent.settings import Policy
    from foliot_schemas import Node, Placement

log = structlog.get_logger()

_FORGET_S = 60.0
"""After it has left the inventory, which may be lost for a moment: as long as the remediator remembers a node."""


class Reconciler:
    """One node's.

    Parameters:
        peers: kept up to date here, and read by whoever acts.
        fence: whether a value of this lease may be followed.
        forget: called with the name of a peer that has left for a minute.
        others: actuators of other classes of traffic, which are told of peers.
    """

    def __init__(
        self, *, layout: Layout, peers: dict[str, Node], losses: FailedLinks, move_queue: MoveQueue, kernel: ServiceAddressBackend, restart_cache: RestartCache,
        fence: Callable[[int], Awaitable[bool]], policy: Policy, forget: Callable[[str], None],
        others: Sequence[Actuator] = (),
    ) -> None:  # fmt: skip
        self.told: set[str] = set()
        """Nodes that the inventory spoke of."""
        self._layout = layout
        self._peers = peers
        self._losses = losses
        self._move_queue = move_queue
        self._kernel = kernel
        self._others = others
        self._restart_cache = restart_cache
        self._fence = fence
        self._policy = policy
        self._forget = forget
        self._leaving: dict[str, asyncio.TimerHandle] = {}
        """Peers that have left, to be forgotten then."""
        self._paths: NodePaths | None = None
        self._joining = asyncio.Lock()

    async def on_node(self, name: str, record: Node | None) -> None:
        """The inventory says this of a node; None: it has left."""
        if name == self._layout.node.name:
            return
        if record is not None and not record.talks_to(self._layout.node):
            record = None
        async with self._joining:
            self.told.add(name)
            before = self._peers.get(name)
            if record is not None and before is not None and before.nics == record.nics:
                # What else a record says is nothing to the kernel: no way is cut for it.
                self._peers[name] = record
            elif before != record:
                self._peers.pop(name, None)
                if before is not None:
                    await self._leave(before)
            if (leaving := self._leaving.pop(name, None)) is not None:
                leaving.cancel()
            if record is None and (before is not None or leaving is not None):
                self._leaving[name] = asyncio.get_running_loop().call_later(_FORGET_S, self._has_left, name)
            if record is not None and name not in self._peers:
                await self._join(record)
                self._peers[name] = record
                log.info("peer_joined", peer=name)
            self._restart_cache.keep_peers(tuple(self._peers.values()))
            if record is not None and before != record and self._paths is not None:
                # What the value said of this peer could not be done before it was known.
                await self._follow(_without(self._paths, name), self._paths)

    async def _join(self, peer: Node) -> None:
        await self._kernel.join(peer)
        for actuator in self._others:
            await actuator.join(peer)

    async def _leave(self, peer: Node) -> None:
        await self._kernel.leave(peer)
        for actuator in self._others:
            await actuator.leave(peer)

    def close(self) -> None:
        """Forgets nobody any more."""
        for leaving in self._leaving.values():
            leaving.cancel()

    def _has_left(self, name: str) -> None:
        del self._leaving[name]
        self.told.discard(name)
        self._forget(name)

    async def on_paths(self, name: str, paths: NodePaths | None) -> None:
        """The remediator wants this kept in force."""
        if name != self._layout.node.name or paths is None:
            return
        if not await self._fence(paths.lease_revision):
            log.warning("paths_fenced", lease_revision=paths.lease_revision)
            return
        before, self._paths = self._paths, paths
        await self._follow(before, paths)

    async def arm_again(self) -> None:
        """Devices were made anew: what could not be armed without them can be now. Nothing is moved by that."""
        if self._paths is not None:
            backups = tuple(backup for backup in self._paths.backups if self._is_known(backup))
            await self._move_queue.follow(Wanted(backups=backups), act=False)

    async def _follow(self, before: NodePaths | None, paths: NodePaths) -> None:
        changes = wanted(
            before,
            paths,
            routing=self._move_queue.routing,
            dead=self._losses.dead,
            own_lost=self._losses.own,
            is_known=self._is_known,
        )
        move = await self._move_queue.follow(changes, act=self._policy == "act")
        if move.status == "failed":
            log.warning("paths_not_followed", reason=move.reason)

    def _is_known(self, placement: Placement) -> bool:
        situation = Situation(
            layout=self._layout, peers=self._peers, routing=self._move_queue.routing, losses=self._losses,
        )  # fmt: skip
        return not unknown(placement, situation)


def _without(paths: NodePaths, peer: str) -> NodePaths:
    """The value as if it had said nothing of this peer, and of no rail that is away: that may have waited for its backups."""
    return NodePaths(
        node=paths.node,
        lease_revision=paths.lease_revision,
        placements=tuple(placement for placement in paths.placements if placement.peer != peer),
        backups=paths.backups,
    )
