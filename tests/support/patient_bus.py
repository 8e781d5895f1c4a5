"""Connections of tests to a bus that may stand still for a moment."""

from __future__ import annotations

from typing import TYPE_CHECKING

from patience import patience

if TYPE_CHECKING:
    from foliot.bus.client import Bus


def patient(bus: Bus) -> Bus:
    """The same connection, which waits longer than two seconds for an acknowledgement: a service would write again, and a test does not."""
    bus._stream._timeout = patience(20)
    return bus
