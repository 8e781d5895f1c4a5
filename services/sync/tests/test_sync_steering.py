"""What the common time follows, how slowly it is steered there, and that it never jumps.

On clocks whose truth is known.
"""

from __future__ import annotations

import numpy as np
import pytest
from promises import local, promises_kept
from steered import SECOND, WINDOW_S, Steered

from draws import draws
from foliot_sync.core.timescale.time_map import TimeMap
from foliot_sync.core.timescale.utc_phase import agree
from foliot_sync.settings import SyncSettings

SEEDS = [1 + seed for seed in draws(1)]
RATES = (-31_000.0, 12_000.0, 4_000.0, -9_000.0, 22_000.0)


def median_drift(run):
    """Of what was published of the clocks that are synchronised."""
    return float(np.median([state.drift_ppb for state in run.states.values() if state.status == "synchronised"]))


def jumps_ns(run):
    """Closes a window; by how much the time that each clock was told changes with it, at that moment, of those that were measured in it."""
    before = run.states
    after = run.next()
    return {
        name: after[name].reference_ns(local(run, name)) - state.reference_ns(local(run, name))
        for name, state in before.items()
        if state.status == after[name].status == "synchronised" and state.as_of_ns != after[name].as_of_ns
    }


# -- free -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", SEEDS)
def test_free_time_needs_least_correction_of_the_whole_fleet(start, seed):
    """The median published drift of eight clocks up to 30 ppm apart is 0 from the second window on, to 10 ppb, whichever they are measured against."""
    run = start(SyncSettings(reference="node4"), seed=seed, load=0.0, wander_ppb=0.5)
    run.to(5)
    for _ in range(20):
        run.next()
        assert abs(median_drift(run)) < 10
        promises_kept(run)
    assert {state.timescale for state in run.states.values()} == {"free"}


def test_free_time_begins_at_the_median_of_what_hosts_take_for_the_time(start):
    """One host whose CLOCK_REALTIME is an hour wrong does not take the others along."""
    run = start(seed=4, load=0.0, nodes=5)
    run.fleet.utc = {0: (3_600e9, -1)} | dict.fromkeys(range(1, 5), (0.0, -1))
    run.to(10)
    assert all(abs(run.fleet.off_utc_ns(state, run.now_s)) < 1_000_000 for state in run.states.values())


@pytest.mark.parametrize("seed", SEEDS)
def test_trouble_with_the_reference_moves_nobody_elses_time(settled, seed):
    """The clock that the rest are measured against is set back by 5 ms.

    Another takes its place, and what the others were told goes on to half a microsecond.
    """
    run = settled(29, seed=seed, load=0.0, wander_ppb=0.5)
    run.fleet.step(0, 31.1, -5_000_000)
    run.to(31)
    told = run.states
    for _ in range(5):
        run.next()
    assert run.sync.reference == "node1"
    for name in run.fleet.names[1:]:
        # What they were told before the step is still right, but for how their clocks have wandered in ten seconds.
        assert abs(told[name].reference_ns(local(run, name)) - run.states[name].reference_ns(local(run, name))) < 500
    run.to(60)
    assert abs(median_drift(run)) < 30


@pytest.mark.parametrize("seed", SEEDS)
def test_the_reference_leaves_and_time_goes_on(settled, seed):
    """Handed over in the absence of the first.

    No clock's time jumps by more than its own measurement moves it, and no rate by 30 ppm.
    """
    run = settled(29, seed=seed, load=0.0, wander_ppb=0.5)
    run.fleet.silent[0] = (30.0, 90.0)
    before = {name: state.drift_ppb for name, state in run.states.items()}
    moved = []
    while run.now_s < 60:
        moved += [abs(by_ns) for by_ns in jumps_ns(run).values()]
        promises_kept(run)
    assert run.sync.reference == "node1"
    assert max(moved) < 200
    assert all(abs(run.states[name].drift_ppb - before[name]) < 50 for name in run.fleet.names[1:])


