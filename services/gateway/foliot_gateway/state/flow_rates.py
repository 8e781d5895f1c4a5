"""What each flow gets now, and the best that it had, by what its sender's kernel counts."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from foliot.columns import NamedRows, blank, widen
from foliot.jobs import TALKS_NS
from foliot_schemas import FlowRow

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from foliot_gateway.state.cardinality_limit import CardinalityLimit
    from foliot_schemas import FlowBatch

_S = 1_000_000_000
_WINDOW = 4
"""Intervals of which a rate is. With two a second, one step of a job that has several is in them."""
_FRESH_NS = 3 * _S
"""A flow of which its sender tells nothing for longer has nothing to send."""
_MEMORY_NS = 600 * _S
"""A flow's best is of the last ten to twenty minutes, as the detector has it."""
_LEAST_BUSY = 0.2
"""Least share of the time for which a flow has data on its way where its rate counts as one that it can have."""
_FIRST_ROOM = 256
_NO_ROOM = -1


class FlowFigures(NamedTuple):
    """Some flows, now and at best. All columns have the shape (flows)."""

    rate_bps: NDArray[np.float64]
    """What each gets while it has data on its way; 0: it has had none lately."""
    usual_bps: NDArray[np.float64]
    """The best that it had; 0: nobody knows yet."""
    carried_bps: NDArray[np.float64]
    """What it gets, pauses included."""
    busy_share: NDArray[np.float64]
    """Share of the intervals in which it sent for which it had data on its way."""
    latest: NDArray[np.void]
    """Its last row, of dtype `FlowRow`."""
    at_ns: NDArray[np.int64]
    """End of the interval of that row, by its sender's reference time."""


class FlowRates:
    """Columns by flow, of the last intervals that its sender told. Times are of the gateway's clock.

    The flows of a job that works in step get the same on the whole: those that are done wait for the slowest. So a rate
    is of the time for which a flow had data on its way.
    """

    def __init__(self, limit: CardinalityLimit) -> None:
        self._limit = limit
        self._flows = NamedRows()
        self._numbers = self._flows.row_of
        self._acked_bits = np.zeros((_FIRST_ROOM, _WINDOW))
        self._busy_ns = np.zeros((_FIRST_ROOM, _WINDOW))
        self._interval_ns = np.zeros((_FIRST_ROOM, _WINDOW))
        """0: there is no such interval, at least not lately."""
        self._ended_ns = np.zeros((_FIRST_ROOM, _WINDOW), np.int64)
        self._next = np.zeros(_FIRST_ROOM, np.intp)
        self._told_ns = np.zeros(_FIRST_ROOM, np.int64)
        self._at_ns = np.zeros(_FIRST_ROOM, np.int64)
        self._best_bps = np.zeros((_FIRST_ROOM, 2))
        """Of this memory and the one before it."""
        self._latest = np.zeros(_FIRST_ROOM, FlowRow)
        self._turn_ns = 0

    def fold(self, batch: FlowBatch, now_ns: int) -> None:
        """Takes a node's word of its flows.

        Raises:
            ValueError: the batch's columns do not fit together.
        """
        rows = batch.rows()
        self._turn(now_ns)
        numbers = np.array([self._number(flow) for flow in batch.flows], np.intp)
        ids = numbers[rows["flow"]]
        if not (kept := ids != _NO_ROOM).all():
            rows, ids = rows.compress(kept), ids[kept]
        if not len(rows) or batch.interval_ns <= 0:
            return
        paused = ids[now_ns - self._told_ns[ids] > _FRESH_NS]
        self._acked_bits[paused] = self._busy_ns[paused] = self._interval_ns[paused] = 0.0
        place = self._next[ids]
        busy_ns = np.where(rows["busy_ns"] > 0, np.minimum(rows["busy_ns"], batch.interval_ns), batch.interval_ns)
        self._acked_bits[ids, place] = rows["acked_bytes"] * 8.0
        self._busy_ns[ids, place], self._interval_ns[ids, place] = busy_ns, batch.interval_ns
        self._ended_ns[ids, place] = now_ns
        self._next[ids] = (place + 1) % _WINDOW
        self._told_ns[ids], self._at_ns[ids], self._latest[ids] = now_ns, batch.at_ns, rows
        is_steady = (self._interval_ns[ids] > 0).all(axis=1) & (self._busy_share(ids) >= _LEAST_BUSY)
        self._best_bps[ids, 0] = np.maximum(self._best_bps[ids, 0], np.where(is_steady, self._rate_bps(ids), 0.0))

    def talking(self, now_ns: int) -> list[str]:
        """The flows of which their senders told within the last minute (see `foliot.jobs.TALKS_NS`)."""
        told_ns = self._told_ns
        return [flow for flow, number in self._numbers.items() if 0 < told_ns[number] >= now_ns - TALKS_NS]

    def of(self, flows: Sequence[str], now_ns: int) -> FlowFigures:
        """The figures of flows that were told.

        Raises:
            KeyError: one never was.
        """
        ids = np.array([self._numbers[flow] for flow in flows], np.intp)
        is_fresh = now_ns - self._told_ns[ids] <= _FRESH_NS
        return FlowFigures(
            rate_bps=np.where(is_fresh, self._rate_bps(ids), 0.0),
            usual_bps=self._best_bps[ids].max(axis=1),
            carried_bps=np.where(is_fresh, self._carried_bps(ids, now_ns), 0.0),
            busy_share=np.where(is_fresh, self._busy_share(ids), 0.0),
            latest=self._latest[ids],
            at_ns=self._at_ns[ids],
        )

    def _rate_bps(self, ids: NDArray[np.intp]) -> NDArray[np.float64]:
        bits = self._acked_bits[ids].sum(axis=1) * _S
        return np.asarray(bits / np.maximum(self._busy_ns[ids].sum(axis=1), 1.0), np.float64)

    def _carried_bps(self, ids: NDArray[np.intp], now_ns: int) -> NDArray[np.float64]:
        is_told = self._interval_ns[ids] > 0
        age_ns = np.where(is_told, now_ns - self._ended_ns[ids] + self._interval_ns[ids], 0.0).max(axis=1)
        return np.asarray(self._acked_bits[ids].sum(axis=1) * _S / np.maximum(age_ns, 1.0), np.float64)

    def _busy_share(self, ids: NDArray[np.intp]) -> NDArray[np.float64]:
        busy_ns, interval_ns = self._busy_ns[ids].sum(axis=1), self._interval_ns[ids].sum(axis=1)
        return np.asarray(busy_ns / np.maximum(interval_ns, 1.0), np.float64)

    def _turn(self, now_ns: int) -> None:
        if now_ns >= self._turn_ns:
            self._turn_ns = now_ns + _MEMORY_NS
            self._best_bps[:, 1] = self._best_bps[:, 0]
            self._best_bps[:, 0] = 0.0
            # Of flows that were not told in all of this memory, nothing is known any more.
            for flow in [flow for flow, row in self._numbers.items() if now_ns - self._told_ns[row] > _MEMORY_NS]:
                blank(self, self._flows.free(flow))

    def _number(self, flow: str) -> int:
        number = self._numbers.get(flow)
        if number is None:
            is_known = all(nic in self._limit.nics for nic in flow.split(">"))
            if not is_known and not self._limit.has_for(flow, self._numbers):
                return _NO_ROOM
            number = self._flows.take(flow)
            if number >= len(self._told_ns):
                widen(self, 2 * number)
        return number
