"""The leader of sync: takes the fits of all shards, and publishes the states of all clocks once a window, while it holds its lease."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING

import nats.errors
import structlog

from foliot.bus.lease import Lease
from foliot.bus.retry import heed_cancellation
from foliot_schemas.subjects import CLOCK, CLOCKS, FITS
from foliot_sync.core.fit.shard_fit import NO_MATHEMATICS
from foliot_sync.core.solve.window_assembly import WindowAssembly
from foliot_sync.core.synchroniser import Synchroniser
from foliot_sync.core.track.resume import newest
from foliot_sync.shell.change_log import ChangeLog, Tally

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from foliot.bus.client import Bus
    from foliot.clock import BusClock
    from foliot_schemas import FitBatch
    from foliot_schemas.clock import ClockState
    from foliot_sync.settings import SyncSettings
    from foliot_sync.shell.clock_census import ClockCensus
    from foliot_sync.shell.clock_listener import ClockListener

log = structlog.get_logger()

ROLE = "leader-sync"
"""Role of the leader's lease. No shard has a role that begins so."""

_ERRORS = (nats.errors.Error, OSError, TimeoutError)
_PATIENCE = 0.5
"""How long to wait after the first shard has spoken, as a share of a window: as long as a shard waits for its nodes."""
_APART = 0.5
"""Least time after a closed window, as a share of one.

A shard that speaks right after it is in the next one, and makes none of its own.
"""
_SILENCE = 1.5
"""Windows without a word from any shard, after which clocks go on by their last states."""
_READ_S, _AGAIN_S = 8.0, 0.5
_MOST_GIVEN_UP = 3
"""Windows in a row without a solution, after which the leader begins anew from the states published last."""
_AT_ONCE = 256
"""States that are published before other tasks get their turn."""


