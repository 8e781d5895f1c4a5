"""Connections of tests to a bus that may stand still for a moment. A service would write again after two seconds, and a test does not."""

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


def patient(bus: Bus) -> Bus:
    """The same connection, which waits for each answer as long as a test has patience."""
    bus._stream._timeout = patience(20)
    return bus


async def patient_bus(settings: BusSettings, service: str = "test") -> Bus:
    """A service's connection that is patient also while it is made."""
    bus = patient(Bus.later(settings, service))
    try:
        await bus.opened()
    except BaseException:
        await bus.close()
        raise
    return bus


@contextlib.asynccontextmanager
async def connected(settings: BusSettings, service: str = "test") -> AsyncIterator[Bus]:
    """Such a connection, and its end."""
    bus = await patient_bus(settings, service)
    try:
        yield bus
    finally:
        await bus.close()


def wait_for_slow_servers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Gives every `Bus` that is made from now on time to connect, and for requests and pings. It notices at once that a server has ended: the kernel closes the connection."""
    monkeypatch.setattr(client, "ACK_TIMEOUT_S", patience(10))
    monkeypatch.setattr(connection, "_CONNECT_S", patience(10))
    monkeypatch.setattr(connection, "_PING_S", patience(20))
