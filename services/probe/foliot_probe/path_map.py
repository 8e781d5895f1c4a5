"""Finds the routers of the node's paths: `HopTracer` says whom to ask, the sockets of each way ask.

With what peers tell of the ways back, `KnownRoutes` says which of them take the same links.
"""

from __future__ import annotations

import itertools
from random import SystemRandom
from typing import TYPE_CHECKING

import numpy as np
import structlog

from foliot_probe.core.measure.hop_tracer import HopTracer
from foliot_probe.core.measure.known_routes import UNKNOWN, KnownRoutes
from foliot_probe.io.hop_sockets import HopSocket
from foliot_schemas import HopBatch, HopRow
from foliot_schemas.inventory import OVERLAY_PORT

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from foliot_probe.core.measure.hop_tracer import Hops
    from foliot_probe.core.stream_table import StreamKey, StreamTable
    from foliot_probe.settings import ProbeSettings

log = structlog.get_logger()

_AGAIN_NS = 30_000_000_000
"""How often all of it is told again: a message may have been lost, and readers come later."""
_AT_ONCE_NS = 1_000_000_000
"""How often news is told."""
_ROWS_A_BATCH = 1_024
"""By the rules of the wire. A batch has no more paths either."""
_TURNS = 100
"""Steps in which each path has its turn to be looked at, since a peer's word grows old without a sign."""


