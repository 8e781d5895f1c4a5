"""Dispatches raw messages to handlers: decodes them, and drops repeated ids where asked.

It reports a broken message and goes on.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import structlog

from foliot import tracing
from foliot.bus.recent_ids import RecentIds
from foliot_schemas import WireError, decode

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from foliot_schemas.subjects import Channel

    Handler = Callable[[Any, str], Awaitable[None]]
    About = Callable[[str], bool]
    """Says whether messages about a name are wanted."""
    Reject = Callable[[str, bytes, str], Awaitable[None]]
    """Called with the subject, data and reason of a message that cannot be read."""

log = structlog.get_logger()

_SEEN = 65_536
"""Message ids remembered to drop second deliveries: a minute of events and outcomes in a storm of 300 events a
second."""
_LONGEST_ID = 4_096
"""Most characters of an id, as the schemas allow them."""


class Dispatch:
    """Decodes and hands over the messages of one connection. It rejects those that cannot be read."""

    def __init__(self, reject: Reject) -> None:
        self._reject = reject
        self._seen = RecentIds(_SEEN)

    async def hand_over(
        self, channel: Channel, handler: Handler, raw: Any, *, once: bool, about: About | None = None, more: bool = True
    ) -> None:
        """Calls the handler inside the sender's trace; with `once`, not for an id that came before.

        After each observation other tasks have their turn. So an event or command waits for one of them at most,
        however many there are.

        Parameters:
            more: whether another message may follow at once. Where the caller waits for the next, others have their
                turn anyway.
        """
        if about is None or about(channel.concerned(raw.subject)):
            await self._hand_over(channel, handler, raw, once=once)
        if more and not channel.stream:
            await asyncio.sleep(0)

    async def _hand_over(self, channel: Channel, handler: Handler, raw: Any, *, once: bool) -> None:
        message_id = (raw.headers or {}).get("Nats-Msg-Id", "") if once else ""
        if len(message_id) > _LONGEST_ID:
            await self._reject(raw.subject, raw.data, f"its Nats-Msg-Id has {len(message_id)} characters")
            return
        if message_id in self._seen:
            return
        try:
            message = decode(raw.data, channel.message)
            channel.check(raw.subject, message)
            # Only now: a refused message must not use up the id of one that is still to come.
            if message_id:
                self._seen.add(message_id)
            with tracing.received(raw.headers):
                await handler(message, raw.subject)
        except WireError as error:
            await self._reject(raw.subject, raw.data, str(error))
        except Exception as error:  # a bad message, or a fault of ours with it, never stops a service
            log.exception("handler_failed", subject=raw.subject)
            await self._reject(raw.subject, raw.data, f"handler failed: {error!r}")
