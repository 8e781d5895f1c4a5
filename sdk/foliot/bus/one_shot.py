"""A short connection to the bus for a command: it makes no streams or buckets, gives up soon, and tidies up.

Services use `foliot.bus.client`, which waits and stays.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from datetime import datetime
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import nats
import nats.errors
from nats.js.errors import NotFoundError

from foliot.bus import connection
from foliot.bus.key_value import KeyValue
from foliot.bus.retry import BUS_ERRORS
from foliot_schemas.names import escape
from foliot_schemas.subjects import BUCKETS

if TYPE_CHECKING:
    import msgspec

    from foliot.settings import BusSettings
    from foliot_schemas.permissions import Role
    from foliot_schemas.subjects import Bucket

WITHIN_S = 5.0
"""Limit of connecting: that a bus is away is to be said soon."""
ANSWER_S = 10.0
"""Limit of each answer. A server whose disk is busy takes seconds for one."""
_AGAIN, _AGAIN_S = 1, 0.5
"""How many more times a server is tried that cannot be connected to, and the pause before. It may just be starting."""
_AS: Role = "agent"
"""The role whose credentials it takes by default. The agent's permit all that joining and leaving need."""


class Ahead(NamedTuple):
    """The lead of the server's clock over this host's, and its possible error."""

    by_ns: int
    bound_ns: int


class OneShot:
    """A connection. Enter it; every method may raise what `foliot.bus.retry.BUS_ERRORS` names.

    Parameters:
        role: whose credentials it takes from a directory.
    """

    def __init__(
        self, settings: BusSettings, within_s: float = WITHIN_S, answer_s: float = ANSWER_S, role: Role = _AS
    ) -> None:
        self._options = connection.options(settings, role)
        self._within_s, self._answer_s = within_s, answer_s
        self._client = nats.NATS()
        self._stream = self._client.jetstream(timeout=answer_s)
        self._buckets = KeyValue(self._client, self._stream, 0, _passed_over, makes=False)
        self._told: Exception | None = None

    async def __aenter__(self) -> Self:
        """Connects, once."""
        try:
            async with asyncio.timeout(self._within_s):
                await self._client.connect(
                    **self._options, allow_reconnect=False, connect_timeout=self._within_s, error_cb=self._note,
                    max_reconnect_attempts=_AGAIN, reconnect_time_wait=_AGAIN_S,
                )  # fmt: skip
        except BUS_ERRORS as error:
            await self.__aexit__()
            # nats-py tells only in passing what is wrong.
            if isinstance(error, (TimeoutError, nats.errors.NoServersError)) and isinstance(self._told, BUS_ERRORS):
                raise self._told from error
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        with contextlib.suppress(Exception):
            await self._client.close()

    @property
    def role(self) -> str:
        """The role of these credentials; empty: none are used."""
        return str(self._options.get("inbox_prefix", "")).partition(".")[2].partition(".")[0]

    @property
    def version(self) -> str:
        """The server's version."""
        found = self._client.connected_server_version
        return f"{found.major}.{found.minor}.{found.patch}"

    async def has_jetstream(self) -> bool:
        """Whether this account may use JetStream."""
        try:
            await self._stream.account_info()
        except nats.errors.TimeoutError:
            raise  # it says nothing of JetStream
        except nats.errors.Error:
            return False
        return True

    async def lacking(self) -> tuple[str, ...]:
        """The names of the contract's buckets that nobody has made yet."""
        lacking = []
        for bucket in BUCKETS:
            try:
                await self._buckets.store(bucket)
            except NotFoundError:
                lacking.append(bucket.name)
        return tuple(lacking)

    async def ahead(self) -> Ahead | None:
        """The server's clock against this host's; None: there is no bucket yet, or the server does not say its time."""
        before_ns = time.time_ns()
        reply = await self._client.request("$JS.API.STREAM.INFO.KV_inventory", b"", timeout=self._answer_s)
        after_ns = time.time_ns()
        said = json.loads(reply.data).get("ts", "")
        if not said:
            return None
        at_ns = round(datetime.fromisoformat(said).timestamp() * 1e9)
        half_ns = (after_ns - before_ns) // 2
        return Ahead(at_ns - before_ns - half_ns, half_ns)

    async def present(self, bucket: Bucket) -> dict[str, Any]:
        """Every readable value of a bucket by its key; empty where there is no such bucket."""
        try:
            return await self._buckets.present(bucket)
        except NotFoundError:
            return {}

    async def get(self, bucket: Bucket, key: str) -> Any | None:
        """A key's value; None: there is none that can be read."""
        try:
            return await self._buckets.get(bucket, key)
        except NotFoundError:
            return None

    async def put(self, bucket: Bucket, key: str, message: msgspec.Struct) -> None:
        """Writes a key.

        Raises:
            NotFoundError: nobody has made the bucket yet.
        """
        await self._buckets.put(bucket, key, message)

    async def delete(self, bucket: Bucket, key: str) -> bool:
        """Deletes a key; False: it was not there."""
        try:
            store = await self._buckets.store(bucket)
            await store.get(escape(key))
        except NotFoundError:
            return False
        await store.delete(escape(key))
        return True

    async def delete_consumer(self, stream: str, durable: str) -> bool:
        """Deletes a durable consumer; False: it was not there."""
        try:
            return bool(await self._stream.delete_consumer(stream, durable))
        except NotFoundError:
            return False

    async def _note(self, error: Exception) -> None:
        """Keeps an error of the connection. Later ones are raised by the calls that they concern."""
        self._told = error


async def _passed_over(_subject: str, _data: bytes, _reason: str) -> None:
    """Reports nothing: a service reports a value that cannot be read."""
