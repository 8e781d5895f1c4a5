"""Records real changes in the hosts' kernels: route and rule messages of Foliot's tables, as the kernel sends them."""

from __future__ import annotations

import asyncio
import socket
from typing import TYPE_CHECKING, NamedTuple

from pyroute2.netlink.rtnl.marshal import MarshalRtnl

from foliot_agent.core import overlay_layout as overlay
from foliot_lab.fabric.namespaces import make_socket

if TYPE_CHECKING:
    from typing import Any

    from foliot_lab.services.lab import Lab

_RTMGRP_IPV4_ROUTE, _RTMGRP_IPV4_RULE = 0x40, 0x80  # linux/rtnetlink.h
_SO_RCVBUFFORCE = 33  # asm-generic/socket.h
_RECEIVE_BYTES = 1 << 20
_NEW_ROUTE, _NEW_RULE, _DELETE_RULE = "RTM_NEWROUTE", "RTM_NEWRULE", "RTM_DELRULE"


class Change(NamedTuple):
    """A change that a kernel made, not a message that left everything as it was."""

    at_ns: int
    host: str
    table: int
    destination: str
    """A service address or, for a rule, the rail's prefix."""
    gateway: str
    """The new gateway; empty: there is none any more. For the rule that sends a rail away, ``away`` while it exists."""


class KernelChanges:
    """Listens on every host from before the services start, so that it knows the initial state."""

    def __init__(self, lab: Lab) -> None:
        self.changes: list[Change] = []
        self._lab = lab
        self._marshal = MarshalRtnl()
        self._present: dict[tuple[str, int, str], str] = {}
        self._sockets = {host: self._open(host) for host in lab.plan.hosts}

    def close(self) -> None:
        """Stops listening."""
        for listening in self._sockets.values():
            asyncio.get_running_loop().remove_reader(listening)
            listening.close()

    def _open(self, host: str) -> socket.socket:
        opened = make_socket(
            self._lab.fabric.host(host), socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_NONBLOCK, socket.NETLINK_ROUTE
        )
        opened.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, _RECEIVE_BYTES)
        opened.bind((0, _RTMGRP_IPV4_ROUTE | _RTMGRP_IPV4_RULE))
        asyncio.get_running_loop().add_reader(opened, self._read, host, opened)
        return opened

    def _read(self, host: str, opened: socket.socket) -> None:
        while True:
            try:
                data = opened.recv(65536)
            except BlockingIOError:
                return
            at_ns = self._lab.time.now_ns()
            for message in self._marshal.parse(data):
                self._take(host, message, at_ns)

    def _take(self, host: str, message: Any, at_ns: int) -> None:
        kind = message["event"]
        if kind in {_NEW_RULE, _DELETE_RULE}:
            if message.get_attr("FRA_PRIORITY") != overlay.AWAY_PRIORITY:
                return
            table, destination = message.get_attr("FRA_TABLE"), message.get_attr("FRA_DST")
            gateway = "away" if kind == _NEW_RULE else ""
        else:
            table, destination = message.get_attr("RTA_TABLE"), message.get_attr("RTA_DST") or ""
            gateway = message.get_attr("RTA_GATEWAY") or "" if kind == _NEW_ROUTE else ""
        of_ours = overlay.IN_FORCE_TABLE <= table < overlay.BACKUP_TABLE + overlay.RAILS
        key = (host, table, destination)
        if of_ours and self._present.get(key, "") != gateway:
            self._present[key] = gateway
            if (
                kind not in {_NEW_RULE, _DELETE_RULE}
                and table >= overlay.BACKUP_TABLE
                and not self._is_away(host, table)
            ):
                return  # armed only: no packet takes it, and no command asks for it
            self.changes.append(Change(at_ns, *key, gateway))

    def _is_away(self, host: str, table: int) -> bool:
        return any(
            gateway == "away"
            for (where, number, _), gateway in self._present.items()
            if (where, number) == (host, table)
        )
