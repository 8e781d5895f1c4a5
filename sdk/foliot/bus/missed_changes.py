"""Looks for changes of a bucket whose messages were lost."""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING, Any

import structlog

from foliot.bus.retry import BUS_ERRORS

if TYPE_CHECKING:
    from foliot.bus.key_value_watch import KeyValueWatch
    from foliot_schemas.subjects import Bucket

log = structlog.get_logger()

_FIRST_PAUSE_S = 1.0
_PAUSE_S = 10.0
_PAUSE_A_KEY_S = 0.005
"""Added up over the keys, the least pause of a node's services. A fleet has a key for each node, and each node has two
services that look at two buckets. So they ask the bus 800 times a second at most, however many they are. Each time
takes the server some 70 us (measured)."""


class MissedChanges:
    """Looks, for all watches of a bucket over one connection, for values that were stored and not told.

    One request says whether the bucket has stored anything since the last look. Only if it has, each watch asks for its
    own keys.

    Parameters:
        of_node: whether every node may have such a connection. Those look less often in a large fleet.
    """

    def __init__(self, client: Any, stream: Any, bucket: Bucket, *, of_node: bool) -> None:
        self._client = client
        self._stream = stream
        self._bucket = bucket
        self._pause_a_key_s = _PAUSE_A_KEY_S if of_node else 0.0
        self.watches: list[KeyValueWatch] = []

    async def keep_looking(self) -> None:
        """Looks again and again, until cancelled, at a time of its own: the nodes of a fleet begin together."""
        pause_s = _FIRST_PAUSE_S
        while True:
            await asyncio.sleep(pause_s * random.uniform(0.8, 1.2))  # noqa: S311 - nothing secret
            pause_s = _PAUSE_S
            if self._client.is_connected:
                try:
                    pause_s = max(pause_s, await self.look() * self._pause_a_key_s)
                except BUS_ERRORS:
                    continue  # the next look asks again
                except Exception:  # whatever somebody stored, the looks go on
                    log.exception("look_failed", bucket=self._bucket.name)

    async def look(self) -> int:
        """Lets each watch tell what it has missed; returns how many keys the bucket has.

        Raises:
            nats.errors.Error: the bus did not answer.
        """
        info = await self._stream.stream_info(f"KV_{self._bucket.name}")
        for watch in self.watches:
            await watch.look(info)
        return int(info.state.messages)
