"""Reports that waited in the bus while it was cut."""

from __future__ import annotations

from foliot_remediator.health import Hearing

PATH = "node0.rail0>node1.rail0#0"
SECOND = 1_000_000_000


def test_a_report_that_waited_in_the_bus_says_how_it_was_not_how_it_is(world):
    """Both clocks are good, so its age is known: what it heard then does not count as heard now, nor its node as reporting."""
    health = world.core.health
    waited = world.batch("node1")
    world.deaf.add("node1")
    world.run(1.9)
    before_ns = health.heard_ns(PATH)
    world.see(waited)
    assert health.heard_ns(PATH) == before_ns
    world.run(0.3)
    assert health.hearing(PATH, world.now_ns) is Hearing.UNKNOWN


def test_a_node_whose_clock_is_unknown_is_taken_at_its_arrival(world):
    """Nothing can be said of the age of what it says."""
    health = world.core.health
    world.unsynchronised.add("node1")
    waited = world.batch("node1")
    world.deaf.add("node1")
    world.run(1.9)
    world.see(waited)
    world.run(0.3)
    assert health.hearing(PATH, world.now_ns) is Hearing.HEALTHY
