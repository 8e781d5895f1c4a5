"""Repeats a request to the bus until it succeeds."""

from __future__ import annotations

import asyncio
import os
import re
import socket
import ssl
from typing import TYPE_CHECKING, TypeVar

import nats.errors
import structlog
from nats.js.errors import APIError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

log = structlog.get_logger()

Result = TypeVar("Result")

BUS_ERRORS = (nats.errors.Error, OSError, asyncio.TimeoutError)
"""Errors by which nats-py tells that the bus is away."""
FIRST_S = 0.25
LONGEST_S = 5.0
_ERRNO = re.compile(r"\[Errno (\d+)\]")
_NO_ADDRESS = "the address cannot be read: give it as nats://host:4222"
_OF_NATS = {
    "empty response from server when expecting INFO message": "what listens there does not speak as a NATS server does",
    "invalid hostname in connect url": _NO_ADDRESS,
    "invalid connect url option": _NO_ADDRESS,
}
"""Words of nats-py, and words that help a person more."""


def in_words(error: BaseException) -> str:
    """The reason why the bus does not answer, for a person: without names of classes and numbers of errors."""
    match error:
        case ConnectionRefusedError():
            said = "nothing listens there (connection refused)"
        case socket.gaierror(errno=socket.EAI_NONAME):
            said = "no host of this name is known here"
        case socket.gaierror():
            said = f"the host's name cannot be looked up ({error.strerror})"
        case ssl.SSLCertVerificationError():
            said = f"its certificate is not trusted here ({error.verify_message})"
        case ssl.SSLError():
            said = (
                "TLS does not come about "
                f"({(getattr(error, 'reason', '') or 'no reason told').lower().replace('_', ' ')})"
            )
        case TimeoutError():
            said = "no answer in time"
        case APIError():
            said = error.description or "JetStream does not answer"
        case OSError():
            said = _of_system(error)
        case _:
            said = str(error).removeprefix("nats: ")
    return _OF_NATS.get(said, said) or "no answer"


def _of_system(error: OSError) -> str:
    """The reason of an error of the system. asyncio tells several in one text where a host has several addresses."""
    numbers = {int(number) for number in _ERRNO.findall(str(error))} | ({error.errno} if error.errno else set())
    return " and ".join(sorted(os.strerror(number).lower() for number in numbers)) or "it cannot be connected to"


def heed_cancellation() -> None:
    """Raises the `CancelledError` that came together with the bus's answer.

    Python 3.11's wait_for, which nats-py uses, forgets it.
    """
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        raise asyncio.CancelledError


async def until_done(attempt: Callable[[], Awaitable[Result]], event: str, **context: str) -> Result:
    """The result of the first attempt that succeeds.

    Each one before is logged as this event; pauses double up to five seconds.
    """
    delay_s = FIRST_S
    while True:
        try:
            result = await attempt()
        except BUS_ERRORS as error:
            heed_cancellation()
            log.warning(event, **context, reason=str(error) or type(error).__name__)
            await asyncio.sleep(delay_s)
            delay_s = min(delay_s * 2, LONGEST_S)
        else:
            heed_cancellation()
            return result
