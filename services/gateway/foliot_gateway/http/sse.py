"""``GET /api/v1/stream``: what live pages are told, as server-sent events."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Annotated

from litestar import get
from litestar.di import NamedDependency
from litestar.params import HeaderParameter, Parameter
from litestar.response import Stream
from litestar.types import ASGIApp, Receive, Scope, Send

from foliot_gateway.http.problems import ProblemError
from foliot_gateway.state.live_feed import Board, State, frame
from foliot_gateway.state.store import Store

_LOOK_S = 0.1
"""Tiles are told ten times a second at most: faster than an eye follows, and a storm of changes costs no more than a few."""
_LOOKS_A_BEAT = 10
_RETRY = b"retry: 1000\n\n"
"""How long a browser waits before it connects anew, in milliseconds."""


class Hub:
    """Looks at what is known, once for all readers, and wakes them when there is something new.

    Parameters:
        now_ns: reference time.
    """

    def __init__(self, store: Store, now_ns: Callable[[], int] = time.time_ns) -> None:
        self._store = store
        self._now_ns = now_ns
        self._board = Board()
        self._state = b""
        self._telling = (False, False, False)
        """What the last word of the state said of the bus, of the past and of whether a probe has ever spoken."""
        self._beat = 0
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
        telling = store.bus_connected, store.history_read, store.heard_s is not None
        beat, self._telling = beat or telling != self._telling, telling
        changed = self._board.update(self._store.fleet.changed_tiles())
        changed |= self._store.journal.last > self._told
        self._told = self._store.journal.last
        if beat:
            self._beat += 1
            self._state = frame("state", self._describe())
        if changed or beat:
            turn, self._turn = self._turn, asyncio.Event()
            turn.set()

    def close(self) -> None:
        """Ends all readers."""
        self._closed = True
        self._turn.set()

    @contextlib.contextmanager
    def place(self) -> Iterator[None]:
        """One of the places that there are for readers. Nothing is awaited between the look and the taking, so that no burst gets past the limit.

        Raises:
            ProblemError: there is none left.
        """
        limit = self._store.settings.streams
        if self.readers >= limit:
            raise ProblemError(
                503, f"{limit} live pages are open, which is the limit; gateway.streams raises it.", "busy"
            )
        self.readers += 1
        try:
            yield
        finally:
            self.readers -= 1

    async def follow(self, last_id: str = "") -> AsyncIterator[bytes]:
        """All frames for one reader, from where it left off; it takes the next when it has sent the last."""
        journal, board = self._store.journal, self._board
        version, beat, number = 0, 0, None
        yield _RETRY
        while not self._closed:
            turn = self._turn
            frames = b""
            if version != board.version:
                frames, version = board.since(version), board.version
            if number is None and journal.is_open:
                number = journal.start(last_id)
            if number is not None:
                frames, number = frames + journal.after(number), journal.last
            # The first word of the state comes last, so that a page which has it has all that there was. Later ones come first: nothing that
            # came over the bus stands beside an earlier word, by which the bus is not reached.
            if beat != self._beat:
                frames = self._state + frames if beat else frames + self._state
                beat = self._beat
            if frames:
                yield frames
            else:
                await turn.wait()

    def _describe(self) -> State:
        heard_s = self._store.heard_s
        return State(
            now_ns=self._now_ns(),
            bus=self._store.bus_connected,
            past=self._store.history_read,
            heard_ms=None if heard_s is None else round((time.monotonic() - heard_s) * 1e3),
        )


def in_places(hub: Hub) -> Callable[[ASGIApp], ASGIApp]:
    """Middleware: each request has its place until its answer has ended, however it ends; also one that ended before its first frame."""

    def placed(app: ASGIApp) -> ASGIApp:
        async def answer(scope: Scope, receive: Receive, send: Send) -> None:
            with hub.place():
                await app(scope, receive, send)

        return answer

    return placed


@get("/api/v1/stream", tags=["live"], media_type="text/event-stream")
async def get_stream(
    hub: NamedDependency[Hub],
    last_event_id: Annotated[
        str, HeaderParameter(name="Last-Event-ID", description="Sent by browsers when they connect anew")
    ] = "",
    after: Annotated[str, Parameter(description="As Last-Event-ID, for clients that cannot set it")] = "",
) -> Stream:
    """Server-sent events: `state` each second, `tiles` (first all, then what changed), `event` (first the newest, or what was missed), `missed`."""
    return Stream(
        hub.follow(last_event_id or after),
        media_type="text/event-stream",
        # No cache may keep it, and nginx must not wait until it has a bufferful.
        headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no"},
    )
