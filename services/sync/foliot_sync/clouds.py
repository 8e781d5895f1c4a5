"""From batches of stamps to clouds of points: one side a row, grouped by the two clocks they lie between."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from foliot_sync.margin import Sides
from foliot_sync.settings import NANOSECONDS

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from foliot_schemas.observation import StampBatch

_SLACK_NS = NANOSECONDS
"""Stamps may lie this far outside what their batch says it covers: a probe under way when the window closed."""


NOISE_NS = {"hardware": 4.0, "kernel": 25.0, "user": 1_000.0}
"""How well stamps of a kind repeat: NICs' counters run at some hundred MHz; kernel stamps over veth vary by 31 ns between the median and p1; a process
is woken when the machine likes."""
_HOUR_NS = 3_600 * NANOSECONDS
_LIMITS = np.iinfo(np.int64)


class Clouds(NamedTuple):
    """The streams of some windows, and the pairs of clocks they lie between (one pair per window and two clocks)."""

    sides: Sides
    """Two rows a stream: upper, then lower reflected."""
    paths: tuple[str, ...]
    """Per stream."""
    pair: NDArray[np.int64]
    """Per stream, its pair."""
    initiator: NDArray[np.int64]
    """Per pair, as the other three."""
    responder: NDArray[np.int64]
    at_ns: NDArray[np.int64]
    """Middle of the window in the initiator's local time: x = 0."""
    base_ns: NDArray[np.int64]
    """Responder's minus initiator's local time, near enough that what is added to it fits a float: y = 0."""
    least_ppb: NDArray[np.float64]
    """Between this slope and the next, the clouds are whole; beyond, only their outermost points are there."""
    most_ppb: NDArray[np.float64]
    noise_ns: NDArray[np.float64]
    """Of the pair's stamps."""


class _Part(NamedTuple):
    """What one batch adds: a row per probe, and its pairs."""

    stream: NDArray[np.int64]
    lower: NDArray[np.bool_]
    x_ns: NDArray[np.int64]
    y_ns: NDArray[np.int64]


