"""Estimates of a pair of clocks from all streams between them: offset, drift, their variances, and certain limits.

All streams between the same two clocks see the same drift, over whatever rails and entropies. So one slope is fitted to
them all. Each stream then has its own intercepts, because each path has its own one-way floor.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

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


_SLOW_SHARE, _SLOW_NS = 0.15, 1_000.0
"""When a host's processors are taken, half of a round trip gets longer by this share of it, or by so much where it
takes long anyway. In a lab on two processors that were always busy it was 12 to 17 %, which was 600 to 900 ns."""
_QUICK_WINDOWS = 2.0
"""Windows after which half of that is still unseen: there, hosts were slow for one to six windows at a time."""


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
    excess_ns: Floats
    """By how much the widths of its streams, halved, exceed their floors, at least; and how much too high a floor may be
    that few windows have shown."""
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


class Misfits(NamedTuple):
    """What each stream is off by from the mean of its pair, as measured, one element each."""

    off: Floats
    """In ns. What a single window can differ by from what is usual is limited, so that none counts for many."""
    variance: Floats
    compared: Mask
    """Whether the pair has other streams."""


def measure(
    clouds: PointClouds,
    rows: Ints,
    floors: DelayFloors,
    tails: DelayTails,
    settings: SyncSettings,
    *,
    longer_ns: Floats | float = 0.0,
    lasting_ns: Floats | float = 0.0,
) -> tuple[PairEstimates, Widths, TailShapes, Misfits]:
    """The measurement of every pair of clocks in these clouds, and what its streams have shown.

    Parameters:
        clouds: those of a window.
        rows: the rows of its streams in `floors`.
        floors: the least widths of streams.
        tails: how their lowest points usually lie.
        longer_ns: per stream, by how much longer forth takes than back, measured by other means.
        lasting_ns: per stream, what its offset is usually off by: see `lasting_misfit`.
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
    known = floors.known(rows, half, doubt)
    wrong, variance = _lateness(late, half, known, noise, tails.apart(rows))

    lower, upper = _limits(clouds, middle.ceiling, stray)
    mean, mean_variance, misfits = combine(offset - wrong, variance, clouds.pair, pairs, lasting_ns)
    # All streams of a pair are wrong together if its line is turned wrongly.
    lever_s = (middle.least_at_s[0::2] + middle.least_at_s[1::2]) / 2
    lever_s = np.bincount(clouds.pair, weights=lever_s) / np.bincount(clouds.pair)
    measured = PairEstimates(
        initiator=clouds.initiator,
        responder=clouds.responder,
        at_ns=clouds.at_ns,
        base_ns=clouds.base_ns,
        offset_ns=mean,
        variance=mean_variance + lines.doubt * lever_s**2 + clouds.noise_ns**2,
        slope_ppb=lines.fitted,
        slope_variance=lines.variance,
        lower_ns=lower,
        upper_ns=upper,
        noise_ns=clouds.noise_ns,
        excess_ns=_common_excess(clouds, half, floors.borne_out(rows), floors.windows(rows)),
        torn=torn(clouds, lines, stray) | (lower > upper),
    )
    return measured, Widths(half, doubt, gap), shapes, misfits


def _common_excess(clouds: PointClouds, half: Floats, floor: Floats, windows: Ints) -> Floats:
    """By how much all streams of each pair exceed their floors, at least.

    Parameters:
        clouds: those of a window.
        half: of each stream, half of its margin's width, in ns.
        floor: what that was in several windows, or less; inf: not known.
        windows: how many windows of it are remembered.
    """
    slow = np.minimum(_SLOW_SHARE * np.abs(half), _SLOW_NS) * 0.5 ** (windows / _QUICK_WINDOWS)
    unseen = np.where(clouds.by_host[clouds.pair], slow, 0.0)
    least = np.full(len(clouds.initiator), np.inf)
    np.minimum.at(least, clouds.pair, np.maximum(half - floor, 0.0) + unseen)
    return least


