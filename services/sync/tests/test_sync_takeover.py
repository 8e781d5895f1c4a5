"""Another takes over from what was published last: nobody's time jumps, and nobody falls out of step for it."""

from __future__ import annotations

import msgspec
import pytest
from promises import local

from foliot_sync.core.synchroniser import Synchroniser
from foliot_sync.core.track.resume import newest
from foliot_sync.settings import SyncSettings

SECOND = 1_000_000_000
CALM = 30.0
"""Seconds after which a fleet has settled."""


def taken_over(run, settings=None, states=None):
    """The run, with a successor in the place of its synchroniser."""
    successor = Synchroniser(settings)
    successor.resume((states or run.states).values())
    run.sync = successor
    return run


def apart_ns(run, before, after):
    """By clock, how far the new word is from the old one, both for the time at which the new one comes."""
    apart = {}
    for number, name in enumerate(run.fleet.names):
        local_ns = run.fleet.local_at(number, run.now_s)
        apart[name] = after[name].reference_ns(local_ns) - before[name].reference_ns(local_ns)
    return apart


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_successor_goes_on_without_a_jump(start, seed):
    """Its first window's word is as near to the last one's as any window's is to that before, for clocks that are in step all along."""
    run = start(seed=seed, nodes=6, streams=4)
    run.to(CALM - 2)
    usual = apart_ns(run, run.states, run.next())
    before = run.states
    after = taken_over(run).next()
    assert {state.status for state in after.values()} == {"synchronised"}
    assert after["node0"].reference == before["node0"].reference
    most = 3 * max(map(abs, usual.values())) + 200
    assert max(map(abs, apart_ns(run, before, after).values())) < most
    for name, error_ns in run.errors_ns().items():
        local_ns = run.fleet.local_at(run.fleet.names.index(name), run.now_s)
        assert abs(error_ns) <= after[name].bound_at_ns(local_ns) <= after[name].hard_bound_at_ns(local_ns)


def test_clocks_that_are_silent_just_then_are_held_over(start):
    """What was known of them is as good as it was; and when they speak again, they go on."""
    run = start(seed=4, nodes=6, streams=4)
    run.to(CALM)
    run.fleet.silent[3] = (run.now_s, run.now_s + 7)
    after = taken_over(run).next()
    assert {state.clock: state.status for state in after.values() if state.status != "synchronised"} == {}
    run.next()
    after = run.next()
    assert after["node3"].status == "holdover"
    local_ns = run.fleet.local_at(3, run.now_s)
    assert abs(run.errors_ns()["node3"]) <= after["node3"].bound_at_ns(local_ns)
    assert run.to(run.now_s + 12)["node3"].status == "synchronised"


def test_a_reference_that_is_gone_is_replaced_at_once(start):
    """Of those who are there, by name the first; the common time goes on as by the others."""
    run = start(seed=5, nodes=6, streams=4)
    before = run.to(CALM)
    assert before["node0"].reference == "node0"
    run.fleet.silent[0] = (run.now_s, run.now_s + 1_000)
    after = taken_over(run).next()
    assert after["node1"].reference == "node1"
    apart = apart_ns(run, before, after)
    assert all(abs(apart[name]) <= before[name].bound_ns for name in run.fleet.names[1:])


def test_a_host_that_was_started_anew_meanwhile_is_a_stranger(start):
    """Its local time is another one.

    It is noticed also if the host speaks later than the others, and it settles like any new one.
    """
    for late_s in (0.0, 5.0):
        run = start(seed=6, nodes=6, streams=4)
        run.to(CALM)
        if late_s:
            run.fleet.silent[2] = (run.now_s, run.now_s + late_s)
        run.fleet.boot_ns[2] -= 7_200_000_000_000
        run.fleet.gained_ns[2] += 5_000_000.0
        taken_over(run)
        statuses = [run.next()["node2"].status for _ in range(4 if late_s else 1)]
        assert statuses[-1] == "unsynchronised"
        after = run.to(run.now_s + 12)
        assert after["node2"].status == "synchronised"
        assert abs(run.errors_ns()["node2"]) < 20_000


