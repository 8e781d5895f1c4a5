"""The topology of the lab's fabric: hosts, routers, links, addresses and routes. Pure; `fabric.py` builds it.

Every rail is a leaf-spine fabric of its own. Hosts are split among its leaves in contiguous blocks; every leaf is
joined to every spine. There is no routing protocol: a cut fabric link stays a hole until somebody moves the traffic.

============================ =============================================================
10.99.0.1, 10.99.1.<1 + i>   the frontend: a bridge in the control namespace, and host i on it
10.99.2.<1 + i>              the i-th of the central services and bus servers, each in a namespace of its own
10.<100 + r>.<l>.<2k, +1>    rail r: the port of leaf l (even) and the NIC of its k-th host (odd)
10.<110 + r>.x.y             rail r: the /31s between leaves and spines
============================ =============================================================
"""

from __future__ import annotations

import random
from functools import cached_property
from itertools import count
from typing import TYPE_CHECKING, Literal

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from foliot_lab.scenario.spec import FabricSpec

MTU_BYTES = 1500
"""The MTU of every link."""
HOSTS_PER_LEAF = 128
"""A leaf's /24 has that many /31s."""
CONTROL = "control"
CONTROL_ADDRESS = "10.99.0.1"
FRONT_DEVICE = "front"
FRONT_LENGTH = 16
GATEWAY_PORT = 8470
CENTRAL = ("gateway", "sync", "detector", "remediator")
"""The services that run on no host."""
_FIRST_INDEX = 1000
"""The first index that the lab gives. The kernel's own indices in so short-lived a namespace are lower."""


class Route(msgspec.Struct, frozen=True):
    """A way to a prefix: one gateway, several that share by the five-tuple's hash, or none (a black hole)."""

    prefix: str
    gateways: tuple[tuple[str, str], ...]
    """Pairs of gateway address and device."""


class Port(msgspec.Struct, frozen=True):
    """One end of a link: a device in a namespace, with its /31."""

    owner: str
    """Name of the namespace."""
    device: str
    index: int
    """The device's index, unique in the fabric. A virtual wire's two ends are in different namespaces. If they have
    the same index, the kernel tells its loss of carrier up to a second late."""
    address: str
    routes: tuple[Route, ...] = ()
    """The routes through this port alone. The kernel flushes them when the port is set down, and does not bring them
    back."""


class Link(msgspec.Struct, frozen=True):
    """Two ports and the wire between them.

    A NIC's link is called after the NIC, `node3.rail0`, and its near end is the NIC. A fabric link is called
    `rail0.leaf1-spine2`; its near end is the leaf's port. Faults happen at the far end.
    """

    name: str
    near: Port
    far: Port


class Router(msgspec.Struct, frozen=True):
    """A leaf or a spine."""

    name: str
    kind: Literal["leaf", "spine"]
    hash_seed: int
    """The router's own seed. With a common one, the layers of the fabric would hash alike and leave part of the
    links unused."""
    routes: tuple[Route, ...]
    """The routes through several ports, or through none."""
    sprayed: tuple[tuple[Route, ...], ...] = ()
    """Of a leaf that sprays packets: the routes to all other leaves by each spine, which packets take in turn."""


