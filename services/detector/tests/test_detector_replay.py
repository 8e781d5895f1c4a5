"""Replays: the same observations in give the same events out."""

from __future__ import annotations

from foliot_detector.core.pipeline import Pipeline
from foliot_schemas import decode, encode
from foliot_schemas.names import Path

PATH = Path("node0.rail0", "node1.rail0", 0)


def play(inventory):
    """A busy minute in twelve seconds: a cut path, a lost NIC, a stall, a death, loss."""
    inventory.cut.add(PATH)
    inventory.run(1_500)
    inventory.cut.clear()
    inventory.run(1_500)
    inventory.set_carrier("node2.rail1", carrier=False)
    inventory.run(1_500)
    inventory.set_carrier("node2.rail1", carrier=True)
    inventory.stopped.add("node0")
    inventory.run(400)
    inventory.stopped.clear()
    inventory.run(1_500)
    inventory.stopped.add("node1")
    inventory.run(3_000)
    inventory.restart("node1")
    inventory.run(3_000)
    return inventory.take()


def replay(inventory, inputs):
    """What another detector says to the same inputs, having read them off the wire."""
    detector, events = Pipeline(inventory.settings), []
    for elapsed_ns, message in inputs:
        if message is None:
            events += detector.tick(elapsed_ns)
        else:
            events += detector.observe(decode(encode(message), type(message)), elapsed_ns)
    return events


def test_a_recording_replays_to_the_very_same_events(make_fleet):
    """Bit for bit, twice."""
    inventory = make_fleet()
    events = play(inventory)

    assert len(events) >= 6
    assert replay(inventory, inventory.inputs) == events
    assert replay(inventory, inventory.inputs) == events


def test_a_recording_without_ticks_replays_to_the_same_verdicts(make_fleet):
    """Observations alone drive it; what a deadline decided may be told some milliseconds later."""
    inventory = make_fleet()
    events = play(inventory)
    observations = [(0, message) for _, message in inventory.inputs if message is not None]

    assert [event.id for event in replay(inventory, observations)] == [event.id for event in events]


def test_every_event_of_a_run_has_its_own_id(make_fleet):
    """So that a stream which keeps each id once loses none."""
    events = play(make_fleet())

    assert len({event.id for event in events}) == len(events)
