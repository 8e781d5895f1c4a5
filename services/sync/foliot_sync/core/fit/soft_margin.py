"""The line between two clouds of points: Huygens' soft-margin separation, exact and for many streams at once.

A probe from the initiator bounds the offset (responder minus initiator) from above, one from the responder bounds it
from below. Of a point, x is the initiator's clock in seconds from the middle of the window, and y the difference of the
stamps in ns. So a slope is in ns per second, which is ppb.

A lower cloud reflected through the origin is an upper one. So every *side* is a row of points above a line. For a slope
b its intercept is the k-th smallest of ``y - b x``. That is the least, or the least after the k-1 points that are not
believed. The soft margin is a linear programme with slack price 1/k a point. For a fixed slope, its value is the sum
over the sides of the mean of their k smallest residuals, which is concave in b. Hence a search in one dimension, in
which each step intersects the tangents at both ends. The objective is piecewise linear, so the last step is exact.

Source: Geng et al., Exploiting a Natural Network Effect for Scalable, Fine-grained Clock Synchronization (NSDI 2018);
Moon, Skelly and Towsley (INFOCOM 1999) for the linear programme.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from foliot_sync.core.arrays import take

if TYPE_CHECKING:
    from foliot_sync.core.arrays import Floats, Ints, Mask
MOST_STEPS = 100
"""Every third step halves the range of slopes, so this many leave 1e-4 ppb of any range that is allowed."""


class Sides(NamedTuple):
    """Clouds of points, one side a row, lower ones reflected. Missing points have y = inf and x = 0."""

    x: Floats
    y: Floats
    k: Ints
    """Rank of the residual that each side's line goes through; 1 is the smallest. At most `counts`."""
    counts: Ints
    """Points a side, at least 1."""


class Touch(NamedTuple):
    """The points at which lines of given slopes touch their sides."""

    mean: Floats
    """Mean of the k smallest residuals."""
    gradient: Floats
    """Its derivative by the slope."""
    intercept: Floats
    """The k-th smallest residual."""


def touch(sides: Sides, slope: Floats) -> Touch:
    """The intercepts of all sides, each for its slope."""
    residuals = sides.y - slope[:, None] * sides.x
    most = int(sides.k.max())
    rows = np.arange(len(residuals))
    if most == 1:
        least = residuals.argmin(axis=1)
        value = residuals[rows, least]
        return Touch(value, -sides.x[rows, least], value)
    nearest = np.argpartition(residuals, most - 1, axis=1)[:, :most]
    values = np.take_along_axis(residuals, nearest, axis=1)
    order = values.argsort(axis=1)
    values = np.take_along_axis(values, order, axis=1)
    x = np.take_along_axis(sides.x, np.take_along_axis(nearest, order, axis=1), axis=1)
    inside = np.arange(most) < sides.k[:, None]
    mean = np.where(inside, values, 0.0).sum(axis=1) / sides.k
    gradient = -np.where(inside, x, 0.0).sum(axis=1) / sides.k
    return Touch(mean, gradient, values[rows, sides.k - 1])


def separate(sides: Sides, group: Ints, least_ppb: Floats, most_ppb: Floats) -> Floats:
    """The one slope of each group of sides, within its limits, that separates them widest.

    The sides of one stream give its soft-margin line. All streams between two clocks share the clocks' drift, so their
    sides give it together.
    """
    left, right = (_ends(sides, group, slope) for slope in (least_ppb.copy(), most_ppb.copy()))
    best = np.where(left.rise <= 0, left.slope, right.slope)
    searching = np.flatnonzero((left.rise > 0) & (right.rise < 0))
    left, right = take(left, searching), take(right, searching)
    some, place = _of_groups(sides, group, searching)
    for step in range(MOST_STEPS):
        if not len(searching):
            break
        crossing = (right.value - left.value + left.rise * left.slope - right.rise * right.slope) / (
            left.rise - right.rise
        )
        slope = (left.slope + right.slope) / 2 if step % 3 == 2 else np.clip(crossing, left.slope, right.slope)
        new = _ends(some, place, slope)
        ceiling = left.value + left.rise * (crossing - left.slope)
        best[searching] = slope
        # The tangents cross above the objective, so where they meet it nothing higher is left between them.
        met = (new.rise == 0) | ((slope == crossing) & (ceiling - new.value <= 1e-12 * np.abs(ceiling)))
        left, right = left.where(new.rise <= 0, new), right.where(new.rise >= 0, new)
        if met.any():
            searching, left, right = searching[~met], take(left, ~met), take(right, ~met)
            some, place = _of_groups(some, place, np.flatnonzero(~met))
    return best


