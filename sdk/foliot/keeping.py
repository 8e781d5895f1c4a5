"""What may not be lost is offered to its stream again and again, under the same id, until it is stored."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from foliot.retry import BUS_ERRORS, until_done

if TYPE_CHECKING:
    import collections
    from collections.abc import Callable

    from foliot.rejecting import Rejecting


class Keeper:
    """Of one connection.

    Parameters:
        stream: its JetStream context.
        counts: `kept` and `unstored` are raised.
        rejecting: shows what was not stored.
        connected: whether the bus answers.
    """

    def __init__(
        self, stream: Any, counts: collections.Counter[str], rejecting: Rejecting, connected: Callable[[], bool]
    ) -> None:
        self._stream = stream
        self._counts = counts
        self._rejecting = rejecting
        self._connected = connected

    async def keep(self, subject: str, data: bytes, headers: dict[str, str]) -> None:
        """Until it is stored."""

        async def store() -> None:
            try:
                await self._stream.publish(subject, data, headers=headers)
            except BUS_ERRORS as error:
                self._counts["unstored"] += 1
                if self._connected():
                    await self._rejecting.show(subject, data, str(error) or type(error).__name__, unstored=True)
                raise

        await until_done(store, "keep_retried", subject=subject, id=headers["Nats-Msg-Id"])
        self._counts["kept"] += 1
