"""Stamps of a fleet of any size, exact and quickly made, as its probes publish them after pruning.

Unlike `streams`, this module simulates nothing of the fabric. Every stream has the same floor both ways, and the least
delays of a window are kept. Sync gets as many stamps as from a real fleet's probes, and the truth is known.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from foliot_schemas import StampBatch, StampRow, encode
from foliot_schemas.observation import Stream

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from foliot_lab.simulate.synthetic_fleet import SyntheticFleet

WINDOW_NS = 2_000_000_000
_SEED = 1
_SENT, _KEPT = 12, 10
"""Probes of a window, for each stream and direction."""
_EPOCH_NS = 1_790_000_000_000_000_000
_DRIFT_PPB, _WANDER_PPB = 30_000.0, 1.0
_FLOOR_NS = (5_000.0, 20_000.0)
_QUEUE_NS, _NOISE_NS = 10_000.0, 20.0
_BUSY = 0.6
"""Share of the probes that meet a queue."""
_DOUBT_PPB = 60.0
"""The nodes' uncertainty about the rates of their clocks against each other."""


class LargeFleet:
    """Clocks that each measure some others, chosen at random.

    Parameters:
        fleet: the names of the nodes.
        neighbours: neighbours of each node, an even number.
        streams: streams of each pair of clocks.
    """

    def __init__(self, fleet: SyntheticFleet, *, neighbours: int = 10, streams: int = 4) -> None:
        self._fleet, self._streams = fleet, streams
        random = self._random = np.random.default_rng(_SEED)
        nodes = fleet.nodes
        ring, steps = (
            random.permutation(nodes),
            random.choice(np.arange(1, (nodes + 1) // 2), neighbours // 2, replace=False),
        )
        ends = np.concatenate([np.stack((ring, np.roll(ring, step))) for step in steps], axis=1)
        low, high = ends.min(axis=0), ends.max(axis=0)
        order = np.argsort(low, kind="stable")
        self.initiator, self.responder = low[order], high[order]
        self._first = np.searchsorted(self.initiator, np.arange(nodes + 1))
        """For each node, the first of the pairs that it initiates."""
        self._floor_ns = random.uniform(*_FLOOR_NS, (len(low), streams))
        self._boot_ns = random.integers(10**10, 10**16, nodes)
        """Local time when the fleet starts."""
        self._rate_ppb = random.uniform(-_DRIFT_PPB, _DRIFT_PPB, nodes)
        self._walk = np.random.default_rng(_SEED + 1)
        """The random source of rates alone. So stamps of any part of the nodes come from the same clocks."""
        self._gained_ns = np.zeros(nodes)
        """The time that each clock has gained since then, at the beginning of the window."""
        self.window = 0

    @property
    def pairs(self) -> int:
        """The number of pairs of clocks that measure each other."""
        return len(self.initiator)

    def partners(self, first: int, last: int) -> list[int]:
        """These nodes, from one up to another, and the nodes that they measure."""
        part = slice(self._first[first], self._first[last])
        found: list[int] = np.unique(np.concatenate((np.arange(first, last), self.responder[part]))).tolist()
        return found

    def local_ns(self, nodes: NDArray[np.int64], true_ns: NDArray[np.float64]) -> NDArray[np.int64]:
        """The clocks' local times so long after the beginning of the window."""
        gained = self._gained_ns[nodes] + self._rate_ppb[nodes] * 1e-9 * true_ns
        return self._boot_ns[nodes] + self.window * WINDOW_NS + np.rint(true_ns + gained).astype(np.int64)

    def next(self) -> None:
        """Goes on to the next window."""
        self._gained_ns += self._rate_ppb * 1e-9 * WINDOW_NS
        self._rate_ppb += self._walk.normal(0, _WANDER_PPB * np.sqrt(WINDOW_NS / 1e9), len(self._rate_ppb))
        self.window += 1

    def batches(self, first: int, last: int) -> Iterator[tuple[str, bytes]]:
        """The encoded batches of a window that these nodes publish, from one up to another, by name."""
        begin, end = self._first[first], self._first[last]
        rows = self._rows(slice(begin, end))
        a_pair = self._streams * 2 * _KEPT
        over_ns = WINDOW_NS * (1 + self._random.random(last - first) / 10)
        nodes = np.arange(first, last)
        since, until = self.local_ns(nodes, np.zeros(len(nodes))), self.local_ns(nodes, over_ns)
        epoch = _EPOCH_NS + self.window * WINDOW_NS + np.rint(over_ns).astype(np.int64) - until
        slope_ppb = self._rate_ppb[self.responder[begin:end]] - self._rate_ppb[self.initiator[begin:end]]
        slopes, at = slope_ppb.tolist(), self._first[first : last + 1] - begin
        for place, node in enumerate(nodes.tolist()):
            yield (
                self._fleet.name(node),
                encode(
                    StampBatch.of(
                        rows[at[place] * a_pair : at[place + 1] * a_pair],
                        node=self._fleet.name(node),
                        since_ns=int(since[place]),
                        until_ns=int(until[place]),
                        epoch_ns=int(epoch[place]),
                        streams=self._described(node, slopes[at[place] : at[place + 1]]),
                        tolerated=8,
                    )
                ),
            )

    def _rows(self, part: slice) -> NDArray[Any]:
        """The stamps of these pairs, of dtype `StampRow`, in order; streams are counted from each node's first."""
        initiator, responder = self.initiator[part], self.responder[part]
        shape = (len(initiator), self._streams, 2, _SENT)
        waits = np.where(self._random.random(shape) < _BUSY, self._random.exponential(_QUEUE_NS, shape), 0.0)
        waits = np.partition(waits, _KEPT - 1, axis=-1)[..., :_KEPT]
        delay = self._floor_ns[part][:, :, None, None] + waits + self._random.normal(0, _NOISE_NS, waits.shape)
        sent = self._random.uniform(0, WINDOW_NS, waits.shape)
        ends = np.stack((initiator, responder), axis=1)[:, None, :, None]
        rows = np.empty(waits.shape, StampRow)
        rows["transmit_ns"] = self.local_ns(np.broadcast_to(ends, waits.shape), sent)
        rows["receive_ns"] = self.local_ns(np.broadcast_to(ends[:, :, ::-1], waits.shape), sent + delay)
        rows["direction"] = np.arange(2)[:, None]
        nth = np.arange(part.start, part.stop) - self._first[initiator]
        rows["stream"] = (nth[:, None] * self._streams + np.arange(self._streams))[:, :, None, None]
        return rows.reshape(-1)

    def _described(self, node: int, slopes_ppb: list[float]) -> tuple[Stream, ...]:
        """The streams of the pairs that a node initiates: rail by rail, then the next entropy."""
        name = self._fleet.name(node)
        responders = map(self._fleet.name, self.responder[self._first[node] : self._first[node + 1]].tolist())
        return tuple(
            Stream(
                path=f"{name}.rail{number % 2}>{responder}.rail{number % 2}#{number // 2}",
                initiator=name,
                responder=responder,
                kind="kernel",
                pure_forth=_SENT,
                pure_back=_SENT,
                least_ppb=slope_ppb - _DOUBT_PPB,
                most_ppb=slope_ppb + _DOUBT_PPB,
            )
            for responder, slope_ppb in zip(responders, slopes_ppb, strict=True)
            for number in range(self._streams)
        )
