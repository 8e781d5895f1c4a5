"""A leaf-spine fabric in virtual time: who shares which link, who queues where, and what nodes tell of it.

Flows share links max-min fairly, by weights. The queue of a flow stands at the first full link on its way. Delays are
those of the queues that a probe crosses, and some noise. As Linux stamps a probe after the queue of its own NIC, that
queue is in no delay. It is in the round trips of flows, whose acknowledgements wait at the other end's NIC.
"""

from __future__ import annotations

import functools
import itertools
import random
from dataclasses import dataclass, field

import numpy as np
from prepared import prepared

from foliot_detector.core.pipeline import Pipeline
from foliot_detector.core.registry import DETECTORS
from foliot_detector.settings import DetectorSettings
from foliot_schemas import (
    DelayBatch,
    DelayCount,
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
from foliot_schemas.delay_buckets import bucket_of
from foliot_schemas.names import Path

START_NS = 1_700_000_000_000_000_000
MS = 1_000_000
STEP_NS = 100 * MS
S = 10 * STEP_NS
RAIL = "rail0"
FULL = 0.94
"""Share of a link's rate that is payload."""
HOSTS_US = 100
"""What the hosts at both ends add to a round trip."""
LITTLE_MBPS = 0.05
"""An application that wants less sends nothing whose round trip would count."""


@functools.cache
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
    by: int | None = None
    """The spine that it really goes by; None: that of the path which its pair is said to take."""
    acks_by: int | None = None
    """The same of its acknowledgements."""
    between_nics: bool = False
    """Whether it has the NICs' own addresses."""
    late_us: float = 0.0
    """What hosts add to its round trips: a queue of its own, or acknowledgements that wait."""
    late_back_us: float = 0.0
    """What they add after an acknowledgement has left."""
    in_band_off_us: float | None = None
    """What its delays one way are told wrong by; None: they are not told."""
    rtt_us: float = 0.0
    """Its round trip when it last sent."""
    in_band_us: float = 0.0
    """Its delay one way then, until the acknowledgement leaves."""

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
        only: leaves out all detectors but this one; the others take most of the time and do not matter to it. Empty:
            leaves out none.
        stamps_first: probes are stamped before the queue of their own NIC, as where that is in the hardware.
    """

    def __init__(
        self, leaves=2, hosts=2, spines=2, entropies=4, *, seed=1, mbps=100.0, up_mbps=None, queue_us=5_000.0,
        noise_us=5.0, sweep_hz=5.0, silent=(), settings=None, only="contention", bound_ns=500,
        stamps_first=False,
    ):  # fmt: skip
        self.chance = random.Random(seed)
        self._noise, self._rtt_noise = np.random.default_rng(seed), np.random.default_rng(seed + 1)
        self._stamps_first = stamps_first
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
        self.spread = 0.2
        """By what share of a queue a probe may find it shorter or longer."""
        self.fast_probes, self.late_us, self.counts_delays = (2, 3), {}, only != "contention"
        """Least and most probes of a step on a path in use; by host, how much later the first probes are that it hears in
        a step; and whether nodes count delays, which contention does not read."""
        self.report_every = 1 if "all" in self.silent else 2
        """How many steps a report is of. Hosts report at different times. Where no router answers, links are told by
        how delays vary together, for which a second needs as many reports as nodes make."""
        self.idle = set()
        """Numbers of paths for which others stand: nothing is heard of them, but for those that traffic takes."""
        self.queues_us = {}
        """By link, the length of its queue where it is another one."""
        self.off_bus, self.lies_us, self.foreign = set(), {}, {}
        """Hosts of which nothing is heard; by host, what it adds to all delays that it tells; by NIC's link, what others
        send there, in Mb/s."""
        self._unsent = np.zeros(0, np.intp)
        """Numbers of the paths from hosts that are gone."""
        self._counted, self._fast = {}, None
        self._crossed, self._lengths_us = {}, self.queue.tolist()
        """The links of paths by spines, once they were asked for; and what `queue` has, as a list is read sooner."""
        self._measured = {}
        """By host, the delays of each step since its last report: of each path and probe, in us; inf: there was none."""
        self._steps = 0
        self._only = only
        self._learn_who_hears()
        self.start_detector()

    # -- what a test does to it ---------------------------------------------------------------------------------------

    def start_detector(self):
        """A detector that knows nothing yet but the inventory, the ways and the routers."""
        self.detector = Pipeline(self.settings)
        if self._only:
            self.detector._detectors = (self.detector._detectors[[*DETECTORS].index(self._only)],)
        for host in range(self.hosts):
            self.tell(self.record(host))
        for host in range(self.hosts):
            self.tell(self.hops(host))
            self.tell(self.node_paths(host))

    def become(self, other):
        """Takes the state of another fabric, such as a copy of this one that was prepared."""
        vars(self).update(vars(other))

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

    def lose_power(self, host):
        """A host is gone, with its probe and its flows."""
        self.off_bus.add(host)
        self.end(*(flow for flow in self.flows if flow.source == host))
        gone = [number for number, path in enumerate(self.paths) if path.source == nic(host)]
        self._unsent = np.append(self._unsent, np.array(gone, np.intp))

    def let_idle(self):
        """Of the paths between two hosts that cross the same links, one stands for the others: the first."""
        seen = set()
        for number, path in enumerate(self.paths):
            links = self.crossed(path)
            if links in seen:
                self.idle.add(number)
            seen.add(links)

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

    def crossed(self, path, spine=None):
        """The links of a path, or those that it would have by another spine."""
        known = self._crossed.get((path, spine))
        if known is None:
            source, destination = (int(end.partition(".")[0][4:]) // self.below for end in path[:2])
            by = self.spine_of[path] if spine is None else spine
            between = () if source == destination else (self.up(source, by), self.down(by, destination))
            known = self._crossed[path, spine] = (f"{path.source}/out", *between, f"{path.destination}/in")
        return known

    def way(self, flow):
        """The links of a flow."""
        return self.crossed(self.said(flow.source, flow.destination), flow.by)

    def way_back(self, flow):
        """The links of its acknowledgements."""
        return self.crossed(self.said(flow.destination, flow.source), flow.acks_by)

    def said(self, source, destination):
        """The path that a pair's traffic is said to take."""
        return Path(nic(source), nic(destination), self.ways[source, destination])

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
            routers = [f"10.9.{host // self.below}.0", *between]
            rows += [
                (place, hop + 1, int.from_bytes(map(int, address.split("."))))
                for hop, address in enumerate(routers)
                if address not in self.silent and "all" not in self.silent
            ]
        return HopBatch.of(np.array(rows, HopRow), node=f"node{host}", at_ns=self.now_ns, paths=tuple(map(str, paths)))

    def _measure(self):
        """The delays of what all hosts heard in the last step, as in `_measured`, one host's after another's."""
        places, crossed = self._all_heard
        fast = self._in_use()
        sparse = self._noise.random(len(places)) < self.sweep_hz / 10
        if self.idle:
            sparse &= ~np.isin(places, list(self.idle))
        least, most = self.fast_probes
        of_fast = least + (most - least) * (self._noise.random(len(places)) < 0.5)
        received = np.where(fast, of_fast, sparse).astype(np.int64)
        if len(self._unsent):
            received[np.isin(places, self._unsent)] = 0
        shape = (len(places), most)
        queued = self.queue[crossed].sum(axis=1)[:, None] * self._noise.uniform(1 - self.spread, 1 + self.spread, shape)
        delay = self.base_us[places][:, None] + queued + self._noise.exponential(self.noise_us, shape)
        for host, lies_us in self.lies_us.items():
            delay[self._rows_of[host]] += lies_us
        for host, late_us in self.late_us.items():
            delay[self._rows_of[host], : len(late_us)] += late_us
        missing = np.arange(most)[None, :] >= received[:, None]
        delay[missing] = np.inf
        return delay

    def delays(self, host, at_ns):
        """What a host heard since its last report."""
        places = self._all_heard[0][self._rows_of[host]]
        delay_ns = np.sort(np.concatenate(self._measured.pop(host), axis=1) * 1e3, axis=1)
        missing = np.isinf(delay_ns)
        received = (~missing).sum(axis=1)
        delay_ns[missing] = 0.0
        counts = None
        if self.counts_delays:
            counts = np.zeros(int(received.sum()), DelayCount)
            counts["path"], counts["probes"] = np.repeat(np.arange(len(places)), received), 1
            counts["bucket"] = bucket_of(delay_ns[~missing].astype(np.int64))
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
        interval_ns = STEP_NS * self.report_every
        if self.idle:
            rows = rows[some | ~np.isin(places, list(self.idle))]
        return DelayBatch.of(
            rows, counts, node=f"node{host}", at_ns=at_ns, interval_ns=interval_ns,
            every_ns=interval_ns, bound_ns=self.bound_ns[host], paths=self._names[host],
        )  # fmt: skip

    def flow_batch(self, host, at_ns):
        """What a host's kernel counted since its last word of flows; None: nothing moved."""
        own = [flow for flow in self.flows if flow.source == host and flow.acked]
        if not own:
            return None
        by_service, by_nics = ([flow for flow in own if flow.between_nics == between] for between in (False, True))
        return FlowBatch.of(
            self._flow_rows(by_service), self._flow_rows(by_nics), node=f"node{host}", at_ns=at_ns,
            interval_ns=5 * STEP_NS, flows=tuple(flow.name for flow in by_service),
            nic_flows=tuple(flow.name for flow in by_nics),
        )  # fmt: skip

    def _flow_rows(self, own):
        rows = np.zeros(len(own), FlowRow)
        for place, flow in enumerate(own):
            interval_ns = 5 * STEP_NS
            busy_ns = round(min(flow.busy, 1.0) * interval_ns)
            told = {
                "connections": 1, "acked_bytes": round(flow.acked / 8), "busy_ns": busy_ns,
                "busiest_acked_bytes": round(flow.acked / 8),
                "receiver_limited_ns": round(0.9 * busy_ns) if self._is_held(flow, flow.reads) else 0,
                "buffer_limited_ns": round(0.9 * busy_ns) if self._is_held(flow, flow.buffers) else 0,
                "rtt_ns": round(1e3 * flow.rtt_us),
                "in_band_ns": 0 if flow.in_band_off_us is None else round(1e3 * (flow.in_band_us + flow.in_band_off_us)),
                **flow.told,
            }  # fmt: skip
            flow.acked = 0.0
            rows[place]["flow"] = place
            for name, value in told.items():
                rows[place][name] = value
        return rows

    def port(self, host, at_ns):
        """The counters of a host's port."""
        sent, received = self._counted.get(host, (0, 0))
        return PortState(
            node=f"node{host}", nic=nic(host), at_ns=at_ns, carrier=True, admin_up=True, carrier_down_count=0,
            carrier_up_count=1, fault="boot", counters={"tx_bytes": int(sent), "rx_bytes": int(received)},
        )  # fmt: skip

    # -- how it works -------------------------------------------------------------------------------------------------

    def _rtt_us(self, flow):
        """A round trip as the sender's kernel sees it: it begins before the queue of the NIC."""
        rtt_us = HOSTS_US + flow.late_us + flow.late_back_us
        ends = flow.source, flow.destination
        for said, crossed in ((self.said(*ends), self.way(flow)), (self.said(*ends[::-1]), self.way_back(flow))):
            queued = sum(self._lengths_us[self._place[link]] for link in crossed)
            rtt_us += self.base_us[self._number[said]] + queued * self._rtt_noise.uniform(0.8, 1.2)
            rtt_us += self._rtt_noise.exponential(self.noise_us)
        return rtt_us

    def _in_band_us(self, flow):
        """How long its data take, by the stamps of both ends' kernels."""
        queued = sum(self._lengths_us[self._place[link]] for link in self.way(flow))
        return (
            HOSTS_US / 2 + flow.late_us + self.base_us[self._number[self.said(flow.source, flow.destination)]] + queued
        )

    def _is_held(self, flow, limit):
        return limit is not None and flow.rate > 0.9 * limit * 1e6

    def _in_use(self):
        """Marks the paths in use among those that hosts hear, anew where a way has changed."""
        ways = tuple(self.ways.values())
        if self._fast is None or self._fast[0] != ways:
            used = [self._number[self.said(source, destination)] for source, destination in self.ways]
            self._fast = ways, np.isin(self._all_heard[0], used)
        return self._fast[1]

    def _learn_who_hears(self):
        """Which paths each host hears, and which links these cross."""
        self._names, self._rows_of = {}, {}
        heard, crossed = [], []
        for host in range(self.hosts):
            own = [place for place, path in enumerate(self.paths) if path.destination == nic(host)]
            self._names[host] = tuple(str(self.paths[place]) for place in own)
            self._rows_of[host] = slice(len(heard), len(heard) + len(own))
            heard += own
        for place in heard:
            links = self.crossed(self.paths[place])[0 if self._stamps_first else 1 :]
            links = [self._place[link] for link in links]
            crossed.append(links + [len(self.links)] * (4 - len(links)))
        self._all_heard = np.array(heard), np.array(crossed)

    def _step(self):
        self._share()
        self._steps += 1
        self.now_ns += STEP_NS
        if self.report_every > 2:  # hosts say too little to tell the time by
            self.events += self.detector.tick(STEP_NS)
        measured = self._measure()
        for host in range(self.hosts):
            if host in self.off_bus:
                continue
            at_ns = self.now_ns + host * STEP_NS // self.hosts // 2
            self._measured.setdefault(host, []).append(measured[self._rows_of[host]])
            if (self._steps + host) % self.report_every == 0:
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
            waits = any(self._lengths_us[self._place[link]] > 500 for link in self.way(flow))
            flow.busy = 1.0 if full or flow.reads or flow.buffers or waits else 0.3
            if full:
                target[self._place[full]] = self.queues_us.get(full, self.queue_us) * self.chance.uniform(0.6, 1.0)
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
        self._lengths_us = self.queue.tolist()
        for flow in self.flows:
            if flow.wants is None or flow.wants > LITTLE_MBPS:
                flow.rtt_us = self._rtt_us(flow)
                flow.in_band_us = self._in_band_us(flow)


def idle(seconds, **options):
    """A fabric by these options that has been idle for so long."""
    return prepared(_run_idle, seconds=seconds, **options)


def _run_idle(seconds, **options):
    fabric = LeafSpine(**options)
    fabric.run(seconds)
    return fabric


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
