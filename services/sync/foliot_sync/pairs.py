"""What the streams between two clocks say together: offset, drift, how good, and what is certain.

All streams between the same two clocks, over whatever rails and entropies, see the same drift, so one slope is fitted
to them all; each then has its own intercepts, because each path has its own one-way floor.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from foliot_sync.excess import share
from foliot_sync.lowest import Lowest, lowest
from foliot_sync.margin import Middle, at_middle, separate, slope_uncertainty, touch

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from foliot_sync.clouds import Clouds
    from foliot_sync.floors import Floors, Known
    from foliot_sync.margin import Sides
    from foliot_sync.settings import SyncSettings

DISAGREEMENT_SIGMAS = 4.0
"""A stream further than this from the streams' weighted median is left out, if most of the others agree."""

_CAUTION = 2.0
"""Spacings of a few points understate how far the least lies above the floor when bursts fill the queues: with 1, one
value in 500 was outside its bound in the first ten seconds at 60 % load; with 2, none of 6,000."""

_VAGUE = 100.0
"""Times the stamps' noise: by what a known line may be off at the window's ends before a line is searched for among all. Nearer, the clouds tell by how much to turn it."""

_UNSEEN = 0.25
"""Of the stamps' noise: a line that is turned by less at the window's ends touches its clouds where it did."""

_FEW = 4
"""Fewer points in half a window say nothing of how far above the floor the least of them is."""

_FAR_NS = 1e6
"""So far, for all that is known: a millisecond's queue."""

_BRIDGE = 48.0
"""A twice integrated white noise of density w strays from its own chord over T by w sqrt(T^3 / 48) in the middle."""


class Pairs(NamedTuple):
    """Measurements of one clock against another: offsets of responder minus initiator, one row each."""

    initiator: NDArray[np.int64]
    responder: NDArray[np.int64]
    at_ns: NDArray[np.int64]
    """Local time of the initiator."""
    base_ns: NDArray[np.int64]
    """What `offset_ns`, `lower_ns` and `upper_ns` are relative to."""
    offset_ns: NDArray[np.float64]
    variance: NDArray[np.float64]
    slope_ppb: NDArray[np.float64]
    """As fitted, without what was known before."""
    slope_variance: NDArray[np.float64]
    lower_ns: NDArray[np.float64]
    """The true offset is at least this, whatever the asymmetry."""
    upper_ns: NDArray[np.float64]
    noise_ns: NDArray[np.float64]
    """Of the stamps."""
    torn: NDArray[np.bool_]
    """No straight line has the clouds on its two sides: a clock was stepped within the window."""

    def take(self, chosen: NDArray[np.bool_]) -> Pairs:
        """Some of them."""
        columns: Any = (column[chosen] for column in self)
        return Pairs(*columns)


class Widths(NamedTuple):
    """Of streams, one element each, in ns."""

    half: NDArray[np.float64]
    """Half the width of the margin."""
    doubt: NDArray[np.float64]
    """How far above the floor that is expected to be."""

    def take(self, chosen: NDArray[np.bool_]) -> Widths:
        """Some of them."""
        return Widths(self.half[chosen], self.doubt[chosen])


class _Stands(NamedTuple):
    """Where each side stands on its line."""

    lowest: Lowest
    middle: Middle

    def put(self, chosen: NDArray[np.bool_], others: _Stands) -> _Stands:
        """These, with the others in the chosen places."""
        columns: Any = [
            [np.where(chosen, _spread(new, chosen), old) for old, new in zip(mine, theirs, strict=True)]
            for mine, theirs in zip(self, others, strict=True)
        ]
        return _Stands(Lowest(*columns[0]), Middle(*columns[1]))


class _Lines(NamedTuple):
    """The lines that the clouds stand on."""

    fitted: NDArray[np.float64]
    """Per pair, its slope by this window's clouds alone."""
    variance: NDArray[np.float64]
    """Of that."""
    doubt: NDArray[np.float64]
    """Variance of the slope that was used."""
    stands: _Stands
    searched: NDArray[np.bool_]
    """Per pair, whether its slope was searched for."""