def _limits(clouds: PointClouds, ceiling: Floats, stray: float) -> tuple[Floats, Floats]:
    """The least and the greatest offset of each pair that no stamp contradicts."""
    pairs = len(clouds.initiator)
    upper, lower = np.full(pairs, np.inf), np.full(pairs, -np.inf)
    np.minimum.at(upper, clouds.pair, ceiling[0::2] + stray)
    np.maximum.at(lower, clouds.pair, -ceiling[1::2] - stray)
    return lower, upper


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


def combine(
    offset: Floats, variance: Floats, pair: Ints, pairs: int, lasting: Floats | float = 0.0
) -> tuple[Floats, Floats, Misfits]:
    """The weighted mean of the streams of each pair, its variance, and what the streams are off by.

    A stream far from the weighted median is left out, but only if more than half remain. Of two that disagree nothing
    says which is wrong. Both stay then, and the variance grows by their disagreement (the Birge ratio).

    Parameters:
        offset: of each stream, in ns.
        variance: of that.
        pair: the number of its pair.
        pairs: how many there are.
        lasting: what it is usually off by, in ns. The mean is corrected by that, and the choice of streams. The variance
            is not, because what all are off by together shows in how far they are apart, and nowhere else.
    """
    streams = _Padding.of(pair, pairs)
    measured, variances = streams.padded(offset, 0.0), streams.padded(variance, np.inf)
    offsets = streams.padded(offset - lasting, 0.0)
    weights = 1 / variances
    order = offsets.argsort(axis=1)
    heap = np.take_along_axis(weights, order, axis=1).cumsum(axis=1)
    middle = (heap >= heap[:, -1:] / 2).argmax(axis=1)
    median = np.take_along_axis(offsets, np.take_along_axis(order, middle[:, None], axis=1), axis=1)
    present = weights > 0
    sigmas = np.where(present, np.sqrt(np.where(present, variances, 1.0)), 1.0)
    agree = present & (np.abs(offsets - median) <= DISAGREEMENT_SIGMAS * sigmas)
    decided = (agree.sum(axis=1) * 2 > present.sum(axis=1))[:, None]
    weights = np.where(decided & ~agree, 0.0, weights)
    total = weights.sum(axis=1)
    off = measured - ((weights * measured).sum(axis=1) / total)[:, None]
    scatter = (weights * off**2).sum(axis=1) / np.maximum((weights > 0).sum(axis=1) - 1, 1)
    misfits = Misfits(streams.flat(off), variance, (present.sum(axis=1) > 1)[pair])
    return (weights * offsets).sum(axis=1) / total, np.maximum(scatter, 1.0) / total, misfits


def _stray_ns(settings: SyncSettings) -> float:
    """How far two clocks that wander may leave a straight line within a window."""
    return SIGMAS * settings.wander_ppb * float(np.sqrt(2 * settings.window_s**3 / _BRIDGE))


class _Padding(NamedTuple):
    """Where the values of streams lie in a table with a row per pair."""

    pair: Ints
    place: Ints
    """Of each stream in its pair's row."""
    shape: tuple[int, int]

    @classmethod
    def of(cls, pair: Ints, pairs: int) -> _Padding:
        """By the pair of each stream."""
        order = np.argsort(pair, kind="stable")
        counts = np.bincount(pair, minlength=pairs)
        place = np.empty(len(pair), np.int64)
        place[order] = np.arange(len(pair)) - np.concatenate(([0], np.cumsum(counts)[:-1]))[pair[order]]
        return cls(pair, place, (pairs, int(counts.max())))

    def padded(self, values: Floats, missing: float) -> Floats:
        """Values of streams as that table."""
        rows = np.full(self.shape, missing)
        rows[self.pair, self.place] = values
        return rows

    def flat(self, table: Any) -> Any:
        """The table's values, one a stream."""
        return table[self.pair, self.place]
