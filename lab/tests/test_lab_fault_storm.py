"""The simulated fleet of the bench: who its nodes are, what they say, and what befalls them."""

from __future__ import annotations

import itertools

import pytest

from foliot_lab.simulate.fault_storm import FaultStorm, StormSpec
from foliot_lab.simulate.synthetic_fleet import RAILS, SyntheticFleet
from foliot_schemas import DelayBatch, Witness, decode, encode

NOW = 1_800_000_000_000_000_000


def storm(seed=1, nodes=2_000, **more):
    """All steps of a storm of a hundred events a second."""
    return list(
        FaultStorm(StormSpec(events_per_s=100.0, seconds=12.0, seed=seed, **more), SyntheticFleet(nodes)).steps()
    )


def test_the_same_seed_gives_the_same_storm():
    """Another gives another."""
    assert storm(seed=1) == storm(seed=1)
    assert storm(seed=1) != storm(seed=2)


def test_a_storm_is_told_in_the_order_of_time():
    """It is played as it comes, without being held in memory."""
    assert all(one.at_s <= next_.at_s for one, next_ in itertools.pairwise(storm()))


def test_a_storm_has_the_events_it_is_asked_for():
    """Each fault gives one when it begins and one when it ends; a tenth of them are lost carriers."""
    steps = storm()
    count = {kind: sum(step.kind == kind for step in steps) for kind in ("lose", "return", "cut", "mend")}
    assert count["lose"] == count["return"]
    assert count["cut"] == count["mend"]
    assert sum(count.values()) == pytest.approx(1_200, rel=0.15)
    assert count["lose"] / (count["lose"] + count["cut"]) == pytest.approx(0.1, abs=0.04)


def test_a_storm_over_parts_has_as_many_events_and_each_part_its_share():
    """So that each shard of a fleet is busy at every moment."""
    faults = [step for step in storm(parts=4) if step.kind in {"lose", "cut"}]
    assert len(faults) == pytest.approx(600, rel=0.15)
    for begin in range(0, 2_000, 500):
        assert sum(begin <= step.node < begin + 500 for step in faults) == pytest.approx(150, rel=0.35)


def test_both_ends_of_a_fault_report_from_before_it_until_after_it():
    """Nothing is moved to a way that nobody has heard, nor back to one."""
    steps = storm()
    for fault, end in (("lose", "return"), ("cut", "mend")):
        for step in [step for step in steps if step.kind == fault]:
            over_s = min(each.at_s for each in steps if each.kind == end and each[2:] == step[2:] and each > step)
            said_s = [each.at_s for each in steps if each.kind == "report" and each.node == step.node]
            assert min(said_s) < step.at_s < over_s < max(said_s) - 1.0


def test_a_front_that_does_not_fit_is_refused():
    """A node in two faults at once would show neither."""
    with pytest.raises(ValueError, match="give more nodes or fewer events"):
        storm(nodes=50)


def test_everybody_knows_ten_others_and_is_known_by_them():
    """Each node lists its own neighbours alone as peers."""
    fleet = SyntheticFleet(100)
    nodes = {node.name: node for node in map(fleet.node, range(100))}
    for node in nodes.values():
        assert len(node.peers) == 10
        assert all(node.talks_to(nodes[peer]) and nodes[peer].talks_to(node) for peer in node.peers)
    assert len({nic.address for node in nodes.values() for nic in node.nics}) == 200


def test_a_healthy_node_hears_all_its_paths():
    """Ten peers, two rails, four entropies, two directions; the columns survive the wire."""
    batch = decode(encode(SyntheticFleet(100).report(7, NOW)), DelayBatch)
    rows = batch.rows()
    heard = rows[rows["witness"] == Witness.DESTINATION]
    assert len(batch.paths) == len(rows) == 160
    assert (heard["received"] == heard["sent"]).all()
    assert (heard["last_ns"] > NOW - 10_000_000).all()


def test_a_lost_nic_is_heard_on_none_of_its_paths():
    """Neither by its peers nor, what they send to it, by its own node."""
    fleet = SyntheticFleet(100)
    fleet.lose("node000007.rail1", NOW)
    for number, count in ((7, 40), (8, 4), (20, 0)):
        batch = fleet.report(number, NOW + 1_000_000_000)
        rows = batch.rows()
        unheard = rows[(rows["witness"] == Witness.DESTINATION) & (rows["received"] == 0)]
        assert len(unheard) == count
        assert all("node000007.rail1" in batch.paths[place] for place in unheard["path"])
        assert (unheard["last_ns"] < NOW).all()


def test_ports_count_what_was_lost():
    """As a kernel does: carriers lost and found since the device was made."""
    fleet = SyntheticFleet(100)
    nic = f"node000007.{RAILS[0]}"
    before = fleet.port(7, RAILS[0], NOW, change=False)
    fleet.lose(nic, NOW)
    lost = fleet.port(7, RAILS[0], NOW, change=True)
    fleet.lost.pop(nic)
    back = fleet.port(7, RAILS[0], NOW, change=True)
    assert [port.carrier for port in (before, lost, back)] == [True, False, True]
    assert [port.carrier_down_count for port in (before, lost, back)] == [0, 1, 1]
    assert [port.carrier_up_count for port in (before, lost, back)] == [1, 1, 2]
