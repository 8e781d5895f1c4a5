"""The stamps of a window, filtered and pruned to those that can decide a fit, in batches of whole streams."""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from foliot_probe.core.measure.coded_pairs import LEAST_TOLERANCE_NS, SIEVED, CodedPairs
from foliot_probe.core.measure.hull_pruning import prune
from foliot_probe.core.measure.near_floor import near_floor
from foliot_probe.core.measure.sessions import joined
from foliot_probe.core.packet import KINDS
from foliot_schemas import StampRow
from foliot_schemas.observation import Stream

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from foliot_probe.core.measure.sessions import Completed
    from foliot_probe.core.measure.slope_range import SlopeRange
    from foliot_probe.core.stream_table import StreamEnds

    Rows = NDArray[np.intp]

LAYERS = 10
"""Layers of points to keep: sync looks at so many least delays.

They tell a wrong stamp from a quick probe, and show how dense delays are.
"""
MOST_ROWS = 1_024
"""Most rows of a batch, by the rules of the wire."""

_FORTH, _BACK = 0, 1
_LEAST_PURE = 4
"""Pairs of a window that must look pure before they count as pure.

Where queues are long, two probes wait equally long by chance now and then.
"""
_LEAST_SHARE = 0.05
"""The same, as a share of all probes."""
_PROBES_A_STEP = 3_200
"""Probes to prune in a step, if all its streams had as many as the longest. In ten layers, they take 1 to 4 ms of a slow
core. Half as many cost nearly as much, so that small steps would cost more in all."""
_LEAST_NS = np.array([LEAST_TOLERANCE_NS[kind] for kind in KINDS])
_SIEVED = np.array([SIEVED[kind] for kind in KINDS])


