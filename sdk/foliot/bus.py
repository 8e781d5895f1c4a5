"""The bus: NATS for observations, JetStream for what may not be lost, key-value buckets for the present state.

A subject that a stream captures still reaches plain subscribers at once, so what must be fast subscribes to the subject itself and
uses a durable consumer only to catch up (`subscribe_kept`); deterministic message ids make the double delivery harmless.
"""

from __future__ import annotations

import asyncio
import collections
import contextlib
import functools
from typing import TYPE_CHECKING, Any, Self

import nats
import structlog
from nats.js import api

from foliot import telemetry
from foliot.buckets import Buckets
from foliot.history import newest, pattern
from foliot.retry import BUS_ERRORS, until_done
from foliot.streams import make_streams
from foliot_schemas import Rejected, WireError, decode, encode
from foliot_schemas.subjects import BUCKETS, REJECTED

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine

    import msgspec

    from foliot.buckets import KeyHandler
    from foliot.settings import BusSettings
    from foliot_schemas.subjects import Bucket, Channel

    Handler = Callable[[Any, str], Awaitable[None]]

log = structlog.get_logger()

_PING_S = 1
"""A cut bus is noticed after two unanswered pings; nats-py's default of 120 s would leave armed backups asleep."""
_SEEN = 8_192
"""Message ids remembered to drop second deliveries: minutes of events at the highest rate planned for, 300/s / 10."""
_RETRY_S = 0.25
_ACK_TIMEOUT_S = 2.0
_FETCH_S = 5.0
_HEAD_BYTES = 256