def measure(
    clouds: Clouds,
    rows: NDArray[np.int64],
    floors: Floors,
    settings: SyncSettings,
    longer_ns: NDArray[np.float64] | float = 0.0,
) -> tuple[Pairs, Widths]:
    """The measurement of every pair of clocks in these clouds, and the widths of its streams.

    Parameters:
        clouds: of a window.
        rows: of its streams in `floors`.
        floors: what the widths were at best.
        settings: of sync.
        longer_ns: per stream, by how much longer forth takes than back, as somebody has measured it.
    """
    pairs, stray = len(clouds.initiator), _stray_ns(settings)
    lines = _lines(clouds, floors.least(rows), stray, settings)
    (stand, middle), noise = lines.stands, clouds.noise_ns[clouds.pair]
    offset = (stand.value[0::2] - stand.value[1::2] - longer_ns) / 2
    half = (stand.value[0::2] + stand.value[1::2]) / 2
    late = np.hypot(_CAUTION * np.minimum(stand.spacing, np.repeat(np.abs(half), 2)), np.repeat(noise, 2))
    doubt = (late[0::2] + late[1::2]) / 2
    wrong, variance = _lateness(late, half, floors.known(rows, half, doubt), noise)

    upper, lower = np.full(pairs, np.inf), np.full(pairs, -np.inf)
    np.minimum.at(upper, clouds.pair, middle.ceiling[0::2] + stray)
    np.maximum.at(lower, clouds.pair, -middle.ceiling[1::2] - stray)
    mean, variance = combine(offset - wrong, np.sqrt(variance), clouds.pair, pairs)
    # All streams of a pair are wrong together if its line is turned wrongly.
    lever_s = (middle.least_at_s[0::2] + middle.least_at_s[1::2]) / 2
    lever_s = np.bincount(clouds.pair, weights=lever_s) / np.bincount(clouds.pair)
    measured = Pairs(
        initiator=clouds.initiator,
        responder=clouds.responder,
        at_ns=clouds.at_ns,
        base_ns=clouds.base_ns,
        offset_ns=mean,
        variance=variance + lines.doubt * lever_s**2 + clouds.noise_ns**2,
        slope_ppb=lines.fitted,
        slope_variance=lines.variance,
        lower_ns=lower,
        upper_ns=upper,
        noise_ns=clouds.noise_ns,
        torn=_torn(clouds, lines, stray) | (lower > upper),
    )
    return measured, Widths(half, doubt)


def _lines(clouds: Clouds, least_ns: NDArray[np.float64], stray_ns: float, settings: SyncSettings) -> _Lines:
    """The line of each pair: the one that was known, turned as the clouds have it, each by its weight.

    Where none was known, or it was known badly or leaves no room between the clouds, it is searched for.
    """
    known = (clouds.least_ppb <= clouds.most_ppb) & (clouds.most_ppb - clouds.least_ppb < settings.rate_limit_ppb)
    slope = np.where(known, (clouds.least_ppb + clouds.most_ppb) / 2, 0.0)
    doubt = np.where(known, (clouds.most_ppb - clouds.least_ppb) / 2 / settings.sigmas, np.inf) ** 2
    stands = _stands(clouds, slope, settings)
    crossed = stands.lowest.value[0::2] + stands.lowest.value[1::2] < -2 * stray_ns
    vague = np.sqrt(doubt) * settings.window_s / 2 > _VAGUE * clouds.noise_ns
    searched = vague | (np.bincount(clouds.pair, weights=crossed, minlength=len(slope)) > 0)
    half = (stands.lowest.value[0::2] + stands.lowest.value[1::2]) / 2
    excess = np.maximum(half - least_ns, 0.0)  # 0 where no floor is known
    fitted, variance = _turned(clouds, slope, excess, settings.rate_limit_ppb)
    if searched.any():
        fitted[searched], variance[searched] = _slopes(clouds.of(searched), settings)
    used, doubt = _with_known(fitted, variance, slope, doubt, settings.gate_sigmas)
    moved = np.abs(used - slope) * settings.window_s / 2 > _UNSEEN * clouds.noise_ns
    if moved.any():
        stands = stands.put(np.repeat(moved[clouds.pair], 2), _stands(clouds.of(moved), used[moved], settings))
    return _Lines(fitted, variance, doubt, stands, searched)


def _stands(clouds: Clouds, slope: NDArray[np.float64], settings: SyncSettings) -> _Stands:
    """Where the sides of each pair stand on lines of its slope."""
    of = np.repeat(clouds.pair, 2)
    residuals = clouds.residuals(slope)
    middle = at_middle(clouds.sides, residuals, settings.rate_limit_ppb)
    return _Stands(lowest(residuals, clouds.noise_ns[of]), middle)


