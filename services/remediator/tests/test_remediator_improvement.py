"""Which flows are moved off a contended link, and when none is."""

from __future__ import annotations

import numpy as np
import pytest

from draws import draws
from foliot_remediator.core.steering.assignment import Assignment, Flows
from foliot_remediator.core.steering.improvement import improvement, shares

SPINES = 4
MBPS = 100e6


def pairs(*leaves, ways=None, demand=None, priority=None):
    """Flows between leaves, each with a way over every spine, in a leaf-spine fabric of eight leaves."""
    ways = ways or [list(range(SPINES))] * len(leaves)
    links = [
        [[source * SPINES + spine, 8 * SPINES + sink * SPINES + spine] for spine in own]
        for (source, sink), own in zip(leaves, ways, strict=True)
    ]
    demand_bps = np.full(len(leaves), MBPS) if demand is None else np.array(demand) * MBPS
    possible = np.ones((len(leaves), len(ways[0])), bool)
    return Flows(np.array(links, np.intp), possible, demand_bps, None if priority is None else np.array(priority))


def plan(flows, present, capacity=1.0, seed=0):
    """The plan, where each link carries so many times the demand of one flow."""
    links = np.full(16 * SPINES, MBPS) * capacity
    return improvement(flows, links, np.array(present, np.intp), np.random.default_rng(seed))


@pytest.mark.parametrize("seed", draws(1))
def test_one_of_two_flows_on_a_link_moves(seed):
    """One move is enough, and both get all that they need."""
    found = plan(pairs((0, 1), (0, 2)), [1, 1], seed=seed)
    assert len(found.moved) == 1
    assert found.before.tolist() == [0.5, 0.5]
    assert found.after.tolist() == [1.0, 1.0]


@pytest.mark.parametrize("seed", draws(1))
def test_of_three_flows_two_move(seed):
    """To different spines, though the flow that collides at the far leaf has one spine less to go to."""
    found = plan(pairs((0, 1), (0, 2), (0, 3), (4, 3)), [0, 0, 0, 1], seed=seed)
    assert found.after.tolist() == [1.0] * 4
    assert len(found.moved) == 2
    assert 3 not in found.moved


def test_nothing_moves_where_all_is_well():
    """Flows on links of their own stay, whatever the dice say."""
    assert not len(plan(pairs((0, 1), (0, 2), (3, 2)), [0, 1, 2]).moved)


def test_nothing_moves_where_no_move_can_help():
    """Five flows leave a leaf with four uplinks, and are as well spread as they can be."""
    found = plan(pairs(*[(0, leaf) for leaf in (1, 2, 3, 4, 5)]), [0, 1, 2, 3, 0])
    assert not len(found.moved)
    assert found.after.tolist() == found.before.tolist()


def test_nothing_moves_for_a_few_per_cent():
    """Two flows that need 102 % of a link together."""
    assert not len(plan(pairs((0, 1), (0, 2), demand=[0.51, 0.51]), [0, 0]).moved)


def test_a_flow_takes_no_way_that_it_may_not_take():
    """The only free spine is one that neither may use."""
    flows = pairs((0, 1), (0, 2))
    flows.possible[:, 1:] = False
    assert not len(plan(flows, [0, 0]).moved)


def test_a_chain_is_moved_where_one_move_is_not_enough():
    """The second flow can only go where the third is, and that one has another way."""
    flows = pairs((0, 1), (0, 2), (0, 3), ways=[[0, 0], [0, 1], [1, 2]])
    found = plan(flows, [0, 0, 0])
    assert found.chosen.tolist() == [0, 1, 1]
    assert sorted(found.moved.tolist()) == [1, 2]


def test_the_slowest_flow_moves_first():
    """Where moves are rationed, the first of them help most."""
    flows = pairs((0, 1), (0, 2), (0, 3), (4, 5), (4, 6))
    found = plan(flows, [0, 0, 0, 1, 1])
    before = found.before[found.moved]
    assert before.tolist() == sorted(before.tolist())
    assert len(before) == 3


