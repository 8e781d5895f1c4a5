"""Asymmetries that no stamp shows: seen as half of them, covered by the hard bound, gone when sync is told of them."""

from __future__ import annotations

import numpy as np
import pytest
from promises import local

from draws import draws
from foliot_sync.asymmetry import Asymmetries
from foliot_sync.settings import SyncSettings

SEEDS = [1 + seed for seed in draws(1)]
RAILS = ("rail0", "rail1")


def of_node(run, node, extra_ns):
    """Lets whatever leaves a node take longer."""
    run.fleet.extra_ns.update({(node, other): extra_ns for other in range(run.fleet.nodes) if other != node})


def error_ns(run, name, windows=20):
    """The mean error of a clock over some windows, every one of them within its hard bound."""
    errors = []
    for _ in range(windows):
        run.next()
        errors.append(run.errors_ns()[name])
        assert abs(errors[-1]) <= run.states[name].hard_bound_at_ns(local(run, name))
    return float(np.mean(errors))


def quiet(start, settings, seed, **fleet):
    """A fleet without queues, whose clocks hardly wander: what is left is some nanoseconds of noise."""
    return start(settings, seed=seed, load=0.0, wander_ppb=0.1, nodes=5, **fleet)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_slow_way_out_of_a_node_is_invisible_and_corrected_when_known(start, seed):
    """300 ns more out of node3 than into it puts its clock 150 ns off (mean of 20 windows).

    Told of it, sync is right to some nanoseconds.
    """
    told = SyncSettings(asymmetry_ns={f"node3.{rail}": 300.0 for rail in RAILS})
    errors = []
    for settings in (None, told):
        run = quiet(start, settings, seed)
        of_node(run, 3, 300.0)
        run.to(30)
        errors.append(error_ns(run, "node3"))
    assert abs(errors[0]) == pytest.approx(150, abs=15)
    assert abs(errors[1]) < 10


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(("told", "sign"), [("node1.{0}>node3.{0}", 1), ("node3.{0}>node1.{0}", -1)])
def test_a_slow_direction_of_a_link_is_corrected_when_known(start, seed, told, sign):
    """Between two nodes alone, 300 ns more one way is 150 ns of error (143 to 150), and 6 ns when it is known.

    Either direction may be named, and all entropies are meant.
    """
    known = SyncSettings(asymmetry_ns={told.format(rail): sign * 300.0 for rail in RAILS})
    errors = []
    for settings in (None, known):
        run = quiet(start, settings, seed)
        run.fleet.pairs = [(0, 1), (1, 3), (0, 2), (2, 4)]
        run.fleet.extra_ns[1, 3] = 300.0
        run.to(30)
        errors.append(error_ns(run, "node3"))
    assert abs(errors[0]) == pytest.approx(150, abs=15)
    assert abs(errors[1]) < 10


def test_a_wrong_correction_is_covered_by_the_hard_bound(start):
    """Told of 100 us that are not there, sync is 50 us wrong.

    Outside of what the stamps allow, and the hard bound says so.
    """
    run = quiet(start, SyncSettings(asymmetry_ns={f"node3.{rail}": 100_000.0 for rail in RAILS}), 4)
    run.to(30)
    assert abs(error_ns(run, "node3")) == pytest.approx(50_000, rel=0.01)
    assert run.states["node3"].hard_bound_ns > 50_000
    assert run.states["node2"].hard_bound_ns < 50_000


def test_a_stream_has_the_asymmetries_of_its_ends_and_of_its_link():
    """By the direction in which it is named, whatever its entropy; a stream of others has none."""
    known = Asymmetries({"a.rail0": 100.0, "b.rail0": 30.0, "a.rail0>b.rail0": 5.0})
    paths = ("a.rail0>b.rail0#0", "b.rail0>a.rail0#3", "a.rail0>c.rail0#0", "c.rail0>a.rail0#0", "c.rail0>d.rail0#1")
    assert known.of(paths).tolist() == [75.0, -75.0, 100.0, -100.0, 0.0]
    assert Asymmetries({}).of(paths).tolist() == [0.0] * 5


def test_names_that_nobody_has_are_found():
    """A link is known if both of its NICs are."""
    known = Asymmetries({"a.rail0": 1.0, "a.rail0>b.rail0": 1.0, "z.rail0": 1.0})
    assert known.unknown(["a.rail0", "c.rail0"]) == ["a.rail0>b.rail0", "z.rail0"]
    assert known.unknown(["a.rail0", "b.rail0", "z.rail0"]) == []


@pytest.mark.parametrize(
    "known",
    [
        {"node3": 1.0},
        {"node3.rail0#2": 1.0},
        {"a.rail0>b": 1.0},
        {"a.rail0>a.rail0": 1.0},
        {"a.rail0>b.rail0>c.rail0": 1.0},
        {"a.rail0>b.rail0": 1.0, "b.rail0>a.rail0": -1.0},
        {"a.rail0": 2e9},
        {"a.rail0": float("nan")},
    ],
)
def test_what_means_nothing_is_refused_by_name(known):
    """A key that is neither a NIC nor a link, a link twice, or more than a second."""
    with pytest.raises(ValueError, match=r"asymmetry_ns.*\b(a|b|node3)\b"):
        SyncSettings(asymmetry_ns=known)
