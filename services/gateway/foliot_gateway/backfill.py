"""What happened before the gateway started: the last messages of the streams, read once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import nats
import nats.errors
import structlog
from nats.js import api

from foliot.bus import connection
from foliot_gateway.state.records import MOST_RECORDS
from foliot_schemas import WireError, decode
from foliot_schemas.subjects import COMMAND, EVENT, OUTCOME, STREAMS

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from foliot.settings import BusSettings
    from foliot_gateway.state.store import Store

log = structlog.get_logger()

_BATCH = 500
_TIMEOUT_S = 2.0
_IDLE_S = 30.0
"""The server forgets the reader after this, should we be gone before we can say so."""


async def read(settings: BusSettings, store: Store, limit: int = MOST_RECORDS) -> None:
    """Reads the newest messages of each stream, at most `limit` of each, into what is known.

    Raises:
        nats.errors.Error, OSError, TimeoutError: the bus did not answer; reading again does no harm.
    """
    client = await nats.connect(**connection.options(settings, "gateway"), allow_reconnect=False, error_cb=_ignore)
    try:
        for stream in STREAMS:
            async for raw in _newest(client.jetstream(timeout=_TIMEOUT_S), stream.name, limit):
                _take(raw.subject, raw.data, store)
    finally:
        await client.close()


async def _newest(stream: Any, name: str, limit: int) -> AsyncIterator[Any]:
    state = (await stream.stream_info(name)).state
    first = max(state.first_seq, state.last_seq - limit + 1)
    if not state.messages:
        return
    config = api.ConsumerConfig(
        deliver_policy=api.DeliverPolicy.BY_START_SEQUENCE,
        opt_start_seq=first,
        ack_policy=api.AckPolicy.NONE,
        inactive_threshold=_IDLE_S,
    )
    reader = await stream.pull_subscribe(">", stream=name, config=config)
    sequence = 0
    while sequence < state.last_seq:
        for raw in await reader.fetch(_BATCH, timeout=_TIMEOUT_S):
            sequence = raw.metadata.sequence.stream
            yield raw


def _take(subject: str, data: bytes, store: Store) -> None:
    """Broken messages are passed over: whoever read them when they were new has rejected them aloud."""
    takers: dict[Any, Callable[[Any], object]] = {
        EVENT: store.event,
        COMMAND: store.command,
        OUTCOME: store.outcome,
    }
    for channel, take in takers.items():
        if subject.startswith(channel.all.partition("*")[0]):
            try:
                message = decode(data, channel.message)
                channel.check(subject, message)
                take(message)
            except (WireError, ValueError) as error:
                log.info("history_passed_over", subject=subject, reason=str(error))


async def _ignore(error: Exception) -> None:
    log.debug("history_error", reason=str(error))
