"""How far delays stand above their base."""

from __future__ import annotations

import numpy as np
import pytest

from foliot.node.shard import WHOLE
from foliot_detector.core.detectors.contention.path_queues import SLOT_NS, PathQueues
from foliot_detector.core.state.path_table import Delays, PathTable
from foliot_schemas import DelayRow, Witness

PATH = "node0.rail0>node2.rail0#0"


@pytest.fixture
def table():
    """A table with one path."""
    table = PathTable(WHOLE)
    table.ids((PATH,), {"node0.rail0": 1, "node2.rail0": 1})
    return table


HOLDS_NS = 500_000_000
"""For how long a report holds of a node that sends ten a second."""
SELDOM_NS = 7_500_000_000
"""For how long one holds where there is one in three seconds."""


def report(**columns):
    """What the receiver says of it, with a synchronised clock."""
    rows = np.zeros(1, DelayRow)
    bound_ns = columns.pop("bound_ns", 500)
    for name, value in ({"witness": Witness.DESTINATION, "received": 1} | columns).items():
        rows[name] = value
    return Delays("node2", 1, 1, bound_ns, 1, rows, np.zeros(1, np.intp), np.ones(1, np.int64), None)


def test_a_probe_whose_delay_is_not_known_yet_teaches_no_base(table):
    """The first of a stream is such: when it left is in the next one."""
    queues, ids = PathQueues(table), np.zeros(1, np.intp)
    queues.bound(table.node_id("node0"), 500)
    queues.turn(1, is_watched=True)
    queues.add(report(), HOLDS_NS)
    assert np.isnan(queues.excess_ns(ids)).all()
    for delay_ns in (40_000, 60_000):
        queues.add(report(least_ns=delay_ns, median_ns=delay_ns, p99_ns=delay_ns), HOLDS_NS)
    assert queues.excess_ns(ids).tolist() == [10_000]


def watched(table, holds_ns):
    """Queues that have heard once of a path with a base of 40 us: 40 us at least, and 90 us in the median."""
    queues = PathQueues(table)
    queues.bound(table.node_id("node0"), 500)
    queues.turn(1, is_watched=True)
    queues.add(report(least_ns=40_000, median_ns=90_000, p99_ns=99_000), holds_ns)
    return queues


def pass_time(queues, seconds):
    """Turns queues four times a second for so long, and looks at them each time."""
    for quarter in range(round(seconds * 4)):
        queues.turn(1 + (quarter + 1) * SLOT_NS, is_watched=True)
        queues.excess_ns(np.zeros(1, np.intp))


@pytest.mark.parametrize(("holds_ns", "after_s", "excess_ns"), [
    (HOLDS_NS, 0.75, 0), (HOLDS_NS, 1, None), (SELDOM_NS, 1, 50_000), (SELDOM_NS, 7.5, 50_000), (SELDOM_NS, 7.75, None),
])  # fmt: skip
def test_a_report_of_a_node_that_reports_seldom_counts_until_the_next_one(table, holds_ns, after_s, excess_ns):
    """By its median, as a queue may have been empty once in three seconds. Another one counts for a second."""
    queues, ids = watched(table, holds_ns), np.zeros(1, np.intp)
    pass_time(queues, after_s)
    found = [None if np.isnan(each) else each for each in queues.excess_ns(ids).tolist()]
    assert found == [excess_ns]
    longest = [None if np.isnan(each) else each - 40_000 for each in queues.longest_ns(ids).tolist()]
    assert longest == [excess_ns]
    assert queues.calm_ns() == (excess_ns or 0)


@pytest.mark.parametrize("forget", [
    lambda queues: queues.forget([0]),
    lambda queues: queues.add(report(least_ns=40_000, median_ns=90_000, bound_ns=-1), SELDOM_NS),
    lambda queues: (queues.bound(0, -1), queues.add(report(least_ns=40_000, median_ns=90_000), SELDOM_NS)),
    lambda queues: (queues.turn(5 * SLOT_NS, is_watched=False), queues.turn(6 * SLOT_NS, is_watched=True)),
], ids=["the path leads elsewhere", "its clock is lost", "the sender's clock is lost", "nobody watches"])  # fmt: skip
def test_a_report_that_means_nothing_any_more_counts_no_longer(table, forget):
    """Though the next one is not due."""
    queues = watched(table, SELDOM_NS)
    pass_time(queues, 1)
    forget(queues)
    assert np.isnan(queues.excess_ns(np.zeros(1, np.intp))).all()


def test_a_node_that_reports_seldom_teaches_bases_in_each_report(table):
    """While nobody watches, others do so in one slot of eight; theirs may never fall into it."""
    queues, ids = PathQueues(table), np.zeros(1, np.intp)
    queues.bound(table.node_id("node0"), 500)
    for quarter in range(1, 242):
        queues.turn(quarter * SLOT_NS, is_watched=False)
    queues.add(report(least_ns=40_000, median_ns=90_000), HOLDS_NS)
    assert queues.bases_ns(ids).tolist() == [1 << 62]
    queues.add(report(least_ns=40_000, median_ns=90_000), SELDOM_NS)
    assert queues.bases_ns(ids).tolist() == [40_000]


def test_what_was_heard_of_a_path_that_leads_elsewhere_now_counts_no_longer(table):
    """Though its delays were looked at a moment ago."""
    queues, ids = watched(table, HOLDS_NS), np.zeros(1, np.intp)
    assert queues.excess_ns(ids).tolist() == [0]
    queues.forget([0])
    assert np.isnan(queues.excess_ns(ids)).all()
