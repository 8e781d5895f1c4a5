"""Doing what the bus refuses now again until it does not."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, TypeVar

import nats.errors
import structlog

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

log = structlog.get_logger()

Result = TypeVar("Result")

BUS_ERRORS = (nats.errors.Error, OSError, asyncio.TimeoutError)
"""What the bus being away looks like, as nats-py tells it."""
_FIRST_S = 0.25
_LONGEST_S = 5.0


async def until_done(attempt: Callable[[], Awaitable[Result]], event: str, **context: str) -> Result:
    """The result of the first attempt that the bus grants. Each one before is logged as this event; waits double up to five seconds."""
    delay_s = _FIRST_S
    while True:
        try:
            return await attempt()
        except BUS_ERRORS as error:
            log.warning(event, **context, reason=str(error) or type(error).__name__)
            await asyncio.sleep(delay_s)
            delay_s = min(delay_s * 2, _LONGEST_S)
