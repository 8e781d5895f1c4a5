"""The wanted rate of each stream: fast in use and as backup, as accuracy needs in the mesh, slow for all others.

Of paths that take the same links, one alone is probed, but for those in use and of the mesh: it stands for the others.
They idle.
"""

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
"""Least time between two choices of the neighbours, however many nodes come at once. Also between two looks at who may
idle by now."""
_IDLE_S = 30.0
"""The time between two probes of a path that idles. They say so again, to a receiver that has missed it."""
_LASTING_S = 600.0
"""For so long a path is probed that was in use: traffic comes home to it."""
_ANEW_S = 5.0
"""For so long a path is probed whose peer has started anew, and knows nothing of it yet."""


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


def homes(paths: NodePaths | None) -> frozenset[StreamKey]:
    """Selects the streams that are the homes of traffic which has left them."""
    return frozenset(StreamKey(each.peer, each.via, each.entropy) for each in (() if paths is None else paths.homes))


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
        self._homes: frozenset[StreamKey] = frozenset()
        self._fast = np.zeros(len(table), np.bool_)
        self._is_home = np.zeros(len(table), np.bool_)
        self._peers_ms = np.zeros(len(table), np.int64)
        self._met_ms = np.zeros(len(table), np.int64)
        self._route = np.zeros(len(table), np.int64)
        """The same of all paths that take the same links; 0: it is not known."""
        self._is_met = np.zeros(len(table), np.bool_)
        """Whether the peer was ever heard on a stream: before that, its overlay may not be there."""
        self._kept_until = np.zeros(len(table), np.int64)
        """The tick before which a path does not idle."""
        self.idle = np.zeros(len(table), np.bool_)
        """The streams for which another one stands."""
        self._pairs: frozenset[Pair] = frozenset()
        self.rows: dict[Pair, list[int]] = {}
        """The streams of each pair of clocks that this end measures."""
        self.sweep = self._ticks(1 / settings.sweep_hz)
        """Ticks between two probes of a stream that is neither in use nor in the mesh."""
        self._stale = self._changed = self._wished = True
        self._looked = self._idled = -self._ticks(_AGAIN_S)

    def grow(self, rows: int) -> None:
        """Make room for this many rows."""
        widen(self, rows)

    def peers_changed(self) -> None:
        """Note that a peer came, went or has a new record: its streams are new."""
        self._stale = self._changed = True

    def forget(self, row: int) -> None:
        """Note that a stream ended or began: nothing is known of it."""
        self._route[row] = self._kept_until[row] = 0
        self._is_met[row] = False

    def set_in_use(self, in_use: frozenset[StreamKey], homes: frozenset[StreamKey] = frozenset()) -> None:
        """Sets the streams probed fast from the next tick on; all others are slow, but for those of the mesh.

        Parameters:
            homes: streams that do not idle, since it shows by them when traffic may come back.
        """
        self._in_use, self._homes = in_use, homes
        self._changed = True

    def set_route(self, row: int, route: int) -> None:
        """Sets the route of a path: a number, the same of all paths that take the same links; 0: it is not known."""
        self._route[row] = route
        if not route:
            self._idled = -self._ticks(_AGAIN_S)

    def meet(self, rows: NDArray[np.intp], tick: int) -> None:
        """Lets all paths to the peers of these rows be probed for a while.

        They have started anew, and miss what they do not know to idle.
        """
        self._is_met[rows] = True
        if not len(rows) or not self.idle.any():
            return
        ends = self._table.ends
        peers = {each.key.peer for row in rows.tolist() if (each := ends[row]) is not None}
        woken = [row for key, row in self._table.rows.items() if key.peer in peers]
        self._kept_until[woken] = np.maximum(self._kept_until[woken], tick + self._ticks(_ANEW_S))
        self._idled = -self._ticks(_AGAIN_S)

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
            self._choose(tick)
        is_due = tick - self._idled >= self._ticks(_AGAIN_S) and bool(self._route.any() or self.idle.any())
        if not is_due and not self._changed and not self._wished and (peers_ms == self._peers_ms).all():
            return
        # Both ends do what either wants: neither direction is of use without the other.
        met_ms = np.where(
            (self.wish_ms > 0) & (peers_ms > 0), np.minimum(self.wish_ms, peers_ms), self.wish_ms + peers_ms
        )
        idled, self.idle, self._idled = self.idle, self._who_idles(met_ms, tick), tick
        live = self._table.live
        row = live[self._changed | ((met_ms != self._met_ms) | (idled != self.idle))[live]]
        self._changed = self._wished = False
        self._peers_ms, self._met_ms = peers_ms.copy(), met_ms
        if len(row):
            columns = (column.tolist() for column in (row, *self._rates(row, met_ms[row]), self._fast[row]))
            yield from map(StreamRate, *columns)

    def _who_idles(self, met_ms: Ints, tick: int) -> NDArray[np.bool_]:
        """Whether another stream stands for each.

        Of those that take one route, those go on that are to be probed in any case; if none is, the one of the lowest
        entropy. Rows of a peer rise with the entropies of a rail.
        """
        idle = np.zeros(len(self._route), np.bool_)
        known = np.flatnonzero((self._route != 0) & self._is_met)
        kept = (self._fast | self._is_home | (met_ms > 0) | (self._kept_until > tick))[known]
        order = np.lexsort((known, ~kept, self._route[known]))
        rows, kept = known[order], kept[order]
        idle[rows[1:]] = (np.diff(self._route[rows]) == 0) & ~kept[1:]
        return idle

    def _rates(self, row: NDArray[np.intp], met_ms: Ints) -> tuple[Ints, Ints]:
        """Ticks between two probes, and rounds between two coded pairs."""
        settings, meshed, fast = self._settings, met_ms > 0, self._fast[row]
        slow = np.where(self.idle[row], self._ticks(_IDLE_S), self.sweep)
        usual = np.where(fast, self._ticks(1 / settings.in_use_hz), slow)
        pairs = np.maximum(1, np.rint(met_ms / settings.tick_ms)).astype(np.int64)
        every = np.where(meshed, np.minimum(usual, pairs), usual)
        coded = np.where(meshed, np.maximum(1, np.rint(pairs / every)), 0).astype(np.int64)
        coded = np.where(fast, np.where(meshed, np.minimum(coded, CODED_EVERY), CODED_EVERY), coded)
        return every, coded

    def _ticks(self, seconds: float) -> int:
        return max(1, round(seconds * 1_000 / self._settings.tick_ms))

    def _choose(self, tick: int) -> None:
        table = self._table
        left, self._fast = self._fast, np.zeros_like(self._fast)
        self._fast[[row for key, row in table.rows.items() if key in self._in_use]] = True
        self._is_home[:] = False
        self._is_home[[row for key in self._homes if (row := table.rows.get(key)) is not None]] = True
        self._kept_until[left & ~self._fast] = tick + self._ticks(_LASTING_S)
        ends = {row: each for row, each in enumerate(table.ends) if each is not None}
        self.rows = streams(ends, self._pairs, self._in_use)
        self.paces.keep(self.rows)
        self._wish()

    def _wish(self) -> None:
        self._wished = True
        self.wish_ms[:] = 0
        for pair, rows in self.rows.items():
            self.wish_ms[rows] = self.paces.interval_ms(pair)
