"""Cuts between two places of the frontend: packets between them vanish both ways, and neither end is told.

Each end gets a permanent neighbour entry for the other, with a hardware address that no device has. The bridge floods
such frames and no device takes them. So connections hang as over a dead switch. A route that refuses would tell the
sender at once.
"""

from __future__ import annotations

import socket
import struct
from typing import TYPE_CHECKING

from foliot_lab.fabric.namespaces import inside
from foliot_lab.fabric.rtnetlink import ACK, CREATE, REPLACE, Rtnetlink, attribute, message
from foliot_lab.scenario.topology import FRONT_DEVICE

if TYPE_CHECKING:
    from foliot_lab.fabric.fabric import Fabric

# linux/rtnetlink.h and linux/neighbour.h
_NEW_NEIGHBOUR, _DELETE_NEIGHBOUR = 28, 29
_DESTINATION, _HARDWARE_ADDRESS = 1, 2
_PERMANENT = 0x80
_NEIGHBOUR = struct.Struct("=BxxxiHBB")
_NOBODY = bytes.fromhex("02f0f0f0f0f0")


class Partitions:
    """The frontend of the fabric, with the cuts between its places."""

    def __init__(self, fabric: Fabric) -> None:
        self._plan = fabric.plan
        self._sockets: dict[str, Rtnetlink] = {}
        self._indexes: dict[str, int] = {}
        for name in (*fabric.plan.hosts, *fabric.plan.central):
            namespace = fabric.namespace(name)
            self._sockets[name] = Rtnetlink(namespace)
            with inside(namespace):
                self._indexes[name] = socket.if_nametoindex(FRONT_DEVICE)

    def cut(self, one: str, other: str) -> None:
        """Cuts these two off from each other; ``bus`` stands for all its servers.

        Raises:
            KeyError: there is no such place.
        """
        self._each(one, other, _NEW_NEIGHBOUR, ACK | CREATE | REPLACE, attribute(_HARDWARE_ADDRESS, _NOBODY))

    def mend(self, one: str, other: str) -> None:
        """They hear each other again.

        Raises:
            OSError: they were not cut.
        """
        self._each(one, other, _DELETE_NEIGHBOUR, ACK)

    def close(self) -> None:
        """Closes the sockets; what is cut stays so."""
        for opened in self._sockets.values():
            opened.close()

    def _each(self, one: str, other: str, kind: int, flags: int, *more: bytes) -> None:
        for left in self._places(one):
            for right in self._places(other):
                for here, there in ((left, right), (right, left)):
                    body = _NEIGHBOUR.pack(socket.AF_INET, self._indexes[here], _PERMANENT, 0, 0)
                    where = attribute(_DESTINATION, socket.inet_aton(self._plan.front(there)))
                    self._sockets[here].request(message(kind, flags, body, where, *more))

    def _places(self, name: str) -> tuple[str, ...]:
        return self._plan.bus_servers if name == "bus" else (name,)
