"""Paths: dead ones told from dead processes, dead NICs, stalls and wrong clocks."""

from __future__ import annotations

import pytest

from foliot_detector.settings import DetectorSettings
from foliot_schemas import Witness
from foliot_schemas.names import Path, node_of

PATH = Path("node0.rail0", "node1.rail0", 0)
SWEPT = PATH._replace(entropy=1)
PHASES_MS = range(0, 200, 13)
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


def test_a_sender_that_skips_a_path_while_it_sends_on_others_has_a_silent_path(make_fleet):
    """Whatever keeps the probes from leaving, the path carries nothing; the sender's own word does not claim otherwise."""
    fleet = make_fleet()
    fleet.mute.add(PATH)
    fleet.run(800)
    (event,) = fleet.take()

    assert told([event]) == [silent(PATH)]
    assert not event.evidence["sent_on_path"]


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


def test_rows_from_the_wrong_end_are_dropped_and_counted(make_fleet, make_delays):
    """Only its receiver can say that a path is silent; a NIC that nobody knows has no paths."""
    fleet = make_fleet()
    stranger = Path("node7.rail0", "node1.rail0", 0)
    row = (Witness.FELL_SILENT, 0, 0, fleet.now_ns - 500_000_000)
    fleet.tell(make_delays("node2", fleet.now_ns, [(PATH, *row)]))
    fleet.tell(make_delays("node1", fleet.now_ns, [(stranger, *row), ("no path", *row)]))
    fleet.run(500)

    assert fleet.take() == []
    assert fleet.detector.counts["rows_foreign"] == 3


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


def test_two_nodes_and_a_single_path_each_way_suffice(make_fleet):
    """The sender's own word is the only witness."""
    fleet = make_fleet(nodes=2, rails=1, entropies=1)
    fleet.cut.add(PATH)
    fleet.run(600)
    (event,) = fleet.take()

    assert told([event]) == [silent(PATH)]
    assert (event.evidence["witness"], event.evidence["sent_on_path"]) == ("node0", True)


def test_columns_grow_with_the_fleet(make_fleet):
    """More paths than the table had room for at first."""
    fleet = make_fleet(nodes=7, rails=2, entropies=4, settings=DetectorSettings())
    assert len(fleet.detector.fleet.paths) == 7 * 6 * 2 * 4 == 336
    fleet.cut.add(PATH)
    fleet.run(400)

    assert told(fleet.take()) == [silent(PATH)]
