"""Paths: silent in one direction or both, speaking again, and which of them share a fault."""

from __future__ import annotations

import pytest

from foliot_schemas.names import Path, node_of

PATH = Path("node0.rail0", "node1.rail0", 0)
SWEPT = PATH._replace(entropy=1)
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


def test_a_healthy_fleet_says_nothing(make_fleet):
    """For ten seconds."""
    fleet = make_fleet()
    fleet.run(7_000)

    assert fleet.take() == []
    assert not fleet.detector.counts


@pytest.mark.parametrize("phase_ms", PHASES_MS)
def test_a_cut_path_in_use_is_silent_and_its_reverse_speaks(make_fleet, phase_ms):
    """A one-way blackhole: the directed path alone, with who proves that the sender sent on."""
    fleet = make_fleet()
    fleet.run(phase_ms)
    fleet.cut.add(PATH)
    fleet.run(400)
    (event,) = fleet.take()

    assert told([event]) == [silent(PATH)]
    assert event.confidence == 1.0
    assert event.since_ns == event.evidence["last_heard_ns"] == fleet.heard[PATH]
    assert event.fault == f"{PATH}/silent-{event.since_ns}"
    assert event.id == f"{event.fault}/silent"
    assert event.evidence["witness"]
    assert (event.evidence["reverse_speaking"], event.evidence["reverse_silent"]) == (True, False)
    assert (event.evidence["silent_from_source_nic"], event.evidence["paths_from_source_nic"]) == (1, 4)
    assert event.evidence["speaking_from_source_nic"] >= 1
    assert 150 < event.evidence["silent_ms"] < 250


@pytest.mark.parametrize("phase_ms", PHASES_MS)
@pytest.mark.parametrize("nodes", [2, 4])
def test_a_path_that_is_probed_often_is_silent_soon(make_fleet, phase_ms, nodes):
    """A report that still tells of what came before the silence takes no claim back, though two words of one moment differ by what a clock was set by."""
    fleet = make_fleet(nodes=nodes, probe_ms=10)
    fleet.shaky_ns = 5_000
    fleet.run(1_000 + phase_ms)
    fleet.cut.add(PATH)
    fleet.run(350)

    assert told(fleet.take()) == [silent(PATH)]


def test_a_path_that_is_probed_often_and_falls_silent_again_at_once_is_still_the_same_silence(make_fleet):
    """Whatever its clock was set by."""
    fleet = make_fleet(probe_ms=10)
    fleet.shaky_ns = 5_000
    for _ in range(20):
        fleet.cut.add(PATH)
        fleet.run(700)
        fleet.cut.clear()
        fleet.run(45)

    assert told(fleet.take()) == [silent(PATH)]


def test_it_is_told_once_however_long_it_lasts(make_fleet):
    """Regular batches repeat what is known."""
    fleet = make_fleet()
    fleet.cut.add(PATH)
    fleet.run(10_000)

    assert len(fleet.take()) == 1


def test_a_silent_path_that_speaks_again_is_told_under_the_same_fault(make_fleet):
    """With how long it was silent."""
    fleet = make_fleet()
    fleet.cut.add(PATH)
    fleet.run(2_000)
    (silence,) = fleet.take()
    fleet.cut.clear()
    fleet.run(1_000)
    (speaks,) = fleet.take()

    assert told([speaks]) == [("path", str(PATH), "speaking")]
    assert (speaks.fault, speaks.cause) == (silence.fault, silence.id)
    assert 1_900 < speaks.evidence["silent_ms"] < 2_100
    assert speaks.since_ns == silence.since_ns


def test_both_directions_cut_are_two_events_of_one_fault(make_fleet):
    """And neither claims that the other speaks."""
    fleet = make_fleet()
    fleet.cut |= {PATH, PATH.back}
    fleet.run(400)
    one, other = fleet.take()

    assert sorted(told([one, other])) == [silent(PATH), silent(PATH.back)]
    assert one.fault == other.fault
    assert not one.evidence["reverse_speaking"]
    assert not other.evidence["reverse_speaking"]
    assert other.evidence["reverse_silent"]