def _turned(
    clouds: Clouds, slope: NDArray[np.float64], excess_ns: NDArray[np.float64], limit_ppb: float
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The slopes by which the clouds stand as high in the second half of the window as in the first, and their variances.

    What a stream is wider than it was at best, in either half and direction, tells nothing of how the clocks run.
    """
    of, pairs = np.repeat(clouds.pair, 2), len(slope)
    residuals = clouds.residuals(slope)
    before, after = (
        _half(clouds, np.where(half, residuals, np.inf)) for half in (clouds.sides.x <= 0, clouds.sides.x > 0)
    )
    span_s = after.at_s - before.at_s
    late = before.late_ns**2 + after.late_ns**2 + 2 * np.repeat(excess_ns, 2) ** 2
    weight = np.where(span_s > 0, span_s**2 / late, 0.0)
    wanted = weight * (after.value - before.value) / np.where(span_s > 0, span_s, 1.0)
    total = np.bincount(of, weight, minlength=pairs)
    told = total > 0
    turn = np.bincount(of, wanted, minlength=pairs) / np.where(told, total, 1.0)
    return slope + turn, np.where(told, 1 / np.where(told, total, 1.0), limit_ppb**2)


class _Half(NamedTuple):
    """Where each side stands in half of the window."""

    value: NDArray[np.float64]
    at_s: NDArray[np.float64]
    late_ns: NDArray[np.float64]
    """How far above the floor that is expected to be; inf: there is no point."""


def _half(clouds: Clouds, residuals: NDArray[np.float64]) -> _Half:
    noise = clouds.noise_ns[np.repeat(clouds.pair, 2)]
    stand, rows = lowest(residuals, noise), np.arange(len(residuals))
    there = np.isfinite(stand.value)
    at_s = clouds.sides.x[rows, (residuals == stand.value[:, None]).argmax(axis=1)]
    few = np.isfinite(residuals).sum(axis=1) < _FEW
    late = np.hypot(_CAUTION * np.where(few, _FAR_NS, stand.spacing), noise)
    return _Half(np.where(there, stand.value, 0.0), at_s, np.where(there, late, np.inf))


def _slopes(clouds: Clouds, settings: SyncSettings) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The slope that separates each pair's clouds widest, and its variance."""
    sides, limit, group = clouds.sides, settings.rate_limit_ppb, np.repeat(clouds.pair, 2)
    said = clouds.least_ppb <= clouds.most_ppb
    least = np.where(said, np.clip(clouds.least_ppb, -limit, limit), -limit)
    most = np.where(said, np.clip(clouds.most_ppb, -limit, limit), limit)
    slope = separate(sides, group, least, most)
    gap = np.minimum(lowest(clouds.residuals(slope), clouds.noise_ns[group]).spacing, _width(sides, slope[group]))
    gap = np.hypot(_CAUTION * gap, clouds.noise_ns[group])
    noise = np.sqrt(np.bincount(group, weights=gap**2, minlength=len(slope)))
    sigma = slope_uncertainty(sides, group, slope, noise, limit)
    # At the end of what was left unpruned, the best slope may lie beyond.
    cut = (slope <= least) | (slope >= most)
    return slope, np.where(cut, np.maximum(sigma, most - least), sigma) ** 2


def _torn(clouds: Clouds, lines: _Lines, stray_ns: float) -> NDArray[np.bool_]:
    """Which pairs' clouds have no straight line between them: most of the streams' own do not leave room for one."""
    torn, searched = np.zeros(len(clouds.initiator), dtype=bool), lines.searched
    if searched.any():
        some = clouds.of(searched)
        widest = touch(some.sides, np.repeat(lines.fitted[searched][some.pair], 2)).intercept
        crossed = np.bincount(some.pair, weights=widest[0::2] + widest[1::2] < -2 * stray_ns)
        torn[searched] = crossed * 2 > np.bincount(some.pair)
    return torn


def _lateness(
    late: NDArray[np.float64], half: NDArray[np.float64], floors: Known, noise_ns: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """By how much each stream's offset is expected to be wrong, and the variance of what is left: one direction was later than the other.

    Parameters:
        late: per side, how far its least delay is expected above the floor by its own points, at least the noise.
        half: half of the margins' widths.
        floors: what they were at best.
        noise_ns: of the stamps.
    """
    first, second = late[0::2], late[1::2]
    # The floor lies lower by its own window's doubt, but hardly by more than this window's; nor is it known better than stamps repeat.
    doubt = np.minimum(np.maximum(floors.doubt_ns, noise_ns), (first + second) / 2)
    total = np.maximum(half - floors.floor_ns, 0.0) + doubt
    # Where both were far later than their points let expect, those tell no more than which of the two was the later one.
    larger = np.maximum(2 * total / (first + second), 1.0)
    known = share(2 * total, larger * first, larger * second)
    wrong = known.mean - total
    return wrong, known.variance + (wrong / total * doubt) ** 2 + noise_ns**2


def combine(
    offset: NDArray[np.float64], sigma: NDArray[np.float64], pair: NDArray[np.int64], pairs: int
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The weighted mean of the streams of each pair, and its variance.

    A stream far from the weighted median is left out, but only if more than half remain: of two that disagree nobody
    can say which is wrong, so both stay and the variance grows by their disagreement (the Birge ratio).
    """
    offsets, sigmas = _padded(offset, pair, pairs, 0.0), _padded(sigma, pair, pairs, np.inf)
    weights = sigmas**-2.0
    order = offsets.argsort(axis=1)
    heap = np.take_along_axis(weights, order, axis=1).cumsum(axis=1)
    middle = (heap >= heap[:, -1:] / 2).argmax(axis=1)
    median = np.take_along_axis(offsets, np.take_along_axis(order, middle[:, None], axis=1), axis=1)
    present = weights > 0
    agree = present & (np.abs(offsets - median) <= DISAGREEMENT_SIGMAS * np.where(present, sigmas, 1.0))
    decided = (agree.sum(axis=1) * 2 > present.sum(axis=1))[:, None]
    weights = np.where(decided & ~agree, 0.0, weights)
    total = weights.sum(axis=1)
    mean = (weights * offsets).sum(axis=1) / total
    scatter = (weights * (offsets - mean[:, None]) ** 2).sum(axis=1) / np.maximum((weights > 0).sum(axis=1) - 1, 1)
    return mean, np.maximum(scatter, 1.0) / total


def _with_known(
    slope: NDArray[np.float64],
    variance: NDArray[np.float64],
    known_slope: NDArray[np.float64],
    known_variance: NDArray[np.float64],
    gate_sigmas: float,
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The slope to measure the offset with, and its variance: the fitted and the known one by their weights.

    If they exclude each other, something happened, and only what was seen counts.
    """
    known = np.isfinite(known_variance)
    known &= np.abs(slope - known_slope) <= gate_sigmas * np.sqrt(variance + np.where(known, known_variance, 0.0))
    weight = np.where(known, variance / (variance + np.where(known, known_variance, 1.0)), 0.0)
    return slope + weight * np.where(known, known_slope - slope, 0.0), (1 - weight) * variance


def _width(sides: Sides, slope: NDArray[np.float64]) -> NDArray[np.float64]:
    """Per side, half the distance between the lines of its stream: its intercepts are never further off than that."""
    intercept = touch(sides, slope).intercept
    return np.repeat(np.abs(intercept[0::2] + intercept[1::2]) / 2, 2)


def _stray_ns(settings: SyncSettings) -> float:
    """How far two clocks that wander may leave a straight line within a window."""
    return settings.sigmas * settings.wander_ppb * float(np.sqrt(2 * settings.window_s**3 / _BRIDGE))


def _padded(values: NDArray[np.float64], pair: NDArray[np.int64], pairs: int, missing: float) -> NDArray[np.float64]:
    """Values of streams as one row per pair."""
    order = np.argsort(pair, kind="stable")
    counts = np.bincount(pair, minlength=pairs)
    place = np.arange(len(pair)) - np.concatenate(([0], np.cumsum(counts)[:-1]))[pair[order]]
    rows = np.full((pairs, int(counts.max())), missing)
    rows[pair[order], place] = values[order]
    return rows


def _spread(values: NDArray[np.float64], chosen: NDArray[np.bool_]) -> NDArray[np.float64]:
    """Values of the chosen places as a column of all; 0 elsewhere."""
    column = np.zeros(len(chosen))
    column[chosen] = values
    return column
