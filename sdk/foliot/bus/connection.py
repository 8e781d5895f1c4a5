"""Connects to NATS: servers, credentials, TLS, and an inbox of its own."""

from __future__ import annotations

import asyncio
import ssl
from pathlib import Path
from typing import TYPE_CHECKING, Any

import nats.errors
import structlog

from foliot.bus.credentials import holder
from foliot.bus.retry import BUS_ERRORS, until_done
from foliot.settings import SettingsError
from foliot_schemas.permissions import inbox_prefix

if TYPE_CHECKING:
    import collections

    from foliot.settings import BusSettings

log = structlog.get_logger()

_PING_S = 1
"""A cut bus is noticed after two unanswered pings; nats-py's default of 120 s would leave armed backups asleep."""
_CONNECT_S = 1
"""For each step of connecting: a server may be one of several, and another be there."""
ACK_TIMEOUT_S = 2.0
"""A stream acknowledges a message within milliseconds, or is away."""
_RETRY_S = 0.25
_REFUSED_S = 2.0
"""Pause between attempts when the server refuses the credentials: it is there, and will not change its mind soon."""


class BusClosedError(Exception):
    """The server has closed the connection for good: credentials revoked or expired, too slow a reader.

    A new start may do better.
    """


async def establish(client: Any, found: dict[str, Any], **callbacks: Any) -> None:
    """Connects nats-py's client with `options` and callbacks, however long it takes. It reconnects forever."""
    waiting = False
    while True:
        try:
            await client.connect(
                **found, **callbacks, max_reconnect_attempts=-1, reconnect_time_wait=_RETRY_S,
                connect_timeout=_CONNECT_S, ping_interval=_PING_S, max_outstanding_pings=2, allow_reconnect=True,
            )  # fmt: skip
        except BUS_ERRORS as error:
            if not waiting:
                log.info("bus_awaited", url=",".join(found["servers"]), reason=str(error) or type(error).__name__)
            waiting = True
            await asyncio.sleep(_REFUSED_S if isinstance(error, nats.errors.AuthorizationError) else _RETRY_S)
        else:
            return


def options(settings: BusSettings, name: str) -> dict[str, Any]:
    """Keyword arguments for nats-py's `connect`: where, as whom, and how to know the server.

    Parameters:
        name: of the connection, as the server shows it, and of the service whose credentials are taken from a
            directory.

    Raises:
        SettingsError: a file that the settings name cannot be read.
    """
    found: dict[str, Any] = {"servers": [url.strip() for url in settings.url.split(",")], "name": name}
    if settings.credentials:
        path = Path(settings.credentials)
        try:
            path = path / f"{name}.creds" if path.is_dir() else path
            role, holder_name = holder(path.read_text())
        except OSError as error:
            raise SettingsError(f"bus.credentials: {path}: {error.strerror}") from error
        except ValueError as error:
            raise SettingsError(f"bus.credentials: {path}: {error}") from error
        found["user_credentials"] = str(path)
        # The server lets no one else listen where this holder's answers go.
        found["inbox_prefix"] = inbox_prefix(role, holder_name)
    if settings.ca:
        try:
            found["tls"] = ssl.create_default_context(cafile=settings.ca)
        except OSError as error:
            raise SettingsError(f"bus.ca: {settings.ca}: {error.strerror or error}") from error
    return found


async def flush(client: Any) -> None:
    """Waits until the server has taken all that was sent, subscriptions too, however long it takes.

    It flushes twice: nats-py 2.16 writes the ping of a `flush` before data that still waits to be written. Only the
    second ping comes behind it.
    """
    for _ in range(2):
        await until_done(client.flush, "server_awaited")


async def note(counts: collections.Counter[str], error: Exception) -> None:
    """Logs an error that nats-py tells in passing: loudly, if a message was lost or a request will not be answered."""
    reason = str(error) or type(error).__name__
    if isinstance(error, nats.errors.SlowConsumerError):
        counts["behind"] += 1
        log.error("message_dropped", reason="the client's own queue is full", subject=error.subject)
    elif "permissions violation" in reason:  # the request times out without a word
        log.error("bus_forbade", reason=reason)
    else:
        log.debug("bus_error", reason=reason)
