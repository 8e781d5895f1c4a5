"""Reads the messages that a stream has kept. `Bus` offers it to services."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

from nats.js import api

if TYPE_CHECKING:
    import datetime as dt
    from collections.abc import AsyncGenerator

    from foliot_schemas.subjects import Channel

_AT_ONCE = 1_024
_FETCH_S = 5.0


def pattern(channel: Channel, names: tuple[str, ...]) -> str:
    """The subject for these names, or the whole family; an empty name stands for any."""
    if not names:
        return channel.all
    tokens = channel.subject(*(name or "any" for name in names)).split(".")
    head = len(tokens) - len(names)
    return ".".join(
        [*tokens[:head], *("*" if not name else token for name, token in zip(names, tokens[head:], strict=True))]
    )


def began_anew(info: Any, created: dt.datetime | None, last: int) -> bool:
    """Whether a stream is not the one that was read up to a number: it was made anew, or is an older copy.

    `info` is nats-py's of it, now.
    """
    return bool(info.created != created or info.state.last_seq < last)


async def between(jetstream: Any, stream: str, subject: str, first: int, last: int) -> list[Any]:
    """The raw messages of a subject from one number of the stream to another, the oldest first."""
    where = {"deliver_policy": api.DeliverPolicy.BY_START_SEQUENCE, "opt_start_seq": max(first, 1)}
    found: list[Any] = []
    async with contextlib.aclosing(each_stored(jetstream, stream, subject, **where)) as stored_since:
        async for raw in stored_since:
            number = raw.metadata.sequence.stream
            found += [raw] if number <= last else []
            if number >= last:
                break
    return found


async def stored(jetstream: Any, stream: str, subjects: str, **where: Any) -> list[Any]:
    """The raw messages that a stream keeps of these subjects, oldest first. See `each_stored`."""
    return [raw async for raw in each_stored(jetstream, stream, subjects, **where)]


async def each_stored(jetstream: Any, stream: str, subjects: str, **where: Any) -> AsyncGenerator[Any, None]:
    """The same as `stored`, one by one, so that a fleet's inventory need not be held twice.

    Parameters:
        where: the fields of a consumer's configuration that say where to begin.

    Raises:
        nats.errors.Error: there is no such stream, or the bus did not answer.
    """
    config = api.ConsumerConfig(ack_policy=api.AckPolicy.NONE, inactive_threshold=2 * _FETCH_S, **where)
    consumer = await jetstream.pull_subscribe(subjects, stream=stream, config=config)
    try:
        left = (await consumer.consumer_info()).num_pending or 0
        while left > 0:
            batch = await consumer.fetch(min(left, _AT_ONCE), timeout=_FETCH_S)
            left -= len(batch)
            for raw in batch:
                yield raw
    finally:
        await consumer.unsubscribe()
