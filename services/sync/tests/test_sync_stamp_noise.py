"""The noise of a clock's stamps: measured by sync in stamps, and no single node's word."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest

from foliot_schemas import StampBatch
from foliot_schemas.observation import Stream
from foliot_sync.core.solve.stamp_noise import stamp_noise
from foliot_sync.core.synchroniser import Synchroniser


class Pairs:
    """Pairs of clocks with the noise that their initiators' batches came to."""

    def __init__(self, *pairs: tuple[int, int, float]) -> None:
        ends = np.array([pair[:2] for pair in pairs]).reshape(-1, 2)
        self.initiator, self.responder = ends.T
        self.noise_ns = np.array([pair[2] for pair in pairs])


HONEST = [(a, b, 20.0 + a + b) for a in range(4) for b in range(a + 1, 4)]


def test_the_quietest_pair_but_one_counts_and_of_one_reporter_its_own():
    """Clock 0 has nobody else's word on it, and 4 has no pair."""
    assert stamp_noise(Pairs(*HONEST), 5).tolist() == [21.0, 23.0, 23.0, 24.0, np.inf]


@pytest.mark.parametrize("liar", [1, 2, 3])
def test_no_single_reporter_lowers_the_noise_of_any_clock_that_others_report(liar):
    """Neither of its own nor of a neighbour's."""
    lies = [(a, b, 4.0 if a == liar else noise) for a, b, noise in HONEST]

    assert (stamp_noise(Pairs(*lies), 4) >= 20.0).all()


def test_nodes_have_no_word_for_their_noise():
    """What they publish holds stamps and the kind of them; a field for noise would be a claim."""
    said = {field.name for sort in (StampBatch, Stream) for field in msgspec.structs.fields(sort)}

    assert not [name for name in said if "noise" in name or "wander" in name]


def run_with(start, kind="kernel"):
    """15 windows of an idle fleet in which node2's stamps are 5 µs late in the mean, and of the kind that it says."""
    run = start(seed=5, nodes=6, load=0.0, wander_ppb=1.0)
    run.fleet.jitter_ns, run.fleet.kinds = {2: 5_000.0}, {2: kind}
    run.to(31)
    return run


def test_noise_and_wander_are_said_of_each_clock(start):
    """The noisy one's is far above the others', and the reference does not wander against itself."""
    run = run_with(start)
    noise = {name: state.stamp_noise_ns for name, state in run.states.items()}

    assert noise["node2"] == 40.0  # the most that kernels' stamps show before queues are blamed
    assert all(6.0 <= noise[name] < 30.0 for name in noise if name != "node2")
    assert run.states["node0"].rate_wander_ppb == 0.0
    assert all(0.1 < state.rate_wander_ppb < 2**0.5 * 20 for name, state in run.states.items() if name != "node0")


def test_who_says_better_stamps_than_it_has_is_weighed_by_what_others_see(start):
    """The noise that is taken of it, and the bound that is promised, are what they are without the lie."""
    honest, lying = (run_with(start, kind) for kind in ("kernel", "hardware"))
    before, after = (run.states["node2"] for run in (honest, lying))

    assert after.stamp_noise_ns == before.stamp_noise_ns
    assert all(state.stamp_noise_ns > 10 for state in lying.states.values())
    assert 0.8 * before.bound_ns < after.bound_ns
    for name, error_ns in lying.errors_ns().items():
        assert abs(error_ns) <= lying.states[name].bound_ns


def test_noise_is_kept_over_a_change_of_hands(start):
    """Until a window says it anew."""
    run = run_with(start)
    before = run.states
    run.fleet.silent = dict.fromkeys((3, 4, 5), (run.now_s - 2, 1e9))
    run.sync = Synchroniser()
    run.sync.resume(before.values())
    after = run.next()

    assert {name: after[name].stamp_noise_ns for name in ("node3", "node4", "node5")} == {
        name: before[name].stamp_noise_ns for name in ("node3", "node4", "node5")
    }