def test_a_clock_that_was_stepped_meanwhile_is_disrupted(start):
    """As if nobody had taken over."""
    run = start(seed=7, nodes=6, streams=4)
    run.to(CALM)
    run.fleet.step(4, run.now_s + 0.01, 300_000)
    taken_over(run).next()
    statuses = {name: state.status for name, state in run.next().items()}
    assert statuses.pop("node4") == "disrupted"
    assert set(statuses.values()) == {"synchronised"}


def test_what_is_void_is_not_taken_up_but_for_the_common_time(start):
    """After half a minute without anybody, clocks settle anew, in the common time as it was."""
    run = start(seed=8, nodes=6, streams=4)
    before = run.to(CALM)
    run.window += 20
    after = taken_over(run).next()
    assert {state.status for name, state in after.items() if name != after["node0"].reference} == {"unsynchronised"}
    after = run.to(run.now_s + 20)
    assert {state.status for state in after.values()} == {"synchronised"}
    away = apart_ns(run, before, after)
    for number, name in enumerate(run.fleet.names[1:], 1):
        local_ns = run.fleet.local_at(number, run.now_s)
        assert abs(away[name]) < before[name].bound_at_ns(local_ns) + after[name].bound_at_ns(local_ns)


@pytest.mark.parametrize("silent_s", [0.0, 3.0, 9.0])
def test_a_wanted_reference_that_is_not_there_puts_nobody_out_of_step(start, silent_s):
    """Others are measured against another one, as whoever led before did; the common time does not depend on which."""
    settings = SyncSettings(reference="node3")
    run = start(settings, seed=9, nodes=6, streams=4, load=0.2)
    run.to(CALM)
    run.fleet.silent[3] = (run.now_s, run.now_s + silent_s)
    before = run.states
    after = taken_over(run, settings).next()
    assert after["node1"].reference == ("node0" if silent_s else "node3")
    assert {state.status for state in after.values()} == {"synchronised"}
    assert max(map(abs, apart_ns(run, before, after).values())) < 1_000


def test_nothing_is_said_before_anybody_is_heard_who_was_known(start):
    """In the first window other shards' nodes may have spoken alone, of which nothing is known when the bucket is lost.

    The time would begin anew.
    """
    run = start(seed=12, nodes=6, streams=4)
    before = run.to(CALM)
    run.sync = Synchroniser()
    run.sync.resume([before["node0"], before["node1"]])
    for node in (0, 1):
        run.fleet.silent[node] = (run.now_s, run.now_s + 1)
    assert run.next() == {}
    after = run.next()
    assert after["node0"].status == after["node1"].status == "synchronised"
    apart = apart_ns(run, before, after)
    assert max(abs(apart["node0"]), abs(apart["node1"])) < 1_000


def test_bounds_are_no_less_than_before(start):
    """Of a clock that has been silent for a while, as of any: what was promised of it grows on."""
    run = start(seed=13, nodes=6, streams=4)
    run.to(CALM)
    run.fleet.silent[2] = (run.now_s, run.now_s + 40)
    before = run.to(run.now_s + 14)
    assert before["node2"].status == "holdover"
    after = taken_over(run).next()
    for name, state in after.items():
        local_ns = run.fleet.local_at(run.fleet.names.index(name), run.now_s)
        if name == "node2":
            assert state.hard_bound_at_ns(local_ns) >= before[name].hard_bound_at_ns(local_ns) - 1
            assert state.bound_at_ns(local_ns) >= before[name].bound_at_ns(local_ns) - 1
        assert state.reference != name or state.hard_bound_ns == 0


def test_of_two_words_the_later_counts(start):
    """Whatever its window's number: every run counts its own."""
    run = start(seed=10, nodes=3, streams=2)
    old = run.to(10)
    new = {name: msgspec.structs.replace(state, window=1) for name, state in run.to(14).items() if name != "node2"}
    assert newest((old, new)) == newest((new, old)) == old | new


