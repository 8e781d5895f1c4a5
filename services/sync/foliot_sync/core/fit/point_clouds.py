"""Builds clouds of points from batches of stamps: one direction per row, grouped by the two clocks."""

from __future__ import annotations

from itertools import chain
from operator import attrgetter
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from foliot import native
from foliot_schemas.observation import StampRow
from foliot_sync.core.arrays import take
from foliot_sync.core.fit.soft_margin import Sides
from foliot_sync.settings import NANOSECONDS

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from foliot_schemas.observation import StampBatch, Stream
    from foliot_sync.core.arrays import Floats, Ints, Mask

    BatchColumns = Sequence[tuple[bytes, ...]]
    """Of each batch, the columns of `StampRow` as they are on the wire."""

_SLACK_NS = NANOSECONDS
"""Stamps may lie this far outside what their batch says it covers: a probe under way when the window closed."""


NOISE_NS = {"hardware": 4.0, "kernel": 25.0, "user": 1_000.0}
"""How well stamps of a kind repeat, until a stream's windows have shown it. NICs' counters run at some hundred MHz.
Kernel stamps over veth vary by 31 ns between the median and p1. A process is woken when the machine likes."""
NOISE_RANGES_NS = {"hardware": (4.0, 8.0), "kernel": (6.0, 40.0), "user": (250.0, 2_000.0)}
"""The best and the worst that stamps of a kind are taken to repeat, whatever their windows show. Worse ones are good
for nothing, and queues have spread points that lie further apart. Better ones cannot be told from a few lucky points,
and what counts as a wrong stamp is measured by the noise."""
_FEWEST_NEAR = 4
"""Where fewer probes came near the quickest one, no queue was ever empty, and their number tells nothing."""
_LEAST_SHARE = 1e-3
"""No window has so many probes that one direction has more than a thousand times as many near its floor."""
_HOUR_NS = 3_600 * NANOSECONDS
_LIMITS = np.iinfo(np.int64)


class PointClouds(NamedTuple):
    """The streams of some windows, and the pairs of clocks they lie between (one pair per window and two clocks)."""

    sides: Sides
    """Two rows a stream: upper, then lower reflected."""
    share: Floats
    """Per side: of its probes near the floor, how many the sparser side of the stream has; nan: nobody knows."""
    paths: tuple[str, ...]
    """Path of each stream."""
    pair: Ints
    """Pair of each stream."""
    initiator: Ints
    """Per pair, as all columns that follow."""
    responder: Ints
    at_ns: Ints
    """Middle of the window in the initiator's local time: x = 0."""
    base_ns: Ints
    """Responder's minus initiator's local time at y = 0.

    It is near enough that a float holds the difference of any point.
    """
    least_ppb: Floats
    """For slopes from this to `most_ppb`, the clouds are whole. Beyond, only their outermost points are there."""
    most_ppb: Floats
    by_host: Mask
    """Whether processors of hosts take the stamps, and no NIC."""
    noise_ns: Floats
    """The noise of the pair's stamps."""
    least_noise_ns: Floats
    most_noise_ns: Floats

    def with_noise(self, noise_ns: Floats) -> PointClouds:
        """The clouds with the noise that each stream's windows have shown, in the mean of a pair's streams.

        nan: they have not.
        """
        known = np.isfinite(noise_ns)
        count = np.bincount(self.pair, weights=known, minlength=len(self.noise_ns))
        total = np.bincount(self.pair, weights=np.where(known, noise_ns, 0.0), minlength=len(self.noise_ns))
        seen = np.clip(total / np.maximum(count, 1.0), self.least_noise_ns, self.most_noise_ns)
        return self._replace(noise_ns=np.where(count > 0, seen, self.noise_ns))

    def residuals(self, slope: Floats) -> Floats:
        """The heights of each side's points above a line through the origin, one slope per pair.

        Inf where there is none.
        """
        residuals: Floats = self.sides.y - np.repeat(slope[self.pair], 2)[:, None] * self.sides.x
        return residuals

    def of(self, pairs: Mask) -> PointClouds:
        """The clouds of some pairs."""
        if pairs.all():
            return self
        streams = pairs[self.pair]
        sides = np.repeat(streams, 2)
        columns: Any = (column[pairs] for column in self[4:])
        paths = tuple(self.paths[stream] for stream in np.flatnonzero(streams))
        pair = (np.cumsum(pairs) - 1)[self.pair[streams]]
        return PointClouds(take(self.sides, sides), self.share[sides], paths, pair, *columns)


class _Streams(NamedTuple):
    """The streams of all batches, a row each."""

    starts: Ints
    """The number of each batch's first stream, and at last of all streams."""
    batch: Ints
    ends: Ints
    """Initiator and responder, one row each."""
    pair: Ints
    """Streams between the same two clocks in the same batch have the same number."""
    first: Ints
    """First stream of each pair."""


