"""The bus: NATS for observations, JetStream for what may not be lost, key-value buckets for the present state.

A subject that a stream captures still reaches plain subscribers at once. So a fast reader subscribes to the subject
itself, and uses a durable consumer only to catch up (`subscribe_kept`). Deterministic message ids make the double
delivery harmless.
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

from foliot import tracing
from foliot.bus import connection
from foliot.bus.connection import ACK_TIMEOUT_S, BusClosedError
from foliot.bus.dispatch import Dispatch
from foliot.bus.durable_consumer import DurableConsumer
from foliot.bus.gathering import Gathering
from foliot.bus.key_value import KeyValue
from foliot.bus.load_shedding import LATE_S, LoadShedding
from foliot.bus.missed_changes import MissedChanges
from foliot.bus.outbox import Outbox
from foliot.bus.provisioning import make_streams
from foliot.bus.rejected import Rejecting
from foliot.bus.retry import BUS_ERRORS, until_done
from foliot.bus.stream_read import each_stored, pattern, stored
from foliot_schemas import decode, encode

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine

    import msgspec

    from foliot.bus.dispatch import About, Handler
    from foliot.bus.key_value import KeyHandler
    from foliot.settings import BusSettings
    from foliot_schemas.subjects import Bucket, Channel

    Unsubscribe = Callable[[], Awaitable[None]]

log = structlog.get_logger()


class Bus:
    """A service's connection. Make it by `connect`; it reconnects forever.

    `put`, `put_all`, `get`, `present` and `store` are those of its buckets: see `foliot.bus.key_value.KeyValue`.

    `counts` has the messages so far: kept, unstored (failed attempts to keep), rejected, stale (the bus was away) and
    behind (left out).
    """

    def __init__(self, service: str, replicas: int, *, makes: bool) -> None:
        self.service = service
        self.url = ""
        self._makes = makes
        self.counts: collections.Counter[str] = collections.Counter()
        self._replicas = replicas
        self._client = nats.NATS()
        self._stream = self._client.jetstream(timeout=ACK_TIMEOUT_S)
        self._rejecting = Rejecting(service, self.counts, self.publish)
        self.reject = self._rejecting.reject
        self._keeper = Outbox(self._stream, self.counts, self._rejecting, lambda: self.connected)
        self._delivery = Dispatch(self.reject)
        self._tasks: set[asyncio.Task[None]] = set()
        self._opening: asyncio.Task[None]
        self._on_away: list[Callable[[], None]] = []
        self._on_back: list[Callable[[], object]] = []
        self._catch_ups: list[DurableConsumer] = []
        self._missed: dict[str, MissedChanges] = {}
        self._tried = self._established = False
        self._sent_away = asyncio.Event()
        self._buckets = buckets = KeyValue(self._client, self._stream, replicas, self.reject, makes=makes)
        self.put, self.put_all, self.get = buckets.put, buckets.put_all, buckets.get
        self.present, self.store = buckets.present, buckets.store

    @classmethod
    async def connect(cls, settings: BusSettings, service: str, *, makes: bool = True) -> Self:
        """Connects, waiting for as long as it takes, until streams and buckets exist.

        Parameters:
            makes: whether to make those that do not exist. A process that runs on a node, or only listens, may not.

        Raises:
            SettingsError: a file that the settings name cannot be read.
        """
        bus = cls.later(settings, service, makes=makes)
        try:
            await bus.opened()
        except BaseException:
            await bus.close()
            raise
        return bus

    @classmethod
    def later(cls, settings: BusSettings, service: str, *, makes: bool = True) -> Self:
        """Connects as `connect` does, with its errors, for a service that works meanwhile.

        It publishes at once, and subscribes after `opened`.
        """
        found = connection.options(settings, service)
        bus = cls(service, settings.replicas, makes=makes)
        bus.url = settings.url
        bus._opening = bus._spawn(bus._open(found))
        return bus

    async def opened(self) -> None:
        """Waits until it was connected for the first time."""
        await asyncio.shield(self._opening)

    async def _open(self, found: dict[str, Any]) -> None:
        self._tried = True
        await connection.establish(
            self._client, found, reconnected_cb=self._reconnected, disconnected_cb=self._disconnected,
            error_cb=functools.partial(connection.note, self.counts), closed_cb=self._closed,
        )  # fmt: skip
        self._established = True
        await self._make_streams()

    @property
    def connected(self) -> bool:
        """Whether the bus answers, as far as the client knows: it notices a cut after two to three seconds."""
        return bool(self._client.is_connected)

    async def closed(self) -> None:
        """Waits until the server sends us away for good, which need never happen, and raises `BusClosedError`."""
        await self._sent_away.wait()
        raise BusClosedError(str(self._client.last_error or "no reason given"))

    def when_away(self, told: Callable[[], None]) -> None:
        """Calls this whenever the client notices that the bus does not answer any more."""
        self._on_away.append(told)

    def when_back(self, told: Callable[[], object]) -> None:
        """Calls this whenever the bus answers again, before streams and buckets are looked after."""
        self._on_back.append(told)

    async def close(self) -> None:
        """Ends all subscriptions and the connection. Before, it takes a short while to flush published messages."""
        self._on_away.clear()
        for task in self._tasks:
            task.cancel()
        self._established = False
        if self._tried:  # nats-py cannot close what it was never asked to connect
            with contextlib.suppress(*BUS_ERRORS):
                await asyncio.wait_for(self._client.flush(), 1.0)
            with contextlib.suppress(ConnectionError):  # raised where it had messages for a server that has gone
                await self._client.close()

    # -- publishing ---------------------------------------------------------------------------------------------------

    async def publish(self, channel: Channel, message: msgspec.Struct, *names: str) -> None:
        """Publishes an observation at once, or, while the bus is away, not at all."""
        if not self.connected:
            self.counts["stale"] += 1
            return
        headers: dict[str, str] = {}
        tracing.inject(headers)
        with contextlib.suppress(*BUS_ERRORS):
            await self._client.publish(channel.subject(*names), encode(message), headers=headers or None)

    def publish_kept(self, channel: Channel, message: Any, *names: str) -> None:
        """Publishes an event, command or outcome at once, and again under the same id until its stream has stored it.

        Messages of a time when the bus was away follow in their order.
        """
        headers = {"Nats-Msg-Id": message.id}
        tracing.inject(headers)
        self._spawn(self._keeper.keep(channel.name, channel.subject(*names), encode(message), headers))

    # -- subscribing --------------------------------------------------------------------------------------------------

    async def subscribe(
        self, channel: Channel, handler: Handler, *names: str, about: About | None = None, late_s: float = LATE_S,
        gather_s: float = 0.0,
    ) -> Unsubscribe:  # fmt: skip
        """Calls the handler with each message and its subject, in order, inside the sender's trace.

        Parameters:
            about: selects messages by the one whom their subject is about; others are not even decoded.
            late_s: how long an observation may have waited. Older ones are left out.
            gather_s: how long messages may wait for others, see `Gathering`. It is for a service that only shows them.

        Returns:
            Ends the subscription when it is called; not to be called twice.
        """
        # Events, commands and outcomes are few, and readers catch up with them. Of observations only the newest are
        # worth anything.
        backlog = None if channel.stream else LoadShedding(pattern(channel, names), self.counts, late_s)
        return await self._hear(channel, handler, names, backlog, once=False, about=about, gather_s=gather_s)

    async def subscribe_kept(
        self, channel: Channel, handler: Handler, *names: str, durable: str, again: int = 0, about: About | None = None
    ) -> None:
        """Subscribes as `subscribe` does, and catches up with missed messages, each id once.

        Messages from before are not delivered, but for those among the last `again` of the stream that an earlier run
        was delivered: it may have ended before it drew all conclusions.
        """

        async def take(raw: Any) -> None:
            await self._delivery.hand_over(channel, handler, raw, once=True, about=about)

        catch_up = DurableConsumer(self._stream, channel.stream, pattern(channel, names), durable, take)
        await catch_up.begin(again)
        self._catch_ups.append(catch_up)
        await self._hear(channel, handler, names, None, once=True, about=about)
        self._spawn(catch_up.run())

    async def _hear(
        self, channel: Channel, handler: Handler, names: tuple[str, ...], backlog: LoadShedding | None,
        *, once: bool, about: About | None, gather_s: float = 0.0,
    ) -> Unsubscribe:  # fmt: skip
        """Hears each message as it comes; with `once`, each id is handed over once."""
        gathering = Gathering(gather_s)

        async def arrived(raw: Any) -> None:
            await gathering.wait(lambda: subscription.pending_msgs)
            waiting = subscription.pending_msgs
            if backlog is None or not backlog.is_behind(waiting):
                await self._delivery.hand_over(channel, handler, raw, once=once, about=about, more=waiting > 0)

        subscription = await self._client.subscribe(pattern(channel, names), cb=arrived)
        await connection.flush(self._client)
        end: Unsubscribe = subscription.unsubscribe
        return end

    async def newest(self, channel: Channel, *names: str) -> list[Any]:
        """The newest message of each subject that the channel's stream keeps. No names, or empty ones, stand for all.

        Raises:
            nats.errors.Error: the bus did not answer.
        """
        found: list[Any] = []

        async def take(message: Any, _subject: str) -> None:
            found.append(message)

        latest = {"deliver_policy": api.DeliverPolicy.LAST_PER_SUBJECT}
        for raw in await stored(self._stream, channel.stream, pattern(channel, names), **latest):
            await self._delivery.hand_over(channel, take, raw, once=False)
        return found

    async def replay(self, channel: Channel, most: int, take: Callable[[Any], None]) -> None:
        """Calls this with the last messages that the channel's stream has stored: so many at most, the oldest first.

        It passes over broken ones: the service that read them when they were new has rejected them aloud.

        Parameters:
            take: may raise `ValueError`, which passes over a message, too.

        Raises:
            nats.errors.Error: the bus did not answer.
        """
        last = (await self._stream.stream_info(channel.stream)).state.last_seq
        first = {"deliver_policy": api.DeliverPolicy.BY_START_SEQUENCE, "opt_start_seq": max(1, last - most + 1)}
        async for raw in each_stored(self._stream, channel.stream, channel.all, **first):
            try:
                message = decode(raw.data, channel.message)
                channel.check(raw.subject, message)
                take(message)
            except ValueError as error:
                log.info("history_passed_over", subject=raw.subject, reason=str(error))

    # -- key-value ----------------------------------------------------------------------------------------------------

    async def watch(self, bucket: Bucket, handler: KeyHandler, *, key: str = "", about: About | None = None) -> None:
        """Calls the handler with every key's present value, or one key's, then with each change; None: it was deleted.

        A change whose message was lost is told within some 10 s, or later to the nodes of a fleet of more than 2,000.
        After a reconnection it tells all present values again, and which keys were deleted meanwhile. `about`: as with
        `subscribe`.
        """
        watch = await self._buckets.watch(bucket, handler, key, about)
        if bucket.name not in self._missed:
            missed = MissedChanges(self._client, self._stream, bucket, of_node=not self._makes)
            self._missed[bucket.name] = missed
            self._spawn(missed.keep_looking())
        self._missed[bucket.name].watches.append(watch)

    # -- inside -------------------------------------------------------------------------------------------------------

    async def _make_streams(self) -> None:
        async def make() -> None:
            if self._makes:
                await make_streams(self._stream, self._replicas)
            await self._buckets.open()

        await until_done(make, "streams_awaited")

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _reconnected(self) -> None:
        log.info("bus_back")
        for told in self._on_back:
            told()
        self._spawn(self._recover())

    async def _recover(self) -> None:
        """Makes streams and buckets again, and tells their values again.

        A restarted server has lost those that it held in memory.
        """
        self._buckets.forget()
        await self._make_streams()
        for catch_up in self._catch_ups:
            catch_up.renew()
        watches = [watch for missed in self._missed.values() for watch in missed.watches]
        await asyncio.gather(*(until_done(watch.tell_present, "present_awaited") for watch in watches))

    async def _disconnected(self) -> None:
        log.warning("bus_away")
        self._keeper.away()
        for told in self._on_away:
            told()

    async def _closed(self) -> None:
        """Handles a closed connection.

        nats-py closes for good on most of a server's errors, however often it was told to reconnect.
        """
        if self._established:
            log.error("bus_closed", reason=str(self._client.last_error))
            self._sent_away.set()
