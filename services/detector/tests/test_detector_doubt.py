"""Paths judged with wrong clocks, a slow bus, a detector that starts late or was away, and nodes that come and go."""

from __future__ import annotations

import pytest

from foliot_schemas import Witness
from foliot_schemas.names import Path

PATH = Path("node0.rail0", "node1.rail0", 0)
PHASES_MS = range(0, 200, 29)
"""When a fault strikes, against the timers of probes and batches: what is right must not hang on it."""


def told(events):
    """Kind, who and state of events."""
    return [(event.kind, event.who, event.state) for event in events]


def silent(path):
    """What a silent path is told as."""
    return ("path", str(path), "silent")


@pytest.mark.parametrize("phase_ms", PHASES_MS)
def test_clocks_far_apart_change_no_verdict(make_fleet, phase_ms):
    """Before they are synchronised, nodes disagree by 50 ms and more: a cut path, then a stall."""
    fleet = make_fleet(offsets_ms=(-50, 50, 0))
    fleet.run(phase_ms)
    fleet.cut.add(PATH)
    fleet.run(500)
    assert told(fleet.take()) == [silent(PATH)]

    fleet.cut.clear()
    fleet.run(1_000)
    fleet.take()
    fleet.stopped.add("node0")
    fleet.run(400)
    fleet.stopped.clear()
    fleet.run(1_000)
    assert fleet.take() == []


@pytest.mark.parametrize("step_ms", [-10_000, -60, 60, 10_000])
def test_a_stepped_clock_kills_no_process_and_no_path(make_fleet, step_ms):
    """Its times jump against everybody else's; a path cut afterwards is found all the same."""
    fleet = make_fleet(nodes=4)
    fleet.offset_ns["node1"] += step_ms * 1_000_000
    fleet.run(5_000)
    assert fleet.take() == []

    fleet.cut.add(PATH)
    fleet.run(1_000)
    assert told(fleet.take()) == [silent(PATH)]


@pytest.mark.parametrize("slow", ["node1", "node2"])
def test_a_slow_bus_makes_no_proof_where_clocks_are_good(make_fleet, slow):
    """A witness's old news, arriving late, seems to show that the stalled sender sent on; a receiver's, that it hears nothing still."""
    fleet = make_fleet()
    fleet.bus_delay_ns[slow] = 400_000_000
    fleet.run(1_000)
    fleet.stopped.add("node0")
    fleet.run(700)
    fleet.stopped.clear()
    fleet.run(1_500)

    assert fleet.take() == []


def test_a_detector_that_starts_late_finds_what_is_silent(make_fleet):
    """It missed the word at once; the regular rows tell it, under the same id."""
    fleet = make_fleet()
    fleet.cut.add(PATH)
    fleet.run(5_000)
    (before,) = fleet.take()
    fleet.start_detector()
    fleet.run(3_000)
    (after,) = fleet.take()

    assert told([after]) == [silent(PATH)]
    assert after.id == before.id


def test_a_detector_that_starts_late_makes_no_event_of_what_is_down_or_dead(make_fleet):
    """A lost NIC is told of with half confidence, its paths and a process that it never heard are not."""
    fleet = make_fleet(nodes=4)
    fleet.set_carrier(PATH.source, carrier=False)
    fleet.stopped.add("node3")
    fleet.run(5_000)
    fleet.take()
    fleet.start_detector()
    fleet.run(5_000)
    (event,) = fleet.take()

    assert told([event]) == [("flap", PATH.source, "down")]
    assert event.confidence == 0.5


def test_a_receiver_whose_probe_restarts_says_that_a_path_speaks_by_hearing_it(make_fleet):
    """It has forgotten the silence, so it has nothing to say at once."""
    fleet = make_fleet()
    fleet.cut.add(PATH)
    fleet.run(600)
    fleet.take()
    fleet.restart("node1")
    fleet.run(1_000)
    assert fleet.take() == []

    fleet.cut.clear()
    fleet.run(1_000)
    assert told(fleet.take()) == [("path", str(PATH), "speaking")]


