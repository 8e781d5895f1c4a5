"""What each flow gets where links are shared fairly."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import linprog

from foliot_remediator.core.steering.fair_shares import fair_shares

GBPS = 1e9


def rates(links, capacity, demand):
    """Rates in Gb/s."""
    found = fair_shares(np.array(links, np.intp), np.array(capacity) * GBPS, np.array(demand) * GBPS)
    return (found / GBPS).tolist()


@pytest.mark.parametrize(
    ("links", "capacity", "demand", "expected"),
    [
        ([[0], [0]], [100], [100, 100], [50, 50]),
        ([[0], [0]], [100], [30, 100], [30, 70]),
        ([[0, 1], [0, -1], [1, -1]], [100, 40], [100, 100, 100], [20, 80, 20]),
        ([[0, -1], [-1, -1]], [100], [40, 70], [40, 70]),
        ([[0], [0]], [0], [10, 10], [0, 0]),
    ],
    ids=["two alike", "one that needs less", "one that crosses both", "no link", "a link without capacity"],
)
def test_links_are_shared_fairly(links, capacity, demand, expected):
    """By hand."""
    assert rates(links, capacity, demand) == pytest.approx(expected)


def test_nothing_flows_where_no_flow_is():
    """There may be none."""
    assert fair_shares(np.zeros((0, 2), np.intp), np.ones(3), np.zeros(0)).shape == (0,)


@pytest.mark.parametrize("seed", range(20))
def test_the_least_rate_is_the_greatest_that_a_linear_program_finds(seed):
    """And so is the next one, with the least held, and so on: that is what max-min means."""
    rng = np.random.default_rng(seed)
    flows, count = rng.integers(2, 9), rng.integers(2, 6)
    links = np.stack([rng.choice(count, 2, replace=False) for _ in range(flows)])
    capacity, demand = rng.uniform(1, 10, count), rng.uniform(0.5, 6, flows)
    found = fair_shares(links, capacity, demand)

    uses = np.zeros((count, flows))
    for flow, own in enumerate(links):
        uses[own, flow] = 1
    held: dict[int, float] = {}
    for flow in np.argsort(found).tolist():
        # Maximise t, where all flows that are not held get t at least.
        open_flows = [other for other in range(flows) if other not in held]
        over = np.zeros((len(open_flows), flows + 1))
        for row, other in enumerate(open_flows):
            over[row, other], over[row, -1] = -1, 1
        limits = np.vstack([np.hstack([uses, np.zeros((count, 1))]), over])
        bounds = [(held.get(other, 0), held.get(other, demand[other])) for other in range(flows)]
        solved = linprog(
            [0] * flows + [-1], A_ub=limits, b_ub=[*capacity, *[1e-9] * len(open_flows)], bounds=[*bounds, (0, None)]
        )
        assert solved.success
        assert found[flow] == pytest.approx(solved.x[-1], rel=1e-6, abs=1e-6)
        held[flow] = float(found[flow])
