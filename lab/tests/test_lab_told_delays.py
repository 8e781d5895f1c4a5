"""What probes tell of round trips and of the delays of paths, beside each other."""

from __future__ import annotations

import asyncio

import numpy as np
import pytest

from foliot_lab.measure.clock_truth import LabTime
from foliot_lab.measure.told_delays import ToldDelays
from foliot_schemas import DelayBatch, DelayRow, FlowBatch, FlowRow, NodePaths, Placement, Witness

THERE, BACK = "node0.rail0>node2.rail0#3", "node2.rail0>node0.rail0#1"
MS = 1_000_000


class Told:
    """A listener, and what it is told."""

    def __init__(self, monkeypatch):
        self.now_ns = 10_000 * MS
        monkeypatch.setattr(LabTime, "now_ns", lambda _: self.now_ns)
        self.kept = ToldDelays(LabTime.starting_now())
        for node, peer, entropy in (("node0", "node2", 3), ("node2", "node0", 1)):
            way = Placement(peer=peer, rail="rail0", via="rail0", entropy=entropy)
            asyncio.run(self.kept.paths(node, NodePaths(node=node, lease_revision=1, placements=(way,))))

    def flow(self, rtt_us, **between_nics):
        """The sender tells of its round trip."""
        rows = np.zeros(1, FlowRow)
        rows["rtt_ns"] = rtt_us * 1_000
        name = ("node0.rail0>node2.rail0",)
        if between_nics:
            batch = FlowBatch.of(rows[:0], rows, node="node0", at_ns=1, interval_ns=1, flows=(), nic_flows=name)
        else:
            batch = FlowBatch.of(rows, node="node0", at_ns=1, interval_ns=1, flows=name)
        asyncio.run(self.kept.flows(batch))

    def delay(self, path, median_us, witness=Witness.DESTINATION):
        """A path's receiver tells of its delay, or its sender of its probes."""
        rows = np.zeros(1, DelayRow)
        rows["witness"], rows["median_ns"] = witness, median_us * 1_000
        node = path.partition(">")[2 * (witness == Witness.DESTINATION)].partition(".")[0]
        batch = DelayBatch.of(rows, node=node, at_ns=1, interval_ns=1, bound_ns=1, paths=(path,))
        asyncio.run(self.kept.delays(batch))

    def of(self, over="service"):
        """Round trips, and delays of the path."""
        return [(each.in_band_us, each.out_of_band_us) for each in self.kept.of("node0.rail0>node2.rail0", over)]


@pytest.fixture
def told(monkeypatch):
    """As `Told`."""
    return Told(monkeypatch)


def test_a_round_trip_stands_beside_both_delays_of_its_path(told):
    """The latest ones; of its path alone, by the words of receivers."""
    told.flow(500)
    told.delay(THERE, 4_000)
    told.flow(600)
    told.delay(BACK, 70)
    told.delay(THERE, 0)
    told.delay(THERE, 9_000, Witness.SOURCE)
    told.delay(THERE.replace("#3", "#2"), 50)
    told.flow(700)
    told.delay(THERE, 5_000)
    told.flow(800)
    told.flow(0)
    assert told.of() == [(500, None), (600, None), (700, 4_070), (800, 5_070)]
    assert told.of("nic") == []


def test_traffic_between_nics_is_told_by_itself(told):
    """Beside the path that the pair's other traffic takes."""
    told.flow(1, between_nics=True)
    told.delay(THERE, 40)
    told.delay(BACK, 60)
    told.flow(90, between_nics=True)
    told.flow(95)
    assert told.of("nic") == [(1, None), (90, 100)]
    assert told.of() == [(95, 100)]


def test_delays_of_a_second_ago_say_nothing(told):
    """Nor do those of a path that the traffic has left, or of a node that is gone."""
    told.flow(1)
    told.delay(THERE, 40)
    told.delay(BACK, 60)
    told.now_ns += 1_100 * MS
    told.flow(90)
    told.delay(THERE, 40)
    told.delay(BACK, 60)
    told.flow(91)
    asyncio.run(told.kept.paths("node0", None))
    told.flow(92)
    assert told.of() == [(1, None), (90, None), (91, 100), (92, None)]
