"""Tells how far a clock's measurements are noise, and how much its rate wanders, from how far they lie from straight lines.

Of three measurements, the middle one lies beside the line through the outer two. Noise puts it as far beside a short line as a long one. A rate that wanders with density
q puts it the further the longer the line is: a variance of ``q a² b² / (3 (a + b))`` for an integrated random walk, a and b after and before the outer ones. So lines over
two, four, eight and sixteen windows tell one from the other. The variances that the fits state are taken as they are, but for one factor for each clock.

What is known at first, and what few measurements say, meet as prior and likelihood on a grid of both.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from foliot_sync.settings import NANOSECONDS

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]
    Ints = NDArray[np.int64]

LAGS = np.array([1, 2, 4, 8])
"""Measurements between the middle one and the outer ones."""
KEPT = 2 * int(LAGS[-1]) + 1
_REMEMBERED = 0.97
"""Of what a clock's lines have said, from one measurement to the next: about a minute of windows."""
_STRAIGHT = 9.0
"""Of a squared distance over its variance: three deviations at most, so that one bad window does not count as many."""
_LEAST_VARIANCE = 1e-3
"""Nobody states less than a reference does of itself; ns²."""
_UNEVEN = 3.0
"""Lines whose halves differ more are left out: windows were missed."""
_DENSITIES = 2 * np.geomspace(0.1, 400.0, 13) ** 2
"""Of the best crystal in an oven, and of one in a draught, ppb² per second."""
_FACTORS = np.geomspace(1 / 16, 2.0, 6)
"""Of the variances that fits state. They know their points, but not how a machine's noise is spread."""
_VAGUE_DENSITY, _VAGUE_FACTOR = 3.0, 3.0
"""Deviations of the logarithms of both, at first: most clocks are within a factor of 20 either way."""
_PATIENCE, _BELOW = 10.0, 1.5
"""Lines after which a clock is not thought to wander as much as any may, and by how much less, as a logarithm: what is guessed at first is a bound."""


class Heard(NamedTuple):
    """The last measurements of clocks, the newest first, and what their lines have said."""

    at_ns: Ints
    """One row a clock, `KEPT` columns; local time, 0: none."""
    offset_ns: Ints
    variance: Floats
    lines: Floats
    """One row a clock, one column a lag, as the next two: how many there were, the older the less each counts."""
    strayed: Floats
    """Squared distances from them over the variance that was stated, in the mean."""
    reach: Floats
    """What a density of 1 adds to that, in the mean."""


class Told(NamedTuple):
    """What the lines of a clock come to."""

    density: Floats
    factor: Floats
    """Of the variances that its fits state."""

    def cautious(self, guess: Floats) -> Told:
        """As a filter is to take it: with no less noise than is stated, and as much more wander, so that its gains are the same.

        Errors that last, as of a floor that was never seen, stray from no line. But no clock is said to wander more for it than was guessed at first.
        """
        least = np.minimum(self.factor, 1.0)
        return Told(np.minimum(self.density / least, np.maximum(self.density, guess)), self.factor / least)


def nothing(clocks: int) -> Heard:
    """Of clocks that were not measured yet."""
    rows, lags = (clocks, KEPT), (clocks, len(LAGS))
    return Heard(
        np.zeros(rows, np.int64),
        np.zeros(rows, np.int64),
        np.zeros(rows),
        np.zeros(lags),
        np.zeros(lags),
        np.zeros(lags),
    )


def hear(heard: Heard, told: Told, at_ns: Ints, offset_ns: Ints, variance: Floats) -> Heard:
    """What is known after one more measurement of each clock, its variance as stated."""
    whole = [
        np.concatenate((new[:, None], old[:, :-1]), axis=1)
        for new, old in ((at_ns, heard.at_ns), (offset_ns, heard.offset_ns))
    ]
    variances = np.concatenate((variance[:, None], heard.variance[:, :-1]), axis=1)
    at_s = (whole[0] - whole[0][:, :1]) / NANOSECONDS
    offset = (whole[1] - whole[1][:, :1]).astype(np.float64)
    middle, first = at_s[:, LAGS], at_s[:, 2 * LAGS]
    before, after = middle - first, -middle
    sound = (whole[0][:, 2 * LAGS] != 0) & (np.minimum(before, after) > 0)
    sound &= np.maximum(before, after) <= _UNEVEN * np.minimum(before, after)
    before, after = np.where(sound, before, 1.0), np.where(sound, after, 1.0)
    span = before + after
    # The newest one is where offsets count from.
    beside = offset[:, LAGS] - after * offset[:, 2 * LAGS] / span
    stated = variances[:, LAGS]
    stated = stated + (after**2 * variances[:, 2 * LAGS] + before**2 * variances[:, :1]) / span**2
    stated = np.where(sound, np.maximum(stated, _LEAST_VARIANCE), 1.0)
    reach = before**2 * after**2 / (3 * span) / stated
    expected = told.factor[:, None] + told.density[:, None] * reach
    strayed = np.minimum(beside**2 / stated, _STRAIGHT * expected)
    count = _REMEMBERED * heard.lines + sound.astype(np.float64)
    share = np.where(sound, 1 / np.maximum(count, 1.0), 0.0)
    return Heard(
        whole[0],
        whole[1],
        variances,
        count,
        heard.strayed + share * (strayed - heard.strayed),
        heard.reach + share * (reach - heard.reach),
    )


def judge(heard: Heard, guess: Floats) -> Told:
    """Density and factor of each clock, in the mean of what is likely of their logarithms.

    Parameters:
        guess: the density that was thought of at first.
    """
    # Lines of many windows overlap, so that each tells less that the others do not.
    weight = heard.lines / np.sqrt(LAGS)
    density, factor = np.log(_DENSITIES), np.log(_FACTORS)
    usual = np.log(guess) - _BELOW * np.minimum(heard.lines[:, 0] / _PATIENCE, 1.0)
    likely = -(((density[None, :] - usual[:, None]) / _VAGUE_DENSITY) ** 2)[:, :, None] / 2
    likely = likely - ((factor / _VAGUE_FACTOR) ** 2)[None, None, :] / 2
    for lag in range(len(LAGS)):
        variance = heard.reach[:, lag, None, None] * _DENSITIES[None, :, None] + _FACTORS[None, None, :]
        likely = (
            likely - weight[:, lag, None, None] * (np.log(variance) + heard.strayed[:, lag, None, None] / variance) / 2
        )
    chance = np.exp(likely - likely.max(axis=(1, 2), keepdims=True))
    chance /= chance.sum(axis=(1, 2), keepdims=True)
    return Told(np.exp(chance.sum(axis=2) @ density), np.exp(chance.sum(axis=1) @ factor))
