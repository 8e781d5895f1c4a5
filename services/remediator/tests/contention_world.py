"""A fleet on a leaf-spine fabric whose links are shared, in virtual time: what its senders and paths would say."""

from __future__ import annotations

from ipaddress import IPv4Address

import msgspec
import numpy as np
from remediator_world import STEP, World

from foliot.link_map import link_in, link_out
from foliot_remediator.core.state.inventory import Destination, path_name
from foliot_remediator.core.steering.fair_shares import fair_shares
from foliot_schemas import Event, FlowBatch, FlowRow, HopBatch, HopRow

SPINES = 4
LINE = 100e6
_EVERY = 5
"""Steps between two words of a sender."""


def flow(source, sink, rail="rail0"):
    """The name of the flow between two nodes, by their numbers."""
    return f"node{source}.{rail}>node{sink}.{rail}"


def to_spine(leaf, spine):
    """The link from a leaf to a spine."""
    return str(IPv4Address(f"10.1.{spine}.{leaf}"))


def to_leaf(spine, leaf):
    """The link from a spine to a leaf."""
    return str(IPv4Address(f"10.2.{leaf}.{spine}"))


class ContentionWorld(World):
    """Half of the nodes are at each of two leaves; an entropy is a spine, so that all begin on the first.

    `flows` send as much as they want, each so many bits/s. `capacity` has the links that do not carry `LINE`. `muted`
    nodes say nothing of their flows.
    """

    EVERY = _EVERY

    def __init__(self, flows=(), nodes=8, rails=1, **settings):
        self.flows = dict.fromkeys(flows, LINE)
        self.capacity, self.muted = {}, set()
        self.unfair: dict[str, float] = {}
        """What flows get whatever their links have."""
        self.half = nodes // 2
        self._links: dict[str, tuple[str, ...]] = {}
        """Per path, those that were asked for."""
        super().__init__(nodes, rails, **{"improve": "act", **settings})
        self.tell_hops()
        self.run(2.0)

    def wait(self, seconds):
        """Lets time pass in which nodes say nothing; returns the commands given meanwhile."""
        self.every, given = 1_000_000, self.run(seconds)
        self.every = self.EVERY
        return given

    def tell_hops(self):
        """All nodes say which routers their paths cross."""
        for name in self.names:
            self.see(self.hops_of(name))

    def hops_of(self, name):
        """What a node says of its paths."""
        paths = [path for path in self.core.inventory.paths_of(name) if path.startswith(f"{name}.")]
        rows = [(place, hop, address) for place, path in enumerate(paths) for hop, address in self.routers(path)]
        return HopBatch.of(np.array(rows, HopRow), node=name, at_ns=self.now_ns, paths=tuple(paths))

    def routers(self, path):
        """The addresses of a path's routers, by hop."""
        links = self.links(path)
        between = [int(IPv4Address(link)) for link in links[1:-1]]
        return [(1, int(IPv4Address("10.0.0.1"))), *enumerate(between, 2)]

    def links(self, path):
        """The links of a path; its rail has a fabric of its own."""
        known = self._links.get(path)
        if known is None:
            source, _, rest = path.partition(">")
            sink, _, entropy = rest.partition("#")
            start, end = (self.leaf(nic.partition(".")[0]) for nic in (source, sink))
            spine = int(entropy)
            between = () if start == end else (to_spine(start, spine), to_leaf(spine, end))
            known = self._links[path] = link_out(source), *between, link_in(sink)
        return known

    def leaf(self, name):
        """The leaf of a node."""
        return int(name.removeprefix("node")) // self.half

    def way_of(self, name):
        """The way that a flow takes."""
        source, sink = name.split(">")
        node, peer = source.partition(".")[0], sink.partition(".")[0]
        return self.core.routing.way(Destination(node, peer, sink.partition(".")[2]))

    def rates(self):
        """What each flow gets now, bits/s."""
        if not self.flows:
            return {}
        ways = [self.links(path_name(name.partition(".")[0], self.way_of(name))) for name in self.flows]
        numbers = {link: number for number, link in enumerate(sorted({link for way in ways for link in way}))}
        links = np.full((len(ways), 4), -1)
        for place, way in enumerate(ways):
            links[place, : len(way)] = [numbers[link] for link in way]
        capacity = np.array([self.capacity.get(link, LINE) for link in numbers])
        rates = fair_shares(links, capacity, np.array([*self.flows.values()]))
        return dict(zip(self.flows, rates.tolist(), strict=True)) | self.unfair

    def hear(self):
        """Nodes report their paths and, less often, their flows."""
        super().hear()
        if self.now_ns // STEP % _EVERY == 0:
            rates = self.rates()
            for name in self.names:
                if name not in self.muted:
                    self.act(self.core.observe(self.flows_of(name, rates), self.now_ns))

    def flows_of(self, name, rates):
        """What a node says of its flows."""
        own = [each for each in rates if each.startswith(f"{name}.")]
        rows = np.zeros(len(own), FlowRow)
        rows["flow"], rows["connections"] = range(len(own)), 1
        rows["acked_bytes"] = [rates[each] / 8 * _EVERY * STEP / 1e9 for each in own]
        is_short = [rates[each] < self.flows[each] * 0.99 or self.flows[each] >= LINE for each in own]
        rows["busy_ns"] = np.where(is_short, _EVERY * STEP, _EVERY * STEP // 10)
        return FlowBatch.of(
            rows, node=name, at_ns=self.now_ns + self.ahead.get(name, 0), interval_ns=_EVERY * STEP, flows=tuple(own)
        )

    def contention(self, link, flows, state="fabric-contention", number=1):
        """The detector's event about a link."""
        fault = f"{link}/contention-{number}"
        return Event(
            id=f"{fault}/{state}", kind="contention", who=link, state=state, at_ns=self.now_ns,
            since_ns=self.now_ns, fault=fault, related={"links": (link,), "flows": tuple(flows)},
        )  # fmt: skip

    def inferred(self, flows, free, number=1):
        """The detector's event about these flows where routers are silent.

        Parameters:
            free: entropies of which it says that they are not late.
        """
        ways = {name: (name.partition(".")[0], self.way_of(name)) for name in flows}
        paths = sorted(path_name(node, way) for node, way in ways.values())
        link = f"inferred:{paths[0]}"
        others = tuple(f"{path.partition('#')[0]}#{entropy}" for entropy in free for path in paths)
        event = self.contention(link, flows, number=number)
        return msgspec.structs.replace(event, related={**event.related, "paths": tuple(paths), "free": others})

    def contend(self, link=None, flows=None, state="fabric-contention", number=1):
        """The detector speaks, of the first spine and all flows if not told otherwise; returns the commands given."""
        told = self.contention(link or to_spine(0, 0), self.flows if flows is None else flows, state, number)
        return self.see(told) + self.run(0.1)
