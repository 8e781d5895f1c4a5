"""The noise of a clock's stamps and the lateness of its host: measured by sync in stamps, and no single node's word."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest

from foliot_schemas import StampBatch
from foliot_schemas.observation import Stream
from foliot_sync.core.fit.pair_estimate import PairEstimates
from foliot_sync.core.lasting_misfit import LastingMisfits
from foliot_sync.core.solve.host_errors import host_errors
from foliot_sync.core.solve.window_solution import outliers, weigh
from foliot_sync.core.synchroniser import Synchroniser
from foliot_sync.core.track.kalman import ClockTracks


class Pairs:
    """Pairs of clocks with the noise, or the excess, that their initiators' batches came to."""

    def __init__(self, *pairs: tuple[int, int, float]) -> None:
        ends = np.array([pair[:2] for pair in pairs]).reshape(-1, 2)
        self.initiator, self.responder = ends.T
        self.noise_ns = self.excess_ns = np.array([pair[2] for pair in pairs])


HONEST = [(a, b, 20.0 + a + b) for a in range(4) for b in range(a + 1, 4)]


def test_the_quietest_pair_but_one_counts_and_of_one_reporter_its_own():
    """Clock 0 has nobody else's word on it, and 4 has no pair."""
    assert host_errors(Pairs(*HONEST), 5).noise.tolist() == [21.0, 23.0, 23.0, 24.0, np.inf]


@pytest.mark.parametrize("liar", [1, 2, 3])
def test_no_single_reporter_lowers_the_noise_of_any_clock_that_others_report(liar):
    """Neither of its own nor of a neighbour's."""
    lies = [(a, b, 4.0 if a == liar else noise) for a, b, noise in HONEST]

    assert (host_errors(Pairs(*lies), 4).noise >= 20.0).all()


@pytest.mark.parametrize("liar", [1, 2, 3])
def test_a_liars_pairs_weigh_no_more_than_others_reports_let_them(liar):
    """Neither in what is found of the pairs, nor in the mesh, and not if it says the lie twice."""
    lies = [(a, b, 4.0 if a == liar else noise) for a, b, noise in HONEST]
    lies += [pair for pair in lies if pair[0] == liar]

    assert (host_errors(Pairs(*lies), 4).pair_noise >= 20.0).all()
    one_each = [pair for number, pair in enumerate(lies) if pair not in lies[:number]]
    assert (offset_variances(Pairs(*one_each)) >= 0.8 * offset_variances(Pairs(*HONEST))).all()


def test_where_two_report_a_clock_the_noisier_one_takes_no_weight_from_the_others_pairs():
    """Clock 1 is reported by 0, whose stamps are bad, and by itself."""
    mixed = [(a, b, 2_000.0 if a == 0 else noise) for a, b, noise in HONEST]

    assert host_errors(Pairs(*mixed), 4).pair_noise.tolist() == [2_000.0] * 3 + [25.0] * 3


def test_a_clock_may_be_as_wrong_as_all_its_pairs_exceed_their_floors_but_for_one():
    """Host 2 is slow, and one pair of it says that it is not. A clock that nobody reports is not known to be late."""
    excess = [(a, b, 600.0 if 2 in {a, b} and a != 3 else 0.0) for a, b, _ in HONEST if (a, b) != (2, 3)]
    excess.append((3, 2, 0.0))

    assert host_errors(Pairs(*excess), 5).lateness.tolist() == pytest.approx([0.0, 0.0, 600.0 / 3**0.5, 0.0, 0.0])


def test_of_two_neighbours_both_tell_that_a_host_is_slow():
    """Host 0 is in a row between 1 and 2, and the way to 2 is in a queue."""
    assert host_errors(Pairs((0, 1, 60.0), (2, 0, 600.0)), 3).lateness.tolist() == pytest.approx(
        [60.0 / 3**0.5, 60.0 / 3**0.5, 600.0 / 3**0.5]
    )
    # That both of two report their pair makes it no second one.
    twice = Pairs((0, 1, 600.0), (1, 0, 600.0), (2, 0, 60.0), (0, 2, 60.0))
    assert host_errors(twice, 3).lateness[0] == pytest.approx(60.0 / 3**0.5)


@pytest.mark.parametrize(("clocks", "counted"), [(2, 1), (4, 2)])
def test_the_reference_may_be_late_as_well(clocks, counted):
    """So all clocks may be wrong by what it is; of two clocks, the excess of their one pair is of either of them."""
    ends = [(a, b, 300.0) for a in range(clocks) for b in range(a + 1, clocks)]

    late = solution(Pairs(*ends), clocks, excess_ns=300.0).measured.late[1:]

    assert late.tolist() == pytest.approx([counted * 300.0**2 / 3] * (clocks - 1))


def test_a_slow_host_widens_the_gate_by_no_more_than_it_is_slow():
    """And the reference by no more than that is."""
    quick, slow = (outliers(solution(Pairs(*HONEST), 4, excess_ns), 0, 6.0, 4.0) for excess_ns in (0.0, 300.0))

    assert (slow.gate_ns - quick.gate_ns)[1:].tolist() == pytest.approx([600.0] * 3)


def test_no_slow_host_explains_what_the_hard_bounds_exclude():
    """However slow it is."""
    found = outliers(solution(Pairs(*HONEST), 4, excess_ns=1e7, away_ns=3e6), 0, 6.0, 4.0)

    assert found.certain.tolist() == [False, True, False, False]
    assert found.gate_ns[1] > 3e6 > found.hard_ns[1]


def offset_variances(pairs):
    """The variances of all clocks but the first, solved over the mesh from pairs of no width."""
    return solution(pairs, 4).offsets.variance[1:]


def solution(pairs, clocks, excess_ns=0.0, away_ns=0.0):
    """What a window of such pairs says of clocks that are known; clock 1 is so far from where it was expected."""
    apart = away_ns * ((pairs.initiator == 1) * 1.0 - (pairs.responder == 1))
    none, whole, ones = np.zeros(len(pairs.noise_ns)), np.zeros(len(pairs.noise_ns), int), np.ones(clocks)
    estimates = PairEstimates(
        pairs.initiator, pairs.responder, whole, whole, apart, pairs.noise_ns**2, none, none + 1.0,
        apart - 1e6, apart + 1e6, pairs.noise_ns, none + excess_ns, none > 0,
    )  # fmt: skip
    tracks = ClockTracks.unknown(clocks, 20.0)._replace(windows=ones.astype(int), p00=ones, p11=ones)
    return weigh(estimates, tracks, 0, LastingMisfits())


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
    wander_ppb = {name: state.rate_wander_ppb for name, state in run.states.items() if name != "node0"}
    assert wander_ppb.pop("node2") <= 2**0.5 * 20  # the most that is ever said, as its noise may look like wander
    assert all(0.1 < each < 20 for each in wander_ppb.values())


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
