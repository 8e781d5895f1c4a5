"""Ports for servers that a test starts; see `foliot_lab.services.ports`."""

from __future__ import annotations

import weakref

from foliot_lab.services.ports import keep


def port_for(owner: object, address: str = "127.0.0.1") -> int:
    """A port that is kept as long as an object lives."""
    keeper = keep(address)
    weakref.finalize(owner, keeper.close)
    return int(keeper.getsockname()[1])
