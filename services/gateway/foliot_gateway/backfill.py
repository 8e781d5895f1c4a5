"""Reads what happened before the gateway started: the last messages of the streams, once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import nats
import nats.errors
import structlog
from nats.js import api

from foliot.bus import connection
from foliot.bus.stream_read import each_stored
from foliot_gateway.state.records import MOST_RECORDS
from foliot_schemas import WireError, decode
from foliot_schemas.subjects import COMMAND, EVENT, OUTCOME

if TYPE_CHECKING:
    from collections.abc import Callable

    from foliot.settings import BusSettings
    from foliot_gateway.state.store import Store

log = structlog.get_logger()

_TIMEOUT_S = 5.0
"""A server whose machine or disk is busy needs longer. Each attempt begins at the first stream again."""


async def read(settings: BusSettings, store: Store) -> None:
    """Reads the newest messages of each stream, at most `MOST_RECORDS` of each, into the store.

    It passes over broken ones: the service that read them when they were new has rejected them aloud.

    Raises:
        nats.errors.Error, OSError, TimeoutError: the bus did not answer; reading again does no harm.
    """
    takers: dict[Any, Callable[[Any], None]] = {EVENT: store.event, COMMAND: store.command, OUTCOME: store.outcome}
    found = connection.options(settings, "gateway")
    client = await nats.connect(**found, allow_reconnect=False, connect_timeout=_TIMEOUT_S, error_cb=_ignore)
    try:
        jetstream = client.jetstream(timeout=_TIMEOUT_S)
        for channel, take in takers.items():
            last = (await jetstream.stream_info(channel.stream)).state.last_seq
            where = {
                "deliver_policy": api.DeliverPolicy.BY_START_SEQUENCE,
                "opt_start_seq": max(1, last - MOST_RECORDS + 1),
            }
            async for raw in each_stored(jetstream, channel.stream, channel.all, **where):
                try:
                    message = decode(raw.data, channel.message)
                    channel.check(raw.subject, message)
                    take(message)
                except (WireError, ValueError) as error:
                    log.info("history_passed_over", subject=raw.subject, reason=str(error))
    finally:
        await client.close()


async def _ignore(error: Exception) -> None:
    log.debug("history_error", reason=str(error))
