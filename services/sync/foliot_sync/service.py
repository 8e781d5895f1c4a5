"""The shell of sync: stamps off the bus, the states of clocks onto it, once a window."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import nats.errors
import numpy as np
import structlog

from foliot.clock import BusClock
from foliot.service import on_bus
from foliot.settings import load
from foliot_schemas.subjects import CLOCK, CLOCKS, INVENTORY, STAMPS
from foliot_sync.announcing import Announcer
from foliot_sync.asymmetry import Asymmetries
from foliot_sync.muster import Muster
from foliot_sync.roster import Roster
from foliot_sync.settings import NANOSECONDS, SyncSettings
from foliot_sync.synchroniser import Synchroniser

if TYPE_CHECKING:
    from foliot.bus import Bus
    from foliot_schemas import Node
    from foliot_schemas.clock import ClockState
    from foliot_schemas.observation import StampBatch

log = structlog.get_logger()

_TELL_S = 60.0
_ERRORS = (nats.errors.Error, OSError, TimeoutError)


class Sync:
    """Feeds a synchroniser from the bus and publishes what it says."""

    def __init__(self, bus: Bus, clock: BusClock, settings: SyncSettings) -> None:
        self._bus = bus
        self._clock = clock
        self._window_ns = settings.window_ns
        self._ended = 0
        """The number of the window that ended last, in the reference time."""
        self._muster = Muster(settings.window_s)
        self._synchroniser = Synchroniser(settings)
        self._roster = Roster()
        self._asymmetries = Asymmetries(settings.asymmetry_ns)
        self._not_there: list[str] = []
        self._announcer = Announcer(settings)
        self._left_out: dict[str, int] = {}
        self._tell_from_s = 0.0
        self._said: dict[str, ClockState] = {}
        self._started = False
        self._to_keep: dict[str, ClockState] = {}
        self._kept = asyncio.Event()

    async def run(self) -> None:
        """Takes up the time scale that it left, then closes a window after the other, forever."""
        await self._bus.watch(CLOCKS, self._on_kept)
        self._started = True
        self._synchroniser.resume(self._said.values())
        await self._bus.watch(INVENTORY, self._on_node)
        await self._bus.subscribe(STAMPS, self._on_stamps)
        log.info("sync_started", window_s=self._window_ns / NANOSECONDS)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._keep())
            tasks.create_task(self._close_windows())

    async def _on_kept(self, key: str, state: ClockState | None) -> None:
        # Afterwards it is we who write them.
        if not self._started and state is not None:
            self._said[key] = state

    async def _on_node(self, key: str, node: Node | None) -> None:
        self._roster.learn(key, node)
        for clock in [clock for clock in self._to_keep if not self._roster.has_clock(clock)]:
            del self._to_keep[clock]

    async def _on_stamps(self, batch: StampBatch, subject: str) -> None:  # noqa: ARG002 - the bus hands handlers both
        known = self._roster.admit(batch)
        if known is None:
            return
        self._synchroniser.add(known, self._clock.local_ns())
        at_ns = self._synchroniser.reference_ns(batch.node, batch.until_ns)
        if at_ns is not None:
            self._clock.learn(at_ns)
        self._muster.heard(batch.node)

    async def _window_end(self) -> None:
        """Until the window that nodes are in has ended. One that was slept through is not made up for: its stamps are in this one."""
        now_ns = self._clock.now_ns()
        number = now_ns // self._window_ns + 1
        if number == self._ended:
            number += 1  # the time was set back by less than was slept too long
        await asyncio.sleep((number * self._window_ns - now_ns) / NANOSECONDS)
        self._ended = number

    async def _close_windows(self) -> None:
        while True:
            await self._window_end()
            await self._muster.gather()
            try:
                states = self._synchroniser.solve(self._clock.local_ns())
            except (ArithmeticError, ValueError, RuntimeError, np.linalg.LinAlgError):
                # Stamps that fit into no mathematics: the next window has others.
                log.exception("window_given_up", window=self._synchroniser.window)
                continue
            # Who has left is forgotten by all others, and its key in the bucket is gone: it is not written again.
            states = [state for state in states if self._roster.has_clock(state.clock)]
            for state in states:
                await self._bus.publish(CLOCK, state, state.clock)
            self._report(states)
            self._to_keep.update({state.clock: state for state in states})
            self._kept.set()
            self._tell_left_out()
            self._tell_not_there()
            self._announcer.window(self._synchroniser.timescale)

    def _tell_left_out(self) -> None:
        """A node whose stamps are not those that its inventory record promises never gets into step: that is worth a word."""
        now_s = asyncio.get_running_loop().time()
        if now_s >= self._tell_from_s and self._left_out != (left_out := dict(self._roster.foreign)):
            self._left_out, self._tell_from_s = left_out, now_s + _TELL_S
            log.warning("stamps_left_out", streams=left_out)

    def _tell_not_there(self) -> None:
        """An asymmetry of a NIC that the inventory does not have corrects nothing: perhaps its name is a slip."""
        if self._roster.nics and self._not_there != (not_there := self._asymmetries.unknown(self._roster.nics)):
            self._not_there = not_there
            if not_there:
                log.warning("asymmetry_of_nobody", names=not_there)

    async def _keep(self) -> None:
        """Writes the latest states into the bucket; a bucket that does not answer never delays a window."""
        while True:
            await self._kept.wait()
            self._kept.clear()
            states, self._to_keep = self._to_keep, {}
            results = await asyncio.gather(*(self._put(state) for state in states.values()))
            reasons = sorted({reason for reason in results if reason})
            if reasons:
                log.warning("clocks_not_kept", count=sum(map(bool, results)), reasons=reasons)

    async def _put(self, state: ClockState) -> str:
        """Why it could not be kept; empty: it was. The next window brings a newer one."""
        try:
            await self._bus.put(CLOCKS, state.clock, state)
        except _ERRORS as error:
            return str(error) or type(error).__name__
        return ""

    def _report(self, states: list[ClockState]) -> None:
        for state in states:
            before = self._said.get(state.clock)
            if before is None or before.status != state.status:
                was = "" if before is None else before.status
                log.info(
                    "clock_status_changed", clock=state.clock, status=state.status, was=was, bound_ns=state.bound_ns
                )
            if state.clock == state.reference and (before is None or before.reference != state.reference):
                log.info("reference_chosen", clock=state.clock)
            self._said[state.clock] = state


async def main() -> None:
    """Runs sync until it is cancelled."""
    settings, clock = load(SyncSettings, "sync"), BusClock("sync")
    async with on_bus("sync", clock) as bus:
        await Sync(bus, clock, settings).run()
