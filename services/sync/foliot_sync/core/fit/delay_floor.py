"""The least recent one-way delay of each stream, which tells a good window from a congested one.

The half-width of a stream's margin is its floor plus the mean of the two least queueing delays. The error of its offset
is half their difference. So the width's excess over the floor bounds the error, for paths with equal floors.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from foliot import native
from foliot.columns import grown
from foliot_sync.core.clock_numbers import ClockNumbers

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from foliot_sync.core.arrays import Floats, Ints

    Rows = Ints

REMEMBERED = 30
"""Windows remembered: a minute at two seconds each.

In a longer memory, a route change would leave a floor that no longer exists.
"""

_AGREEING = 3
"""Windows whose least widths show how far above the floor they may be. Two agree by chance too often."""


_FEWEST = 4
"""Windows that a stream needs before they show its noise."""
_QUIET = 0.25
"""The quarter of a stream's latest windows in which points lay most densely shows its noise.

Queues made the gaps of the others.
"""


class Known(NamedTuple):
    """The known floors of streams, one element each."""

    floor_ns: Floats
    """The half-width of the best of the latest windows, this one included."""
    doubt_ns: Floats
    """The expected distance of that from the true floor, by how densely that window's points lay, or how well the best
    windows agree."""


class DelayFloors:
    """The half-widths of each stream's latest windows, and by how much each is expected to be too wide."""

    def __init__(self) -> None:
        self._numbers = ClockNumbers()
        self._widths = np.full((0, REMEMBERED), np.inf)
        self._doubts = np.full((0, REMEMBERED), np.inf)
        self._gaps = np.full((0, REMEMBERED), np.inf)
        self._next = np.zeros(0, dtype=np.int64)

    def rows(self, paths: Sequence[str]) -> Rows:
        """The rows of streams, made when they are new."""
        rows = np.fromiter(map(self._numbers.__getitem__, paths), np.int64, len(paths))
        if len(self._numbers) > len(self._next):
            room = max(64, len(self._numbers), 2 * len(self._next))
            self._widths, self._doubts, self._gaps = (
                grown(each, room, np.inf) for each in (self._widths, self._doubts, self._gaps)
            )
            self._next = grown(self._next, room)
        return rows

    def least(self, rows: Rows) -> Floats:
        """The least half-widths of the latest windows; inf where there were none."""
        return _least(self._widths, rows)

    def known(self, rows: Rows, half_ns: Floats, doubt_ns: Floats) -> Known:
        """The floors by the latest windows and this one."""
        return Known(*_floors((self._widths, self._doubts), rows, (half_ns, doubt_ns), _AGREEING))

    def borne_out(self, rows: Rows) -> Floats:
        """The half-width that three of the latest windows had at most; inf where there were fewer.

        A window in which a clock was stepped is too narrow, and may be the least of all.
        """
        widths = self._widths[rows]
        return np.asarray(np.partition(widths, _AGREEING - 1, axis=1)[:, _AGREEING - 1])

    def windows(self, rows: Rows) -> Ints:
        """How many windows are remembered."""
        return np.asarray(np.isfinite(self._widths[rows]).sum(axis=1))

    def noise_ns(self, rows: Rows) -> Floats:
        """How well stamps repeat, as quiet windows among the latest have shown it; nan where there were too few.

        It is the mean gap between the lowest points. By as much the lowest points of two windows differ where nothing
        queues.
        """
        return _quiet(self._gaps, rows, _QUIET, _FEWEST)

    def learn(
        self,
        rows: Rows,
        half_ns: Floats,
        doubt_ns: Floats,
        gap_ns: Floats | float = np.inf,
    ) -> None:
        """Remember the half-widths of a window that held no step, and the mean gaps between the lowest points of both directions."""
        self._widths[rows, self._next[rows]] = half_ns
        self._doubts[rows, self._next[rows]] = doubt_ns
        self._gaps[rows, self._next[rows]] = gap_ns
        self._next[rows] = (self._next[rows] + 1) % REMEMBERED


def floors_by_numpy(
    windows: tuple[Floats, Floats], rows: Rows, own: tuple[Floats, Floats], agreeing: int
) -> tuple[Floats, Floats]:
    """The twin of `foliot_native.pair_fits.floors`: the columns of `Known`.

    Parameters:
        windows: the half-widths and doubts of the windows remembered, a stream a row.
        rows: the streams of this window.
        own: half-width and doubt of each of these.
        agreeing: windows whose least widths show how far above the floor they may be.
    """
    widths, doubts = (
        np.concatenate((all_[rows], new[:, None]), axis=1) for all_, new in zip(windows, own, strict=True)
    )
    best = np.arange(len(rows)), (widths + doubts).argmin(axis=1)
    # Windows that agree on the least width have seen the floor, however far apart their other points lay.
    least = np.partition(widths, agreeing - 1, axis=1)[:, :agreeing]
    floor, spread = least.min(axis=1), np.ptp(least, axis=1)
    agree = spread < doubts[best]
    return np.where(agree, floor, widths[best]), np.where(agree, spread, doubts[best])


def least_by_numpy(widths: Floats, rows: Rows) -> Floats:
    """The twin of `foliot_native.pair_fits.least`: the least value of some rows; inf where there is none."""
    return np.asarray(widths[rows].min(axis=1, initial=np.inf))


def quiet_by_numpy(gaps: Floats, rows: Rows, share: float, fewest: int) -> Floats:
    """The twin of `foliot_native.pair_fits.quiet`: a low quantile of some rows; nan where a row has too few values.

    Parameters:
        gaps: inf where there is no value.
        rows: those asked for.
        share: so many of a row's values lie below.
        fewest: values that a row needs.
    """
    gaps = np.sort(gaps[rows], axis=1)
    windows = np.isfinite(gaps).sum(axis=1)
    quiet = gaps[np.arange(len(rows)), (share * np.maximum(windows - 1, 0)).astype(np.int64)]
    return np.where(windows >= fewest, quiet, np.nan)


_compiled = native.compiled("pair_fits")
_floors: Callable[[tuple[Floats, Floats], Ints, tuple[Floats, Floats], int], tuple[Floats, Floats]] = (
    _compiled.floors if _compiled else floors_by_numpy
)
_least: Callable[[Floats, Ints], Floats] = _compiled.least if _compiled else least_by_numpy
_quiet: Callable[[Floats, Ints, float, int], Floats] = _compiled.quiet if _compiled else quiet_by_numpy
