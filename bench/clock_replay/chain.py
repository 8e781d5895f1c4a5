"""Foliot's own code at work on a recording: the probe's window of stamps, then sync.

Sync's word on the clocks goes back to the probe.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from bench.clock_replay.tools import Said
from foliot_probe.core.measure.one_way_delay import References
from foliot_probe.core.measure.sessions import Completed
from foliot_probe.core.measure.slope_range import SlopeRange, expected
from foliot_probe.core.measure.stamp_window import StampWindow
from foliot_probe.core.packet import KINDS
from foliot_probe.core.stream_table import StreamEnds, StreamKey
from foliot_schemas import StampBatch
from foliot_sync.core.synchroniser import Synchroniser

if TYPE_CHECKING:
    from bench.clock_replay.recording import Direction, Window
    from foliot_schemas import ClockState
    from foliot_schemas.observation import StampKind
    from foliot_sync.settings import SyncSettings

_TOLERATED = 10
"""Layers that a probe keeps, as it is set by default."""
_BEGIN_NS = 3_600_000_000_000
"""Local time of the first stamp of either clock: hosts have run for a while."""
_EPOCH_NS = 1_700_000_000_000_000_000
_ARRIVES_NS = 10_000_000
_LATE_NS = 50_000_000
"""After the last node's batch; nodes end their windows within a tenth of one."""
_PROMISING = frozenset({"synchronised", "holdover"})


def said_ns(until_ns: int, window_ns: int) -> int:
    """When sync speaks of a window that ended then: as in a fleet, whose nodes do not end theirs at once."""
    return until_ns + window_ns // 10 + _LATE_NS


class Chain:
    """Two nodes, of which `a` initiates the one stream between them.

    Parameters:
        origin_ns: any time near the first one, by a's clock.
        window_ns: length of a window.
        kind: of stamps.
        settings: of sync.
    """

    def __init__(self, origin_ns: int, window_ns: int, kind: StampKind, settings: SyncSettings | None = None) -> None:
        self._shift_ns = _BEGIN_NS - origin_ns
        self._window_ns = window_ns
        self._kind = np.array([KINDS.index(kind)])
        self._stamps, self._sync = StampWindow(_TOLERATED), Synchroniser(settings)
        self._tilt = SlopeRange.unknown(1)
        self._counts = [0, 0]
        ends = StreamEnds(
            StreamKey("b", "rail0", 0), "a.rail0>b.rail0#0", "b.rail0>a.rail0#0", "a", "b", initiator=True
        )
        self._ends = [ends]

    def window(self, window: Window) -> Said:
        """Sync's offset after a window."""
        self._stamps.add(*(self._completed(number, each) for number, each in enumerate((window.forth, window.back))))
        until_ns = window.until_ns + self._shift_ns
        for part in filter(None, self._stamps.close(self._stamps.take(), self._ends, self._kind, self._tilt)):
            batch = StampBatch.of(
                part.rows, node="a", since_ns=window.since_ns + self._shift_ns, until_ns=until_ns, streams=part.streams,
                epoch_ns=_EPOCH_NS, tolerated=_TOLERATED,
            )  # fmt: skip
            self._sync.add(batch, until_ns + _ARRIVES_NS)
        states = {state.clock: state for state in self._sync.solve(said_ns(until_ns, self._window_ns))}
        self._hear(states, until_ns)
        return Said(lambda at_ns: self._claim(states, at_ns))

    def _completed(self, number: int, direction: Direction) -> Completed:
        """Probes by when they left, counted as a probe counts them: those sent shortly after each other are pairs."""
        count = len(direction.transmit_ns)
        sequence = np.arange(self._counts[number], self._counts[number] + count)
        self._counts[number] += count
        return Completed(
            np.zeros(count, np.intp),
            sequence,
            direction.transmit_ns + self._shift_ns,
            direction.receive_ns + self._shift_ns,
        )

    def _hear(self, states: dict[str, ClockState], now_ns: int) -> None:
        own, peers = References(1), References(1)
        own.set(0, states.get("a"))
        peers.set(0, states.get("b"))
        self._tilt = expected(own, peers, now_ns)

    def _claim(self, states: dict[str, ClockState], at_ns: int) -> tuple[float, float] | None:
        """B's clock less a's by what both nodes make of it at a time by a's clock, and the bound of that."""
        a, b = states.get("a"), states.get("b")
        if a is None or b is None or not {a.status, b.status} <= _PROMISING or at_ns + self._shift_ns > a.void_after_ns:
            return None
        common_ns = a.reference_ns(at_ns + self._shift_ns)
        local_ns: Any = at_ns + self._shift_ns
        # b's time is the one that its node reads as the common time; each step comes nearer by the clocks' rates.
        for _ in range(4):
            local_ns += common_ns - b.reference_ns(local_ns)
        return float(local_ns - self._shift_ns - at_ns), float(
            a.bound_at_ns(at_ns + self._shift_ns) + b.bound_at_ns(local_ns)
        )
