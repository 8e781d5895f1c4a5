"""Catches up with a stream after missed messages, by a durable consumer that it makes anew when that has gone."""

from __future__ import annotations

import asyncio
import contextlib
import functools
from typing import TYPE_CHECKING, Any

import structlog
from nats.js import api

from foliot.bus.retry import BUS_ERRORS, until_done
from foliot.bus.stream_read import began_anew, between

if TYPE_CHECKING:
    import datetime as dt
    from collections.abc import Awaitable, Callable

log = structlog.get_logger()

_AT_ONCE = 256
_REST_S = 0.1
"""Pause between two looks for missed messages. Nearly all have come already. In a storm, looking for each alone cost as
much as hearing it."""
_FETCH_S = 5.0
_ACK_WAIT_S = 5.0
"""The server delivers the messages of a reader that died again after this long."""
_AGAIN_S = 0.5
_MOST_MADE_UP = 4_096
"""Messages to read again at once after a cut. The consumer delivers the rest of a longer one in its own time."""


class DurableConsumer:
    """One durable consumer.

    Parameters:
        take: called with every message, oldest first. When it returns, that message is acknowledged alone. One
            acknowledgement for all before it would cover messages that the server sent into a dead connection, and they
            would be lost.
    """

    def __init__(
        self, jetstream: Any, stream: str, subject: str, durable: str, take: Callable[[Any], Awaitable[None]]
    ) -> None:
        self._jetstream = jetstream
        self._stream = stream
        self._subject = subject
        self._durable = durable
        self._take = take
        self._consumer: Any = None
        self._reads = False
        """Whether it may read the stream itself. Nodes may not."""
        self._taken = 0
        """The stream's number of the last message that was taken, or was there when the durable was first made."""
        self._created: dt.datetime | None = None
        """When the stream that gave this number was made."""
        self._renewed = asyncio.Event()

    async def begin(self, again: int) -> None:
        """Makes the consumer if there is none, without messages from before.

        Its messages among the stream's last `again` numbers, up to the last one that was delivered to it, are taken
        once more.
        """
        self._reads = bool(again)
        self._created = (await until_done(self._info, "stream_awaited", stream=self._stream)).created
        await self._bind(deliver_policy=api.DeliverPolicy.NEW)
        self._taken = (await until_done(self._consumer.consumer_info, "consumer_awaited")).delivered.stream_seq
        if again and self._taken:
            await self._read(self._taken - again + 1, self._taken)

    async def _read(self, first: int, last: int) -> None:
        stored = functools.partial(between, self._jetstream, self._stream, self._subject, first, last)
        for raw in await until_done(stored, "history_awaited", durable=self._durable):
            await self._take(raw)

    def renew(self) -> None:
        """Note that the connection is a new one: requests over the old one will not be answered."""
        self._renewed.set()

    async def run(self) -> None:
        """Takes messages as they come, until cancelled."""
        while True:
            try:
                await self._fetch()
                await asyncio.sleep(_REST_S)
            except TimeoutError:
                continue  # nothing new
            except BUS_ERRORS as error:
                log.warning("catch_up_retried", subject=self._subject, reason=str(error) or type(error).__name__)
                await asyncio.sleep(_AGAIN_S)
                await until_done(self._find, "consumer_awaited", durable=self._durable)

    async def _fetch(self) -> None:
        fetching = asyncio.ensure_future(self._consumer.fetch(_AT_ONCE, timeout=_FETCH_S))
        fetching.add_done_callback(
            lambda ended: None if ended.cancelled() else ended.exception()
        )  # looked at, if only here
        renewed = asyncio.ensure_future(self._renewed.wait())
        try:
            await asyncio.wait({fetching, renewed}, return_when=asyncio.FIRST_COMPLETED)
            if fetching.done():
                for raw in fetching.result():
                    await self._take(raw)
                    await raw.ack()
                    self._taken = max(self._taken, raw.metadata.sequence.stream)
            else:
                self._renewed.clear()
                last = await until_done(self._find, "consumer_awaited", durable=self._durable)
                if self._reads and self._taken < last:
                    # The server delivers messages of the dead connection again only after `_ACK_WAIT_S`.
                    await self._read(max(self._taken + 1, last - _MOST_MADE_UP + 1), last)
        finally:
            fetching.cancel()
            renewed.cancel()

    async def _find(self) -> int:
        """Binds to the consumer.

        If it was deleted, or the store was lost, it is made anew behind the messages that were taken.

        Returns the number of the stream's last message.
        """
        info = await self._info()
        with contextlib.suppress(*BUS_ERRORS):
            await self._consumer.unsubscribe()
        if began_anew(info, self._created, self._taken):  # all of it is new
            log.warning("stream_began_anew", stream=self._stream, durable=self._durable)
            self._taken, self._created = 0, info.created
        await self._bind(deliver_policy=api.DeliverPolicy.BY_START_SEQUENCE, opt_start_seq=self._taken + 1)
        return int(info.state.last_seq)

    async def _info(self) -> Any:
        return await self._jetstream.stream_info(self._stream)

    async def _bind(self, **where: Any) -> None:
        config = api.ConsumerConfig(ack_wait=_ACK_WAIT_S, **where)
        bind = functools.partial(
            self._jetstream.pull_subscribe, self._subject, durable=self._durable, stream=self._stream, config=config
        )
        self._consumer = await until_done(bind, "consumer_awaited", durable=self._durable)
