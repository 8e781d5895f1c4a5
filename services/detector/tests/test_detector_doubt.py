"""Paths judged with wrong clocks, a slow bus, a detector that starts late or was away, and nodes that come and go."""

from __future__ import annotations

import pytest

from foliot_schemas import Witness
from foliot_schemas.names import Path

PATH = Path("node0.rail0", "node1.rail0", 0)
PHASES_MS = range(0, 200, 87)
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
    inventory = make_fleet(offsets_ms=(-50, 50, 0))
    inventory.run(phase_ms)
    inventory.cut.add(PATH)
    inventory.run(500)
    assert told(inventory.take()) == [silent(PATH)]

    inventory.cut.clear()
    inventory.run(1_000)
    inventory.take()
    inventory.stopped.add("node0")
    inventory.run(400)
    inventory.stopped.clear()
    inventory.run(1_000)
    assert inventory.take() == []


@pytest.mark.parametrize("step_ms", [-10_000, -60, 60, 10_000])
def test_a_stepped_clock_kills_no_process_and_no_path(make_fleet, step_ms):
    """Its times jump against everybody else's; a path cut afterwards is found all the same."""
    inventory = make_fleet(nodes=4)
    inventory.offset_ns["node1"] += step_ms * 1_000_000
    inventory.run(5_000)
    assert inventory.take() == []

    inventory.cut.add(PATH)
    inventory.run(1_000)
    assert told(inventory.take()) == [silent(PATH)]


@pytest.mark.parametrize("slow", ["node1", "node2"])
def test_a_slow_bus_makes_no_proof_where_clocks_are_good(make_fleet, slow):
    """A witness's old news, arriving late, seems to show that the stalled sender sent on.

    A receiver's seems to show that it hears nothing still.
    """
    inventory = make_fleet()
    inventory.bus_delay_ns[slow] = 400_000_000
    inventory.run(1_000)
    inventory.stopped.add("node0")
    inventory.run(700)
    inventory.stopped.clear()
    inventory.run(1_500)

    assert inventory.take() == []


def test_a_detector_that_starts_late_finds_what_is_silent(make_fleet):
    """It missed the word at once; the regular rows tell it, under the same id."""
    inventory = make_fleet()
    inventory.cut.add(PATH)
    inventory.run(5_000)
    (before,) = inventory.take()
    inventory.start_detector()
    inventory.run(3_000)
    (after,) = inventory.take()

    assert told([after]) == [silent(PATH)]
    assert after.id == before.id


def test_a_detector_that_starts_late_makes_no_event_of_what_is_down_or_dead(make_fleet):
    """A lost NIC is told of with half confidence, its paths and a process that it never heard are not."""
    inventory = make_fleet(nodes=4)
    inventory.set_carrier(PATH.source, carrier=False)
    inventory.stopped.add("node3")
    inventory.run(5_000)
    inventory.take()
    inventory.start_detector()
    inventory.run(5_000)
    (event,) = inventory.take()

    assert told([event]) == [("flap", PATH.source, "down")]
    assert event.confidence == 0.5


def test_a_receiver_whose_probe_restarts_says_that_a_path_speaks_by_hearing_it(make_fleet):
    """It has forgotten the silence, so it has nothing to say at once."""
    inventory = make_fleet()
    inventory.cut.add(PATH)
    inventory.run(600)
    inventory.take()
    inventory.restart("node1")
    inventory.run(1_000)
    assert inventory.take() == []

    inventory.cut.clear()
    inventory.run(1_000)
    assert told(inventory.take()) == [("path", str(PATH), "speaking")]


def test_a_path_never_heard_is_no_silence(make_fleet):
    """Its far end may not have started yet."""
    inventory = make_fleet()
    inventory.cut.add(PATH)
    inventory.run(1)
    inventory.restart("node1")
    inventory.start_detector()
    inventory.run(5_000)

    assert inventory.take() == []


