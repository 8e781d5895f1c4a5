"""The spare that is taken is the nearest to the lost rank's place, over paths that were measured before it joins."""

from __future__ import annotations

import numpy as np
import pytest
from prepared import prepared
from remediator_world import make_node
from replacement_world import ReplacementWorld

from foliot_remediator.core.remedies.replacement.spare_delays import SpareDelays
from foliot_remediator.settings import SpareLimit
from foliot_schemas import DelayBatch
from foliot_schemas.columns import pack
from foliot_schemas.observation import DelayCount, DelayRow


def taken(world):
    """The nodes that were given ranks."""
    return [change.to_node for order in world.orders for change in order.changes]


def reasons(world):
    """Why spares were passed over, by what was said of it."""
    said = [command.evidence for command in world.commands] + [refusal.evidence for refusal in world.refusals]
    return [evidence["passed_over"] for evidence in said if "passed_over" in evidence]


def limited(*, spares=(4, 5), **limit):
    """A world whose spares must keep a limit."""
    return prepared(ReplacementWorld, spares=spares, limits=(SpareLimit(**limit),))


def test_one_at_the_same_leaf_goes_first():
    """Before one whose name goes before."""
    world = prepared(ReplacementWorld)
    world.tell_hops((0, 2, 4), (1, 3, 5))
    world.lose(1)
    assert taken(world) == ["node5"]


def test_one_with_the_same_rails_goes_before_that():
    """The rank's flows need them."""
    world = prepared(ReplacementWorld)
    world.tell_hops((0, 2, 4), (1, 3, 5))
    world.see(make_node("node5", 2))
    world.run(1.0)
    world.port("node5.rail1", good=True)
    world.lose(1)
    assert taken(world) == ["node4"]


def test_two_ranks_get_two_spares_each_the_nearest():
    """To the place of each."""
    world = prepared(ReplacementWorld)
    world.tell_hops((0, 2, 5), (1, 3, 4))
    world.die(1)
    world.hang(1)
    world.lose(2, number=2)
    assert {change.rank: change.to_node for order in world.orders for change in order.changes} == {
        1: "node4",
        2: "node5",
    }


def test_paths_with_too_many_routers_are_not_taken():
    """A spare must be near to every rank that stays."""
    world = limited(hops=1)
    world.tell_hops((0, 1, 2, 3, 5), (4,))
    world.lose(1)
    assert taken(world) == ["node5"]
    assert reasons(world)[0] == "node4: 3 routers to node0, 1 are allowed"


def test_where_no_router_answers_no_spare_keeps_a_limit_of_them():
    """A doubt does nothing, and says so."""
    world = limited(hops=1)
    world.lose(1)
    assert (taken(world), world.guards()) == ([], ["no-spare"])
    assert reasons(world)[0].startswith("node4: the routers to node0 are not known; node5: ")


@pytest.mark.parametrize("pair", [("node4", "node2"), ("node2", "node4")])
def test_a_slow_path_to_a_rank_that_stays_is_not_taken(pair):
    """Either way."""
    world = limited(p99_us=200)
    world.delays[pair] = 900_000
    world.run(1.0)
    world.lose(1)
    assert taken(world) == ["node5"]
    (said,) = {*reasons(world)}
    assert said.startswith(("node4: p99 8", "node4: p99 9"))
    assert f"from {pair[0]} to {pair[1]}, 200 are allowed" in said


def test_a_slow_path_to_the_rank_that_is_lost_does_not_matter():
    """Nobody will use it."""
    world = limited(p99_us=200)
    world.delays["node4", "node1"] = 900_000
    world.run(1.0)
    world.lose(1)
    assert taken(world) == ["node4"]


def test_a_slow_path_counts_for_twenty_seconds():
    """Then it is as quick as it is."""
    world = limited(p99_us=200, spares=(4,))
    world.delays["node4", "node0"] = 900_000
    world.run(1.0)
    world.delays.clear()
    world.lose(1)
    assert world.guards() == ["no-spare"]
    world.run(21.0)
    assert taken(world) == ["node4"]


def test_a_limit_is_of_the_jobs_that_it_names():
    """Of several, the first that fits counts."""
    limits = SpareLimit(job="pretrain-*", hops=9), SpareLimit(hops=1)
    world = prepared(ReplacementWorld, spares=(4,), limits=limits)
    world.tell_hops((0, 1, 2, 3, 5), (4,))
    world.lose(1)
    assert taken(world) == ["node4"]


def test_only_where_routers_are_limited_does_anybody_ask_for_them():
    """Flows would be told as well."""
    assert prepared(ReplacementWorld, improve="off", limits=(SpareLimit(hops=1),)).core.hears_traffic
    assert not prepared(ReplacementWorld, improve="off", limits=(SpareLimit(p99_us=1.0),)).core.hears_traffic


def batch_of(counts=None, *, bound_ns=1_000, p99_ns=0):
    """What node1 says of two paths from node0, with these delays by path and bucket."""
    rows = np.zeros(2, DelayRow)
    rows["path"], rows["witness"], rows["received"], rows["p99_ns"] = (0, 1), 1, 2, p99_ns
    paths = tuple(f"node0.rail0>node1.rail0#{entropy}" for entropy in range(2))
    histogram = None if counts is None else pack(np.array(counts, DelayCount))
    return DelayBatch(
        columns=pack(rows), histogram=histogram, node="node1", at_ns=1, interval_ns=100, paths=paths, bound_ns=bound_ns
    )


def test_all_paths_of_a_pair_count_alike():
    """One late probe of two hundred is not in the p99, and three are."""
    delays = SpareDelays()
    delays.watch({("node0", "node1")})
    delays.take(batch_of([(0, 60, 199), (1, 120, 1)]), 1)
    usual = delays.p99_ns(("node0", "node1"), 1)
    delays.take(batch_of([(1, 120, 3)]), 1)
    assert 30_000 < usual < 40_000
    assert delays.p99_ns(("node0", "node1"), 1) > 900_000
    assert delays.p99_ns(("node1", "node0"), 1) == 0
    assert delays.p99_ns(("node0", "node1"), 25_000_000_000) == 0


def test_what_is_measured_stays_when_more_is():
    """And goes with the wish for it; clocks that are not synchronised measure nothing."""
    delays = SpareDelays()
    delays.watch({("node0", "node1")})
    delays.take(batch_of(p99_ns=50_000, bound_ns=-1), 1)
    assert delays.p99_ns(("node0", "node1"), 1) == 0
    delays.take(batch_of(p99_ns=50_000), 1)
    delays.watch({("node0", "node1"), ("a", "b")})
    assert 48_000 < delays.p99_ns(("node0", "node1"), 1) < 52_000
    delays.watch(set())
    assert delays.p99_ns(("node0", "node1"), 1) == 0


@pytest.mark.parametrize("limit", [{}, {"hops": -1, "p99_us": 5.0}, {"p99_us": -1.0}])
def test_a_limit_limits_something(limit):
    """Else it is a mistake."""
    with pytest.raises(ValueError, match="must be above 0"):
        SpareLimit(**limit)


def test_a_spare_that_says_it_has_a_rank_is_none():
    """An order in which a process loses a rank and takes one is refused by every node."""
    world = prepared(ReplacementWorld)
    world.spare("node4").rank = 9
    world.tell("node4")
    world.lose(1)
    assert taken(world) == ["node5"]