@pytest.mark.parametrize("seed", draws(1))
def test_any_permutation_gets_full_rate_with_free_choice(seed):
    """An assignment without conflict exists (Koenig); 64 NICs, eight of them at each leaf."""
    rng = np.random.default_rng(seed)
    order = rng.permutation(64)
    sources, sinks = order // 8, np.roll(order, 1) // 8
    crossing = sources != sinks
    sources, sinks = sources[crossing], sinks[crossing]
    spines = np.arange(8)
    ways = np.stack([sources[:, None] * 8 + spines, 64 + sinks[:, None] * 8 + spines], axis=2)
    flows = Flows(ways, np.ones((len(sources), 8), bool), np.full(len(sources), MBPS))
    capacity = np.full(128, MBPS)
    hashed = rng.integers(8, size=len(sources))
    assert shares(flows, capacity, hashed).min() < 1
    assert improvement(flows, capacity, hashed, rng).after.min() == 1.0


def test_the_present_assignment_is_not_changed():
    """It is the caller's."""
    flows, present = pairs((0, 1), (0, 2)), np.array([1, 1])
    search = Assignment(flows, np.full(64, MBPS), present, np.random.default_rng(0))
    assert search.overload_bps() == pytest.approx(MBPS)
    assert search.improve(50) == 0.0
    assert present.tolist() == [1, 1]


# -- priorities -------------------------------------------------------------------------------------------------------

THREE, TWO_WAYS = ((0, 1), (0, 2), (0, 3)), [[0, 1]] * 3


@pytest.mark.parametrize("seed", draws(1))
@pytest.mark.parametrize("high", range(3))
def test_of_three_flows_with_two_ways_the_one_that_matters_most_is_alone(high, seed):
    """One move is enough: it leaves the others, which share a link."""
    priority = [5 * (flow == high) for flow in range(3)]
    found = plan(pairs(*THREE, ways=TWO_WAYS, priority=priority), [0, 0, 0], seed=seed)
    assert found.moved.tolist() == [high]
    assert found.after.tolist() == [1.0 if flow == high else 0.5 for flow in range(3)]


@pytest.mark.parametrize("seed", draws(1))
@pytest.mark.parametrize("high", range(2))
def test_of_two_flows_the_one_that_matters_less_moves(high, seed):
    """Either move would do."""
    found = plan(pairs((0, 1), (0, 2), priority=[5 * (flow == high) for flow in range(2)]), [1, 1], seed=seed)
    assert found.moved.tolist() == [1 - high]
    assert found.after.tolist() == [1.0, 1.0]


@pytest.mark.parametrize("seed", draws(1))
def test_of_three_flows_that_seem_to_want_half_a_link_the_one_that_matters_most_is_alone(seed):
    """Any move would do, by what is known; it may want more than that."""
    found = plan(pairs(*THREE, ways=TWO_WAYS, demand=[0.5] * 3, priority=[0, 5, 0]), [0, 0, 0], seed=seed)
    assert found.moved.tolist() == [1]


@pytest.mark.parametrize("seed", draws(1))
def test_a_flow_that_matters_less_yields_though_another_loses_by_it(seed):
    """Its way is full after that; the one that matters more has its rate."""
    found = plan(pairs(*THREE, ways=TWO_WAYS, priority=[5, 0, 0]), [0, 0, 1], seed=seed)
    assert found.moved.tolist() == [1]
    assert found.before.tolist() == [0.5, 0.5, 1.0]
    assert found.after.tolist() == [1.0, 0.5, 0.5]