class PathMap:
    """The routers of all outgoing paths, by the rows of the stream table.

    Every time given to it is monotonic and in ns.

    Parameters:
        table: the node's streams.
        settings: how many packets a second, and of which class.
    """

    def __init__(self, table: StreamTable, settings: ProbeSettings) -> None:
        self._table = table
        self._settings = settings
        self._tracer = HopTracer(settings.trace_hz, SystemRandom())
        self._sockets: dict[tuple[str, int], HopSocket | None] = {}
        """By rail and entropy; None: it could not be had."""
        self._row_of: dict[tuple[str, int, str], int] = {}
        self._back_of: dict[str, int] = {}
        """The row of each path to this node."""
        self._beside: dict[tuple[str, str], set[int]] = {}
        """By peer and rail, the rows of the paths between the same two NICs."""
        self._known = KnownRoutes()
        self._routes: dict[int, int] = {}
        """As they were told last; of all other rows they are unknown."""
        self._to_look_at: set[int] = set()
        self._turn = itertools.cycle(range(_TURNS))
        self._news: dict[int, None] = {}
        self._told_ns = self._all_told_ns = 0

    def begin(self, rows: Iterable[int], now_ns: int) -> None:
        """Streams began in these rows."""
        for row in rows:
            if (ends := self._table.ends[row]) is not None:
                self._row_of[ends.key.rail, ends.key.entropy, self._address(row)] = row
                self._back_of[ends.incoming] = row
                self._beside.setdefault((ends.key.peer, ends.key.rail), set()).add(row)
                self._tracer.begin(row, now_ns)

    def end(self, rows: Iterable[int]) -> None:
        """The streams of these rows ended."""
        gone = set(rows)
        for row in gone:
            self._tracer.end(row)
            self._news.pop(row, None)
            self._routes.pop(row, None)
        self._known.end(gone)
        self._to_look_at -= gone
        self._row_of = {key: row for key, row in self._row_of.items() if row not in gone}
        self._back_of = {path: row for path, row in self._back_of.items() if row not in gone}
        self._beside = {key: left for key, rows in self._beside.items() if (left := rows - gone)}

    def doubt(self, keys: Iterable[StreamKey], now_ns: int) -> None:
        """Asks soon for the paths beside these: they fell silent, are heard again, or traffic came or left.

        Until then, none of them is known to take the same links as another.
        """
        for beside in {(key.peer, key.rail) for key in keys}:
            rows = self._beside.get(beside, set())
            self._tracer.doubt(sorted(rows), now_ns)
            self._to_look_at |= rows

    def take(self, batch: HopBatch, now_ns: int) -> None:
        """Takes what a peer tells of the routers of its own paths. Of a peer of before, no path may idle."""
        back = {place: row for place, path in enumerate(batch.paths) if (row := self._back_of.get(path)) is not None}
        self._to_look_at.update(back.values())
        if not batch.allows_idle:
            self._known.end(back.values())
            return
        rows = batch.rows()
        found: dict[int, dict[int, int]] = {place: {} for place in back}
        for place, hop, address in rows[np.isin(rows["path"], list(back))].tolist():
            found[place][hop] = address
        for place, row in back.items():
            hops = found[place]
            self._known.told(row, tuple(hops.get(hop, 0) for hop in range(1, max(hops, default=0) + 1)), now_ns)

    def take_routes(self, now_ns: int) -> list[tuple[int, int]]:
        """Rows whose paths take another route than at the last call, by what is known; and the route.

        It is a number, the same of all paths that take the same links, or `UNKNOWN`.
        """
        rows, self._to_look_at = self._to_look_at, set()
        rows.update(list(self._row_of.values())[next(self._turn) :: _TURNS])
        changed = []
        for row in sorted(rows):
            route = self._known.of(row, self._between(row), self._sure_hops(row), now_ns)
            if route != self._routes.get(row, UNKNOWN):
                self._routes[row] = route
                changed.append((row, route))
        return changed

    def step(self, now_ns: int) -> None:
        """Reads who has answered, and asks on."""
        for rail, entropy in {self._way(row) for row in self._tracer.waiting}:
            opened = self._socket(rail, entropy)
            for answer in () if opened is None else opened.answers():
                row = self._row_of.get((rail, entropy, answer.peer))
                if row is not None:
                    self._tracer.answered(row, answer.router, answer.token, now_ns)
        for ask in self._tracer.due(now_ns):
            opened = self._socket(*self._way(ask.row))
            if opened is not None:
                opened.send(self._address(ask.row), OVERLAY_PORT, ask.ttl, ask.token)
        self._news |= dict.fromkeys(self._tracer.take_changed())
        self._to_look_at |= self._tracer.take_asked()

    def batches(self, now_ns: int, at_ns: int) -> Iterator[HopBatch]:
        """The batches to publish now.

        Parameters:
            now_ns: monotonic.
            at_ns: reference time.
        """
        if now_ns - self._all_told_ns >= _AGAIN_NS:
            self._all_told_ns = now_ns
            self._news |= dict.fromkeys(row for row in self._row_of.values() if self._tracer.hops(row) is not None)
        if not self._news or now_ns - self._told_ns < _AT_ONCE_NS:
            return
        self._told_ns = now_ns
        told, self._news = list(self._news), {}
        paths: list[str] = []
        rows: list[tuple[int, int, int]] = []
        for row in told:
            ends, hops = self._table.ends[row], self._tracer.hops(row) or ()
            assert ends is not None
            if paths and (len(rows) + len(hops) > _ROWS_A_BATCH or len(paths) == _ROWS_A_BATCH):
                yield self._batch(paths, rows, at_ns)
                paths, rows = [], []
            rows += [(len(paths), hop, address) for hop, address in enumerate(hops, 1) if address]
            paths.append(ends.outgoing)
        yield self._batch(paths, rows, at_ns)

    def close(self) -> None:
        """Closes the sockets."""
        for opened in filter(None, self._sockets.values()):
            opened.close()
        self._sockets.clear()

    def _batch(self, paths: list[str], rows: list[tuple[int, int, int]], at_ns: int) -> HopBatch:
        return HopBatch.of(
            np.array(rows, HopRow), node=self._table.own.name, at_ns=at_ns, paths=tuple(paths), allows_idle=True
        )

    def _between(self, row: int) -> tuple[str, str]:
        """The peer and the rail of a path."""
        ends = self._table.ends[row]
        assert ends is not None
        return ends.key.peer, ends.key.rail

    def _sure_hops(self, row: int) -> Hops | None:
        return self._tracer.hops(row) if self._tracer.is_sure(row) else None

    def _way(self, row: int) -> tuple[str, int]:
        """The rail and the entropy of a path."""
        ends = self._table.ends[row]
        assert ends is not None
        return ends.key.rail, ends.key.entropy

    def _address(self, row: int) -> str:
        """The underlay address of the peer's NIC."""
        ends = self._table.ends[row]
        assert ends is not None
        return self._table.peers[ends.key.peer].nic(ends.key.rail).address

    def _socket(self, rail: str, entropy: int) -> HopSocket | None:
        """The socket of a way, which may have to be made; None: it cannot be had."""
        key = rail, entropy
        if key not in self._sockets:
            nic, ds_field = self._table.own.nic(rail), self._settings.ds_field(rail)
            try:
                self._sockets[key] = HopSocket(nic.address, nic.entropies[entropy], nic.device, ds_field)
            except OSError as error:
                log.warning("hops_unknown", nic=nic.name, entropy=entropy, reason=error.strerror)
                self._sockets[key] = None
        return self._sockets[key]
