"""How often clocks are measured: less in a quiet fabric, more in a loaded one, and without going to and fro."""

from __future__ import annotations

import numpy as np
import pytest

from foliot_probe.core.measure.one_way_delay import References
from foliot_probe.core.measure.sessions import Completed
from foliot_probe.core.rate.adaptive_rate import CALM, AdaptiveRates, Sight
from foliot_probe.core.rate.clock_neighbours import Pair
from foliot_probe.core.rate.delay_density import DelayDensity, densities
from foliot_schemas import ClockState

PAIR = Pair("a", "b")
ROWS = {PAIR: [0, 1, 2, 3]}
LEAST_HZ, MOST_HZ = 3.125, 25.0
WINDOW_S, FLOOR_NS, NOISE_NS, QUEUE_NS = 2.0, 10_000, 10.0, 20_000.0
WANTED_NS = np.full(4, 25.0)


def known(rate_ppb=0.0):
    """Clocks that sync knows, for as long as a test lasts."""
    references = References(4)
    state = ClockState(
        clock="a", reference="a", offset_ns=5_000, drift_ppb=rate_ppb, hard_bound_ns=500, bound_ns=50, growth_ppb=0.0,
        as_of_ns=0, void_after_ns=1 << 60, status="synchronised",
    )  # fmt: skip
    for row in range(4):
        references.set(row, state)
    return references


def found(steps):
    """What they come to."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return end.value


class Fabric:
    """Four streams over paths that a probe finds empty with some probability, in virtual time."""

    def __init__(self, empty, seed=1):
        self.empty, self.random = empty, np.random.default_rng(seed)
        self.paces = AdaptiveRates(LEAST_HZ, MOST_HZ)
        self.paces.keep(ROWS)
        self.own, self.peers = known(), known()

    def window(self, *, trusted=True, awake=True, heard=True):
        """The rate after another window."""
        probes = [[self._probes()], [self._probes()]] if heard else [[], []]
        density = found(densities(probes, np.ones(4, np.bool_), self.own, self.peers))
        self.paces.judge(ROWS, Sight(density, WANTED_NS, np.full(4, trusted), awake))
        return 1_000 / self.paces.interval_ms(PAIR)

    def _probes(self):
        count = round(2 * WINDOW_S * 1_000 / self.paces.interval_ms(PAIR))
        row = np.repeat(np.arange(4), count)
        left_ns = self.random.integers(0, int(WINDOW_S * 1e9), len(row))
        # The two of a pair meet the same queues.
        waits_ns = np.where(self.random.random(len(row)) < self.empty, 0.0, self.random.exponential(QUEUE_NS, len(row)))
        waits_ns[1::2] = waits_ns[0::2]
        late_ns = FLOOR_NS + waits_ns + self.random.normal(0, NOISE_NS, len(row))
        return Completed(row, np.arange(len(row)), left_ns, left_ns + late_ns.astype(np.int64))


def test_a_new_pair_is_measured_at_the_most_and_in_a_quiet_fabric_soon_at_the_least():
    """A step down for every five windows in which half as many probes would have done."""
    fabric = Fabric(1.0)
    assert 1_000 / fabric.paces.interval_ms(PAIR) == MOST_HZ
    rates = [fabric.window() for _ in range(40)]
    assert rates[: 3 * CALM] == [25.0] * (CALM - 1) + [12.5] * CALM + [6.25] * CALM + [LEAST_HZ]
    assert set(rates[3 * CALM :]) == {LEAST_HZ}


def test_under_load_it_is_measured_at_the_most_within_a_few_windows():
    """Where one probe in fifty meets no queue."""
    fabric = Fabric(1.0)
    for _ in range(30):
        fabric.window()
    fabric.empty = 0.02
    rates = [fabric.window() for _ in range(50)]
    assert rates[2] == MOST_HZ
    assert min(rates[2:]) == MOST_HZ


@pytest.mark.parametrize("empty", [0.05, 0.1, 0.2, 0.3, 0.5, 0.7])
def test_a_fabric_of_any_load_makes_it_change_seldom(empty):
    """Once in five windows at most, between neighbouring rates, where either is nearly right."""
    fabric = Fabric(empty)
    for _ in range(40):
        fabric.window()
    rates = [fabric.window() for _ in range(200)]
    steps = np.abs(np.diff(np.log2(rates)))
    assert np.count_nonzero(steps > 0) <= 40
    assert len(set(rates)) <= 3


def test_the_more_a_fabric_is_loaded_the_more_it_is_measured():
    """In between as well, not only at the ends."""
    means = []
    for empty in (1.0, 0.4, 0.15, 0.02):
        fabric = Fabric(empty)
        means.append(np.mean([fabric.window() for _ in range(150)][50:]))
    assert means == sorted(means)
    assert means[0] == LEAST_HZ
    assert means[-1] == MOST_HZ
    assert LEAST_HZ < means[1] < means[2] <= MOST_HZ


def test_a_clock_that_is_not_known_any_more_is_measured_at_the_most_at_once():
    """Stepped, or started anew: the next windows have to settle it."""
    fabric = Fabric(1.0)
    for _ in range(30):
        fabric.window()
    assert fabric.window(trusted=False) == MOST_HZ
    assert fabric.window(trusted=False) == MOST_HZ


@pytest.mark.parametrize("nobody", [{"heard": False}, {"trusted": False, "awake": False}], ids=["peer", "sync"])
def test_where_nobody_answers_or_reads_it_goes_down(nobody):
    """A dead peer, or no sync: measuring fast would be for nothing, and goes on at once when they are back."""
    fabric = Fabric(0.02)
    rates = [fabric.window(**nobody) for _ in range(20)]
    assert rates[-1] == LEAST_HZ
    assert fabric.window(trusted=False) == MOST_HZ


def test_a_host_without_time_is_not_given_more_to_do():
    """Of a few probes a window nothing can be told; the pace stays, and a calm that was interrupted so begins anew."""
    fabric = Fabric(1.0)
    for _ in range(2 * CALM - 1):
        fabric.window()
    few = DelayDensity(np.full(4, np.inf), np.full(4, np.inf), np.ones(4, np.bool_))
    for _ in range(10):
        fabric.paces.judge(ROWS, Sight(few, WANTED_NS, np.ones(4, np.bool_), True))
    assert 1_000 / fabric.paces.interval_ms(PAIR) == 12.5
    assert [fabric.window() for _ in range(CALM)] == [12.5] * (CALM - 1) + [6.25]


def test_pairs_that_went_are_forgotten():
    """And begin anew when they are back."""
    fabric = Fabric(1.0)
    for _ in range(30):
        fabric.window()
    fabric.paces.keep({})
    fabric.paces.keep(ROWS)
    assert 1_000 / fabric.paces.interval_ms(PAIR) == MOST_HZ


def test_the_worse_direction_counts_and_two_wrong_stamps_do_not():
    """An offset is as good as the later of the two; one stamp in a hundred is far too early."""
    evenly = np.arange(20) * 10
    densely = np.arange(20)
    clouds = []
    for gaps in (evenly, densely):
        delays = np.concatenate([gaps, [-5_000, -3_000]]) + FLOOR_NS
        left = np.arange(len(delays)) * 1_000_000
        clouds.append(Completed(np.zeros(len(delays), np.intp), np.arange(len(delays)), left, left + delays))
    for forth, back in (clouds, clouds[::-1]):
        density = found(densities([[forth], [back]], np.ones(4, np.bool_), known(), known()))
        assert density.ns[0] == 10.0
        assert density.heard.tolist() == [True, False, False, False]
        assert np.isinf(density.ns[1:]).all()