@pytest.mark.parametrize("settings", [{}, {"timescale": "nodes", "references": ("node2",)}, {"timescale": "utc"}])
def test_a_restart_of_sync_goes_on_without_a_jump(start, settings):
    """A new synchroniser that is told the last states publishes the same time at the same rate, though another clock is the reference and hosts' own time has moved."""
    settings = SyncSettings(**settings)
    run = start(settings, seed=6, load=0.0, wander_ppb=0.5, nodes=5)
    run.fleet.utc = {1: (0.0, 20_000), 3: (0.0, 20_000)}
    run.to(40)
    told = run.states
    again = start(
        SyncSettings(reference="node3", timescale=settings.timescale, references=settings.references), seed=6, nodes=5
    )
    again.fleet, again.window = run.fleet, run.window
    again.fleet.epoch_ns += 5_000
    again.sync.resume(told.values())
    again.next()
    assert again.sync.reference == "node3"
    for name, state in told.items():
        now = again.states[name]
        assert abs(now.reference_ns(local(again, name)) - state.reference_ns(local(again, name))) < 300
        assert abs(now.drift_ppb - state.drift_ppb) < 100
    again.to(60)
    assert all(abs(again.states[name].drift_ppb - state.drift_ppb) < 50 for name, state in told.items())


def test_after_a_boot_of_all_hosts_time_begins_anew(start):
    """What was said of clocks that have been set to 0 since is not believed."""
    run = start(seed=7, load=0.0, nodes=4)
    run.to(20)
    told = run.states
    again = start(seed=8, load=0.0, nodes=4)
    again.fleet.epoch_ns += 3_600 * SECOND
    again.sync.resume(told.values())
    again.to(10)
    assert all(abs(again.fleet.off_utc_ns(state, again.now_s)) < 100_000_000 for state in again.states.values())


@pytest.mark.parametrize("timescale", ["free", "utc"])
@pytest.mark.parametrize("leap_s", [1, -1])
def test_the_reference_is_lost_across_a_leap_second(start, leap_s, timescale):
    """Another takes its place while all hosts' clocks step.

    No clock's time moves, none is disrupted, and what is published of UTC stays.
    """
    run = start(SyncSettings(timescale=timescale), seed=9, load=0.0, wander_ppb=0.5, nodes=5)
    run.fleet.utc = dict.fromkeys(range(5), (0.0, 20_000))
    run.fleet.leap = (39.0, leap_s)
    run.fleet.silent[0] = (34.0, 60.0)
    run.to(33)
    seen = {(state.utc_offset_s, state.tai_offset_s, state.leap_s) for state in run.states.values()}
    while run.now_s < 58:
        told = run.states
        run.next()
        for name in run.fleet.names[1:]:
            now = run.states[name]
            assert now.status == "synchronised"
            assert abs(now.reference_ns(local(run, name)) - told[name].reference_ns(local(run, name))) < 500
            assert now.utc_disagreement == "none"
            seen.add((now.utc_offset_s, now.tai_offset_s, now.leap_s))
            utc_ns = run.fleet.epoch_ns + round((run.now_s - (leap_s if run.now_s >= 39.0 else 0)) * SECOND)
            assert abs(now.utc_ns(now.reference_ns(local(run, name))) - utc_ns) < 3_000_000
    assert run.sync.reference == "node1"
    assert seen == {(0, 37, leap_s)}


@pytest.mark.parametrize("leap_s", [1, -1])
def test_a_restart_of_sync_across_a_leap_second_goes_on_without_a_jump(start, leap_s):
    """The hosts' clocks have stepped by a second since they were heard last, which is no boot.

    The offsets are told as before.
    """
    settings = SyncSettings(timescale="utc")
    run = start(settings, seed=10, load=0.0, wander_ppb=0.5, nodes=5)
    run.fleet.utc = dict.fromkeys(range(5), (-3_000.0, 20_000))
    run.fleet.leap = (42.0, leap_s)
    told = run.to(41)
    again = start(settings, seed=10, nodes=5)
    again.fleet, again.window = run.fleet, run.window + 2
    run.fleet.utc = dict.fromkeys(range(5), (3_000.0, 20_000))
    again.sync.resume(told.values())
    again.next()
    for name, state in told.items():
        now = again.states[name]
        assert now.status == "synchronised"
        assert abs(now.reference_ns(local(again, name)) - state.reference_ns(local(again, name))) < 500
        assert (now.utc_offset_s, now.tai_offset_s, now.leap_s, now.leap_at_ns) == (
            0, 37, leap_s, run.fleet.epoch_ns + 42 * SECOND,
        )  # fmt: skip
