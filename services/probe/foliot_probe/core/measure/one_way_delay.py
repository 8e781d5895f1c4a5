"""One-way delays by the clocks of both ends, and their rows per path and interval."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from foliot import native
from foliot_schemas import DelayCount, DelayRow, Witness
from foliot_schemas.columns import pack
from foliot_schemas.delay_buckets import BEGINS_NS, BUCKETS

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from foliot_probe.core.measure.sessions import Completed
    from foliot_schemas import ClockState

    Rows = NDArray[np.intp]
    Times = NDArray[np.int64]

_HOUR_NS = 3_600_000_000_000
_NEXT_TICK = 0.75
"""A probe that left so much of an interval after another was heard, left in a later tick: a tick's probes leave within
milliseconds, and no clock that is synchronised is off by as much."""
_NEVER = -(1 << 62)
_WALKED = 3.5
"""A random walk adds so much to the rate in four seconds, as a multiple of what it adds to the offset in one.

By then sync's next state has come.
"""
_MOST = {name: np.iinfo(DelayRow[name]).max for name in DelayRow.names or ()}
"""The most that a row can say in each column."""
_MOST_PROBES = np.iinfo(DelayCount["probes"]).max
"""A stream remembers fewer probes than that (`sessions.DEPTH`)."""
_TRUSTED = frozenset({"synchronised", "holdover"})


class ReferenceColumns(NamedTuple):
    """Of each row, the state of one end's clock: what turns a local time into a reference time."""

    offset_ns: Times
    as_of_ns: Times
    rate: NDArray[np.float64]
    void_after_ns: Times

    def read(self, row: Rows, local_ns: Times) -> tuple[Times, NDArray[np.bool_]]:
        """The reference times of stamps in local time (`ClockState.reference_ns`), and which of them are known."""
        age_ns = local_ns - self.as_of_ns[row]
        drifted_ns = np.rint(age_ns * self.rate[row]).astype(np.int64)
        return local_ns + self.offset_ns[row] + drifted_ns, local_ns <= self.void_after_ns[row]


class SourceColumns(NamedTuple):
    """What the sending end says of each row of the table: columns of `DelayRow`. `last_ns` is local time."""

    sent: NDArray[np.int64]
    last_ns: Times
    sequence: NDArray[np.int64]
    unsent: NDArray[np.int64]


class DestinationColumns(NamedTuple):
    """The same of the receiving end."""

    sent: NDArray[np.int64]
    received: NDArray[np.int64]
    least_ns: Times
    median_ns: Times
    p99_ns: Times
    last_ns: Times
    sequence: NDArray[np.int64]
    full_sent: NDArray[np.int64]
    full_received: NDArray[np.int64]
    full_bytes: NDArray[np.int64]


class References:
    """The states of one end's clocks, per row. They turn its local times into reference times."""

    def __init__(self, rows: int) -> None:
        self._offset_ns = np.zeros(rows, np.int64)
        self._as_of_ns = np.zeros(rows, np.int64)
        self.rate = np.zeros(rows)
        """The gain of the reference on the clock, in ns per ns."""
        self.growth = np.zeros(rows)
        """The largest error of `rate`."""
        self.noise_ns = np.zeros(rows)
        """How well the clock's stamps repeat, as sync has measured it; 0: it has not."""
        self._void_after_ns = np.full(rows, _NEVER, np.int64)

    @property
    def known(self) -> NDArray[np.bool_]:
        """The rows with a state."""
        return self._void_after_ns > _NEVER

    def valid(self, local_ns: int | Times) -> NDArray[np.bool_]:
        """The rows whose state still holds at a local time of their clocks: of all, or one each."""
        return self._void_after_ns >= local_ns

    def set(self, row: int, state: ClockState | None) -> None:
        """Take what sync says of a row's clock; None, or a clock that is not synchronised: nothing is known."""
        if state is None or state.status not in _TRUSTED:
            self._void_after_ns[row] = _NEVER
            return
        self._offset_ns[row] = state.offset_ns
        self.rate[row] = state.drift_ppb * 1e-9
        self.growth[row] = (state.growth_ppb + _WALKED * state.wander_ppb) * 1e-9
        self.noise_ns[row] = state.stamp_noise_ns
        self._as_of_ns[row] = state.as_of_ns
        self._void_after_ns[row] = state.void_after_ns

    @property
    def columns(self) -> ReferenceColumns:
        """What turns local times into reference times."""
        return ReferenceColumns(self._offset_ns, self._as_of_ns, self.rate, self._void_after_ns)


