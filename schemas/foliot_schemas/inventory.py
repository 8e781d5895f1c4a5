"""The present state, one key per thing, in JetStream key-value buckets.

A service may keep a million of these. They hold no cycles, so the garbage collector does not track them (`gc=False`).
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from foliot_schemas.bounds import (
    MOST_RAILS,
    Count,
    LongName,
    Name,
    Port,
    Text,
    Time,
    check_address,
    check_name,
)
from foliot_schemas.names import is_nic_clock, nic_clock_name, nic_name
from foliot_schemas.placement import Placement, Rails  # noqa: TC001 - msgspec reads annotations at run time

Address = Annotated[str, msgspec.Meta(max_length=15)]
MOST_ENTROPIES = 64
"""Entropies of a NIC."""

EntropyKind = Literal["udp-source-port", "flow-label", "infiniband-path"]


OVERLAY_PORT = 4789
"""The destination port of the overlay's outer packets: that of VXLAN (RFC 7348)."""


class Nic(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A backend NIC of a node."""

    name: LongName
    """As in `node3.rail0`."""
    rail: Name
    """The plane of the fabric that it is plugged into."""
    device: Name
    """The kernel's name of the device."""
    address: Address
    """Its own address in the fabric (the underlay)."""
    clock: Name
    """Name of the host's clock that stamps its packets. NICs that share it join the rails of a host. A NIC that stamps in
    hardware has a clock of its own besides, see `foliot_schemas.names.nic_clock_name`."""
    service_address: Address
    """The address that jobs use on this rail; it survives the NIC."""
    path_addresses: Annotated[tuple[Address, ...], msgspec.Meta(max_length=MOST_ENTROPIES)]
    """Per entropy, the address inside the overlay by which probes take exactly that path."""
    entropies: Annotated[tuple[Count, ...], msgspec.Meta(max_length=MOST_ENTROPIES)]
    """The values that the switches hash: per index, the outer UDP source port (see `entropy_kind`)."""
    entropy_kind: EntropyKind = "udp-source-port"
    """The header field that carries an entropy here."""


class Node(msgspec.Struct, frozen=True, kw_only=True, tag="node.v1", gc=False):
    """A node and its NICs: bucket `inventory`, key: node."""

    name: Name
    """The node's."""
    nics: Annotated[tuple[Nic, ...], msgspec.Meta(max_length=MOST_RAILS)]
    """Its backend NICs, one per rail."""
    agent_port: Port = 0
    """UDP port of the agent's notices and echoes."""
    probe_port: Port = 0
    """UDP port of its probe."""
    armed: bool = False
    """The agent moves its traffic by itself when it loses a NIC, and when a peer tells it that it lost one."""
    peers: tuple[str, ...] = ()
    """Nodes that it exchanges traffic with; empty: all nodes that share a rail with it."""
    nic_stamps: bool = False
    """Its probe understands stamps of the clocks in its peers' NICs. No peer sends it any others' before it says so."""

    @property
    def clocks(self) -> frozenset[str]:
        """All clocks that it may have: its host's, those that its NICs name, and those in its NICs."""
        return frozenset(
            {self.name, *(nic.clock for nic in self.nics), *(nic_clock_name(nic.name) for nic in self.nics)}
        )

    def talks_to(self, other: Node) -> bool:
        """Whether the two exchange traffic, which is probed and moved: neither leaves the other out of its peers."""
        return (
            self.name != other.name
            and (not self.peers or other.name in self.peers)
            and (not other.peers or self.name in other.peers)
        )

    def check(self) -> None:
        """Refuses a record that contradicts itself.

        Raises:
            ValueError: a name or address is none, a rail occurs twice, or a NIC's name is not that of its node and
                rail.
        """
        check_name(self.name)
        for nic in self.nics:
            check_name(nic.clock)
            if is_nic_clock(nic.clock):
                raise ValueError(
                    f"{nic.clock[:64]!r} is the name of a clock in a NIC, and {nic.name[:64]} names a host's"
                )
            check_name(nic.rail)
            if "." in nic.rail:
                raise ValueError(f"{nic.rail[:64]!r} cannot be a rail: it holds a dot")
            if nic.name != nic_name(self.name, nic.rail):
                raise ValueError(f"the NIC of {self.name} on {nic.rail} is named {nic.name[:64]!r}")
            for address in (nic.address, nic.service_address, *nic.path_addresses):
                check_address(address)
            if len(nic.path_addresses) > len(nic.entropies):
                raise ValueError(f"{nic.name} has more path addresses than entropies")
        if len({nic.rail for nic in self.nics}) != len(self.nics):
            raise ValueError(f"{self.name} has two NICs on one rail")

    def nic(self, rail: str) -> Nic:
        """The node's NIC on a rail.

        Raises:
            KeyError: it has none.
        """
        for nic in self.nics:
            if nic.rail == rail:
                return nic
        raise KeyError(f"{self.name} has no NIC on {rail}")


class NodePaths(msgspec.Struct, frozen=True, kw_only=True, tag="paths.v1", gc=False):
    """The ways that the remediator wants in force on a node, and the backups it armed: bucket `paths`, key: node."""

    node: Name
    """The node whose ways these are."""
    lease_revision: Count
    """Revision of the lease that the remediator held when it wrote this."""
    away: Rails = ()
    """Rails whose own NIC is lost: their traffic takes the backups."""
    placements: tuple[Placement, ...] = ()
    """Destinations that do not go their usual way."""
    backups: tuple[Placement, ...] = ()
    """Per service address, the way to take when the way in force loses a NIC; only ways heard to be healthy."""
    homes: tuple[Placement, ...] = ()
    """Of destinations that have left their homes, these: their traffic comes back when they are good again."""
    decided_ns: Time = 0
    """When the remediator decided this, by the clock that dates its commands; 0: not known. What a node has done since
    by a command is not undone for it."""


class NodeHomes(msgspec.Struct, frozen=True, kw_only=True, tag="homes.v1", gc=False):
    """The homes of a node's traffic, where somebody has chosen them: bucket `homes`, key: node."""

    node: Name
    """The node whose traffic it is."""
    lease_revision: Count
    """Revision of the lease that the remediator held when it wrote this. Readers ignore a value with a lower one
    than the last."""
    placements: tuple[Placement, ...] = ()
    """Homes that were chosen. All other destinations have the default home of the remediator's settings."""


class Lease(msgspec.Struct, frozen=True, kw_only=True, tag="lease.v1"):
    """The holder of a role: bucket `leases`, key: role. The revision of the key fences the holder's commands."""

    holder: Text
    """The process that holds it."""
