"""Reads a sample of the acknowledgements that TCP gets at certain addresses of this host.

A packet socket sees what comes in by every device (packet(7)). Its filter runs in the kernel, and passes a part of the
plain acknowledgements: no data, no option but stamps (RFC 7323). Only headers are copied. A socket that is full costs
the kernel next to nothing more, so its size limits the sample where there are many.

Sources: linux/filter.h, Documentation/networking/filter.rst; net/packet/af_packet.c.
"""

from __future__ import annotations

import contextlib
import ctypes
import socket
import struct
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

AckRow = np.dtype([("local", ">u4"), ("remote", ">u4"), ("acked_us", "<u4"), ("sent_us", "<u4")])
"""One acknowledgement. `local` and `remote` are IPv4 addresses, `local` this host's. `acked_us` is the other end's stamp
(TSval), by its clock when it sent this. `sent_us` is this host's own stamp of the data (TSecr), by its clock."""

_SO_ATTACH_FILTER = 26
_ETH_P_IP = 0x0800
_ONE_IN = 8
"""Share of the acknowledgements that the kernel hands over; a power of two."""
_MOST = 256
"""Read at once."""
_BUFFER_BYTES = 1 << 16
"""Room for some 50 to 200 packets, by the driver's size of a buffer. Linux takes twice as much for its own count."""
_IP_MOST, _TCP_BYTES = 60, 32
"""The largest header of IPv4, and that of TCP with stamps alone."""
_STAMPS = 0x0101080A
"""How Linux and others begin these options: twice no operation, then kind and length (RFC 7323, appendix A)."""
_LOAD_WORD, _LOAD_HALF, _LOAD_BYTE = 0x20, 0x28, 0x30
_LOAD_WORD_AT_X, _LOAD_BYTE_AT_X = 0x40, 0x50
_X_IS_IP_HEADER = 0xB1
_AND, _LESS_X = 0x54, 0x1C
_IF_EQUAL, _IF_ANY_BIT = 0x15, 0x45
_RETURN = 0x06
_RANDOM = 0xFFFFF000 + 56
"""SKF_AD_OFF + SKF_AD_RANDOM."""
_DROP = 256
"""Stands for the last instruction, until the length of the program is known."""
_INSTRUCTION = struct.Struct("=HBBI")
_PROGRAM = struct.Struct("@HP")
_ENDS = struct.Struct("!II")
_TIMES = struct.Struct("!II")


class AckHeaders:
    """The acknowledgements that come to these addresses of this network namespace.

    Parameters:
        addresses: IPv4 addresses of this host.

    Raises:
        OSError: the kernel does not permit it; it takes CAP_NET_RAW.
    """

    def __init__(self, addresses: Sequence[str]) -> None:
        self._socket = socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC, socket.htons(_ETH_P_IP))
        try:
            self._socket.setblocking(False)
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _BUFFER_BYTES)
            code = ctypes.create_string_buffer(_filter(addresses))
            program = _PROGRAM.pack((len(code) - 1) // _INSTRUCTION.size, ctypes.addressof(code))
            self._socket.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, program)
            for _ in self._packets():
                pass  # of before the filter
        except BaseException:
            self._socket.close()
            raise

    def read(self) -> NDArray[Any]:
        """What has come since the last call, as far as there was room, of dtype `AckRow`."""
        return np.array([_row(packet) for packet in self._packets()], AckRow)

    def close(self) -> None:
        """Reads no more."""
        self._socket.close()

    def _packets(self) -> Iterator[bytes]:
        # A device that is set down tells packet sockets so by an error, once.
        with contextlib.suppress(OSError):
            for _ in range(_MOST):
                yield self._socket.recv(_IP_MOST + _TCP_BYTES)


def _row(packet: bytes) -> tuple[int, int, int, int]:
    remote, local = _ENDS.unpack_from(packet, 12)
    acked_us, sent_us = _TIMES.unpack_from(packet, 4 * (packet[0] & 0x0F) + 24)
    return local, remote, acked_us, sent_us


def _filter(addresses: Sequence[str]) -> bytes:
    """The program for the kernel, which begins at the header of IP.

    Every test either goes on, or drops the packet. An address that is the right one passes over the others.
    """
    right = [
        (_IF_EQUAL, len(addresses) - 1 - place, _DROP if place == len(addresses) - 1 else 0, int.from_bytes(packed))
        for place, packed in enumerate(map(socket.inet_aton, addresses))
    ]
    code = [
        (_LOAD_BYTE, 0, 0, 9), (_IF_EQUAL, 0, _DROP, socket.IPPROTO_TCP),
        (_LOAD_HALF, 0, 0, 6), (_IF_ANY_BIT, _DROP, 0, 0x3FFF),  # a fragment
        (_LOAD_WORD, 0, 0, 16), *right,
        (_X_IS_IP_HEADER, 0, 0, 0),
        (_LOAD_BYTE_AT_X, 0, 0, 13), (_AND, 0, 0, 0x17), (_IF_EQUAL, 0, _DROP, 0x10),  # ACK, and neither FIN, SYN nor RST
        (_LOAD_HALF, 0, 0, 2), (_LESS_X, 0, 0, 0), (_IF_EQUAL, 0, _DROP, _TCP_BYTES),
        (_LOAD_BYTE_AT_X, 0, 0, 12), (_AND, 0, 0, 0xF0), (_IF_EQUAL, 0, _DROP, _TCP_BYTES << 2),
        (_LOAD_WORD_AT_X, 0, 0, 20), (_IF_EQUAL, 0, _DROP, _STAMPS),
        (_LOAD_WORD, 0, 0, _RANDOM), (_IF_ANY_BIT, _DROP, 0, _ONE_IN - 1),
        (_RETURN, 0, 0, _IP_MOST + _TCP_BYTES),
        (_RETURN, 0, 0, 0),
    ]  # fmt: skip
    last = len(code) - 1
    return b"".join(
        _INSTRUCTION.pack(what, *(last - at - 1 if jump == _DROP else jump for jump in jumps), value)
        for at, (what, *jumps, value) in enumerate(code)
    )
