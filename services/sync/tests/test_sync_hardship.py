"""What is hard for any method of this kind, in fleets whose truth is known: what comes of it, in figures."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from promises import local, promises_kept, statuses

from draws import draws

SECOND = 1_000_000_000
SEEDS = [1 + seed for seed in draws(1)]


def one_way_load(run, load):
    """Queues towards higher numbers are loaded, those back are empty."""
    nodes = range(run.fleet.nodes)
    run.fleet.loads = {(low, high): load for low in nodes for high in nodes if low < high}


def hard_promises_kept(run):
    """Checks that no clock is outside its hard bound, until the next states come.

    And that it is one, and not everything that can be.
    """
    reference = run.states[run.sync.reference]
    for name, state in run.states.items():
        for age_s in (0.0, 1.0, 2.0):
            error = abs(run.fleet.error_ns(state, reference, run.now_s + age_s))
            assert error <= state.hard_bound_at_ns(local(run, name, age_s)) < 1_000_000, (name, state)


@pytest.mark.parametrize("seed", SEEDS)
def test_load_of_one_direction_at_sixty_per_cent(start, seed):
    """Half of the errors are below 0.11 us and 99 of 100 below 0.43 us; nothing outside of a bound."""
    run = start(seed=seed, load=0.0)
    one_way_load(run, 0.6)
    run.to(40)
    errors = []
    for _ in range(10):
        run.next()
        promises_kept(run)
        errors += [abs(error) for age_s in (0.0, 1.0, 2.0) for error in run.errors_ns(age_s).values()]
    assert np.percentile(errors, 50) < 200
    assert np.percentile(errors, 99) < 800
    assert set(statuses(run).values()) == {"synchronised"}


@pytest.mark.parametrize("seed", SEEDS)
def test_load_of_one_direction_at_eighty_per_cent(start, seed):
    """Half of the errors are below 0.3 us with most seeds, and below 1.8 with any of twelve.

    If it were not told which direction was late (step 5 of docs/clock.md), they would be 23 us.
    """
    run = start(seed=seed, load=0.0)
    one_way_load(run, 0.8)
    run.to(40)
    errors = []
    for _ in range(10):
        run.next()
        hard_promises_kept(run)
        errors += [abs(error) for error in run.errors_ns(1.0).values()]
    assert np.median(errors) < 2_500


@pytest.mark.parametrize("seed", SEEDS)
def test_load_of_one_direction_at_ninety_per_cent(start, seed):
    """Where hardly a probe of one direction meets no queue, that direction seems longer.

    Half of the errors are above 19 to 28 us, where the statistical bound is 47 to 67.

    In 8 windows of 20 a clock was outside of it: what never empties is an asymmetry. The hard bound holds always.
    """
    run = start(seed=seed, load=0.0)
    one_way_load(run, 0.9)
    run.to(40)
    errors, bounds = [], []
    for _ in range(10):
        run.next()
        hard_promises_kept(run)
        errors += [abs(error) for error in run.errors_ns(1.0).values()]
        bounds += [state.bound_at_ns(local(run, name, 1.0)) for name, state in run.states.items()]
    assert np.median(errors) < 50_000
    # It knows that it is bad, and how bad: some half of a minute later than elsewhere, every clock is in step to so
    # much.
    assert 10_000 < np.median(bounds) < 100_000
    assert set(statuses(run).values()) == {"synchronised"}


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("both", [False, True], ids=["one way", "both ways"])
def test_a_pair_without_a_clean_probe_is_outvoted(start, seed, both):
    """Every probe between node0 and node1 waits, for 0.4 ms on average.

    By way of six others they are right to 0.3 us, and nothing is outside of a bound.
    """
    run = start(seed=seed, load=0.3)
    run.fleet.queued_ns = {(0, 1): 400e3} | ({(1, 0): 400e3} if both else {})
    run.to(40)
    for _ in range(10):
        run.next()
        promises_kept(run)
        assert abs(run.errors_ns()["node1"]) < 400
        assert run.states["node1"].status == "synchronised"


@pytest.mark.parametrize("seed", SEEDS)
def test_two_clocks_without_a_clean_probe_keep_what_they_promise(start, seed):
    """Nobody else to ask: errors of up to 28 us, statistical bounds of some 40."""
    run = start(seed=seed, load=0.3, nodes=2)
    run.fleet.queued_ns = {(0, 1): 400e3, (1, 0): 400e3}
    run.to(40)
    believed = []
    for _ in range(10):
        run.next()
        promises_kept(run)
        state = run.states["node1"]
        if state.status in {"synchronised", "holdover"}:
            believed.append(state.bound_at_ns(local(run, "node1", 1.0)))
    # It promises something in at least half of the windows; in some it is taken for disrupted or misses a window's fit.
    assert len(believed) >= 5
    assert np.median(believed) < 100_000


@pytest.mark.parametrize("seed", SEEDS)
def test_two_clocks_without_a_clean_probe_one_way_are_off_by_half_of_it(start, seed):
    """A queue that is never empty in one direction alone is an asymmetry.

    26 to 36 us off, outside of statistical bounds of 9 to 17; the hard ones, 100 to 126, hold.
    """
    run = start(seed=seed, load=0.3, nodes=2)
    run.fleet.queued_ns = {(0, 1): 400e3}
    run.to(40)
    for _ in range(10):
        run.next()
        hard_promises_kept(run)
        assert 10_000 < abs(run.errors_ns()["node1"]) < 100_000


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("length_s", [0.2, 0.7, 1.5])
def test_a_slew_over_part_of_a_window_is_seen_and_the_clock_found_again(settled, seed, length_s):
    """500 ppm for less than a window: wrong until it is heard, then disrupted, and right to 0.2 us two windows later.

    Nobody else is concerned.
    """
    run = settled(31, seed=seed, load=0.3)
    run.fleet.slew(4, 31.1, 31.1 + length_s, 500_000.0)
    seen = []
    for _ in range(3):
        run.next()
        seen.append(run.states["node4"].status)
        assert {state.status for name, state in run.states.items() if name != "node4"} == {"synchronised"}
    assert "disrupted" in seen
    run.next()
    for _ in range(5):
        run.next()
        promises_kept(run)
        assert abs(run.errors_ns()["node4"]) < 500
    assert run.states["node4"].status == "synchronised"


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("by_s", [-3.0, 0.0, 3.0], ids=["stood still", "ran on", "jumped ahead"])
def test_a_pause_of_three_seconds(settled, seed, by_s):
    """A virtual machine that says nothing for 3 s: it is in holdover, and its bound holds, if its clock ran on.

    If not, it is disrupted as soon as it is heard.

    Until then nobody can know, and what it was told last is wrong by 3 s. Two windows later it is right to 0.2 us.
    """
    run = settled(31, seed=seed, load=0.3)
    run.fleet.silent[3] = (32.0, 35.0)
    run.fleet.step(3, 32.0, by_s * SECOND)
    seen = []
    while run.now_s < 43:
        run.next()
        seen.append(run.states["node3"].status)
        if by_s == 0:
            promises_kept(run)
    assert ("disrupted" in seen) == (by_s != 0)
    for _ in range(5):
        run.next()
        promises_kept(run)
    assert run.states["node3"].status == "synchronised"
    assert abs(run.errors_ns()["node3"]) < 500


@pytest.mark.parametrize("seed", SEEDS)
def test_after_a_start_bounds_narrow_and_are_always_true(start, seed):
    """The median statistical bound falls window by window: some 170, 14, 4.6, 2.6 and 1.6 us.

    From the twelfth on it is what it stays, some 0.6. Nobody can know sooner that no host was slow all the time.
    """
    run = start(seed=seed, load=0.4)
    medians = []
    for _ in range(14):
        run.next()
        promises_kept(run)
        others = [name for name in run.states if name != run.sync.reference]
        medians.append(float(np.median([run.states[name].bound_at_ns(local(run, name)) for name in others])))
    assert all(after < before for before, after in itertools.pairwise(medians[:5]))
    assert medians[0] > 100_000
    assert max(medians[6:]) < 1_200
    assert max(medians[12:]) < 640


@pytest.mark.parametrize("seed", SEEDS)
def test_holdover_widens_as_the_clock_was_seen_to_wander(start, seed):
    """After 16 s without a word, some 0.5 us where clocks wander by 1 ppb/sqrt(s), and 7 where by 20."""
    bounds = []
    for wander_ppb in (1.0, 20.0):
        run = start(seed=seed, load=0.2, wander_ppb=wander_ppb, nodes=5, streams=4)
        run.fleet.silent[3] = (50.0, 90.0)
        run.to(50)
        grown = []
        while run.now_s < 66:
            run.next()
            promises_kept(run)
            grown.append(run.states["node3"].bound_at_ns(local(run, "node3")))
        assert run.states["node3"].status == "holdover"
        assert grown[1:] == sorted(grown[1:])
        bounds.append(grown[-1])
    assert bounds[1] > 1.5 * bounds[0]
