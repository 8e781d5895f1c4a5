"""A compiled packet loop reads a host's clock with the error that the lab injects, as Python does."""

from __future__ import annotations

import time

import pytest

from foliot import native
from foliot_lab.faults.skewed_clock import Skew, SkewedClock, SkewSpec

packet_loop = native.compiled("packet_loop")
SECOND = 1_000_000_000


@pytest.mark.skipif(packet_loop is None, reason="nothing was compiled")
@pytest.mark.parametrize("age_s", [-3.0, 0.0, 0.4, 12.3, 4 * 3600 - 0.5, 5 * 3600])
@pytest.mark.parametrize("step_ns", [0, -7 * SECOND])
def test_both_read_the_same_local_time(tmp_path, age_s, step_ns):
    """At any age of the lab: before it began, within its random walk, and after that has ended; and after a step."""
    file = tmp_path / "step"
    file.write_bytes(step_ns.to_bytes(8, "little", signed=True))
    start_ns = time.clock_gettime_ns(time.CLOCK_MONOTONIC_RAW) - round(age_s * SECOND)
    spec = SkewSpec(
        start_raw_ns=start_ns, offset_ns=5 * SECOND, drift_ppb=1e6, wander_ppb=1e5, seed=3, step_file=str(file)
    )
    clock = SkewedClock("node0", Skew(spec))
    shape = {
        "tick_ns": 40_000_000,
        "full_every": 4,
        "now_ns": 0,
        "seed": 1,
        "types": (list, lambda *told: told, lambda *columns: columns),
    }
    loop = packet_loop.PacketLoop(1, 4, error=clock.injected, **shape)
    before_ns = clock.local_ns()
    loop.listen(0)
    after_ns = clock.local_ns()
    listened_ns, *_ = loop.take_report()
    assert before_ns <= listened_ns <= after_ns
