"""A routing socket in a namespace, and the few messages that inject faults.

Faults happen at an exact moment, inside a running event loop, and must heal while everything shuts down. So each is one
synchronous system call on a socket that is already open. Sources: rtnetlink(7); numbers from linux/rtnetlink.h and
pkt_sched.h.
"""

from __future__ import annotations

import os
import socket
import struct
from typing import TYPE_CHECKING

from foliot.node.rtnetlink import attributes, messages
from foliot_lab.fabric.namespaces import make_socket

if TYPE_CHECKING:
    from collections.abc import Iterator

    from foliot_lab.fabric.namespaces import Namespace

REQUEST, ACK, REPLACE, EXCLUSIVE, CREATE, DUMP = 0x1, 0x4, 0x100, 0x200, 0x400, 0x300
_ERROR, _DONE = 2, 3
_NEW_LINK, _DELETE_LINK, _GET_LINK, _NEW_ROUTE, _GET_ROUTE, NEW_QDISC, GET_QDISC, NEW_FILTER, DELETE_FILTER = (
    16, 17, 18, 24, 26, 36, 38, 44, 45,
)  # fmt: skip
_IFF_UP = 0x1
_IFLA_NAME, _LINK_BYTES = 3, 16
_RTA_DESTINATION, _RTA_SOURCE, _RTA_INPUT, _RTA_OUTPUT, _RTA_GATEWAY = 1, 2, 3, 4, 5
_RTA_PROTOCOL, _RTA_SOURCE_PORT, _RTA_DESTINATION_PORT = 27, 28, 29
_TABLE_MAIN, _PROTOCOL_STATIC, _UNICAST = 254, 4, 1

_HEADER = struct.Struct("=IHHII")
_ROUTE = struct.Struct("=8BI")
_ATTRIBUTE = struct.Struct("=HH")
_PATIENCE_S = 5.0
"""The kernel answers in microseconds; waiting longer than this would hide that it does not."""


def attribute(kind: int, value: bytes) -> bytes:
    """A netlink attribute, padded to four bytes; nest by concatenation."""
    return _ATTRIBUTE.pack(_ATTRIBUTE.size + len(value), kind) + value + bytes(-len(value) % 4)


def message(kind: int, flags: int, *parts: bytes) -> bytes:
    """A netlink message without its sequence number, which `Rtnetlink.request` fills in."""
    body = b"".join(parts)
    return _HEADER.pack(_HEADER.size + len(body), kind, REQUEST | flags, 0, 0) + body


def link_state(index: int, *, up: bool) -> bytes:
    """Set a device up or down."""
    return message(_NEW_LINK, ACK, struct.pack("=BxHiII", 0, 0, index, _IFF_UP if up else 0, _IFF_UP))


def delete_link(index: int) -> bytes:
    """Delete a device; of a virtual wire, both ends."""
    return message(_DELETE_LINK, ACK, struct.pack("=BxHiII", 0, 0, index, 0, 0))


def put_route(prefix: str, gateway: str, index: int) -> bytes:
    """Put a route of the main table in place, whether or not it exists already."""
    destination, _, length = prefix.partition("/")
    return message(
        _NEW_ROUTE,
        ACK | CREATE | REPLACE,
        _ROUTE.pack(socket.AF_INET, int(length), 0, 0, _TABLE_MAIN, _PROTOCOL_STATIC, 0, _UNICAST, 0),
        attribute(_RTA_DESTINATION, socket.inet_aton(destination)),
        attribute(_RTA_GATEWAY, socket.inet_aton(gateway)),
        attribute(_RTA_OUTPUT, struct.pack("=I", index)),
    )


def ask_route(source: str, destination: str, arrives_on: int, protocol: int, ports: tuple[int, int]) -> bytes:
    """Ask which way the kernel would forward a packet that arrives on a device; ports are source and destination."""
    return message(
        _GET_ROUTE,
        0,
        _ROUTE.pack(socket.AF_INET, 32, 32, 0, 0, 0, 0, 0, 0),
        attribute(_RTA_DESTINATION, socket.inet_aton(destination)),
        attribute(_RTA_SOURCE, socket.inet_aton(source)),
        attribute(_RTA_INPUT, struct.pack("=I", arrives_on)),
        attribute(_RTA_PROTOCOL, bytes([protocol])),
        attribute(_RTA_SOURCE_PORT, struct.pack("!H", ports[0])),
        attribute(_RTA_DESTINATION_PORT, struct.pack("!H", ports[1])),
    )


