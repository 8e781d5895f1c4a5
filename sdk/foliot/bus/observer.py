"""A connection that listens and never writes. It needs no more rights than reading, and makes no stream and no bucket.

Tools are built on it; services have `Bus`.
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
from typing import TYPE_CHECKING, Any, NamedTuple, Self
from urllib.parse import urlsplit

import nats
import nats.errors
from nats.js import api
from nats.js.errors import NotFoundError

from foliot.bus import key_value_read
from foliot.bus.connection import options
from foliot.bus.recent_ids import RecentIds
from foliot.bus.retry import BUS_ERRORS, in_words
from foliot.bus.stream_read import began_anew, stored

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable

    from foliot.settings import BusSettings

_WHO = "reader"
"""The role whose credentials it takes from a directory."""
_RETRY_S = 0.5
_PING_S = 2
"""Interval of pings. The client notices a bus that is away after two unanswered ones."""
_ANSWER_S = 5.0
"""A stream answers within milliseconds. A machine or a disk that stands still for some seconds is no reason to leave a
stream's messages out."""
_TRIES = 20
"""How often it asks for streams after a reconnection. A server that has just started may need ten seconds to have them
ready."""
_IDS = 65_536
"""Message ids remembered to drop second deliveries."""


class Heard(NamedTuple):
    """A message as it came."""

    subject: str
    data: bytes
    headers: dict[str, str]
    arrived_ns: int
    """CLOCK_REALTIME of this host, or, where a stream kept it, of the server when it was stored."""


class NoBusError(Exception):
    """There is no bus to listen to. The message says whether it did not answer in time, or refuses the credentials."""