class _End(NamedTuple):
    """One end of the slopes among which each group's best one lies."""

    slope: Floats
    value: Floats
    """The objective there."""
    rise: Floats
    """Its derivative."""

    def where(self, kept: Mask, new: _End) -> _End:
        """Keeps the chosen rows, and takes the others from the new ones."""
        return _End(*(np.where(kept, old, other) for old, other in zip(self, new, strict=True)))


def _ends(sides: Sides, group: Ints, slope: Floats) -> _End:
    found = touch(sides, slope[group])
    return _End(slope, _sums(found.mean, group, len(slope)), _sums(found.gradient, group, len(slope)))


def _of_groups(sides: Sides, group: Ints, groups: Ints) -> tuple[Sides, Ints]:
    """The sides of some groups, and the place of each side's group among these."""
    place = np.full(int(group.max(initial=-1)) + 1, -1)
    place[groups] = np.arange(len(groups))
    chosen = place[group] >= 0
    return take(sides, chosen), place[group[chosen]]


def slope_uncertainty(
    sides: Sides,
    group: Ints,
    slope: Floats,
    noise_ns: Floats,
    limit_ppb: float,
) -> Floats:
    """The turn of each group's slope, in ppb, by which the margin loses as much as noise makes of it.

    `noise_ns` is the noise of the sum of the group's intercepts. Doubles outwards from 8 ppb, so the answer is at
    most twice the true one and never less.
    """
    best = _sums(touch(sides, slope[group]).mean, group, len(slope))
    found, turn = np.full(len(slope), limit_ppb), 8.0
    searching = np.arange(len(slope))
    while len(searching) and turn <= limit_ppb:
        turned = [
            _sums(touch(sides, (slope[searching] + by)[group]).mean, group, len(searching)) for by in (turn, -turn)
        ]
        done = best[searching] - np.maximum(*turned) >= noise_ns[searching]
        found[searching[done]] = turn
        sides, group = _of_groups(sides, group, np.flatnonzero(~done))
        searching, turn = searching[~done], 2 * turn
    return found


class Middle(NamedTuple):
    """The positions of sides in the middle of the window."""

    ceiling: Floats
    """At x = 0, no straight line below all the points is above this."""
    least_at_s: Floats
    """Where the least residual is. A value is wrong by so many ns for each ppb by which its line is turned wrongly."""


def at_middle(x: Floats, y: Floats, residuals: Floats, limit_ppb: float) -> Middle:
    """The position of each side at x = 0, whatever its slope.

    The ceiling bounds the true offset whatever the paths' asymmetry, because a probe never arrives before it was sent.
    It holds as long as the clocks run straight within the window. Where points lie on both sides of the middle, it is
    the chord between the lowest of either. If the residuals are of a line near it, that is the lower hull itself, or
    above it by little. If all points lie on one side, it is as far above each point as two clocks can run apart on the
    way to it.

    Parameters:
        x, y: the points of the sides, as `Sides` has them.
        residuals: of the points, above any line through the origin.
    """
    rows = np.arange(len(x))
    earlier, later = np.where(x <= 0, residuals, np.inf), np.where(x > 0, residuals, np.inf)
    left, right = earlier.argmin(axis=1), later.argmin(axis=1)
    before, after = earlier[rows, left], later[rows, right]
    before_s, after_s = x[rows, left], x[rows, right]
    least_at_s = np.where(before <= after, before_s, after_s)
    between = np.isfinite(before) & np.isfinite(after)
    if between.all():
        return Middle((before * after_s - after * before_s) / (after_s - before_s), least_at_s)
    alone = (y + limit_ppb * np.abs(x)).min(axis=1)
    span, before, after = np.where(between, (after_s - before_s, before, after), ((1.0,), (0.0,), (0.0,)))
    return Middle(np.where(between, (before * after_s - after * before_s) / span, alone), least_at_s)


def _sums(values: Floats, group: Ints, groups: int) -> Floats:
    """The sum of the values of each group's sides."""
    return np.bincount(group, weights=values, minlength=groups).astype(np.float64)
