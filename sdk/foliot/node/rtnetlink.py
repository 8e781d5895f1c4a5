"""What the kernel says of links and addresses, as bytes (rtnetlink(7)), as far as a node's services read it.

pyroute2 knows all of rtnetlink, and takes 10 MB of a process that imports it. It decodes all of a link's fifty
attributes, which takes half a millisecond: as long as all else that an agent does until traffic has moved. Here, the
few that count are read where they lie.

Sources: linux/netlink.h, linux/rtnetlink.h, linux/if.h, linux/if_link.h, linux/if_addr.h.
"""

from __future__ import annotations

import asyncio
import os
import socket
import struct
from typing import TYPE_CHECKING, NamedTuple

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterator

RTMGRP_LINK, RTMGRP_IPV4_IFADDR = 0x1, 0x10
RECEIVE_BYTES = 1 << 16
"""Room for what the kernel says at a time. It gives a dump in parts of at most half of that."""

_NEW_LINK, _DELETE_LINK, _GET_LINK, _NEW_ADDRESS, _GET_ADDRESS = 16, 17, 18, 20, 22
_IFF_UP, _IFF_LOWER_UP = 0x1, 0x10000
_IFLA_IFNAME, _IFLA_MTU, _IFLA_CARRIER_UP_COUNT, _IFLA_CARRIER_DOWN_COUNT = 3, 4, 47, 48
_IFA_ADDRESS, _IFA_LOCAL = 1, 2
_NLM_F_REQUEST, _NLM_F_DUMP, _NLM_F_DUMP_INTR = 0x1, 0x300, 0x10
_NLMSG_ERROR, _NLMSG_DONE = 2, 3
_HEADER = struct.Struct("=IHHII")
"""Length, kind, flags, sequence number, port (struct nlmsghdr)."""
_LINK = struct.Struct("=BxHiII")
"""Family, type, index, flags, changed flags (struct ifinfomsg)."""
_ADDRESS = struct.Struct("=BBBBI")
"""Family, length of the prefix, flags, scope, index (struct ifaddrmsg)."""
_ATTRIBUTE = struct.Struct("=HH")
_NUMBER = struct.Struct("=I")
_ERRNO = struct.Struct("=i")
_KIND = 0x3FFF
"""Without the flags of an attribute's kind (NLA_TYPE_MASK)."""


class Message(NamedTuple):
    """The head of a message, and where its body lies among the bytes received."""

    kind: int
    flags: int
    sequence: int
    begin: int
    end: int


class LinkChange(msgspec.Struct, frozen=True, kw_only=True):
    """The state of a network device as the kernel just told it."""

    name: str
    index: int
    admin_up: bool
    carrier: bool
    """False also while the device is administratively down."""
    carrier_down_count: int
    carrier_up_count: int
    gone: bool = False
    mtu: int = 0
    """In bytes; 0 where the kernel did not tell it."""


class LinkAddress(NamedTuple):
    """An IPv4 address that a device has."""

    link: int
    """Index of the device."""
    address: str
    """The device's own, where it has another for its peer."""


async def links() -> list[LinkChange]:
    """All devices of the thread's network namespace, as they were at one moment.

    Raises:
        OSError: the kernel does not answer.
    """
    return [each for each in await _dump(_GET_LINK) if isinstance(each, LinkChange)]


async def addresses() -> list[LinkAddress]:
    """All IPv4 addresses of the thread's network namespace, those of devices that are down too.

    Raises:
        OSError: the kernel does not answer.
    """
    return [each for each in await _dump(_GET_ADDRESS) if isinstance(each, LinkAddress)]


def read(data: bytes) -> Iterator[LinkChange | LinkAddress]:
    """What a datagram of the kernel's tells: changes of links, and IPv4 addresses that devices were given.

    It passes over all else, such as what bridges tell of their ports.
    """
    for kind, _, _, body, end in messages(data):
        if kind in {_NEW_LINK, _DELETE_LINK} and body + _LINK.size <= end:
            family, _, index, flags, _ = _LINK.unpack_from(data, body)
            if family == socket.AF_UNSPEC:
                yield _link(index, flags, attributes(data, body + _LINK.size, end), gone=kind == _DELETE_LINK)
        elif kind == _NEW_ADDRESS and body + _ADDRESS.size <= end:
            family, _, _, _, index = _ADDRESS.unpack_from(data, body)
            if family == socket.AF_INET:
                found = attributes(data, body + _ADDRESS.size, end)
                yield LinkAddress(index, socket.inet_ntoa(found.get(_IFA_LOCAL) or found[_IFA_ADDRESS]))


async def _dump(kind: int) -> list[LinkChange | LinkAddress]:
    with socket.socket(
        socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC, socket.NETLINK_ROUTE
    ) as asked:
        asked.bind((0, 0))
        found = None
        while found is None:
            found = await _ask(asked, kind)
        return found


async def _ask(asked: socket.socket, kind: int) -> list[LinkChange | LinkAddress] | None:
    """None: things changed meanwhile, so that some may be missing."""
    body = _LINK.pack(socket.AF_UNSPEC, 0, 0, 0, 0)
    asked.send(_HEADER.pack(_HEADER.size + len(body), kind, _NLM_F_REQUEST | _NLM_F_DUMP, 0, 0) + body)
    found: list[LinkChange | LinkAddress] = []
    is_whole = True
    while True:
        data = await asyncio.get_running_loop().sock_recv(asked, RECEIVE_BYTES)
        for told in messages(data):
            is_whole &= not told.flags & _NLM_F_DUMP_INTR
            if told.kind == _NLMSG_DONE:
                return found if is_whole else None
            if told.kind == _NLMSG_ERROR:
                number = -_ERRNO.unpack_from(data, told.begin)[0]
                raise OSError(number, os.strerror(number))
        found += read(data)


def messages(data: bytes) -> Iterator[Message]:
    """The messages in what a netlink socket has received."""
    at = 0
    while at + _HEADER.size <= len(data):
        length, kind, flags, sequence, _ = _HEADER.unpack_from(data, at)
        yield Message(kind, flags, sequence, at + _HEADER.size, min(at + length, len(data)))
        at += max(length + -length % 4, _HEADER.size)


def _link(index: int, flags: int, found: dict[int, bytes], *, gone: bool) -> LinkChange:
    admin_up = bool(flags & _IFF_UP)
    downs, ups, mtu = (
        _NUMBER.unpack(found[kind])[0] if kind in found else 0
        for kind in (_IFLA_CARRIER_DOWN_COUNT, _IFLA_CARRIER_UP_COUNT, _IFLA_MTU)
    )
    return LinkChange(
        name=found[_IFLA_IFNAME].rstrip(b"\0").decode(errors="surrogateescape"), index=index, admin_up=admin_up,
        carrier=admin_up and bool(flags & _IFF_LOWER_UP),
        carrier_down_count=downs, carrier_up_count=ups, gone=gone, mtu=mtu,
    )  # fmt: skip


def attributes(data: bytes, at: int = 0, end: int | None = None) -> dict[int, bytes]:
    """The values of the attributes from here on, by kind: of a message, or within another attribute.

    Parameters:
        end: where they end; None: with the data.
    """
    found, end = {}, len(data) if end is None else end
    while at + _ATTRIBUTE.size <= end:
        length, kind = _ATTRIBUTE.unpack_from(data, at)
        if length < _ATTRIBUTE.size:
            break
        found[kind & _KIND] = data[at + _ATTRIBUTE.size : at + length]
        at += length + -length % 4
    return found
