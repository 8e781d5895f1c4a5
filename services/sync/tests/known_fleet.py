"""A fleet whose clocks and paths are known exactly, and the stamps that its probes would take."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from foliot_probe.core.measure.one_way_delay import References
from foliot_probe.core.measure.slope_range import expected
from foliot_schemas.observation import StampBatch, StampRow, Stream

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from foliot_schemas.clock import ClockState
    from foliot_sync.core.synchroniser import Synchroniser


SECOND = 1_000_000_000
BURST_NS = 50e6
HOPS = 4
GRID_S = 0.02
"""Steps in which the clocks' rates wander."""


class Part(NamedTuple):
    """One direction of a stream of a batch."""

    stream: int
    """Its number in the batch."""
    direction: int
    source: int
    sink: int
    number: int
    """The stream's among those of its pair."""


@dataclasses.dataclass(kw_only=True)
class Fleet:
    """Full mesh of nodes; every pair probes over `streams` paths, each with its own floor and its own queues."""

    seed: int
    nodes: int = 8
    streams: int = 8
    rates: tuple[float, ...] = (20.0, 5.0, 5.0, 5.0)
    """Probes a second and direction of a pair's streams, taken in turn: one in use, the others swept."""
    load: float = 0.6
    offset_ms: float = 50.0
    drift_ppb: float = 30_000.0
    wander_ppb: float = 20.0
    seconds: float = 90.0
    window_s: float = 2.0
    epoch_ns: int = 1_700_000_000 * SECOND
    """What all hosts believe the time was when the fleet started."""

    def __post_init__(self) -> None:
        """Draw the clocks and the paths."""
        self.random = random = np.random.default_rng(self.seed)
        self.names = [f"node{number}" for number in range(self.nodes)]
        steps = int((self.seconds + 20) / GRID_S)
        self.grid_ns = (np.arange(steps) * GRID_S - 10) * SECOND
        walk = random.normal(0, self.wander_ppb * np.sqrt(GRID_S), (self.nodes, steps)).cumsum(axis=1)
        rates = random.uniform(-self.drift_ppb, self.drift_ppb, (self.nodes, 1)) + walk
        self.gained_ns = rates.cumsum(axis=1) * GRID_S
        self.gained_ns += random.uniform(-self.offset_ms, self.offset_ms, (self.nodes, 1)) * 1e6
        # CLOCK_MONOTONIC_RAW counts from the boot of each host: anything up to months.
        self.boot_ns = [int(value) for value in random.integers(10 * SECOND, 10_000_000 * SECOND, self.nodes)]
        self.phase_s = random.uniform(0, self.window_s, self.nodes)
        self.pairs = [(a, b) for a in range(self.nodes) for b in range(a + 1, self.nodes)]
        self.floor_ns = {pair: random.uniform(5_000, 20_000, self.streams) for pair in self.pairs}
        self.extra_ns: dict[tuple[int, int], float] = {}
        """Constant delay added from one node to another: an asymmetry."""
        self.dead: set[tuple[int, int, int]] = set()
        """(from, to, stream) that never arrive."""
        self.silent: dict[int, tuple[float, float]] = {}
        """Nodes whose probes and batches are missing between two times."""
        self.loads: dict[tuple[int, int], float] = {}
        """Of the queues from one node to another, where it is not `load`."""
        self.queued_ns: dict[tuple[int, int], float] = {}
        """Mean wait in a queue from one node to another that is never empty: hardly a probe waits for less than a
        quarter of it."""
        self.jitter_ns: dict[int, float] = {}
        """Nodes whose stamps repeat badly: what either direction's are late by in the mean."""
        self.slow: dict[int, tuple[float, NDArray[np.float64]]] = {}
        """Nodes whose processors are now quick and now slow: how many seconds each is so in turn, and by how many ns all
        that they send is late in each of these spells."""
        self.kinds: dict[int, str] = {}
        """What nodes say of their own stamps, where it is not that the kernel takes them."""
        self.told: dict[str, ClockState] = {}
        """What sync has said last: probes prune for the slopes that it allows."""
        self.utc: dict[int, tuple[float, int]] = {}
        """Nodes whose CLOCK_REALTIME is UTC, that is true time, but for so much; and what they say it may be off by."""
        self.monotonic_ppb: dict[int, float] = {}
        """Nodes that tell their CLOCK_MONOTONIC, and by how much that runs faster than local time."""
        self.leap: tuple[float, int] | None = None
        """A leap second, and the true time at which it begins.

        The kernels of nodes that have UTC announce it, and know TAI.
        """

    def step(self, node: int, at_s: float, by_ns: float) -> None:
        """Set a clock forward at a time."""
        self.gained_ns[node] += np.where(self.grid_ns >= at_s * SECOND, by_ns, 0.0)

    def slew(self, node: int, since_s: float, until_s: float, by_ppb: float) -> None:
        """Let a clock run faster for a while."""
        self.gained_ns[node] += np.clip(self.grid_ns / SECOND - since_s, 0, until_s - since_s) * by_ppb

    def local_ns(self, node: int, true_ns: NDArray[np.float64]) -> NDArray[np.int64]:
        """What a node's clock shows at true times, counted from the fleet's start."""
        shown = true_ns + np.interp(true_ns, self.grid_ns, self.gained_ns[node])
        return np.rint(shown).astype(np.int64) + self.boot_ns[node]

    def local_at(self, node: int, true_s: float) -> int:
        """The same for one time in seconds."""
        return int(self.local_ns(node, np.array([true_s * SECOND]))[0])

    def realtime_ns(self, node: int, true_s: float) -> int:
        """What a host takes for the time.

        What all did when the fleet started, gone on by its own clock, unless it has UTC.
        """
        if node not in self.utc:
            return self.local_at(node, true_s) - self.boot_ns[node] + self.epoch_ns
        leapt_s = self.leap[1] if self.leap is not None and true_s >= self.leap[0] else 0
        return self.epoch_ns + round(true_s * SECOND + self.utc[node][0] + self.random.normal(0, 50)) - leapt_s * SECOND

    def monotonic_ns(self, node: int, local_ns: int) -> int:
        """CLOCK_MONOTONIC of a node that tells it, at a local time."""
        return local_ns + 5 * SECOND + round(1e-9 * self.monotonic_ppb[node] * (local_ns - self.boot_ns[node]))

    def monotonic_word(self, node: int, until_ns: int) -> dict[str, float]:
        """What a node says of its CLOCK_MONOTONIC."""
        if node not in self.monotonic_ppb:
            return {}
        away_ns = self.monotonic_ns(node, until_ns) - until_ns
        return {"monotonic_ns": away_ns, "monotonic_ppb": self.monotonic_ppb[node]}

    def kernel_word(self, node: int, true_s: float) -> dict[str, int]:
        """What a host's kernel says of TAI and of the leap second."""
        if self.leap is None or node not in self.utc:
            return {}
        at_s, leap_s = self.leap
        if true_s >= at_s:
            return {"tai_offset_s": 37 + leap_s, "leap_s": 0}
        return {"tai_offset_s": 37, "leap_s": leap_s, "leap_utc_ns": self.epoch_ns + round(at_s * SECOND)}

    def off_utc_ns(self, state: ClockState, true_s: float) -> int:
        """How far the common time by a clock is ahead of true time."""
        local_ns = self.local_at(self.names.index(state.clock), true_s)
        return state.reference_ns(local_ns) - self.epoch_ns - round(true_s * SECOND)

    def error_ns(self, state: ClockState, reference: ClockState, true_s: float) -> int:
        """How far what the state says now is from what the reference says now."""
        here, there = (self.names.index(each.clock) for each in (state, reference))
        return state.reference_ns(self.local_at(here, true_s)) - reference.reference_ns(self.local_at(there, true_s))

    def batch(self, node: int, window: int) -> StampBatch | None:
        """What a node publishes of its streams in a window; None for a silent node."""
        since_s = self.phase_s[node] + window * self.window_s
        until_s = since_s + self.window_s
        since_ns, until_ns = self.local_at(node, since_s), self.local_at(node, until_s)
        if self.is_silent(node, until_s):
            return None
        peers = [b for a, b in self.pairs if a == node and not self.is_silent(b, until_s)]
        slopes = zip(*self.slopes(node, peers, until_ns), strict=True)
        streams, parts = [], []
        for b, (least_ppb, most_ppb) in zip(peers, slopes, strict=True):
            for number in range(self.streams):
                streams.append(
                    Stream(
                        path=f"node{node}.rail{number % 2}>node{b}.rail{number % 2}#{number // 2}",
                        initiator=self.names[node],
                        responder=self.names[b],
                        kind=self.kinds.get(node, "kernel"),
                        least_ppb=least_ppb,
                        most_ppb=most_ppb,
                    )
                )
                for direction, (source, sink) in enumerate(((node, b), (b, node))):
                    if (source, sink, number) not in self.dead:
                        parts.append(Part(len(streams) - 1, direction, source, sink, number))
        return StampBatch.of(
            self.stamped(parts, since_s),
            node=self.names[node],
            since_ns=since_ns,
            until_ns=until_ns,
            epoch_ns=self.realtime_ns(node, until_s) - until_ns,
            utc_error_ns=self.utc.get(node, (0, -1))[1],
            **self.kernel_word(node, until_s),
            **self.monotonic_word(node, until_ns),
            streams=tuple(streams),
            tolerated=8,
        )

    def slopes(self, a: int, peers: list[int], local_ns: int) -> tuple[list[float], list[float]]:
        """Between which slopes the probe of a expects the lines to its peers, by what it was told."""
        ends = References(len(peers)), References(len(peers))
        for row, b in enumerate(peers):
            for end, node in zip(ends, (a, b), strict=True):
                end.set(row, self.told.get(self.names[node]))
        least, most = expected(*ends, local_ns)
        return (least * 1e9).tolist(), (most * 1e9).tolist()

    def probes(
        self, parts: list[Part], counts: list[int], since_s: float
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """When the probes of these parts are sent in a window, so many each, and when they arrive: true times.

        Each meets four hops of queues, each busy for a share of the time; and bursts of 50 ms now and then that fill
        one.
        """
        random, total = self.random, sum(counts)
        part, count = np.repeat(np.arange(len(parts)), counts), np.repeat(counts, counts)
        place = np.arange(total) - np.cumsum([0, *counts[:-1]])[part]
        sent_ns = (since_s + (place + random.random(total)) * self.window_s / count) * SECOND
        ends = [each[2:4] for each in parts]
        load = (
            np.array([self.loads.get(each, self.load) for each in ends])[part]
            if self.loads
            else np.full(total, self.load)
        )
        # Packets of 1500 bytes at 200 Mbit/s take 60 us; M/M/1 waits are exponential when the queue is busy.
        waits = np.where(random.random((HOPS, total)) < load, random.standard_exponential((HOPS, total)), 0)
        delay_ns = 60e3 / np.maximum(1 - load, 0.05) * waits.sum(axis=0)
        # Each part has bursts of its own.
        first, last = (int(at_s * SECOND // BURST_NS) for at_s in (since_s, since_s + self.window_s))
        is_burst = (
            random.random((len(parts), last + 1 - first))[part, (sent_ns // BURST_NS).astype(int) - first] < load / 5
        )
        delay_ns += np.where(is_burst, 2e6 * random.standard_exponential(total), 0.0)
        delay_ns += 200 * random.standard_exponential(total)
        for number, each in enumerate(ends) if self.queued_ns or self.jitter_ns else ():
            if each in self.queued_ns:
                delay_ns[part == number] += random.gamma(4, self.queued_ns[each] / 4, counts[number])
            for node in each:
                if node in self.jitter_ns:
                    delay_ns[part == number] += random.exponential(self.jitter_ns[node], counts[number])
        for number, each in enumerate(parts) if self.slow else ():
            if each.source in self.slow:
                spell_s, late_ns = self.slow[each.source]
                own = part == number
                delay_ns[own] += late_ns[(sent_ns[own] / SECOND // spell_s).astype(int)]
        floor_ns = [self.floor_ns[(a, b) if a < b else (b, a)][number] for _, _, a, b, number in parts]
        came_ns = sent_ns + (delay_ns + np.array(floor_ns)[part])
        if not self.extra_ns:
            return sent_ns, came_ns
        return sent_ns, came_ns + np.array([self.extra_ns.get(each, 0.0) for each in ends])[part]

    def stamped(self, parts: list[Part], since_s: float) -> NDArray[np.void]:
        """The stamps that nodes take of a window's probes, by their clocks; those of one clock all at once."""
        of_rate = [max(1, round(rate * self.window_s)) for rate in self.rates]
        counts = [of_rate[each[4] % len(of_rate)] for each in parts]
        rows = np.empty(sum(counts), StampRow)
        if not parts:
            return rows
        rows["stream"], rows["direction"], *ends, _ = np.array(parts).T.repeat(counts, axis=1)
        for column, true_ns, nodes in zip(
            ("transmit_ns", "receive_ns"), self.probes(parts, counts, since_s), ends, strict=True
        ):
            shown_ns = rows[column]
            for node in np.flatnonzero(np.bincount(nodes)):
                is_own = nodes == node
                shown_ns[is_own] = self.local_ns(node, true_ns[is_own])
        return rows

    def is_silent(self, node: int, at_s: float) -> bool:
        """Whether nothing is heard of a node."""
        since_s, until_s = self.silent.get(node, (0.0, 0.0))
        return since_s <= at_s < until_s


@dataclasses.dataclass
class Run:
    """A fleet and its synchroniser, window by window."""

    fleet: Fleet
    sync: Synchroniser
    window: int = 0
    states: dict[str, ClockState] = dataclasses.field(default_factory=dict)

    @property
    def now_s(self) -> float:
        """When the latest states were published: 50 ms after the last node's window."""
        return (self.window + 1) * self.fleet.window_s + 0.05

    def next(self) -> dict[str, ClockState]:
        """One window: all batches, then a solve."""
        self.fleet.told = self.states
        for node in range(self.fleet.nodes):
            batch = self.fleet.batch(node, self.window)
            if batch is not None:
                self.sync.add(
                    batch, round((self.fleet.phase_s[node] + (self.window + 1) * self.fleet.window_s + 0.01) * SECOND)
                )
        self.window += 1
        self.states = {state.clock: state for state in self.sync.solve(round(self.now_s * SECOND))}
        return self.states

    def to(self, true_s: float) -> dict[str, ClockState]:
        """Windows until a time."""
        while self.now_s + self.fleet.window_s <= true_s:
            self.next()
        return self.states

    def errors_ns(self, age_s: float = 0.0) -> dict[str, int]:
        """The true error of every clock's reference time, so long after the latest states were published."""
        reference = self.states[self.sync.reference]
        return {
            name: self.fleet.error_ns(state, reference, self.now_s + age_s)
            for name, state in self.states.items()
            if name != self.sync.reference
        }
