"""One shard of sync: takes its nodes' stamps, and publishes fits of pairs once a window, while it holds its lease."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from typing import TYPE_CHECKING

import structlog

from foliot.bus.lease import Lease
from foliot_schemas.subjects import FITS, STAMPS
from foliot_sync.core.fit.fit_messages import batches
from foliot_sync.core.fit.shard_fit import NO_MATHEMATICS, ShardFit
from foliot_sync.settings import NANOSECONDS
from foliot_sync.shell.change_log import Tally
from foliot_sync.shell.clock_listener import MOST
from foliot_sync.shell.window_barrier import WindowBarrier

if TYPE_CHECKING:
    from foliot.bus.client import Bus
    from foliot.clock import BusClock
    from foliot.node.shard import Shard
    from foliot_schemas import Node
    from foliot_schemas.observation import StampBatch
    from foliot_sync.core.fit.admission import Admission
    from foliot_sync.settings import SyncSettings
    from foliot_sync.shell.clock_listener import ClockListener

log = structlog.get_logger()

_STRANGE = 2
"""Windows to wait for a followed node to tell the time. After as many, none of them will."""


class ShardFitter:
    """Fits the pairs of a shard's nodes.

    Parameters:
        shard: the one whose nodes it fits.
        admission: its nodes' records.
        following: states of a few of their clocks.
        holder: its name in the lease.
    """

    def __init__(
        self,
        bus: Bus,
        clock: BusClock,
        settings: SyncSettings,
        *,
        shard: Shard,
        admission: Admission,
        following: ClockListener,
        holder: str,
    ) -> None:
        self._bus = bus
        self._clock = clock
        self._window_ns = settings.window_ns
        # A whole fleet speaks within a tenth of a window, and its stamps are as good at the window's end.
        self._late_s = settings.window_s
        self._shard = shard
        self._admission = admission
        self._following = following
        self._role = shard.role("sync")
        self._lease = Lease(bus, self._role, holder, lasting=True)
        self._told_time = asyncio.Event()
        self._nodes: set[str] = set()
        """Nodes of the shard in the inventory."""
        self._one_by_one = False
        """Whether stamps are subscribed to by node."""
        self._heard: set[str] = set()
        """Nodes whose stamps are subscribed to by node."""
        self._fitter = ShardFit(settings)
        self._barrier = WindowBarrier(settings.window_s)
        self._window = 0
        self._ended = 0
        """The number of the window that ended last, in the common time."""
        self._left_out = Tally("stamps_left_out")
        """Streams that do not fit their nodes' inventory records. Such a node never gets into step."""

    async def run(self) -> None:
        """Closes one window after the other, forever."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._lease.run())
            tasks.create_task(self._gather())

    async def on_node(self, name: str, node: Node | None) -> None:
        """Takes a node's changed record; None: it has left."""
        if not self._shard.owns(name):
            return
        if node is None or not node.nics:
            self._nodes.discard(name)
            self._following.leave(name)
            for other in itertools.islice(self._nodes, MOST):
                await self._following.meet(other)
            return
        self._nodes.add(name)
        await self._following.meet(name)
        if self._one_by_one:
            await self._listen_to(name)

    def _is_wanted(self, node: str) -> bool:
        return bool(self._lease.revision) and self._shard.owns(node)

    async def _gather(self) -> None:
        await self._lease.taken()
        await self._listen()
        await self._in_step()
        while True:
            if not self._lease.revision:
                await self._lease.taken()
                self._fitter.take()  # stamps that came while another held the lease
                await self._in_step()
            await self._window_end()
            await self._barrier.gather()
            await self._close()

    async def _listen(self) -> None:
        if self._shard.is_whole:
            await self._bus.subscribe(STAMPS, self._on_stamps, about=self._is_wanted, late_s=self._late_s)
            return
        # Other shards' stamps do not even come here: in a large fleet they are more than a process can read.
        self._one_by_one = True
        for name in sorted(self._nodes):
            await self._listen_to(name)

    async def _in_step(self) -> None:
        """Waits for a node to tell the time, so that a shard that begins late ends its windows as the others do."""
        self._told_time.clear()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_STRANGE * self._window_ns / NANOSECONDS if self._following.states else 0):
                await self._told_time.wait()

    async def _listen_to(self, name: str) -> None:
        if name not in self._heard:
            self._heard.add(name)
            await self._bus.subscribe(STAMPS, self._on_stamps, name, about=self._is_wanted, late_s=self._late_s)

    async def _on_stamps(self, batch: StampBatch, subject: str) -> None:  # noqa: ARG002 - the bus hands handlers both
        known = self._admission.admit(batch)
        if known is None:
            return
        self._fitter.add(known, self._clock.local_ns())
        at_ns = self._following.common_ns(batch.node, batch.until_ns)
        if at_ns is not None:
            self._clock.learn(at_ns)
            self._told_time.set()
        self._barrier.heard(batch.node)

    async def _window_end(self) -> None:
        """Waits until the nodes' window has ended; of one slept through, the stamps are in this one."""
        now_ns = self._clock.now_ns()
        number = now_ns // self._window_ns + 1
        if number == self._ended:
            number += 1  # the time was set back, to before the end of the window that ended last
        await asyncio.sleep((number * self._window_ns - now_ns) / NANOSECONDS)
        self._ended = number

    async def _close(self) -> None:
        """Fits the window's stamps, and tells the leader."""
        self._window += 1
        now_ns, arrivals = self._clock.local_ns(), self._fitter.take()
        try:
            # In a thread, so that the lease is renewed and stamps are read meanwhile.
            fits = await asyncio.to_thread(self._fitter.fit, arrivals, now_ns)
        except NO_MATHEMATICS:
            # Nothing can be computed from these stamps. The next window has others.
            log.exception("window_given_up", window=self._window)
            return
        term = self._lease.revision
        if term:
            for batch in batches(fits, self._role, term, self._window):
                await self._bus.publish(FITS, batch, self._role)
        self._left_out.tell(self._admission.foreign)
