"""A test's own connection to a server that may be slow."""

from __future__ import annotations

from typing import TYPE_CHECKING
from unittest import mock

from foliot.bus import client
from patience import patience

if TYPE_CHECKING:
    from foliot.settings import BusSettings


async def patient_bus(settings: BusSettings, service: str = "test") -> client.Bus:
    """A service's connection, which waits for each answer as long as a test has patience.

    A service gives an answer up after two seconds, and asks again. Where a test asks once, that would end it.
    """
    with mock.patch.object(client, "ACK_TIMEOUT_S", patience(20)):
        bus = client.Bus.later(settings, service)
    try:
        await bus.opened()
    except BaseException:
        await bus.close()
        raise
    return bus
