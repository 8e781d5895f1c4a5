"""Late is not dead: stalls of senders, receivers, hosts, the bus and the detector itself, while every path works."""

from __future__ import annotations

import msgspec
import pytest

from foliot_detector.peak import Peak
from foliot_detector.settings import DetectorSettings
from foliot_schemas import HostLoad
from foliot_schemas.names import Path, node_of

MS = 1_000_000
PATH = Path("node0.rail0", "node1.rail0", 0)
OTHER_RAIL = Path("node0.rail1", "node1.rail1", 0)


def silences(events):
    """The paths that were said to be silent."""
    return [event.who for event in events if event.kind == "path" and event.state == "silent"]


@pytest.mark.parametrize("late_ms", [0, 1, 5, 15])
@pytest.mark.parametrize("stall_ms", [150, 200, 300])
def test_a_probe_that_was_heard_proves_nothing_of_the_next(make_fleet, late_ms, stall_ms):
    """A sender reports, dates its last probe after it was heard, and stalls; the report leaves when it goes on."""
    fleet = make_fleet(nodes=4, probe_ms=43)
    fleet.stamp_late_ns = late_ms * MS
    while fleet.now_ns - fleet.last_sent[PATH] > MS // 5:
        fleet.run(0.1)
    fleet.run(5)
    report = fleet.report("node0")
    fleet.stopped.add("node0")
    fleet.run(stall_ms)
    fleet.tell(report)
    fleet.stopped.clear()
    fleet.run(1_500)
    assert silences(fleet.take()) == []


@pytest.mark.parametrize("phase_ms", range(0, 100, 17))
def test_what_waits_in_the_detectors_queue_is_read_before_it_judges(make_fleet, phase_ms):
    """A path was silent for a moment, and its receiver has said since that it hears it: the detector, halted meanwhile, reads both at once."""
    fleet = make_fleet()
    fleet.run(phase_ms)
    fleet.cut.add(PATH)
    fleet.halt_detector(170)
    fleet.cut.clear()
    fleet.halt_detector(250)
    fleet.run(1_500)
    assert silences(fleet.take()) == []


@pytest.mark.parametrize("phase_ms", range(0, 100, 17))
def test_a_host_that_stood_still_is_no_dead_path(make_fleet, phase_ms):
    """Its kernel holds up what it sent by all NICs, although its probe says in time that it sent."""
    fleet = make_fleet()
    fleet.run(phase_ms)
    fleet.held = {path for path in fleet.paths if node_of(path.source) == "node0"}
    fleet.run(400)
    fleet.release()
    fleet.run(1_500)
    assert silences(fleet.take()) == []


def test_how_late_and_busy_both_hosts_were_is_said_and_vetoes_nothing(make_fleet):
    """A person may make something of it. The longest lateness of the last seconds counts, and the load that a host told last."""
    fleet = make_fleet()
    load = HostLoad(span_ns=1_000 * MS, stolen=0.25, waiting=0.5, squeezed=3, dropped=1)
    for late_ns, host in ((400 * MS, load), (7 * MS, None)):
        fleet.tell(msgspec.structs.replace(fleet.report("node0"), late_ns=late_ns, host=host))
    fleet.cut.add(PATH)
    fleet.run(320)
    (event,) = fleet.take()
    assert (event.who, event.state) == (str(PATH), "silent")
    told = {name: event.evidence[name] for name in event.evidence if name.startswith(("sender_", "receiver_"))}
    assert told == {
        "sender_late_ms": 400.0, "sender_stolen": 0.25, "sender_waiting": 0.5, "sender_squeezed": 3,
        "receiver_late_ms": 0.0, "receiver_deaf": False,
    }  # fmt: skip