class Bus:
    """A service's connection. Make it by `connect`; it reconnects forever.

    `counts` has what happened so far: published, kept, stale (observations dropped while the bus was away), rejected.
    """

    def __init__(self, service: str, replicas: int) -> None:
        self.service = service
        self.counts: collections.Counter[str] = collections.Counter()
        self._replicas = replicas
        self._client = nats.NATS()
        self._stream = self._client.jetstream(timeout=_ACK_TIMEOUT_S)
        self._seen: collections.OrderedDict[str, None] = collections.OrderedDict()
        self._tasks: set[asyncio.Task[None]] = set()
        self._on_away: list[Callable[[], None]] = []
        self._on_reconnect: list[Callable[[], Coroutine[Any, Any, None]]] = []
        self._buckets = Buckets(self._client, self._stream, replicas, self.reject)

    @classmethod
    async def connect(cls, settings: BusSettings, service: str) -> Self:
        """Connects, waiting for as long as it takes, and makes sure that streams and buckets exist."""
        bus = cls(service, settings.replicas)
        waiting = False
        while True:
            try:
                await bus._client.connect(
                    settings.url, name=service, max_reconnect_attempts=-1, reconnect_time_wait=_RETRY_S,
                    ping_interval=_PING_S, max_outstanding_pings=2, connect_timeout=1, allow_reconnect=True,
                    reconnected_cb=bus._reconnected, disconnected_cb=bus._disconnected, error_cb=bus._failed,
                )  # fmt: skip
                break
            except BUS_ERRORS as error:
                if not waiting:
                    log.info("bus_awaited", url=settings.url, reason=str(error) or type(error).__name__)
                waiting = True
                await asyncio.sleep(_RETRY_S)
        await bus._make_streams()
        return bus

    @property
    def connected(self) -> bool:
        """Whether the bus answers, as far as is known: a cut is noticed after two to three seconds."""
        return bool(self._client.is_connected)

    def when_away(self, told: Callable[[], None]) -> None:
        """Calls this whenever it is noticed that the bus does not answer any more."""
        self._on_away.append(told)

    async def close(self) -> None:
        """Ends all subscriptions and the connection; what was published is flushed for a short while."""
        self._on_away.clear()
        for task in self._tasks:
            task.cancel()
        with contextlib.suppress(*BUS_ERRORS):
            await asyncio.wait_for(self._client.flush(), 1.0)
        await self._client.close()

    # -- publishing ---------------------------------------------------------------------------------------------------

    async def publish(self, channel: Channel, message: msgspec.Struct, *names: str) -> None:
        """An observation: at once, or, while the bus is away, not at all."""
        if not self.connected:
            self.counts["stale"] += 1
            return
        headers: dict[str, str] = {}
        telemetry.inject(headers)
        with contextlib.suppress(*BUS_ERRORS):
            await self._client.publish(channel.subject(*names), encode(message), headers=headers or None)
            self.counts["published"] += 1

    def publish_kept(self, channel: Channel, message: Any, *names: str) -> None:
        """An event, command or outcome: at once, and again under the same id until its stream has stored it."""
        headers = {"Nats-Msg-Id": message.id}
        telemetry.inject(headers)
        self._spawn(self._keep(channel.subject(*names), encode(message), headers))

    async def _keep(self, subject: str, data: bytes, headers: dict[str, str]) -> None:
        publish = functools.partial(self._stream.publish, subject, data, headers=headers)
        await until_done(publish, "keep_retried", subject=subject, id=headers["Nats-Msg-Id"])
        self.counts["kept"] += 1

    # -- subscribing --------------------------------------------------------------------------------------------------

    async def subscribe(self, channel: Channel, handler: Handler, *names: str) -> None:
        """Calls the handler with each message and its subject, in order, inside the sender's trace."""
        await self._plain(channel, handler, names, once=False)

    async def subscribe_kept(self, channel: Channel, handler: Handler, *names: str, durable: str) -> None:
        """As `subscribe`, and what was missed meanwhile is caught up with, each message id once.

        What happened before the durable was first made is not delivered.
        """
        consumer = await self._consumer(channel, names, durable)
        await self._plain(channel, handler, names, once=True)
        self._spawn(self._catch_up(channel, handler, names, consumer))

    async def newest(self, channel: Channel, *names: str) -> list[Any]:
        """Of each subject that the channel's stream keeps, the newest message; no names, or empty ones, stand for all.

        Raises:
            nats.errors.Error: the bus did not answer.
        """
        return await newest(self._stream, channel, pattern(channel, names), self.reject)

    async def _plain(self, channel: Channel, handler: Handler, names: tuple[str, ...], *, once: bool) -> None:
        subject = pattern(channel, names)

        async def arrived(raw: Any) -> None:
            await self._deliver(channel, handler, raw, once=once)

        await self._client.subscribe(subject, cb=arrived)
        await self._client.flush()

    async def _consumer(self, channel: Channel, names: tuple[str, ...], durable: str) -> Any:
        config = api.ConsumerConfig(deliver_policy=api.DeliverPolicy.NEW, ack_wait=30)
        subscribe = functools.partial(
            self._stream.pull_subscribe, pattern(channel, names), durable=durable, stream=channel.stream, config=config
        )
        return await until_done(subscribe, "consumer_awaited", durable=durable)

    async def _catch_up(self, channel: Channel, handler: Handler, names: tuple[str, ...], consumer: Any) -> None:
        while True:
            try:
                for raw in await consumer.fetch(64, timeout=_FETCH_S):
                    await self._deliver(channel, handler, raw, once=True)
                    await raw.ack()
            except TimeoutError:
                continue  # nothing new
            except BUS_ERRORS as error:
                log.warning(
                    "catch_up_retried", subject=pattern(channel, names), reason=str(error) or type(error).__name__
                )
                await asyncio.sleep(1.0)

    async def _deliver(self, channel: Channel, handler: Handler, raw: Any, *, once: bool) -> None:
        if once and self._is_second((raw.headers or {}).get("Nats-Msg-Id", "")):
            return
        try:
            message = decode(raw.data, channel.message)
            with telemetry.received(raw.headers):
                await handler(message, raw.subject)
        except WireError as error:
            await self.reject(raw.subject, raw.data, str(error))
        except Exception as error:  # a bad message, or a fault of ours with it, never stops a service
            log.exception("handler_failed", subject=raw.subject)
            await self.reject(raw.subject, raw.data, f"handler failed: {error!r}")

    def _is_second(self, message_id: str) -> bool:
        if not message_id:
            return False
        if message_id in self._seen:
            return True
        self._seen[message_id] = None
        if len(self._seen) > _SEEN:
            self._seen.popitem(last=False)
        return False

    async def reject(self, subject: str, data: bytes, reason: str) -> None:
        """Counts, logs and shows a message that could not be read."""
        self.counts["rejected"] += 1
        log.warning("message_rejected", subject=subject, reason=reason)
        rejected = Rejected(service=self.service, subject=subject, reason=reason, head=data[:_HEAD_BYTES])
        await self.publish(REJECTED, rejected, self.service)

    # -- key-value ----------------------------------------------------------------------------------------------------

    async def put(self, bucket: Bucket, key: str, message: msgspec.Struct) -> int:
        """Writes a key and returns its revision.

        Raises:
            nats.errors.Error: the bus did not store it.
        """
        return await self._buckets.put(bucket, key, message)

    async def get(self, bucket: Bucket, key: str) -> Any | None:
        """The key's present value.

        Raises:
            nats.errors.Error: the bus did not answer.
        """
        return await self._buckets.get(bucket, key)

    async def watch(self, bucket: Bucket, handler: KeyHandler, *, key: str = "") -> None:
        """Calls the handler with every key's present value, or one key's, then with each change; None: it was deleted.

        Changes come as plain messages of the bucket's own subject, sooner than through a consumer; after a reconnection all
        present values are told again.
        """
        self._on_reconnect.append(await self._buckets.watch(bucket, handler, key))

    async def store(self, bucket: Bucket) -> Any:
        """The nats-py key-value store of a bucket, made if it is not there."""
        return await self._buckets.store(bucket)

    # -- inside -------------------------------------------------------------------------------------------------------

    async def _make_streams(self) -> None:
        async def make() -> None:
            await make_streams(self._stream, self._replicas)
            for bucket in BUCKETS:
                await self._buckets.store(bucket)

        await until_done(make, "streams_awaited")

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _reconnected(self) -> None:
        log.info("bus_back")
        self._spawn(self._recover())

    async def _recover(self) -> None:
        """After a restart of the server, streams and buckets that it held in memory are gone: made again, told again."""
        self._buckets.forget()
        await self._make_streams()
        await asyncio.gather(*(until_done(tell_present, "present_awaited") for tell_present in self._on_reconnect))

    async def _disconnected(self) -> None:
        log.warning("bus_away")
        for told in self._on_away:
            told()

    async def _failed(self, error: Exception) -> None:
        log.debug("bus_error", reason=str(error) or type(error).__name__)
