"""Tells how far a clock's measurements are noise, and how much its rate wanders, from how far they lie from straight lines.

Of three measurements, the middle one lies beside the line through the outer two. Noise puts it as far beside a short
line as a long one. A rate that wanders with density q puts it the further the longer the line is. For an integrated
random walk, the variance is ``q a² b² / (3 (a + b))``. Here a and b are the times from the middle one to the outer
ones. So lines over two, four, eight and sixteen windows tell one from the other. The variances that the fits state are
taken as they are, but for one factor for each clock.

A first guess is the prior, and the measurements are the likelihood, both on a grid of density and factor. The density
told is above the mean by what is still doubtful: a clock that has run straight for twenty seconds may turn in the next.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from foliot_sync.core.arrays import joined
from foliot_sync.settings import NANOSECONDS

if TYPE_CHECKING:
    from foliot_sync.core.arrays import Floats, Ints

LAGS = np.array([1, 2, 4, 8])
"""Measurements between the middle one and the outer ones."""
KEPT = 2 * int(LAGS[-1]) + 1
_REMEMBERED = 0.97
"""The share of what a clock's lines have said that is left at the next measurement: a memory of about a minute of
windows."""
_STRAIGHT = 9.0
"""The most that a squared distance counts, over its variance: three deviations, so that one bad window does not count
as many."""
_LEAST_VARIANCE = 1e-3
"""Least variance that counts, in ns²: a reference states as little of itself."""
_UNEVEN = 3.0
"""Lines whose halves differ more are left out: windows were missed."""
_DENSITIES = 2 * np.geomspace(0.1, 400.0, 13) ** 2
"""The grid of densities, ppb² per second: from the best crystal in an oven to one in a draught."""
_FACTORS = np.geomspace(1 / 16, 2.0, 6)
"""The grid of factors on the variances that fits state.

Fits know their points, but not how a machine's noise is spread.
"""
_VAGUE_DENSITY, _VAGUE_FACTOR = 3.0, 3.0
"""Prior deviations of the logarithms of density and factor: most clocks are within a factor of 20 either way."""
_PATIENCE, _BELOW = 10.0, 1.5
"""Lines after which a clock is expected to wander less than the first guess, and by how much less, as a logarithm.

The first guess is a bound.
"""
_DOUBT_SIGMAS = 1.5
"""By so many deviations of its logarithm a density is told above the mean, but not above the first guess.