def ask_own_route(destination: str) -> bytes:
    """Ask which way a packet of the namespace's own would take."""
    return message(
        _GET_ROUTE,
        0,
        _ROUTE.pack(socket.AF_INET, 32, 0, 0, 0, 0, 0, 0, 0),
        attribute(_RTA_DESTINATION, socket.inet_aton(destination)),
    )


class Rtnetlink:
    """One routing socket inside one namespace. Synchronous: a request is over when the kernel has done it."""

    def __init__(self, namespace: Namespace) -> None:
        self._socket = make_socket(namespace, socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC)
        self._socket.settimeout(_PATIENCE_S)
        self._where = namespace.name
        self._sequence = 0

    def request(self, asked: bytes) -> bytes:
        """Send one message; returns the body of the kernel's answer, empty for an acknowledgement.

        Raises:
            OSError: the kernel refused, with its error number.
        """
        self._sequence += 1
        length, kind, flags, _, _ = _HEADER.unpack_from(asked)
        self._socket.send(_HEADER.pack(length, kind, flags, self._sequence, 0) + asked[_HEADER.size :])
        while True:
            for answer, sequence, body in _told(self._socket.recv(65536)):
                if sequence != self._sequence:  # A late answer to a request that ran out of patience.
                    continue
                if answer != _ERROR:
                    return body
                number = -struct.unpack_from("=i", body)[0]
                if number:
                    raise OSError(number, f"{os.strerror(number)} (netlink request {kind} in {self._where})")
                return b""

    def output_device(self, asked: bytes) -> int:
        """The index of the device in the kernel's answer to a question made by `ask_route`.

        Raises:
            OSError: there is no route.
        """
        output = attributes(self.request(asked), _ROUTE.size).get(_RTA_OUTPUT)
        if output is None:
            raise OSError(f"the kernel's route in {self._where} names no device")
        return int(struct.unpack("=I", output)[0])

    def dump(self, asked: bytes) -> Iterator[bytes]:
        """Send one question with the flag `DUMP`; gives the bodies of the kernel's answers.

        Raises:
            OSError: the kernel refused.
        """
        self._sequence += 1
        length, kind, flags, _, _ = _HEADER.unpack_from(asked)
        self._socket.send(_HEADER.pack(length, kind, flags, self._sequence, 0) + asked[_HEADER.size :])
        while True:
            for answer, sequence, body in _told(self._socket.recv(65536)):
                if sequence != self._sequence:
                    continue
                if answer == _DONE:
                    return
                if answer == _ERROR:
                    number = -struct.unpack_from("=i", body)[0]
                    raise OSError(number, f"{os.strerror(number)} (netlink request {kind} in {self._where})")
                yield body

    def device_name(self, index: int) -> str:
        """The name of a device of the namespace; empty: there is none any more."""
        body = self.request(message(_GET_LINK, 0, struct.pack("=BxHiII", 0, 0, index, 0, 0)))
        return attributes(body, _LINK_BYTES).get(_IFLA_NAME, b"").rstrip(b"\0").decode()

    def close(self) -> None:
        """Close the socket."""
        self._socket.close()


def acknowledged(data: bytes, where: str) -> int:
    """How many requests the kernel acknowledges in what a socket has read.

    Raises:
        OSError: it refused one, with its error number.
    """
    numbers = [-struct.unpack_from("=i", body)[0] for answer, _, body in _told(data) if answer == _ERROR]
    for number in filter(None, numbers):
        raise OSError(number, f"{os.strerror(number)} (netlink request in {where})")
    return len(numbers)


def _told(data: bytes) -> Iterator[tuple[int, int, bytes]]:
    """The kind, the sequence number and the body of each message."""
    for each in messages(data):
        yield each.kind, each.sequence, data[each.begin : each.end]
