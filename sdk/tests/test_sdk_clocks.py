"""Clocks and injected skew."""

from __future__ import annotations

import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from foliot.clock import BusClock, HostClock
from foliot.clock.injected_skew import Skew, SkewSpec
from foliot_schemas import ClockState

START = 1_000_000_000_000


def state(**changes) -> ClockState:
    """A plausible word of sync."""
    known = {
        "clock": "node3", "reference": "node0", "offset_ns": 5_000, "drift_ppb": 1_000.0, "hard_bound_ns": 900,
        "bound_ns": 100, "growth_ppb": 50.0, "as_of_ns": START, "void_after_ns": START + 10**10,
        "status": "synchronised",
    }  # fmt: skip
    return ClockState(**{**known, **changes})


def test_reference_time_extrapolates_by_the_drift():
    """One second after a state with 1 us/s of drift, a microsecond has been added."""
    assert state().reference_ns(START + 10**9) == START + 10**9 + 5_000 + 1_000


def test_bounds_grow_with_age_on_both_sides():
    """Extrapolating back is no better than forward."""
    assert [state().bound_at_ns(START + age) for age in (-(10**9), 0, 10**9)] == [150, 100, 150]
    assert state().hard_bound_at_ns(START + 2 * 10**9) == 1_000


def test_wander_adds_to_the_bound_as_it_adds_to_the_clock():
    """With the power 1.5 of the age, and squared before it is added: the one does not know of the other."""
    restless = state(wander_ppb=400.0)
    assert restless.bound_at_ns(START + 10**9) == round((150**2 + 400**2) ** 0.5)
    assert restless.bound_at_ns(START + 4 * 10**9) == round((300**2 + 3_200**2) ** 0.5)
    assert restless.hard_bound_at_ns(START + 4 * 10**9) == restless.bound_at_ns(START + 4 * 10**9)


def test_bound_of_the_unknown_is_a_number():
    """What promises nothing at once promises nothing later either, without overflow."""
    lost = state(bound_ns=1 << 62, hard_bound_ns=1 << 62, growth_ppb=1e308, wander_ppb=1e308)
    assert lost.bound_at_ns(-START) == lost.hard_bound_at_ns(-START) == 1 << 62


@given(
    offset=st.integers(-(10**9), 10**9), drift=st.floats(-1e5, 1e5), wander=st.sampled_from([0.0, 20.0]),
    age=st.integers(0, 10**13),
)  # fmt: skip
def test_one_moment_and_many_moments_have_the_same_skew(offset, drift, wander, age):
    """The vectorised form is the scalar one."""
    skew = Skew(SkewSpec(start_raw_ns=START, offset_ns=offset, drift_ppb=drift, wander_ppb=wander, seed=3))
    raw = START + age

    assert abs(skew.offset_ns(raw) - int(skew.offsets_ns(np.array([raw]))[0])) <= 1


def test_wander_is_a_random_walk_that_the_seed_repeats():
    """Drift changes by `wander_ppb` per square root of a second; the same seed walks the same way."""
    spec = SkewSpec(start_raw_ns=START, wander_ppb=20.0, seed=5)
    one, same, other = Skew(spec), Skew(spec), Skew(SkewSpec(start_raw_ns=START, wander_ppb=20.0, seed=6))
    seconds = START + np.arange(0, 4_000) * 10**9
    drift = np.diff(one.offsets_ns(seconds))

    assert (one.offsets_ns(seconds) == same.offsets_ns(seconds)).all()
    assert (one.offsets_ns(seconds) != other.offsets_ns(seconds)).any()
    assert np.std(np.diff(drift)) == pytest.approx(20.0, rel=0.1)


def test_a_step_is_seen_at_the_next_reading(tmp_path):
    """The lab rewrites a file; every process that maps it sees the step."""
    path = tmp_path / "step"
    path.write_bytes(bytes(8))
    skew = Skew(SkewSpec(start_raw_ns=START, offset_ns=7, step_file=str(path)))
    before = skew.offset_ns(START)
    with path.open("r+b") as file:
        file.write((5_000_000).to_bytes(8, "little", signed=True))

    assert (before, skew.offset_ns(START)) == (7, 5_000_007)


def test_a_host_clock_promises_nothing_before_sync_has_spoken():
    """Its time is CLOCK_REALTIME then, and its bound -1."""
    clock = HostClock("node3")
    before_ns, now_ns, after_ns = time.time_ns(), clock.now_ns(), time.time_ns()

    assert clock.bound_ns() == -1
    assert before_ns - 10**9 <= now_ns <= after_ns + 10**9