def gather(batches: Sequence[StampBatch], index: Callable[[str], int], tolerated_share: float) -> Clouds | None:
    """The clouds of all streams that were heard in both directions; None if there are none.

    Parameters:
        batches: whose columns are known to fit together.
        index: the number of a clock, by name.
        tolerated_share: of a side's points, how many a line may ignore; a batch may have kept fewer.
    """
    paths: list[str] = []
    pairs: list[tuple[int, int, int, int]] = []
    slopes: list[tuple[float, float, float]] = []
    pair_of: list[int] = []
    x_parts, y_parts, side_parts, tolerated = [], [], [], []
    pure: list[int] = []
    for batch in batches:
        part = _points(batch)
        numbers: dict[tuple[str, str], int] = {}
        both = _heard_both_ways(part, len(batch.streams))
        for number, stream in enumerate(batch.streams):
            if not both[number]:
                continue
            ends = (stream.initiator, stream.responder)
            if ends not in numbers:
                mine = [other for other, each in enumerate(batch.streams) if (each.initiator, each.responder) == ends]
                chosen = np.isin(part.stream, mine)
                numbers[ends] = len(pairs)
                at_ns = _middle(batch, stream.initiator, part.x_ns[chosen])
                pairs.append((index(ends[0]), index(ends[1]), at_ns, int(np.median(part.y_ns[chosen]))))
                slopes.append((stream.least_ppb, stream.most_ppb, NOISE_NS[stream.kind]))
            pair = numbers[ends]
            pair_of.append(pair)
            paths.append(stream.path)
            tolerated.append(batch.tolerated)
            pure += (stream.pure_forth, stream.pure_back)
        # Streams keep their order, so a stream's row is its rank among those heard both ways.
        rank = len(paths) - int(both.sum()) + np.cumsum(both) - 1
        kept = both[part.stream]
        side_parts.append(2 * rank[part.stream[kept]] + part.lower[kept])
        x_parts.append(part.x_ns[kept])
        y_parts.append(part.y_ns[kept])
    if not paths:
        return None
    initiator, responder, at_ns_, base_ns = np.array(pairs, dtype=np.int64).T
    side, pair_of_stream = np.concatenate(side_parts), np.array(pair_of)
    of_point = pair_of_stream[side // 2]
    x = (np.concatenate(x_parts) - at_ns_[of_point]) / NANOSECONDS
    y = (np.concatenate(y_parts) - base_ns[of_point]).astype(np.float64)
    counts = np.bincount(side, minlength=2 * len(paths))
    # What counts is how many there were before pruning; of those that are left, only the layers that were kept are whole.
    wanted = np.rint(np.maximum(counts, pure) * tolerated_share).astype(np.int64)
    k = np.clip(wanted, 1, np.minimum(np.maximum(np.repeat(tolerated, 2), 1), counts))
    sides = Sides(*_rows(side, x, y, counts), k, counts)
    least_ppb, most_ppb, noise_ns = np.array(slopes, np.float64).T
    return Clouds(
        sides, tuple(paths), pair_of_stream, initiator, responder, at_ns_, base_ns, least_ppb, most_ppb, noise_ns
    )


def _points(batch: StampBatch) -> _Part:
    """The batch's probes as points; those that cannot belong to it left out."""
    rows: NDArray[Any] = batch.rows()
    lower = rows["direction"] == 1
    x_ns = np.where(lower, rows["receive_ns"], rows["transmit_ns"])
    travel_ns = rows["receive_ns"] - rows["transmit_ns"]
    y_ns = np.where(lower, -travel_ns, travel_ns)
    foreign = np.array([stream.initiator != batch.node for stream in batch.streams], dtype=bool)
    stream = rows["stream"].astype(np.int64)
    # A NIC's own clock has another epoch than the host's, in which the batch says what it covers.
    sound = foreign[stream] | ((x_ns >= batch.since_ns - _SLACK_NS) & (x_ns <= batch.until_ns + _SLACK_NS))
    sound &= rows["direction"] <= 1
    sound &= _near_each_other(batch, stream[sound], x_ns[sound], y_ns[sound])[stream]
    return _Part(stream[sound], lower[sound], x_ns[sound], y_ns[sound])


def _near_each_other(
    batch: StampBatch, stream: NDArray[np.int64], x_ns: NDArray[np.int64], y_ns: NDArray[np.int64]
) -> NDArray[np.bool_]:
    """Which streams lie between clocks whose stamps are less than an hour apart, in time and from each other's course.

    No window is so long and no clock goes so wrong within one; what is further apart was made up, and the mathematics of floats does not
    bear it. Those between the same two clocks are judged together, because they are fitted together.
    """
    places: dict[tuple[str, str], int] = {}
    ends = np.array(
        [places.setdefault((each.initiator, each.responder), len(places)) for each in batch.streams], np.intp
    )
    near = np.full(len(places), batch.until_ns - batch.since_ns < _HOUR_NS)
    pair = ends[stream]
    for values in (x_ns, y_ns):
        # In the columns' own type: with another, numpy converts number by number.
        low, high = np.full(len(places), _LIMITS.max), np.full(len(places), _LIMITS.min)
        np.minimum.at(low, pair, values)
        np.maximum.at(high, pair, values)
        near &= high.astype(np.float64) - low.astype(np.float64) < _HOUR_NS
    return near[ends]


def _heard_both_ways(part: _Part, streams: int) -> NDArray[np.bool_]:
    """Which streams have points on both sides: one alone bounds the offset, but does not estimate it."""
    upper = np.bincount(part.stream[~part.lower], minlength=streams) > 0
    both: NDArray[np.bool_] = upper & (np.bincount(part.stream[part.lower], minlength=streams) > 0)
    return both


def _middle(batch: StampBatch, initiator: str, x_ns: NDArray[np.int64]) -> int:
    """The middle of the window in the initiator's local time."""
    if initiator == batch.node:
        return (batch.since_ns + batch.until_ns) // 2
    return (int(x_ns.min()) + int(x_ns.max())) // 2


def _rows(
    side: NDArray[np.int64],
    x: NDArray[np.float64],
    y: NDArray[np.float64],
    counts: NDArray[np.int64],
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Points as padded rows, lower sides reflected through the origin."""
    order = np.argsort(side, kind="stable")
    side = side[order]
    starts = np.concatenate(([0], np.cumsum(counts)[:-1]))
    place = np.arange(len(side)) - starts[side]
    sign = np.where(side % 2 == 1, -1.0, 1.0)
    shape = (len(counts), int(counts.max()))
    padded_x, padded_y = np.zeros(shape), np.full(shape, np.inf)
    padded_x[side, place] = sign * x[order]
    padded_y[side, place] = sign * y[order]
    return padded_x, padded_y
