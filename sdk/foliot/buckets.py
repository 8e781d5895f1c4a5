"""Key-value buckets: the present state, one key per thing. `Bus` offers them to services."""

from __future__ import annotations

import asyncio
import collections
from typing import TYPE_CHECKING, Any

import structlog
from nats.js import api
from nats.js.errors import BucketNotFoundError, KeyNotFoundError, NotFoundError

from foliot_schemas import WireError, decode, encode
from foliot_schemas.names import escape, unescape

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine

    import msgspec

    from foliot_schemas.subjects import Bucket

    KeyHandler = Callable[[str, Any], Awaitable[None]]
    Reject = Callable[[str, bytes, str], Awaitable[None]]

log = structlog.get_logger()

_READ_AT_ONCE = 64


class Buckets:
    """The buckets of one connection.

    Parameters:
        client, stream: the NATS connection and its JetStream context.
        reject: called with subject, data and reason for a value that cannot be read.
    """

    def __init__(self, client: Any, stream: Any, replicas: int, reject: Reject) -> None:
        self._client = client
        self._stream = stream
        self._replicas = replicas
        self._reject = reject
        self._stores: dict[str, Any] = {}

    def forget(self) -> None:
        """What the server held in memory may be gone: looks for every bucket anew."""
        self._stores.clear()

    async def store(self, bucket: Bucket) -> Any:
        """The nats-py key-value store of a bucket, made if it is not there."""
        if bucket.name not in self._stores:
            try:
                self._stores[bucket.name] = await self._stream.key_value(bucket.name)
            except (BucketNotFoundError, NotFoundError):
                in_memory = bucket.storage == "memory"
                config = api.KeyValueConfig(
                    bucket=bucket.name,
                    history=1,
                    ttl=bucket.keep_s or None,
                    replicas=self._replicas,
                    storage=api.StorageType.MEMORY if in_memory else api.StorageType.FILE,
                )
                self._stores[bucket.name] = await self._stream.create_key_value(config)
        return self._stores[bucket.name]

    async def put(self, bucket: Bucket, key: str, message: msgspec.Struct) -> int:
        """Writes a key and returns its revision."""
        store = await self.store(bucket)
        return int(await store.put(escape(key), encode(message)))

    async def get(self, bucket: Bucket, key: str) -> Any | None:
        """The key's present value."""
        data = await _read(await self.store(bucket), escape(key))
        return None if data is None else decode(data, bucket.message)

    async def watch(self, bucket: Bucket, handler: KeyHandler, key: str) -> Callable[[], Coroutine[Any, Any, None]]:
        """Tells present values and then every change; returns what tells the present values again."""
        await self.store(bucket)
        subject = f"$KV.{bucket.name}.{escape(key) if key else '>'}"
        changes: collections.Counter[str] = collections.Counter()

        async def arrived(raw: Any) -> None:
            token = raw.subject.rpartition(".")[2]
            changes[token] += 1
            deleted = (raw.headers or {}).get("KV-Operation") in {"DEL", "PURGE"}
            await self._tell(bucket, handler, token, None if deleted else raw.data)

        async def tell_present() -> None:
            store = await self.store(bucket)
            tokens = [escape(key)] if key else await self._tokens(bucket)
            for start in range(0, len(tokens), _READ_AT_ONCE):
                chunk = tokens[start : start + _READ_AT_ONCE]
                before = {token: changes[token] for token in chunk}
                for token, data in zip(chunk, await asyncio.gather(*(_read(store, t) for t in chunk)), strict=True):
                    # What changed while it was read has been told already, and is newer.
                    if data is not None and changes[token] == before[token]:
                        await self._tell(bucket, handler, token, data)

        await self._client.subscribe(subject, cb=arrived)
        await self._client.flush()
        await tell_present()
        return tell_present

    async def _tokens(self, bucket: Bucket) -> list[str]:
        """The bucket's keys, escaped. By the stream's own list: nats-py 2.16's watcher may end before its first entry."""
        info = await self._stream.stream_info(f"KV_{bucket.name}", subjects_filter=f"$KV.{bucket.name}.>")
        return [subject.rpartition(".")[2] for subject in info.state.subjects or {}]

    async def _tell(self, bucket: Bucket, handler: KeyHandler, token: str, data: bytes | None) -> None:
        try:
            message = None if data is None else decode(data, bucket.message)
            await handler(unescape(token), message)
        except (WireError, ValueError) as error:
            await self._reject(f"$KV.{bucket.name}.{token}", data or b"", str(error))
        except Exception:  # a fault of ours with one value never stops a service
            log.exception("handler_failed", bucket=bucket.name, key=token)


async def _read(store: Any, token: str) -> bytes | None:
    try:
        entry = await store.get(token)
    except KeyNotFoundError:
        return None
    return bytes(entry.value or b"")
