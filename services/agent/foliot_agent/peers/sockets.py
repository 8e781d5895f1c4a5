"""The agent's sockets: notices between the NICs' own addresses, echoes between service addresses."""

from __future__ import annotations

import asyncio
import socket
from typing import TYPE_CHECKING, Any

import structlog

if TYPE_CHECKING:
    from collections.abc import Callable

    from foliot_agent.core.peer_protocol import Seal
    from foliot_schemas.notice import Echo, Notice, NoticeSeen

    Reply = Callable[[Notice | NoticeSeen | Echo], None]
    OnMessage = Callable[[Notice | NoticeSeen | Echo, Reply], None]

log = structlog.get_logger()

_AT_ONCE = 64
"""Datagrams read in one turn of the event loop: some 0.3 ms."""
_IP_FREEBIND = 15
"""<linux/in.h>: an address may be bound before it is there, as a NIC's may be while it is down."""


class PeerSockets:
    """Sealed datagrams from and to several own addresses, one socket each.

    Parameters:
        on_message: called at once with every message whose seal fits, and with a function that sends an answer the way
            it came.
    """

    def __init__(self, seal: Seal, port: int, on_message: OnMessage) -> None:
        self.rejected = 0
        self.last_rejected = ("", b"", "")
        """The last datagram that was rejected: where it came from, itself, why."""
        self._seal = seal
        self._port = port
        self._on_message = on_message
        self._sockets: dict[str, socket.socket] = {}

    def open(self, address: str) -> None:
        """Begins to listen on an own address.

        Raises:
            OSError: the port is taken.
        """
        opened = socket.socket(socket.AF_INET, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
        opened.setsockopt(socket.SOL_IP, _IP_FREEBIND, 1)
        try:
            opened.bind((address, self._port))
        except OSError as error:
            opened.close()
            raise OSError(error.errno, f"node.agent_port: cannot bind {address}:{self._port}: {error}") from error
        self._sockets[address] = opened
        asyncio.get_running_loop().add_reader(opened, self._read, opened)

    def close(self) -> None:
        """Ends all."""
        for opened in self._sockets.values():
            asyncio.get_running_loop().remove_reader(opened)
            opened.close()
        self._sockets.clear()

    def seal(self, message: Notice | NoticeSeen | Echo) -> bytes:
        """The datagram of a message; seal once, send to many."""
        return self._seal.close(message)

    def send(self, datagram: bytes, source: str, destination: str, port: int) -> None:
        """Sends from an own address, if the kernel will (no route, full buffer); the caller repeats anyway."""
        try:
            self._sockets[source].sendto(datagram, (destination, port))
        except (OSError, OverflowError) as error:
            log.debug("datagram_not_sent", source=source, destination=destination, reason=str(error))

    def _read(self, opened: socket.socket) -> None:
        # Not until none is left: under a flood, everything else would wait for its end. The loop calls again while
        # something is there.
        for _ in range(_AT_ONCE):
            try:
                data, sender = opened.recvfrom(2048)
            except BlockingIOError:
                return
            except OSError as error:  # what ICMP says of an earlier datagram
                log.debug("datagram_returned", reason=str(error))
                continue
            self._take(data, opened, sender)

    def _take(self, data: bytes, opened: socket.socket, sender: Any) -> None:
        try:
            message = self._seal.open(data)
        except ValueError as error:
            self.rejected += 1
            self.last_rejected = f"udp:{sender[0]}", data, str(error)
            return

        def reply(answer: Notice | NoticeSeen | Echo) -> None:
            if opened.fileno() >= 0:
                self.send(self._seal.close(answer), opened.getsockname()[0], sender[0], sender[1])

        self._on_message(message, reply)
