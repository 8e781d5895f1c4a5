"""Fits a line to the point clouds of each pair of clocks: the rate of one clock against the other.

As a rule, the rate that was known is better than the one that a window's clouds show. The clouds say by how much to
turn the known line. Where nothing was known, or no room is left between the clouds, the fit searches for the line that
separates them widest.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from foliot import native
from foliot_sync.core.arrays import put
from foliot_sync.core.fit.least_residual import LeastResidual, lowest
from foliot_sync.core.fit.soft_margin import Middle, at_middle, separate, slope_uncertainty, touch
from foliot_sync.core.limits import GATE_SIGMAS, RATE_LIMIT_PPB, SIGMAS

if TYPE_CHECKING:
    from collections.abc import Callable

    from foliot_sync.core.arrays import Floats, Ints, Mask
    from foliot_sync.core.fit.point_clouds import PointClouds
    from foliot_sync.core.fit.soft_margin import Sides
    from foliot_sync.settings import SyncSettings

    Points = tuple[Floats, Floats]

CAUTION = 2.0
"""Factor on spacings. Those of a few points understate how far the least lies above the floor when bursts fill the
queues. With 1, one value in 500 was outside its bound in the first ten seconds at 60 % load. With 2, none of 6,000
was."""

_VAGUE = 100.0
"""A known line may be off by so many times the stamps' noise at the window's ends. If it may be off by more, the fit
searches among all lines. If by less, the clouds tell by how much to turn it."""

_UNSEEN = 0.25
"""A line that is turned by less than this share of the stamps' noise at the window's ends touches its clouds where it
did."""

_FEW = 4
"""Fewer points in half a window say nothing of how far above the floor the least of them is."""

_FAR_NS = 1e6
"""The distance to expect then: a millisecond's queue."""


class Stands(NamedTuple):
    """The position of each side on its line: its lowest residual, and its middle."""

    lowest: LeastResidual
    middle: Middle


class LineFits(NamedTuple):
    """The lines that the clouds stand on."""

    fitted: Floats
    """Slope of each pair by this window's clouds alone."""
    variance: Floats
    """The variance of that slope."""
    doubt: Floats
    """Variance of the slope that was used."""
    stands: Stands
    searched: Mask
    """Whether the slope of each pair was searched for."""


def find_lines(clouds: PointClouds, least_ns: Floats, stray_ns: float, settings: SyncSettings) -> LineFits:
    """The line of each pair: the known one, turned as the clouds say, each by its weight.

    The fit searches for a line where none was known, where it was known badly, and where it leaves no room between the
    clouds.
    """
    known = (clouds.least_ppb <= clouds.most_ppb) & (clouds.most_ppb - clouds.least_ppb < RATE_LIMIT_PPB)
    slope = np.where(known, (clouds.least_ppb + clouds.most_ppb) / 2, 0.0)
    doubt = np.where(known, (clouds.most_ppb - clouds.least_ppb) / 2 / SIGMAS, np.inf) ** 2
    stands = _stands(clouds, np.arange(len(clouds.share)), slope)
    half = (stands.lowest.value[0::2] + stands.lowest.value[1::2]) / 2
    crossed = half < -stray_ns
    vague = np.sqrt(doubt) * settings.window_s / 2 > _VAGUE * clouds.noise_ns
    searched = vague | (np.bincount(clouds.pair, weights=crossed, minlength=len(slope)) > 0)
    excess = np.maximum(half - least_ns, 0.0)  # 0 where no floor is known
    fitted, variance = _turned(clouds, slope, excess)
    if searched.any():
        fitted[searched], variance[searched] = _slopes(clouds.of(searched))
    used, doubt = _with_known(fitted, variance, slope, doubt, GATE_SIGMAS)
    moved = np.abs(used - slope) * settings.window_s / 2 > _UNSEEN * clouds.noise_ns
    if moved.any():
        rows = np.flatnonzero(np.repeat(moved[clouds.pair], 2))
        stands = put(stands, rows, _stands(clouds, rows, used))
    return LineFits(fitted, variance, doubt, stands, searched)


