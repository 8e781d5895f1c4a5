"""Puts back the routes that the kernel flushes when a NIC is set down or removed."""

from __future__ import annotations

import errno
import socket
from typing import Any

import structlog
from pyroute2.netlink.exceptions import NetlinkError
from pyroute2.netlink.rtnl.ifinfmsg import IFF_UP
from pyroute2.netlink.rtnl.rtmsg import RTNH_F_ONLINK

log = structlog.get_logger()

_KERNEL = 2
"""RTPROT_KERNEL: routes that follow from addresses come back by themselves."""
_LOCAL_TABLE = 255


class RouteRestorer:
    """A copy of the IPv4 routes over each backend NIC, as they were while it was up.

    Parameters:
        netlink: an `AsyncIPRoute` of its own with `strict_check`, so that the kernel dumps only what is asked for.
    """

    def __init__(self, netlink: Any) -> None:
        self._netlink = netlink
        self.kept: dict[str, list[dict[str, Any]]] = {}
        """By device; without its index, which is another one when the NIC is plugged in again."""
        self.owed: set[str] = set()
        """Devices whose routes are gone, or may be, and have not been put back: their present routes are not copied."""

    async def remember(self, device: str) -> None:
        """Copies the routes over a device, if it was up all the while: once it goes down they are gone."""
        if device in self.owed:
            return
        before = await self._ups(device)
        present = await self._present(device)
        if before is not None and before == await self._ups(device) and device not in self.owed:
            self.kept[device] = present

    async def is_ready(self, device: str, address: str) -> bool:
        """Whether a device is up and its address is there: before that, the kernel takes no route over it."""
        return await self._ups(device) is not None and address in {
            message.get_attr("IFA_LOCAL") or message.get_attr("IFA_ADDRESS")
            async for message in await self._netlink.addr("dump", family=socket.AF_INET)
        }

    async def put_back(self, device: str) -> None:
        """Adds the remembered routes that are missing; one whose gateway needs another missing one comes after that."""
        present = await self._present(device)
        index = socket.if_nametoindex(device)
        missing = [route for route in self.kept.get(device, []) if route not in present]
        put = 0
        for route in sorted(missing, key=lambda route: route["scope"], reverse=True):
            try:
                await self._netlink.route("add", **(route | {"oif": index}))
                put += 1
            except NetlinkError as error:
                if error.code != errno.EEXIST:
                    log.warning("route_not_put_back", device=device, route=route, reason=str(error))
        self.owed.discard(device)
        if put:
            log.info("routes_put_back", device=device, count=put)

    async def _ups(self, device: str) -> int | None:
        """How often the device has lost its carrier so far; None while it is down."""
        for message in await self._netlink.link("get", ifname=device):
            if message["flags"] & IFF_UP:
                return int(message.get_attr("IFLA_CARRIER_DOWN_COUNT") or 0)
        return None

    async def _present(self, device: str) -> list[dict[str, Any]]:
        index = socket.if_nametoindex(device)
        return [
            _copy(message)
            async for message in await self._netlink.route(
                "dump", family=socket.AF_INET, oif=index, dump_filter=_as_it_comes
            )
            if message.get_attr("RTA_OIF") == index
            and message["proto"] != _KERNEL
            and message.get_attr("RTA_TABLE") != _LOCAL_TABLE
        ]


def _as_it_comes(_message: Any) -> bool:
    """Passes all routes.

    Without a filter of the caller's, pyroute2 has the kernel tell all routes, three for each peer, and chooses itself.
    """
    return True


def _copy(message: Any) -> dict[str, Any]:
    """The values that it takes to make the route again."""
    copy = {key: message[key] for key in ("dst_len", "tos", "proto", "scope", "type")}
    copy["flags"] = message["flags"] & RTNH_F_ONLINK  # the others say how it fares, and are not to be set
    for key in ("dst", "gateway", "prefsrc", "priority", "table"):
        if (value := message.get_attr(f"RTA_{key.upper()}")) is not None:
            copy[key] = value
    if (metrics := message.get_attr("RTA_METRICS")) is not None:
        copy["metrics"] = {name.removeprefix("RTAX_").lower(): value for name, value in metrics["attrs"]}
    return copy
