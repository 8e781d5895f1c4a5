"""The wanted rate of each stream: fast in use and as backup, as accuracy needs in the mesh, slow for all others."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from foliot.columns import widen
from foliot_probe.core.rate.adaptive_rate import AdaptiveRates
from foliot_probe.core.rate.clock_neighbours import neighbours, streams
from foliot_probe.core.stream_table import StreamKey

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from numpy.typing import NDArray

    from foliot_probe.core.rate.adaptive_rate import Sight
    from foliot_probe.core.rate.clock_neighbours import Pair
    from foliot_probe.core.stream_table import StreamTable
    from foliot_probe.settings import ProbeSettings
    from foliot_schemas import NodePaths

    Ints = NDArray[np.int64]

DEFAULT_ENTROPY = 0
"""The entropy of a service address that has no placement."""

CODED_EVERY = 4
"""In every so many rounds a path in use gets a coded pair, or more often if it is of the mesh."""
_AGAIN_S = 1.0
"""Least time between two choices of the neighbours, however many nodes come at once."""


def in_use(keys: Iterable[StreamKey], paths: NodePaths | None) -> frozenset[StreamKey]:
    """Selects the streams in use or armed, by the node's paths (None: not known yet).

    Without a placement, a service address is on its own rail.
    """
    placements = () if paths is None else paths.placements
    backups = () if paths is None else paths.backups
    placed = {(each.peer, each.rail) for each in placements}
    wanted = {StreamKey(each.peer, each.via, each.entropy) for each in (*placements, *backups)}
    return frozenset(
        key for key in keys if key in wanted or (key.entropy == DEFAULT_ENTROPY and (key.peer, key.rail) not in placed)
    )


class StreamRate(NamedTuple):
    """The rate of a stream."""

    row: int
    every: int
    """Ticks between two probes."""
    coded_every: int
    """In every so many rounds a coded pair; 0: never."""
    in_use: bool


class Demand:
    """A node's wanted rates of its streams, by row; the peers' wishes come with their probes."""

    def __init__(self, table: StreamTable, settings: ProbeSettings) -> None:
        self._table = table
        self._settings = settings
        self.paces = AdaptiveRates(min(settings.mesh_least_hz, settings.mesh_most_hz), settings.mesh_most_hz)
        self.wish_ms = np.zeros(len(table), np.int64)
        """The time between two coded pairs that this end wants; 0: it does not count the stream to the mesh."""
        self._in_use: frozenset[StreamKey] = frozenset()
        self._fast = np.zeros(len(table), np.bool_)
        self._peers_ms = np.zeros(len(table), np.int64)
        self._met_ms = np.zeros(len(table), np.int64)
        self._pairs: frozenset[Pair] = frozenset()
        self.rows: dict[Pair, list[int]] = {}
        """The streams of each pair of clocks that this end measures."""
        self.sweep = self._ticks(1 / settings.sweep_hz)
        """Ticks between two probes of a stream that is neither in use nor in the mesh."""
        self._stale = self._changed = self._wished = True
        self._looked = -self._ticks(_AGAIN_S)

    def grow(self, rows: int) -> None:
        """Make room for this many rows."""
        widen(self, rows)

    def peers_changed(self) -> None:
        """Note that a peer came, went or has a new record: its streams are new."""
        self._stale = self._changed = True

    def set_in_use(self, in_use: frozenset[StreamKey]) -> None:
        """Sets the streams probed fast from the next tick on; all others are slow, but for those of the mesh."""
        self._in_use = in_use
        self._changed = True

    @property
    def meshed(self) -> NDArray[np.bool_]:
        """The streams that either end counts to the mesh."""
        return self._met_ms > 0

    def judge(self, sight: Sight) -> None:
        """Take a window into account."""
        self.paces.judge(self.rows, sight)
        self._wish()

    def changes(self, tick: int, peers_ms: Ints) -> Iterator[StreamRate]:
        """The rates that have changed since the last call, or may have; the peers want `peers_ms`, as `wish_ms`."""
        if self._stale and tick - self._looked >= self._ticks(_AGAIN_S):
            self._stale, self._looked = False, tick
            self._pairs = neighbours(self._table.own, self._table.peers.values())
            self._changed = True
        if self._changed:
            self._choose()
        if not self._changed and not self._wished and (peers_ms == self._peers_ms).all():
            return
        # Both ends do what either wants: neither direction is of use without the other.
        met_ms = np.where(
            (self.wish_ms > 0) & (peers_ms > 0), np.minimum(self.wish_ms, peers_ms), self.wish_ms + peers_ms
        )
        live = self._table.live
        row = live[self._changed | (met_ms != self._met_ms)[live]]
        self._changed = self._wished = False
        self._peers_ms, self._met_ms = peers_ms.copy(), met_ms
        if len(row):
            columns = (column.tolist() for column in (row, *self._rates(met_ms[row], self._fast[row]), self._fast[row]))
            yield from map(StreamRate, *columns)

    def _rates(self, met_ms: Ints, fast: NDArray[np.bool_]) -> tuple[Ints, Ints]:
        """Ticks between two probes, and rounds between two coded pairs."""
        settings, meshed = self._settings, met_ms > 0
        usual = np.where(fast, self._ticks(1 / settings.in_use_hz), self.sweep)
        pairs = np.maximum(1, np.rint(met_ms / settings.tick_ms)).astype(np.int64)
        every = np.where(meshed, np.minimum(usual, pairs), usual)
        coded = np.where(meshed, np.maximum(1, np.rint(pairs / every)), 0).astype(np.int64)
        coded = np.where(fast, np.where(meshed, np.minimum(coded, CODED_EVERY), CODED_EVERY), coded)
        return every, coded

    def _ticks(self, seconds: float) -> int:
        return max(1, round(seconds * 1_000 / self._settings.tick_ms))

    def _choose(self) -> None:
        table = self._table
        self._fast[:] = False
        self._fast[[row for key, row in table.rows.items() if key in self._in_use]] = True
        ends = {row: each for row, each in enumerate(table.ends) if each is not None}
        self.rows = streams(ends, self._pairs, self._in_use)
        self.paces.keep(self.rows)
        self._wish()

    def _wish(self) -> None:
        self._wished = True
        self.wish_ms[:] = 0
        for pair, rows in self.rows.items():
            self.wish_ms[rows] = self.paces.interval_ms(pair)