def _stands(clouds: PointClouds, rows: Ints, slope: Floats) -> Stands:
    """Where some sides stand on lines of their pairs' slopes."""
    of, sides = np.repeat(clouds.pair, 2)[rows], clouds.sides
    found = _stand((sides.x, sides.y), rows, (slope[of], clouds.noise_ns[of], clouds.share[rows]), RATE_LIMIT_PPB)
    return Stands(LeastResidual(*found[:4]), Middle(*found[4:]))


def stand_by_numpy(
    points: Points, rows: Ints, lines: tuple[Floats, Floats, Floats], limit_ppb: float
) -> tuple[Floats, ...]:
    """The twin of `foliot_native.pair_fits.stand`: the columns of `LeastResidual`, then those of `Middle`.

    Parameters:
        points: x and y, as `Sides` has them.
        rows: the sides asked for, in their order.
        lines: slope, noise and share of each of these.
        limit_ppb: two clocks never run further apart.
    """
    (x, y), (slope, noise_ns, share) = points, lines
    if len(rows) < len(x):
        x, y = x[rows], y[rows]
    residuals = y - slope[:, None] * x
    return (*lowest(residuals, noise_ns, share, averaged=True), *at_middle(x, y, residuals, limit_ppb))


def _turned(clouds: PointClouds, slope: Floats, excess_ns: Floats) -> tuple[Floats, Floats]:
    """The slopes by which the clouds stand as high in the second half of the window as in the first, and their variances.

    A stream's excess over its best width, in either half and direction, tells nothing of how the clocks run.

    Where one clock runs faster, the delays of one direction seem to rise and those of the other to fall. Where a host
    becomes slow within the window, one direction rises alone, over all streams of the pair. So the variance is greater by
    the square of their disagreement over what chance makes of it (the Birge ratio).
    """
    points, pairs = (clouds.sides.x, clouds.sides.y), len(slope)
    direction = 2 * np.repeat(clouds.pair, 2) + np.tile([0, 1], len(clouds.pair))
    lines = np.repeat(slope, 2), np.repeat(clouds.noise_ns, 2)
    weight, turn = (each.reshape(pairs, 2) for each in _turn(points, direction, lines, np.repeat(excess_ns, 2)))
    total, told = weight.sum(axis=1), weight > 0
    turn = turn / np.where(told, weight, 1.0)
    mean = (weight * turn).sum(axis=1) / np.where(total > 0, total, 1.0)
    disagreement = np.maximum((weight * (turn - mean[:, None]) ** 2).sum(axis=1), 1.0)
    return slope + mean, np.where(total > 0, disagreement / np.where(total > 0, total, 1.0), RATE_LIMIT_PPB**2)


def turn_by_numpy(points: Points, pair: Ints, lines: tuple[Floats, Floats], excess_ns: Floats) -> tuple[Floats, Floats]:
    """The twin of `foliot_native.pair_fits.turn`: each pair's weight of its turn, and the turn times that.

    Parameters:
        points: x and y, as `Sides` has them.
        pair: of each side.
        lines: slope and noise of each pair.
        excess_ns: of each side, how much wider its stream is than at its best.
    """
    (x, y), (slope, noise_ns) = points, lines
    residuals, noise = y - slope[pair][:, None] * x, noise_ns[pair]
    before, after = (_half(x, np.where(half, residuals, np.inf), noise) for half in (x <= 0, x > 0))
    span_s = after.at_s - before.at_s
    late = before.late_ns**2 + after.late_ns**2 + 2 * excess_ns**2
    weight = np.where(span_s > 0, span_s**2 / late, 0.0)
    wanted = weight * (after.value - before.value) / np.where(span_s > 0, span_s, 1.0)
    total, turns = (np.bincount(pair, each, minlength=len(slope)).astype(np.float64) for each in (weight, wanted))
    return total, turns


