"""Keeps the kernel as the bus's buckets want it: by who the peers are, and by the ways that are to be in force."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec
import structlog

from foliot_agent.actuators.base import ActuatorError
from foliot_agent.core.desired_diff import Wanted, followed, wanted
from foliot_agent.core.route_guard import unknown

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from foliot_agent.actuators.base import Actuator
    from foliot_agent.control.kernel_backend import KernelBackend
    from foliot_agent.control.lease_fence import LeaseFence
    from foliot_agent.control.move_queue import MoveQueue
    from foliot_agent.control.restart_cache import RestartCache
    from foliot_agent.core.route_guard import Situation
    from foliot_agent.settings import Policy
    from foliot_schemas import Node, NodePaths, Placement

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
        self._followed: NodePaths | None = None
        """That value, less what waits for a lost NIC."""
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
            if record is not None and before != record:
                self._want_again(name)
                await self.catch_up()

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
        self._paths = paths
        await self.catch_up()

    async def arm_again(self) -> None:
        """Arms what could not be armed without devices that were now made anew. It moves nothing."""
        if self._paths is not None:
            backups = tuple(backup for backup in self._paths.backups if self._is_known(backup))
            await self.move_queue.follow(Wanted(backups=backups), act=False)

    async def catch_up(self) -> None:
        """Follows the value: does what it asks for and was not done yet, as far as NICs and peers are there."""
        if (paths := self._paths) is None:
            return
        before, routing, losses = self._followed, self.situation.routing, self.situation.losses
        changes = wanted(before, paths, routing, losses, is_known=self._is_known)
        self._followed = followed(before, paths, routing, losses)
        move = await self.move_queue.follow(changes, act=self.policy == "act", decided_ns=paths.decided_ns)
        if move.status == "failed":
            log.warning("paths_not_followed", reason=move.reason)
        elif move.status == "done":  # a command was there before, mostly
            log.info("paths_followed", away=move.away, back=move.back, destinations=len(move.destinations))

    def _want_again(self, peer: str) -> None:
        """Counts the value's part about a peer as new, as that could not be done before the peer was known.

        A rail that is to be left counts likewise: it may have waited for the peer's backups.
        """
        if self._paths is not None and self._followed is not None:
            self._followed = msgspec.structs.replace(
                self._followed,
                away=tuple(rail for rail in self._followed.away if rail not in self._paths.away),
                placements=tuple(each for each in self._followed.placements if each.peer != peer),
            )

    def _is_known(self, placement: Placement) -> bool:
        return not unknown(placement, self.situation)
