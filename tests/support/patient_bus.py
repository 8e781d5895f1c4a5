"""Connections of a test's own process to a bus that is slow: a server, a disk or a machine that stands still for some seconds is not taken for one that is away."""

from __future__ import annotations

from typing import TYPE_CHECKING

from foliot.bus import client, connection
from patience import patience

if TYPE_CHECKING:
    import pytest


def wait_for_slow_servers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Gives every `Bus` that is made from now on time to connect, and for requests and pings. It notices at once that a server has ended: the kernel closes the connection."""
    monkeypatch.setattr(client, "ACK_TIMEOUT_S", patience(10))
    monkeypatch.setattr(connection, "_CONNECT_S", patience(10))
    monkeypatch.setattr(connection, "_PING_S", patience(20))
