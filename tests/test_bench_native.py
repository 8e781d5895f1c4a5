"""The bench of inner loops measures the same work by both paths."""

from __future__ import annotations

import numpy as np
import pytest

from bench import native as bench_native
from foliot import native


@pytest.mark.skipif(bool(native.why_python()), reason=f"nothing is compiled: {native.why_python()}")
def test_both_paths_have_a_row_for_each_call():
    """Each with a time that was counted in a process of its own."""
    jobs = [["--clocks", "--streams", "3", "--probes", "20"], ["--streams", "--clocks", "40"]]
    rows = bench_native.by_turns(jobs, runs=1)
    names = [name for name, _ in (*bench_native.calls(3, 20), *bench_native.sync_calls(40))]
    assert [row.call for row in rows if row.path == "native"] == names
    assert [row.call for row in rows if row.path == "python"] == names
    assert all(row.least_us > 0 for row in rows)


def test_what_is_measured_of_sync_is_a_whole_fleet():
    """Every pair of clocks is fitted, and every clock is connected to the first one."""
    does = dict(bench_native.sync_calls(40))
    pairs, *_ = does["pairs fitted"]()
    assert len(pairs.offset_ns) == 200
    assert np.isfinite(does["mesh solved"]().value).all()
    assert np.isfinite(does["hard bounds"]()).all()


def test_what_is_measured_is_a_window_as_it_is_closed():
    """All its streams come out of it, in both paths."""
    does = dict(bench_native.calls(3, 20))["a whole window"]
    (part,) = [part for part in does() if part is not None]
    assert len(part.streams) == 3
    assert len(part.rows) > 0
