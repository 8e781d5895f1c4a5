"""A page of a node's time: what is written there, and who reads it."""

from __future__ import annotations

import time

import pytest

from foliot.clock import ClockUnknown
from foliot_schemas import ClockState

SECOND = 10**9
FAR = 1 << 62


def local() -> int:
    """CLOCK_MONOTONIC_RAW."""
    return time.clock_gettime_ns(time.CLOCK_MONOTONIC_RAW)


def state(**changes) -> ClockState:
    """A plausible word of sync, of just now."""
    now = local()
    known = {
        "clock": "node3", "reference": "node0", "offset_ns": 5_000_000_000, "drift_ppb": 1_000.0, "hard_bound_ns": 900,
        "bound_ns": 100, "growth_ppb": 50.0, "as_of_ns": now, "void_after_ns": now + 600 * SECOND,
        "status": "synchronised", "window": 7, "neighbours": 3,
        "surplus_ns": 1.5, "hard_growth_ppb": 1_000.0, "timescale": "tai", "wander_ppb": 20.0,
        "utc_offset_s": 37, "tai_offset_s": 36, "leap_s": -1, "leap_at_ns": now + SECOND, "utc_offset_error_ns": 800,
        "utc_disagreement": "offset", "stamp_noise_ns": 25.4, "rate_wander_ppb": 7.25,
    }  # fmt: skip
    return ClockState(**{**known, **changes})


def why(reader) -> str:
    """Why there is no time; `read` has to say the same."""
    with pytest.raises(ClockUnknown) as unknown:
        reader.now()
    reading = reader.read()
    assert (reading.why, reading.sentence, reading.trusted) == (unknown.value.why, str(unknown.value), False)
    return unknown.value.why
