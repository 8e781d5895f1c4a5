"""How well the machine keeps up: percentiles of oversleeping and the share of idle CPU."""

import time

import numpy as np
import pytest

from foliot_lab.measure.host_latency import LatenessSampler, Second, percentiles, worst

DEADLINE_S = 30.0


def test_percentiles_are_in_milliseconds():
    """Percentiles are told in milliseconds, and not at all without a sample."""
    late = percentiles(np.array([50_000] * 98 + [4_000_000] * 2, dtype=np.int64))
    assert late.p50 == pytest.approx(0.05)
    assert late.p99 == pytest.approx(4.0)
    assert percentiles(np.empty(0, dtype=np.int64)).p99 is None


def test_a_real_sampler_samples():
    """A started sampler collects oversleeping until it is stopped."""
    sampler = LatenessSampler()
    assert sampler.machine().scheduler_lateness_ms.p50 is None
    sampler.start()
    end_s = time.monotonic() + DEADLINE_S
    while sampler.machine().scheduler_lateness_ms.p50 is None:
        assert time.monotonic() < end_s, "nothing was sampled"
    sampler.stop()
    machine = sampler.machine()
    assert machine.scheduler_lateness_ms.p99 >= machine.scheduler_lateness_ms.p50 > 0
    assert machine.fixed_work_s is None
    assert 0 <= machine.idle_cpu <= 1
    assert 0 <= machine.stolen_cpu <= 1 - machine.idle_cpu


def test_every_second_is_kept_by_the_clock_that_is_given():
    """So that it can be told which one was the machine's fault: by times that no clock of the machine shows."""
    started_ns = time.monotonic_ns()
    sampler = LatenessSampler(lambda: started_ns - time.monotonic_ns())
    sampler.start()
    end_s = time.monotonic() + DEADLINE_S
    while not sampler.seconds:
        assert time.monotonic() < end_s, "no second was kept"
        time.sleep(0.05)
    sampler.stop()
    lasted_ns = time.monotonic_ns() - started_ns
    second = sampler.seconds[0]
    assert -lasted_ns <= second.until_ns <= -1_000_000_000
    assert 0 <= second.idle_cpu <= 1
    assert 0 < second.late_ms * 1e6 < lasted_ns


def test_the_worst_second_of_an_interval_is_the_least_idle():
    """The one in which it ends is one of them."""
    seconds = [Second(at * 1_000_000_000, idle, 1.0) for at, idle in ((1, 0.0), (2, 0.4), (3, 0.3), (4, 0.2), (5, 0.1))]
    assert worst(seconds, 1_500_000_000, 3_100_000_000).idle_cpu == 0.2
    assert worst(seconds, 9_000_000_000, 9_100_000_000) is None