def one_way_ns(heard: Completed, own: References, peers: References) -> tuple[Rows, Times]:
    """The one-way delays of the probes heard for which both ends are synchronised, with their rows.

    A delay that the clocks' errors made negative is given as it is. One beyond an hour comes of no clock's error, and
    is left out.
    """
    return _one_way_ns((heard.row, heard.transmit_ns, heard.receive_ns), peers.columns, own.columns, _HOUR_NS)


def one_way_ns_by_numpy(
    probes: tuple[Rows, Times, Times], sender: ReferenceColumns, receiver: ReferenceColumns, within_ns: int
) -> tuple[Rows, Times]:
    """The twin of `foliot_native.delays.one_way_ns`."""
    row, transmit_ns, receive_ns = probes
    left_ns, sure = sender.read(row, transmit_ns)
    came_ns, sure_too = receiver.read(row, receive_ns)
    delay_ns = came_ns - left_ns
    known = sure & sure_too & (delay_ns > -within_ns) & (delay_ns < within_ns)
    return row[known], delay_ns[known]


def digest(row: Rows, delay_ns: Times, rows: int) -> tuple[Times, Times, Times]:
    """Least, median and 99th percentile (ns) per row, as columns of `DelayRow`; 0 where there was none.

    They are by nearest rank: each is a delay that was seen.
    """
    return _digest(row, delay_ns, rows)


