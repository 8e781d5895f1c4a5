"""A watch of a bucket: its present values first, then every change, even one whose message was lost."""

from __future__ import annotations

import asyncio
import contextlib
import random
from typing import TYPE_CHECKING, Any, Protocol

from nats.js.errors import NotFoundError

from foliot.bus import connection, key_value_read
from foliot.bus.retry import BUS_ERRORS

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Iterator

    from foliot_schemas.subjects import Bucket

WRITTEN = "Foliot-Written"
"""Header of every value: its writer, and the number of the writing."""
_LONGEST_WRITTEN = 64
_MOST_TOLD = 1 << 18
"""Keys remembered. Beyond that many, keys that somebody makes up cannot be told from those of a fleet."""
_FIRST_LOOK_S = 1.0
_LOOK_S = 10.0
_MOST_AT_A_LOOK = 256
"""Values read by one look; the next look goes on after them."""


class _Tell(Protocol):
    async def __call__(self, token: str, data: bytes | None) -> None: ...


class KeyValueWatch:
    """Tells each value of a bucket, or of one key, to a handler.

    A change comes as a plain message of the bucket's own subject, sooner than through a consumer. Such a message can be lost. A server of a
    cluster does not forward it before it knows of the subscription, nor while the route between two servers is cut. So the watch also looks
    every 10 s for values that the bucket has stored since the last look. That is one request, and one more for each value stored.

    Parameters:
        client, stream: the NATS connection and its JetStream context.
        subject: of the keys that are watched.
        stored: the raw messages stored under them, with the marks of deleted keys.
        tell: called with the escaped key and its value; None: the key was deleted.
    """

    def __init__(
        self,
        client: Any,
        stream: Any,
        bucket: Bucket,
        subject: str,
        *,
        stored: Callable[[], AsyncGenerator[Any, None]],
        tell: _Tell,
    ) -> None:
        self._client = client
        self._stream = stream
        self._bucket = bucket
        self._subject = subject
        self._stored = stored
        self._tell = tell
        self._telling = 0
        self._changed: set[str] = set()
        self._told = _Told()
        self._next = 1
        """The first of the stream's numbers at which the watch has not looked."""

    async def begin(self) -> None:
        """Subscribes, and tells the present values.

        Raises:
            nats.errors.Error: the bus did not answer.
        """
        await self._client.subscribe(self._subject, cb=self._arrived)
        await connection.settle(self._client)
        await self.tell_present()

    async def tell_present(self) -> None:
        """Tells all present values, and which keys were deleted meanwhile.

        Raises:
            nats.errors.Error: the bus did not answer.
        """
        with self._telling_stored():
            last = (await self._stream.stream_info(f"KV_{self._bucket.name}")).state.last_seq
            async with contextlib.aclosing(self._stored()) as found:
                async for raw in found:
                    await self._tell_stored(raw)
        self._next = last + 1

    async def keep_looking(self) -> None:
        """Looks again and again, until cancelled. The nodes of a fleet begin together, so they look at different times."""
        pause_s = _FIRST_LOOK_S
        while True:
            await asyncio.sleep(pause_s * random.uniform(0.8, 1.2))  # noqa: S311 - nothing secret
            pause_s = _LOOK_S
            if self._client.is_connected:
                with contextlib.suppress(*BUS_ERRORS):  # the next look asks again
                    await self.look()

    async def look(self) -> None:
        """Tells the values that were stored since the last look and not told yet.

        Raises:
            nats.errors.Error: the bus did not answer.
        """
        for _ in range(_MOST_AT_A_LOOK):
            with self._telling_stored():
                try:
                    raw = await self._stream.get_msg(f"KV_{self._bucket.name}", self._next, self._subject, next=True)
                except NotFoundError:
                    return
                if not self._told.is_last(token_of(self._bucket, raw.subject), _written(raw)):
                    await self._tell_stored(raw)
            self._next = raw.seq + 1

    async def _arrived(self, raw: Any) -> None:
        token = token_of(self._bucket, raw.subject)
        if self._telling:
            self._changed.add(token)
        self._told.note(token, _written(raw))
        await self._tell(token, None if key_value_read.is_deleted(raw) else raw.data)

    @contextlib.contextmanager
    def _telling_stored(self) -> Iterator[None]:
        """Notes the keys that change meanwhile. They have been told already, with a value as new as the stored one or newer."""
        self._telling += 1
        try:
            yield
        finally:
            self._telling -= 1
            if not self._telling:
                self._changed.clear()

    async def _tell_stored(self, raw: Any) -> None:
        token, written = token_of(self._bucket, raw.subject), _written(raw)
        if token in self._changed or self._told.has_newer(token, written):
            return
        gone = key_value_read.is_deleted(raw)
        if not gone or token in self._told:  # deleted while nothing told us
            self._told.note(token, written)
            await self._tell(token, None if gone else bytes(raw.data or b""))


class _Told:
    """Remembers the last value told of each key. So the value before it never follows one that was heard, but was not stored."""

    def __init__(self) -> None:
        self._last: dict[str, tuple[str, int]] = {}

    def __contains__(self, token: str) -> bool:
        """Whether anything was told of this key."""
        return token in self._last

    def note(self, token: str, written: str) -> None:
        """Notes that a watcher was told of a key."""
        if len(self._last) >= _MOST_TOLD:
            self._last.clear()
        self._last[token] = _parted(written)

    def is_last(self, token: str, written: str) -> bool:
        """Whether this very writing was told last."""
        return self._last.get(token) == _parted(written)

    def has_newer(self, token: str, written: str) -> bool:
        """Whether a value that the same writer wrote later has been told already."""
        writer, number = _parted(written)
        last = self._last.get(token)
        return last is not None and bool(number) and last[0] == writer and number < last[1]


def _parted(written: str) -> tuple[str, int]:
    writer, _, number = written[:_LONGEST_WRITTEN].partition("/")
    return writer, int(number) if number.isascii() and number.isdecimal() else 0


def token_of(bucket: Bucket, subject: str) -> str:
    """The escaped key. One of several tokens stays whole, so that it is refused and not taken for its last token."""
    return subject.removeprefix(f"$KV.{bucket.name}.")


def _written(raw: Any) -> str:
    """The mark of a writing. Another tool numbers none, so its value stands for the number."""
    said = str((raw.headers or {}).get(WRITTEN, ""))
    return said or f"={hash((key_value_read.is_deleted(raw), bytes(raw.data or b'')))}"
