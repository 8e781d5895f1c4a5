"""Sends packets with a short time to live on the ways of traffic, and reads who says that their time is over.

A socket with ``IP_RECVERR`` is given the ICMP messages about its own packets, without privilege (ip(7)). It has the
address and the port of the overlay's outer packets, so that switches hash both alike. The far host's overlay drops what
comes through: it is of a network that does not exist there.
"""

from __future__ import annotations

import errno
import socket
import struct
from typing import NamedTuple

IP_RECVERR = 11  # linux/in.h
_SO_EE_ORIGIN_ICMP = 2
_TIME_EXCEEDED, _IN_TRANSIT = 11, 0
_EXTENDED_ERROR = struct.Struct("=IBBBBII")
"""sock_extended_err: errno, origin, type, code, and three that say nothing here. The router's sockaddr_in follows."""
_ADDRESS = struct.Struct("=H2x4s")
_PACKET = struct.Struct("!B3xI8sQ")
"""A VXLAN header (RFC 7348) of network 0 without the flag that makes it valid, a mark, and the token."""
_MARK = b"foliot-h"
_ANCILLARY = socket.CMSG_SPACE(128)
_SENDS = 8
_MOST_READ = 256
"""Answers that are read at once."""


class Answer(NamedTuple):
    """A router's word about a packet."""

    peer: str
    """Address that the packet was for."""
    router: int
    """Address of the router, as a number."""
    token: int | None
    """The quoted part of the packet; None: too little of it."""


class HopSocket:
    """One way's socket: an address and a port to send from.

    Parameters:
        address: the NIC's own.
        port: the entropy.
        device: the NIC's, so that no other takes the packet; empty: any.
        ds_field: the traffic's (RFC 2474), as switches may also choose the way by it.

    Raises:
        OSError: it cannot be had, as if another process has the port.
    """

    def __init__(self, address: str, port: int, device: str = "", ds_field: int = 0) -> None:
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)
        try:
            self._socket.setsockopt(socket.SOL_IP, IP_RECVERR, 1)
            self._socket.setsockopt(socket.SOL_IP, socket.IP_TOS, ds_field)
            if device:
                self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, device.encode())
            self._socket.bind((address, port))
        except OSError:
            self._socket.close()
            raise

    def close(self) -> None:
        """Closes the socket."""
        self._socket.close()

    def send(self, peer: str, port: int, ttl: int, token: int) -> None:
        """Sends a packet that lives for so many routers. A packet that the kernel does not take is as good as lost."""
        ancillary = [(socket.SOL_IP, socket.IP_TTL, struct.pack("=i", ttl))]
        for _ in range(_SENDS):
            try:
                self._socket.sendmsg([_PACKET.pack(0, 0, _MARK, token)], ancillary, 0, (peer, port))
            except OSError:
                continue  # of an earlier packet: the kernel also tells an ICMP message to whoever sends next
            return

    def answers(self) -> list[Answer]:
        """Who has answered since the last call."""
        found: list[Answer] = []
        for _ in range(_MOST_READ):
            try:
                quoted, ancillary, _, about = self._socket.recvmsg(_PACKET.size, _ANCILLARY, socket.MSG_ERRQUEUE)
            except OSError as error:
                if error.errno not in {errno.EAGAIN, errno.EINTR}:
                    raise
                break
            for level, kind, data in ancillary:
                if (level, kind) == (socket.SOL_IP, IP_RECVERR) and (router := _router(data)):
                    found.append(Answer(about[0], router, _token(quoted)))
        return found


def _router(data: bytes) -> int:
    """Who says that the packet's time was over; 0: it says something else."""
    _, origin, kind, code, *_ = _EXTENDED_ERROR.unpack_from(data)
    if (origin, kind, code) != (_SO_EE_ORIGIN_ICMP, _TIME_EXCEEDED, _IN_TRANSIT):
        return 0
    family, address = _ADDRESS.unpack_from(data, _EXTENDED_ERROR.size)
    return int.from_bytes(address, "big") if family == socket.AF_INET else 0


def _token(quoted: bytes) -> int | None:
    if len(quoted) < _PACKET.size:
        return None
    _, _, mark, token = _PACKET.unpack(quoted)
    return int(token) if mark == _MARK else None
