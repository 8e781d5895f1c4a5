"""What a stream has kept of a channel. `Bus` offers it to services."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from nats.js import api

from foliot_schemas import WireError, decode

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from foliot_schemas.subjects import Channel

    Reject = Callable[[str, bytes, str], Awaitable[None]]

_AT_ONCE = 256
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


async def newest(stream: Any, channel: Channel, subjects: str, reject: Reject) -> list[Any]:
    """Of each of these subjects, the newest message that the stream keeps; one that cannot be read is rejected."""
    config = api.ConsumerConfig(
        deliver_policy=api.DeliverPolicy.LAST_PER_SUBJECT,
        ack_policy=api.AckPolicy.NONE,
        inactive_threshold=2 * _FETCH_S,
    )
    consumer = await stream.pull_subscribe(subjects, stream=channel.stream, config=config)
    found: list[Any] = []
    try:
        left = (await consumer.consumer_info()).num_pending or 0
        while left > 0:
            batch = await consumer.fetch(min(left, _AT_ONCE), timeout=_FETCH_S)
            left -= len(batch)
            for raw in batch:
                try:
                    found.append(decode(raw.data, channel.message))
                except WireError as error:
                    await reject(raw.subject, raw.data, str(error))
    finally:
        await consumer.unsubscribe()
    return found
