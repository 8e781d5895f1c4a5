"""Reads a host's NICs from the kernel. It needs no privilege."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from pathlib import Path
from typing import Any

import msgspec
from pyroute2 import AsyncIPRoute
from pyroute2.netlink.exceptions import NetlinkError
from pyroute2.netlink.rtnl.ifinfmsg import IFF_LOOPBACK, IFF_LOWER_UP, IFF_UP
from pyroute2.netlink.rtnl.rtmsg import RT_SCOPE_UNIVERSE

from foliot.node import ethtool
from foliot_agent.kernel.overlay_devices import is_ours

_FIB_MATCH = 0x2000
"""RTM_F_FIB_MATCH of <linux/rtnetlink.h>: the route as it stands in the table, with all its next hops."""
_RDMA = Path("/sys/class/infiniband")


class NicState(msgspec.Struct, frozen=True, kw_only=True):
    """A network device."""

    device: str
    index: int
    kind: str
    """The kind of a virtual device: veth, bridge, vxlan, ...; empty for a real one."""
    admin_up: bool
    carrier: bool
    mtu: int
    addresses: tuple[str, ...]
    """IPv4, in the kernel's order; others can reach them."""
    is_default: bool
    """Whether the default route leaves by it."""
    speed_mbps: int | None
    stamping: ethtool.Stamping | None
    rdma: str = ""


class RouteFound(msgspec.Struct, frozen=True, kw_only=True):
    """The kernel's route to an address."""

    device: str
    ways: int
    """Next hops that the kernel would choose from."""


async def nics() -> dict[str, NicState]:
    """All devices of this network namespace but loopbacks and those that the agent made, by name."""
    rdma = rdma_devices()
    async with AsyncIPRoute() as netlink:
        defaults = {
            route.get_attr("RTA_OIF")
            async for route in await netlink.route("dump", family=socket.AF_INET)
            if route["dst_len"] == 0 and route.get_attr("RTA_TABLE") == 254  # RT_TABLE_MAIN
        }
        addresses: dict[int, list[str]] = {}
        async for message in await netlink.addr("dump", family=socket.AF_INET):
            if message["scope"] == RT_SCOPE_UNIVERSE:  # others can reach it
                addresses.setdefault(message["index"], []).append(message.get_attr("IFA_LOCAL"))
        return {
            link.get_attr("IFLA_IFNAME"): _state(link, addresses.get(link["index"], []), defaults, rdma)
            async for link in await netlink.link("dump")
            if not link["flags"] & IFF_LOOPBACK and not is_ours(link)
        }


async def way_to(host: str) -> str:
    """The device that leads to a host by its name or IPv4 address; empty: none does."""
    with contextlib.suppress(NetlinkError, OSError):
        found = await asyncio.get_running_loop().getaddrinfo(host, None, family=socket.AF_INET)
        async with AsyncIPRoute() as netlink:
            for route in await netlink.route("get", dst=found[0][4][0], family=socket.AF_INET):
                return socket.if_indextoname(route.get_attr("RTA_OIF"))
    return ""


async def route_to(address: str, index: int) -> RouteFound | None:
    """The route to an address by a device; None: there is none."""
    async with AsyncIPRoute() as netlink:
        with contextlib.suppress(NetlinkError, OSError):
            for route in await netlink.route("get", dst=address, oif=index, family=socket.AF_INET):
                device = socket.if_indextoname(route.get_attr("RTA_OIF"))
                return RouteFound(device=device, ways=await _ways(netlink, address, index))
    return None


async def _ways(netlink: Any, address: str, index: int) -> int:
    """Next hops by a device in the very route that the kernel would take to an address."""
    with contextlib.suppress(NetlinkError):  # no table has the route: the kernel takes the address to be on the link
        for route in await netlink.route("get", dst=address, oif=index, family=socket.AF_INET, flags=_FIB_MATCH):
            return max(1, [hop["oif"] for hop in route.get_attr("RTA_MULTIPATH") or []].count(index))
    return 1


def rdma_devices(folder: Path = _RDMA) -> dict[str, str]:
    """RDMA devices by their network devices, as sysfs has them."""
    if not folder.is_dir():
        return {}
    return {net.name: device.name for device in sorted(folder.iterdir()) for net in sorted(device.glob("device/net/*"))}


def _state(link: Any, addresses: list[str], defaults: set[int], rdma: dict[str, str]) -> NicState:
    device = link.get_attr("IFLA_IFNAME")
    information = link.get_attr("IFLA_LINKINFO")
    admin_up = bool(link["flags"] & IFF_UP)
    return NicState(
        device=device,
        index=link["index"],
        kind="" if information is None else information.get_attr("IFLA_INFO_KIND") or "",
        admin_up=admin_up,
        carrier=admin_up and bool(link["flags"] & IFF_LOWER_UP),
        mtu=link.get_attr("IFLA_MTU"),
        addresses=tuple(addresses),
        is_default=link["index"] in defaults,
        speed_mbps=ethtool.speed_mbps(device),
        stamping=ethtool.stamping(device),
        rdma=rdma.get(device, ""),
    )
