"""A routing socket that changes routes and rules, many in one system call."""

from __future__ import annotations

import errno
import socket
import struct
from typing import TYPE_CHECKING, Protocol, Self

from foliot.node import rtnetlink

if TYPE_CHECKING:
    from collections.abc import Sequence

    from foliot_agent.core.route_requests import Request

_AT_ONCE = 64
"""Messages in one system call. Each acknowledgement takes about a kilobyte of the socket's buffer, of which the kernel
grants 200 by default."""
_ERROR = 2
"""NLMSG_ERROR, which an acknowledgement is too (linux/netlink.h)."""
_CODE = struct.Struct("=i")
_SEQUENCE = struct.Struct("=I")
_SEQUENCE_AT = 8
_SEQUENCES = 1 << 32
_SOL_NETLINK, _CAP_ACK = 270, 10
_RECEIVE_BYTES = 1 << 16


class RouteKernel(Protocol):
    """What carries out requests: a kernel, or what stands in for one."""

    async def change(self, requests: Sequence[Request]) -> list[int]:
        """Carries out each request, whatever becomes of the others.

        Returns:
            for each request its error as of `errno`; 0: it was carried out.
        """


class RouteSocket:
    """The kernel of the network namespace that the calling thread is in.

    The kernel carries out a request before the call that sends it returns. So its acknowledgement can be read at once,
    and nothing is waited for.
    """

    def __init__(self) -> None:
        self._socket = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_NONBLOCK, socket.NETLINK_ROUTE)
        self._socket.setsockopt(_SOL_NETLINK, _CAP_ACK, 1)  # errors need not say again what they answer
        self._socket.bind((0, 0))
        self._sequence = 0

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self._socket.close()

    async def change(self, requests: Sequence[Request]) -> list[int]:
        """See `RouteKernel`. A request whose acknowledgement is lost has the error ENOBUFS."""
        codes: list[int] = []
        for begin in range(0, len(requests), _AT_ONCE):
            codes += self._exchange(requests[begin : begin + _AT_ONCE])
        return codes

    def _exchange(self, requests: Sequence[Request]) -> list[int]:
        buffer, at, first = bytearray(b"".join([request.message for request in requests])), 0, self._sequence
        for number, request in enumerate(requests):
            _SEQUENCE.pack_into(buffer, at + _SEQUENCE_AT, (first + number) % _SEQUENCES)
            at += len(request.message)
        self._sequence = (first + len(requests)) % _SEQUENCES
        try:
            self._socket.sendto(buffer, (0, 0))
        except OSError as error:
            return [error.errno or errno.EIO] * len(requests)
        codes, left = [errno.ENOBUFS] * len(requests), len(requests)
        while left:
            try:
                data = self._socket.recv(_RECEIVE_BYTES)
            except BlockingIOError:  # no more are there, nor will be
                break
            except OSError as error:
                if error.errno != errno.ENOBUFS:  # that some were dropped is known by what is missing
                    raise
                continue
            for sequence, code in _acknowledged(data):
                number = (sequence - first) % _SEQUENCES
                if number < len(requests):
                    codes[number] = code
                    left -= 1
        return codes


def _acknowledged(data: bytes) -> list[tuple[int, int]]:
    """The sequence numbers and errors of the acknowledgements in a datagram."""
    told = (each for each in rtnetlink.messages(data) if each.kind == _ERROR)
    return [(each.sequence, -_CODE.unpack_from(data, each.begin)[0]) for each in told]