class FabricPlan(msgspec.Struct, frozen=True, dict=True):
    """The plan of a fabric: everything that `fabric.py` builds."""

    hosts: tuple[str, ...]
    rails: tuple[str, ...]
    routers: tuple[Router, ...]
    nics: tuple[Link, ...]
    trunks: tuple[Link, ...]
    """The links between leaves and spines."""
    link_mbps: float
    queue_packets: int
    icmp: bool = True
    """Whether routers answer a packet whose time to live is over."""
    spray: bool = False
    """Whether leaves give packets to their spines in turn. Then no flow has a way of its own."""
    entropies: int = 4
    """UDP source ports of the overlay."""
    central: tuple[str, ...] = CENTRAL
    """Central services and bus servers. Each has a namespace and a frontend address, so that it can be cut off
    alone."""

    @property
    def bus_servers(self) -> tuple[str, ...]:
        """The names of the bus servers."""
        return tuple(name for name in self.central if name.startswith("nats"))

    @cached_property
    def links(self) -> dict[str, Link]:
        """Every shaped link by its name."""
        return {link.name: link for link in (*self.nics, *self.trunks)}

    @cached_property
    def _link_names(self) -> dict[str, str]:
        """The name of each link by what Foliot calls it: by the address of the port that it enters, or by its NIC."""
        names: dict[str, str] = {}
        for link in self.links.values():
            names |= {port.address.partition("/")[0]: link.name for port in (link.near, link.far)}
        for nic in self.nics:
            names |= {f"{nic.name}/out": nic.name, f"{nic.name}/in": nic.name}
        return names

    def link_name(self, called: str) -> str:
        """The lab's name of a link that Foliot names; any other name as it is."""
        return self._link_names.get(called, called)

    @cached_property
    def ports(self) -> dict[str, list[Port]]:
        """The ports of every host and router."""
        ports: dict[str, list[Port]] = {name: [] for name in (*self.hosts, *(router.name for router in self.routers))}
        for link in self.links.values():
            ports[link.near.owner].append(link.near)
            ports[link.far.owner].append(link.far)
        return ports

    @cached_property
    def _trunk_names(self) -> dict[tuple[str, str], str]:
        """The name of each fabric link by its leaf and its spine."""
        return {(trunk.near.owner, trunk.far.owner): trunk.name for trunk in self.trunks}

    def links_between(self, source: str, destination: str, rail: str, spine: str | None) -> tuple[str, ...]:
        """The links that a packet crosses from one node's NIC to another's.

        Parameters:
            source: a node.
            destination: another one.
            rail: where both have a NIC.
            spine: the one that it crosses; None: both NICs are on one leaf.

        Raises:
            KeyError: there is no such NIC or link.
        """
        ends = (f"{source}.{rail}", f"{destination}.{rail}")
        if spine is None:
            return ends
        up, down = (self._trunk_names[self.leaf(node, rail), spine] for node in (source, destination))
        return ends[0], up, down, ends[1]

    def underlay(self, node: str, rail: str) -> str:
        """The fabric address of a node's NIC.

        Raises:
            KeyError: there is no such NIC.
        """
        return self.links[f"{node}.{rail}"].near.address.partition("/")[0]

    def front(self, node: str) -> str:
        """The frontend address of a node, central service or bus server.

        Raises:
            ValueError: there is no such thing.
        """
        if node in self.central:
            return f"10.99.2.{1 + self.central.index(node)}"
        return f"10.99.1.{1 + self.hosts.index(node)}"

    def leaf(self, node: str, rail: str) -> str:
        """The leaf that a node's NIC on a rail is plugged into.

        Raises:
            KeyError: there is no such NIC.
        """
        return self.links[f"{node}.{rail}"].far.owner


def plan(spec: FabricSpec, seed: int) -> FabricPlan:
    """The fabric of a specification; the routers' hash seeds are drawn from the seed.

    Raises:
        ValueError: a leaf would have more hosts than addresses.
    """
    sizes = leaf_sizes(spec.hosts, spec.leaves)
    if max(sizes) > HOSTS_PER_LEAF:
        raise ValueError(f"{max(sizes)} hosts on a leaf, which has addresses for {HOSTS_PER_LEAF}")
    indexes = count(_FIRST_INDEX)
    rails = [_rail(rail, sizes, spec, seed, indexes) for rail in range(spec.rails)]
    return FabricPlan(
        hosts=tuple(f"node{host}" for host in range(spec.hosts)),
        rails=tuple(f"rail{rail}" for rail in range(spec.rails)),
        routers=tuple(router for routers, _, _ in rails for router in routers),
        nics=tuple(link for _, nics, _ in rails for link in nics),
        trunks=tuple(link for _, _, trunks in rails for link in trunks),
        link_mbps=spec.link_mbps,
        queue_packets=spec.queue_packets,
        icmp=spec.icmp,
        spray=spec.spray,
        entropies=spec.entropies,
        central=(*CENTRAL, *server_names(spec.bus_servers)),
    )


