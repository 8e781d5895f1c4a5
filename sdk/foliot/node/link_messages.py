"""The kernel's messages about links and addresses, as bytes (rtnetlink(7)).

A link's message has some fifty attributes. A general reader decodes them all, which takes half a millisecond: as long
as all else that an agent does until traffic has moved. Here, the few that count are read where they lie.
"""

from __future__ import annotations

import socket
import struct
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterator

_HEADER = struct.Struct("=IHHII")
_LINK = struct.Struct("=BxHiII")
"""Family, type, index, flags, changed flags (struct ifinfomsg)."""
_ADDRESS_BYTES = 8
"""Of struct ifaddrmsg."""
_ATTRIBUTE = struct.Struct("=HH")
_NUMBER = struct.Struct("=I")
_KIND = 0x3FFF
"""Without the flags of an attribute's kind (NLA_TYPE_MASK)."""
# linux/rtnetlink.h, linux/if.h, linux/if_link.h, linux/if_addr.h
_NEW_LINK, _DELETE_LINK, _NEW_ADDRESS = 16, 17, 20
_IFF_UP, _IFF_LOWER_UP = 0x1, 0x10000
_IFLA_IFNAME, _IFLA_MTU, _IFLA_CARRIER_UP_COUNT, _IFLA_CARRIER_DOWN_COUNT = 3, 4, 47, 48
_IFA_ADDRESS, _IFA_LOCAL = 1, 2


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


def read(data: bytes) -> Iterator[LinkChange | str]:
    """What a datagram of the kernel's tells: changes of links, and IPv4 addresses that devices were given.

    It passes over all else, such as what bridges tell of their ports.
    """
    at = 0
    while at + _HEADER.size <= len(data):
        length, kind, *_ = _HEADER.unpack_from(data, at)
        end, body = min(at + length, len(data)), at + _HEADER.size
        if kind in {_NEW_LINK, _DELETE_LINK} and body + _LINK.size <= end:
            family, _, index, flags, _ = _LINK.unpack_from(data, body)
            if family == socket.AF_UNSPEC:
                yield _link(index, flags, _attributes(data, body + _LINK.size, end), gone=kind == _DELETE_LINK)
        elif kind == _NEW_ADDRESS and body + _ADDRESS_BYTES <= end and data[body] == socket.AF_INET:
            found = _attributes(data, body + _ADDRESS_BYTES, end)
            yield socket.inet_ntoa(found.get(_IFA_LOCAL) or found[_IFA_ADDRESS])
        at += max(length + -length % 4, _HEADER.size)


def _link(index: int, flags: int, found: dict[int, bytes], *, gone: bool) -> LinkChange:
    admin_up = bool(flags & _IFF_UP)
    downs, ups, mtu = (
        _NUMBER.unpack(found[kind])[0] if kind in found else 0
        for kind in (_IFLA_CARRIER_DOWN_COUNT, _IFLA_CARRIER_UP_COUNT, _IFLA_MTU)
    )
    return LinkChange(
        name=found[_IFLA_IFNAME].rstrip(b"\0").decode(), index=index, admin_up=admin_up,
        carrier=admin_up and bool(flags & _IFF_LOWER_UP),
        carrier_down_count=downs, carrier_up_count=ups, gone=gone, mtu=mtu,
    )  # fmt: skip


def _attributes(data: bytes, at: int, end: int) -> dict[int, bytes]:
    """The values of a message's attributes, those within others left out."""
    found = {}
    while at + _ATTRIBUTE.size <= end:
        length, kind = _ATTRIBUTE.unpack_from(data, at)
        if length < _ATTRIBUTE.size:
            break
        found[kind & _KIND] = data[at + _ATTRIBUTE.size : at + length]
        at += length + -length % 4
    return found