def window_number(node: str, now_ns: int, window_ns: int) -> int:
    """The number of a node's window at a reference time.

    All windows end within a tenth of a window, but not all at once.
    """
    return (now_ns - zlib.crc32(node.encode()) % (window_ns // 10)) // window_ns


class WindowPart(NamedTuple):
    """The content of one batch."""

    streams: tuple[Stream, ...]
    rows: NDArray[Any]
    """The points, of dtype `StampRow`."""


def _slices(row: Rows) -> Iterator[slice]:
    """Slices of the points, each of some streams; the points of a stream are together."""
    first = np.flatnonzero(np.diff(row, prepend=-1))
    longest = int(np.diff(first, append=len(row)).max(initial=1))
    first = first[:: max(1, _PROBES_A_STEP // longest)]
    yield from map(slice, first.tolist(), (*first[1:].tolist(), len(row)))


class StampWindow:
    """Collects the completed probes of streams that the node initiates.

    When it is closed, `tolerated` layers of points are kept.
    """

    def __init__(self, tolerated: int) -> None:
        self._tolerated = tolerated
        self._coded = CodedPairs()
        self._parts: tuple[list[Completed], list[Completed]] = ([], [])

    def add(self, forth: Completed, back: Completed) -> None:
        """Take in probes completed on the outgoing and on the incoming paths."""
        self._parts[_FORTH].append(forth)
        self._parts[_BACK].append(back)

    def forget(self, row: int) -> None:
        """A stream ended; its row may become another's within the window."""
        for parts in self._parts:
            parts[:] = [part.take(part.row != row) for part in parts]

    def take(self) -> Sequence[Sequence[Completed]]:
        """The probes of the window; a new one begins at once."""
        probes, self._parts = self._parts, ([], [])
        return probes

    def close(
        self,
        probes: Sequence[Sequence[Completed]],
        ends: Sequence[StreamEnds | None],
        kinds: NDArray[np.integer[Any]],
        tilt: SlopeRange,
    ) -> Iterator[WindowPart | None]:
        """Closes a window, a little with each step of the iterator.

        Sifting and pruning all streams of a node with many peers takes longer than a probe may be late. A step that
        yields None has only got further.

        Parameters:
            ends: both ends of each row's stream at the window's end.
            kinds: the worse kind of stamp of each row's two ends (index of `KINDS`).
            tilt: the range of slopes of each row's line.
        """
        initiated = np.array([each is not None and each.initiator for each in ends])
        sifted: list[tuple[Completed, NDArray[np.intp]]] = []
        for completed in probes:
            sifted.append(self._sift(completed, initiated, kinds))
            yield None
        near = near_floor([chosen.take(~_SIEVED[kinds[chosen.row]]) for chosen, _ in sifted], tilt)
        yield None
        pruned: list[tuple[Rows, NDArray[Any]]] = [(np.zeros(0, np.intp), np.zeros(0, StampRow))]
        for direction, (chosen, _) in enumerate(sifted):
            for some in _slices(chosen.row):
                kept = chosen.take(some)
                kept = kept.take(prune(kept, back=direction == _BACK, tilt=tilt, layers=self._tolerated))
                pruned.append((kept.row, _points(direction, kept)))
                yield None
        row = np.concatenate([rows for rows, _ in pruned])
        order = np.argsort(row, kind="stable")
        points = np.concatenate([each for _, each in pruned])[order]
        present, sizes = np.unique(row, return_counts=True)
        streams: list[Stream] = []
        first = stop = 0
        for each, size in zip(present.tolist(), sizes.tolist(), strict=True):
            if stop > first and stop + size - first > MOST_ROWS:
                yield WindowPart(tuple(streams), points[first:stop])
                streams, first = [], stop
            points["stream"][stop : stop + size] = len(streams)
            stop += size
            pure = [int(pairs[each]) for _, pairs in sifted]
            close = [int(counts[each]) for counts in near]
            slopes = float(tilt.least[each]), float(tilt.most[each])
            streams.append(_stream(ends[each], int(kinds[each]), pure, close, slopes))
        if streams:
            yield WindowPart(tuple(streams), points[first:stop])

    def _sift(
        self, parts: Sequence[Completed], initiated: NDArray[np.bool_], kinds: NDArray[np.integer[Any]]
    ) -> tuple[Completed, NDArray[np.intp]]:
        """Sifts a direction: of stamps that can be too early, pure pairs of each stream with enough of them; else all.

        They are ordered by row. With them come the pure pairs of each row of the table; 0: it has too few.
        """
        done = joined(parts)
        done = done.take(initiated[done.row])
        sieved = np.flatnonzero(_SIEVED[kinds[done.row]])
        doubtful = done.take(sieved)
        pure = np.zeros(len(done.row), np.bool_)
        pure[sieved] = self._coded.sift(*doubtful, _LEAST_NS[kinds[doubtful.row]])
        purely = np.bincount(done.row[pure], minlength=len(initiated))
        every = np.bincount(done.row, minlength=len(initiated))
        purely[purely < np.maximum(_LEAST_PURE, _LEAST_SHARE * every)] = 0
        chosen = np.flatnonzero(np.where(purely[done.row] > 0, pure, True))
        return done.take(chosen[np.argsort(done.row[chosen], kind="stable")]), purely


def _points(direction: int, kept: Completed) -> NDArray[Any]:
    """The points as the batch has them, of dtype `StampRow`."""
    points = np.zeros(len(kept.row), StampRow)
    points["direction"] = direction
    points["transmit_ns"], points["receive_ns"] = kept.transmit_ns, kept.receive_ns
    return points


def _stream(
    ends: StreamEnds | None, kind: int, pure: Sequence[int], near: Sequence[int], slopes: tuple[float, float]
) -> Stream:
    assert ends is not None
    return Stream(
        path=ends.outgoing,
        initiator=ends.own_clock,
        responder=ends.peer_clock,
        kind=KINDS[kind],
        pure_forth=pure[0],
        pure_back=pure[1],
        near_forth=near[0],
        near_back=near[1],
        least_ppb=slopes[0] * 1e9,
        most_ppb=slopes[1] * 1e9,
    )