@pytest.mark.parametrize("phase_ms", range(0, 100, 17))
def test_one_rail_is_found_as_soon_as_ever_and_two_within_a_second(make_fleet, phase_ms):
    """By the other rail the two hosts hear each other; where they do not, it takes longer, and is found all the same."""
    fleet = make_fleet()
    fleet.run(phase_ms)
    fleet.cut.add(PATH)
    fleet.run(320)
    (event,) = fleet.take()
    assert (event.who, event.evidence["others_came_through"]) == (str(PATH), True)
    assert 0 < event.evidence["last_heard_sequence"] < event.evidence["sent_sequence"]
    fleet.cut.clear()
    fleet.run(2_000)
    fleet.take()

    ends = {"node0", "node1"}
    fleet.cut |= {path for path in fleet.paths if {node_of(path.source), node_of(path.destination)} == ends}
    fleet.run(400)
    assert silences(fleet.take()) == []
    fleet.run(600)
    events = fleet.take()
    assert {str(PATH), str(OTHER_RAIL), str(PATH.back), str(OTHER_RAIL.back)} <= set(silences(events))
    assert not any(event.evidence["others_came_through"] for event in events)


def test_where_the_other_nic_is_down_it_is_not_waited_for(make_fleet):
    """Nothing can come through there, and that is known: what else both hosts hear and send speaks for them."""
    fleet = make_fleet(nodes=4)
    fleet.set_carrier(OTHER_RAIL.source, carrier=False)
    fleet.run(200)
    fleet.take()
    fleet.cut.add(PATH)
    fleet.run(320)
    assert silences(fleet.take()) == [str(PATH)]


def test_a_probe_is_given_twice_the_time_that_others_took_lately(make_fleet):
    """Where probes of either host are late, a missing one may be as well."""
    fleet = make_fleet()
    fleet.delay_ns = {path: 90 * MS for path in fleet.paths if path.destination == "node1.rail1"}
    fleet.run(1_000)
    fleet.cut.add(PATH)
    fleet.run(600)
    (event,) = fleet.take()
    assert event.evidence["transit_ms"] == 180.0


@pytest.mark.parametrize("heard", [True, False])
def test_what_waited_for_a_nic_to_return_says_nothing_of_other_probes(make_fleet, heard):
    """The kernel held probes until the link was back and it knew the peer's address again; also where nobody heard of the loss, as the bus was away."""
    fleet = make_fleet()
    nic = "node1.rail1"
    fleet.run(1_000)
    if not heard:
        fleet.off_bus.add("node1")
    fleet.set_carrier(nic, carrier=False)
    fleet.run(100)
    fleet.delay_ns = {path: 300 * MS for path in fleet.paths if nic in path[:2]}
    fleet.set_carrier(nic, carrier=True)
    fleet.run(100)
    fleet.off_bus.clear()
    fleet.set_carrier(nic, carrier=True)
    fleet.run(1_100)
    fleet.take()
    fleet.cut.add(PATH)
    fleet.run(400)
    (event,) = [event for event in fleet.take() if event.kind == "path"]
    assert (event.who, event.evidence["transit_ms"]) == (str(PATH), 40.0)


@pytest.mark.parametrize("after_ms", [1, 20, 30, 40])
def test_one_lost_probe_of_a_sender_that_is_late_with_the_next_is_no_silence(make_fleet, after_ms):
    """It was lost in a queue; the sender's next tick is 150 ms late, and its report comes with it. What others it had sent after the lost one, by the other rail, shows nothing of the next."""
    fleet = make_fleet()
    while fleet.now_ns - fleet.last_sent[PATH] > MS // 5:
        fleet.run(0.1)
    fleet.lose[PATH] = lambda _: True
    fleet.run(50 + after_ms)
    fleet.lose.clear()
    fleet.tell(fleet.report("node0"))
    fleet.stopped.add("node0")
    fleet.run(199.5 - after_ms)  # then it sends on all paths at once, as a probe does
    fleet.stopped.clear()
    fleet.run(1_500)
    assert silences(fleet.take()) == []


def test_a_silence_is_found_though_probes_take_longer_than_words_are_remembered(make_fleet):
    """Twice 280 ms: a sender's last words are all younger, and the first of them is kept."""
    fleet = make_fleet()
    fleet.delay_ns = {path: 280 * MS for path in fleet.paths if path.destination == "node1.rail1"}
    fleet.run(1_000)
    fleet.cut.add(PATH)
    fleet.run(1_000)
    (event,) = fleet.take()
    assert (event.who, event.evidence["transit_ms"]) == (str(PATH), 560.0)


