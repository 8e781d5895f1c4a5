"""A fabric of leaves and spines, as nodes tell of it."""

import itertools
from ipaddress import IPv4Address

import numpy as np

from foliot_schemas import HopBatch, HopRow, Nic, Node

RAIL = "rail0"


def nic(host):
    """A host's NIC."""
    return f"node{host}.{RAIL}"


class ToldFabric:
    """Hosts below leaves. Which spine a path takes follows from its ends and its entropy.

    Parameters:
        below: hosts of a leaf.
        silent: routers that do not answer, such as `leaf0` and `spine1`.
        loopback: each router has one address for all its ports.
        apart: by how much the addresses of a cable between routers differ.
    """

    def __init__(self, hosts=4, below=2, spines=2, entropies=2, silent=(), *, loopback=False, apart=1):
        self.hosts, self.below, self.spines, self.entropies = hosts, below, spines, entropies
        self.silent, self.loopback, self.apart = silent, loopback, apart

    def paths(self, host=None):
        """The paths from a host, or all."""
        pairs = itertools.permutations(range(self.hosts), 2)
        sources = range(self.hosts) if host is None else (host,)
        return [
            f"{nic(source)}>{nic(sink)}#{entropy}"
            for source, sink in pairs
            if source in sources
            for entropy in range(self.entropies)
        ]

    def leaf(self, host):
        """The number of a host's leaf."""
        return host // self.below

    def entered(self, source, sink, entropy):
        """The routers that a path enters, and the addresses of the ports there."""
        near, far = self.leaf(source), self.leaf(sink)
        yield f"leaf{near}", f"10.0.{near}.{2 * source}"
        if near != far:
            spine = (source + sink + entropy) % self.spines
            yield f"spine{spine}", f"10.1.{near}.{2 * spine + self.apart}"
            yield f"leaf{far}", f"10.1.{far}.{2 * spine}"

    def hops(self, host, *, at_ns=1):
        """What a host's node tells."""
        paths, rows = self.paths(host), []
        for place, path in enumerate(paths):
            ends, _, entropy = path.partition("#")
            source, sink = (int(end.partition(".")[0].removeprefix("node")) for end in ends.split(">"))
            rows += [
                (place, hop, int(IPv4Address(f"10.2.{len(router)}.{router[-1]}" if self.loopback else address)))
                for hop, (router, address) in enumerate(self.entered(source, sink, int(entropy)), 1)
                if router not in self.silent
            ]
        return HopBatch.of(np.array(rows, HopRow), node=f"node{host}", at_ns=at_ns, paths=tuple(paths))

    def record(self, host):
        """A host's record in the inventory."""
        one = Nic(
            name=nic(host), rail=RAIL, device="eth0", address=f"10.9.0.{host}", clock=f"node{host}",
            service_address=f"10.200.0.{host}", path_addresses=("100.64.0.1",) * self.entropies,
            entropies=tuple(range(self.entropies)),
        )  # fmt: skip
        return Node(name=f"node{host}", nics=(one,))
