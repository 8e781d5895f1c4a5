"""The kernel objects of the overlay, computed from inventory records. Pure.

Tables: the one of number 7000 + rail number holds the route in force to every peer's service address of that rail. The
one of number 7100 + rail number holds its armed backup.

Rules: one of priority 7100 always sends a rail's service prefix to the first table. One of priority 7000 sends it to
the second, only while the node's own NIC on that rail is lost.
"""

from __future__ import annotations

import ipaddress
from typing import TYPE_CHECKING

import msgspec

from foliot.node import addressing as node_record
from foliot_schemas import Node, Placement

if TYPE_CHECKING:
    from collections.abc import Mapping

    from foliot.settings import NodeSettings

SERVICE_DEVICE = "foliot0"
"""Carries the service addresses: one end of a veth pair, up whatever the NICs do. Programs that pick an interface by
name find their address on it, which they would not on ``lo``."""
SERVICE_DEVICE_END = "foliot0-end"
VXLAN_OVERHEAD = 50
"""Bytes that the encapsulation adds on IPv4: outer Ethernet 14, IP 20, UDP 8, VXLAN 8 (RFC 7348)."""

IN_FORCE_TABLE = 7000
BACKUP_TABLE = 7100
AWAY_PRIORITY = 7000
ALWAYS_PRIORITY = 7100
RAILS = 8
"""Rail numbers run from 0 to 7, as the path prefix has room for."""
TABLES = frozenset(first + number for first in (IN_FORCE_TABLE, BACKUP_TABLE) for number in range(RAILS))

_FIRST_VNI = 700_000
"""Decimal, so that a capture reads well: 700203 is rail 2, entropy 3."""
_VNIS_PER_RAIL = 100
OUR_VNIS = range(_FIRST_VNI, _FIRST_VNI + RAILS * _VNIS_PER_RAIL)


class VxlanDevice(msgspec.Struct, frozen=True, kw_only=True):
    """One entropy of one rail: packets that leave through it have that UDP source port."""

    name: str
    vni: int
    underlay: str
    """Name of the rail's NIC."""
    local: str
    """The NIC's own address."""
    source_port: int
    mac: str
    address: str
    """The node's path address."""
    prefix_length: int
    """Of the network that it is in, with those of the peers."""


class PeerEntry(msgspec.Struct, frozen=True, kw_only=True):
    """The kernel's entries for a peer's device: a neighbour, and a forwarding entry to the peer's NIC."""

    device: str
    """The node's own, of the same rail and entropy."""
    address: str
    """The peer's path address."""
    mac: str
    remote: str
    """The peer's NIC's own address."""


class Route(msgspec.Struct, frozen=True, kw_only=True):
    """The way to one service address, /32."""

    table: int
    destination: str
    gateway: str
    """The peer's path address on the way."""
    device: str
    source: str
    """The node's own service address on the destination's rail."""


class Rule(msgspec.Struct, frozen=True, kw_only=True):
    """Destinations within the prefix are looked up in the table."""

    priority: int
    prefix: str
    table: int


class Layout(msgspec.Struct, frozen=True, kw_only=True):
    """The node's own record and what its settings add: numbers and service prefixes of the rails."""

    node: Node
    numbers: dict[str, int]
    service_prefixes: dict[str, str]
    tcp_usec_ts: bool = False
    """Whether routes to service addresses have TCP stamp its packets in microseconds."""

    @classmethod
    def of(cls, settings: NodeSettings, *, tcp_usec_ts: bool = False) -> Layout:
        """The layout that follows from the node's settings, and from `agent.tcp_usec_ts`.

        Raises:
            SettingsError: an address does not fit.
        """
        return cls(
            node=node_record.describe(settings),
            numbers={nic.rail: nic.number for nic in settings.nics},
            service_prefixes={nic.rail: node_record.service_prefix(settings, nic.rail) for nic in settings.nics},
            tcp_usec_ts=tcp_usec_ts,
        )

    @property
    def rails(self) -> tuple[str, ...]:
        """The node's rails, in the inventory's order."""
        return tuple(nic.rail for nic in self.node.nics)


