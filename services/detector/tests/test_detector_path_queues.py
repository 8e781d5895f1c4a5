"""How far delays stand above their base."""

from __future__ import annotations

import numpy as np
import pytest

from foliot.node.shard import WHOLE
from foliot_detector.core.detectors.contention.path_queues import PathQueues
from foliot_detector.core.state.path_table import Delays, PathTable
from foliot_schemas import DelayRow, Witness

PATH = "node0.rail0>node2.rail0#0"


@pytest.fixture
def table():
    """A table with one path."""
    table = PathTable(WHOLE)
    table.ids((PATH,), {"node0.rail0": 1, "node2.rail0": 1})
    return table


def report(**columns):
    """What the receiver says of it, with a synchronised clock."""
    rows = np.zeros(1, DelayRow)
    for name, value in ({"witness": Witness.DESTINATION, "received": 1} | columns).items():
        rows[name] = value
    return Delays("node2", 1, 1, 500, 1, rows, np.zeros(1, np.intp), np.ones(1, np.int64), None)


def test_a_probe_whose_delay_is_not_known_yet_teaches_no_base(table):
    """The first of a stream is such: when it left is in the next one."""
    queues, ids = PathQueues(table), np.zeros(1, np.intp)
    queues.bound(table.node_id("node0"), 500)
    queues.turn(1, is_watched=True)
    queues.add(report())
    assert np.isnan(queues.excess_ns(ids)).all()
    for delay_ns in (40_000, 60_000):
        queues.add(report(least_ns=delay_ns, median_ns=delay_ns, p99_ns=delay_ns))
    assert queues.excess_ns(ids).tolist() == [10_000]
