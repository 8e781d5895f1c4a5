"""The requests to the kernel that move traffic, encoded as rtnetlink messages (rtnetlink(7)). Pure.

They are structs and bytes alike: a kernel takes the bytes, and whoever stands in for one reads the rest. Encoding a
message takes longer than the kernel needs to carry it out. So what a loss will want is encoded beforehand.
"""

from __future__ import annotations

import ipaddress
import struct
from typing import Literal

import msgspec

from foliot_agent.core.overlay_layout import Route, Rule

_HEADER = struct.Struct("=IHHII")
"""Length, kind, flags, sequence number, port (struct nlmsghdr)."""
_ROUTE = struct.Struct("=8BI")
"""Family, two prefix lengths, type of service, table, protocol, scope, type, flags (struct rtmsg); of a rule: family,
two prefix lengths, type of service, table, two reserved, action, flags (struct fib_rule_hdr)."""
_ATTRIBUTE = struct.Struct("=HH4s")
_METRIC = struct.Struct("=HHHHI")

# linux/netlink.h, linux/rtnetlink.h, linux/fib_rules.h
_REQUEST, _ACK, _REPLACE, _EXCLUSIVE, _CREATE = 0x1, 0x4, 0x100, 0x200, 0x400
_NEW_ROUTE, _DELETE_ROUTE, _NEW_RULE, _DELETE_RULE = 24, 25, 32, 33
_RTA_DST, _RTA_OIF, _RTA_GATEWAY, _RTA_PREFSRC, _RTA_METRICS, _RTA_TABLE = 1, 4, 5, 7, 8, 15
_FRA_DST, _FRA_PRIORITY, _FRA_TABLE = 1, 6, 15
_RTAX_FEATURES = 12
_PROTOCOL_STATIC, _UNICAST, _TO_TABLE, _TABLE_COMPAT, _ON_LINK = 4, 1, 1, 252, 4
_IPV4, _BITS = 2, 32


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """One change of the kernel's."""

    verb: Literal["put", "remove"]
    what: Route | Rule
    message: bytes
    """It asks for an acknowledgement. Its sequence number is 0; whoever sends it writes another."""
    device: int = 0
    """Of a route that is put: the kernel's number of its device."""
    features: int = 0
    """Of a route that is put: its RTAX_FEATURES."""


def put_route(route: Route, device: int, features: int = 0) -> Request:
    """Puts a route in place, whether or not there is one to its destination in its table.

    Its gateway is taken to be reachable through the device, whatever other routes say.
    """
    metrics = _METRIC.pack(_METRIC.size, _RTA_METRICS, 8, _RTAX_FEATURES, features) if features else b""
    message = _message(
        _NEW_ROUTE, _CREATE | _REPLACE,
        _ROUTE.pack(_IPV4, _BITS, 0, 0, 0, _PROTOCOL_STATIC, 0, _UNICAST, _ON_LINK),
        _address(_RTA_DST, route.destination), _number(_RTA_TABLE, route.table), _address(_RTA_GATEWAY, route.gateway),
        _number(_RTA_OIF, device), _address(_RTA_PREFSRC, route.source), metrics,
    )  # fmt: skip
    return Request(verb="put", what=route, message=message, device=device, features=features)


def plain(request: Request) -> Request:
    """The same route without features."""
    assert isinstance(request.what, Route)
    return put_route(request.what, request.device)


def remove_route(route: Route) -> Request:
    """Removes the route to a destination from a table, by whatever way it goes."""
    message = _message(
        _DELETE_ROUTE, 0, _ROUTE.pack(_IPV4, _BITS, 0, 0, 0, 0, 0, 0, 0),
        _address(_RTA_DST, route.destination), _number(_RTA_TABLE, route.table),
    )  # fmt: skip
    return Request(verb="remove", what=route, message=message)


def put_rule(rule: Rule) -> Request:
    """Adds a rule; the kernel refuses one that it has (EEXIST)."""
    return Request(verb="put", what=rule, message=_rule(_NEW_RULE, _CREATE | _EXCLUSIVE, rule))


def remove_rule(rule: Rule) -> Request:
    """Removes a rule; the kernel refuses if it has none (ENOENT)."""
    return Request(verb="remove", what=rule, message=_rule(_DELETE_RULE, 0, rule))


def _rule(kind: int, flags: int, rule: Rule) -> bytes:
    address, _, length = rule.prefix.partition("/")
    return _message(
        kind, flags, _ROUTE.pack(_IPV4, int(length), 0, 0, _TABLE_COMPAT, 0, 0, _TO_TABLE, 0),
        _number(_FRA_PRIORITY, rule.priority), _address(_FRA_DST, address), _number(_FRA_TABLE, rule.table),
    )  # fmt: skip


def _message(kind: int, flags: int, *parts: bytes) -> bytes:
    body = b"".join(parts)
    return _HEADER.pack(_HEADER.size + len(body), kind, _REQUEST | _ACK | flags, 0, 0) + body


def _address(kind: int, address: str) -> bytes:
    return _ATTRIBUTE.pack(_ATTRIBUTE.size, kind, ipaddress.IPv4Address(address).packed)


def _number(kind: int, number: int) -> bytes:
    return _ATTRIBUTE.pack(_ATTRIBUTE.size, kind, struct.pack("=i", number))
