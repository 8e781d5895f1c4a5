"""Key-value buckets: the present state, one key per thing. `Bus` offers them to services."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import itertools
import secrets
from typing import TYPE_CHECKING, Any

import nats.errors
import structlog
from nats.js import api
from nats.js.errors import BucketNotFoundError

from foliot.bus import key_value_read
from foliot.bus.key_value_watch import WRITTEN, KeyValueWatch, token_of
from foliot.bus.provisioning import make_bucket
from foliot.bus.retry import heed_cancellation, until_done
from foliot.bus.stream_read import each_stored
from foliot_schemas import WireError, decode, encode
from foliot_schemas.names import unescape
from foliot_schemas.permissions import NODE_ROLES
from foliot_schemas.subjects import BUCKETS

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping

    import msgspec

    from foliot.bus.dispatch import About, Reject
    from foliot_schemas.subjects import Bucket

    KeyHandler = Callable[[str, Any], Awaitable[None]]

log = structlog.get_logger()

_AT_ONCE = 256
"""Keys that are written before other tasks get their turn."""


class KeyValue:
    """The buckets of one connection.

    All but `watch` raises `nats.errors.Error` if the bus did not answer, or did not store a value.

    Parameters:
        client, stream: the NATS connection and its JetStream context.
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
        """Forgets all buckets, as the server may have lost those in its memory; the next use asks for each again."""
        self._stores.clear()

    async def open(self) -> None:
        """Makes every bucket that is not there. A connection that makes none looks for those that nodes read or write.

        It looks for no others: a node may be updated before the first service that makes a new bucket of the central
        services.

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
        """Writes a key and returns its revision."""
        await self.store(bucket)
        headers = self._headers(message)
        acknowledged = await self._stream.publish(bucket.subject(key), encode(message), headers=headers)
        heed_cancellation()
        return int(acknowledged.seq)

    async def put_all(self, bucket: Bucket, messages: Mapping[str, msgspec.Struct]) -> None:
        """Writes many keys, at least one, and waits until the last is stored.

        One before it may be lost with the connection.

        A stream takes one connection's messages in order, so it has to acknowledge only the last.
        """
        await self.store(bucket)
        *most, last = messages
        for count, key in enumerate(most):
            headers = self._headers(messages[key])
            await self._client.publish(bucket.subject(key), encode(messages[key]), headers=headers)
            if not count % _AT_ONCE:
                await asyncio.sleep(0)
        await self.put(bucket, last, messages[last])

    def _headers(self, message: msgspec.Struct) -> dict[str, str]:
        """The headers of a value that is to be sent now."""
        # A connection that is away would send it when it is back, and it would be old by then.
        if not self._client.is_connected:
            raise nats.errors.ConnectionReconnectingError
        lease = getattr(message, "lease_revision", 0)
        return {WRITTEN: f"{self._writer}.{lease}/{next(self._numbers)}"}

    async def get(self, bucket: Bucket, key: str) -> Any | None:
        """The key's present value; None also if it cannot be read, which `rejected` then shows."""
        return (await self._present(bucket, key)).get(key)

    async def present(self, bucket: Bucket) -> dict[str, Any]:
        """Every key's present value, by key."""
        return await self._present(bucket, "")

    async def _present(self, bucket: Bucket, key: str) -> dict[str, Any]:
        found: dict[str, Any] = {}

        async def take(name: str, message: Any) -> None:
            found[name] = message

        await self.store(bucket)
        async with contextlib.aclosing(self._stored(bucket, key)) as stored:
            async for raw in stored:
                if not key_value_read.is_deleted(raw):
                    await self._tell(bucket, take, token_of(bucket, raw.subject), bytes(raw.data or b""), None)
        return found

    async def watch(self, bucket: Bucket, handler: KeyHandler, key: str, about: About | None = None) -> KeyValueWatch:
        """Tells present values and then every change, by the watch that is returned."""
        await until_done(functools.partial(self.store, bucket), "bucket_awaited", bucket=bucket.name)
        watch = KeyValueWatch(
            self._client,
            self._stream,
            bucket,
            bucket.subject(key) if key else bucket.subject(),
            stored=lambda: self._stored(bucket, key),
            tell=lambda token, data: self._tell(bucket, handler, token, data, about),
        )
        await watch.begin()
        return watch

    async def _stored(self, bucket: Bucket, key: str) -> AsyncGenerator[Any, None]:
        """The raw messages stored under a key, or under all keys, with the marks of deleted ones.

        nats-py 2.16's watcher is not used: it may end before its first entry. A connection that may make no consumers
        asks for each key. A consumer is faster in a large fleet.
        """
        if key:
            stored = key_value_read.values(self._stream, bucket.name, [bucket.subject(key)])
        elif self._makes:
            latest = {"deliver_policy": api.DeliverPolicy.LAST_PER_SUBJECT}
            stored = each_stored(self._stream, f"KV_{bucket.name}", bucket.subject(), **latest)
        else:
            subjects = await key_value_read.subjects(self._client, bucket.name, bucket.subject())
            stored = key_value_read.values(self._stream, bucket.name, subjects)
        async with contextlib.aclosing(stored):
            async for raw in stored:
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
