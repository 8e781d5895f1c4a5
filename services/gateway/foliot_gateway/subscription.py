"""The subscription that every transport serves: all there is, then each change. A slow reader delays no other."""

from __future__ import annotations

import asyncio
import contextlib
import time
from typing import TYPE_CHECKING

from foliot_gateway.state.live_feed import Board, Change, State
from foliot_gateway.state.queries import BusyError

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Iterator

    from foliot_gateway.state.store import Store

_LOOK_S = 0.1
"""Tiles are told ten times a second at most. That is faster than an eye follows, and a storm of changes costs no
more than a few."""
_LOOKS_A_BEAT = 10


class Hub:
    """Looks at the store, once for all readers, and wakes them when there is something new.

    `now_ns` tells reference time.
    """

    def __init__(self, store: Store, now_ns: Callable[[], int] = time.time_ns) -> None:
        self._store, self._now_ns = store, now_ns
        self._board = Board()
        self._state: Change | None = None
        self._telling = (False, False, False)
        """The last word of the state on the bus, on the past and on whether a probe has ever spoken."""
        self._told = 0
        """Events that readers were woken for."""
        self._turn = asyncio.Event()
        self._closed = False
        self.readers = 0
        """Places that are taken."""

    async def run(self) -> None:
        """Looks until cancelled."""
        while True:
            for look in range(_LOOKS_A_BEAT):
                self.look(beat=not look)
                await asyncio.sleep(_LOOK_S)

    def look(self, *, beat: bool) -> None:
        """Takes up what has changed; a beat tells how the gateway is, and so does a change of it.

        Otherwise pages would say for a second that the bus is not reached, beside tiles that came over it.
        """
        store = self._store
        telling = store.bus_connected, store.journal.is_open, store.heard_s is not None
        beat, self._telling = beat or telling != self._telling, telling
        changed = self._board.update(store.fleet.changed_tiles())
        changed |= store.journal.last > self._told
        self._told = store.journal.last
        if beat:
            heard_ms = None if store.heard_s is None else round((time.monotonic() - store.heard_s) * 1e3)
            bus, past = store.bus_connected, store.journal.is_open
            self._state = Change(State(now_ns=self._now_ns(), bus=bus, past=past, heard_ms=heard_ms))
        if changed or beat:
            turn, self._turn = self._turn, asyncio.Event()
            turn.set()

    def close(self) -> None:
        """Ends all readers."""
        self._closed = True
        self._turn.set()

    @contextlib.contextmanager
    def place(self) -> Iterator[None]:
        """One of the places that there are for readers.

        Nothing is awaited between the look and the taking, so that no burst gets past the limit.

        Raises:
            BusyError: there is none left.
        """
        limit = self._store.settings.streams
        if self.readers >= limit:
            raise BusyError(f"{limit} live pages are open, which is the limit; gateway.streams raises it.", "busy")
        self.readers += 1
        try:
            yield
        finally:
            self.readers -= 1

    async def follow(self, last_id: str = "") -> AsyncGenerator[tuple[Change, ...]]:
        """All changes for one reader, from where it left off. It takes the next when it has sent the last."""
        journal, board = self._store.journal, self._board
        version, number, said = 0, None, None
        while not self._closed:
            turn = self._turn
            changes: tuple[Change, ...] = ()
            if version != board.version:
                changes, version = (board.since(version),), board.version
            if number is None and journal.is_open:
                number = journal.start(last_id)
            if number is not None:
                changes, number = (*changes, *journal.after(number)), journal.last
            # The first word of the state comes last, so that a reader which has it has all that there was. Later ones
            # come first: nothing that came over the bus stands beside an earlier word, by which the bus is not reached.
            if self._state is not None and self._state is not said:
                changes = (self._state, *changes) if said else (*changes, self._state)
                said = self._state
            if changes:
                yield changes
            else:
                await turn.wait()

    async def turns(self) -> AsyncGenerator[None]:
        """Turns, until all readers are ended: one at once, then at every change, and each second at least."""
        while not self._closed:
            turn = self._turn
            yield
            await turn.wait()
