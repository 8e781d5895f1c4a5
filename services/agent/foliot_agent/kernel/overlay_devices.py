"""Builds the overlay in the kernel: the service device, VXLAN devices, forwarding entries and neighbours.

Everything is safe to do again: what is there and right stays untouched, so that a restart of the agent disturbs no
packet.
"""

from __future__ import annotations

import contextlib
import errno
import re
import socket
from typing import TYPE_CHECKING, Any

import structlog
from pyroute2.netlink.exceptions import NetlinkError
from pyroute2.netlink.rtnl.ndmsg import NTF_SELF, NUD_PERMANENT

from foliot_agent.core import overlay_layout
from foliot_agent.kernel.devices import Devices, path_of
from foliot_agent.kernel.overlay_routes import routes_present, rules_present
from foliot_schemas.inventory import OVERLAY_PORT

if TYPE_CHECKING:
    from foliot_schemas import Node

log = structlog.get_logger()

_OUR_DEVICE = re.compile(r"fo\d+e\d+")
_INHERIT = 1
"""IFLA_VXLAN_TOS: an outer packet has the DSCP of the one inside, so that switches queue traffic and probes by it."""
_LOOSE = "2"
"""rp_filter: a packet may come in by another device than its answer leaves by (RFC 3704 §2.4). It does so while only
one end has moved. The kernel takes the larger of this and conf/all, so nothing of the host's own need be changed."""


class OverlayError(Exception):
    """The kernel cannot be brought to the plan; the message says what is missing and what to do."""


class Overlay:
    """The overlay's devices on this node.

    Parameters:
        netlink: an `AsyncIPRoute`, or a `foliot_agent.kernel.dry_run.DryRun`, which is both this and `devices`.
    """

    def __init__(self, netlink: Any, layout: overlay_layout.Layout, devices: Devices | None = None) -> None:
        self._netlink = netlink
        self._layout = layout
        self._devices = devices or Devices()
        self._entries: set[overlay_layout.PeerEntry] = set()
        self._built: dict[str, tuple[int, int]] = {}
        """By NIC: its index and MTU when its devices were made or looked at last."""

    async def build(self, *, missing_ok: bool = False) -> frozenset[str]:
        """Makes what is missing and remakes what is wrong; returns the names of the devices that it made.

        Parameters:
            missing_ok: passes over NICs that are not there.

        Raises:
            OverlayError: a NIC is not there, or the kernel refuses.
        """
        made = []
        try:
            links = await _links(self._netlink)
            await self._build_service_device(links)
            wanted = overlay_layout.devices(self._layout)
            for name, link in links.items():
                if _is_our_vxlan(link) and name not in {device.name for device in wanted}:
                    await self._netlink.link("del", index=link["index"])
            for device in wanted:
                nic = links.get(device.underlay)
                if nic is not None:
                    made += [device.name] if await self._build_device(device, links.get(device.name), nic) else []
                    self._built[device.underlay] = nic["index"], nic.get_attr("IFLA_MTU")
                elif missing_ok:
                    self._built.pop(device.underlay, None)
                else:
                    raise OverlayError(f"node.nics: there is no device {device.underlay!r} on this host")
        except NetlinkError as error:
            raise OverlayError(
                f"the kernel refuses the overlay: {error}; the agent needs CAP_NET_ADMIN and VXLAN"
            ) from error
        return frozenset(made)

    def stands_on(self, nic: str, index: int, mtu: int) -> bool:
        """Whether the devices on a NIC were made on this one: one that is plugged in again has another index or MTU."""
        return self._built.get(nic) == (index, mtu)

    async def join(self, peer: Node) -> None:
        """Makes a peer reachable on every device that is there. Call `join` again for one whose NIC was out."""
        for entry in overlay_layout.entries(self._layout, peer) - self._entries:
            try:
                await self._forwarding("replace", entry)
                await self._neighbour("replace", entry)
            except (NetlinkError, OSError):
                if self._devices.has(entry.device):
                    raise
            else:
                self._entries.add(entry)

    async def leave(self, peer: Node) -> None:
        """Forgets a peer that has left the fleet."""
        for entry in overlay_layout.entries(self._layout, peer) & self._entries:
            for change in (self._forwarding, self._neighbour):
                with contextlib.suppress(NetlinkError, OSError):  # gone already, perhaps with its device
                    await change("del", entry)
            self._entries.discard(entry)

    async def _build_service_device(self, links: dict[str, Any]) -> None:
        if overlay_layout.SERVICE_DEVICE not in links:
            await self._netlink.link(
                "add",
                ifname=overlay_layout.SERVICE_DEVICE,
                kind="veth",
                peer={"ifname": overlay_layout.SERVICE_DEVICE_END},
            )
        for name in (overlay_layout.SERVICE_DEVICE_END, overlay_layout.SERVICE_DEVICE):
            self._loosen(name)
            await self._netlink.link("set", index=self._devices.index(name), state="up")
        addresses = {nic.service_address for nic in self._layout.node.nics}
        await self._addresses(overlay_layout.SERVICE_DEVICE, addresses, 32)

    async def _build_device(self, device: overlay_layout.VxlanDevice, present: Any, nic: Any) -> bool:
        """Makes a device, or brings the present one to the plan; says whether it had to be made."""
        if present is not None and not _is_as_planned(present, device, nic["index"]):
            log.info("device_remade", device=device.name)
            await self._netlink.link("del", index=present["index"])
            present = None
        if present is None:
            self._entries = {entry for entry in self._entries if entry.device != device.name}
            await self._netlink.link(
                "add", ifname=device.name, kind="vxlan", vxlan_id=device.vni, vxlan_link=nic["index"],
                vxlan_local=device.local, vxlan_port=OVERLAY_PORT, vxlan_learning=0, vxlan_tos=_INHERIT, address=device.mac,
                # The kernel's range excludes its upper end, so this pins the port.
                vxlan_port_range={"low": device.source_port, "high": device.source_port + 1},
            )  # fmt: skip
        elif _vxlan(present).get_attr("IFLA_VXLAN_TOS") != _INHERIT:  # made by an earlier version; no packet is lost
            await self._netlink.link("set", index=present["index"], kind="vxlan", vxlan_tos=_INHERIT)
        self._loosen(device.name)
        mtu = nic.get_attr("IFLA_MTU") - overlay_layout.VXLAN_OVERHEAD
        await self._netlink.link("set", index=self._devices.index(device.name), state="up", mtu=mtu)
        await self._addresses(device.name, {device.address}, device.prefix_length)
        return present is None

    async def _addresses(self, device: str, wanted: set[str], length: int) -> None:
        index = self._devices.index(device)
        present = {
            (message.get_attr("IFA_ADDRESS"), message["prefixlen"])
            async for message in await self._netlink.addr("dump", family=socket.AF_INET, index=index)
        }
        for address in wanted:
            if (address, length) not in present:
                await self._netlink.addr("add", index=index, address=address, prefixlen=length)
        for address, before in present:
            if (before == length) != (address in wanted):  # another's of ours, or ours of another length
                await self._netlink.addr("del", index=index, address=address, prefixlen=before)

    async def _forwarding(self, verb: str, entry: overlay_layout.PeerEntry) -> None:
        index = self._devices.index(entry.device)
        await self._netlink.fdb(
            verb, ifindex=index, lladdr=entry.mac, dst=entry.remote, flags=NTF_SELF, state=NUD_PERMANENT
        )

    async def _neighbour(self, verb: str, entry: overlay_layout.PeerEntry) -> None:
        index = self._devices.index(entry.device)
        await self._netlink.neigh(verb, ifindex=index, dst=entry.address, lladdr=entry.mac, state=NUD_PERMANENT)

    def _loosen(self, device: str) -> None:
        """Lets asymmetric ways in, and keeps IPv6's own chatter off the device."""
        for family, key, value in (("ipv4", "rp_filter", _LOOSE), ("ipv6", "disable_ipv6", "1")):
            try:
                if self._devices.setting(family, device, key) not in {None, value}:
                    self._devices.set(family, device, key, value)
            except OSError as error:
                if family == "ipv4" and error.errno in {errno.EROFS, errno.EACCES, errno.EPERM}:
                    raise OverlayError(
                        f"{path_of(family, device, key)} must be {value} and cannot be written: mount /proc/sys "
                        f"writable for the agent, or set net.ipv4.conf.default.rp_filter = {value} beforehand",
                    ) from error