@pytest.mark.parametrize("wander_ppb", [0.5, 20.0])
@pytest.mark.parametrize("seed", SEEDS)
def test_from_window_to_window_the_fleet_goes_on(start, seed, wander_ppb):
    """By the median of the clocks, the common time jumps by a nanosecond at most, and its rate changes by 1 ppb a second at most, however they wander."""
    run = start(seed=seed, load=0.3, wander_ppb=wander_ppb, nodes=5, streams=4)
    run.fleet.silent[0] = (40.0, 60.0)
    run.to(11)
    while run.now_s < 80:
        before = run.states
        jumps = jumps_ns(run)
        turned = [run.states[name].drift_ppb - before[name].drift_ppb for name in jumps]
        assert abs(np.median([*jumps.values()])) <= 2
        assert abs(np.median(turned)) <= 1.0 * WINDOW_S + 0.05


def test_one_clock_that_joins_or_leaves_turns_the_rate_slowly():
    """Of three that were alike one leaves and one that runs 40 ppm faster comes.

    The rate follows the median at 1 ppb a second.
    """
    clocks = Steered((0.0, 0.0, 0.0, 40_000.0))
    clocks.synchronised[3] = False
    clocks.run(50)
    assert clocks.pace_ppb() == pytest.approx(0.0, abs=1.0)
    clocks.synchronised[:] = (True, False, False, True)
    paces = [clocks.pace_ppb()]
    for _ in range(100):
        clocks.window()
        paces.append(clocks.pace_ppb())
    assert np.diff(paces).max() <= 1.0 * WINDOW_S + 1e-6
    assert paces[-1] == pytest.approx(200.0, abs=3.0)


# -- nodes ------------------------------------------------------------------------------------------------------------


def test_the_rates_of_named_clocks_are_followed():
    """Their mean from the start.

    One of four that runs off is left out, and with all of them away it goes on as it ran, and says so.
    """
    clocks = Steered(
        (*RATES, 1_000.0, 1_004.0, 998.0, 90_000.0), timescale="nodes", references=("node5", "node6", "node7", "node8")
    )
    clocks.run(20)
    assert clocks.pace_ppb() == pytest.approx(1_000.7, abs=1.0)
    assert clocks.time_map.followed
    clocks.synchronised[5:] = False
    clocks.run(100)
    assert clocks.pace_ppb() == pytest.approx(1_000.7, abs=1.0)
    assert not clocks.time_map.followed
    clocks.synchronised[5] = True
    clocks.run(20)
    assert clocks.time_map.followed


def test_named_clocks_of_a_fleet_set_the_pace(start):
    """The published drift of the one clock named is 0 from its first windows on, although the others are measured against another."""
    run = start(SyncSettings(timescale="nodes", references=("node3",)), seed=5, load=0.0, wander_ppb=0.5, nodes=5)
    run.to(60)
    assert run.sync.reference == "node0"
    assert abs(run.states["node3"].drift_ppb) < 20
    assert run.states["node3"].timescale == "nodes"
    promises_kept(run)


# -- utc --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", SEEDS)
def test_a_fleet_with_utc_begins_at_utc_and_stays_there(start, seed):
    """Off by less than 0.5 us from the second window on, as its nodes' CLOCK_REALTIME is read to 50 ns.

    And it says within what.
    """
    run = start(SyncSettings(timescale="utc"), seed=seed, load=0.0, wander_ppb=0.5)
    run.fleet.utc = dict.fromkeys((1, 3, 4, 6), (0.0, 10_000))
    run.to(5)
    while run.now_s < 60:
        run.next()
        for state in run.states.values():
            assert abs(run.fleet.off_utc_ns(state, run.now_s)) < 500
            assert 10_000 <= state.utc_error_ns < 14_000
        promises_kept(run)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("off_ns", [1_000_000.0, -1_000_000.0])
def test_utc_that_comes_later_is_reached_without_going_past_it(seed, off_ns):
    """From 1 ms away at 200 ppb at most, in an hour and a half.

    Monotonously, 0.1 us past it at most, and within 0.1 us for good.
    """
    clocks = Steered(np.array(RATES) / 100, seed, timescale="utc")
    clocks.run(10)
    sign = np.sign(off_ns)
    off_ns += clocks.ahead_ns()
    clocks.utc = dict.fromkeys((1, 2, 3), (off_ns, 5_000))
    away, paces = [], [clocks.pace_ppb()]
    for _ in range(3_000):
        clocks.window()
        away.append(sign * (off_ns - clocks.ahead_ns()))
        paces.append(clocks.pace_ppb())
    # Until it has been turned to UTC's own rate, it may go away from it.
    assert max(away) < 1_000_000 + 50_000
    assert min(away) > -100
    assert np.abs(away[-200:]).max() < 100
    assert np.abs(paces[200:]).max() <= 200 + 5
    assert np.abs(np.diff(paces)).max() <= 1.0 * WINDOW_S + 1e-3
    arrived_s = WINDOW_S * next(index for index, each in enumerate(away) if each < 1_000)
    assert 4_900 < arrived_s < 5_900


