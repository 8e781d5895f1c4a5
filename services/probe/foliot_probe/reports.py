"""Turns the engine's findings into messages: delays per interval, silence at once, stamps per window."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from foliot.clock.kernel_discipline import kernel_utc
from foliot.columns import enlarge
from foliot_probe.core.measure.coded_pairs import LEAST_TOLERANCE_NS
from foliot_probe.core.measure.one_way_delay import (
    DestinationColumns,
    References,
    SourceColumns,
    count_rows,
    digest,
    interval_columns,
    one_way_ns,
    sent_since_ns,
    silence_rows,
)
from foliot_probe.core.measure.slope_range import expected
from foliot_probe.core.measure.stamp_window import LAYERS, StampWindow
from foliot_probe.core.packet import HARDWARE, KERNEL, KINDS
from foliot_probe.core.rate.adaptive_rate import Sight
from foliot_probe.core.rate.delay_density import densities, repeatable_ns
from foliot_probe.io.tcp_clock import MonotonicOffset
from foliot_schemas import DelayBatch, StampBatch
from foliot_schemas.columns import pack
from foliot_schemas.names import Path, is_nic_clock, nic_clock_name
from foliot_schemas.observation import StampRow, Stream

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Iterator, Mapping

    from numpy.typing import NDArray

    from foliot.clock import HostClock
    from foliot_probe.core.measure.stamp_window import WindowPart
    from foliot_probe.core.rate.delay_density import DelayDensity
    from foliot_probe.core.stream_table import StreamEnds
    from foliot_probe.engine import Engine
    from foliot_probe.nic_clocks import NicWindow
    from foliot_probe.packet_loop import Report, SilenceChanges
    from foliot_probe.settings import ProbeSettings
    from foliot_schemas import ClockState, HostLoad

_STREAMS_PER_BATCH = 512
"""Each has two rows, and by the rules of the wire a batch has 1,024 rows at most."""
_FEW = 3
"""Streams in a batch of those that idle. Readers remember the paths of a node's regular report, and not those of so
short a one (`foliot.report_rows`)."""
_JUST_NS = 500_000_000
"""A path that idles is told of if it was heard so shortly before. A row that says that nothing was heard for a second
is the word of a silence."""
_MILLISECOND_NS = 1_000_000
_USUAL_NS = np.array([LEAST_TOLERANCE_NS[kind] for kind in KINDS])
"""How well stamps of each kind repeat, until sync has measured it."""
_SPEECHLESS = 5
"""After so many windows without a word of sync about any clock, nobody reads the measurements."""


class _Stamping:
    """Which ends of each row are stamped by their NICs, as the last report had it."""

    def __init__(self, rows: int) -> None:
        self.own = np.zeros(rows, np.bool_)
        self.peer = np.zeros(rows, np.bool_)

    def take(self, found: Report) -> NDArray[np.intp]:
        """The rows of which either end has changed."""
        own, peer = found.own_kind == HARDWARE, found.peer_kind == HARDWARE
        changed = np.flatnonzero((own != self.own) | (peer != self.peer))
        self.own, self.peer = own, peer
        return changed


class Reporter:
    """Turns what the engine found into messages. Every time given to it is monotonic, as the engine's."""

    def __init__(self, engine: Engine, clock: HostClock, settings: ProbeSettings, now_ns: int) -> None:
        self._engine = engine
        self._clock = clock
        self._node = engine.table.own.name
        rows = len(engine.table)
        self._own, self._peers = References(rows), References(rows)
        self._stamping = _Stamping(rows)
        self._states: dict[str, ClockState] = {}
        self._window = StampWindow(LAYERS)
        self._accuracy_ns = settings.accuracy_ns
        self._speechless = 0
        self._interval_ns = settings.delay_interval_ms * _MILLISECOND_NS
        self._reported_ns = now_ns
        self._since_ns = clock.local_ns()
        self._late_ns = 0
        self._named: tuple[tuple[str, ...], bytes] = (), b""
        """Of which rows `_names` are the paths."""
        self._names: tuple[str, ...] = ()
        self.tcp_clock: Callable[[], MonotonicOffset] = MonotonicOffset
        """Tells the clock of this host's TCP."""
        self.nic_windows: Callable[[], Iterable[NicWindow]] = tuple
        """Tells the readings of the clocks in this host's NICs."""
        self._strange: set[str] = set()

    def set_clock(self, state: ClockState) -> None:
        """Take what sync says of a clock."""
        self._states[state.clock] = state
        self._speechless = 0
        for row in self._engine.table.rows.values():
            ends = self._clocked(row)
            if ends.own_clock == state.clock:
                self._own.set(row, state)
            if ends.peer_clock == state.clock:
                self._peers.set(row, state)

    def begin(self, rows: list[int]) -> None:
        """Streams have begun in these rows."""
        for columns in (self._own, self._peers, self._stamping):
            enlarge(columns, len(self._engine.table))
        for row in rows:
            self._stamping.own[row] = self._stamping.peer[row] = False
            self._refer(row)

    def _refer(self, row: int) -> None:
        """Reads the stamps of a row by what sync says of its clocks."""
        ends = self._clocked(row)
        for references, clock in ((self._own, ends.own_clock), (self._peers, ends.peer_clock)):
            references.set(row, self._states.get(clock))
            if clock not in self._states and is_nic_clock(clock):
                self._strange.add(clock)

    def take_strange_clocks(self) -> set[str]:
        """Clocks in NICs that stamp by now, and of which sync's word is still to be heard, since the last call."""
        strange, self._strange = self._strange, set()
        return strange

    def _take_stamping(self, found: Report) -> Report:
        """Takes note of ends that are stamped by another clock than before.

        Their probes of this report and of the window are left out, as they may be by either.
        """
        changed = self._stamping.take(found)
        if not len(changed):
            return found
        for row in changed.tolist():
            self._window.forget(row)
            if self._engine.table.ends[row] is not None:
                self._refer(row)
        outgoing, incoming = (each.take(~np.isin(each.row, changed)) for each in (found.outgoing, found.incoming))
        return found._replace(outgoing=outgoing, incoming=incoming)

    def end(self, rows: list[int]) -> None:
        """The streams of these rows have ended."""
        for row in rows:
            self._window.forget(row)

    def late(self, late_ns: int) -> None:
        """Note how much later than due a step of the probe came, or how long it took."""
        self._late_ns = max(self._late_ns, late_ns)

    def silence(self, changes: SilenceChanges) -> DelayBatch:
        """The message about paths that have just fallen silent or speak again."""
        paths = tuple(self._ends(int(row)).incoming for row in (*changes.fell, *changes.again))
        last_ns = self._reference(changes.heard_last_ns)
        fell = zip(changes.fell.tolist(), last_ns.tolist(), strict=False)  # those that speak again come after them
        since_ns = np.array([self._sent_since_ns(row, last) for row, last in fell], np.int64)
        rows = silence_rows(changes.fell, changes.again, last_ns, changes.heard_sequence, since_ns)
        header = self._header(changes.listened_ns)
        return DelayBatch.of(rows, paths=paths, interval_ns=self._interval_ns, **header)

    def _sent_since_ns(self, row: int, last_ns: int) -> int:
        """See `sent_since_ns`: by the stamps in probes of the same node's other paths, where its clock is known."""
        engine, peer = self._engine, self._ends(row).key.peer
        others = [each for key, each in engine.table.rows.items() if key.peer == peer and each != row]
        stamped = engine.packets.stamps_of(np.array(others, np.intp))
        left_ns, sure = self._peers.columns.read(stamped.row, stamped.transmit_ns)
        interval_ns = int(engine.packets.promised_us()[row]) * 1_000
        return sent_since_ns(last_ns, interval_ns, left_ns[sure]) if self._clock.bound_ns() >= 0 else 0

    def delays(self, now_ns: int, host: HostLoad | None = None) -> Iterator[DelayBatch]:
        """The messages about all paths since the last call; the first tells the host's load, if there is one."""
        engine = self._engine
        found = self._take_stamping(engine.packets.take_report())
        self._window.add(found.outgoing, found.incoming)
        known = one_way_ns(found.incoming, self._own, self._peers)
        source = SourceColumns(found.sent, found.left_ns, found.left_sequence, found.unsent)
        destination = DestinationColumns(
            found.proven,
            found.received,
            *digest(*known, len(engine.table)),
            found.heard_last_ns,
            found.heard_sequence,
            found.full_proven,
            found.full_received,
            found.full_bytes,
        )
        shift_ns = self._shift_ns()
        header = self._header(found.listened_ns)
        header["interval_ns"], self._reported_ns = now_ns - self._reported_ns, now_ns
        self._late_ns = 0
        regular, idle_heard, told = self._split(found)
        paths = self._paths_of(regular)
        for first in range(0, len(regular), _STREAMS_PER_BATCH):
            stop = first + _STREAMS_PER_BATCH
            rows = regular[first:stop]
            yield DelayBatch(
                columns=interval_columns(rows, told, source, destination, shift_ns),
                histogram=pack(count_rows(rows, *known, len(engine.table))),
                paths=paths[2 * first : 2 * stop],
                host=host if first == 0 else None,
                **header,
            )
        if not len(idle_heard):
            return
        incoming = np.broadcast_to(np.array([False, True]), (len(engine.table), 2))
        for first in range(0, len(idle_heard), _FEW):
            rows = idle_heard[first : first + _FEW]
            yield DelayBatch(
                columns=interval_columns(rows, incoming, source, destination, shift_ns),
                histogram=pack(count_rows(rows, *known, len(engine.table))),
                paths=tuple(path for row in rows for path in self._ends(int(row))[1:3]),
                **header,
            )

    def _split(self, found: Report) -> tuple[NDArray[np.intp], NDArray[np.intp], NDArray[np.bool_] | None]:
        """The live rows that a regular report has, and those that idle both ways and were heard just now.

        With them comes which paths of each row of the table are told, the outgoing and the incoming; None: all.
        """
        live, (idle_out, idle_in) = self._engine.table.live, self._engine.idle()
        if not (idle_out.any() or idle_in.any()):
            return live, live[:0], None
        idle = (idle_out & idle_in)[live]
        just_heard = (found.received > 0) & (found.listened_ns - found.heard_last_ns < _JUST_NS)
        told = np.stack([~idle_out, ~idle_in | just_heard], axis=1)
        return live[~idle], live[idle & just_heard[live]], told

    def _paths_of(self, rows: NDArray[np.intp]) -> tuple[str, ...]:
        """The outgoing and the incoming path of each of these live rows, in turn."""
        table = self._engine.table
        if len(rows) == len(table.live):
            return table.paths
        named = table.paths, rows.tobytes()
        if self._named != named:
            self._named = named
            self._names = tuple(path for row in rows.tolist() for path in self._ends(row)[1:3])
        return self._names

    def stamps(self) -> Iterator[StampBatch | None]:
        """Close the window since the last call, a little with each step of the iterator.

        Probes that completed after the last `delays` belong to the next window. A step that yields None has only got
        further. All batches come at the end, because the reader takes the first one as the sign that the node has
        spoken.
        """
        since_ns, self._since_ns = self._since_ns, self._clock.local_ns()
        tilt = expected(self._own, self._peers, self._now_ns())
        header = {
            "node": self._node,
            "since_ns": since_ns,
            "until_ns": self._since_ns,
            "epoch_ns": self._clock.epoch_ns(),
            "tolerated": LAYERS,
            **kernel_utc()._asdict(),
            **self.tcp_clock()._asdict(),
        }
        meshed = self._engine.demand.meshed.copy()  # of other streams sync hears nothing
        ends = [
            self._clocked(row) if wanted and each is not None else None
            for row, (each, wanted) in enumerate(zip(self._engine.table.ends, meshed.tolist(), strict=True))
        ]
        probes = self._window.take()
        density = densities(probes, meshed, self._own, self._peers)
        parts = self._window.close(probes, ends, self._kinds(), tilt)
        return self._steps(density, parts, header)

    def _now_ns(self) -> NDArray[np.int64]:
        """The window's end by the own clock of each row."""
        return self._since_ns + np.where(self._stamping.own, self._engine.shift_ns(), 0)

    def _kinds(self) -> NDArray[np.int64]:
        """The worse kind of stamp of each row's two ends, as the last report had it."""
        kinds = self._engine.packets.kinds()
        return np.where(self._stamping.own & self._stamping.peer, HARDWARE, np.maximum(kinds, KERNEL))

    def _of_nics(self) -> tuple[tuple[Stream, ...], NDArray[Any]]:
        """The readings of the clocks in NICs, as streams between the host's clock and theirs."""
        streams: list[Stream] = []
        rows = [np.zeros(0, StampRow)]
        for nic, readings in self.nic_windows():
            own, its = References(1), References(1)
            own.set(0, self._states.get(nic.clock))
            its.set(0, self._states.get(nic_clock_name(nic.name)))
            slopes = expected(own, its, self._since_ns)
            table = np.zeros(2 * len(readings), StampRow)
            table["stream"] = len(streams)
            table["direction"] = np.arange(len(table)) % 2
            table["transmit_ns"] = [at_ns for each in readings for at_ns in (each.before_ns, each.nic_ns)]
            table["receive_ns"] = [at_ns for each in readings for at_ns in (each.nic_ns, each.after_ns)]
            rows.append(table)
            streams.append(
                Stream(
                    path=str(Path(nic.name, nic.name, 0)),
                    initiator=nic.clock,
                    responder=nic_clock_name(nic.name),
                    kind=KINDS[KERNEL],
                    least_ppb=float(slopes.least[0]) * 1e9,
                    most_ppb=float(slopes.most[0]) * 1e9,
                )
            )
        return tuple(streams), np.concatenate(rows)

    def _steps(
        self,
        density: Generator[None, None, DelayDensity],
        parts: Iterator[WindowPart | None],
        header: Mapping[str, Any],
    ) -> Iterator[StampBatch | None]:
        found = yield from density
        self._pace(found)
        yield None
        streams, rows = self._of_nics()
        if streams:
            yield StampBatch.of(rows, streams=streams, **header)
        for part in parts:
            yield None if part is None else StampBatch.of(part.rows, streams=part.streams, **header)

    def _pace(self, density: DelayDensity) -> None:
        """Probe the mesh as often as the window shows to be needed."""
        engine = self._engine
        gone = np.flatnonzero(~density.heard)
        density = density.of(len(engine.table))  # peers may have come meanwhile
        engine.packets.forget_wishes(gone)  # a peer that is gone wants nothing
        self._speechless += 1
        trusted = self._own.valid(self._now_ns()) & self._peers.known
        repeatable = repeatable_ns(self._own, self._peers, _USUAL_NS[self._kinds()])
        wanted_ns = np.maximum(repeatable, self._accuracy_ns)
        engine.demand.judge(Sight(density, wanted_ns, trusted, self._speechless <= _SPEECHLESS))

    def _ends(self, row: int) -> StreamEnds:
        ends = self._engine.table.ends[row]
        assert ends is not None
        return ends

    def _clocked(self, row: int) -> StreamEnds:
        """The ends of a row, with the clocks that stamp them."""
        return self._ends(row).stamped_by(
            own_nic=bool(self._stamping.own[row]), peer_nic=bool(self._stamping.peer[row])
        )

    def _header(self, listened_ns: int) -> dict[str, Any]:
        """The fields that every batch of delays has. Its time is that of the last reading of the sockets."""
        return {
            "node": self._node,
            "at_ns": listened_ns + self._shift_ns(),
            "bound_ns": self._clock.bound_ns(),
            "late_ns": self._late_ns,
            "every_ns": self._interval_ns,
        }

    def _reference(self, local_ns: NDArray[np.int64]) -> NDArray[np.int64]:
        """Recent local times as reference times, as far as known; 0 stays 0."""
        return np.where(local_ns == 0, 0, local_ns + self._shift_ns())

    def _shift_ns(self) -> int:
        """Reference time minus local time, now."""
        return self._clock.now_ns() - self._clock.local_ns()