class Observer:
    """Hears subjects, and the messages that streams have kept of them, each once. Make it by `connect`.

    Parameters:
        say: is told in a sentence, for a person, that the bus is away, is back, or forbids something.
    """

    def __init__(self, say: Callable[[str], None], now_ns: Callable[[], int]) -> None:
        self._say = say
        self._now_ns = now_ns
        self._client = nats.NATS()
        self._jetstream = self._client.jetstream(timeout=_ANSWER_S)
        self._queue: asyncio.Queue[Heard | None] = asyncio.Queue()
        """Messages heard; None: the connection was lost, and is there again."""
        self._ids = RecentIds(_IDS)
        self._marks: dict[str, tuple[dt.datetime | None, int]] = {}
        """For each stream when it was made, and its last number then; None: it was not there yet."""
        self._began_ns = now_ns()
        self._said: set[str] = set()
        self._refusal = asyncio.Event()
        self._leaving = False
        self._patient = True
        self._trouble: Exception = TimeoutError()
        self.place = ""
        """Hosts and ports of the bus."""

    @classmethod
    async def connect(
        cls, settings: BusSettings, say: Callable[[str], None], now_ns: Callable[[], int], within_s: float | None = None
    ) -> Self:
        """Connects, and waits for as long as it takes, or not longer than `within_s`.

        Raises:
            NoBusError: the bus did not answer within that time, or does not accept the credentials.
            SettingsError: a file that the settings name cannot be read.
        """
        listener = cls(say, now_ns)
        listener.place = _place(settings.url)
        listener._patient = within_s is None
        connecting = asyncio.ensure_future(
            listener._client.connect(
                **options(settings, _WHO), max_reconnect_attempts=-1, reconnect_time_wait=_RETRY_S,
                ping_interval=_PING_S, max_outstanding_pings=2, connect_timeout=2, allow_reconnect=True,
                reconnected_cb=listener._reconnected, disconnected_cb=listener._disconnected, error_cb=listener._failed,
            )
        )  # fmt: skip
        refused = asyncio.ensure_future(listener._refusal.wait())
        try:
            ready, _ = await asyncio.wait({connecting, refused}, return_when=asyncio.FIRST_COMPLETED, timeout=within_s)
        finally:
            refused.cancel()
            connecting.cancel()
        if listener._refusal.is_set():
            raise NoBusError(f"the bus at {listener.place} refuses our credentials")
        if not ready:
            raise NoBusError(f"the bus at {listener.place} does not answer: {in_words(listener._trouble)}")
        await connecting
        listener._patient = True
        return listener

    async def close(self) -> None:
        """Ends the connection."""
        self._leaving = True
        with contextlib.suppress(*BUS_ERRORS):
            await self._client.close()

    # -- what is heard ------------------------------------------------------------------------------------------------

    async def subscribe(self, subjects: Iterable[str]) -> None:
        """Listens to these subjects from now on."""

        async def arrived(raw: Any) -> None:
            self._queue.put_nowait(Heard(raw.subject, raw.data, raw.headers or {}, self._now_ns()))

        for subject in subjects:
            await self._client.subscribe(subject, cb=arrived)
        with contextlib.suppress(*BUS_ERRORS):
            await self._client.flush()

    async def heard(self, kept: Iterable[tuple[str, str]] = ()) -> AsyncGenerator[Heard, None]:
        """Everything subscribed to, as it comes.

        After a lost connection, what the streams and subjects of `kept` kept meanwhile comes first.
        """
        kept = tuple(kept)
        await self._mark(stream for stream, _ in kept)
        while True:
            item = await self._queue.get()
            for each in [item] if item else await self._missed(kept):
                if self._is_new(each):
                    yield each

    async def since(self, stream: str, subject: str, age_s: float) -> list[Heard]:
        """The messages of a subject that a stream has kept, no older than this age."""
        return await self._or_nothing(stream, self._kept(stream, subject, **_since(self._now_ns() / 1e9 - age_s)))

    async def last(self, stream: str, subject: str, count: int) -> list[Heard]:
        """The newest messages that a stream has kept of a subject."""
        return await self._or_nothing(stream, self._last(stream, subject, count))

    async def present(self, bucket: str, subject: str) -> list[Heard]:
        """The present values of a bucket's keys."""
        return await self._or_nothing(f"KV_{bucket}", self._values(bucket, subject))

    def note(self, heard: Iterable[Heard]) -> list[Heard]:
        """Returns, by time, the new ones of the messages read from streams; `heard` does not bring them again."""
        return [each for each in sorted(heard, key=lambda each: each.arrived_ns) if self._is_new(each)]

    # -- inside -------------------------------------------------------------------------------------------------------

    def _is_new(self, heard: Heard) -> bool:
        identity = heard.headers.get("Nats-Msg-Id", "")
        return not identity or self._ids.add(identity)

    async def _missed(self, kept: tuple[tuple[str, str], ...]) -> list[Heard]:
        """The messages that streams have stored since the last look, as long as they remember.

        Of a stream that has not answered yet, those since the start.
        """
        missed: list[Heard] = []
        for stream, subject in kept:
            for _ in range(_TRIES):
                try:
                    if stream in self._marks:
                        info = await self._jetstream.stream_info(stream)
                        last = 0 if began_anew(info, *self._marks[stream]) else self._marks[stream][1]
                        missed += await self._from(stream, subject, last + 1)
                    else:
                        missed += await self._kept(stream, subject, **_since(self._began_ns / 1e9))
                    break
                except BUS_ERRORS as error:
                    failure = error
                    await asyncio.sleep(_RETRY_S)
            else:
                self._unread(stream, failure)
        await self._mark(stream for stream, _ in kept)
        return sorted(missed, key=lambda each: each.arrived_ns)

    async def _mark(self, streams: Iterable[str]) -> None:
        """Remembers how far each stream is. Later messages that are not heard have been missed."""
        for stream in set(streams):
            try:
                info = await self._jetstream.stream_info(stream)
                self._marks[stream] = info.created, info.state.last_seq
            except BUS_ERRORS as error:
                if isinstance(error, NotFoundError):  # all that it will have is new
                    self._marks.setdefault(stream, (None, 0))
                self._unread(stream, error)

    async def _last(self, stream: str, subject: str, count: int) -> list[Heard]:
        state = (await self._jetstream.stream_info(stream)).state
        oldest, reach = max(state.first_seq, 1), 4 * count
        while True:
            first = max(oldest, state.last_seq - reach + 1)
            found = await self._from(stream, subject, first)
            if len(found) >= count or first == oldest:
                return found[-count:]
            reach *= 4

    async def _from(self, stream: str, subject: str, first: int) -> list[Heard]:
        where = {"deliver_policy": api.DeliverPolicy.BY_START_SEQUENCE, "opt_start_seq": first}
        return await self._kept(stream, subject, **where)

    async def _kept(self, stream: str, subject: str, **where: Any) -> list[Heard]:
        found = await stored(self._jetstream, stream, subject, **where)
        return [Heard(raw.subject, raw.data, raw.headers or {}, _ns(raw.metadata.timestamp)) for raw in found]

    async def _values(self, bucket: str, subject: str) -> list[Heard]:
        subjects = await key_value_read.subjects(self._client, bucket, subject)
        return [
            Heard(raw.subject, bytes(raw.data or b""), raw.headers or {}, _ns(raw.time))
            async for raw in key_value_read.values(self._jetstream, bucket, subjects)
            if not key_value_read.is_deleted(raw)
        ]

    async def _or_nothing(self, stream: str, read: Awaitable[list[Heard]]) -> list[Heard]:
        try:
            return await read
        except BUS_ERRORS as error:
            self._unread(stream, error)
            return []

    def _unread(self, stream: str, error: Exception) -> None:
        what = f"bucket {stream.removeprefix('KV_')}" if stream.startswith("KV_") else f"stream {stream}"
        if isinstance(error, NotFoundError):
            self._once(f"the bus has no {what} yet")
        else:
            self._once(f"the {what} cannot be read ({str(error) or type(error).__name__})")

    def _once(self, sentence: str) -> None:
        if sentence not in self._said:
            self._said.add(sentence)
            self._say(sentence)

    @property
    def _away(self) -> str:
        return f"the bus at {self.place} is away; waiting for it"

    async def _reconnected(self) -> None:
        self._said.clear()
        self._say(f"the bus at {self.place} is back")
        self._queue.put_nowait(None)

    async def _disconnected(self) -> None:
        if not self._leaving:
            self._once(self._away)

    async def _failed(self, error: Exception) -> None:
        if isinstance(error, nats.errors.AuthorizationError) or "Authorization Violation" in str(error):
            self._refusal.set()
        elif "permissions violation" in str(error).lower():
            self._once(f"the bus forbids: {str(error).removeprefix('nats: ')}")
        elif not self._client.is_connected:
            self._trouble = error
            if self._patient:
                self._once(self._away)


def _place(url: str) -> str:
    """The hosts and ports of addresses, without the user and password that these may hold."""
    places = [urlsplit(each if "//" in each else f"//{each}") for each in url.replace(" ", "").split(",")]
    return ", ".join(f"{place.hostname}:{place.port or 4222}" for place in places)


def _since(at_s: float) -> dict[str, Any]:
    """Where a consumer begins that delivers what was stored since this time of the epoch."""
    start = dt.datetime.fromtimestamp(at_s, tz=dt.UTC)
    return {"deliver_policy": api.DeliverPolicy.BY_START_TIME, "opt_start_time": start}


def _ns(at: dt.datetime) -> int:
    return round(at.timestamp() * 1e9)
