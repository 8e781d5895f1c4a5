"""The whole chain on fleets whose truth is known: what it says, and what it does when something happens."""

from __future__ import annotations

import numpy as np
import pytest
from promises import local, promises_kept, statuses

from draws import draws
from foliot_sync.core.clock_states import UNKNOWN_NS
from foliot_sync.settings import SyncSettings

SECOND = 1_000_000_000
SEEDS = [1 + seed for seed in draws(1)]


@pytest.mark.parametrize("seed", SEEDS)
def test_error_is_about_a_microsecond_at_most_at_sixty_per_cent_load(start, seed):
    """After a minute on loaded paths of 200 Mb/s, and with clocks that wander, read at any time until the next states."""
    run = start(seed=seed)
    run.to(60)
    errors = []
    for _ in range(8):
        run.next()
        promises_kept(run)
        errors += [abs(error) for age_s in (0.0, 1.0, 2.0) for error in run.errors_ns(age_s).values()]
    assert set(statuses(run).values()) == {"synchronised"}
    assert np.percentile(errors, 50) < 300
    assert np.percentile(errors, 99) < 1_300


@pytest.mark.parametrize("seed", SEEDS)
def test_bounds_begin_wide_and_narrow(start, seed):
    """The first window is published with a bound that holds, and each clock is called synchronised later."""
    run = start(seed=seed, load=0.4)
    first = run.next()
    promises_kept(run)
    assert {state.status for name, state in first.items() if name != run.sync.reference} == {"unsynchronised"}
    assert all(state.hard_bound_ns < UNKNOWN_NS for state in first.values())
    run.to(30)
    promises_kept(run)
    others = [name for name in first if name != run.sync.reference]
    assert all(run.states[name].bound_at_ns(local(run, name)) < first[name].bound_ns + 1_000 for name in others)
    assert set(statuses(run).values()) == {"synchronised"}


def test_reference_is_the_smallest_name_and_bounds_are_relative_to_it(start):
    """Its own bounds are 0 as they are said; until the next states they grow, as it may wander from all others."""
    run = start(seed=4, load=0.2)
    for _ in range(5):
        state = run.next()["node0"]
        assert state.reference == "node0"
        assert (state.bound_ns, state.hard_bound_ns, state.status) == (0, 0, "synchronised")
        assert state.void_after_ns > local(run, "node0")
        assert 0 < state.bound_at_ns(state.as_of_ns + 2 * SECOND) < 1_000


def test_reference_can_be_chosen(start):
    """The configured reference is waited for, and the others are measured against it."""
    run = start(SyncSettings(reference="node3"), seed=4, load=0.2)
    run.to(10)
    assert run.sync.reference == "node3"
    assert {state.reference for state in run.states.values()} == {"node3"}


def test_unheard_reference_is_not_waited_for_forever(start):
    """A configured reference that nobody hears is replaced by the smallest name after a few windows."""
    run = start(SyncSettings(reference="node99"), seed=4, load=0.2, nodes=4)
    for _ in range(3):
        assert all(state.status == "unsynchronised" for state in run.next().values())
        assert run.sync.reference == ""
    run.next()
    assert run.sync.reference == "node0"


@pytest.mark.parametrize("seed", SEEDS)
def test_asymmetry_of_one_pair_is_outvoted(start, seed):
    """30 us more in one direction between two nodes does not move their clocks: the rest of the mesh disagrees."""
    run = start(seed=seed, load=0.2)
    run.fleet.extra_ns[2, 5] = 30_000.0
    run.to(40)
    promises_kept(run)
    assert max(map(abs, run.errors_ns().values())) < 1_000
    assert set(statuses(run).values()) == {"synchronised"}


@pytest.mark.parametrize("seed", SEEDS)
def test_asymmetry_of_one_node_towards_all_is_undetectable_but_inside_the_hard_bound(start, seed):
    """A node that hears everything 8 us late is 4 us off, synchronised, and only the hard bound is honest about it."""
    run = start(seed=seed, load=0.0)
    run.fleet.extra_ns.update({(other, 5): 8_000.0 for other in range(8) if other != 5})
    run.to(40)
    state, error = run.states["node5"], run.errors_ns()["node5"]
    assert state.status == "synchronised"
    assert abs(abs(error) - 4_000) < 1_000
    assert abs(error) <= state.hard_bound_at_ns(local(run, "node5"))
    assert abs(error) > state.bound_at_ns(local(run, "node5"))


