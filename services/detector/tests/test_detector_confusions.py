"""Dead paths told from stalled and dead processes, lost NICs, and receivers with a trouble of their own."""

from __future__ import annotations

import pytest

from foliot_schemas import Witness
from foliot_schemas.names import Path, node_of

PATH = Path("node0.rail0", "node1.rail0", 0)
PHASES_MS = range(0, 200, 87)
"""When a fault strikes, against the timers of probes and batches: what is right must not hang on it."""


def told(events):
    """Kind, who and state of events."""
    return [(event.kind, event.who, event.state) for event in events]


def silent(path):
    """What a silent path is told as."""
    return ("path", str(path), "silent")


def into(inventory, end):
    """Paths to a NIC or a node."""
    return {path for path in inventory.paths if end in {path.destination, node_of(path.destination)}}


@pytest.mark.parametrize("phase_ms", PHASES_MS)
@pytest.mark.parametrize("stall_ms", [160, 240, 500, 950])
def test_a_stalled_sender_is_no_dead_path(make_fleet, phase_ms, stall_ms):
    """All its paths fall silent, and speak again: nobody saw it send in between."""
    inventory = make_fleet()
    inventory.run(phase_ms)
    inventory.stopped.add("node0")
    inventory.run(stall_ms)
    inventory.stopped.clear()
    inventory.run(1_500)

    assert inventory.take() == []


@pytest.mark.parametrize("phase_ms", PHASES_MS)
def test_a_killed_sender_is_a_dead_process_and_no_dead_path(make_fleet, phase_ms):
    """What it sent elsewhere just before its end proves nothing of the paths whose next probe was not due."""
    inventory = make_fleet()
    inventory.run(phase_ms)
    inventory.stopped.add("node0")
    inventory.run(4_000)

    assert told(inventory.take()) == [("process", "node0/probe", "dead")]

    inventory.restart("node0")
    inventory.run(3_000)
    assert told(inventory.take()) == [("process", "node0/probe", "alive")]


def test_a_path_that_died_with_its_sender_is_found_when_the_sender_is_back(make_fleet):
    """Its claim waits for a witness, and for the time that a restarted probe takes."""
    inventory = make_fleet()
    inventory.stopped.add("node0")
    inventory.cut.add(PATH)
    inventory.run(4_000)
    inventory.take()
    inventory.restart("node0")
    inventory.run(3_000)

    assert told(inventory.take()) == [("process", "node0/probe", "alive"), silent(PATH)]


def test_a_path_that_died_while_its_sender_stalled_is_found_afterwards(make_fleet):
    """Everything else of the sender speaks again, this path does not."""
    inventory = make_fleet()
    inventory.stopped.add("node0")
    inventory.cut.add(PATH)
    inventory.run(400)
    inventory.stopped.clear()
    inventory.run(500)

    assert told(inventory.take()) == [silent(PATH)]


@pytest.mark.parametrize("nic", [PATH.source, PATH.destination])
@pytest.mark.parametrize("phase_ms", PHASES_MS)
def test_a_lost_carrier_is_one_event_and_its_paths_have_none(make_fleet, nic, phase_ms):
    """One cause, one event, at either end, also afterwards."""
    inventory = make_fleet()
    inventory.run(phase_ms)
    inventory.set_carrier(nic, carrier=False)
    inventory.run(3_000)
    inventory.set_carrier(nic, carrier=True)
    inventory.run(3_000)

    assert told(inventory.take()) == [("flap", nic, "down"), ("flap", nic, "up")]


def test_an_administrators_down_is_one_event_and_its_paths_have_none(make_fleet):
    """As with a lost carrier."""
    inventory = make_fleet()
    inventory.set_admin(PATH.source, up=False)
    inventory.run(3_000)
    inventory.set_admin(PATH.source, up=True)
    inventory.run(3_000)

    assert told(inventory.take()) == [("flap", PATH.source, "admin-down"), ("flap", PATH.source, "admin-up")]


def test_a_silence_waits_for_the_word_of_a_port(make_fleet):
    """The link message may come a little after the silence that it explains."""
    inventory = make_fleet()
    inventory.set_carrier(PATH.destination, carrier=False, told_after_ms=2_000)
    while not inventory.detector.inventory.paths.silent.any():
        inventory.run(1)
    inventory.run(10)
    inventory.tell(inventory.port_state(PATH.destination))
    inventory.run(3_000)

    assert told(inventory.take()) == [("flap", PATH.destination, "down")]


def test_a_path_still_silent_when_its_nic_is_back_is_told_after_a_while(make_fleet):
    """The port explained the silence, and explains it no longer."""
    inventory = make_fleet()
    inventory.set_carrier(PATH.destination, carrier=False)
    inventory.cut.add(PATH)
    inventory.run(3_000)
    inventory.set_carrier(PATH.destination, carrier=True)
    inventory.run(1_400)
    assert told(inventory.take()) == [("flap", PATH.destination, "down"), ("flap", PATH.destination, "up")]

    inventory.run(600)
    assert told(inventory.take()) == [silent(PATH)]


def test_a_receiver_that_hears_nobody_at_all_is_given_time_and_half_belief(make_fleet):
    """It may be cut off, or its trouble may be its own."""
    inventory = make_fleet(rails=1, entropies=1)
    inventory.cut |= into(inventory, "node1")
    inventory.run(220)
    assert inventory.take() == []

    inventory.run(300)
    events = inventory.take()
    assert {event.who for event in events} == {str(path) for path in into(inventory, "node1")}
    assert {(event.confidence, event.evidence["receiver_deaf"]) for event in events} == {(0.5, True)}


def test_a_receiver_that_was_itself_away_may_take_its_claim_back(make_fleet, make_delays):
    """It says silence as it wakes, then reads what waited in its sockets."""
    inventory = make_fleet()
    heard_ns = inventory.heard[PATH]
    inventory.stopped.add("node1")
    inventory.run(500)
    inventory.stopped.clear()
    inventory.tell(make_delays("node1", inventory.now_ns, [(PATH, Witness.FELL_SILENT, 0, 0, heard_ns)]))
    inventory.run(80)
    assert inventory.take() == []

    inventory.tell(make_delays("node1", inventory.now_ns, [(PATH, Witness.SPEAKS_AGAIN, 0, 0, inventory.now_ns)]))
    inventory.run(1_000)
    assert inventory.take() == []


def test_a_killed_receiver_accuses_nobody(make_fleet):
    """What it had claimed before it died is not believed while it is gone."""
    inventory = make_fleet()
    inventory.cut.add(PATH)
    inventory.run(155)
    inventory.stopped.add("node1")
    inventory.run(3_000)

    assert ("process", "node1/probe", "dead") in told(inventory.take())
