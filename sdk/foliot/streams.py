"""The streams of the contract, as JetStream keeps them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nats.js import api

from foliot_schemas.subjects import STREAMS

if TYPE_CHECKING:
    from nats.js import JetStreamContext


async def make_streams(jetstream: JetStreamContext, replicas: int) -> None:
    """Makes those that are not there; made twice, by whichever service comes first, is the same as once.

    Raises:
        nats.errors.Error: the bus did not.
    """
    for stream in STREAMS:
        config = api.StreamConfig(
            name=stream.name, subjects=list(stream.subjects), max_age=stream.keep_days * 86_400,
            duplicate_window=stream.duplicate_window_s, num_replicas=replicas,
        )  # fmt: skip
        await jetstream.add_stream(config)
