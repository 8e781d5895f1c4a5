"""A leaf-spine fabric in virtual time: who shares which link, who queues where, and what nodes tell of it.

Flows share links max-min fairly, by weights. The queue of a flow stands at the first full link on its way. Delays are
those of the queues that a probe crosses, and some noise.
"""

from __future__ import annotations

import itertools
import random
from dataclasses import dataclass, field

import numpy as np

from foliot_detector.core.pipeline import Pipeline
from foliot_detector.settings import DetectorSettings
from foliot_schemas import (
    DelayBatch,
    DelayRow,
    FlowBatch,
    FlowRow,
    HopBatch,
    HopRow,
    Nic,
    Node,
    NodePaths,
    Placement,
    PortState,
    Witness,
)
from foliot_schemas.names import Path

START_NS = 1_700_000_000_000_000_000
MS = 1_000_000
STEP_NS = 100 * MS
S = 10 * STEP_NS
RAIL = "rail0"
FULL = 0.94
"""Share of a link's rate that is payload."""


def nic(host):
    """The name of a host's only NIC."""
    return f"node{host}.{RAIL}"


@dataclass
class Flow:
    """One flow; what bounds it beside the network is in Mb/s, None: nothing."""

    source: int
    destination: int
    wants: float | None = None
    reads: float | None = None
    buffers: float | None = None
    weight: float = 1.0
    rate: float = 0.0
    full: str = ""
    """The first full link on its way."""
    acked: float = 0.0
    busy: float = 0.0
    told: dict = field(default_factory=dict)
    """What its sender tells in place of the truth."""

    @property
    def name(self):
        """As nodes name it."""
        return f"{nic(self.source)}>{nic(self.destination)}"


