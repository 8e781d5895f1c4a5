"""Streams have the same number in every window."""

from __future__ import annotations

import numpy as np

from foliot_schemas.observation import StampBatch, StampRow, Stream
from foliot_sync.core.fit.stream_numbers import StreamNumbers


def batch(*entropies, node="node0"):
    """A batch of streams of these entropies to node9."""
    return StampBatch.of(
        np.zeros(0, StampRow), node=node, since_ns=0, until_ns=1, epoch_ns=0,
        streams=tuple(
            Stream(path=f"{node}.rail0>node9.rail0#{each}", initiator=node, responder="node9", kind="user")
            for each in entropies
        ),
    )  # fmt: skip


def test_streams_keep_their_numbers():
    """In whatever order and parts they come, and though a window had none of them."""
    numbers = StreamNumbers()
    other = batch(0, node="node1")
    assert numbers.of([batch(0, 1), other]).tolist() == [0, 1, 2]
    assert numbers.of([other, batch(0, 1)]).tolist() == [2, 0, 1]
    assert numbers.of([batch(1), batch(3, 0)]).tolist() == [1, 3, 0]
    assert numbers.of([]).tolist() == []
    assert numbers.of([batch(), other, batch(0, 1)]).tolist() == [2, 0, 1]
    assert len(numbers) == 4
    assert numbers.paths(2) == ["node1.rail0>node9.rail0#0", "node0.rail0>node9.rail0#3"]