class Leader:
    """Solves the mesh of all shards and publishes the states of the clocks.

    Parameters:
        shards: roles of all shards.
        census: the clocks of the inventory.
        following: states of a few clocks.
        holder: its name in the lease.
    """

    def __init__(
        self,
        bus: Bus,
        clock: BusClock,
        settings: SyncSettings,
        *,
        shards: Sequence[str],
        census: ClockCensus,
        following: ClockListener,
        holder: str,
    ) -> None:
        self._bus = bus
        self._clock = clock
        self._settings = settings
        self._shards = shards
        self._census = census
        self._following = following
        self._lease = Lease(bus, ROLE, holder, lasting=True)
        self._collection = WindowAssembly(shards)
        self._closed_s = 0.0
        self._given_up = 0
        self._arrived = asyncio.Event()
        self._synchroniser = Synchroniser(settings)
        self._change_log = ChangeLog(settings)
        self._left_out = Tally("fits_left_out")
        """Fits of unknown shards or of former holders: perhaps processes have different settings."""
        self._said: dict[str, ClockState] = {}
        self._to_keep: dict[str, ClockState] = {}
        self._kept = asyncio.Event()

    async def run(self) -> None:
        """Leads whenever the lease is held, forever."""
        await self._bus.subscribe(FITS, self._on_fits, about=lambda _: bool(self._lease.revision))
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._lease.run())
            tasks.create_task(self._keep())
            tasks.create_task(self._lead())

    def leave(self, clocks: set[str]) -> None:
        """Forgets clocks that left: their keys are gone from the bucket, and are not written again."""
        for clock in clocks & self._to_keep.keys():
            del self._to_keep[clock]

    async def _on_fits(self, batch: FitBatch, subject: str) -> None:  # noqa: ARG002 - the bus hands handlers both
        self._collection.add(batch, self._clock.local_ns())
        self._arrived.set()

    async def _lead(self) -> None:
        while True:
            term = await self._lease.taken()
            await self._begin()
            while self._lease.revision == term and self._given_up < _MOST_GIVEN_UP:
                await self._collected()
                await self._solve(term)

    async def _begin(self) -> None:
        """Takes up the clocks and the common time where the last leader left them."""
        self._collection, self._given_up = WindowAssembly(self._shards), 0
        kept = await self._kept_states()
        self._synchroniser = Synchroniser(self._settings)
        # The bucket is in the memory of the bus. After a restart of the bus, only the states that were heard are left.
        states = newest((kept, self._following.states, self._said))
        self._synchroniser.resume(state for state in states.values() if self._census.has_clock(state.clock))
        log.info("leads", shards=len(self._shards), clocks_known=len(states))

    async def _kept_states(self) -> dict[str, ClockState]:
        """The states in the bucket. After the loss of its leader it may be silent for some seconds.

        If it does not answer for `_READ_S`, the leader goes on by the states that it has heard, and this returns none. A
        leader that has heard none waits on: its common time would begin anew, and jump.
        """
        until_s = asyncio.get_running_loop().time() + _READ_S
        while self._lease.revision:
            try:
                kept = await self._bus.present(CLOCKS)
            except _ERRORS as error:
                log.warning("clocks_not_read", reason=str(error) or type(error).__name__)
                heed_cancellation()
            else:
                heed_cancellation()
                return kept
            if asyncio.get_running_loop().time() > until_s and (self._following.states or self._said):
                break
            await asyncio.sleep(_AGAIN_S)
        return {}

    async def _collected(self) -> None:
        """Waits until all expected shards have told of a window, or patience is at an end."""
        window_s = self._settings.window_s
        await asyncio.sleep(self._closed_s + _APART * window_s - asyncio.get_running_loop().time())
        await self._wait_until(lambda: self._collection.begun, _SILENCE * window_s)
        await self._wait_until(lambda: self._collection.complete, _PATIENCE * window_s)
        self._closed_s = asyncio.get_running_loop().time()

    async def _wait_until(self, what: Callable[[], bool], patience_s: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(patience_s):
                while not what():
                    self._arrived.clear()
                    await self._arrived.wait()

    async def _solve(self, term: int) -> None:
        synchroniser, now_ns = self._synchroniser, self._clock.local_ns()
        parts = self._collection.take(now_ns)
        try:
            # In a thread, so that the lease is renewed meanwhile.
            states = await asyncio.to_thread(synchroniser.weigh, parts, now_ns)
        except NO_MATHEMATICS:
            # These fits make no mesh. The next window has others.
            log.exception("window_given_up", window=synchroniser.window)
            self._given_up += 1
            return
        self._given_up = 0
        states = [state for state in states if self._census.has_clock(state.clock)]
        for count, state in enumerate(states):
            if not count % _AT_ONCE:
                await asyncio.sleep(0)
                if self._lease.revision != term:
                    return
            await self._bus.publish(CLOCK, state, state.clock)
        self._report(states)
        # A clock that has left meanwhile is not written again.
        self._to_keep.update({state.clock: state for state in states if self._census.has_clock(state.clock)})
        self._kept.set()
        self._change_log.window(synchroniser.timescale, states)
        self._census.tell_of_nobody()
        self._left_out.tell(self._collection.rejected)

    async def _keep(self) -> None:
        """Writes the latest states into the bucket; a bucket that does not answer never delays a window."""
        while True:
            await self._kept.wait()
            self._kept.clear()
            states, self._to_keep = self._to_keep, {}
            if not states or not self._lease.revision:
                continue
            try:
                await self._bus.put_all(CLOCKS, states)
            except _ERRORS as error:
                log.warning("clocks_not_kept", count=len(states), reason=str(error) or type(error).__name__)
                heed_cancellation()

    def _report(self, states: list[ClockState]) -> None:
        for state in states:
            before = self._said.get(state.clock)
            was = "" if before is None else before.status
            if was != state.status:
                why = self._synchroniser.contradictions.get(state.clock) if state.status == "disrupted" else None
                log.info(
                    "clock_status_changed", clock=state.clock, status=state.status, was=was, bound_ns=state.bound_ns,
                    **(why._asdict() if why else {}),
                )  # fmt: skip
            if state.clock == state.reference and (before is None or before.reference != state.reference):
                log.info("reference_chosen", clock=state.clock)
        self._said = {state.clock: state for state in states}
