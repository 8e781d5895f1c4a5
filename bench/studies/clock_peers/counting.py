"""Counts the packets of each tool by UDP port, where they enter the first router.

A packet socket (packet(7)) has a filter that takes nothing but the ports of a tool. The socket counts the packets that
it takes, and those that it has no room for.
"""

from __future__ import annotations

import ctypes
import socket
import struct
from typing import TYPE_CHECKING

from foliot_lab.fabric.namespaces import inside

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from foliot_lab.fabric.namespaces import Namespace

_ETH_P_IP = 0x0800
# linux/if_packet.h, asm-generic/socket.h
_SOL_PACKET, _PACKET_STATISTICS, _SO_ATTACH_FILTER = 263, 6, 26
_STATISTICS = struct.Struct("=II")
# linux/filter.h: a classic BPF instruction is code, jump if true, jump if false, operand. At offset 0 is the IP header.
_LOAD_BYTE, _LOAD_HALF, _JUMP_IF_EQUAL, _RETURN = 0x30, 0x28, 0x15, 0x06
_PROTOCOL, _SOURCE_PORT, _DESTINATION_PORT = 9, 20, 22


def program(ports: tuple[int, ...], take_bytes: int = 1) -> list[tuple[int, int, int, int]]:
    """The filter that takes the first bytes of UDP packets from or to one of these ports.

    It accepts no IP options, which nothing here sends.
    """
    questions: list[tuple[int, int, int, int]] = []
    for offset in (_SOURCE_PORT, _DESTINATION_PORT):
        questions.append((_LOAD_HALF, 0, 0, offset))
        questions += [(_JUMP_IF_EQUAL, 0, 0, port) for port in ports]
    last = len(questions)
    taken = [
        (code, last - place if code == _JUMP_IF_EQUAL else 0, 0, operand)
        for place, (code, _, _, operand) in enumerate(questions)
    ]
    not_udp = (_JUMP_IF_EQUAL, 0, last, socket.IPPROTO_UDP)
    return [(_LOAD_BYTE, 0, 0, _PROTOCOL), not_udp, *taken, (_RETURN, 0, 0, 0), (_RETURN, 0, 0, take_bytes)]


def listening(namespace: Namespace, device: str, instructions: list[tuple[int, int, int, int]]) -> socket.socket:
    """A packet socket that takes the packets that come in by a device and pass a filter."""
    with inside(namespace):
        # Bound to nothing yet, it takes nothing before its filter stands.
        opened = socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC, 0)
        _attach(opened, instructions)
        opened.bind((device, _ETH_P_IP))
    return opened


def _attach(opened: socket.socket, instructions: list[tuple[int, int, int, int]]) -> None:
    code = ctypes.create_string_buffer(b"".join(struct.pack("=HBBI", *each) for each in instructions))
    opened.setsockopt(
        socket.SOL_SOCKET, _SO_ATTACH_FILTER, struct.pack("@HP", len(instructions), ctypes.addressof(code))
    )


class Counters:
    """The counters of all tools, over all hosts.

    Parameters:
        doors: devices in routers' namespaces, where packets are counted as they come in.
        ports: the UDP ports of each tool.
    """

    def __init__(self, doors: Iterable[tuple[Namespace, str]], ports: Mapping[str, tuple[int, ...]]) -> None:
        self._sockets: dict[str, list[socket.socket]] = {tool: [] for tool in ports}
        for namespace, device in doors:
            for tool, its_ports in ports.items():
                opened = listening(namespace, device, program(its_ports))
                opened.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 0)
                self._sockets[tool].append(opened)

    def take(self) -> dict[str, int]:
        """Packets since the last call."""
        return {tool: sum(map(_taken, sockets)) for tool, sockets in self._sockets.items()}

    def close(self) -> None:
        """Closes the sockets."""
        for sockets in self._sockets.values():
            for opened in sockets:
                opened.close()


def _taken(opened: socket.socket) -> int:
    """Packets that the socket has taken or had no room for.

    The kernel counts the latter in the former, and resets at each call.
    """
    packets, _ = _STATISTICS.unpack(opened.getsockopt(_SOL_PACKET, _PACKET_STATISTICS, _STATISTICS.size))
    return int(packets)
