"""What is said of a clock: the evidence for its status, and the message."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from foliot_schemas.bounds import FAR_NS
from foliot_schemas.clock import ClockState
from foliot_sync.states import Evidence

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from foliot_schemas.clock import ClockStatus
    from foliot_sync.history import Tracks
    from foliot_sync.settings import SyncSettings
    from foliot_sync.timescale import Timescale

UNKNOWN_NS = 2**62
"""A bound that promises nothing: 146 years."""


class Standing(NamedTuple):
    """What is remembered of a clock besides its track."""

    missed: int
    """Windows in a row without a measurement."""
    status: ClockStatus = "unsynchronised"
    neighbours: int = 0
    surplus_ns: float = 0.0
    suspected_ns: float = 0.0
    """How far the last window was from the prediction, if it was too far to believe either; else 0."""


class Promise(NamedTuple):
    """The statistical bound of every clock as of its track, and what it grows by (`ClockState`); inf and 0 where nothing is known.

    So many deviations of the extrapolated offset at every age: the offset's own, the rate's times the age as if both erred the same way, and what a random
    walk of the rate adds, t sqrt(t / 3) times its density's root (Zucca and Tavella, IEEE Trans. UFFC 2005).
    """

    bound_ns: NDArray[np.float64]
    growth_ppb: NDArray[np.float64]
    wander_ppb: NDArray[np.float64]

    def at(self, age_s: float) -> NDArray[np.float64]:
        """The bounds at an age."""
        grown: NDArray[np.float64] = np.hypot(self.bound_ns + self.growth_ppb * age_s, self.wander_ppb * age_s**1.5)
        return grown


def promise(tracks: Tracks, settings: SyncSettings) -> Promise:
    """What can be promised of these clocks."""
    known = tracks.known
    some = tracks.take(known)
    some = some._replace(density=np.maximum(some.density, 2 * settings.least_wander_ppb**2))
    bound, growth, wander = np.full(len(known), np.inf), np.zeros(len(known)), np.zeros(len(known))
    bound[known] = settings.sigmas * np.sqrt(some.p00)
    growth[known] = settings.sigmas * np.sqrt(some.p11)
    wander[known] = settings.sigmas * np.sqrt(some.density / 3)
    return Promise(bound, growth, wander)


def evidence(missed: int, windows: int, bound_ns: float, settings: SyncSettings) -> Evidence:
    """What a window that did not contradict says of a clock.

    Parameters:
        missed: windows in a row without a measurement.
        windows: windows in a row that agreed.
        bound_ns: what is promised of it at the age at which the next state takes its place.
        settings: of sync.
    """
    if missed >= settings.void_after_windows:
        return Evidence.IS_VOID
    if missed >= settings.holdover_after_windows:
        return Evidence.IS_SILENT
    if missed > 0:
        return Evidence.PASSES
    credible = windows >= settings.settle_windows and bound_ns <= settings.credible_ns
    return Evidence.AGREES if credible else Evidence.SETTLES


class Publisher(NamedTuple):
    """Makes the messages of one window."""

    reference: str
    window: int
    tracks: Tracks
    promised: Promise
    settings: SyncSettings
    timescale: Timescale

    def state(self, name: str, number: int, standing: Standing) -> ClockState:
        """The message about a clock."""
        as_of_ns = int(self.tracks.as_of_ns[number])
        bound_ns, hard_ns, void_ns = UNKNOWN_NS, UNKNOWN_NS, as_of_ns
        if self.tracks.windows[number] > 0:
            spread = standing.surplus_ns / max(standing.neighbours, 1) ** 0.5 + standing.suspected_ns
            hard_ns = _whole(float(self.tracks.hard_ns[number]))
            bound_ns = min(_whole(float(self.promised.bound_ns[number]) + spread), hard_ns)
            void_ns = int(self.tracks.measured_ns[number])
            void_ns += self.settings.void_after_windows * self.settings.window_ns
        # Whoever was that far off in the middle may have begun to run away a quarter of a window before.
        growth = float(self.promised.growth_ppb[number]) + 4 * standing.suspected_ns / self.settings.window_s
        hard_growth, wander = max(growth, self.settings.worst_ppb), float(self.promised.wander_ppb[number])
        if name == self.reference:
            # The others are measured against it; but when they go on, it may be the one that has wandered.
            bound_ns, hard_ns, growth = 0, 0, 0.0
        # Whoever still has this window's word when others have the next one's runs at another rate than they, by so much at most.
        steered = self.settings.steer_ppb_s * self.settings.window_s
        offset_ns, scale = int(self.tracks.offset_ns[number]), self.timescale.scale
        return ClockState(
            clock=name,
            reference=self.reference,
            offset_ns=_near(scale.of(as_of_ns + offset_ns) - as_of_ns),
            drift_ppb=scale.drift_ppb(float(self.tracks.drift_ppb[number])),
            hard_bound_ns=hard_ns,
            bound_ns=bound_ns,
            growth_ppb=growth + steered,
            as_of_ns=_near(as_of_ns),
            void_after_ns=_near(void_ns),
            status=standing.status,
            window=self.window,
            neighbours=standing.neighbours,
            surplus_ns=standing.surplus_ns,
            hard_growth_ppb=hard_growth + steered,
            timescale=self.settings.timescale,
            wander_ppb=wander,
            epoch_ns=_near(self.timescale.walls.epoch_ns(name)),
            utc_error_ns=min(self.timescale.utc_error_ns, FAR_NS),
        )


def _whole(bound_ns: float) -> int:
    """A bound in whole nanoseconds, rounded up."""
    return math.ceil(bound_ns) if bound_ns < UNKNOWN_NS else UNKNOWN_NS


def _near(time_ns: int) -> int:
    """A time, or at least one that can be said."""
    return min(max(time_ns, 1 - FAR_NS), FAR_NS - 1)
