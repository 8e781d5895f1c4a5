"""Replays: the same observations in give the same events out."""

from __future__ import annotations

from foliot_detector.detector import FanOut
from foliot_schemas import decode, encode
from foliot_schemas.names import Path

PATH = Path("node0.rail0", "node1.rail0", 0)


def play(fleet):
    """A busy minute in twelve seconds: a cut path, a lost NIC, a stall, a death, loss."""
    fleet.cut.add(PATH)
    fleet.run(1_500)
    fleet.cut.clear()
    fleet.run(1_500)
    fleet.set_carrier("node2.rail1", carrier=False)
    fleet.run(1_500)
    fleet.set_carrier("node2.rail1", carrier=True)
    fleet.stopped.add("node0")
    fleet.run(400)
    fleet.stopped.clear()
    fleet.run(1_500)
    fleet.stopped.add("node1")
    fleet.run(3_000)
    fleet.restart("node1")
    fleet.run(3_000)
    return fleet.take()


def replay(fleet, inputs):
    """What another detector says to the same inputs, having read them off the wire."""
    detector, events = FanOut(fleet.settings), []
    for elapsed_ns, message in inputs:
        if message is None:
            events += detector.tick(elapsed_ns)
        else:
            events += detector.observe(decode(encode(message), type(message)), elapsed_ns)
    return events


def test_a_recording_replays_to_the_very_same_events(make_fleet):
    """Bit for bit, twice."""
    fleet = make_fleet()
    events = play(fleet)

    assert len(events) >= 6
    assert replay(fleet, fleet.inputs) == events
    assert replay(fleet, fleet.inputs) == events


def test_a_recording_without_ticks_replays_to_the_same_verdicts(make_fleet):
    """Observations alone drive it; what a deadline decided may be told some milliseconds later."""
    fleet = make_fleet()
    events = play(fleet)
    observations = [(0, message) for _, message in fleet.inputs if message is not None]

    assert [event.id for event in replay(fleet, observations)] == [event.id for event in events]


def test_every_event_of_a_run_has_its_own_id(make_fleet):
    """So that a stream which keeps each id once loses none."""
    events = play(make_fleet())

    assert len({event.id for event in events}) == len(events)