def server_names(count: int) -> tuple[str, ...]:
    """The bus servers, as processes and places: ``nats`` alone, or ``nats0`` and so on."""
    return ("nats",) if count == 1 else tuple(f"nats{number}" for number in range(count))


def leaf_sizes(hosts: int, leaves: int) -> list[int]:
    """Hosts on each leaf, as even as possible: the first leaves have one more."""
    least, more = divmod(hosts, leaves)
    return [least + (leaf < more) for leaf in range(leaves)]


def _rail(
    rail: int, sizes: Sequence[int], spec: FabricSpec, seed: int, indexes: Iterator[int]
) -> tuple[list[Router], list[Link], list[Link]]:
    spines = spec.spines
    trunks = [_trunk(rail, leaf, spine, spines, indexes) for leaf in range(len(sizes)) for spine in range(spines)]
    nics, host = [], 0
    for leaf, size in enumerate(sizes):
        nics += [_nic(rail, leaf, place, host + place, indexes) for place in range(size)]
        host += size
    leaves = [
        _router(f"rail{rail}.leaf{leaf}", "leaf", seed, _leaf_routes(rail, leaf, trunks)) for leaf in range(len(sizes))
    ]
    if spec.spray:
        leaves = [
            msgspec.structs.replace(router, sprayed=_sprayed(rail, leaf, len(sizes), router.routes[0].gateways))
            for leaf, router in enumerate(leaves)
        ]
    return leaves + [_router(f"rail{rail}.spine{spine}", "spine", seed, ()) for spine in range(spines)], nics, trunks


def _nic(rail: int, leaf: int, place: int, host: int, indexes: Iterator[int]) -> Link:
    block, name = f"10.{100 + rail}.{leaf}", f"rail{rail}"
    gateway = f"{block}.{2 * place}"
    way_out = Route(f"10.{100 + rail}.0.0/16", ((gateway, name),))
    return Link(
        f"node{host}.{name}",
        Port(f"node{host}", name, next(indexes), f"{block}.{2 * place + 1}/31", (way_out,)),
        Port(f"{name}.leaf{leaf}", f"node{host}", next(indexes), f"{gateway}/31"),
    )


def _trunk(rail: int, leaf: int, spine: int, spines: int, indexes: Iterator[int]) -> Link:
    high, low = divmod(2 * (leaf * spines + spine), 256)
    wire = f"10.{110 + rail}.{high}"
    to_leaf = Route(f"10.{100 + rail}.{leaf}.0/24", ((f"{wire}.{low}", f"leaf{leaf}"),))
    return Link(
        f"rail{rail}.leaf{leaf}-spine{spine}",
        Port(f"rail{rail}.leaf{leaf}", f"spine{spine}", next(indexes), f"{wire}.{low}/31"),
        Port(f"rail{rail}.spine{spine}", f"leaf{leaf}", next(indexes), f"{wire}.{low + 1}/31", (to_leaf,)),
    )


def _leaf_routes(rail: int, leaf: int, trunks: Sequence[Link]) -> tuple[Route, ...]:
    uplinks = [trunk for trunk in trunks if trunk.near.owner == f"rail{rail}.leaf{leaf}"]
    gateways = tuple((trunk.far.address.partition("/")[0], trunk.near.device) for trunk in uplinks)
    # Without the black hole, packets to an unplugged host would go up to the spines and come back until their TTL ends.
    own_block = Route(f"10.{100 + rail}.{leaf}.0/24", ())
    return (Route(f"10.{100 + rail}.0.0/16", gateways), own_block)


def _sprayed(rail: int, leaf: int, leaves: int, uplinks: Sequence[tuple[str, str]]) -> tuple[tuple[Route, ...], ...]:
    """A leaf's routes to all others by each of its links up."""
    blocks = [f"10.{100 + rail}.{other}.0/24" for other in range(leaves) if other != leaf]
    return tuple(tuple(Route(block, (uplink,)) for block in blocks) for uplink in uplinks)


def _router(name: str, kind: Literal["leaf", "spine"], seed: int, routes: tuple[Route, ...]) -> Router:
    # Not 0, which lets the kernel draw one.
    return Router(name, kind, random.Random(f"{seed}/{name}").randrange(1, 1 << 32), routes)
