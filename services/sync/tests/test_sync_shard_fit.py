"""What the pairs of some nodes say, before it is known what others say."""

from __future__ import annotations

import numpy as np

from foliot_sync.core.clock_numbers import ClockNumbers
from foliot_sync.core.fit.shard_fit import ShardFit, merged_pairs
from foliot_sync.settings import SyncSettings

SECOND = 1_000_000_000


def test_parts_of_a_fleet_say_together_what_the_whole_says(start):
    """Whoever fits which nodes, the clocks' states are the same."""
    runs = [start(seed=5, nodes=6, seconds=30.0) for _ in range(2)]
    whole, (one, other) = runs[0], (ShardFit(SyncSettings()), ShardFit(SyncSettings()))
    for window in range(8):
        expected = whole.next()
        run = runs[1]
        for node in range(6):
            batch = run.fleet.batch(node, window)
            (one if node % 2 else other).add(batch, round((run.fleet.phase_s[node] + (window + 1) * 2 + 0.01) * SECOND))
        run.window += 1
        now_ns = round(run.now_s * SECOND)
        states = {state.clock: state for state in run.sync.weigh([one.close(now_ns), other.close(now_ns)], now_ns)}
        run.fleet.told = run.states = states
        assert states.keys() == expected.keys()
        for name, state in states.items():
            assert abs(state.offset_ns - expected[name].offset_ns) <= 1
            assert state.status == expected[name].status


def test_pairs_count_their_own_clocks_only(start):
    """Of a fleet of ten thousand, a part names those that it has measured."""
    run = start(seed=5, nodes=6, seconds=30.0)
    fitter = ShardFit(SyncSettings())
    fitter.add(run.fleet.batch(4, 0), 0)
    fits = fitter.close(SECOND)
    assert set(fits.clocks) == {"node4", "node5"}
    assert fits.heard[0].node == "node4"
    assert fits.heard[0].since_ns == SECOND
    numbers = ClockNumbers(node9=0, node5=1)
    pairs = merged_pairs([fits], numbers)
    assert (pairs.initiator.tolist(), pairs.responder.tolist()) == ([2], [1])
    assert numbers["node4"] == 2


def test_nothing_heard_is_no_pair():
    """A window without batches says nothing of any pair."""
    fits = ShardFit(SyncSettings()).close(0)
    assert fits == ((), None, ())
    assert merged_pairs([fits], ClockNumbers()) is None


def test_a_window_is_learnt_from_once_its_clocks_are_still_trusted(start):
    """Floors of a window in which a clock was found to have been slewed are too low.

    Its probes trust nothing then, and nothing is learnt.
    """
    run = start(seed=5, nodes=2, streams=2, load=0.0, seconds=60.0)
    run.to(20.0)
    trusted, fitter = dict(run.states), ShardFit(SyncSettings())

    def learnt(window, told):
        run.fleet.told = told
        fitter.add(run.fleet.batch(0, window), 0)
        fitter.close(0)
        return np.isfinite(fitter._floors._widths).any(axis=0).sum()

    assert [learnt(10, trusted), learnt(11, {}), learnt(12, trusted), learnt(13, trusted)] == [0, 0, 1, 2]