def test_a_path_never_heard_is_no_silence(make_fleet):
    """Its far end may not have started yet."""
    fleet = make_fleet()
    fleet.cut.add(PATH)
    fleet.run(1)
    fleet.restart("node1")
    fleet.start_detector()
    fleet.run(5_000)

    assert fleet.take() == []


def test_claims_go_with_a_node_that_leaves_the_inventory(make_fleet, make_node):
    """Nobody waits for a node that was taken out."""
    fleet = make_fleet()
    fleet.cut.add(PATH)
    fleet.run(400)
    assert told(fleet.take()) == [silent(PATH)]

    fleet.tell(make_node("node0", rails=0))
    fleet.stopped.add("node0")
    fleet.cut.clear()
    fleet.run(3_000)
    assert fleet.take() == []


def test_rows_of_paths_that_nobody_knows_are_dropped_and_counted(make_fleet, make_delays):
    """A NIC that is not in the inventory has no paths."""
    fleet = make_fleet()
    stranger = Path("node7.rail0", "node1.rail0", 0)
    row = (Witness.FELL_SILENT, 0, 0, fleet.now_ns - 500_000_000)
    fleet.tell(make_delays("node1", fleet.now_ns, [(stranger, *row), (">node1.rail0#x", *row)]))
    fleet.run(500)

    assert fleet.take() == []
    assert fleet.detector.counts["rows_foreign"] == 2


def test_a_path_is_silent_by_the_word_of_its_receiver_alone(make_fleet, make_delays):
    """What its sender, or a third node, says of it is broken input."""
    fleet = make_fleet()
    row = (Witness.FELL_SILENT, 0, 0, fleet.now_ns - 500_000_000)
    for liar in ("node0", "node2"):
        fleet.tell(make_delays(liar, fleet.now_ns, [(PATH, *row)]))
    fleet.run(500)

    assert fleet.take() == []
    assert fleet.detector.counts["delays_broken"] == 2


def test_a_detector_that_was_away_reads_what_waits_before_it_judges(make_fleet):
    """A claim's end may stand behind it in the queue; deadlines that passed meanwhile prove nothing."""
    fleet = make_fleet()
    backlog, tell = [], fleet.tell
    fleet.tell = backlog.append
    fleet.stopped.add("node0")
    fleet.run(400)
    fleet.stopped.clear()
    fleet._queue = [entry for entry in fleet._queue if entry[2] != fleet._tick]
    fleet.run(300)
    fleet.tell = tell
    for message in backlog:
        fleet.tell(message)
    fleet._tick()
    fleet.run(1_000)

    assert fleet.take() == []


def test_columns_grow_with_the_fleet(make_fleet):
    """More paths than the table had room for at first."""
    fleet = make_fleet(nodes=7, rails=2, entropies=4)
    assert len(fleet.detector.fleet.paths) == 7 * 6 * 2 * 4 == 336
    fleet.cut.add(PATH)
    fleet.run(400)

    assert told(fleet.take()) == [silent(PATH)]


@pytest.mark.parametrize("phase_ms", PHASES_MS)
def test_a_path_that_died_while_its_receivers_probe_restarted_is_found(make_fleet, phase_ms):
    """The new probe never heard it and has nothing to miss; that the one before heard it is known here."""
    fleet = make_fleet()
    fleet.run(phase_ms)
    fleet.stopped.add("node1")
    fleet.run(100)
    fleet.cut.add(PATH)
    fleet.run(500)
    fleet.restart("node1")
    fleet.run(3_000)
    assert told(fleet.take()) == [silent(PATH)]

    fleet.cut.clear()
    fleet.run(1_000)
    assert told(fleet.take()) == [("path", str(PATH), "speaking")]


@pytest.mark.parametrize("phase_ms", PHASES_MS)
def test_a_path_heard_since_its_nic_is_back_is_judged_at_once(make_fleet, phase_ms):
    """The time that a NIC has for coming back is for paths that have not spoken since."""
    fleet = make_fleet()
    fleet.set_carrier(PATH.source, carrier=False)
    fleet.run(500)
    fleet.set_carrier(PATH.source, carrier=True)
    fleet.run(200 + phase_ms)
    fleet.take()
    fleet.cut.add(PATH)
    fleet.run(350)

    assert silent(PATH) in told(fleet.take())
