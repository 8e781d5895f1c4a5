"""The bench of inner loops measures the same work by both paths."""

from __future__ import annotations

import pytest

from bench import native as bench_native
from foliot import native


@pytest.mark.skipif(bool(native.why_python()), reason=f"nothing is compiled: {native.why_python()}")
def test_both_paths_have_a_row_for_each_call():
    """Each with a time that was counted in a process of its own."""
    rows = bench_native.by_turns([3], probes=20, runs=1)
    names = [name for name, _ in bench_native.calls(3, 20)]
    assert [row.call for row in rows if row.path == "native"] == names
    assert [row.call for row in rows if row.path == "python"] == names
    assert all(row.least_us > 0 for row in rows)


def test_what_is_measured_is_a_window_as_it_is_closed():
    """All its streams come out of it, in both paths."""
    does = dict(bench_native.calls(3, 20))["a whole window"]
    (part,) = [part for part in does() if part is not None]
    assert len(part.streams) == 3
    assert len(part.rows) > 0
