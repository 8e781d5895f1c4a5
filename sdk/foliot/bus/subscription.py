"""Plain subscriptions: each message as it comes, in order; an observation that waited for long is dropped."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from foliot.bus import connection
from foliot.bus.load_shedding import LATE_S, LoadShedding
from foliot.bus.stream_read import pattern

if TYPE_CHECKING:
    import collections

    from foliot.bus.dispatch import About, Dispatch, Handler
    from foliot_schemas.subjects import Channel


class Subscription:
    """The subscriptions of one connection.

    Parameters:
        client: the connection.
        counts: `behind` is raised by what is left out.
        delivery: hands messages over.
    """

    def __init__(self, client: Any, counts: collections.Counter[str], delivery: Dispatch) -> None:
        self._client = client
        self._counts = counts
        self._delivery = delivery

    async def begin(
        self,
        channel: Channel,
        handler: Handler,
        names: tuple[str, ...],
        *,
        once: bool,
        about: About | None,
        late_s: float = LATE_S,
    ) -> None:
        """Hears a channel from now on: see `Bus.subscribe`.

        Parameters:
            once: each message id is handed over once.
        """
        subject = pattern(channel, names)
        # Events, commands and outcomes are few and are caught up with; of observations only the newest are worth anything.
        backlog = LoadShedding(subject, self._counts, late_s) if not channel.stream else None

        async def arrived(raw: Any) -> None:
            if backlog is None or not backlog.is_behind(subscription.pending_msgs):
                await self._delivery.hand_over(channel, handler, raw, once=once, about=about)

        subscription = await self._client.subscribe(subject, cb=arrived)
        await connection.settle(self._client)
