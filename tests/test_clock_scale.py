"""The bench of sync in a large fleet, with a small one: by real shards, leader and bus, the clocks come out right."""

from __future__ import annotations

import json
import sys

import pytest

from bench.clock_scale import __main__ as clock_scale

pytestmark = pytest.mark.nats

STAGES = {
    "stamps: read", "pairs: fitted", "fits: told", "nats: stamps", "fits: read", "mesh: solved", "states: told",
    "states: kept", "nats: fits and states",
}  # fmt: skip


def test_a_fleet_of_three_shards_is_solved_and_every_stage_is_counted(tmp_path, kept_port, monkeypatch):
    """Each clock to less than its bound, and what stages read and write is what the others wrote and read."""
    words = ["--nics", "60", "--shard-nics", "20", "--settle", "2", "--windows", "2", "--anyway"]
    monkeypatch.setattr(sys, "argv", ["", *words, "--port", str(kept_port), "--json", str(tmp_path / "rows.json")])
    assert clock_scale.main() == 0
    document = json.loads((tmp_path / "rows.json").read_text())
    rows = {row["stage"]: row for row in document["rows"]}
    assert set(rows) == STAGES
    assert {(row["nics"], row["pairs"], row["shards"]) for row in rows.values()} == {(60, 300, 3)}
    assert all(row["cpu_s_per_window"] > 0 for stage, row in rows.items() if not stage.startswith("nats"))
    told, read = rows["fits: told"]["bytes_per_window"], rows["fits: read"]["bytes_per_window"]
    # Renewals of leases come on top, which a small fleet's fits are not much more than.
    assert 0 < 0.8 * told < read < 2 * told
    end = document["ends"]["60"]
    assert end["clocks"] == end["synchronised"] == 60
    assert end["p99_ns"] < end["median_bound_ns"]
