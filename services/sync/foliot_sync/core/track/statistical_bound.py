"""The statistical bound of every clock, and its growth with time."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from foliot_sync.core.limits import SIGMAS, WORST_PPB
from foliot_sync.settings import NANOSECONDS

if TYPE_CHECKING:
    from foliot_sync.core.arrays import Floats
    from foliot_sync.core.track.kalman import ClockTracks
    from foliot_sync.settings import SyncSettings


class StatisticalBound(NamedTuple):
    """The statistical bound of every clock as of its track, and its growth (`ClockState`).

    Inf and 0 where nothing is known.

    At every age it is `sigmas` deviations of the extrapolated offset. The offset's own deviation and the rate's, times
    the age, add up as if both erred the same way. A random walk of the rate adds t sqrt(t / 3) times its density's root
    (Zucca and Tavella, IEEE Trans. UFFC 2005).
    """

    bound_ns: Floats
    growth_ppb: Floats
    wander_ppb: Floats

    def at(self, age_s: float | Floats) -> Floats:
        """The bounds at an age."""
        grown: Floats = np.hypot(self.bound_ns + self.growth_ppb * age_s, self.wander_ppb * age_s**1.5)
        return grown


def promise(tracks: ClockTracks, settings: SyncSettings) -> StatisticalBound:
    """The statistical bounds of these clocks."""
    known, density = tracks.known, np.maximum(tracks.shown, 2 * settings.least_wander_ppb**2)
    # As far as the filter takes noise for greater than it is, it allows for what lasts.
    p00 = tracks.likely * tracks.p00 + (1 - tracks.likely) * tracks.lasting_ns**2
    # Where a host's slowness makes more of an error than noise does, no average takes it out.
    p00 = np.maximum(p00, tracks.late_ns**2)
    p11 = tracks.likely * tracks.p11
    return StatisticalBound(
        np.where(known, SIGMAS * np.sqrt(p00), np.inf),
        np.where(known, SIGMAS * np.sqrt(p11), 0.0),
        np.where(known, SIGMAS * np.sqrt(density / 3), 0.0),
    )


def grown_hard(before: ClockTracks, now: ClockTracks, settings: SyncSettings) -> Floats:
    """The hard bounds of clocks as of now, from those before."""
    age_s = np.abs(now.as_of_ns - before.as_of_ns) / NANOSECONDS
    return np.asarray(np.maximum(promise(before, settings).at(age_s), before.hard_ns + WORST_PPB * age_s))
