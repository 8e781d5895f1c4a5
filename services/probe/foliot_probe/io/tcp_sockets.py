"""Reads what the kernel counts of every TCP connection that leaves by certain addresses.

The kernel answers a dump of ``sock_diag`` (sock_diag(7)) to anybody who asks, in the asker's network namespace. A
filter in the request leaves out all other connections, so that a host with many of them hands over few.

The kernel walks its whole table of connections for each request, however few there are. So one request asks for those
of IPv4 and of IPv6 sockets. Only its older form can, which has no family.

Sources: linux/inet_diag.h, linux/tcp.h, net/core/sock_diag.c, net/ipv4/inet_diag.c.
"""

from __future__ import annotations

import os
import socket
import struct
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

ConnectionRow = np.dtype(
    [
        ("cookie", "<u8"),
        ("local", ">u4"),
        ("remote", ">u4"),
        ("acked_bytes", "<u8"),
        ("retransmitted", "<u4"),
        ("busy_us", "<u8"),
        ("receiver_limited_us", "<u8"),
        ("buffer_limited_us", "<u8"),
        ("rtt_us", "<u4"),
        ("least_rtt_us", "<u4"),
    ]
)
"""One connection as it is now. `cookie` is the kernel's number of its socket, which no other socket gets. `local` and
`remote` are IPv4 addresses. The counts are those since the connection was made."""

_NETLINK_SOCK_DIAG = 4
_TCPDIAG_GETSOCK = 18
_NLM_F_REQUEST, _NLM_F_DUMP = 0x1, 0x300
_NLMSG_ERROR, _NLMSG_DONE = 2, 3
_HEADER = struct.Struct("=IHHII")
_REQUEST = struct.Struct("=3xB48xI4x")
"""inet_diag_req: extensions, no socket in particular, and states."""
_ATTRIBUTE = struct.Struct("=HH")
_BYTECODE = 1
_INFO = 2
_S_COND, _JMP = 7, 1
_CONDITION = struct.Struct("=BBHBBxxi4s")
"""inet_diag_bc_op, and inet_diag_hostcond: family, length of the prefix, port (-1: any), address."""
_JUMP = struct.Struct("=BBH")
_ESTABLISHED, _CLOSE_WAIT = 1 << 1, 1 << 8
_MESSAGE = struct.Struct("=BBxxxxxx16s16s4xQ")
"""inet_diag_msg up to the cookie: family, state, both addresses."""
_MESSAGE_BYTES = 72
_INFO_PARTS = struct.Struct("=68xI28xI16xQ20xI16x3Q")
"""tcp_info: rtt, total_retrans, bytes_acked, min_rtt, busy_time, rwnd_limited, sndbuf_limited."""
_MAPPED = b"\0" * 10 + b"\xff\xff"
"""How an IPv6 socket has an IPv4 address (RFC 4291)."""
_UNSET = 0xFFFFFFFF
_BUFFER = 1 << 18


class TcpSockets:
    """The connections of this network namespace.

    Parameters:
        addresses: IPv4 addresses; other connections' local addresses are left out.
    """

    def __init__(self, addresses: Sequence[str]) -> None:
        self._filter = _filter(addresses)
        self._sequence = 0

    def read(self) -> NDArray[Any]:
        """All connections by these addresses, of dtype `ConnectionRow`.

        Raises:
            OSError: the kernel does not answer such a question.
        """
        with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, _NETLINK_SOCK_DIAG) as asked:
            asked.bind((0, 0))
            return np.array(list(self._dump(asked)), dtype=ConnectionRow)

    def _dump(self, asked: socket.socket) -> Iterator[tuple[Any, ...]]:
        self._sequence += 1
        request = _REQUEST.pack(1 << (_INFO - 1), _ESTABLISHED | _CLOSE_WAIT) + self._filter
        flags = _NLM_F_REQUEST | _NLM_F_DUMP
        asked.send(_HEADER.pack(_HEADER.size + len(request), _TCPDIAG_GETSOCK, flags, self._sequence, 0) + request)
        while True:
            answer = asked.recv(_BUFFER)
            at = 0
            while at + _HEADER.size <= len(answer):
                length, kind, _, sequence, _ = _HEADER.unpack_from(answer, at)
                body, at = answer[at + _HEADER.size : at + length], at + ((length + 3) & ~3)
                if sequence != self._sequence:
                    continue
                if kind == _NLMSG_DONE:
                    return
                if kind == _NLMSG_ERROR:
                    number = -int.from_bytes(body[:4], "little", signed=True)
                    raise OSError(number, os.strerror(number))
                if (row := _connection(body)) is not None:
                    yield row


def _filter(addresses: Sequence[str]) -> bytes:
    """The attribute by which the kernel leaves out what leaves by none of these addresses.

    It has a condition for each, and a jump to the end if that holds.
    """
    step = _CONDITION.size + _JUMP.size
    code = b""
    for number, address in enumerate(addresses):
        is_last = number + 1 == len(addresses)
        left = step * (len(addresses) - number) - _JUMP.size
        packed = socket.inet_aton(address)
        # Beyond the end by four bytes means no.
        unless = left + 4 if is_last else step
        code += _CONDITION.pack(_S_COND, _CONDITION.size, unless, socket.AF_INET, 32, -1, packed)
        if not is_last:
            code += _JUMP.pack(_JMP, _JUMP.size, left - _CONDITION.size)
    return _ATTRIBUTE.pack(_ATTRIBUTE.size + len(code), _BYTECODE) + code


def _connection(body: bytes) -> tuple[Any, ...] | None:
    """The row of a message; None: it has no IPv4 addresses, or the kernel says too little."""
    family, _, local, remote, cookie = _MESSAGE.unpack_from(body)
    if family == socket.AF_INET6:
        if not (local.startswith(_MAPPED) and remote.startswith(_MAPPED)):
            return None
        local, remote = local[12:], remote[12:]
    info = _attribute(body, _INFO)
    if len(info) < _INFO_PARTS.size:
        return None
    rtt_us, retransmitted, acked, least_us, busy_us, receiver_us, buffer_us = _INFO_PARTS.unpack_from(info)
    addresses = (int.from_bytes(each[:4], "big") for each in (local, remote))
    least_us = 0 if least_us == _UNSET else least_us
    return (cookie, *addresses, acked, retransmitted, busy_us, receiver_us, buffer_us, rtt_us, least_us)


def _attribute(body: bytes, wanted: int) -> bytes:
    at = _MESSAGE_BYTES
    while at + _ATTRIBUTE.size <= len(body):
        length, kind = _ATTRIBUTE.unpack_from(body, at)
        if length < _ATTRIBUTE.size:
            break
        if kind == wanted:
            return body[at + _ATTRIBUTE.size : at + length]
        at += (length + 3) & ~3
    return b""
