"""Connections of tests to a bus that may stand still for a moment.

A service would ask again after two seconds, and a test does not.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from foliot.bus import client, connection
from foliot.bus.client import Bus
from patience import patience

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    import pytest

    from foliot.settings import BusSettings


@contextlib.asynccontextmanager
async def connected(settings: BusSettings, service: str = "test", *, makes: bool = True) -> AsyncIterator[Bus]:
    """The test's own connection, see `Bus.connect`: it waits for each answer as long as a test has patience."""
    bus = Bus.later(settings, service, makes=makes)
    bus._stream._timeout = patience(20)
    try:
        await bus.opened()
        yield bus
    finally:
        await bus.close()


def wait_for_slow_servers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Gives every `Bus` that the tested code makes in this process time to connect, and for requests and pings.

    It notices at once that a server has ended: the kernel closes the connection.
    """
    monkeypatch.setattr(client, "ACK_TIMEOUT_S", patience(10))
    monkeypatch.setattr(connection, "_CONNECT_S", patience(10))
    monkeypatch.setattr(connection, "_PING_S", patience(20))
