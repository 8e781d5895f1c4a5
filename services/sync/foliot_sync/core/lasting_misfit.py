"""By how much each measurement is usually off from what all others say, which the asymmetry of its path makes.

Where the way forth takes longer than the way back, an offset is wrong by half of the difference, in each window by the
same. A stream's is checked by the pair's other streams, and a pair's by the mesh. In each window others of them count
most, as queues come and go. So what is wrong with the whole changes with the weights, unless each is corrected by what
it was off by before.

What all have in common shows in no misfit, and stays. So bounds rest on the misfits as they were measured.

A misfit far from the usual tells of a fault, as that a clock was stepped, or of another way. It is not remembered. After
several of them in a row the way is taken for another, and what was known of it is forgotten.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from foliot_sync.core.arrays import joined, take

if TYPE_CHECKING:
    from foliot_sync.core.arrays import Floats, Ints, Mask

_REMEMBERED = 30
"""Windows that count, as of a floor: a minute at two seconds each."""

_FEWEST = 4
"""Windows before the mean of a misfit counts, and strange ones in a row before it is of another way."""

_STRANGE_SIGMAS = 4.0
"""A misfit that is further from the usual is strange."""

_USUAL_NS = 10.0
"""What paths are off by usually: two metres of cable more one way than the other, on each side of a spine."""


class _Rows(NamedTuple):
    """What is known of each, in the order of keys."""

    key: Ints
    windows: Ints
    """Windows that count."""
    unheard: Ints
    """Windows since it was last measured."""
    strange: Ints
    """Latest windows in a row in which its misfit was strange."""
    weight: Floats
    """Sum of one over their variances, in ns^-2."""
    weighed: Floats
    """Sum of their misfits by these weights."""

    @classmethod
    def new(cls, key: Ints) -> _Rows:
        """Those of which nothing is known."""
        return cls(key, *np.zeros((3, len(key)), np.int64), *np.zeros((2, len(key))))


class LastingMisfits:
    """The weighted mean of each measurement's misfits in the latest windows.

    The more doubtful it is beside what paths are off by usually, the nearer to 0 it is taken.
    """

    def __init__(self) -> None:
        self._rows = _Rows.new(np.zeros(0, np.int64))

    def of(self, key: Ints) -> Floats:
        """What is usually wrong with each of these, in ns; 0: that is not known."""
        rows = self._rows
        if not len(rows.key):
            return np.zeros(len(key))
        place = np.minimum(np.searchsorted(rows.key, key), len(rows.key) - 1)
        known = (rows.key[place] == key) & (rows.windows[place] >= _FEWEST)
        return np.where(known, rows.weighed[place] / (rows.weight[place] + _USUAL_NS**-2), 0.0)

    def learn(self, key: Ints, misfit: Floats, variance: Floats) -> None:
        """Remembers a window's misfits, in ns, measured minus what all say; each key once."""
        rows = take(self._rows, self._rows.unheard < _REMEMBERED)
        # By the order of the keys: to find those of two sets that differ takes ten times as long.
        place = np.minimum(np.searchsorted(rows.key, key), max(len(rows.key) - 1, 0))
        new = key[rows.key[place] != key] if len(rows.key) else key
        if len(new):
            rows = joined((rows, _Rows.new(new)))
            rows = take(rows, np.argsort(rows.key))
        self._rows = rows = rows._replace(unheard=rows.unheard + 1)
        place = np.searchsorted(rows.key, key)
        rows.unheard[place] = 0
        strange = _strange(take(rows, place), misfit, variance)
        rows.strange[place] = np.where(strange, rows.strange[place] + 1, 0)
        anew = place[rows.strange[place] == _FEWEST]
        for column in rows[1:]:
            column[anew] = 0
        usual = rows.strange[place] == 0
        place, misfit, variance = place[usual], misfit[usual], variance[usual]
        fades = np.where(rows.windows[place] < _REMEMBERED, 1.0, 1 - 1 / _REMEMBERED)
        rows.windows[place] = np.minimum(rows.windows[place] + 1, _REMEMBERED)
        rows.weight[place] = fades * rows.weight[place] + 1 / variance
        rows.weighed[place] = fades * rows.weighed[place] + misfit / variance


def _strange(rows: _Rows, misfit: Floats, variance: Floats) -> Mask:
    """Which of these misfits, one a row, are not what could be expected after those remembered."""
    known = rows.windows > 0
    weight = np.where(known, rows.weight, 1.0)
    off = np.abs(misfit - rows.weighed / weight)
    return known & (off > _STRANGE_SIGMAS * np.sqrt(variance + 1 / weight + _USUAL_NS**2))