def mac_of(address: str) -> str:
    """The MAC of a path address: locally administered, unicast, then the address.

    Locally administered is bit 1 of the first byte (IEEE 802).
    """
    return ":".join(f"{byte:02x}" for byte in (0x02, 0xF0, *ipaddress.IPv4Address(address).packed))


def device_name(number: int, entropy: int) -> str:
    """The name of the device of a rail number and entropy."""
    return f"fo{number}e{entropy}"


def devices(layout: Layout) -> tuple[VxlanDevice, ...]:
    """The node's VXLAN devices."""
    return tuple(
        VxlanDevice(
            name=device_name(layout.numbers[nic.rail], entropy),
            vni=_FIRST_VNI + layout.numbers[nic.rail] * _VNIS_PER_RAIL + entropy,
            underlay=nic.device,
            local=nic.address,
            source_port=port,
            mac=mac_of(address),
            address=address,
            prefix_length=node_record.path_prefix_length(len(nic.entropies)),
        )
        for nic in layout.node.nics
        for entropy, (port, address) in enumerate(zip(nic.entropies, nic.path_addresses, strict=True))
    )


def entries(layout: Layout, peer: Node) -> set[PeerEntry]:
    """The entries that a peer needs, one for each rail and entropy that both have."""
    own = {nic.rail: nic for nic in layout.node.nics}
    return {
        PeerEntry(
            device=device_name(layout.numbers[nic.rail], entropy),
            address=address,
            mac=mac_of(address),
            remote=nic.address,
        )
        for nic in peer.nics
        if nic.rail in own
        for entropy, address in enumerate(nic.path_addresses[: len(own[nic.rail].path_addresses)])
    }


def rules(layout: Layout) -> tuple[Rule, ...]:
    """The rules that are always there."""
    return tuple(
        Rule(
            priority=ALWAYS_PRIORITY, prefix=layout.service_prefixes[rail], table=IN_FORCE_TABLE + layout.numbers[rail]
        )
        for rail in layout.rails
    )


def away_rule(layout: Layout, rail: str) -> Rule:
    """The rule that is there only while the node's own NIC on the rail is lost."""
    table = BACKUP_TABLE + layout.numbers[rail]
    return Rule(priority=AWAY_PRIORITY, prefix=layout.service_prefixes[rail], table=table)


def shared_rails(layout: Layout, peer: Node) -> tuple[str, ...]:
    """The rails on which both have a NIC, in the node's order."""
    present = {nic.rail for nic in peer.nics}
    return tuple(rail for rail in layout.rails if rail in present)


def route(layout: Layout, peer: Node, placement: Placement, first_table: int) -> Route:
    """The route of a placement, in the rail's table of the wanted kind.

    Raises:
        KeyError: the node or the peer has no such rail.
        IndexError: the rail has no such entropy.
    """
    return Route(
        table=first_table + layout.numbers[placement.rail],
        destination=peer.nic(placement.rail).service_address,
        gateway=peer.nic(placement.via).path_addresses[placement.entropy],
        device=device_name(layout.numbers[placement.via], placement.entropy),
        source=layout.node.nic(placement.rail).service_address,
    )


def placements_by_route(layout: Layout, peer: Node) -> Mapping[tuple[str, str], Placement]:
    """The placements to this peer, by (destination, gateway) of the route that each would make: adopting needs this."""
    return {
        (destination.service_address, gateway): Placement(
            peer=peer.name, rail=destination.rail, via=carrier.rail, entropy=entropy
        )
        for destination in peer.nics
        for carrier in peer.nics
        if destination.rail in layout.numbers and carrier.rail in layout.numbers
        for entropy, gateway in enumerate(carrier.path_addresses)
    }
