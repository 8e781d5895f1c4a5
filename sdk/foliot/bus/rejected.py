"""Reports messages that could not be read or stored."""

from __future__ import annotations

from typing import TYPE_CHECKING

import structlog

from foliot_schemas import Rejected
from foliot_schemas.subjects import REJECTED

if TYPE_CHECKING:
    import collections
    from collections.abc import Awaitable, Callable

log = structlog.get_logger()

_HEAD_BYTES = 256
_REASON_CHARACTERS = 1_024


class Rejecting:
    """Reports the messages of one service by `Bus.publish`, and counts those that it could not read as `rejected`."""

    def __init__(self, service: str, counts: collections.Counter[str], publish: Callable[..., Awaitable[None]]) -> None:
        self._service = service
        self._counts = counts
        self._publish = publish

    async def reject(self, subject: str, data: bytes, reason: str) -> None:
        """Counts, logs and shows a message that could not be read."""
        self._counts["rejected"] += 1
        reason = reason[:_REASON_CHARACTERS]
        log.warning("message_rejected", subject=subject, reason=reason)
        await self.show(subject, data, reason)

    async def show(self, subject: str, data: bytes, reason: str, *, unstored: bool = False) -> None:
        """Shows a message on `rejected`, and does no more."""
        head = data[:_HEAD_BYTES]
        rejected = Rejected(service=self._service, subject=subject, reason=reason, head=head, unstored=unstored)
        await self._publish(REJECTED, rejected, self._service)