def test_claims_go_with_a_node_that_leaves_the_inventory(make_fleet, make_node):
    """Nobody waits for a node that was taken out."""
    inventory = make_fleet()
    inventory.cut.add(PATH)
    inventory.run(400)
    assert told(inventory.take()) == [silent(PATH)]

    inventory.tell(make_node("node0", rails=0))
    inventory.stopped.add("node0")
    inventory.cut.clear()
    inventory.run(3_000)
    assert inventory.take() == []


def test_rows_of_paths_that_nobody_knows_are_dropped_and_counted(make_fleet, make_delays):
    """A NIC that is not in the inventory has no paths."""
    inventory = make_fleet()
    stranger = Path("node7.rail0", "node1.rail0", 0)
    row = (Witness.FELL_SILENT, 0, 0, inventory.now_ns - 500_000_000)
    inventory.tell(make_delays("node1", inventory.now_ns, [(stranger, *row), (">node1.rail0#x", *row)]))
    inventory.run(500)

    assert inventory.take() == []
    assert inventory.detector.counts["rows_foreign"] == 2


def test_a_path_is_silent_by_the_word_of_its_receiver_alone(make_fleet, make_delays):
    """What its sender, or a third node, says of it is broken input."""
    inventory = make_fleet()
    row = (Witness.FELL_SILENT, 0, 0, inventory.now_ns - 500_000_000)
    for liar in ("node0", "node2"):
        inventory.tell(make_delays(liar, inventory.now_ns, [(PATH, *row)]))
    inventory.run(500)

    assert inventory.take() == []
    assert inventory.detector.counts["delays_broken"] == 2


def test_a_detector_that_was_away_reads_what_waits_before_it_judges(make_fleet):
    """A claim's end may stand behind it in the queue; deadlines that passed meanwhile prove nothing."""
    inventory = make_fleet()
    backlog, tell = [], inventory.tell
    inventory.tell = backlog.append
    inventory.stopped.add("node0")
    inventory.run(400)
    inventory.stopped.clear()
    inventory._queue = [entry for entry in inventory._queue if entry[2] != inventory._tick]
    inventory.run(300)
    inventory.tell = tell
    for message in backlog:
        inventory.tell(message)
    inventory._tick()
    inventory.run(1_000)

    assert inventory.take() == []


def test_columns_grow_with_the_fleet(make_fleet):
    """More paths than the table had room for at first."""
    inventory = make_fleet(nodes=7, rails=2, entropies=4)
    assert len(inventory.detector.inventory.paths) == 7 * 6 * 2 * 4 == 336
    inventory.cut.add(PATH)
    inventory.run(400)

    assert told(inventory.take()) == [silent(PATH)]


@pytest.mark.parametrize("phase_ms", PHASES_MS)
def test_a_path_that_died_while_its_receivers_probe_restarted_is_found(make_fleet, phase_ms):
    """The new probe never heard it and has nothing to miss; that the one before heard it is known here."""
    inventory = make_fleet()
    inventory.run(phase_ms)
    inventory.stopped.add("node1")
    inventory.run(100)
    inventory.cut.add(PATH)
    inventory.run(500)
    inventory.restart("node1")
    inventory.run(3_000)
    assert told(inventory.take()) == [silent(PATH)]

    inventory.cut.clear()
    inventory.run(1_000)
    assert told(inventory.take()) == [("path", str(PATH), "speaking")]


@pytest.mark.parametrize("phase_ms", PHASES_MS)
def test_a_path_heard_since_its_nic_is_back_is_judged_at_once(make_fleet, phase_ms):
    """The time that a NIC has for coming back is for paths that have not spoken since."""
    inventory = make_fleet()
    inventory.set_carrier(PATH.source, carrier=False)
    inventory.run(500)
    inventory.set_carrier(PATH.source, carrier=True)
    inventory.run(200 + phase_ms)
    inventory.take()
    inventory.cut.add(PATH)
    inventory.run(350)

    assert silent(PATH) in told(inventory.take())