def test_a_swept_path_is_found_by_the_regular_rows(make_fleet):
    """Nobody says at once that a path out of use fell silent."""
    fleet = make_fleet()
    fleet.cut.add(SWEPT)
    fleet.run(1_500)

    assert told(fleet.take()) == [silent(SWEPT)]


def test_a_lost_word_at_once_is_made_good_by_the_regular_rows(make_fleet):
    """Observations may be lost: also the end of the silence is found."""
    fleet = make_fleet()
    fleet.tells_at_once = False
    fleet.cut.add(PATH)
    fleet.run(1_500)
    assert told(fleet.take()) == [silent(PATH)]

    fleet.cut.clear()
    fleet.run(1_000)
    assert told(fleet.take()) == [("path", str(PATH), "speaking")]


def test_a_sender_that_skips_a_path_while_it_sends_on_others_has_a_silent_path(make_fleet):
    """Whatever keeps the probes from leaving, the path carries nothing; the sender's own word does not claim otherwise."""
    fleet = make_fleet()
    fleet.mute.add(PATH)
    fleet.run(800)
    (event,) = fleet.take()

    assert told([event]) == [silent(PATH)]
    assert not event.evidence["sent_on_path"]


def test_a_nic_that_swallows_everything_is_many_events_of_one_fault(make_fleet):
    """Swept paths included; the evidence says that nothing enters the NIC, while its node hears by the other rail."""
    fleet = make_fleet()
    fleet.cut |= into(fleet, PATH.destination)
    fleet.run(2_000)
    events = fleet.take()

    assert {event.who for event in events} == {str(path) for path in into(fleet, PATH.destination)}
    assert {event.state for event in events} == {"silent"}
    assert len({event.fault for event in events}) == 1
    assert len({event.id for event in events}) == len(events) == 4
    assert {event.evidence["speaking_into_destination_nic"] for event in events} == {0}
    assert events[-1].evidence["silent_into_destination_nic"] == 4
    assert events[-1].evidence["paths_into_destination_nic"] == 4
    assert {event.confidence for event in events} == {1.0}


def test_silences_of_different_rails_are_different_faults(make_fleet):
    """A rail is a fabric of its own."""
    fleet = make_fleet()
    other = Path("node0.rail1", "node1.rail1", 0)
    fleet.cut |= {PATH, other}
    fleet.run(400)

    assert len({event.fault for event in fleet.take()}) == 2


def test_silences_that_began_far_apart_are_different_faults(make_fleet):
    """Even on one rail."""
    fleet = make_fleet()
    fleet.cut.add(PATH)
    fleet.run(600)
    fleet.cut.add(Path("node2.rail0", "node1.rail0", 0))
    fleet.run(600)

    assert len({event.fault for event in fleet.take()}) == 2


def test_a_path_that_comes_and_goes_is_one_silence_before_long(make_fleet):
    """Each return must last twice as long as the one before, so that no flood of events arises."""
    fleet = make_fleet()
    for _ in range(40):
        fleet.cut.add(PATH)
        fleet.run(500)
        fleet.cut.clear()
        fleet.run(500)
    events = fleet.take()

    assert {event.who for event in events} == {str(PATH)}
    assert len(events) <= 6

    fleet.run(60_000)
    assert (events + fleet.take())[-1].state == "speaking"


def test_a_path_that_falls_silent_again_at_once_is_still_the_same_silence(make_fleet):
    """It has to speak for longer than its silence time."""
    fleet = make_fleet()
    fleet.cut.add(PATH)
    fleet.run(500)
    fleet.cut.clear()
    fleet.run(60)
    fleet.cut.add(PATH)
    fleet.run(500)

    assert told(fleet.take()) == [silent(PATH)]


def test_two_nodes_and_a_single_path_each_way_suffice(make_fleet):
    """The sender's own word is the only witness."""
    fleet = make_fleet(nodes=2, rails=1, entropies=1)
    fleet.cut.add(PATH)
    fleet.run(600)
    (event,) = fleet.take()

    assert told([event]) == [silent(PATH)]
    assert (event.evidence["witness"], event.evidence["sent_on_path"]) == ("node0", True)
