"""``GET /api/v1/stream``: the changes for live pages, as server-sent events."""

import contextlib
from collections.abc import AsyncIterator, Callable
from typing import Annotated

import msgspec
from litestar import get
from litestar.di import NamedDependency
from litestar.params import HeaderParameter, Parameter
from litestar.response import Stream
from litestar.types import ASGIApp, Receive, Scope, Send

from foliot_gateway.state.live_feed import Change, Missed, State, Tiles, Told
from foliot_gateway.subscription import Hub

_NAMES: dict[type[msgspec.Struct], str] = {Tiles: "tiles", Told: "event", Missed: "missed", State: "state"}
_RETRY = b"retry: 1000\n\n"
"""How long a browser waits before it connects anew, in milliseconds."""


def frame(change: Change) -> bytes:
    """A server-sent event (WHATWG HTML, 9.2): JSON in one line."""
    identity = f"id: {change.number}\n" if change.number else ""
    name = _NAMES[type(change.said)]
    return b"%sevent: %s\ndata: %s\n\n" % (identity.encode(), name.encode(), msgspec.json.encode(change.said))


async def frames(hub: Hub, last_id: str = "") -> AsyncIterator[bytes]:
    """All frames for one reader, from where it left off. It takes the next when it has sent the last."""
    yield _RETRY
    async with contextlib.aclosing(hub.follow(last_id)) as following:
        async for changes in following:
            yield b"".join(change.encoded(frame) for change in changes)


def in_places(hub: Hub) -> Callable[[ASGIApp], ASGIApp]:
    """Middleware: each request has its place until its answer has ended, however it ends.

    That also holds for an answer that ended before its first frame.
    """

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
    """Server-sent events: `state` each second, `tiles`, `event` and `missed`.

    `tiles` has first all, then what changed. `event` has first the newest, or what was missed.
    """
    return Stream(
        frames(hub, last_event_id or after),
        media_type="text/event-stream",
        # No cache may keep it, and nginx must not wait until it has a bufferful.
        headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no"},
    )
