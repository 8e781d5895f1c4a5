"""The published states of clocks: their bounds, and the messages."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from foliot_schemas.bounds import FAR_NS, MOST_PPB
from foliot_schemas.clock import ClockState
from foliot_sync.core.track.status_machine import STATUSES

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from foliot_sync.core.timescale.steering import Timescale
    from foliot_sync.core.track.clock_records import ClockRecords
    from foliot_sync.core.track.kalman import ClockTracks
    from foliot_sync.core.track.statistical_bound import StatisticalBound
    from foliot_sync.settings import SyncSettings

UNKNOWN_NS = 2**62
"""A bound that promises nothing: 146 years."""


class Publisher(NamedTuple):
    """Makes the messages of one window."""

    reference: str
    window: int
    tracks: ClockTracks
    promised: StatisticalBound
    settings: SyncSettings
    timescale: Timescale

    def states(self, names: Sequence[str], records: ClockRecords) -> list[ClockState]:
        """The messages about these clocks, which must be all clocks."""
        known = self.tracks.windows > 0
        spread = records.surplus_ns / np.sqrt(np.maximum(records.neighbours, 1)) + records.suspected_ns
        hard_ns = _whole(np.where(known, self.tracks.hard_ns, np.inf))
        bound_ns = np.minimum(_whole(self.promised.bound_ns + spread), hard_ns)
        # A clock that was that far off in the middle may have begun to run away a quarter of a window before.
        growth = self.promised.growth_ppb + 4 * records.suspected_ns / self.settings.window_s
        # A node that still has this window's state when others have the next one runs at another rate, by so much at most.
        steered = self.settings.steer_ppb_s * self.settings.window_s
        columns = _Said(
            names,
            self.tracks.as_of_ns.tolist(),
            self.tracks.offset_ns.tolist(),
            np.clip(self.timescale.time_map.drift_ppb(self.tracks.drift_ppb), -MOST_PPB, MOST_PPB).tolist(),
            hard_ns.tolist(),
            bound_ns.tolist(),
            (growth + steered).tolist(),
            (np.maximum(growth, self.settings.worst_ppb) + steered).tolist(),
            self.promised.wander_ppb.tolist(),
            self._void_ns(known),
            records.status.tolist(),
            records.neighbours.tolist(),
            records.surplus_ns.tolist(),
            records.noise_ns.tolist(),
            np.where(known, np.sqrt(self.tracks.density), 0.0).tolist(),
        )
        return [self._state(_Said(*row)) for row in zip(*columns, strict=True)]

    def _void_ns(self, known: NDArray[np.bool_]) -> list[int]:
        """The local time until which a bound of each clock is promised."""
        lasts_ns = self.settings.void_after_windows * self.settings.window_ns
        both = zip(np.where(known, self.tracks.measured_ns, self.tracks.as_of_ns).tolist(), known.tolist(), strict=True)
        return [at_ns + (lasts_ns if is_known else 0) for at_ns, is_known in both]

    def _state(self, said: _Said) -> ClockState:
        hard_ns, bound_ns, growth_ppb = said.hard_ns, said.bound_ns, said.growth_ppb
        seconds = self.timescale.seconds
        rate_wander_ppb = said.rate_wander_ppb
        if said.name == self.reference:
            # The others are measured against it; but when they go on, it may be the one that has wandered.
            bound_ns, hard_ns, growth_ppb = 0, 0, self.settings.steer_ppb_s * self.settings.window_s
            rate_wander_ppb = 0.0
        return ClockState(
            clock=said.name,
            reference=self.reference,
            offset_ns=_near(self.timescale.time_map.of(said.as_of_ns + said.offset_ns) - said.as_of_ns),
            drift_ppb=said.drift_ppb,
            hard_bound_ns=hard_ns,
            bound_ns=bound_ns,
            growth_ppb=growth_ppb,
            as_of_ns=_near(said.as_of_ns),
            void_after_ns=_near(said.void_ns),
            status=STATUSES[said.status],
            window=self.window,
            neighbours=said.neighbours,
            surplus_ns=said.surplus_ns,
            hard_growth_ppb=said.hard_growth_ppb,
            timescale=self.settings.timescale,
            wander_ppb=said.wander_ppb,
            epoch_ns=_near(self.timescale.realtime.epoch_ns(said.name)),
            utc_error_ns=min(self.timescale.utc_error_ns, FAR_NS),
            utc_offset_s=seconds.utc_offset_s,
            tai_offset_s=seconds.tai_offset_s,
            leap_s=seconds.leap_s,
            leap_at_ns=_near(seconds.leap_at_ns),
            utc_offset_error_ns=min(self.timescale.utc_offset_error_ns, FAR_NS),
            utc_disagreement=self.timescale.disagreement(said.name),
            stamp_noise_ns=said.noise_ns,
            rate_wander_ppb=rate_wander_ppb,
        )


class _Said(NamedTuple):
    """Numbers of a clock's message, or of all clocks' as columns."""

    name: Any
    as_of_ns: Any
    offset_ns: Any
    drift_ppb: Any
    hard_ns: Any
    bound_ns: Any
    growth_ppb: Any
    hard_growth_ppb: Any
    wander_ppb: Any
    void_ns: Any
    status: Any
    neighbours: Any
    surplus_ns: Any
    noise_ns: Any
    rate_wander_ppb: Any


def _whole(bounds_ns: NDArray[np.float64]) -> NDArray[np.int64]:
    """Bounds in whole nanoseconds, rounded up."""
    near = bounds_ns < UNKNOWN_NS
    return np.where(near, np.ceil(np.where(near, bounds_ns, 0.0)).astype(np.int64), UNKNOWN_NS)


def _near(time_ns: int) -> int:
    """A time, limited to what a message can hold."""
    return min(max(time_ns, 1 - FAR_NS), FAR_NS - 1)