async def remove(netlink: Any) -> None:
    """Undoes everything that any run of the agent changed in this network namespace; safe to do again."""
    for rule in await rules_present(netlink):
        address, _, length = rule.prefix.partition("/")
        await netlink.rule("del", priority=rule.priority, dst=address, dst_len=int(length), table=rule.table)
    for table in overlay_layout.TABLES:
        for destination, _ in await routes_present(netlink, table):
            await netlink.route("del", dst=destination, dst_len=32, table=table)
    for name, link in (await _links(netlink)).items():
        if _is_our_vxlan(link) or name == overlay_layout.SERVICE_DEVICE:
            with contextlib.suppress(NetlinkError):
                await netlink.link("del", index=link["index"])


async def _links(netlink: Any) -> dict[str, Any]:
    return {message.get_attr("IFLA_IFNAME"): message async for message in await netlink.link("dump")}


def _vxlan(link: Any) -> Any:
    information = link.get_attr("IFLA_LINKINFO")
    if information is None or information.get_attr("IFLA_INFO_KIND") != "vxlan":
        return None
    return information.get_attr("IFLA_INFO_DATA")


def is_ours(link: Any) -> bool:
    """Whether a link is a device that the agent makes."""
    return _is_our_vxlan(link) or link.get_attr("IFLA_IFNAME") in {
        overlay_layout.SERVICE_DEVICE,
        overlay_layout.SERVICE_DEVICE_END,
    }


def _is_our_vxlan(link: Any) -> bool:
    vxlan = _vxlan(link)
    named = _OUR_DEVICE.fullmatch(link.get_attr("IFLA_IFNAME")) is not None
    return named and vxlan is not None and vxlan.get_attr("IFLA_VXLAN_ID") in overlay_layout.OUR_VNIS


def _is_as_planned(link: Any, device: overlay_layout.VxlanDevice, nic: int) -> bool:
    vxlan = _vxlan(link)
    if vxlan is None:
        return False
    ports = vxlan.get_attr("IFLA_VXLAN_PORT_RANGE")
    return (
        vxlan.get_attr("IFLA_VXLAN_ID") == device.vni
        and vxlan.get_attr("IFLA_VXLAN_LINK") == nic
        and vxlan.get_attr("IFLA_VXLAN_LOCAL") == device.local
        and (ports["low"], ports["high"]) == (device.source_port, device.source_port + 1)
        and link.get_attr("IFLA_ADDRESS") == device.mac
    )