class LeafSpine:
    """Hosts below leaves, each leaf with a link to every spine, and a detector that hears of it.

    Parameters:
        mbps: rate of the hosts' links.
        up_mbps: rate of the links between leaves and spines; the same by default.
        silent: addresses that do not answer; "all": none does.
        only: leaves out all detectors but that of contention, which take most of the time and do not matter to it.
    """

    def __init__(
        self, leaves=2, hosts=2, spines=2, entropies=4, *, seed=1, mbps=100.0, up_mbps=None, queue_us=5_000.0,
        noise_us=5.0, sweep_hz=5.0, silent=(), settings=None, only=True, bound_ns=500,
    ):  # fmt: skip
        self.chance = random.Random(seed)
        self._noise = np.random.default_rng(seed)
        self.hosts, self.spines, self.below, self.entropies = leaves * hosts, spines, hosts, entropies
        self.leaves = leaves
        self.queue_us, self.noise_us, self.sweep_hz = queue_us, noise_us, sweep_hz
        self.silent = set(silent)
        self.settings = settings or DetectorSettings()
        self.now_ns = START_NS
        self.flows, self.events, self.away = [], [], {}
        self.mbps = {link: mbps for host in range(self.hosts) for link in (f"{nic(host)}/out", f"{nic(host)}/in")}
        for leaf, spine in itertools.product(range(leaves), range(spines)):
            self.mbps |= dict.fromkeys((self.up(leaf, spine), self.down(spine, leaf)), up_mbps or mbps)
        self.links = list(self.mbps)
        self._place = {link: place for place, link in enumerate(self.links)}
        self.queue = np.zeros(len(self.links) + 1)
        """In us; the last is of no link."""
        self.spine_of = {}
        for one, other in itertools.permutations(range(self.hosts), 2):
            # Each spine is reached by one entropy at least, where there are enough.
            reached = [number % spines for number in range(entropies)]
            self.chance.shuffle(reached)
            self.spine_of |= {Path(nic(one), nic(other), entropy): spine for entropy, spine in enumerate(reached)}
        self.paths = list(self.spine_of)
        self._number = {path: number for number, path in enumerate(self.paths)}
        self.ways = dict.fromkeys(itertools.permutations(range(self.hosts), 2), 0)
        self.base_us = np.array([self.chance.uniform(20, 60) for _ in self.paths])
        self.bound_ns = dict.fromkeys(range(self.hosts), bound_ns)
        self.off_bus, self.lies_us, self.foreign = set(), {}, {}
        """Hosts of which nothing is heard; by host, what it adds to all delays that it tells; by NIC's link, what others
        send there, in Mb/s."""
        self._counted = {}
        self._steps = 0
        self._only = only
        self.start_detector()

    # -- what a test does to it ---------------------------------------------------------------------------------------

    def start_detector(self):
        """A detector that knows nothing yet but the inventory, the ways and the routers."""
        self.detector = Pipeline(self.settings)
        if self._only:
            self.detector._detectors = self.detector._detectors[-1:]
        for host in range(self.hosts):
            self.tell(self.record(host))
        for host in range(self.hosts):
            self.tell(self.hops(host))
            self.tell(self.node_paths(host))

    def run(self, seconds):
        """Lets time pass."""
        for _ in range(round(seconds * 10)):
            self._step()

    def take(self, kind="contention"):
        """The events of a kind since the last call."""
        events, self.events = self.events, []
        return [event for event in events if event.kind == kind]

    def begin(self, source, destination, **what):
        """Begins a flow."""
        self.flows.append(Flow(source, destination, weight=self.chance.uniform(0.7, 1.4), **what))
        return self.flows[-1]

    def end(self, *flows):
        """Ends flows; all of them if none is named."""
        for flow in flows or list(self.flows):
            self.flows.remove(flow)

    def send_by(self, source, destination, spine):
        """Puts a pair's traffic on an entropy that goes by a spine. Returns whether there is one."""
        for entropy in range(self.entropies):
            if self.spine_of[Path(nic(source), nic(destination), entropy)] == spine:
                self.move(source, destination, entropy)
                return True
        return False

    def move(self, source, destination, entropy):
        """Puts a pair's traffic on an entropy."""
        if self.ways[source, destination] != entropy:
            self.ways[source, destination] = entropy
            self.tell(self.node_paths(source))

    def up(self, leaf, spine):
        """The link from a leaf to a spine, by the address of the port that it enters."""
        return f"10.1.{spine}.{leaf}"

    def down(self, spine, leaf):
        """The link from a spine to a leaf."""
        return f"10.2.{leaf}.{spine}"

    def crossed(self, path):
        """The links of a path."""
        source, destination = (int(end.partition(".")[0][4:]) // self.below for end in path[:2])
        spine = self.spine_of[path]
        between = () if source == destination else (self.up(source, spine), self.down(spine, destination))
        return (f"{path.source}/out", *between, f"{path.destination}/in")

    def way(self, flow):
        """The links of a flow."""
        return self.crossed(Path(nic(flow.source), nic(flow.destination), self.ways[flow.source, flow.destination]))

    # -- what nodes tell ----------------------------------------------------------------------------------------------

    def tell(self, message):
        """The detector gets a message."""
        self.events += self.detector.observe(message)

    def record(self, host):
        """A host's record in the inventory."""
        one = Nic(
            name=nic(host), rail=RAIL, device="eth0", address=f"10.0.0.{host}", clock=f"node{host}",
            service_address=f"10.200.0.{host}", path_addresses=("100.64.0.1",) * self.entropies,
            entropies=tuple(range(self.entropies)),
        )  # fmt: skip
        return Node(name=f"node{host}", nics=(one,))

    def node_paths(self, host):
        """The ways of a host's traffic."""
        placements = tuple(
            Placement(peer=f"node{other}", rail=RAIL, via=RAIL, entropy=entropy)
            for (source, other), entropy in self.ways.items()
            if source == host
        )
        return NodePaths(node=f"node{host}", lease_revision=1, placements=placements, **self.away.get(host, {}))

    def hops(self, host):
        """The routers of a host's paths."""
        paths = [path for path in self.paths if path.source == nic(host)]
        rows = []
        for place, path in enumerate(paths):
            between = self.crossed(path)[1:-1]
            routers = ["10.9.0.0", *between]
            rows += [
                (place, hop + 1, int.from_bytes(map(int, address.split("."))))
                for hop, address in enumerate(routers)
                if address not in self.silent and "all" not in self.silent
            ]
        return HopBatch.of(np.array(rows, HopRow), node=f"node{host}", at_ns=self.now_ns, paths=tuple(map(str, paths)))

    def delays(self, host, at_ns):
        """What a host heard in the last step."""
        places, crossed = self._heard_by(host)
        fast = np.isin(places, [self._number[path] for path in self._ways_to(host)])
        sparse = self._noise.random(len(places)) < self.sweep_hz / 10
        received = np.where(fast, 2 + (self._noise.random(len(places)) < 0.5), sparse).astype(np.int64)
        shape = (len(places), 3)
        queued = self.queue[crossed].sum(axis=1)[:, None] * self._noise.uniform(0.8, 1.2, shape)
        delay = self.base_us[places][:, None] + queued + self._noise.exponential(self.noise_us, shape)
        delay += self.lies_us.get(host, 0.0)
        delay[np.arange(3)[None, :] >= received[:, None]] = np.nan
        delay_ns = np.nan_to_num(np.sort(delay * 1e3, axis=1))
        rows = np.zeros(len(places), DelayRow)
        rows["path"], rows["witness"] = np.arange(len(places)), Witness.DESTINATION
        rows["sent"] = rows["received"] = received
        some = received > 0
        rank, last = np.arange(len(places)), np.maximum(received - 1, 0)
        rows["least_ns"], rows["median_ns"], rows["p99_ns"] = (
            delay_ns[:, 0],
            delay_ns[rank, last // 2],
            delay_ns[rank, last],
        )
        rows["last_ns"] = np.where(some, at_ns, 0)
        return DelayBatch.of(
            rows, node=f"node{host}", at_ns=at_ns, interval_ns=STEP_NS, every_ns=STEP_NS,
            bound_ns=self.bound_ns[host], paths=self._names[host],
        )  # fmt: skip

    def flow_batch(self, host, at_ns):
        """What a host's kernel counted since its last word of flows; None: nothing moved."""
        own = [flow for flow in self.flows if flow.source == host and flow.acked]
        rows = np.zeros(len(own), FlowRow)
        for place, flow in enumerate(own):
            interval_ns = 5 * STEP_NS
            busy_ns = round(min(flow.busy, 1.0) * interval_ns)
            told = {
                "connections": 1, "acked_bytes": round(flow.acked / 8), "busy_ns": busy_ns,
                "receiver_limited_ns": round(0.9 * busy_ns) if self._is_held(flow, flow.reads) else 0,
                "buffer_limited_ns": round(0.9 * busy_ns) if self._is_held(flow, flow.buffers) else 0,
                "rtt_ns": round(1e3 * (200 + sum(self.queue[self._place[link]] for link in self.way(flow)))),
                **flow.told,
            }  # fmt: skip
            flow.acked = 0.0
            rows[place]["flow"] = place
            for name, value in told.items():
                rows[place][name] = value
        if not own:
            return None
        return FlowBatch.of(
            rows, node=f"node{host}", at_ns=at_ns, interval_ns=5 * STEP_NS, flows=tuple(flow.name for flow in own)
        )

    def port(self, host, at_ns):
        """The counters of a host's port."""
        sent, received = self._counted.get(host, (0, 0))
        return PortState(
            node=f"node{host}", nic=nic(host), at_ns=at_ns, carrier=True, admin_up=True, carrier_down_count=0,
            carrier_up_count=1, fault="boot", counters={"tx_bytes": int(sent), "rx_bytes": int(received)},
        )  # fmt: skip

    # -- how it works -------------------------------------------------------------------------------------------------

    def _is_held(self, flow, limit):
        return limit is not None and flow.rate > 0.9 * limit * 1e6

    def _ways_to(self, host):
        """The paths in use that end at a host."""
        return [Path(nic(one), nic(other), entropy) for (one, other), entropy in self.ways.items() if other == host]

    def _heard_by(self, host):
        if not hasattr(self, "_heard"):
            self._names, self._heard = {}, {}
            for each in range(self.hosts):
                places = np.array([place for place, path in enumerate(self.paths) if path.destination == nic(each)])
                self._names[each] = tuple(str(self.paths[place]) for place in places)
                nowhere = len(self.links)
                crossed = np.full((len(places), 4), nowhere)
                for row, place in enumerate(places):
                    links = [self._place[link] for link in self.crossed(self.paths[place])]
                    crossed[row, : len(links)] = links
                self._heard[each] = places, crossed
        return self._heard[host]

    def _step(self):
        self._share()
        self._steps += 1
        self.now_ns += STEP_NS
        for host in range(self.hosts):
            self._heard_by(host)
            if host in self.off_bus:
                continue
            at_ns = self.now_ns + host * STEP_NS // self.hosts // 2
            self.tell(self.delays(host, at_ns))
            if (self._steps + host) % 5 == 0:
                batch = self.flow_batch(host, at_ns)
                if batch is not None:
                    self.tell(batch)
            if (self._steps + host) % 10 == 0:
                self.tell(self.port(host, at_ns))

    def _share(self):
        """Gives each flow its rate in this step, and each link its queue."""
        allowed = allocate(
            [(self.way(flow), min(filter(None, (flow.wants, flow.reads, flow.buffers)), default=1e9), flow.weight)
             for flow in self.flows],
            {link: FULL * mbps - self.foreign.get(link, 0.0) for link, mbps in self.mbps.items()},
        )  # fmt: skip
        target = np.zeros(len(self.queue))
        for flow, (rate, full) in zip(self.flows, allowed, strict=True):
            flow.full = full
            flow.rate += (rate * 1e6 * self.chance.uniform(0.96, 1.04) - flow.rate) * 0.4
            flow.acked += flow.rate * 0.1
            # What an application sends in small pieces is always on its way where there is a queue.
            waits = any(self.queue[self._place[link]] > 500 for link in self.way(flow))
            flow.busy = 1.0 if full or flow.reads or flow.buffers or waits else 0.3
            if full:
                target[self._place[full]] = self.queue_us * self.chance.uniform(0.6, 1.0)
            for host, side in ((flow.source, 0), (flow.destination, 1)):
                counted = list(self._counted.get(host, (0, 0)))
                counted[side] += flow.rate * 0.1 / 8 / FULL
                self._counted[host] = counted
        for link, mbps in self.foreign.items():
            host, side = int(link.partition(".")[0][4:]), link.endswith("/in")
            counted = list(self._counted.get(host, (0, 0)))
            counted[side] += mbps * 1e6 * 0.1 / 8
            self._counted[host] = counted
        self.queue += (target - self.queue) * 0.5


def allocate(flows, mbps):
    """Max-min fair rates by weights: per flow its rate, and the first full link on its way ('': none bounds it).

    Parameters:
        flows: (links, bound, weight) each.
        mbps: by link.
    """
    rate, left = [0.0] * len(flows), dict(mbps)
    growing = set(range(len(flows)))
    while growing:
        weights = {}
        for each in growing:
            for link in flows[each][0]:
                weights[link] = weights.get(link, 0.0) + flows[each][2]
        by_links = [left[link] / weight for link, weight in weights.items()]
        grow = min(*by_links, *((flows[each][1] - rate[each]) / flows[each][2] for each in growing))
        for each in growing:
            rate[each] += grow * flows[each][2]
            for link in flows[each][0]:
                left[link] -= grow * flows[each][2]
        full = {link for link in weights if left[link] <= 1e-6 * mbps[link]}
        growing -= {
            each for each in growing if rate[each] >= flows[each][1] - 1e-9 or not full.isdisjoint(flows[each][0])
        }
    return [
        (
            rate[each],
            next((link for link in links if left[link] <= 1e-6 * mbps[link] and rate[each] < bound - 1e-6), ""),
        )
        for each, (links, bound, _) in enumerate(flows)
    ]