_compiled = native.compiled("pair_fits")
_stand: Callable[[Points, Ints, tuple[Floats, Floats, Floats], float], tuple[Floats, ...]] = (
    _compiled.stand if _compiled else stand_by_numpy
)
_turn: Callable[[Points, Ints, tuple[Floats, Floats], Floats], tuple[Floats, Floats]] = (
    _compiled.turn if _compiled else turn_by_numpy
)


class _Half(NamedTuple):
    """Where each side stands in half of the window."""

    value: Floats
    at_s: Floats
    late_ns: Floats
    """How far above the floor that is expected to be; inf: there is no point."""


def _half(x: Floats, residuals: Floats, noise_ns: Floats) -> _Half:
    stand, rows = lowest(residuals, noise_ns), np.arange(len(residuals))
    there = np.isfinite(stand.value)
    at_s = x[rows, (residuals == stand.value[:, None]).argmax(axis=1)]
    few = np.isfinite(residuals).sum(axis=1) < _FEW
    late = np.hypot(CAUTION * np.where(few, _FAR_NS, stand.spacing), noise_ns)
    return _Half(np.where(there, stand.value, 0.0), at_s, np.where(there, late, np.inf))


def _slopes(clouds: PointClouds) -> tuple[Floats, Floats]:
    """The slope that separates each pair's clouds widest, and its variance."""
    sides, limit, group = clouds.sides, RATE_LIMIT_PPB, np.repeat(clouds.pair, 2)
    said = clouds.least_ppb <= clouds.most_ppb
    least = np.where(said, np.clip(clouds.least_ppb, -limit, limit), -limit)
    most = np.where(said, np.clip(clouds.most_ppb, -limit, limit), limit)
    slope = separate(sides, group, least, most)
    gap = np.minimum(lowest(clouds.residuals(slope), clouds.noise_ns[group]).spacing, _width(sides, slope[group]))
    gap = np.hypot(CAUTION * gap, clouds.noise_ns[group])
    noise = np.sqrt(np.bincount(group, weights=gap**2, minlength=len(slope)))
    sigma = slope_uncertainty(sides, group, slope, noise, limit)
    # If it is at an end of the slopes that were left unpruned, the best slope may lie beyond.
    cut = (slope <= least) | (slope >= most)
    return slope, np.where(cut, np.maximum(sigma, most - least), sigma) ** 2


def torn(clouds: PointClouds, lines: LineFits, stray_ns: float) -> Mask:
    """Selects the pairs whose clouds have no straight line between them.

    Most of their streams leave no room for one.
    """
    found, searched = np.zeros(len(clouds.initiator), dtype=bool), lines.searched
    if searched.any():
        some = clouds.of(searched)
        widest = touch(some.sides, np.repeat(lines.fitted[searched][some.pair], 2)).intercept
        crossed = np.bincount(some.pair, weights=widest[0::2] + widest[1::2] < -2 * stray_ns)
        found[searched] = crossed * 2 > np.bincount(some.pair)
    return found


def _with_known(
    slope: Floats,
    variance: Floats,
    known_slope: Floats,
    known_variance: Floats,
    gate_sigmas: float,
) -> tuple[Floats, Floats]:
    """The slope to measure the offset with, and its variance: the fitted and the known one by their weights.

    If they exclude each other, the clocks have changed, and only the fitted one counts.
    """
    known = np.isfinite(known_variance)
    known &= np.abs(slope - known_slope) <= gate_sigmas * np.sqrt(variance + np.where(known, known_variance, 0.0))
    weight = np.where(known, variance / (variance + np.where(known, known_variance, 1.0)), 0.0)
    return slope + weight * np.where(known, known_slope - slope, 0.0), (1 - weight) * variance


def _width(sides: Sides, slope: Floats) -> Floats:
    """Half the distance between the lines of each side's stream: its intercepts are never further off than that."""
    intercept = touch(sides, slope).intercept
    return np.repeat(np.abs(intercept[0::2] + intercept[1::2]) / 2, 2)
