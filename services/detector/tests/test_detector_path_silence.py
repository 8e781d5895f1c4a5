"""Paths: silent in one direction or both, speaking again, and which of them share a fault."""

from __future__ import annotations

import pytest

from foliot_schemas import Node, Witness
from foliot_schemas.names import Path, node_of

PATH = Path("node0.rail0", "node1.rail0", 0)
MS = 1_000_000
SWEPT = PATH._replace(entropy=1)
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


def test_a_healthy_fleet_says_nothing(make_fleet):
    """For ten seconds."""
    inventory = make_fleet()
    inventory.run(7_000)

    assert inventory.take() == []
    assert not inventory.detector.counts


@pytest.mark.parametrize("phase_ms", PHASES_MS)
def test_a_cut_path_in_use_is_silent_and_its_reverse_speaks(make_fleet, phase_ms):
    """A one-way blackhole: the directed path alone, with who proves that the sender sent on."""
    inventory = make_fleet()
    inventory.run(phase_ms)
    inventory.cut.add(PATH)
    inventory.run(400)
    (event,) = inventory.take()

    assert told([event]) == [silent(PATH)]
    assert event.confidence == 1.0
    assert event.since_ns == event.evidence["last_heard_ns"] == inventory.heard[PATH]
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
    """A report that still tells of what came before the silence takes no claim back.

    That holds though two words of one moment differ by what a clock was set by.
    """
    inventory = make_fleet(nodes=nodes, probe_ms=10)
    inventory.shaky_ns = 5_000
    inventory.run(1_000 + phase_ms)
    inventory.cut.add(PATH)
    inventory.run(350)

    assert told(inventory.take()) == [silent(PATH)]


@pytest.mark.parametrize("tells_sent", [True, False])
@pytest.mark.parametrize("phase_ms", PHASES_MS)
def test_a_receiver_that_knows_that_the_sender_sent_on_needs_no_word_of_it(make_fleet, phase_ms, tells_sent):
    """Where the sender's reports do not come, or come late, the stamps in its other probes say so."""
    inventory = make_fleet(probe_ms=20)
    inventory.tells_sent = tells_sent
    inventory.run(1_000 + phase_ms)
    inventory.off_bus.add(node_of(PATH.source))
    inventory.run(120)
    inventory.cut.add(PATH)
    inventory.run(100)

    assert told(inventory.take()) == ([silent(PATH)] if tells_sent else [])


@pytest.mark.parametrize("phase_ms", PHASES_MS)
def test_a_receiver_knows_nothing_of_a_sender_that_stands_still(make_fleet, phase_ms):
    """All of its paths fall silent, and none is dead."""
    inventory = make_fleet(probe_ms=10)
    inventory.tells_sent = True
    inventory.run(1_000 + phase_ms)
    inventory.stopped.add(node_of(PATH.source))
    inventory.run(400)

    assert told(inventory.take()) == []


def test_a_path_that_is_probed_often_and_falls_silent_again_at_once_is_still_the_same_silence(make_fleet):
    """Whatever its clock was set by."""
    inventory = make_fleet(probe_ms=10)
    inventory.shaky_ns = 5_000
    for _ in range(20):
        inventory.cut.add(PATH)
        inventory.run(700)
        inventory.cut.clear()
        inventory.run(45)

    assert told(inventory.take()) == [silent(PATH)]


def test_it_is_told_once_however_long_it_lasts(make_fleet):
    """Regular batches repeat what is known."""
    inventory = make_fleet()
    inventory.cut.add(PATH)
    inventory.run(10_000)

    assert len(inventory.take()) == 1


def test_a_silent_path_that_speaks_again_is_told_under_the_same_fault(make_fleet):
    """With how long it was silent."""
    inventory = make_fleet()
    inventory.cut.add(PATH)
    inventory.run(2_000)
    (silence,) = inventory.take()
    inventory.cut.clear()
    inventory.run(1_000)
    (speaks,) = inventory.take()

    assert told([speaks]) == [("path", str(PATH), "speaking")]
    assert (speaks.fault, speaks.cause) == (silence.fault, silence.id)
    assert 1_900 < speaks.evidence["silent_ms"] < 2_100
    assert speaks.since_ns == silence.since_ns


def test_both_directions_cut_are_two_events_of_one_fault(make_fleet):
    """And neither claims that the other speaks."""
    inventory = make_fleet()
    inventory.cut |= {PATH, PATH.back}
    inventory.run(400)
    one, other = inventory.take()

    assert sorted(told([one, other])) == [silent(PATH), silent(PATH.back)]
    assert one.fault == other.fault
    assert not one.evidence["reverse_speaking"]
    assert not other.evidence["reverse_speaking"]
    assert other.evidence["reverse_silent"]