def test_a_host_clock_ignores_what_is_said_of_another():
    """States of all clocks travel on one subject."""
    clock = HostClock("node3")
    clock.update(state(clock="node4"))

    assert clock.state is None


@pytest.mark.parametrize(
    ("status", "booted_s", "taken"),
    [
        ("synchronised", 0, True), ("synchronised", 1, True), ("synchronised", 3, False), ("synchronised", -3, False),
        ("holdover", 10**9, False), ("disrupted", 3, True), ("unsynchronised", 3, True),
    ],
)  # fmt: skip
def test_a_host_clock_does_not_believe_a_state_of_another_boot(status, booted_s, taken):
    """Sync may not know of the boot yet. That a clock is not to be trusted holds of any."""
    clock = HostClock("node3")
    of_before = state(status=status, epoch_ns=clock.epoch_ns() - booted_s * 10**9)

    assert (clock.update(of_before), clock.state is of_before) == (taken, taken)


def test_a_host_clock_believes_a_sync_that_says_nothing_of_boots():
    """One of an older version."""
    assert HostClock("node3").update(state(epoch_ns=0))


@pytest.mark.parametrize("late", ["synchronised", "holdover", "disrupted"])
@pytest.mark.parametrize("present", ["synchronised", "disrupted"])
@pytest.mark.parametrize("ran_back", [False, True])
def test_a_host_clock_takes_no_older_promise_over_a_newer_state(late, present, ran_back):
    """A leader's of before a step may come after its successor's.

    That a clock is not to be trusted holds of any, and local time may run back.
    """
    clock = HostClock("node3")
    as_of_ns = clock.local_ns() + ran_back * 10**12
    newer = state(status=present, as_of_ns=as_of_ns)
    older = state(status=late, as_of_ns=as_of_ns - 1)

    assert clock.update(newer)
    assert clock.update(newer)
    assert clock.update(older) == (ran_back or late == "disrupted")


@pytest.mark.parametrize(
    ("changes", "trusted"),
    [({}, True), ({"status": "holdover"}, True), ({"status": "disrupted"}, False), ({"void_after_ns": 0}, False)],
)
def test_a_bound_needs_a_state_that_stands(changes, trusted):
    """Disrupted or out of date means: nothing is promised."""
    clock = HostClock("node3")
    now = clock.local_ns()
    clock.update(state(**{"as_of_ns": now, "void_after_ns": now + 10**12, **changes}))

    assert trusted == (clock.bound_ns() >= 0)


def test_packet_stamps_become_local_time_with_the_skew():
    """A stamp lies between the local times before and after it, which the skew sets back by 50 ms.

    Stamps keep their distances.
    """
    raw = time.clock_gettime_ns(time.CLOCK_MONOTONIC_RAW)
    skewed_ns = -50_000_000
    clock = HostClock("node3", Skew(SkewSpec(start_raw_ns=raw, offset_ns=skewed_ns)))
    while True:
        before = clock.local_ns()
        stamp = time.clock_gettime_ns(time.CLOCK_REALTIME)
        mapped = clock.realtime_to_local(np.array([stamp, stamp + 1_000], dtype=np.int64))
        after = clock.local_ns()
        if after - before < -skewed_ns // 4:
            break  # else the machine halted in between, and the stamp says nothing of the skew

    # A reading of both clocks is wrong by half of what it took, and a machine that halts in it may make that long.
    slack_ns = (after - before) // 2 + 10_000
    assert before - slack_ns <= int(mapped[0]) <= after + slack_ns
    assert abs(int(mapped[1] - mapped[0]) - 1_000) <= 2


def test_a_bus_clock_believes_the_message_that_came_fastest(monkeypatch):
    """Messages are never early, so the largest difference is the truest."""
    clock, local_ns = BusClock(), 10**15
    monkeypatch.setattr(clock, "local_ns", lambda: local_ns)
    ahead = 3_600 * 10**9
    clock.learn(local_ns + ahead)
    local_ns += 10**9
    clock.learn(local_ns + ahead - 10**9)

    assert clock.now_ns() == local_ns + ahead


def test_a_bus_clock_forgets_a_message_from_the_future(monkeypatch):
    """It is believed while it may be the best, and for seconds, not for the life of the process."""
    clock, local_ns = BusClock(), 10**15
    monkeypatch.setattr(clock, "local_ns", lambda: local_ns)
    clock.learn(local_ns + 5)
    clock.learn(1 << 61)
    assert clock.now_ns() == 1 << 61
    for _ in range(30):
        local_ns += 10**9
        clock.learn(local_ns + 5)
    assert clock.now_ns() == local_ns + 5
