"""Clocks."""

from __future__ import annotations

import time

import pytest

from foliot.clock import BusClock, HostClock
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
