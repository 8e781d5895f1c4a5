"""The quick generator of a large fleet's stamps: its truth is what sync finds, whoever asks for which part of it."""

from __future__ import annotations

import numpy as np
import pytest

from foliot_lab.simulate.clocks.large_fleet import WINDOW_NS, LargeFleet
from foliot_lab.simulate.synthetic_fleet import SyntheticFleet
from foliot_schemas import StampBatch, decode
from foliot_sync.core.synchroniser import Synchroniser

NODES = 60


@pytest.fixture
def large_fleet():
    """A fleet of sixty nodes."""
    return LargeFleet(SyntheticFleet(NODES), neighbours=6)


def test_sync_finds_the_truth(large_fleet):
    """Every clock against every other, to less than what the two are said to be good for."""
    sync = Synchroniser()
    for window in range(6):
        for _, data in large_fleet.batches(0, NODES):
            assert sync.add(decode(data, StampBatch), window * WINDOW_NS)
        states = sync.solve(window * WINDOW_NS + WINDOW_NS // 2)
        local_ns = large_fleet.local_ns(np.arange(NODES), np.full(NODES, WINDOW_NS * 1.3)).tolist()
        large_fleet.next()
    by_name = sorted(states, key=lambda state: state.clock)
    assert [state.status for state in by_name] == ["synchronised"] * NODES
    said = [state.reference_ns(at_ns) for state, at_ns in zip(by_name, local_ns, strict=True)]
    apart = np.array([each - said[0] for each in said])
    assert np.abs(apart).max() < 200
    assert {state.neighbours for state in by_name} == {6}


def test_parts_of_it_are_of_one_fleet(large_fleet):
    """A shard's stamps are of the same clocks as the others', however many of them somebody has asked for before."""
    other = LargeFleet(SyntheticFleet(NODES), neighbours=6)
    list(large_fleet.batches(0, NODES))
    for each in (large_fleet, other):
        each.next()
    assert (
        large_fleet.local_ns(np.arange(NODES), np.zeros(NODES)) == other.local_ns(np.arange(NODES), np.zeros(NODES))
    ).all()
    names = [name for first in (0, 20, 40) for name, _ in large_fleet.batches(first, first + 20)]
    assert names == [SyntheticFleet(NODES).name(number) for number in range(NODES)]


def test_partners_are_the_other_ends(large_fleet):
    """The streams are those of the pairs that the nodes initiate, whose stamps they publish."""
    (_, data), *_ = large_fleet.batches(7, 8)
    batch = decode(data, StampBatch)
    named = {stream.responder for stream in batch.streams} | {batch.node}
    assert named == {SyntheticFleet(NODES).name(number) for number in large_fleet.partners(7, 8)}
