"""A connection to the bus that is a test's own."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from foliot.bus.client import Bus
from patience import patience

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from foliot.settings import BusSettings


@contextlib.asynccontextmanager
async def patient_bus(settings: BusSettings, name: str = "test") -> AsyncIterator[Bus]:
    """A connection whose requests a busy server may answer late. A service asks again; a test that asks once would fail."""
    bus = await Bus.connect(settings, name)
    bus._stream._timeout = patience(20)
    try:
        yield bus
    finally:
        await bus.close()