def test_a_sender_that_counts_anew_from_below_is_heard_again(make_fleet):
    """Its host was started anew with an earlier date while the path was silent: lower numbers are another life's."""
    fleet = make_fleet()
    fleet.cut.add(PATH)
    fleet.run(500)
    assert silences(fleet.take()) == [str(PATH)]
    fleet.sent[PATH] = fleet.sequence[PATH] = 3
    fleet.cut.clear()
    fleet.run(1_500)
    assert [(event.who, event.state) for event in fleet.take()] == [(str(PATH), "speaking")]


def set_back(fleet, names):
    """By a minute; a node's alone is not synchronised then."""
    for name in names:
        fleet.offset_ns[name] -= 60_000 * MS
        fleet.bound_ns[name] = 100 if len(names) == len(fleet.names) else -1


CLOCKS = pytest.mark.parametrize("names", [["node1"], ["node0", "node1", "node2"]], ids=["its own", "all"])


@CLOCKS
def test_a_clock_that_is_set_back_keeps_no_silence_from_being_found(make_fleet, names):
    """The receiver waits for a dead process's paths meanwhile, of which one is dead when that is back: what it says from then on is new, whatever its clock says."""
    fleet = make_fleet()
    fleet.stopped.add("node0")
    fleet.run(3_000)
    set_back(fleet, names)
    fleet.run(1_000)
    fleet.take()
    fleet.cut.add(PATH)
    fleet.restart("node0")
    fleet.run(3_000)
    assert silences(fleet.take()) == [str(PATH)]


@CLOCKS
@pytest.mark.parametrize("numbered", [True, False])
def test_a_clock_that_is_set_back_keeps_no_path_silent(make_fleet, names, numbered):
    """Also where probes have no numbers."""
    fleet = make_fleet(numbered=numbered)
    fleet.cut.add(PATH)
    fleet.run(600)
    assert silences(fleet.take()) == [str(PATH)]
    set_back(fleet, names)
    fleet.run(1_000)
    fleet.cut.clear()
    fleet.run(3_000)
    assert [(event.who, event.state) for event in fleet.take()] == [(str(PATH), "speaking")]


def test_old_words_that_come_late_are_not_new_ones(make_fleet):
    """What a receiver heard last of a dead path stays as old as it is, however late its reports are."""
    fleet = make_fleet()
    fleet.cut.add(PATH)
    fleet.run(320)
    assert silences(fleet.take()) == [str(PATH)]
    heard_ns = fleet.detector.fleet.paths.heard_ns[fleet.detector.fleet.paths.id_of(PATH)]

    fleet.bus_delay_ns["node1"] = 180 * MS
    fleet.run(1_000)
    assert fleet.detector.fleet.paths.heard_ns[fleet.detector.fleet.paths.id_of(PATH)] == heard_ns


@pytest.mark.parametrize("nodes", [2, 3])
@pytest.mark.parametrize("report_ms", [50, 300, 500, 1_000, 2_000, 5_000])
def test_where_nodes_report_more_seldom_silence_is_found_by_the_second_report(make_fleet, report_ms, nodes):
    """The sender's word that it sent on comes with its report, and then the receiver's that it did not hear it. Nobody has to tell the detector how often nodes report."""
    fleet = make_fleet(report_ms=report_ms, nodes=nodes)
    fleet.run(2 * report_ms)
    fleet.run(3_000)
    fleet.cut.add(PATH)
    fleet.run(2 * report_ms + 200)
    assert silences(fleet.take()) == [str(PATH)]
    fleet.cut.clear()
    fleet.run(3_000)
    assert [(event.who, event.state) for event in fleet.take()] == [(str(PATH), "speaking")]


@pytest.mark.parametrize("names_ms", [100, 0])
def test_a_host_that_stalls_regularly_leaves_out_reports(make_fleet, names_ms):
    """Its reports cover 350 ms each, but it names its settings' interval, or none: what it did not hear it may not have listened for, and it is not believed."""
    fleet = make_fleet(report_ms=350, names_ms=names_ms)
    fleet.cut.add(PATH)
    fleet.run(5_000)
    assert silences(fleet.take()) == []


