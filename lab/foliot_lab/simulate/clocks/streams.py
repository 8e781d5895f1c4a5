"""Simulated probe streams: coded pairs over a random regular mesh, filtered and pruned by the probe's own code."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
import numpy as np

from foliot_lab.simulate.clocks.oscillators import SECOND_NS
from foliot_probe.core.measure.one_way_delay import References
from foliot_probe.core.measure.sessions import Completed
from foliot_probe.core.measure.slope_range import SlopeRange, expected
from foliot_probe.core.measure.stamp_window import StampWindow
from foliot_probe.core.packet import KINDS
from foliot_probe.core.stream_table import StreamEnds, StreamKey
from foliot_schemas import StampBatch
from foliot_schemas.observation import StampKind  # noqa: TC001 - msgspec reads annotations at run time

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from foliot_lab.simulate.clocks.oscillators import Oscillators
    from foliot_lab.simulate.clocks.queueing import Queues
    from foliot_schemas import ClockState

_EPOCH_NS = 1_700_000_000 * SECOND_NS


class Stamping(msgspec.Struct, frozen=True, kw_only=True):
    """The errors of stamps, alike for every NIC, and independent from stamp to stamp."""

    kind: StampKind = "hardware"
    noise_ns: float = 4.0
    """Standard deviation of a stamp."""
    resolution_ns: int = 4
    """The resolution of a stamp, that of a 250 MHz counter. Stamps are whole multiples of it."""
    outlier_share: float = 0.02
    outlier_ns: float = 100.0
    """The greatest error, either way, of the share of transmit stamps that are outliers. Huygens (NSDI '18) saw tens
    to hundreds of nanoseconds."""

    def read(self, shown_ns: NDArray[np.int64], random: np.random.Generator, *, transmit: bool) -> NDArray[np.int64]:
        """Readings of clocks that show these times."""
        noise = random.normal(0, self.noise_ns, len(shown_ns))
        if transmit:
            off = random.uniform(-self.outlier_ns, self.outlier_ns, len(shown_ns))
            noise += np.where(random.random(len(shown_ns)) < self.outlier_share, off, 0.0)
        read: NDArray[np.int64] = shown_ns + np.rint(noise).astype(np.int64)
        return read // self.resolution_ns * self.resolution_ns


class Probing(msgspec.Struct, frozen=True, kw_only=True):
    """The rate and the form of probing."""

    neighbours: int = 10
    """Neighbours of each NIC. Of two neighbours one initiates."""
    entropies: int = 4
    """Streams between two neighbours."""
    rate_hz: float = 25.0
    coded_every: int = 1
    """The interval of rounds with a coded pair; the other rounds have a single probe."""
    pair_gap_us: float = 10.0
    tolerated: int = 10
    window_s: float = 2.0


class Mesh(NamedTuple):
    """The streams of the mesh, one element a stream."""

    initiator: NDArray[np.intp]
    responder: NDArray[np.intp]
    entropy: NDArray[np.intp]


def regular(nodes: int, neighbours: int, entropies: int, random: np.random.Generator) -> Mesh:
    """A random mesh in which all nodes have as many neighbours, half of them probed by the node itself.

    The nodes stand on a ring in random order, and each probes those at some random distances.
    """
    ring = random.permutation(nodes)
    most = (nodes - 1) // 2
    steps = 1 + random.permutation(most)[: max(1, min(neighbours // 2, most))]
    responder = np.concatenate([np.roll(ring, -step) for step in steps])
    order = np.argsort(np.tile(ring, len(steps)), kind="stable")
    starts, ends = np.tile(ring, len(steps))[order], responder[order]
    return Mesh(np.repeat(starts, entropies), np.repeat(ends, entropies), np.tile(np.arange(entropies), len(starts)))


class Sent(NamedTuple):
    """The probes of a window with their stamps, in one direction and the other."""

    number: int
    forth: Completed
    back: Completed


class Traffic:
    """The probes of a fleet of NICs, each with a clock of its own, window by window, whatever tool reads them."""

    def __init__(
        self, clocks: Oscillators, queues: Queues, probing: Probing, stamping: Stamping, random: np.random.Generator
    ) -> None:
        self.clocks, self.probing, self.stamping, self.nodes = clocks, probing, stamping, len(clocks)
        self.mesh = mesh = regular(self.nodes, probing.neighbours, probing.entropies, random)
        self._queues, self._random = queues, random
        self.window_ns = round(probing.window_s * SECOND_NS)
        self.phase_ns = random.integers(0, self.window_ns // 10, self.nodes)
        """The phase of each node's windows, within a tenth of one."""
        self.more_noise_ns = np.zeros(self.nodes)
        """Standard deviation that the stamps of each node have beyond what `stamping` says."""
        self._floor_ns = [
            queues.floor_ns(*ends, mesh.entropy)
            for ends in ((mesh.initiator, mesh.responder), (mesh.responder, mesh.initiator))
        ]

    def window(self, number: int) -> Sent:
        """All probes of a window. Ask for the windows in their order, each once."""
        since_ns = number * self.window_ns
        self.clocks.run_to(since_ns + 2 * self.window_ns + 3 * SECOND_NS // 10)
        self._queues.run(since_ns, since_ns + 2 * self.window_ns)
        return Sent(number, self._direction(number, 0), self._direction(number, 1))

    def _direction(self, number: int, direction: int) -> Completed:
        """All probes of a window in one direction, by row and time."""
        probing, random = self.probing, self._random
        source, sink = (self.mesh.initiator, self.mesh.responder)[:: 1 if direction == 0 else -1]
        count = max(1, round(probing.rate_hz * probing.window_s))
        row = np.repeat(np.arange(len(source)), count)
        turn = np.tile(np.arange(count), len(source))
        # Each stream at its own moment of the interval, so that probes do not meet one another.
        at = (turn + np.repeat(random.random(len(source)), count)) / count
        sent_ns = number * self.window_ns + self.phase_ns[self.mesh.initiator[row]]
        sent_ns = sent_ns + (at * self.window_ns * 0.999).astype(np.int64)
        gap_ns = np.full(len(row), probing.pair_gap_us * 1e3)
        waits = self._queues.wait_ns(source[row], sink[row], self.mesh.entropy[row], sent_ns, gap_ns)
        coded = turn % probing.coded_every == 0
        rows = np.concatenate((row, row[coded]))
        sequence = np.concatenate((2 * turn, 2 * turn[coded] + 1))
        sent_ns = np.concatenate((sent_ns, sent_ns[coded] + np.rint(gap_ns[coded]).astype(np.int64)))
        wait_ns = np.concatenate((waits[0], waits[1][coded]))
        order = np.lexsort((sequence, rows))
        rows, sequence, sent_ns, wait_ns = rows[order], sequence[order], sent_ns[order], wait_ns[order]
        arrived_ns = sent_ns + np.rint(self._floor_ns[direction][rows] + wait_ns).astype(np.int64)
        return Completed(
            rows, sequence,
            self._stamped(source[rows], sent_ns, transmit=True), self._stamped(sink[rows], arrived_ns, transmit=False),
        )  # fmt: skip

    def _stamped(self, clock: NDArray[np.intp], true_ns: NDArray[np.int64], *, transmit: bool) -> NDArray[np.int64]:
        read = self.stamping.read(self.clocks.local_ns(clock, true_ns), self._random, transmit=transmit)
        if self.more_noise_ns.any():
            read += np.rint(self._random.normal(0, self.more_noise_ns[clock])).astype(np.int64)
        return read


class Fleet:
    """The nodes' batches, filtered and pruned by the published states of their clocks.

    Parameters:
        traffic: the probes.
        host: what a batch says of its host's system clock, by node, true time and local time of its end. None: all
            hosts took the start of their clocks for the same time, and know nothing of UTC.
    """

    def __init__(self, traffic: Traffic, host: Callable[[int, int, int], Mapping[str, Any]] | None = None) -> None:
        self._traffic = traffic
        self._host = host or (
            lambda node, _true_ns, _local_ns: {"epoch_ns": _EPOCH_NS - int(traffic.clocks.boot_ns[node])}
        )
        self._mesh = mesh = traffic.mesh
        rows = len(mesh.initiator)
        self._tilt = SlopeRange.unknown(rows)
        """The probes' knowledge of their clocks' rates."""
        self._first = np.searchsorted(mesh.initiator, np.arange(traffic.nodes + 1))
        self._windows = [StampWindow(traffic.probing.tolerated) for _ in range(traffic.nodes)]
        self._ends = [self._stream(row) for row in range(rows)]

    def window(self, sent: Sent) -> Iterator[tuple[StampBatch, int]]:
        """The batches of a window, each with its true time of publication."""
        traffic = self._traffic
        edges = [np.searchsorted(each.row, self._first) for each in (sent.forth, sent.back)]
        kind = np.full(len(self._ends), KINDS.index(traffic.stamping.kind))
        for node in range(traffic.nodes):
            own = slice(self._first[node], self._first[node + 1])
            if own.start == own.stop:
                continue
            window = self._windows[node]
            window.add(
                *(
                    _of(each, edge[node], edge[node + 1], own.start)
                    for each, edge in zip((sent.forth, sent.back), edges, strict=True)
                )
            )
            begun_ns = sent.number * traffic.window_ns + int(traffic.phase_ns[node])
            ends_ns = np.array([begun_ns, begun_ns + traffic.window_ns])
            local = traffic.clocks.local_ns(np.array([node, node]), ends_ns)
            said = self._host(node, int(ends_ns[1]), int(local[1]))
            for part in filter(None, window.close(window.take(), self._ends[own], kind[own], self._tilt.of(own))):
                batch = StampBatch.of(
                    part.rows, node=name(node), since_ns=int(local[0]), until_ns=int(local[1]), streams=part.streams,
                    tolerated=traffic.probing.tolerated, **said,
                )  # fmt: skip
                yield batch, begun_ns + traffic.window_ns

    def told(self, states: Sequence[ClockState]) -> None:
        """Takes sync's states of the clocks."""
        self._tilt = _expected_tilt(self._mesh, states)

    def _stream(self, row: int) -> StreamEnds:
        a, b, entropy = (int(column[row]) for column in self._mesh)
        return StreamEnds(
            key=StreamKey(name(b), "rail0", entropy),
            outgoing=f"{name(a)}.rail0>{name(b)}.rail0#{entropy}",
            incoming=f"{name(b)}.rail0>{name(a)}.rail0#{entropy}",
            own_clock=name(a), peer_clock=name(b), initiator=True,
        )  # fmt: skip


def name(number: int) -> str:
    """The name of a node, and of its clock."""
    return f"node{number}"


def _of(all_rows: Completed, start: int, stop: int, first: int) -> Completed:
    """A node's probes, its streams counted from 0."""
    return Completed(all_rows.row[start:stop] - first, *(column[start:stop] for column in all_rows[1:]))


def _expected_tilt(mesh: Mesh, states: Sequence[ClockState]) -> SlopeRange:
    """The probes' expectation of their clocks' rates, from sync's states."""
    said = {state.clock: state for state in states}
    own, peers = References(len(mesh.initiator)), References(len(mesh.initiator))
    for row, (a, b) in enumerate(zip(mesh.initiator.tolist(), mesh.responder.tolist(), strict=True)):
        own.set(row, said.get(name(a)))
        peers.set(row, said.get(name(b)))
    return expected(own, peers, 0)
