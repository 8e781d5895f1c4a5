"""The bench of plans for contended links: its fabric, its policies, and its model beside an independent solver."""

from __future__ import annotations

import json

import numpy as np
import pytest

from bench.steering_sim import __main__ as bench
from bench.steering_sim import simgrid_rates
from bench.steering_sim.fabric import LINE_BPS, drawn, square
from bench.steering_sim.policies import POLICIES
from foliot_remediator.core.steering.fair_shares import fair_shares
from foliot_remediator.core.steering.improvement import shares


@pytest.fixture(scope="module")
def simgrid():
    """Its rates of a case."""
    if not simgrid_rates.is_here():
        pytest.skip("no SimGrid here; docs/performance.md says how to unpack it")
    return simgrid_rates.rates_bps


@pytest.mark.parametrize("seed", range(3))
def test_simgrid_gives_each_flow_the_same_rate(simgrid, seed):
    """Some hundred flows over two links each, of unequal capacity and demand."""
    rng = np.random.default_rng(seed)
    links = np.stack([rng.choice(60, 2, replace=False) for _ in range(200)])
    capacity_bps, demand_bps = rng.uniform(10e9, 400e9, 60), rng.uniform(1e9, 100e9, 200)
    expected = simgrid(links, capacity_bps, demand_bps)
    np.testing.assert_allclose(fair_shares(links, capacity_bps, demand_bps), expected, rtol=1e-6)


@pytest.mark.parametrize("policy", ["hash", "planned", "foliot"])
def test_simgrid_agrees_on_what_a_policy_achieves(simgrid, policy):
    """A permutation of 64 NICs, with four ways each."""
    fabric = square(64)
    flows = drawn(fabric, "permutation", 4, np.random.default_rng(1))
    chosen, _ = POLICIES[policy](
        flows, fabric.capacity_bps, np.zeros(len(flows.demand_bps), np.intp), np.random.default_rng(1)
    )
    links = flows.ways[np.arange(len(chosen)), chosen]
    expected = simgrid(links, fabric.capacity_bps, flows.demand_bps) / flows.demand_bps
    np.testing.assert_allclose(shares(flows, fabric.capacity_bps, chosen), expected, rtol=1e-6)


@pytest.mark.parametrize("traffic", ["permutation", "jobs"])
def test_no_nic_is_asked_for_more_than_it_has(traffic):
    """So what a flow lacks, the fabric took."""
    fabric = square(256)
    flows = drawn(fabric, traffic, 0, np.random.default_rng(1))
    per_leaf = np.bincount(flows.ways[:, 0, 0] // fabric.width, flows.demand_bps, minlength=fabric.leaves)
    assert per_leaf.max() <= fabric.width * LINE_BPS * (1 + 1e-9)
    assert flows.ways.min() >= 0
    assert flows.ways.max() < len(fabric.capacity_bps)


def test_every_row_says_what_a_policy_made_of_the_same_traffic(tmp_path, monkeypatch):
    """Foliot's plan gives the slowest flow more than the hash; the hash moves nothing."""
    file = tmp_path / "rows.json"
    monkeypatch.setattr(
        "sys.argv", ["steering-sim", "--nics", "64", "--entropies", "8", "--seeds", "1", "--json", str(file)]
    )
    assert bench.main() == 0
    found = json.loads(file.read_text())["rows"]
    assert len(found) == 2 * len(POLICIES)
    by_name = {(row["traffic"], row["policy"]): row for row in found}
    for traffic in ("permutation", "jobs"):
        hashed, planned = by_name[traffic, "hash"], by_name[traffic, "foliot"]
        assert hashed["moves"] == 0
        assert planned["slowest_share"] > hashed["slowest_share"]
        assert {row["flows"] for row in found if row["traffic"] == traffic} == {hashed["flows"]}


def test_a_fabric_that_cannot_be_laid_out_is_refused(capsys, monkeypatch):
    """With a sentence and status 2."""
    monkeypatch.setattr("sys.argv", ["steering-sim", "--nics", "1000"])
    with pytest.raises(SystemExit) as left:
        bench.main()
    assert left.value.code == 2
    assert "--nics" in capsys.readouterr().err