@pytest.mark.parametrize("priority", [[0, 0, 5], [0, 0, 0], [5, 5, 0], [-3, -3, -3], [-1, -1, 0], None])
def test_nobody_yields_to_one_that_matters_no_more(priority):
    """Two flows on a link, and one on the other: it stays so, if the one alone matters most, or all matter alike."""
    assert not len(plan(pairs(*THREE, ways=TWO_WAYS, priority=priority), [0, 0, 1]).moved)


@pytest.mark.parametrize(("priority", "moves"), [(None, 1), ([0, 0, 5], 0), ([5, 5, 0], 1)])
def test_what_others_gain_does_not_cost_one_that_matters_more(priority, moves):
    """On the mean all would gain if one went to the way of the third, which would lose a little."""
    flows = pairs(*THREE, ways=TWO_WAYS, demand=[1, 1, 0.6], priority=priority)
    assert len(plan(flows, [0, 0, 1]).moved) == moves


def test_a_gain_of_a_few_per_cent_is_not_worth_what_others_lose():
    """The one that matters more has 98 % of what it wants; and by what the others lose nothing is gained."""
    flows = pairs(*THREE, ways=TWO_WAYS, demand=[0.51, 0.51, 1], priority=[5, 0, 0])
    assert not len(plan(flows, [0, 0, 1]).moved)


def test_those_that_matter_less_gain_where_it_costs_no_other():
    """Two of them part, and the one that matters more keeps its link."""
    flows = pairs((0, 1), (0, 2), (0, 3), ways=[[0, 1, 2]] * 3, priority=[5, 0, 0])
    found = plan(flows, [0, 1, 1])
    assert found.chosen[0] == 0
    assert found.after.tolist() == [1.0, 1.0, 1.0]


@pytest.mark.parametrize("seed", draws(1))
def test_each_priority_counts_before_the_next(seed):
    """Seven priorities and as many flows, four links: the first three are alone, and the others share one."""
    leaves = [(0, leaf) for leaf in range(1, 8)]
    found = plan(pairs(*leaves, priority=[7, 6, 5, 4, 3, 2, 1]), [0] * 7, seed=seed)
    assert found.after[:3].tolist() == [1.0, 1.0, 1.0]


def test_moves_for_those_that_matter_more_come_first():
    """Where moves are rationed."""
    flows = pairs((0, 1), (0, 2), (0, 3), (4, 5), (4, 6), priority=[0, 0, 0, 0, 5])
    found = plan(flows, [0, 0, 0, 1, 1])
    assert found.before[found.moved].tolist() == pytest.approx([1 / 2, 1 / 3, 1 / 3])
    assert found.moved[0] in {3, 4}


@pytest.mark.parametrize("seed", draws(1))
def test_equal_priorities_are_as_none(seed):
    """Whichever they are, the same flows move to the same ways."""
    rng = np.random.default_rng(seed)
    leaves = [tuple(rng.choice(8, 2, replace=False).tolist()) for _ in range(20)]
    present = rng.integers(SPINES, size=20).tolist()
    without, alike = (plan(pairs(*leaves, priority=each), present, seed=seed) for each in (None, [7] * 20))
    assert alike.moved.tolist() == without.moved.tolist()
    assert alike.chosen.tolist() == without.chosen.tolist()
    assert alike.after.tolist() == without.after.tolist()


@pytest.mark.parametrize("seed", draws(3))
def test_no_plan_costs_a_flow_of_the_highest_priority(seed):
    """Flows at random: those that matter most get no less together, nor does the slowest of them."""
    rng = np.random.default_rng(seed)
    leaves = [tuple(rng.choice(4, 2, replace=False).tolist()) for _ in range(12)]
    priority, demand = rng.integers(3, size=12), rng.uniform(0.2, 1, size=12)
    found = plan(pairs(*leaves, demand=demand, priority=priority), rng.integers(SPINES, size=12).tolist(), seed=seed)
    high = priority == priority.max()
    assert found.after[high].min() >= found.before[high].min() - 1e-9
    assert found.after[high].sum() >= found.before[high].sum() - 1e-9
