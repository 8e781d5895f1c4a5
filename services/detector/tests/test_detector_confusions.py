"""Dead paths told from stalled and dead processes, lost NICs, and receivers with a trouble of their own."""

from __future__ import annotations

import pytest

from foliot_schemas import Witness
from foliot_schemas.names import Path, node_of

PATH = Path("node0.rail0", "node1.rail0", 0)
PHASES_MS = range(0, 200, 29)
"""When a fault strikes, against the timers of probes and batches: what is right must not hang on it."""


def told(events):
    """Kind, who and state of events."""
    return [(event.kind, event.who, event.state) for event in events]


def silent(path):
    """What a silent path is told as."""
    return ("path", str(path), "silent")


def into(fleet, end):
    """Paths to a NIC or a node."""
    return {path for path in fleet.paths if end in {path.destination, node_of(path.destination)}}


@pytest.mark.parametrize("phase_ms", PHASES_MS)
@pytest.mark.parametrize("stall_ms", [160, 240, 500, 950])
def test_a_stalled_sender_is_no_dead_path(make_fleet, phase_ms, stall_ms):
    """All its paths fall silent, and speak again: nobody saw it send in between."""
    fleet = make_fleet()
    fleet.run(phase_ms)
    fleet.stopped.add("node0")
    fleet.run(stall_ms)
    fleet.stopped.clear()
    fleet.run(1_500)

    assert fleet.take() == []


@pytest.mark.parametrize("phase_ms", PHASES_MS)
def test_a_killed_sender_is_a_dead_process_and_no_dead_path(make_fleet, phase_ms):
    """What it sent elsewhere just before its end proves nothing of the paths whose next probe was not due."""
    fleet = make_fleet()
    fleet.run(phase_ms)
    fleet.stopped.add("node0")
    fleet.run(4_000)

    assert told(fleet.take()) == [("process", "node0/probe", "dead")]

    fleet.restart("node0")
    fleet.run(3_000)
    assert told(fleet.take()) == [("process", "node0/probe", "alive")]


def test_a_path_that_died_with_its_sender_is_found_when_the_sender_is_back(make_fleet):
    """Its claim waits for a witness, and for the time that a restarted probe takes."""
    fleet = make_fleet()
    fleet.stopped.add("node0")
    fleet.cut.add(PATH)
    fleet.run(4_000)
    fleet.take()
    fleet.restart("node0")
    fleet.run(3_000)

    assert told(fleet.take()) == [("process", "node0/probe", "alive"), silent(PATH)]


def test_a_path_that_died_while_its_sender_stalled_is_found_afterwards(make_fleet):
    """Everything else of the sender speaks again, this path does not."""
    fleet = make_fleet()
    fleet.stopped.add("node0")
    fleet.cut.add(PATH)
    fleet.run(400)
    fleet.stopped.clear()
    fleet.run(500)

    assert told(fleet.take()) == [silent(PATH)]


@pytest.mark.parametrize("nic", [PATH.source, PATH.destination])
@pytest.mark.parametrize("phase_ms", PHASES_MS)
def test_a_lost_carrier_is_one_event_and_its_paths_have_none(make_fleet, nic, phase_ms):
    """One cause, one event, at either end, also afterwards."""
    fleet = make_fleet()
    fleet.run(phase_ms)
    fleet.set_carrier(nic, carrier=False)
    fleet.run(3_000)
    fleet.set_carrier(nic, carrier=True)
    fleet.run(3_000)

    assert told(fleet.take()) == [("flap", nic, "down"), ("flap", nic, "up")]


def test_an_administrators_down_is_one_event_and_its_paths_have_none(make_fleet):
    """As with a lost carrier."""
    fleet = make_fleet()
    fleet.set_admin(PATH.source, up=False)
    fleet.run(3_000)
    fleet.set_admin(PATH.source, up=True)
    fleet.run(3_000)

    assert told(fleet.take()) == [("flap", PATH.source, "admin-down"), ("flap", PATH.source, "admin-up")]


def test_a_silence_waits_for_the_word_of_a_port(make_fleet):
    """The link message may come a little after the silence that it explains."""
    fleet = make_fleet()
    fleet.set_carrier(PATH.destination, carrier=False, told_after_ms=2_000)
    while not fleet.detector.fleet.paths.silent.any():
        fleet.run(1)
    fleet.run(10)
    fleet.tell(fleet.port_state(PATH.destination))
    fleet.run(3_000)

    assert told(fleet.take()) == [("flap", PATH.destination, "down")]


def test_a_path_still_silent_when_its_nic_is_back_is_told_after_a_while(make_fleet):
    """The port explained the silence, and explains it no longer."""
    fleet = make_fleet()
    fleet.set_carrier(PATH.destination, carrier=False)
    fleet.cut.add(PATH)
    fleet.run(3_000)
    fleet.set_carrier(PATH.destination, carrier=True)
    fleet.run(900)
    assert told(fleet.take()) == [("flap", PATH.destination, "down"), ("flap", PATH.destination, "up")]

    fleet.run(600)
    assert told(fleet.take()) == [silent(PATH)]


def test_a_receiver_that_hears_nobody_at_all_is_given_time_and_half_belief(make_fleet):
    """It may be cut off, or its trouble may be its own."""
    fleet = make_fleet(rails=1, entropies=1)
    fleet.cut |= into(fleet, "node1")
    fleet.run(220)
    assert fleet.take() == []

    fleet.run(300)
    events = fleet.take()
    assert {event.who for event in events} == {str(path) for path in into(fleet, "node1")}
    assert {(event.confidence, event.evidence["receiver_deaf"]) for event in events} == {(0.5, True)}


def test_a_receiver_that_was_itself_away_may_take_its_claim_back(make_fleet, make_delays):
    """It says silence as it wakes, then reads what waited in its sockets."""
    fleet = make_fleet()
    heard_ns = fleet.heard[PATH]
    fleet.stopped.add("node1")
    fleet.run(500)
    fleet.stopped.clear()
    fleet.tell(make_delays("node1", fleet.now_ns, [(PATH, Witness.FELL_SILENT, 0, 0, heard_ns)]))
    fleet.run(80)
    assert fleet.take() == []

    fleet.tell(make_delays("node1", fleet.now_ns, [(PATH, Witness.SPEAKS_AGAIN, 0, 0, fleet.now_ns)]))
    fleet.run(1_000)
    assert fleet.take() == []


def test_a_killed_receiver_accuses_nobody(make_fleet):
    """What it had claimed before it died is not believed while it is gone."""
    fleet = make_fleet()
    fleet.cut.add(PATH)
    fleet.run(155)
    fleet.stopped.add("node1")
    fleet.run(3_000)

    assert ("process", "node1/probe", "dead") in told(fleet.take())
