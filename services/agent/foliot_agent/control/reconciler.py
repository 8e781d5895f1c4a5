"""Keeps the kernel as the bus's buckets want it: by who the peers are, and by the ways that are to be in force."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING

import structlog

from foliot_agent.actuators.base import ActuatorError
from foliot_agent.core.desired_diff import Wanted, wanted
from foliot_agent.core.route_guard import unknown
from foliot_schemas import NodePaths

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from foliot_agent.actuators.base import Actuator
    from foliot_agent.control.kernel_backend import KernelBackend
    from foliot_agent.control.lease_fence import LeaseFence
    from foliot_agent.control.move_queue import MoveQueue
    from foliot_agent.control.restart_cache import RestartCache
    from foliot_agent.core.route_guard import Situation
    from foliot_agent.settings import Policy
    from foliot_schemas import Node, Placement

log = structlog.get_logger()

_FORGET_S = 60.0
"""Wait before a peer that has left the inventory is forgotten: as long as the remediator remembers a node. The
inventory may be lost for a moment."""


@dataclass(kw_only=True, eq=False)
class Reconciler:
    """The reconciler of one node."""

    situation: Situation
    """Its peers are kept up to date here; all that acts reads them."""
    move_queue: MoveQueue
    kernel: KernelBackend
    restart_cache: RestartCache
    fence: LeaseFence
    """The fence of commands too: a value of an earlier lease than either has had is not followed."""
    policy: Policy
    forget: Callable[[str], None]
    """Called with the name of a peer that has left for a minute."""
    others: Sequence[Actuator] = ()
    """Actuators of other classes of traffic, which are told of peers."""

    def __post_init__(self) -> None:
        self.told: set[str] = set()
        """Nodes that the inventory spoke of."""
        self._own, self._peers = self.situation.layout.node, self.situation.peers
        self._leaving: dict[str, asyncio.TimerHandle] = {}
        """Peers that have left, to be forgotten then."""
        self._paths: NodePaths | None = None
        self._joining = asyncio.Lock()

    async def on_node(self, name: str, record: Node | None) -> None:
        """Takes what the inventory says of a node; None: it has left."""
        if name == self._own.name:
            return
        if record is not None and not record.talks_to(self._own):
            record = None
        async with self._joining:
            self.told.add(name)
            before = self._peers.get(name)
            if record is not None and before is not None and before.nics == record.nics:
                # The rest of a record is nothing to the kernel: no way is cut for it.
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
                await self.join(record)
                self._peers[name] = record
                log.info("peer_joined", peer=name)
            self.restart_cache.keep_peers(tuple(self._peers.values()))
            if record is not None and before != record and self._paths is not None:
                # The value's part about this peer could not be done before it was known.
                await self._follow(_without(self._paths, name), self._paths)

    async def leave_unnamed(self, bus_connected: Callable[[], bool]) -> None:
        """Leaves the peers of the last run that the inventory has not named yet, as the bus is there a minute later.

        A bus that has lost its store names nobody at first: every node says again that it is there.
        """
        while True:
            await asyncio.sleep(_FORGET_S)
            if bus_connected():
                break
        for name in tuple(self._peers):
            if name not in self.told:
                try:
                    await self.on_node(name, None)
                except ActuatorError:
                    log.exception("peer_not_left", peer=name)  # the others are left all the same

    async def join(self, peer: Node) -> None:
        """Makes a peer reachable by every actuator."""
        await self.kernel.join(peer)
        for actuator in self.others:
            await actuator.join(peer)

    async def _leave(self, peer: Node) -> None:
        await self.kernel.leave(peer)
        for actuator in self.others:
            await actuator.leave(peer)

    def close(self) -> None:
        """Cancels the timers of peers that are to be forgotten."""
        for leaving in self._leaving.values():
            leaving.cancel()

    def _has_left(self, name: str) -> None:
        del self._leaving[name]
        self.told.discard(name)
        self.forget(name)

    async def on_paths(self, name: str, paths: NodePaths | None) -> None:
        """Takes the ways that the remediator wants in force."""
        if name != self._own.name or paths is None:
            return
        if not await self.fence.passes(paths.lease_revision):
            log.warning("paths_fenced", lease_revision=paths.lease_revision)
            return
        self.fence.raise_to(paths.lease_revision)
        before, self._paths = self._paths, paths
        await self._follow(before, paths)

    async def arm_again(self) -> None:
        """Arms what could not be armed without devices that were now made anew. It moves nothing."""
        if self._paths is not None:
            backups = tuple(backup for backup in self._paths.backups if self._is_known(backup))
            await self.move_queue.follow(Wanted(backups=backups), act=False)

    async def _follow(self, before: NodePaths | None, paths: NodePaths) -> None:
        changes = wanted(before, paths, self.situation.routing, self.situation.losses, is_known=self._is_known)
        move = await self.move_queue.follow(changes, act=self.policy == "act", decided_ns=paths.decided_ns)
        if move.status == "failed":
            log.warning("paths_not_followed", reason=move.reason)
        elif move.status == "done":  # a command was there before, mostly
            log.info("paths_followed", away=move.away, back=move.back, destinations=len(move.destinations))

    def _is_known(self, placement: Placement) -> bool:
        return not unknown(placement, self.situation)


def _without(paths: NodePaths, peer: str) -> NodePaths:
    """The value without this peer's placements, and without rails away, which may have waited for its backups."""
    return NodePaths(
        node=paths.node,
        lease_revision=paths.lease_revision,
        placements=tuple(placement for placement in paths.placements if placement.peer != peer),
        backups=paths.backups,
    )
