"""The present state, one key per thing, in JetStream key-value buckets."""

from __future__ import annotations

from typing import Literal

import msgspec

from foliot_schemas.command import Placement  # noqa: TC001 - msgspec reads annotations at run time

EntropyKind = Literal["udp-source-port", "flow-label", "infiniband-path"]


class Nic(msgspec.Struct, frozen=True, kw_only=True):
    """A backend NIC of a node."""

    name: str
    rail: str
    device: str
    address: str
    """Its own address in the fabric (the underlay)."""
    clock: str
    """Name of the clock that stamps its packets: what joins the rails of a host."""
    service_address: str
    """The address that jobs use on this rail; it survives the NIC."""
    path_addresses: tuple[str, ...]
    """Per entropy, the address inside the overlay by which probes take exactly that path."""
    entropies: tuple[int, ...]
    """What the switches hash: per index, the outer UDP source port (see `entropy_kind`)."""
    entropy_kind: EntropyKind = "udp-source-port"


class Node(msgspec.Struct, frozen=True, kw_only=True, tag="node.v1"):
    """Bucket `inventory`, key: node."""

    name: str
    nics: tuple[Nic, ...]
    agent_port: int = 0
    """UDP port of the agent's notices and echoes."""
    probe_port: int = 0
    armed: bool = False
    """The agent moves its traffic by itself when it loses a NIC, and when a peer tells it that it lost one."""

    def nic(self, rail: str) -> Nic:
        """The node's NIC on a rail.

        Raises:
            KeyError: it has none.
        """
        for nic in self.nics:
            if nic.rail == rail:
                return nic
        raise KeyError(f"{self.name} has no NIC on {rail}")


class NodePaths(msgspec.Struct, frozen=True, kw_only=True, tag="paths.v1"):
    """Bucket `paths`, key: node. What the remediator wants in force on a node, and what it armed it with."""

    node: str
    lease_revision: int
    away: tuple[str, ...] = ()
    placements: tuple[Placement, ...] = ()
    backups: tuple[Placement, ...] = ()
    """Per service address, the way to take when the way in force loses a NIC; only ways heard to be healthy."""


class Lease(msgspec.Struct, frozen=True, kw_only=True, tag="lease.v1"):
    """Bucket `leases`, key: role. The revision of the key fences the holder's commands."""

    holder: str