def gather(batches: Sequence[StampBatch], index: Callable[[str], int], tolerated_share: float) -> PointClouds | None:
    """The clouds of all streams that were heard in both directions; None if there are none.

    Parameters:
        batches: whose columns are known to fit together.
        index: the number of a clock, by name.
        tolerated_share: the share of a side's points that a line may ignore; a batch may have kept fewer.
    """
    every = [stream for batch in batches for stream in batch.streams]
    if not every:
        return None
    known = _streams(batches, every, index)
    foreign = (
        known.ends[0] != np.fromiter((index(batch.node) for batch in batches), np.int64, len(batches))[known.batch]
    )
    since_ns, until_ns = _columns(batches, ("since_ns", "until_ns"))
    # A NIC's own clock has another epoch than the host's, in which the batch says what it covers.
    limits = (
        np.where(foreign, _LIMITS.min, (since_ns - _SLACK_NS)[known.batch]),
        np.where(foreign, _LIMITS.max, (until_ns + _SLACK_NS)[known.batch]),
    )
    columns = [tuple([batch.columns[name] for name in StampRow.names or ()]) for batch in batches]
    counts, low_ns, high_ns = _extents(columns, known.starts, limits, known.pair, len(known.first))
    near = (until_ns - since_ns)[known.batch[known.first]] < _HOUR_NS
    # No window is longer, and no clock goes so wrong within one. Stamps that lie further apart were made up, and floats
    # cannot hold them well enough. Streams between the same two clocks are judged together, as they are fitted.
    near &= (high_ns.astype(np.float64) - low_ns.astype(np.float64) < _HOUR_NS).all(axis=0)
    # One direction alone bounds the offset, but does not estimate it.
    both = (counts[0::2] > 0) & (counts[1::2] > 0) & near[known.pair]
    if not both.any():
        return None

    # Streams keep their order, so a stream's row is its rank among those heard both ways.
    chosen = np.flatnonzero(both)
    is_used = np.bincount(known.pair[chosen], minlength=len(known.first)) > 0
    pairs, pair = np.flatnonzero(is_used), (np.cumsum(is_used) - 1)[known.pair[chosen]]
    first = known.first[pairs]
    of_batch = known.batch[first]
    at_ns = np.where(
        foreign[first], (low_ns[0] // 2 + high_ns[0] // 2)[pairs], (since_ns // 2 + until_ns // 2)[of_batch]
    )
    base_ns = low_ns[1][pairs]
    row, at, base = np.full(len(every), -1), np.zeros(len(every), np.int64), np.zeros(len(every), np.int64)
    row[chosen], at[chosen], base[chosen] = 2 * np.arange(len(chosen)), at_ns[pair], base_ns[pair]
    counts = counts[np.repeat(both, 2)]
    x, y = _fill(columns, known.starts, limits, (row, at, base), (len(counts), int(counts.max())))
    sides = Sides(x, y, np.ones_like(counts), counts)
    # The share is of the points before pruning. Of the points that are left, only the layers that were kept are whole.
    used = every if both.all() else [every[stream] for stream in chosen]
    pure = _of_sides(used, "pure_forth", "pure_back")
    tolerated = np.repeat(np.maximum(_columns(batches, ("tolerated",))[0], 1)[known.batch[chosen]], 2)
    wanted = np.rint(np.maximum(sides.counts, pure) * tolerated_share).astype(np.int64)
    slopes = [every[stream] for stream in first]
    return PointClouds(
        sides._replace(k=np.clip(wanted, 1, np.minimum(tolerated, sides.counts))), _shares(used),
        tuple(map(attrgetter("path"), used)), pair, known.ends[0, first], known.ends[1, first], at_ns, base_ns,
        np.array([stream.least_ppb for stream in slopes]), np.array([stream.most_ppb for stream in slopes]),
        np.array([stream.kind != "hardware" for stream in slopes]),
        np.array([NOISE_NS[stream.kind] for stream in slopes]),
        *np.array([NOISE_RANGES_NS[stream.kind] for stream in slopes]).T,
    )  # fmt: skip


def _streams(batches: Sequence[StampBatch], every: Sequence[Stream], index: Callable[[str], int]) -> _Streams:
    """The clocks at both ends of each stream, and its pair."""
    ends = np.stack(
        [
            np.fromiter(map(index, map(attrgetter(end), every)), np.int64, len(every))
            for end in ("initiator", "responder")
        ]
    )
    counts = np.fromiter((len(each.streams) for each in batches), np.int64, len(batches))
    batch = np.repeat(np.arange(len(batches)), counts)
    clocks = int(ends.max()) + 1
    _, first, pair = np.unique((batch * clocks + ends[0]) * clocks + ends[1], return_index=True, return_inverse=True)
    return _Streams(np.concatenate(([0], np.cumsum(counts))), batch, ends, pair, first)


def _shares(streams: Sequence[Stream]) -> Floats:
    """The share of each side's probes that leaves both sides of a stream with equally many near their floors."""
    near = _of_sides(streams, "near_forth", "near_back").reshape(-1, 2)
    least = near.min(axis=1, keepdims=True)
    share = np.maximum(least / np.maximum(near, 1.0), _LEAST_SHARE)
    return np.where(least >= _FEWEST_NEAR, share, np.nan).ravel()


def _of_sides(streams: Sequence[Stream], forth: str, back: str) -> Floats:
    """What streams say of either direction, one element a side."""
    return np.fromiter(chain.from_iterable(map(attrgetter(forth, back), streams)), np.float64, 2 * len(streams))


def _columns(batches: Sequence[StampBatch], names: Sequence[str]) -> list[Ints]:
    """Fields of the batches' heads, a column each."""
    return [np.fromiter((getattr(batch, name) for batch in batches), np.int64, len(batches)) for name in names]


def extents_by_numpy(
    columns: BatchColumns, starts: Ints, limits: tuple[Ints, Ints], pair: Ints, pairs: int
) -> tuple[Ints, Ints, Ints]:
    """The twin of `foliot_native.point_clouds.extents`.

    Parameters:
        columns: of each batch.
        starts: see `_Streams`.
        limits: least and greatest x of each stream; other points are left out.
        pair: of each stream.

    Returns:
        How many points each side of each stream has, and the least and the greatest x and y of each pair.
    """
    points = _points(columns, starts, limits)
    low_ns, high_ns = np.full((2, pairs), _LIMITS.max), np.full((2, pairs), _LIMITS.min)
    of = pair[points.stream]
    for row, values in enumerate((points.x_ns, points.y_ns)):
        np.minimum.at(low_ns[row], of, values)
        np.maximum.at(high_ns[row], of, values)
    return np.bincount(2 * points.stream + points.lower, minlength=2 * len(pair)), low_ns, high_ns


def fill_by_numpy(
    columns: BatchColumns,
    starts: Ints,
    limits: tuple[Ints, Ints],
    places: tuple[Ints, Ints, Ints],
    shape: tuple[int, int],
) -> tuple[Floats, Floats]:
    """The twin of `foliot_native.point_clouds.fill`: x and y of the points as padded rows, see `Sides`.

    Parameters:
        columns, starts, limits: as `extents_by_numpy` has them.
        places: of each stream, the row of its upper side, or -1 if it is left out, and where x = 0 and y = 0.
        shape: how many sides there are, and points that a row holds.
    """
    row, at_ns, base_ns = places
    points = _points(columns, starts, limits)
    points = take(points, row[points.stream] >= 0)
    side = row[points.stream] + points.lower
    sign = np.where(points.lower, -1.0, 1.0)
    x = sign * ((points.x_ns - at_ns[points.stream]) / NANOSECONDS)
    y = sign * (points.y_ns - base_ns[points.stream]).astype(np.float64)
    if np.any(side[1:] < side[:-1]):
        order = np.argsort(side, kind="stable")
        side, x, y = side[order], x[order], y[order]
    counts = np.bincount(side, minlength=shape[0])
    firsts = np.cumsum(counts) - counts
    padded_x, padded_y = np.zeros(shape), np.full(shape, np.inf)
    place = side, np.arange(len(side)) - firsts[side]
    # Missing points lie above all others, on either side.
    padded_x[place], padded_y[place] = x, y
    return padded_x, padded_y


_compiled = native.compiled("point_clouds")
_extents: Callable[[BatchColumns, Ints, tuple[Ints, Ints], Ints, int], tuple[Ints, Ints, Ints]] = (
    _compiled.extents if _compiled else extents_by_numpy
)
_fill: Callable[
    [BatchColumns, Ints, tuple[Ints, Ints], tuple[Ints, Ints, Ints], tuple[int, int]], tuple[Floats, Floats]
] = _compiled.fill if _compiled else fill_by_numpy


class _Points(NamedTuple):
    """The probes of all batches, a row each, in the order in which they came."""

    stream: Ints
    """Number among the streams of all batches."""
    lower: Mask
    x_ns: Ints
    y_ns: Ints


def _points(columns: BatchColumns, starts: Ints, limits: tuple[Ints, Ints]) -> _Points:
    """The probes whose direction exists and whose x lies within its stream's limits."""
    stream, direction, transmit_ns, receive_ns = (
        np.frombuffer(b"".join([batch[at] for batch in columns]), StampRow[name])
        for at, name in enumerate(StampRow.names or ())
    )
    lower = direction == 1
    travel_ns = receive_ns - transmit_ns
    points = _Points(
        stream + np.repeat(starts[:-1], [len(batch[1]) for batch in columns]),
        lower,
        np.where(lower, receive_ns, transmit_ns),
        np.where(lower, -travel_ns, travel_ns),
    )
    points = take(points, direction <= 1)
    early_ns, late_ns = (limit[points.stream] for limit in limits)
    return take(points, (points.x_ns >= early_ns) & (points.x_ns <= late_ns))