def test_a_swept_path_is_found_by_the_regular_rows(make_fleet):
    """Nobody says at once that a path out of use fell silent."""
    inventory = make_fleet()
    inventory.cut.add(SWEPT)
    inventory.run(1_500)

    assert told(inventory.take()) == [silent(SWEPT)]


def test_a_lost_word_at_once_is_made_good_by_the_regular_rows(make_fleet):
    """Observations may be lost: also the end of the silence is found."""
    inventory = make_fleet()
    inventory.tells_at_once = False
    inventory.cut.add(PATH)
    inventory.run(1_500)
    assert told(inventory.take()) == [silent(PATH)]

    inventory.cut.clear()
    inventory.run(1_000)
    assert told(inventory.take()) == [("path", str(PATH), "speaking")]


def test_a_sender_that_skips_a_path_while_it_sends_on_others_has_a_silent_path(make_fleet):
    """Whatever keeps probes from leaving, the path carries nothing; the sender's own word does not claim otherwise."""
    inventory = make_fleet()
    inventory.mute.add(PATH)
    inventory.run(800)
    (event,) = inventory.take()

    assert told([event]) == [silent(PATH)]
    assert not event.evidence["sent_on_path"]


def test_a_nic_that_swallows_everything_is_many_events_of_one_fault(make_fleet):
    """Swept paths included; the evidence says that nothing enters the NIC, while its node hears by the other rail."""
    inventory = make_fleet()
    inventory.cut |= into(inventory, PATH.destination)
    inventory.run(2_000)
    events = inventory.take()

    assert {event.who for event in events} == {str(path) for path in into(inventory, PATH.destination)}
    assert {event.state for event in events} == {"silent"}
    assert len({event.fault for event in events}) == 1
    assert len({event.id for event in events}) == len(events) == 4
    assert {event.evidence["speaking_into_destination_nic"] for event in events} == {0}
    assert events[-1].evidence["silent_into_destination_nic"] == 4
    assert events[-1].evidence["paths_into_destination_nic"] == 4
    assert {event.confidence for event in events} == {1.0}


def test_silences_of_different_rails_are_different_faults(make_fleet):
    """A rail is a fabric of its own."""
    inventory = make_fleet()
    other = Path("node0.rail1", "node1.rail1", 0)
    inventory.cut |= {PATH, other}
    inventory.run(400)

    assert len({event.fault for event in inventory.take()}) == 2


def test_silences_that_began_far_apart_are_different_faults(make_fleet):
    """Even on one rail."""
    inventory = make_fleet()
    inventory.cut.add(PATH)
    inventory.run(600)
    inventory.cut.add(Path("node2.rail0", "node1.rail0", 0))
    inventory.run(600)

    assert len({event.fault for event in inventory.take()}) == 2


def test_a_path_that_comes_and_goes_is_one_silence_before_long(make_fleet):
    """Each return must last twice as long as the one before, so that no flood of events arises."""
    inventory = make_fleet(nodes=2, rails=1, tick_ms=50)
    for _ in range(20):
        inventory.cut.add(PATH)
        inventory.run(500)
        inventory.cut.clear()
        inventory.run(500)
    events = inventory.take()

    assert {event.who for event in events} == {str(PATH)}
    assert len(events) <= 6

    inventory.run_until_said(60_000)
    assert (events + inventory.take())[-1].state == "speaking"


def test_a_path_that_falls_silent_again_at_once_is_still_the_same_silence(make_fleet):
    """It has to speak for longer than its silence time."""
    inventory = make_fleet()
    inventory.cut.add(PATH)
    inventory.run(500)
    inventory.cut.clear()
    inventory.run(60)
    inventory.cut.add(PATH)
    inventory.run(500)

    assert told(inventory.take()) == [silent(PATH)]


@pytest.mark.parametrize("name", ["node0", "node1"])
def test_a_silence_outlasts_that_its_node_leaves_for_a_moment(make_fleet, make_node, name):
    """The remediator remembers it as well, and waits for its end."""
    inventory = make_fleet()
    inventory.cut.add(PATH)
    inventory.run(500)
    (silence,) = inventory.take()
    inventory.tell(Node(name=name, nics=()))
    inventory.run(2_000)
    inventory.cut.clear()
    inventory.run(3_000)
    inventory.tell(make_node(name))
    inventory.run(2_000)

    assert [(event.state, event.cause) for event in inventory.take()] == [("speaking", silence.id)]


