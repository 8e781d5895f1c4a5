"""Finds the host's management devices: those of its default route, and of its way to the bus.

Such a port comes and goes with the host's own network. If the settings made it a rail by mistake, it would be judged
like a port of the fabric.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from collections.abc import Mapping

_ROUTES = Path("/proc/thread-self/net/route")
"""The routes of this network namespace: the main table, IPv4."""
_RTF_UP = 0x1
_NATS_PORT = 4222


class ManagementNics:
    """Finds management devices of the node's, which have these `addresses`, and remembers them.

    A default route goes with its device, and just then it matters whose it was.
    """

    def __init__(self, addresses: Mapping[str, str], routes: Path = _ROUTES) -> None:
        self._devices = {address: device for device, address in addresses.items()}
        self._routes = routes
        self._defaults: frozenset[str] = frozenset()
        self._frontend = ""

    def devices(self) -> frozenset[str]:
        """Names of the management devices, as far as they are known."""
        try:
            found = default_devices(self._routes.read_text())
        except OSError:
            found = frozenset()
        self._defaults = found or self._defaults
        return self._defaults | ({self._frontend} if self._frontend else frozenset())

    async def find_frontend(self, urls: str) -> None:
        """Asks the kernel from which address it would send to the bus: to the first server that it has a route to."""
        for url in urls.split(","):
            address = await _address_towards(url.strip())
            if address and not ipaddress.ip_address(address).is_loopback:
                self._frontend = self._devices.get(address, "")
                return


def default_devices(text: str) -> frozenset[str]:
    """Devices of the default routes, from the text of ``/proc/net/route``; lines of another form are left out."""
    rows = [line.split() for line in text.splitlines()]
    return frozenset(
        row[0] for row in rows if len(row) >= 8 and row[1] == row[7] == "00000000" and int(row[3], 16) & _RTF_UP
    )


async def _address_towards(url: str) -> str:
    """The local address that the kernel would send from; empty: it has no route. Nothing is sent."""
    try:
        parts = urlsplit(url if "//" in url else f"nats://{url}")
        found = await asyncio.get_running_loop().getaddrinfo(
            parts.hostname, parts.port or _NATS_PORT, family=socket.AF_INET, type=socket.SOCK_DGRAM
        )
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asked:
            asked.connect(found[0][4])
            return str(asked.getsockname()[0])
    except (OSError, ValueError):
        return ""
