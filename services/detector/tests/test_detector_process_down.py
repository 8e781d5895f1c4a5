"""Processes: dead ones told from cut buses, cut fabrics and a detector that was away."""

from __future__ import annotations

import pytest

from foliot_schemas.names import node_of


def told(events):
    """Kind, who and state of events."""
    return [(event.kind, event.who, event.state) for event in events]


DEAD, ALIVE = ("process", "node2/probe", "dead"), ("process", "node2/probe", "alive")


def test_a_process_of_which_nothing_comes_is_dead_and_alive_when_it_is_back(make_fleet):
    """Under one fault, with how long it was silent."""
    inventory = make_fleet()
    inventory.stopped.add("node2")
    inventory.run(5_000)
    (dead,) = inventory.take()
    inventory.restart("node2")
    inventory.run(1_000)
    (alive,) = inventory.take()

    assert told([dead, alive]) == [DEAD, ALIVE]
    assert 2_000 <= dead.evidence["silent_ms"] < 2_300
    assert dead.evidence["nodes_speaking"] == 2
    assert (alive.fault, alive.cause) == (dead.fault, dead.id)
    assert alive.evidence["silent_ms"] > 4_900


def test_a_process_cut_from_the_bus_is_not_dead_while_its_peers_hear_it(make_fleet):
    """The fabric is a witness too."""
    inventory = make_fleet()
    inventory.off_bus.add("node2")
    inventory.run(5_000)

    assert inventory.take() == []


def test_where_nodes_report_more_seldom_a_process_may_be_silent_for_longer(make_fleet):
    """For two and a half intervals: one that left out a report is late."""
    inventory = make_fleet(report_ms=2_000)
    inventory.run(4_000)
    inventory.stopped.add("node2")
    inventory.run(4_500)
    inventory.restart("node2")
    inventory.run(12_000)  # until that it stood still is forgotten
    assert inventory.take() == []

    inventory.stopped.add("node2")
    inventory.run(7_000)
    (dead,) = inventory.take()
    assert told([dead]) == [DEAD]
    assert 5_000 <= dead.evidence["silent_ms"] < 7_000


@pytest.mark.parametrize("report_ms", [100, 1_000, 2_000])
def test_where_nodes_report_more_seldom_a_process_cut_from_the_bus_is_not_dead(make_fleet, report_ms):
    """Though its peers say so seldom that they hear it."""
    inventory = make_fleet(report_ms=report_ms)
    inventory.run(2 * report_ms)
    inventory.off_bus.add("node2")
    inventory.run(5 * report_ms)
    assert inventory.take() == []


def test_a_process_cut_from_the_fabric_is_not_dead_while_it_speaks_on_the_bus(make_fleet):
    """Its paths are silent, which is said of them."""
    inventory = make_fleet()
    inventory.cut |= {path for path in inventory.paths if "node2" in {node_of(path.source), node_of(path.destination)}}
    inventory.run(5_000)

    assert {event.kind for event in inventory.take()} == {"path"}


def test_when_most_are_gone_at_once_nobody_is_dead(make_fleet):
    """Then it is the bus, or this detector."""
    inventory = make_fleet(nodes=4)
    inventory.off_bus |= {"node0", "node1", "node2", "node3"}
    inventory.run(5_000)
    assert inventory.take() == []

    inventory.off_bus.clear()
    inventory.run(5_000)
    assert inventory.take() == []


@pytest.mark.parametrize("apart_ms", [50, 150, 250])
def test_who_is_cut_off_a_moment_sooner_is_not_dead(make_fleet, apart_ms):
    """That the others spoke a little longer does not show that the bus went on without it."""
    inventory = make_fleet(nodes=4)
    inventory.stopped |= {"node0", "node1"}
    inventory.run(apart_ms)
    inventory.off_bus |= {"node2", "node3"}
    inventory.run(5_000)

    assert inventory.take() == []


def test_half_of_the_fleet_may_die(make_fleet):
    """And the dead no longer count when more follow."""
    inventory = make_fleet(nodes=4)
    inventory.stopped |= {"node2", "node3"}
    inventory.run(4_000)
    assert len(inventory.take()) == 2

    inventory.stopped.add("node1")
    inventory.run(4_000)
    assert told(inventory.take()) == [("process", "node1/probe", "dead")]


def test_the_last_process_is_not_declared_dead(make_fleet):
    """Nobody is left to show that the bus works."""
    inventory = make_fleet(nodes=2)
    inventory.stopped |= {"node0", "node1"}
    inventory.run(5_000)

    assert inventory.take() == []


def test_a_stall_below_the_silence_time_is_no_death(make_fleet):
    """900 ms of nothing."""
    inventory = make_fleet()
    inventory.stopped.add("node2")
    inventory.run(900)
    inventory.stopped.clear()
    inventory.run(3_000)

    assert inventory.take() == []


@pytest.mark.parametrize("behind_ms", [100, 300, 450])
def test_what_waits_to_be_read_is_no_silence(make_fleet, behind_ms):
    """A node stands still for 0.7 s, and the detector falls behind meanwhile, but not so far that it hears nobody."""
    inventory = make_fleet(nodes=4)
    inventory.run(2_000)
    inventory.stopped.add("node2")
    inventory.run(400)
    inventory.bus_delay_ns |= dict.fromkeys(inventory.names, behind_ms * 1_000_000)
    inventory.run(300)
    inventory.stopped.clear()
    inventory.run(3_000)

    assert [event for event in inventory.take() if event.kind == "process"] == []


def test_who_stood_still_before_is_given_longer(make_fleet):
    """Twice as long as its words had gaps lately, at most two silence times; what is long ago does not count."""
    inventory = make_fleet()
    for stall_ms in (1_300, 1_600):  # as where hogs have every processor
        inventory.stopped.add("node2")
        inventory.run(stall_ms)
        inventory.stopped.clear()
        inventory.run(1_000)
    assert [event for event in inventory.take() if event.kind == "process"] == []

    inventory.stopped.add("node2")
    inventory.run(5_000)
    (dead,) = inventory.take()
    assert told([dead]) == [DEAD]
    assert 3_200 <= dead.evidence["silent_ms"] <= 4_100

    inventory.restart("node2")
    inventory.run(25_000)
    inventory.take()
    inventory.stopped.add("node2")
    inventory.run(5_000)
    (dead,) = inventory.take()
    assert dead.evidence["silent_ms"] < 2_300


def test_a_node_that_never_spoke_is_not_missed(make_fleet):
    """The inventory may know it for long."""
    inventory = make_fleet()
    inventory.stopped.add("node2")
    inventory.run(2_000)
    inventory.take()
    inventory.start_detector()
    inventory.run(5_000)

    assert inventory.take() == []


def test_a_node_taken_out_of_the_inventory_is_not_missed(make_fleet, make_node):
    """Nor is one that was dead before said to be alive."""
    inventory = make_fleet()
    inventory.tell(make_node("node2", rails=0))
    inventory.stopped.add("node2")
    inventory.run(3_000)
    assert inventory.take() == []

    inventory.stopped.add("node1")
    inventory.run(1_500)
    inventory.take()
    inventory.tell(make_node("node1", rails=0))
    inventory.run(3_000)
    assert inventory.take() == []


def test_a_detector_that_was_away_for_long_kills_nobody(make_fleet):
    """All were silent to it, so none was."""
    inventory = make_fleet()
    inventory.events += inventory.detector.tick(60_000_000_000)
    inventory.run(5_000)

    assert inventory.take() == []