def test_a_silence_is_told_anew_where_its_node_was_away_for_long(make_fleet, make_node):
    """Nobody remembers it."""
    inventory = make_fleet(nodes=2)
    inventory.cut.add(PATH)
    inventory.run(500)
    assert told(inventory.take()) == [silent(PATH)]
    inventory.tell(Node(name="node1", nics=()))
    inventory.run(61_000)
    inventory.tell(make_node("node1"))
    inventory.run(2_000)

    assert told(inventory.take()) == [silent(PATH)]


def pass_one(inventory, path):
    """Of a dead path the next probe comes through, and no other."""
    inventory.cut.discard(path)
    chances = iter([False])
    inventory.lose[path] = lambda _: next(chances, True)


@pytest.mark.parametrize("path", [PATH, SWEPT])
@pytest.mark.parametrize("phase_ms", PHASES_MS)
def test_one_probe_that_comes_through_is_no_return(make_fleet, path, phase_ms):
    """However often, and also of a path out of use, of which nobody says at once that it fell silent again."""
    inventory = make_fleet()
    inventory.cut.add(path)
    inventory.run(1_500 + phase_ms)
    assert told(inventory.take()) == [silent(path)]
    for _ in range(3):
        pass_one(inventory, path)
        inventory.run(3_000)
    assert inventory.take() == []

    inventory.lose.clear()
    inventory.run(3_000)
    assert told(inventory.take()) == [("path", str(path), "speaking")]


def test_a_path_that_is_probed_seldom_speaks_again(make_fleet):
    """More seldom than a silence lasts: that it was unheard for so long says nothing before another probe was sent."""
    inventory = make_fleet()
    inventory.sweep_ns = 1_040 * MS
    inventory.run(3_000)
    inventory.cut.add(SWEPT)
    inventory.run(4_000)
    inventory.take()
    inventory.cut.clear()
    inventory.run_until_said(10_000)
    assert ("path", str(SWEPT), "speaking") in told(inventory.take())


@pytest.mark.parametrize("path", [PATH, SWEPT])
@pytest.mark.parametrize("kept_back", ["by the bus", "by the detector", "by the bus, all at once"])
def test_a_path_that_died_again_speaks_to_nobody_who_reads_of_it_late(make_fleet, path, kept_back):
    """It was heard for a moment, and what its receiver says since waits to be read."""
    inventory = make_fleet()
    inventory.cut.add(path)
    inventory.run(1_500)
    inventory.cut.discard(path)
    inventory.run(210 if path == SWEPT else 60)
    inventory.cut.add(path)
    inventory.take()
    if kept_back == "by the detector":
        inventory.halt_detector(3_000)
    elif kept_back == "by the bus":
        inventory.bus_delay_ns["node1"] = 3_000 * MS
    else:
        parted_ns = inventory.now_ns
        for _ in range(300):
            inventory.bus_delay_ns["node1"] = parted_ns + 3_000 * MS - inventory.now_ns
            inventory.run(10)
    inventory.run(8_000)
    assert [event for event in inventory.take() if event.kind == "path"] == []


def test_an_older_word_that_is_told_again_is_no_return(make_fleet, make_delays):
    """It names an earlier probe than that after which the path fell silent once more."""
    inventory = make_fleet()
    inventory.cut.add(PATH)
    inventory.run(500)
    inventory.cut.clear()
    inventory.run(60)
    heard = inventory.now_ns, inventory.heard[PATH], inventory.sequence[PATH]
    inventory.run(60)
    inventory.cut.add(PATH)
    inventory.run(500)
    assert told(inventory.take()) == [silent(PATH)]
    at_ns, heard_ns, sequence = heard
    row = (PATH, Witness.DESTINATION, 1, 1, heard_ns, 1, 1, sequence)
    inventory.tell(make_delays("node1", at_ns, [row]))
    inventory.run(1_000)
    assert inventory.take() == []
    assert not inventory.detector._detectors[1]._spoken


def test_two_nodes_and_a_single_path_each_way_suffice(make_fleet):
    """The sender's own word is the only witness."""
    inventory = make_fleet(nodes=2, rails=1, entropies=1)
    inventory.cut.add(PATH)
    inventory.run(600)
    (event,) = inventory.take()

    assert told([event]) == [silent(PATH)]
    assert (event.evidence["witness"], event.evidence["sent_on_path"]) == ("node0", True)
