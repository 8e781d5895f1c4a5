"""The least error that stamps allow, where it is known in a closed form."""

from __future__ import annotations

import json

import numpy as np
import pytest

from bench.studies import clock_bound
from foliot_lab.simulate.clocks.oscillators import Crystal


def test_of_normal_points_the_mean_is_the_best():
    """Ten of ten points, of a normal distribution: no weights do better than equal ones."""
    random = np.random.default_rng(1)
    points = np.sort(random.normal(0, 30.0, (20_000, 2, 10)), axis=2)
    assert clock_bound.window_variance(points) == pytest.approx(30.0**2 / 10 / 2, rel=0.05)


def test_steady_clocks_allow_what_a_straight_line_does():
    """The variance at the last of n points of a line is (4n - 2) / (n (n + 1)) of one point's.

    At t beyond the mean it is 1/n + t² over the sum of squares.
    """
    steady = Crystal(wander_ppb=0.0, swing_ppb=0.0)
    middle, now = clock_bound.deviations(steady, 100.0, 10, 9, 2.0)
    assert middle**2 == pytest.approx(100.0 * 38 / 110, rel=1e-3)
    assert now**2 == pytest.approx(100.0 * (1 / 10 + 11.0**2 / (4 * 82.5)), rel=1e-3)


def test_a_restless_clock_allows_less():
    """The more its rate wanders, the sooner a value is old."""
    calm, restless = (
        clock_bound.deviations(Crystal(wander_ppb=wander, swing_ppb=0.0), 100.0, 20, 10, 2.0) for wander in (0.1, 10.0)
    )
    assert (restless > calm).all()
    assert restless[1] - restless[0] > calm[1] - calm[0]


def test_the_table_has_a_row_each(tmp_path, monkeypatch, capsys):
    """The middle and now of each regime of kernels, and nothing of NICs."""
    out = tmp_path / "out.json"
    arguments = ["--only", "idle", "--seeds", "2", "--seconds", "40", "--json", str(out)]
    monkeypatch.setattr("sys.argv", ["clock_bound", *arguments])
    assert clock_bound.main() == 0
    rows = json.loads(out.read_text())["rows"]
    regimes = ("quick kernel, idle", "slow kernel, idle")
    assert [(row["regime"], row["of"]) for row in rows] == [(each, of) for each in regimes for of in ("middle", "now")]
    assert all(0 < row["share"] < 1 for row in rows)
    assert "slow kernel, idle" in capsys.readouterr().out
