"""A watch of a bucket: its present values first, then every change, even one whose message was lost."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

from nats.js.errors import NotFoundError

from foliot.bus import connection, key_value_read
from foliot.bus.retry import BUS_ERRORS, until_done
from foliot.bus.stream_read import began_anew

if TYPE_CHECKING:
    import datetime as dt
    from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator

    from foliot_schemas.subjects import Bucket

WRITTEN = "Foliot-Written"
"""Header of every value: its writer, the revision of the lease that it wrote under (0: none), and the number of the
writing."""
_LONGEST_WRITTEN = 64
_MOST_TOLD = 1 << 18
"""Keys remembered. Beyond that many, keys that somebody makes up cannot be told from those of a fleet."""
_MOST_AT_A_LOOK = 256
"""Values read by one look; the next look goes on after them."""


class KeyValueWatch:
    """Tells each value of a bucket, or of one key, to a handler.

    A change comes as a plain message of the bucket's own subject, sooner than through a consumer. Such a message can be
    lost. A server of a cluster does not forward it before it knows of the subscription, nor while the route between two
    servers is cut. So the watch also looks now and then for values that the bucket has stored since the last look
    (`MissedChanges`). Telling and looking raise `nats.errors.Error` if the bus did not answer.

    Parameters:
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
        tell: Callable[[str, bytes | None], Awaitable[None]],
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
        self._created: dt.datetime | None = None
        """When the stream that gave this number was made."""

    async def begin(self) -> None:
        """Subscribes, and tells the present values, as soon as the bus answers."""
        await self._client.subscribe(self._subject, cb=self._arrived)
        await connection.flush(self._client)
        await until_done(self.tell_present, "present_awaited", bucket=self._bucket.name)

    async def tell_present(self) -> None:
        """Tells all present values, and which keys were deleted meanwhile."""
        with self._telling_stored():
            info = await self._stream.stream_info(f"KV_{self._bucket.name}")
            undecided = info.state.last_seq + 1
            async with contextlib.aclosing(self._stored()) as found:
                async for raw in found:
                    if not await self._tell_stored(raw):
                        undecided = min(undecided, _number(raw))
        self._next, self._created = undecided, info.created

    async def look(self, info: Any) -> None:
        """Tells the values that were stored since the last look and not told yet.

        `info` is nats-py's of the bucket's stream, now.
        """
        if began_anew(info, self._created, self._next - 1):
            await self.tell_present()
            return
        for _ in range(_MOST_AT_A_LOOK):
            first = self._next
            if first > info.state.last_seq:
                return
            with self._telling_stored():
                raw = await self._stored_from(first)
                if self._next != first:
                    return  # all present values were told meanwhile
                self._next = info.state.last_seq + 1 if raw is None else raw.seq + 1
                if raw is None:
                    return
                is_told = self._told.is_last(token_of(self._bucket, raw.subject), _written(raw))
                if not is_told and not await self._tell_stored(raw):
                    self._next = raw.seq
                    return

    async def _stored_from(self, number: int) -> Any | None:
        try:
            return await self._stream.get_msg(f"KV_{self._bucket.name}", number, self._subject, next=True)
        except NotFoundError:
            return None

    async def _arrived(self, raw: Any) -> None:
        token, written = token_of(self._bucket, raw.subject), _written(raw)
        if self._told.has_newer(token, written):
            return  # a look was quicker than this message
        if self._told.has_later_lease(token, written):
            await self._ask(token, raw.subject)
            return
        if self._telling:
            self._changed.add(token)
        self._told.note(token, written)
        await self._tell(token, None if key_value_read.is_deleted(raw) else raw.data)

    async def _ask(self, token: str, subject: str) -> None:
        """Tells what the bucket has of a key, unless that was told last.

        If the bus does not answer, the next look finds it.
        """
        with contextlib.suppress(*BUS_ERRORS), self._telling_stored():
            raw = await self._stream.get_last_msg(f"KV_{self._bucket.name}", subject)
            if not self._told.is_last(token, _written(raw)):
                await self._tell_stored(raw)

    @contextlib.contextmanager
    def _telling_stored(self) -> Iterator[None]:
        """Notes the keys that change meanwhile. Their new values have been told already."""
        self._telling += 1
        try:
            yield
        finally:
            self._telling -= 1
            if not self._telling:
                self._changed.clear()

    async def _tell_stored(self, raw: Any) -> bool:
        """Tells a stored value, unless a newer one was told.

        Returns False if nobody can say yet which of two is newer: this one, or the one of another writer that arrived
        meanwhile. A message may arrive late, and the message of a later value may be lost. So the next look asks again.
        """
        token, written = token_of(self._bucket, raw.subject), _written(raw)
        if self._told.has_newer(token, written):
            return True
        if token in self._changed and not self._told.has_older(token, written):
            return self._told.is_last(token, written)
        gone = key_value_read.is_deleted(raw)
        if not gone or token in self._told:  # deleted while nothing told us
            self._told.note(token, written)
            await self._tell(token, None if gone else bytes(raw.data or b""))
        return True


class _Told:
    """Remembers the last value told of each key.

    So the value before it never follows one that was heard, but was not stored.
    """

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
        """Whether a value that the same writer wrote later was told last."""
        return self._lead(token, written) > 0

    def has_older(self, token: str, written: str) -> bool:
        """Whether a value that the same writer wrote earlier was told last."""
        return self._lead(token, written) < 0

    def has_later_lease(self, token: str, written: str) -> bool:
        """Whether a value that was written under a later lease was told last.

        A former holder's may come late, or the bus counts leases anew.
        """
        last, _ = self._last.get(token, ("", 0))
        return 0 < _lease(written) < _lease(last)

    def _lead(self, token: str, written: str) -> int:
        """How far the number told last is ahead of this one. 0: they are the same, of two writers, or no numbers."""
        writer, number = _parted(written)
        last, told = self._last.get(token, ("", 0))
        return told - number if last == writer and number and told else 0


def _parted(written: str) -> tuple[str, int]:
    writer, _, number = written[:_LONGEST_WRITTEN].partition("/")
    return writer, _count(number)


def _lease(written: str) -> int:
    writer, _ = _parted(written)
    return _count(writer.partition(".")[2])


def _count(digits: str) -> int:
    return int(digits) if digits.isascii() and digits.isdecimal() else 0


def token_of(bucket: Bucket, subject: str) -> str:
    """The escaped key. One of several tokens stays whole, so that it is refused and not taken for its last token."""
    return subject.removeprefix(f"$KV.{bucket.name}.")


def _number(raw: Any) -> int:
    """The number of a stored message, whether it was asked for or came from a consumer."""
    return int(getattr(raw, "seq", None) or raw.metadata.sequence.stream)


def _written(raw: Any) -> str:
    """The mark of a writing. Another tool numbers none, so its value stands for the number."""
    said = str((raw.headers or {}).get(WRITTEN, ""))
    return said or f"={hash((key_value_read.is_deleted(raw), bytes(raw.data or b'')))}"
