"""The line between two clouds of points: Huygens' soft-margin separation, exact and for many streams at once.

A probe from the initiator bounds the offset (responder minus initiator) from above, one from the responder bounds it
from below. x is the initiator's clock in seconds from the middle of the window, y the difference of the stamps in ns,
so a slope is in ns per second, which is ppb.

A lower cloud reflected through the origin is an upper one. So every *side* is a row of points above a line, and for
a slope b its intercept is the k-th smallest of ``y - b x``: the least, or past the k-1 points that are not believed.
The linear programme of the soft margin (slack price 1/k a point) is then, for a fixed slope, the sum over the sides
of the mean of their k smallest residuals, which is concave in b. Hence a search in one dimension, in which
each step intersects the tangents at both ends; the objective is piecewise linear, so the last step is exact.

Source: Geng et al., Exploiting a Natural Network Effect for Scalable, Fine-grained Clock Synchronization (NSDI 2018);
Moon, Skelly and Towsley (INFOCOM 1999) for the linear programme.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

MOST_STEPS = 100
"""Every third step halves the range of slopes, so this many leave 1e-4 ppb of any range that is allowed."""


class Sides(NamedTuple):
    """Clouds of points, one side a row, lower ones reflected. Missing points have y = inf and x = 0."""

    x: NDArray[np.float64]
    y: NDArray[np.float64]
    k: NDArray[np.int64]
    """Per side: which smallest residual the line goes through; at most `counts`."""
    counts: NDArray[np.int64]
    """Points a side, at least 1."""


class Touch(NamedTuple):
    """Where lines of given slopes touch their sides."""

    mean: NDArray[np.float64]
    """Mean of the k smallest residuals."""
    gradient: NDArray[np.float64]
    """Its derivative by the slope."""
    intercept: NDArray[np.float64]
    """The k-th smallest residual."""


def touch(sides: Sides, slope: NDArray[np.float64]) -> Touch:
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


def separate(
    sides: Sides, group: NDArray[np.int64], least_ppb: NDArray[np.float64], most_ppb: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Per group of sides, the one slope within its limits that separates them widest.

    The sides of one stream give its soft-margin line; those of all the streams between two clocks share the clocks'
    drift and so give it together; a side alone gives its hull above the middle of the window.
    """

    def objective(slope: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        found = touch(sides, slope[group])
        return _sums(found.mean, group, groups), _sums(found.gradient, group, groups)

    groups = len(least_ppb)
    left, right = least_ppb.copy(), most_ppb.copy()
    left_value, left_rise = objective(left)
    right_value, right_rise = objective(right)
    best = np.where(left_rise <= 0, left, right)
    searching = (left_rise > 0) & (right_rise < 0)
    for step in range(MOST_STEPS):
        if not searching.any():
            break
        fall = np.where(searching, left_rise - right_rise, 1.0)
        crossing = (right_value - left_value + left_rise * left - right_rise * right) / fall
        slope = (left + right) / 2 if step % 3 == 2 else np.clip(crossing, left, right)
        slope = np.where(searching, slope, best)
        value, rise = objective(slope)
        ceiling = left_value + left_rise * (crossing - left)
        # The tangents cross above the objective, so where they meet it nothing higher is left between them.
        met = searching & ((rise == 0) | ((slope == crossing) & (ceiling - value <= 1e-12 * np.abs(ceiling))))
        best = np.where(searching, slope, best)
        searching &= ~met
        lower, upper = searching & (rise > 0), searching & (rise < 0)
        left, left_value, left_rise = (
            np.where(lower, new, old) for new, old in ((slope, left), (value, left_value), (rise, left_rise))
        )
        right, right_value, right_rise = (
            np.where(upper, new, old) for new, old in ((slope, right), (value, right_value), (rise, right_rise))
        )
    return best


def slope_uncertainty(
    sides: Sides,
    group: NDArray[np.int64],
    slope: NDArray[np.float64],
    noise_ns: NDArray[np.float64],
    limit_ppb: float,
) -> NDArray[np.float64]:
    """How far the slope of each group can be turned, in ppb, until the margin has lost what noise makes of it.

    `noise_ns` is the noise of the sum of the group's intercepts. Doubles outwards from 8 ppb, so the answer is at
    most twice the true one and never less.
    """

    def total(turned: NDArray[np.float64]) -> NDArray[np.float64]:
        return _sums(touch(sides, turned[group]).mean, group, len(slope))

    best = total(slope)
    found = np.full(len(slope), limit_ppb)
    for turn in (2.0**power for power in range(3, int(np.log2(limit_ppb)) + 1)):
        open_still = found >= limit_ppb
        if not open_still.any():
            break
        lost = np.minimum(best - total(slope + turn), best - total(slope - turn))
        found = np.where(open_still & (lost >= noise_ns), turn, found)
    return found


class Middle(NamedTuple):
    """Where sides stand in the middle of the window."""

    ceiling: NDArray[np.float64]
    """What no straight line below all the points is above at x = 0."""
    least_at_s: NDArray[np.float64]
    """Where the least residual is: by so many ns a ppb is a value wrong whose line is turned wrongly."""


def at_middle(sides: Sides, residuals: NDArray[np.float64], limit_ppb: float) -> Middle:
    """Where each side stands at x = 0, whatever its slope.

    The ceiling bounds the true offset whatever the paths' asymmetry, because a probe never arrives before it was sent; it holds as long as the clocks run straight
    within the window. Where points lie on both sides of the middle, it is the chord between the lowest of either: the lower hull itself, or above it by little, if
    the residuals are of a line near it. Else it is as far above each point as two clocks can run apart on the way to it.

    Parameters:
        sides: as they are.
        residuals: of the points, above any line through the origin.
        limit_ppb: two clocks never run further apart.
    """
    rows = np.arange(len(sides.x))
    earlier, later = np.where(sides.x <= 0, residuals, np.inf), np.where(sides.x > 0, residuals, np.inf)
    left, right = earlier.argmin(axis=1), later.argmin(axis=1)
    before, after = earlier[rows, left], later[rows, right]
    before_s, after_s = sides.x[rows, left], sides.x[rows, right]
    least_at_s = np.where(before <= after, before_s, after_s)
    between = np.isfinite(before) & np.isfinite(after)
    if between.all():
        return Middle((before * after_s - after * before_s) / (after_s - before_s), least_at_s)
    alone = (sides.y + limit_ppb * np.abs(sides.x)).min(axis=1)
    span = np.where(between, after_s - before_s, 1.0)
    chord = (np.where(between, before, 0.0) * after_s - np.where(between, after, 0.0) * before_s) / span
    return Middle(np.where(between, chord, alone), least_at_s)


def _sums(values: NDArray[np.float64], group: NDArray[np.int64], groups: int) -> NDArray[np.float64]:
    """Per group, the sum of its sides' values."""
    return np.bincount(group, weights=values, minlength=groups).astype(np.float64)