def test_streams_heard_one_way_only_are_no_estimate(start):
    """A node that all others hear but that hears nobody stays unsynchronised, and disturbs no one."""
    run = start(seed=8, load=0.2)
    run.fleet.dead = {(other, 7, number) for other in range(7) for number in range(8)}
    run.to(20)
    assert run.states.get("node7") is None or run.states["node7"].status == "unsynchronised"
    assert {run.states[name].status for name in run.fleet.names[:7]} == {"synchronised"}
    promises_kept(run)


def test_some_dead_streams_cost_nothing(start):
    """With a third of all streams dead in one direction, clocks are as good as before."""
    run = start(seed=9, load=0.3)
    run.fleet.dead = {(a, b, number) for a, b in run.fleet.pairs for number in range(8) if (a + b + number) % 3 == 0}
    run.to(40)
    promises_kept(run)
    assert max(map(abs, run.errors_ns().values())) < 1_000
    assert set(statuses(run).values()) == {"synchronised"}


@pytest.mark.parametrize("seed", SEEDS)
def test_few_points_are_wide_but_honest(start, seed):
    """With four probes a window and stream, bounds are wide at first (some 50 us after 8 s) and never wrong.

    After 40 s all clocks are in step to some microseconds, and say so.
    """
    run = start(seed=seed, rates=(2.0,), load=0.4)
    while run.now_s < 40:
        run.next()
        promises_kept(run)
    assert set(statuses(run).values()) == {"synchronised"}
    others = [name for name in run.states if name != run.sync.reference]
    assert max(run.states[name].bound_at_ns(local(run, name)) for name in others) < 5_000


def test_two_clocks_are_enough(start):
    """Without any loop to check, two clocks are synchronised all the same."""
    run = start(seed=10, nodes=2, load=0.3)
    run.to(40)
    promises_kept(run)
    assert set(statuses(run).values()) == {"synchronised"}
    assert run.states["node1"].neighbours == 1
    assert run.states["node1"].surplus_ns == 0


def test_island_is_not_synchronised(start):
    """Clocks that no stream connects to the reference are not, however well they know each other."""
    run = start(seed=11, nodes=6, load=0.2)
    run.fleet.pairs = [(a, b) for a, b in run.fleet.pairs if (a < 3) == (b < 3)]
    run.to(20)
    assert {run.states[f"node{number}"].status for number in (0, 1, 2)} == {"synchronised"}
    assert {run.states[f"node{number}"].status for number in (3, 4, 5)} == {"unsynchronised"}


def test_missing_batch_of_one_window_is_nothing(start):
    """A batch that arrives after its window closed counts in the next; no status changes meanwhile."""
    run = start(seed=12, load=0.2)
    run.to(30)
    late = run.fleet.batch(0, run.window)
    run.fleet.silent[0] = (run.now_s, run.now_s + 2.1)
    run.next()
    assert set(statuses(run).values()) == {"synchronised"}
    run.fleet.silent.clear()
    assert run.sync.add(late, round(run.now_s * SECOND))
    run.next()
    assert set(statuses(run).values()) == {"synchronised"}
    promises_kept(run)


def test_a_batch_that_comes_twice_changes_nothing(start):
    """The second copy of a batch is dropped, and the states are those without it."""
    runs = [start(seed=13, nodes=4, load=0.2) for _ in range(2)]
    for window in range(6):
        for copies, run in enumerate(runs, start=1):
            for node in range(4):
                batch = run.fleet.batch(node, window)
                taken = [run.sync.add(batch, window * 2 * SECOND) for _ in range(copies)]
                assert taken == [True, False][:copies]
            run.states = run.sync.solve((window + 1) * 2 * SECOND)
        assert runs[0].states == runs[1].states


def test_nothing_heard_says_nothing(start):
    """Before any batch there is no clock to speak of, and no error."""
    run = start(seed=15)
    assert run.sync.solve(0) == []
    assert run.sync.solve(2 * SECOND) == []
