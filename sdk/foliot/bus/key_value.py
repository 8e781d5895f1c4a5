"""Key-value buckets: the present state, one key per thing. `Bus` offers them to services."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import secrets
from typing import TYPE_CHECKING, Any

import nats.errors
import structlog
from nats.js import api
from nats.js.errors import BucketNotFoundError

from foliot.bus import connection, key_value_read
from foliot.bus.provisioning import make_bucket
from foliot.bus.retry import heed_cancellation
from foliot.bus.stream_read import each_stored
from foliot_schemas import WireError, decode, encode
from foliot_schemas.names import unescape
from foliot_schemas.permissions import NODE_ROLES
from foliot_schemas.subjects import BUCKETS

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Mapping

    import msgspec

    from foliot.bus.dispatch import About
    from foliot_schemas.subjects import Bucket

    KeyHandler = Callable[[str, Any], Awaitable[None]]
    Reject = Callable[[str, bytes, str], Awaitable[None]]

log = structlog.get_logger()

_WRITTEN = "Foliot-Written"
"""Header of every value: its writer, and the number of the writing."""
_LONGEST_WRITTEN = 64
_AT_ONCE = 256
"""Keys that are written before other tasks get their turn."""
_MOST_TOLD = 1 << 18
"""Keys remembered. Beyond that many, keys that somebody makes up cannot be told from those of a fleet."""


class KeyValue:
    """The buckets of one connection.

    Parameters:
        client, stream: the NATS connection and its JetStream context.
        reject: called with subject, data and reason for a value that cannot be read.
    """

    def __init__(self, client: Any, stream: Any, replicas: int, reject: Reject, *, makes: bool) -> None:
        self._client = client
        self._stream = stream
        self._replicas = replicas
        self._reject = reject
        self._makes = makes
        self._stores: dict[str, Any] = {}
        self._writer = secrets.token_hex(4)
        self._numbers = itertools.count(1)

    def forget(self) -> None:
        """Forgets all buckets, because the server may have lost those in its memory. The next use asks for each again."""
        self._stores.clear()

    async def open(self) -> None:
        """Makes every bucket that is not there. A connection that makes none looks for those that nodes read or write.

        It looks for no others: a node may be updated before the first service that makes a new bucket of the central services.

        Raises:
            BucketNotFoundError: one is not there.
        """
        for bucket in BUCKETS:
            if self._makes or {*NODE_ROLES} & {*bucket.readers, *bucket.writers}:
                await self.store(bucket)

    async def store(self, bucket: Bucket) -> Any:
        """The nats-py key-value store of a bucket, made if it is not there and this connection makes buckets.

        Raises:
            BucketNotFoundError: it is not there.
        """
        if bucket.name not in self._stores:
            try:
                self._stores[bucket.name] = await self._stream.key_value(bucket.name)
            except BucketNotFoundError:
                if not self._makes:
                    raise
                await make_bucket(self._stream, bucket, self._replicas)
                self._stores[bucket.name] = await self._stream.key_value(bucket.name)
        return self._stores[bucket.name]

    async def put(self, bucket: Bucket, key: str, message: msgspec.Struct) -> int:
        """Writes a key and returns its revision.

        Raises:
            nats.errors.Error: the bus did not store it.
        """
        await self.store(bucket)
        written = f"{self._writer}/{next(self._numbers)}"
        acknowledged = await self._stream.publish(bucket.subject(key), encode(message), headers={_WRITTEN: written})
        heed_cancellation()
        return int(acknowledged.seq)

    async def put_all(self, bucket: Bucket, messages: Mapping[str, msgspec.Struct]) -> None:
        """Writes many keys, at least one, and waits until the last is stored. One before it may be lost with the connection.

        A stream takes one connection's messages in order, so it has to acknowledge only the last.

        Raises:
            nats.errors.Error: the bus did not store it.
        """
        await self.store(bucket)
        *most, last = messages
        for count, key in enumerate(most):
            # A connection that is away would send this when it is back, and it would be old by then.
            if not self._client.is_connected:
                raise nats.errors.ConnectionReconnectingError
            written = f"{self._writer}/{next(self._numbers)}"
            await self._client.publish(bucket.subject(key), encode(messages[key]), headers={_WRITTEN: written})
            if not count % _AT_ONCE:
                await asyncio.sleep(0)
        await self.put(bucket, last, messages[last])

    async def get(self, bucket: Bucket, key: str) -> Any | None:
        """The key's present value; None also if it cannot be read, which `rejected` then shows.

        Raises:
            nats.errors.Error: the bus did not answer.
        """
        await self.store(bucket)
        found = await key_value_read.value(self._stream, bucket.name, bucket.subject(key))
        if found is None:
            return None
        data = bytes(found.data or b"")
        try:
            message = decode(data, bucket.message)
            bucket.check(key, message)
        except WireError as error:
            await self._reject(bucket.subject(key), data, str(error))
            return None
        return message

    async def present(self, bucket: Bucket) -> dict[str, Any]:
        """Every key's present value, by key.

        Raises:
            nats.errors.Error: the bus did not answer.
        """
        found: dict[str, Any] = {}

        async def take(key: str, message: Any) -> None:
            found[key] = message

        await self.store(bucket)
        async with contextlib.aclosing(self._stored(bucket, "")) as stored:
            async for raw in stored:
                if not key_value_read.is_deleted(raw):
                    await self._tell(bucket, take, _token(raw.subject, bucket), bytes(raw.data or b""), None)
        return found

    async def watch(
        self, bucket: Bucket, handler: KeyHandler, key: str, about: About | None = None
    ) -> Callable[[], Coroutine[Any, Any, None]]:
        """Tells present values and then every change. Returns a function that tells present values again, and keys deleted meanwhile."""
        await self.store(bucket)
        subject = bucket.subject(key) if key else bucket.subject()
        telling = 0
        changed: set[str] = set()
        told = _Told()

        async def arrived(raw: Any) -> None:
            token = _token(raw.subject, bucket)
            if telling:
                changed.add(token)
            told.note(token, _written(raw))
            await self._tell(bucket, handler, token, None if key_value_read.is_deleted(raw) else raw.data, about)

        async def tell_present() -> None:
            nonlocal telling
            telling += 1
            try:
                await self.store(bucket)
                async with contextlib.aclosing(self._stored(bucket, key)) as found:
                    async for raw in found:
                        token, written = _token(raw.subject, bucket), _written(raw)
                        # A key that changed since the telling began has been told already, with a value as new or newer.
                        if token in changed or told.has_newer(token, written):
                            continue
                        gone = key_value_read.is_deleted(raw)
                        if not gone or token in told:  # deleted while the bus was away
                            told.note(token, written)
                            await self._tell(bucket, handler, token, None if gone else bytes(raw.data or b""), about)
            finally:
                telling -= 1
                if not telling:
                    changed.clear()

        await self._client.subscribe(subject, cb=arrived)
        await connection.settle(self._client)
        await tell_present()
        return tell_present

    def _stored(self, bucket: Bucket, key: str) -> AsyncGenerator[Any, None]:
        """The raw messages stored under a key, or under all keys, with the marks of deleted ones.

        nats-py 2.16's watcher is not used: it may end before its first entry. A connection that may make no consumers asks for each key. A
        consumer is faster in a large fleet.
        """
        if key:
            return key_value_read.values(self._stream, bucket.name, [bucket.subject(key)], deleted=True)
        if self._makes:
            latest = {"deliver_policy": api.DeliverPolicy.LAST_PER_SUBJECT}
            return each_stored(self._stream, f"KV_{bucket.name}", bucket.subject(), **latest)
        return self._asked_for(bucket)

    async def _asked_for(self, bucket: Bucket) -> AsyncGenerator[Any, None]:
        subjects = await key_value_read.subjects(self._client, bucket.name, bucket.subject())
        async with contextlib.aclosing(
            key_value_read.values(self._stream, bucket.name, subjects, deleted=True)
        ) as found:
            async for raw in found:
                yield raw

    async def _tell(
        self, bucket: Bucket, handler: KeyHandler, token: str, data: bytes | None, about: About | None
    ) -> None:
        try:
            name = unescape(token)
            if about is not None and not about(name):
                return
            message = None if data is None else decode(data, bucket.message)
            if message is not None:
                bucket.check(name, message)
            await handler(name, message)
        except (WireError, ValueError) as error:
            await self._reject(f"$KV.{bucket.name}.{token}", data or b"", str(error))
        except Exception as error:  # a fault of ours with one value never stops a service
            log.exception("handler_failed", bucket=bucket.name, key=token)
            await self._reject(f"$KV.{bucket.name}.{token}", data or b"", f"handler failed: {error!r}")


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

    def has_newer(self, token: str, written: str) -> bool:
        """Whether a value that the same writer wrote later has been told already."""
        writer, number = _parted(written)
        last = self._last.get(token)
        return last is not None and bool(number) and last[0] == writer and number < last[1]


def _parted(written: str) -> tuple[str, int]:
    writer, _, number = written[:_LONGEST_WRITTEN].partition("/")
    return writer, int(number) if number.isascii() and number.isdecimal() else 0


def _token(subject: str, bucket: Bucket) -> str:
    """The escaped key. One of several tokens stays whole, so that it is refused and not taken for its last token."""
    return subject.removeprefix(f"$KV.{bucket.name}.")


def _written(raw: Any) -> str:
    return str((raw.headers or {}).get(_WRITTEN, ""))
