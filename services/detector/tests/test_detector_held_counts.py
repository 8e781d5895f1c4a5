"""Counts that wait for the nodes that could tell of a full queue."""

from __future__ import annotations

import numpy as np
import pytest

from foliot_detector.core.detectors.packet_loss.held_counts import Counts, HeldCounts
from foliot_detector.core.state.full_queues import FullQueues
from foliot_schemas import DelayRow
from foliot_schemas.names import Path

MS = 1_000_000
PATH, BESIDE = Path("node0.rail0", "node1.rail0", 0), Path("node0.rail0", "node2.rail0", 1)


@pytest.fixture
def told(make_fleet):
    """Says which losses count: one in the 100 ms before now, a queue that showed so much later, and when it is said."""
    fleet = make_fleet(nodes=3, rails=1)
    inventory = fleet.detector.inventory
    now_ns = max(inventory.told_ns.values())
    ids = np.array([inventory.paths.id_of(PATH)])

    def ask(*, queue_ms=None, said_ms=0, silent_node=""):
        queues = FullQueues(inventory.paths)
        held = HeldCounts(inventory, queues)
        one = np.ones(1, np.int64)
        row = np.zeros(1, DelayRow)
        row["sent"], row["received"] = 3, 2
        held.hold(
            Counts(
                ids, row, one.astype(np.bool_), inventory.paths.silences[ids], one, one * (now_ns - 100 * MS), now_ns,
                100, now_ns,
            )
        )  # fmt: skip
        if queue_ms is not None:
            until_ns = now_ns + queue_ms * MS
            queues.note(np.array([inventory.paths.id_of(BESIDE)]), until_ns - 50 * MS, until_ns)
        inventory.told_ns.update({node: now_ns + said_ms * MS for node in fleet.names if node != silent_node})
        inventory.told_ns[silent_node] = now_ns
        return sum(len(counts.ids) for counts in held.due(now_ns + said_ms * MS))

    return ask


def test_a_loss_without_a_queue_counts_when_all_have_spoken(told):
    """Not before."""
    assert told(said_ms=340) == 0
    assert told(said_ms=360) == 1


def test_it_waits_for_the_last_node_but_no_longer_than_a_second(told):
    """One that says nothing is no witness."""
    assert told(said_ms=900, silent_node="node2") == 0
    assert told(said_ms=1_000, silent_node="node2") == 1


@pytest.mark.parametrize(("queue_ms", "counts"), [(-200, 1), (0, 0), (240, 0), (400, 1)])
def test_a_queue_explains_a_loss_until_the_slow_sweep_has_told_of_it(told, queue_ms, counts):
    """What a probe of the sweep waited is known with the next one, 200 ms later; of before and after it says nothing."""
    assert told(queue_ms=queue_ms, said_ms=360) == counts
