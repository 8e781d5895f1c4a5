"""A fleet in virtual time: nodes that probe each other, links that fail, processes that stall, wrong clocks."""

from __future__ import annotations

import functools
import heapq
import itertools
import random

import numpy as np
import pytest
from host_kernel import Kernel
from prepared import prepared

from foliot_detector.core.pipeline import Pipeline
from foliot_detector.settings import DetectorSettings
from foliot_schemas import DelayBatch, DelayRow, Nic, Node, PortState, Witness
from foliot_schemas.names import Path, nic_name, node_of

START_NS = 1_700_000_000_000_000_000
MS = 1_000_000
FLIGHT_NS = MS // 10
SILENCE_INTERVALS = 3
FULL_EVERY, FULL_BYTES = 4, 1_450
IDLE_NS = 30_000 * MS


def node_record(name, rails=2, entropies=2):
    """A node's inventory record."""
    nics = tuple(
        Nic(
            name=nic_name(name, f"rail{rail}"),
            rail=f"rail{rail}",
            device=f"eth{rail}",
            address="10.0.0.1",
            clock=name,
            service_address="10.200.0.1",
            path_addresses=("100.64.0.1",) * entropies,
            entropies=tuple(range(entropies)),
        )
        for rail in range(rails)
    )
    return Node(name=name, nics=nics)


def port(nic, at_ns, downs=0, ups=1, *, carrier=True, admin_up=True, boot="boot1"):
    """The state of a port, with the counters of the kernel."""
    return PortState(
        node=node_of(nic), nic=nic, at_ns=at_ns, carrier=carrier, admin_up=admin_up,
        carrier_down_count=downs, carrier_up_count=ups, fault=boot,
    )  # fmt: skip


def delays(node, at_ns, rows, bound_ns=100, *, interval_ms=100, every_ms=100):
    """A batch from tuples, one a row.

    They are (path, witness, sent, received, last_ns[, least_ns, p99_ns[, sequence[, full_sent, full_received,
    full_bytes[, unsent]]]]).
    """
    filled = []
    for place, (_, witness, sent, received, last_ns, *more) in enumerate(rows):
        least_ns, p99_ns, *counts = more or (FLIGHT_NS, FLIGHT_NS)
        counts += [0] * (5 - len(counts))
        filled.append((place, witness, sent, received, least_ns, least_ns, p99_ns, last_ns, *counts))
    paths = tuple(str(row[0]) for row in rows)
    return DelayBatch.of(
        np.array(filled, DelayRow), node=node, at_ns=at_ns, interval_ns=interval_ms * MS, bound_ns=bound_ns,
        paths=paths,
        every_ns=every_ms * MS,
    )  # fmt: skip


