"""The inventory of a simulated fleet: names, records, and the streams of each node."""

from __future__ import annotations

import ipaddress
import itertools
from typing import NamedTuple

from foliot_schemas import Nic, Node
from foliot_schemas.names import Path, nic_name

_HOSTS, _RAILS, _ENTROPIES = 4, 2, 4
_FIRST_PORT = 49_200


class Stream(NamedTuple):
    """A stream of a node: a peer, a rail and an entropy."""

    peer: int
    rail: str
    entropy: int
    peer_row: int
    """The row of the same stream at the peer."""
    outgoing: Path
    incoming: Path


class Inventory:
    """All nodes by number. Every two are peers on every rail."""

    def __init__(self) -> None:
        self.names = tuple(f"node{number}" for number in range(_HOSTS))
        self.rails = tuple(f"rail{number}" for number in range(_RAILS))
        self.nics = tuple(nic_name(name, rail) for name in self.names for rail in self.rails)
        self.nodes = tuple(self._node(number) for number in range(_HOSTS))
        rows = [self._keys(number) for number in range(_HOSTS)]
        self.streams = tuple(
            tuple(
                Stream(
                    peer, rail, entropy, rows[peer].index((number, rail, entropy)),
                    self.path(number, peer, rail, entropy), self.path(peer, number, rail, entropy),
                )
                for peer, rail, entropy in rows[number]
            )
            for number in range(_HOSTS)
        )  # fmt: skip

    def path(self, source: int, destination: int, rail: str, entropy: int) -> Path:
        """The path between two nodes."""
        return Path(nic_name(self.names[source], rail), nic_name(self.names[destination], rail), entropy)

    def paths(self) -> list[Path]:
        """All paths of the fleet."""
        return [stream.outgoing for streams in self.streams for stream in streams]

    def _keys(self, number: int) -> list[tuple[int, str, int]]:
        peers = [peer for peer in range(_HOSTS) if peer != number]
        return list(itertools.product(peers, self.rails, range(_ENTROPIES)))

    def _node(self, number: int) -> Node:
        name = self.names[number]
        address = ipaddress.IPv4Address
        nics = tuple(
            Nic(
                name=nic_name(name, rail), rail=rail, device=f"eth{place}", clock=name,
                address=str(address(f"10.{place}.0.{1 + number}")),
                service_address=str(address(f"10.{100 + place}.0.{1 + number}")),
                path_addresses=tuple(
                    str(address(f"100.{64 + place}.{entropy}.{1 + number}")) for entropy in range(_ENTROPIES)
                ),
                entropies=tuple(range(_FIRST_PORT, _FIRST_PORT + _ENTROPIES)),
            )
            for place, rail in enumerate(self.rails)
        )  # fmt: skip
        return Node(name=name, nics=nics, agent_port=7947, probe_port=7946)
