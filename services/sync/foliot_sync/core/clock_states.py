"""The published states of clocks: their bounds, and the messages."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from foliot_schemas.bounds import FAR_NS, MOST_PPB
from foliot_schemas.clock import ClockState
from foliot_sync.core.limits import WORST_PPB
from foliot_sync.core.track.status_machine import STATUSES

if TYPE_CHECKING:
    from foliot_sync.core.arrays import Floats, Ints
    from foliot_sync.core.timescale.steering import Timescale
    from foliot_sync.core.timescale.time_map import Seen
    from foliot_sync.core.track.clock_records import ClockRecords
    from foliot_sync.core.track.statistical_bound import StatisticalBound

UNKNOWN_NS = 2**62
"""A bound that promises nothing: 146 years."""


def clock_states(
    seen: Seen, records: ClockRecords, promised: StatisticalBound, timescale: Timescale, window: int
) -> list[ClockState]:
    """The messages about all clocks at the end of a window."""
    settings, tracks, known = timescale.settings, seen.tracks, seen.tracks.known
    away_ns = np.maximum(np.abs(records.suspected_ns), records.astray_ns)
    spread = records.surplus_ns / np.sqrt(np.maximum(records.neighbours, 1)) + away_ns
    hard_ns = _whole(np.where(known, tracks.hard_ns, np.inf))
    bound_ns = np.minimum(_whole(promised.bound_ns + spread), hard_ns)
    # A clock that was that far off in the middle may have begun to run away a quarter of a window before.
    growth = promised.growth_ppb + np.where(records.suspected_ns != 0, 4.0, 1.0) * away_ns / settings.window_s
    hard_growth = np.maximum(growth, WORST_PPB)
    rate_wander = np.where(known, np.sqrt(tracks.density), 0.0)
    # The others are measured against it; but when they go on, it may be the one that has wandered.
    for column in (hard_ns, bound_ns, growth, rate_wander):
        column[seen.reference] = 0
    # A node that still has this window's state when others have the next one runs at another rate, by so much at most.
    steered = settings.steer_ppb_s * settings.window_s
    local_ns, lasts_ns = tracks.as_of_ns.tolist(), settings.void_after_windows * settings.window_ns
    promised_until_ns = zip(np.where(known, tracks.measured_ns, tracks.as_of_ns).tolist(), known.tolist(), strict=True)
    monotonic = [timescale.realtime.monotonic(name, at_ns) for name, at_ns in zip(seen.names, local_ns, strict=True)]
    columns = {
        "clock": seen.names,
        "offset_ns": [
            _near(timescale.time_map.of(as_of_ns + offset_ns) - as_of_ns)
            for as_of_ns, offset_ns in zip(local_ns, tracks.offset_ns.tolist(), strict=True)
        ],
        "drift_ppb": np.clip(timescale.time_map.drift_ppb(tracks.drift_ppb), -MOST_PPB, MOST_PPB).tolist(),
        "hard_bound_ns": hard_ns.tolist(),
        "bound_ns": bound_ns.tolist(),
        "growth_ppb": (growth + steered).tolist(),
        "as_of_ns": [_near(as_of_ns) for as_of_ns in local_ns],
        "void_after_ns": [_near(at_ns + (lasts_ns if is_known else 0)) for at_ns, is_known in promised_until_ns],
        "status": [STATUSES[status] for status in records.status.tolist()],
        "neighbours": records.neighbours.tolist(),
        "surplus_ns": records.surplus_ns.tolist(),
        "hard_growth_ppb": (hard_growth + steered).tolist(),
        "wander_ppb": promised.wander_ppb.tolist(),
        "epoch_ns": [_near(timescale.realtime.epoch_ns(name)) for name in seen.names],
        "utc_disagreement": [timescale.disagreement(name) for name in seen.names],
        "stamp_noise_ns": records.noise_ns.tolist(),
        "rate_wander_ppb": rate_wander.tolist(),
        "monotonic_ns": [_near(each_ns) for each_ns, _ in monotonic],
        "monotonic_ppb": [rate_ppb for _, rate_ppb in monotonic],
    }
    seconds = timescale.seconds
    shared: dict[str, Any] = {
        "reference": seen.names[seen.reference],
        "window": window,
        "timescale": settings.timescale,
        "utc_error_ns": min(timescale.utc_error_ns, FAR_NS),
        "utc_offset_s": seconds.utc_offset_s,
        "tai_offset_s": seconds.tai_offset_s,
        "leap_s": seconds.leap_s,
        "leap_at_ns": _near(seconds.leap_at_ns),
        "utc_offset_error_ns": min(timescale.utc_offset_error_ns, FAR_NS),
    }
    return [ClockState(**shared, **dict(zip(columns, row, strict=True))) for row in zip(*columns.values(), strict=True)]


def _whole(bounds_ns: Floats) -> Ints:
    """Bounds in whole nanoseconds, rounded up."""
    near = bounds_ns < UNKNOWN_NS
    return np.where(near, np.ceil(np.where(near, bounds_ns, 0.0)).astype(np.int64), UNKNOWN_NS)


def _near(time_ns: int) -> int:
    """A time, limited to what a message can hold."""
    return min(max(time_ns, 1 - FAR_NS), FAR_NS - 1)