def digest_by_numpy(row: Rows, delay_ns: Times, rows: int) -> tuple[Times, Times, Times]:
    """The twin of `foliot_native.delays.digest`."""
    order = np.lexsort((delay_ns, row))
    row, delay_ns = row[order], delay_ns[order]
    start, count = _runs(row)
    least, median, p99 = np.zeros((3, rows), np.int64)
    for column, rank in ((least, 0), (median, (count - 1) // 2), (p99, (count * 99 - 1) // 100)):
        column[row[start]] = delay_ns[start + rank]
    return least, median, p99


def _runs(ordered: NDArray[np.integer[Any]]) -> tuple[Rows, Rows]:
    """Where each value of an ordered column begins, and how often it is there: `numpy.unique` without its overhead."""
    bounds = np.flatnonzero(np.concatenate(([len(ordered) > 0], ordered[1:] != ordered[:-1], [True])))
    return bounds[:-1], bounds[1:] - bounds[:-1]


def count_rows(rows: Rows, row: Rows, delay_ns: Times, table_rows: int) -> NDArray[Any]:
    """The delays of the incoming paths of some streams, counted by path and bucket (`DelayCount`).

    A path without delays has no row. Paths are numbered as in `interval_rows`.

    Parameters:
        rows: the streams.
        row, delay_ns: the stream and the value of each delay; those of other streams are left out.
        table_rows: the number of rows of the table of streams.
    """
    stream, bucket, probes = _count_by_bucket(rows, row, delay_ns, table_rows, BEGINS_NS)
    table = np.zeros(len(stream), DelayCount)
    table["path"], table["bucket"] = 2 * stream + 1, bucket
    table["probes"] = np.minimum(probes, _MOST_PROBES)
    return table


def count_by_bucket_by_numpy(
    rows: Rows, row: Rows, delay_ns: Times, table_rows: int, begins_ns: Times
) -> tuple[Rows, NDArray[np.uint8], Times]:
    """The twin of `foliot_native.delays.count_by_bucket`."""
    place = np.full(table_rows, -1)
    place[rows] = np.arange(len(rows))
    stream = place[row]
    keys = np.sort((stream * BUCKETS + np.searchsorted(begins_ns, delay_ns, side="right"))[stream >= 0])
    start, probes = _runs(keys)
    stream, bucket = np.divmod(keys[start], BUCKETS)
    return stream, bucket.astype(np.uint8), probes


def interval_columns_by_numpy(
    rows: Rows, told: NDArray[np.bool_] | None, source: SourceColumns, destination: DestinationColumns, shift_ns: int
) -> tuple[bytes, ...]:
    """The twin of `foliot_native.delays.interval_columns`."""
    table = np.zeros(2 * len(rows), DelayRow)
    table["path"] = np.arange(len(table))
    ends: tuple[SourceColumns | DestinationColumns, ...] = (source, destination)
    for witness, said in enumerate(ends):
        part = table[witness::2]
        part["witness"] = witness
        for name, column in said._asdict().items():
            part[name] = np.minimum(column[rows], _MOST[name])
    table["last_ns"] = np.where(table["last_ns"] == 0, 0, table["last_ns"] + shift_ns)
    if told is not None:
        table = table[told[rows].ravel()]
    return tuple(pack(table).values())


_compiled = native.compiled("delays")
_one_way_ns: Callable[[tuple[Rows, Times, Times], ReferenceColumns, ReferenceColumns, int], tuple[Rows, Times]] = (
    _compiled.one_way_ns if _compiled else one_way_ns_by_numpy
)
_digest: Callable[[Rows, Times, int], tuple[Times, Times, Times]] = _compiled.digest if _compiled else digest_by_numpy
_count_by_bucket: Callable[[Rows, Rows, Times, int, Times], tuple[Rows, NDArray[np.uint8], Times]] = (
    _compiled.count_by_bucket if _compiled else count_by_bucket_by_numpy
)
_interval_columns: Callable[
    [Rows, NDArray[np.bool_] | None, SourceColumns, DestinationColumns, int], tuple[bytes, ...]
] = _compiled.interval_columns if _compiled else interval_columns_by_numpy


def interval_columns(
    rows: Rows, told: NDArray[np.bool_] | None, source: SourceColumns, destination: DestinationColumns, shift_ns: int
) -> dict[str, bytes]:
    """The columns (`DelayRow`) of these streams' rows.

    Of each, its outgoing path as source and its incoming path as destination. Stream i of `rows` gets the paths 2i and
    2i + 1.

    Parameters:
        told: which of both paths of each row of the table have a row; None: all have.
        source, destination: what each witness says of each row of the table.
        shift_ns: reference time minus local time.
    """
    names = DelayRow.names or ()
    return dict(zip(names, _interval_columns(rows, told, source, destination, shift_ns), strict=True))


def sent_since_ns(last_ns: int, interval_ns: int, left_ns: Times) -> int:
    """How long after a path was heard last its sender had sent on others when a further probe of it was due.

    A sender sends all that is due in one tick. So a probe of another path that left in a later tick shows that one of
    this path was sent by then, or should have been. 0: no departure shows it.

    Parameters:
        last_ns: when the path was heard last, by reference time. Its probe left before.
        interval_ns: the time between two of its probes.
        left_ns: departures of the sender's probes on other paths, by reference time.
    """
    later = left_ns[left_ns > last_ns + _NEXT_TICK * interval_ns]
    return int(later.min()) - last_ns if len(later) else 0


def silence_rows(
    fell: Rows, again: Rows, heard_last_ns: Times, heard_sequence: NDArray[np.int64], since_ns: Times
) -> NDArray[Any]:
    """The rows of incoming paths that have just fallen silent, then of those that speak again; paths in this order.

    So are the columns `heard_last_ns` and `heard_sequence`. Of those that fell, `since_ns` is as `sent_since_ns` says.
    """
    table = np.zeros(len(fell) + len(again), DelayRow)
    table["path"] = np.arange(len(table))
    table["witness"] = np.repeat((Witness.FELL_SILENT, Witness.SPEAKS_AGAIN), (len(fell), len(again)))
    table["least_ns"][: len(fell)] = since_ns
    table["last_ns"] = heard_last_ns
    table["sequence"] = heard_sequence
    return table