def test_one_liar_among_five_is_outvoted():
    """Ten milliseconds off and sure of 0.1 us: the common time stays with the four others, within what they say."""
    clocks = Steered(RATES, timescale="utc")
    clocks.utc = {number: (100.0 * number, 2_000) for number in range(4)} | {4: (10e6, 100)}
    assert np.abs(clocks.run(300)).max() < 2_000
    clocks.utc[4] = (-3_600e9, 0)
    assert np.abs(clocks.run(300)).max() < 2_000


def test_a_node_whose_utc_is_not_to_count_does_not():
    """Only those named are asked, where some are."""
    clocks = Steered(RATES, timescale="utc", references=("node2",))
    clocks.utc = dict.fromkeys(range(5), (5e6, 1_000)) | {2: (0.0, 50_000)}
    assert np.abs(clocks.run(50))[2:].max() < 500


def test_without_utc_it_goes_on_at_the_last_rate():
    """An hour later it is off by what the rate was wrong by, here less than 1 ppb.

    When UTC is back it is slewed there.
    """
    clocks = Steered(RATES, timescale="utc")
    clocks.utc = dict.fromkeys(range(5), (0.0, 2_000))
    clocks.run(100)
    pace = clocks.pace_ppb()
    clocks.utc = {}
    clocks.run(1_800)
    assert clocks.pace_ppb() == pytest.approx(pace, abs=1.0)
    assert abs(clocks.ahead_ns()) < 3_600
    assert (clocks.time_map.followed, clocks.time_map.utc_error_ns) == (False, -1)
    clocks.utc = dict.fromkeys(range(5), (0.0, 2_000))
    assert abs(clocks.run(300)[-1]) < 100
    assert clocks.time_map.followed


def test_two_that_do_not_agree_are_no_utc():
    """Nobody can say which of them is wrong: the time goes on as it ran, and it is not called UTC."""
    clocks = Steered(RATES, timescale="utc")
    clocks.utc = {0: (0.0, 2_000), 1: (0.0, 2_000)}
    clocks.run(50)
    clocks.utc[1] = (3e6, 2_000)
    assert np.abs(clocks.run(200)).max() < 2_000
    assert not clocks.time_map.followed


@pytest.mark.parametrize(
    ("values", "errors", "agreed"),
    [
        ([], [], None),
        ([7.0], [1.0], 7.0),
        ([0.0, 10.0], [1.0, 1.0], None),
        ([0.0, 2.0], [1.0, 1.0], 0.0),
        ([0.0, 1.0, 100.0], [2.0, 1.0, 0.001], 1.0),
        ([0.0, 100.0, 200.0], [1.0, 1.0, 1.0], None),
        ([0.0, 0.0, 50.0, 50.0], [1.0, 1.0, 1.0, 1.0], None),
    ],
)
def test_what_most_agree_on(values, errors, agreed):
    """More than half, each within its own error; of those the surest have most to say."""
    found = agree(np.array(values), np.array(errors))
    assert (None if found is None else found.value) == agreed


def test_a_scale_turns_without_a_jump():
    """And goes on as it was when it is told by another clock."""
    time_map = TimeMap(0, 5_000, 30_000.0)
    turned = time_map.turned(10 * SECOND, 100.0)
    assert turned.of(10 * SECOND) == time_map.of(10 * SECOND)
    assert turned.of(11 * SECOND) - turned.of(10 * SECOND) == pytest.approx(1.00003 * SECOND * (1 + 1e-7), abs=1)
    handed = time_map.turned(10 * SECOND, -20_000.0)
    # A second of the common time lasts as long as before: the heir's seconds are 20 ppm shorter.
    assert handed.of(10 * SECOND + SECOND) - handed.of(10 * SECOND) == pytest.approx(
        (1 + 30e-6) * (1 - 20e-6) * SECOND, abs=1
    )
