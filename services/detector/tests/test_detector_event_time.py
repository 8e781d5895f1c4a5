"""The detector's own time, and observations that are too old or broken."""

from __future__ import annotations

import msgspec
import pytest

from foliot_detector.core.pipeline import Pipeline
from foliot_detector.core.state.event_time import EventTime
from foliot_detector.settings import DetectorSettings
from foliot_schemas import Witness
from foliot_schemas.names import Path

SECOND_NS = 1_000_000_000
T = 1_700_000_000 * SECOND_NS
PATH = Path("node0.rail0", "node1.rail0", 0)


@pytest.fixture
def event_time():
    """One that two nodes have spoken on."""
    line = EventTime()
    line.learn("node0", T)
    line.learn("node1", T)
    return line


def test_it_follows_the_newest_time_and_never_runs_back(event_time):
    """Nodes that lag behind change nothing."""
    event_time.learn("node0", T + 100)
    event_time.learn("node1", T + 50)

    assert event_time.now_ns == T + 100


def test_one_node_alone_cannot_push_it_far(event_time):
    """A stepped clock is a bad clock, however often it says so."""
    for second in range(10, 20):
        event_time.learn("node0", T + second * SECOND_NS)

    assert event_time.now_ns == T


def test_two_nodes_that_agree_are_time_that_passed(event_time):
    """After a gap in a recording it goes on at the earlier of the two."""
    event_time.learn("node0", T + 3_600 * SECOND_NS)
    event_time.learn("node1", T + 3_601 * SECOND_NS)

    assert event_time.now_ns == T + 3_600 * SECOND_NS


def test_where_time_is_measured_two_that_agree_are_not_time_that_passed(event_time):
    """Hosts may boot with the same wrong date."""
    event_time.advance(7)
    event_time.learn("node0", T + 3_600 * SECOND_NS)
    event_time.learn("node1", T + 3_601 * SECOND_NS)

    assert event_time.now_ns == T + 7


def test_a_lone_node_is_believed():
    """There is nobody to ask."""
    line = EventTime()
    line.learn("node0", T)
    line.learn("node0", T + 60 * SECOND_NS)

    assert line.now_ns == T + 60 * SECOND_NS


def test_measured_time_passes_once_there_is_a_beginning():
    """Before the first observation there is nothing to count from."""
    line = EventTime()
    line.advance(5)
    assert line.now_ns == 0

    line.learn("node0", T)
    line.advance(7)
    line.advance(-3)
    assert line.now_ns == T + 7


@pytest.fixture
def fan_out(make_node):
    """A detector of two nodes."""
    detector = Pipeline(DetectorSettings())
    for name in ("node0", "node1"):
        detector.observe(make_node(name))
    return detector


def batch(make_delays, at_ns, node="node1"):
    """A batch of one row."""
    return make_delays(node, at_ns, [(PATH, Witness.DESTINATION, 2, 2, at_ns)])


def test_a_batch_two_seconds_older_than_the_nodes_newest_is_dropped_and_counted(fan_out, make_delays):
    """It was true once."""
    fan_out.observe(batch(make_delays, T))
    fan_out.observe(batch(make_delays, T - 2 * SECOND_NS))
    assert fan_out.counts["delays_stale"] == 0

    fan_out.observe(batch(make_delays, T - 2 * SECOND_NS - 1))
    assert fan_out.counts["delays_stale"] == 1


def test_another_nodes_time_makes_no_batch_stale(fan_out, make_delays):
    """Each node is measured by its own clock."""
    fan_out.observe(batch(make_delays, T))
    fan_out.observe(batch(make_delays, T - 60 * SECOND_NS, node="node0"))

    assert fan_out.counts["delays_stale"] == 0


def test_a_node_whose_clock_was_set_back_is_believed_after_a_while(fan_out, make_delays):
    """Nothing newer has come from it meanwhile."""
    fan_out.observe(batch(make_delays, T))
    for tenth in range(30):
        fan_out.tick(SECOND_NS // 10)
        fan_out.observe(batch(make_delays, T - 60 * SECOND_NS + tenth * SECOND_NS // 10))

    assert 19 <= fan_out.counts["delays_stale"] <= 21


def test_a_batch_whose_columns_do_not_fit_is_counted_and_nothing_else(fan_out, make_delays):
    """Broken input never stops a service."""
    good = batch(make_delays, T)
    short = msgspec.structs.replace(good, columns=good.columns | {"sent": b""})
    nameless = msgspec.structs.replace(good, paths=())

    assert fan_out.observe(short) == []
    assert fan_out.observe(nameless) == []
    assert fan_out.counts["delays_broken"] == 2


def test_an_empty_batch_is_a_sign_of_life(fan_out, make_delays):
    """A node without paths yet speaks all the same."""
    assert fan_out.observe(make_delays("node1", T, [])) == []
    assert fan_out.inventory.liveness.on_bus_ns("node1") == T


def test_a_batch_may_come_before_its_nodes_are_known(make_node, make_delays):
    """Its rows count from when the inventory is there."""
    detector = Pipeline(DetectorSettings())
    detector.observe(batch(make_delays, T))
    assert detector.counts["nodes_foreign"] == 1

    for name in ("node0", "node1"):
        detector.observe(make_node(name))
    detector.observe(batch(make_delays, T + 1))
    assert (detector.counts["nodes_foreign"], detector.counts["rows_foreign"]) == (1, 0)