def test_the_setting_says_how_often_nodes_report_that_do_not(make_fleet):
    """Those of an earlier version."""
    settings = DetectorSettings(report_ms=500, process_silence_s=1.25)
    fleet = make_fleet(report_ms=500, names_ms=0, settings=settings)
    fleet.cut.add(PATH)
    fleet.run(1_200)
    assert silences(fleet.take()) == [str(PATH)]


def test_without_numbers_silence_is_found_as_before(make_fleet):
    """Nodes of an earlier version do not say them."""
    fleet = make_fleet(numbered=False)
    fleet.cut.add(PATH)
    fleet.run(600)
    assert silences(fleet.take()) == [str(PATH)]


def test_a_peak_is_forgotten_after_two_seconds():
    """And not before one."""
    peak = Peak()
    peak.note(7, 10_000 * MS)
    peak.note(3, 10_500 * MS)
    assert peak.at(10_900 * MS) == 7
    peak.note(2, 11_500 * MS)
    assert peak.at(11_900 * MS) == 7
    assert peak.at(13_200 * MS) == 2
    assert peak.at(20_000 * MS) == 0


def lose_in_a_full_queue(fleet, count):
    """Probes of all paths of a NIC wait for 12 ms, and of one path so many in a row are lost."""
    fleet.delay_ns.update({path: 12 * MS for path in fleet.paths if path.source == PATH.source})
    fleet.run(300)
    first = fleet.sent[PATH] + 1
    fleet.lose[PATH] = lambda _: first <= fleet.sent[PATH] < first + count


@pytest.mark.parametrize("phase_ms", range(0, 100, 17))
def test_a_few_probes_lost_in_a_full_queue_are_no_silence(make_fleet, phase_ms):
    """Chance loses three in a row there, as it has no room for padded ones; without a full queue it is a silence."""
    fleet = make_fleet(probe_ms=43)
    fleet.run(phase_ms)
    lose_in_a_full_queue(fleet, 4)
    fleet.run(1_500)
    assert silences(fleet.take()) == []


@pytest.mark.parametrize("phase_ms", range(0, 100, 17))
def test_a_few_lost_probes_are_no_silence_while_nobody_knows_of_queues(make_fleet, phase_ms):
    """Clocks that are not synchronised give no delays."""
    fleet = make_fleet(probe_ms=43, offsets_ms=(5, -5, 0))
    fleet.run(phase_ms)
    lose_in_a_full_queue(fleet, 4)
    fleet.run(1_500)
    assert silences(fleet.take()) == []


def test_a_dead_path_behind_a_full_queue_is_silent_soon(make_fleet):
    """It takes two probes more and a report, not a second."""
    fleet = make_fleet()
    lose_in_a_full_queue(fleet, 10_000)
    fleet.run(500)
    events = fleet.take()
    assert silences(events) == [str(PATH)]
    assert events[0].evidence["missing"] > 1


def test_a_receiver_that_stands_still_again_and_again_is_believed_between(make_fleet):
    """It names the same probe as before, so that it has read what waited for it: the sender's words of before count still, although delays were long and it missed reports."""
    fleet = make_fleet(nodes=4)
    fleet.cut.add(PATH)
    arriving = [path for path in fleet.paths if node_of(path.destination) == "node1" and path != PATH]
    fleet.delay_ns.update(dict.fromkeys(arriving, 250 * MS))
    fleet.run(100)
    fleet.delay_ns.clear()
    fleet.run(60)
    for _ in range(4):
        fleet.held.update(arriving)
        fleet.stopped.add("node1")
        fleet.run(210)
        fleet.stopped.discard("node1")
        fleet.release()
        fleet.delay_ns.update(dict.fromkeys(arriving, 250 * MS))
        fleet.run(100)
        fleet.delay_ns.clear()
        fleet.run(170)
    assert str(PATH) in silences(fleet.take())