With the mean alone, one in 200 clocks that wandered as much as the first guess was taken to be disrupted in its first
minute; with one deviation, one in 10,000; with one and a half, none of 40,000.
"""
_AT_ONCE = 1_024
"""Clocks that are judged at once: 0.6 MB a table."""


class Heard(NamedTuple):
    """The last measurements of clocks, the newest first, and what their lines have said."""

    at_ns: Ints
    """One row a clock, `KEPT` columns; local time, 0: none."""
    offset_ns: Ints
    variance: Floats
    lines: Floats
    """The number of lines; older ones count less. One row a clock, one column a lag, as in the next two."""
    strayed: Floats
    """Mean of the squared distances from the lines, over the variance that was stated."""
    reach: Floats
    """Mean of what a density of 1 adds to that."""


class NoiseAndWander(NamedTuple):
    """The wander and noise that the lines of a clock show."""

    density: Floats
    factor: Floats
    """Factor on the variances that its fits state."""

    def cautious(self, guess: Floats) -> NoiseAndWander:
        """The values for a filter, with no less noise than is stated.

        Wander grows by the same factor, so that the gains are the same.

        Errors that last, as of a floor that was never seen, show in no line. But this raises no clock's wander above
        the first guess.
        """
        least = np.minimum(self.factor, 1.0)
        return NoiseAndWander(np.minimum(self.density / least, np.maximum(self.density, guess)), self.factor / least)


def nothing(clocks: int) -> Heard:
    """The record of clocks that were not measured yet."""
    rows, lags = (clocks, KEPT), (clocks, len(LAGS))
    return Heard(
        np.zeros(rows, np.int64),
        np.zeros(rows, np.int64),
        np.zeros(rows),
        np.zeros(lags),
        np.zeros(lags),
        np.zeros(lags),
    )


def hear(heard: Heard, told: NoiseAndWander, at_ns: Ints, offset_ns: Ints, variance: Floats) -> Heard:
    """The record after one more measurement of each clock, with its variance as stated."""
    columns: Any = zip((at_ns, offset_ns, variance), heard[:3], strict=True)
    at_ns, offset_ns, variance = (np.concatenate((new[:, None], old[:, :-1]), axis=1) for new, old in columns)
    at_s = (at_ns - at_ns[:, :1]) / NANOSECONDS
    offset = (offset_ns - offset_ns[:, :1]).astype(np.float64)
    middle, first = at_s[:, LAGS], at_s[:, 2 * LAGS]
    before, after = middle - first, -middle
    sound = (at_ns[:, 2 * LAGS] != 0) & (np.minimum(before, after) > 0)
    sound &= np.maximum(before, after) <= _UNEVEN * np.minimum(before, after)
    before, after = np.where(sound, before, 1.0), np.where(sound, after, 1.0)
    span = before + after
    # Offsets count from the newest one.
    beside = offset[:, LAGS] - after * offset[:, 2 * LAGS] / span
    stated = variance[:, LAGS]
    stated = stated + (after**2 * variance[:, 2 * LAGS] + before**2 * variance[:, :1]) / span**2
    stated = np.where(sound, np.maximum(stated, _LEAST_VARIANCE), 1.0)
    reach = before**2 * after**2 / (3 * span) / stated
    expected = told.factor[:, None] + told.density[:, None] * reach
    strayed = np.minimum(beside**2 / stated, _STRAIGHT * expected)
    count = _REMEMBERED * heard.lines + sound.astype(np.float64)
    share = np.where(sound, 1 / np.maximum(count, 1.0), 0.0)
    return Heard(
        at_ns,
        offset_ns,
        variance,
        count,
        heard.strayed + share * (strayed - heard.strayed),
        heard.reach + share * (reach - heard.reach),
    )


def judge(heard: Heard, guess: Floats) -> NoiseAndWander:
    """Density and factor of each clock: the means of their logarithms, weighed by likelihood.

    A density's is greater by its doubt, see `_DOUBT_SIGMAS`.

    Parameters:
        guess: the first guess of the density.
    """
    # A table of all clocks by all densities and factors would not fit into a processor's cache.
    parts = [slice(first, first + _AT_ONCE) for first in range(0, len(guess), _AT_ONCE)]
    judged = [_judge(heard.lines[part], heard.strayed[part], heard.reach[part], guess[part]) for part in parts]
    return joined(judged) if judged else NoiseAndWander(guess, guess)


def _judge(lines: Floats, strayed: Floats, reach: Floats, guess: Floats) -> NoiseAndWander:
    # Long lines overlap, so each tells less that is new.
    weight = lines / np.sqrt(LAGS)
    density, factor = np.log(_DENSITIES), np.log(_FACTORS)
    usual = np.log(guess) - _BELOW * np.minimum(lines[:, 0] / _PATIENCE, 1.0)
    likely = -(((density[None, :] - usual[:, None]) / _VAGUE_DENSITY) ** 2)[:, :, None] / 2
    likely = likely - ((factor / _VAGUE_FACTOR) ** 2)[None, None, :] / 2
    for lag in range(len(LAGS)):
        variance = reach[:, lag, None, None] * _DENSITIES[None, :, None] + _FACTORS[None, None, :]
        likely = likely - weight[:, lag, None, None] * (np.log(variance) + strayed[:, lag, None, None] / variance) / 2
    chance = np.exp(likely - likely.max(axis=(1, 2), keepdims=True))
    chance /= chance.sum(axis=(1, 2), keepdims=True)
    of_density = chance.sum(axis=2)
    mean = of_density @ density
    doubt = np.sqrt(np.maximum(of_density @ density**2 - mean**2, 0.0))
    told = np.minimum(mean + _DOUBT_SIGMAS * doubt, np.maximum(mean, np.log(guess)))
    return NoiseAndWander(np.exp(told), np.exp(chance.sum(axis=1) @ factor))