class SimulatedFleet:
    """Nodes, and a detector that hears them over a bus.

    Paths of entropy 0 are in use: a probe each `probe_ms`; others get 5 a second.

    By `stamp_late_ns` a sender dates its probes late. Not `numbered`, they are of before reports named probes by their
    numbers. Nodes report every `report_ms`, and name `names_ms` as their interval. The detector is told of time that
    passes every `tick_ms`. `shaky_ns` is how far two words of
    the same moment differ, as by a clock that is set between them.

    `events` has what the detector said, `inputs` what it was told, with the time that passed before.
    """

    def __init__(
        self, nodes=3, rails=2, entropies=2, settings=None, *, ticks=True, offsets_ms=(), probe_ms=50, numbered=True,
        report_ms=100, names_ms=None, tick_ms=10,
    ):  # fmt: skip
        self.now_ns = START_NS
        self.names = [f"node{number}" for number in range(nodes)]
        self.rails = [f"rail{number}" for number in range(rails)]
        self.settings = settings or DetectorSettings()
        self.detector = Pipeline(self.settings)
        self.ticks, self._tick_ns = ticks, tick_ms * MS
        self.events, self.inputs = [], []
        self.cut, self.stopped, self.off_bus, self.mute = set(), set(), set(), set()
        self.tells_at_once, self.numbered, self.report_ms = True, numbered, report_ms
        self.tells_sent = False
        """Whether receivers tell that a path's sender went on sending on its other paths, and what else they heard."""
        self.names_ms = report_ms if names_ms is None else names_ms
        self.downs, self.carrier, self.admin_up = {}, {}, {}
        self.offset_ns = dict.fromkeys(self.names, 0)
        self.bound_ns = dict.fromkeys(self.names, -1 if offsets_ms else 100)
        self.offset_ns |= {name: offset * MS for name, offset in zip(self.names, offsets_ms, strict=False)}
        self.bus_delay_ns = dict.fromkeys(self.names, MS // 5)
        self.lose, self.too_small, self.pads = {}, set(), True
        self.drop_unsent, self.tells_unsent = {}, True
        """Per path, which probes its own host drops (by their number); and whether hosts tell of it."""
        self.idle, self._says_idle, self._life = set(), set(), {}
        """Paths for which another one stands; those of which receivers know it; and how often each has been woken."""
        self.probe_ns, self.shaky_ns, self.stamp_late_ns = probe_ms * MS, 0, 0
        self.sweep_ns = 200 * MS
        self.backlog = None
        self.held, self._on_hold = set(), []
        self._chance = random.Random(1)
        self.delay_ns = {}
        self._told_ns = START_NS
        self._queue, self._count, self._until_ns = [], 0, START_NS
        self.paths = [
            Path(nic_name(one, rail), nic_name(other, rail), entropy)
            for one, other in itertools.permutations(self.names, 2)
            for rail in self.rails
            for entropy in range(entropies)
        ]
        # What never changes, of each path and node, is looked up and not made anew with each probe and report.
        self._ends = {path: (node_of(path.source), node_of(path.destination)) for path in self.paths}
        self._reported = {
            name: [(path, end) for path in self.paths for end in (0, 1) if self._ends[path][end] == name]
            for name in self.names
        }
        self._reported_names = {name: tuple(str(path) for path, _ in rows) for name, rows in self._reported.items()}
        self._judged = set()
        self.sent = dict.fromkeys(self.paths, 0)
        self.last_sent = dict.fromkeys(self.paths, 0)
        self.left, self.unsent, self._unsent_before = (dict.fromkeys(self.paths, 0) for _ in range(3))
        """Per path, the last probe that left its host, and those that did not: before it, and after."""
        self.forget(*self.names)
        for name in self.names:
            self.tell(node_record(name, rails, entropies))
        for nic in (nic_name(name, rail) for name in self.names for rail in self.rails):
            self.downs[nic], self.carrier[nic], self.admin_up[nic] = 0, True, True
        for number, path in enumerate(self.paths):
            self._at(START_NS + (number * 7 % 50) * MS, self._send, path, 0)
        for number, name in enumerate(self.names):
            self._at(START_NS + (20 + number * 13 % 100) * MS, self._report, name)
            self._at(START_NS + (5 + number * 130) * MS, self._report_ports, name)
        if ticks:
            self._at(START_NS + 10 * MS, self._tick)

    # -- what a test does to it ---------------------------------------------------------------------------------------

    def run(self, ms):
        """Lets time pass."""
        self._until_ns = self.now_ns + round(ms * MS)
        while self._queue and self._queue[0][0] <= self._until_ns:
            self.now_ns, _, work, arguments = heapq.heappop(self._queue)
            work(*arguments)
        self.now_ns = self._until_ns

    def run_until_said(self, ms):
        """Lets time pass until a detector has said something, and two seconds more; no longer than this in all."""
        before, until_ns = len(self.events), self.now_ns + round(ms * MS)
        while len(self.events) == before and self.now_ns < until_ns:
            self.run(min(1_000, (until_ns - self.now_ns) / MS))
        self.run(min(2_000, (until_ns - self.now_ns) / MS))

    def take(self):
        """The events since the last call."""
        events, self.events = self.events, []
        return events

    def set_carrier(self, nic, carrier, told_after_ms=0):
        """Pulls the cable or plugs it in; the node tells at once, or later."""
        if self.carrier[nic] and not carrier:
            self.downs[nic] += 1
        self.carrier[nic] = carrier
        self._at(self.now_ns + told_after_ms * MS, self._say_port, nic)

    def set_admin(self, nic, up):
        """What an administrator does."""
        if not up and self.carrier[nic]:
            self.downs[nic] += 1
        self.admin_up[nic] = self.carrier[nic] = up
        self._say_port(nic)

    def start_detector(self):
        """Another detector takes over, which knows the inventory and nothing else."""
        self.detector = Pipeline(self.settings)
        for name in self.names:
            self.tell(node_record(name, len(self.rails), 1 + max(path.entropy for path in self.paths)))

    def restart(self, name):
        """A probe that was stopped starts anew, and remembers nothing."""
        self.stopped.discard(name)
        self.forget(name)

    def let_idle(self, *paths):
        """Senders have another path stand for these, and say so with each of their few probes."""
        self.idle.update(paths)
        for path in paths:
            self._wake(path)

    def probe_again(self, *paths):
        """Senders probe these as others."""
        self.idle.difference_update(paths)
        for path in paths:
            self._wake(path)

    def _wake(self, path):
        self._life[path] = self._life.get(path, 0) + 1
        self._at(self.now_ns, self._send, path, 0, self._life[path])

    def forget(self, *names):
        """Receivers' memory of paths."""
        for path in self.paths:
            if node_of(path.destination) in names:
                self._says_idle.discard(path)
                for memory in ("heard", "proven", "received", "silent", "sequence", "full_proven", "full_received"):
                    self.__dict__.setdefault(memory, {})[path] = 0

    def release(self):
        """What was held up arrives."""
        on_hold, self._on_hold = self._on_hold, []
        self.held.clear()
        for path, sequence in on_hold:
            self._at(self.now_ns + FLIGHT_NS, self._arrive, path, sequence)

    def halt_detector(self, ms, *, in_turn=False):
        """What it is told meanwhile waits, and is read at once when it goes on.

        Ports and delays are read `in_turn`, as two subscriptions are.
        """
        self.backlog = []
        self.run(ms)
        backlog, self.backlog = self.backlog, None
        if in_turn:
            kinds = [[each for each in backlog if isinstance(each, kind)] for kind in (PortState, DelayBatch)]
            backlog = [each for pair in itertools.zip_longest(*kinds) for each in pair if each is not None]
        for message in backlog:
            self.tell(message)

    # -- how it works -------------------------------------------------------------------------------------------------

    def tell(self, message):
        """The detector gets a message now."""
        if self.backlog is not None:
            self.backlog.append(message)
            return
        elapsed_ns, self._told_ns = self.now_ns - self._told_ns, self.now_ns
        self.inputs.append((elapsed_ns if self.ticks else 0, message))
        self.events += self.detector.observe(message, self.inputs[-1][0])

    def _at(self, at_ns, work, *arguments):
        self._count += 1
        heapq.heappush(self._queue, (at_ns, self._count, work, arguments))

    def _tick(self):
        self._at(self.now_ns + self._tick_ns, self._tick)
        if self.backlog is not None:
            return
        elapsed_ns, self._told_ns = self.now_ns - self._told_ns, self.now_ns
        self.inputs.append((elapsed_ns, None))
        self.events += self.detector.tick(elapsed_ns)

    def _says(self, node, at_ns):
        if not at_ns:
            return 0
        shaky_ns = self._chance.randint(-self.shaky_ns, self.shaky_ns) if self.shaky_ns else 0
        return at_ns + self.offset_ns[node] + shaky_ns

    def _publish(self, node, message):
        if node not in self.off_bus and node not in self.stopped:
            self._at(self.now_ns + self.bus_delay_ns[node], self.tell, message)

    def _works(self, nic):
        return self.carrier[nic] and self.admin_up[nic]

    def _send(self, path, number, life=0):
        if life != self._life.get(path, 0):
            return
        interval_ns = IDLE_NS if path in self.idle else self.probe_ns if path.entropy == 0 else self.sweep_ns
        self._at(self.now_ns + interval_ns, self._send, path, number + 1, life)
        if self._ends[path][0] in self.stopped or path in self.mute:
            return
        self.sent[path] = sequence = self.sent[path] + 1
        if path in self.drop_unsent and self.drop_unsent[path](number):
            self._unsent_before[path] += 1
            return
        self.left[path], self.last_sent[path] = sequence, self.now_ns
        self.unsent[path] += self._unsent_before[path]
        self._unsent_before[path] = 0
        lost = path in self.lose and self.lose[path](number)
        full = self.pads and sequence % FULL_EVERY == 0
        lost |= full and path in self.too_small
        if path in self.held:
            self._on_hold.append((path, sequence))
        elif self._works(path.source) and self._works(path.destination) and path not in self.cut and not lost:
            arrives_ns = self.now_ns + self.delay_ns.get(path, FLIGHT_NS)
            if arrives_ns <= self._until_ns and arrives_ns < self._queue[0][0]:  # nothing else comes before
                self.now_ns = arrives_ns
                self._arrive(path, sequence, path in self.idle)
            else:
                self._at(arrives_ns, self._arrive, path, sequence, path in self.idle)

    def _arrive(self, path, sequence, idle=False):
        if self._ends[path][1] in self.stopped:
            return
        (self._says_idle.add if idle else self._says_idle.discard)(path)
        first = not self.heard[path]
        self.heard[path] = self.now_ns
        self.proven[path] += 1 if first else sequence - self.sequence[path]
        before = sequence - 1 if first else self.sequence[path]
        self.full_proven[path] += sequence // FULL_EVERY - before // FULL_EVERY
        self.full_received[path] += sequence % FULL_EVERY == 0
        self.sequence[path] = sequence
        self.received[path] += 1
        if self.silent[path]:
            self.silent[path] = False
            self._at_once(path, Witness.SPEAKS_AGAIN)
        if path.entropy == 0 and path not in self._judged:
            self._judged.add(path)
            self._at(self.now_ns + SILENCE_INTERVALS * self.probe_ns, self._judge, path)

    def _judge(self, path):
        """Three intervals after the last probe that was heard, whichever that is by then."""
        heard_ns = self.heard[path]
        silent_ns = heard_ns + SILENCE_INTERVALS * self.probe_ns
        if heard_ns and silent_ns > self.now_ns:
            self._at(silent_ns, self._judge, path)
            return
        self._judged.discard(path)
        if heard_ns and self._ends[path][1] not in self.stopped:
            self.silent[path] = True
            self._at_once(path, Witness.FELL_SILENT)

    def _at_once(self, path, witness):
        node = node_of(path.destination)
        if not self.tells_at_once:
            return
        is_known = self.tells_sent and witness == Witness.FELL_SILENT and self._ends[path][0] not in self.stopped
        since_ns = self.probe_ns if is_known else 0
        row = (path, witness, 0, 0, self._says(node, self.heard[path]), since_ns, 0, self._number(self.sequence, path))
        self._publish(
            node,
            delays(
                node,
                self._says(node, self.now_ns),
                [row],
                self.bound_ns[node],
                interval_ms=self.report_ms,
                every_ms=self.names_ms,
            ),
        )
        if since_ns:
            self._publish(node, self.report(node))

    def _number(self, numbers, path):
        return numbers[path] if self.numbered else 0

    def _report(self, node):
        self._at(self.now_ns + self.report_ms * MS, self._report, node)
        if node not in self.stopped:
            self._publish(node, self.report(node))

    def report(self, node):
        """What a node reports now; it begins to count anew."""
        rows = []
        for place, (path, end) in enumerate(self._reported[node]):
            if (path in self.idle) if end == 0 else (path in self._says_idle and not self.received[path]):
                continue
            if end == 0:
                sent_ns = self._says(node, self.last_sent[path] and self.last_sent[path] + self.stamp_late_ns)
                number = self._number(self.left, path)
                unsent = self.unsent[path] if self.tells_unsent else 0
                rows.append((place, Witness.SOURCE, 2, 0, 0, 0, 0, sent_ns, number, 0, 0, 0, unsent))
                self.unsent[path] = 0
            else:
                delay_ns = self.delay_ns.get(path, FLIGHT_NS) if self.received[path] else 0
                heard_ns = self._says(node, self.heard[path])
                counts, number = (self.proven[path], self.received[path]), self._number(self.sequence, path)
                full = (self.full_proven[path], self.full_received[path], FULL_BYTES) if self.pads else (0, 0, 0)
                delay = (delay_ns, delay_ns, delay_ns)
                rows.append((place, Witness.DESTINATION, *counts, *delay, heard_ns, number, *full, 0))
                self.proven[path] = self.received[path] = self.full_proven[path] = self.full_received[path] = 0
        return DelayBatch.of(
            np.array(rows, DelayRow), node=node, at_ns=self._says(node, self.now_ns), interval_ns=self.report_ms * MS,
            bound_ns=self.bound_ns[node], paths=self._reported_names[node], every_ns=self.names_ms * MS,
        )  # fmt: skip

    def _report_ports(self, node):
        self._at(self.now_ns + 1_000 * MS, self._report_ports, node)
        for rail in self.rails:
            self._say_port(nic_name(node, rail))

    def _say_port(self, nic):
        node = node_of(nic)
        self._publish(node, self.port_state(nic))

    def port_state(self, nic):
        """What the node would say of a NIC's port now."""
        return port(
            nic, self._says(node_of(nic), self.now_ns), self.downs[nic], self.downs[nic] + self._works(nic),
            carrier=self._works(nic), admin_up=self.admin_up[nic],
        )  # fmt: skip


@pytest.fixture
def make_fleet():
    """Makes a simulated fleet that has been running for three seconds."""
    return functools.partial(prepared, _running)


def _running(**options):
    fleet = SimulatedFleet(**options)
    fleet.run(3_000)
    return fleet


@pytest.fixture
def make_port():
    """Makes a `PortState`."""
    return port


@pytest.fixture
def make_delays():
    """Makes a `DelayBatch`."""
    return delays


@pytest.fixture
def make_node():
    """Makes a node's inventory record."""
    return node_record


@pytest.fixture
def make_kernel():
    """Makes a host whose kernel tells of one port, under settings."""
    return lambda **settings: Kernel(node_record, port, DetectorSettings(**settings))


@pytest.fixture(params=["cisco", "hpe-high", "nvsentinel", "gpud"])
def kernel(request, make_kernel):
    """One under a rule that damps, the two most nervous ones that count, and one that counts outages."""
    return make_kernel(flap_rule=request.param)
