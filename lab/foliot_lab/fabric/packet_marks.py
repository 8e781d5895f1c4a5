"""Has a router give the packets that enter it marks in turn, by which its rules then route each.

One rule of nftables, written as netlink messages: a counter modulo the number of marks. Sources:
linux/netfilter/nf_tables.h and nfnetlink.h.
"""

from __future__ import annotations

import socket
import struct
from typing import TYPE_CHECKING

from foliot_lab.fabric.namespaces import make_socket
from foliot_lab.fabric.rtnetlink import ACK, CREATE, acknowledged, attribute, message

if TYPE_CHECKING:
    from foliot_lab.fabric.namespaces import Namespace

_NETLINK_NETFILTER = 12
_NFTABLES, _IPV4 = 10, 2
_BATCH_BEGIN, _BATCH_END = 16, 17
_NEW_TABLE, _NEW_CHAIN, _NEW_RULE = (_NFTABLES << 8 | kind for kind in (0, 3, 6))
_APPEND = 0x800
_NESTED = 0x8000
_PRE_ROUTING, _BEFORE_ROUTING = 0, -150
"""The hook before the choice of a route, and the priority at which packets are mangled there (NF_IP_PRI_MANGLE)."""
_REGISTER, _MARK, _INCREMENTAL = 1, 3, 0
_NAME = b"foliot\0"
_PATIENCE_S = 5.0


def mark_in_turn(namespace: Namespace, marks: int) -> None:
    """Gives packets that enter a namespace the marks 1, 2 ... in turn.

    What the kernel forwards as one packet, such as TCP segments that offload has joined, has one mark.

    Raises:
        OSError: this kernel has no nf_tables, or refuses.
    """
    asked = _batch(marks)
    netlink = make_socket(namespace, socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, _NETLINK_NETFILTER)
    with netlink:
        netlink.settimeout(_PATIENCE_S)
        netlink.send(b"".join(asked))
        left = len(asked) - 2  # the batch's own ends are not answered
        while left > 0:
            left -= acknowledged(netlink.recv(65536), namespace.name)


def _batch(marks: int) -> tuple[bytes, ...]:
    """All messages, in their order; the kernel does all or none."""
    hook = _numbers({1: _PRE_ROUTING, 2: _BEFORE_ROUTING})
    counter = _numbers({1: _REGISTER, 2: marks, 3: _INCREMENTAL, 4: 1})
    mark = _numbers({2: _MARK, 3: _REGISTER})
    expressions = _expression(b"numgen\0", counter) + _expression(b"meta\0", mark)
    chain = (attribute(1, _NAME), attribute(3, _NAME), attribute(4 | _NESTED, hook), attribute(7, b"filter\0"))
    rule = (attribute(1, _NAME), attribute(2, _NAME), attribute(4 | _NESTED, expressions))
    return (
        message(_BATCH_BEGIN, 0, _header(0, _NFTABLES)),
        message(_NEW_TABLE, ACK | CREATE, _header(_IPV4), attribute(1, _NAME)),
        message(_NEW_CHAIN, ACK | CREATE, _header(_IPV4), *chain),
        message(_NEW_RULE, ACK | CREATE | _APPEND, _header(_IPV4), *rule),
        message(_BATCH_END, 0, _header(0, _NFTABLES)),
    )


def _header(family: int, resource: int = 0) -> bytes:
    return struct.pack("!BBH", family, 0, resource)


def _numbers(values: dict[int, int]) -> bytes:
    """Attributes with a number each, in network order."""
    return b"".join(attribute(kind, struct.pack("!i", value)) for kind, value in values.items())


def _expression(name: bytes, data: bytes) -> bytes:
    return attribute(1 | _NESTED, attribute(1, name) + attribute(2 | _NESTED, data))
