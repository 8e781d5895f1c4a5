"""Estimates of a pair of clocks from all streams between them: offset, drift, their variances, and certain limits.

All streams between the same two clocks see the same drift, over whatever rails and entropies. So one slope is fitted to
them all. Each stream then has its own intercepts, because each path has its own one-way floor.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from foliot_sync.core.fit.delay_tails import TailShapes
from foliot_sync.core.fit.line_fit import CAUTION, find_lines, torn
from foliot_sync.core.fit.queueing_split import credible, share
from foliot_sync.core.limits import SIGMAS

if TYPE_CHECKING:
    from foliot_sync.core.arrays import Floats, Ints, Mask
    from foliot_sync.core.fit.delay_floor import DelayFloors, Known
    from foliot_sync.core.fit.delay_tails import DelayTails
    from foliot_sync.core.fit.point_clouds import PointClouds
    from foliot_sync.settings import SyncSettings

DISAGREEMENT_SIGMAS = 4.0
"""A stream further than this from the streams' weighted median is left out, if most of the others agree."""

_BRIDGE = 48.0
"""A twice integrated white noise of density w strays from its own chord over T by w sqrt(T^3 / 48) in the middle."""


class PairEstimates(NamedTuple):
    """Measurements of one clock against another: offsets of responder minus initiator, one row each."""

    initiator: Ints
    responder: Ints
    at_ns: Ints
    """Local time of the initiator."""
    base_ns: Ints
    """The origin of `offset_ns`, `lower_ns` and `upper_ns`."""
    offset_ns: Floats
    variance: Floats
    slope_ppb: Floats
    """As fitted, without what was known before."""
    slope_variance: Floats
    lower_ns: Floats
    """The true offset is at least this, whatever the asymmetry."""
    upper_ns: Floats
    noise_ns: Floats
    """The noise of the stamps."""
    torn: Mask
    """No straight line has the clouds on its two sides: a clock was stepped within the window."""


class Widths(NamedTuple):
    """The widths of streams, one element each, in ns."""

    half: Floats
    """Half the width of the margin."""
    doubt: Floats
    """How far above the floor that is expected to be."""
    gap: Floats
    """Mean gap between the lowest points of either direction."""


def measure(
    clouds: PointClouds,
    rows: Ints,
    floors: DelayFloors,
    tails: DelayTails,
    settings: SyncSettings,
    *,
    longer_ns: Floats | float = 0.0,
) -> tuple[PairEstimates, Widths, TailShapes]:
    """The measurement of every pair of clocks in these clouds, and the widths of its streams.

    Parameters:
        clouds: those of a window.
        rows: the rows of its streams in `floors`.
        floors: the least widths of streams.
        tails: how their lowest points usually lie.
        longer_ns: per stream, by how much longer forth takes than back, measured by other means.
    """
    pairs, stray = len(clouds.initiator), _stray_ns(settings)
    lines = find_lines(clouds, floors.least(rows), stray, settings)
    (stand, middle), noise = lines.stands, clouds.noise_ns[clouds.pair]
    width = np.repeat(np.abs(stand.value[0::2] + stand.value[1::2]) / 2, 2)
    # At equal depth both directions are expected to be equally far above their floors.
    gap = (stand.spacing[0::2] + stand.spacing[1::2]) / 2
    spacing = np.where(np.isfinite(clouds.share), np.repeat(gap, 2), stand.spacing)
    late = np.hypot(CAUTION * np.minimum(spacing, width), np.repeat(noise, 2))
    shapes = TailShapes.of(stand, late)
    stood = stand.value + (tails.lift(rows, shapes, noise) + tails.deeper(rows, shapes)).ravel()
    offset = (stood[0::2] - stood[1::2] - longer_ns) / 2
    half = (stood[0::2] + stood[1::2]) / 2
    doubt = (late[0::2] + late[1::2]) / 2
    wrong, variance = _lateness(late, half, floors.known(rows, half, doubt), noise, tails.apart(rows))

    upper, lower = np.full(pairs, np.inf), np.full(pairs, -np.inf)
    np.minimum.at(upper, clouds.pair, middle.ceiling[0::2] + stray)
    np.maximum.at(lower, clouds.pair, -middle.ceiling[1::2] - stray)
    mean, variance = combine(offset - wrong, np.sqrt(variance), clouds.pair, pairs)
    # All streams of a pair are wrong together if its line is turned wrongly.
    lever_s = (middle.least_at_s[0::2] + middle.least_at_s[1::2]) / 2
    lever_s = np.bincount(clouds.pair, weights=lever_s) / np.bincount(clouds.pair)
    measured = PairEstimates(
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
        torn=torn(clouds, lines, stray) | (lower > upper),
    )
    return measured, Widths(half, doubt, gap), shapes


def _lateness(
    late: Floats,
    half: Floats,
    floors: Known,
    noise_ns: Floats,
    usual: Floats,
) -> tuple[Floats, Floats]:
    """The expected error of each stream's offset, and the variance that remains.

    One direction was later than the other.

    Parameters:
        late: per side, the expected distance of its least delay from the floor, by its own points; at least the noise.
        half: half of the margins' widths.
        floors: the least of those.
        noise_ns: the noise of the stamps.
        usual: logarithm of the ratio of both directions' distances, as it usually is.
    """
    first, second = late[0::2], late[1::2]
    # The floor lies lower by its own window's doubt, but hardly by more than this window's. It is known no better than
    # stamps repeat.
    doubt = np.minimum(np.maximum(floors.doubt_ns, noise_ns), (first + second) / 2)
    total = np.maximum(half - floors.floor_ns, 0.0) + doubt
    # Where both directions were far later than their points let expect, the points tell no more than which of the two
    # was later.
    larger = np.maximum(2 * total / (first + second), 1.0)
    first, second = credible(first, second, usual)
    known = share(2 * total, larger * first, larger * second)
    wrong = known.mean - total
    return wrong, known.variance + (wrong / total * doubt) ** 2 + noise_ns**2


def combine(offset: Floats, sigma: Floats, pair: Ints, pairs: int) -> tuple[Floats, Floats]:
    """The weighted mean of the streams of each pair, and its variance.

    A stream far from the weighted median is left out, but only if more than half remain. Of two that disagree nothing
    says which is wrong. Both stay then, and the variance grows by their disagreement (the Birge ratio).
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


def _stray_ns(settings: SyncSettings) -> float:
    """How far two clocks that wander may leave a straight line within a window."""
    return SIGMAS * settings.wander_ppb * float(np.sqrt(2 * settings.window_s**3 / _BRIDGE))


def _padded(values: Floats, pair: Ints, pairs: int, missing: float) -> Floats:
    """Values of streams as one row per pair."""
    order = np.argsort(pair, kind="stable")
    counts = np.bincount(pair, minlength=pairs)
    place = np.arange(len(pair)) - np.concatenate(([0], np.cumsum(counts)[:-1]))[pair[order]]
    rows = np.full((pairs, int(counts.max())), missing)
    rows[pair[order], place] = values[order]
    return rows
