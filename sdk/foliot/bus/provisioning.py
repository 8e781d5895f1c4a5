"""The streams and buckets of the contract, as JetStream keeps them.

Making them raises `nats.errors.Error` if the bus did not.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from nats.js import api

from foliot_schemas.subjects import STREAMS

if TYPE_CHECKING:
    from nats.js import JetStreamContext

    from foliot_schemas.subjects import Bucket


async def make_streams(jetstream: JetStreamContext, replicas: int) -> None:
    """Makes the streams that are not there. Several services may make them: making one twice is the same as once."""
    for stream in STREAMS:
        config = api.StreamConfig(
            name=stream.name, subjects=list(stream.subjects), max_age=stream.keep_days * 86_400,
            duplicate_window=stream.duplicate_window_s, num_replicas=replicas,
        )  # fmt: skip
        await jetstream.add_stream(config)


async def make_bucket(jetstream: JetStreamContext, bucket: Bucket, replicas: int) -> None:
    """Makes the stream of a bucket, as `make_streams`.

    nats-py's `create_key_value` is not used. It permits roll-ups, and a roll-up header on its own key would let a node
    empty the whole bucket. It permits direct reads, too, which a request could have sent to anybody (see
    `foliot_schemas.permissions`).
    """
    config = api.StreamConfig(
        name=f"KV_{bucket.name}", subjects=[bucket.subject()], max_msgs_per_subject=1, max_age=bucket.keep_s or None,
        duplicate_window=min(bucket.keep_s or 120, 120), discard=api.DiscardPolicy.NEW, deny_delete=True,
        allow_direct=False, allow_rollup_hdrs=False, num_replicas=replicas,
        storage=api.StorageType.MEMORY if bucket.storage == "memory" else api.StorageType.FILE,
    )  # fmt: skip
    await jetstream.add_stream(config)
