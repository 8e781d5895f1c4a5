"""Late is not dead: stalls of senders, receivers, hosts, the bus and the detector itself, while every path works."""

from __future__ import annotations

import msgspec
import pytest

from foliot_detector.core.state.recent_peak import RecentPeak
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
    inventory = make_fleet(nodes=4, probe_ms=43)
    inventory.stamp_late_ns = late_ms * MS
    while inventory.now_ns - inventory.last_sent[PATH] > MS // 5:
        inventory.run(0.1)
    inventory.run(5)
    report = inventory.report("node0")
    inventory.stopped.add("node0")
    inventory.run(stall_ms)
    inventory.tell(report)
    inventory.stopped.clear()
    inventory.run(1_500)
    assert silences(inventory.take()) == []


@pytest.mark.parametrize("phase_ms", range(0, 100, 34))
def test_what_waits_in_the_detectors_queue_is_read_before_it_judges(make_fleet, phase_ms):
    """A path was silent for a moment, and its receiver has said since that it hears it.

    The detector, halted meanwhile, reads both at once.
    """
    inventory = make_fleet()
    inventory.run(phase_ms)
    inventory.cut.add(PATH)
    inventory.halt_detector(170)
    inventory.cut.clear()
    inventory.halt_detector(250)
    inventory.run(1_500)
    assert silences(inventory.take()) == []


@pytest.mark.parametrize("nodes", [2, 4])
def test_a_backlog_that_is_read_in_turn_is_no_clock_set_back(make_fleet, nodes):
    """Ports are read up to now long before reports are, as there are fewer.

    A path that died meanwhile is silent as soon as all is read.
    """
    inventory = make_fleet(nodes=nodes)
    inventory.run(1_000)
    inventory.cut.add(PATH)
    inventory.halt_detector(3_000, in_turn=True)
    inventory.run(150)
    assert [(event.kind, event.who) for event in inventory.take()] == [("path", str(PATH))]


def test_two_clocks_that_are_wrong_by_the_same_delay_no_verdict_of_others(make_fleet):
    """Two hosts boot with the same date of an hour ahead; the path between two others is silent as soon as ever."""
    inventory = make_fleet(nodes=5)
    for name in ("node3", "node4"):
        inventory.offset_ns[name] = 3_600_000 * MS
    inventory.run(150)
    inventory.cut.add(PATH)
    inventory.run(320)
    assert silences(inventory.take()) == [str(PATH)]


def test_a_node_that_has_told_of_its_ports_alone_is_there(make_fleet, make_node, make_port):
    """However wrong its clock is: it is not missed before it reports."""
    inventory = make_fleet()
    inventory.tell(make_node("node9"))
    inventory.tell(make_port("node9.rail0", inventory.now_ns - 3_600_000 * MS))
    inventory.run(500)
    assert inventory.take() == []


@pytest.mark.parametrize("phase_ms", range(0, 100, 34))
def test_a_host_that_stood_still_is_no_dead_path(make_fleet, phase_ms):
    """Its kernel holds up what it sent by all NICs, although its probe says in time that it sent."""
    inventory = make_fleet()
    inventory.run(phase_ms)
    inventory.held = {path for path in inventory.paths if node_of(path.source) == "node0"}
    inventory.run(400)
    inventory.release()
    inventory.run(1_500)
    assert silences(inventory.take()) == []


def test_how_late_and_busy_both_hosts_were_is_said_and_vetoes_nothing(make_fleet):
    """A person may make something of it.

    The longest lateness of the last seconds counts, and the load that a host told last.
    """
    inventory = make_fleet()
    load = HostLoad(span_ns=1_000 * MS, stolen=0.25, waiting=0.5, squeezed=3, dropped=1)
    for late_ns, host in ((400 * MS, load), (7 * MS, None)):
        inventory.tell(msgspec.structs.replace(inventory.report("node0"), late_ns=late_ns, host=host))
    inventory.cut.add(PATH)
    inventory.run(320)
    (event,) = inventory.take()
    assert (event.who, event.state) == (str(PATH), "silent")
    told = {name: event.evidence[name] for name in event.evidence if name.startswith(("sender_", "receiver_"))}
    assert told == {
        "sender_late_ms": 400.0, "sender_stolen": 0.25, "sender_waiting": 0.5, "sender_squeezed": 3,
        "receiver_late_ms": 0.0, "receiver_deaf": False,
    }  # fmt: skip


@pytest.mark.parametrize("phase_ms", range(0, 100, 34))
def test_one_rail_is_found_as_soon_as_ever_and_two_within_a_second(make_fleet, phase_ms):
    """By the other rail the two hosts hear each other; where they do not, it takes longer and is found all the same."""
    inventory = make_fleet()
    inventory.run(phase_ms)
    inventory.cut.add(PATH)
    inventory.run(320)
    (event,) = inventory.take()
    assert (event.who, event.evidence["others_came_through"]) == (str(PATH), True)
    assert 0 < event.evidence["last_heard_sequence"] < event.evidence["sent_sequence"]
    inventory.cut.clear()
    inventory.run(2_000)
    inventory.take()

    ends = {"node0", "node1"}
    inventory.cut |= {path for path in inventory.paths if {node_of(path.source), node_of(path.destination)} == ends}
    inventory.run(400)
    assert silences(inventory.take()) == []
    inventory.run(600)
    events = inventory.take()
    assert {str(PATH), str(OTHER_RAIL), str(PATH.back), str(OTHER_RAIL.back)} <= set(silences(events))
    assert not any(event.evidence["others_came_through"] for event in events)


def test_where_the_other_nic_is_down_it_is_not_waited_for(make_fleet):
    """Nothing can come through there, and that is known: what else both hosts hear and send speaks for them."""
    inventory = make_fleet(nodes=4)
    inventory.set_carrier(OTHER_RAIL.source, carrier=False)
    inventory.run(200)
    inventory.take()
    inventory.cut.add(PATH)
    inventory.run(320)
    assert silences(inventory.take()) == [str(PATH)]


def test_a_probe_is_given_twice_the_time_that_others_took_lately(make_fleet):
    """Where probes of either host are late, a missing one may be as well."""
    inventory = make_fleet()
    inventory.delay_ns = {path: 90 * MS for path in inventory.paths if path.destination == "node1.rail1"}
    inventory.run(1_000)
    inventory.cut.add(PATH)
    inventory.run(600)
    (event,) = inventory.take()
    assert event.evidence["transit_ms"] == 180.0


@pytest.mark.parametrize("heard", [True, False])
def test_what_waited_for_a_nic_to_return_says_nothing_of_other_probes(make_fleet, heard):
    """The kernel held probes until the link was back and it knew the peer's address again.

    So it is also where nobody heard of the loss, as the bus was away.
    """
    inventory = make_fleet()
    nic = "node1.rail1"
    inventory.run(1_000)
    if not heard:
        inventory.off_bus.add("node1")
    inventory.set_carrier(nic, carrier=False)
    inventory.run(100)
    inventory.delay_ns = {path: 300 * MS for path in inventory.paths if nic in path[:2]}
    inventory.set_carrier(nic, carrier=True)
    inventory.run(100)
    inventory.off_bus.clear()
    inventory.set_carrier(nic, carrier=True)
    inventory.run(1_100)
    inventory.take()
    inventory.cut.add(PATH)
    inventory.run(400)
    (event,) = [event for event in inventory.take() if event.kind == "path"]
    assert (event.who, event.evidence["transit_ms"]) == (str(PATH), 20.0)


@pytest.mark.parametrize("after_ms", [1, 20, 30, 40])
def test_one_lost_probe_of_a_sender_that_is_late_with_the_next_is_no_silence(make_fleet, after_ms):
    """It was lost in a queue; the sender's next tick is 150 ms late, and its report comes with it.

    What others it had sent after the lost one, by the other rail, shows nothing of the next.
    """
    inventory = make_fleet()
    while inventory.now_ns - inventory.last_sent[PATH] > MS // 5:
        inventory.run(0.1)
    inventory.lose[PATH] = lambda _: True
    inventory.run(50 + after_ms)
    inventory.lose.clear()
    inventory.tell(inventory.report("node0"))
    inventory.stopped.add("node0")
    inventory.run(199.5 - after_ms)  # then it sends on all paths at once, as a probe does
    inventory.stopped.clear()
    inventory.run(1_500)
    assert silences(inventory.take()) == []


def test_a_silence_is_found_though_probes_take_longer_than_words_are_remembered(make_fleet):
    """Twice 280 ms: a sender's last words are all younger, and the first of them is kept."""
    inventory = make_fleet()
    inventory.delay_ns = {path: 280 * MS for path in inventory.paths if path.destination == "node1.rail1"}
    inventory.run(1_000)
    inventory.cut.add(PATH)
    inventory.run(1_000)
    (event,) = inventory.take()
    assert (event.who, event.evidence["transit_ms"]) == (str(PATH), 560.0)


def test_a_sender_that_counts_anew_from_below_is_heard_again(make_fleet):
    """Its host was started anew with an earlier date while the path was silent: lower numbers are another life's."""
    inventory = make_fleet()
    inventory.cut.add(PATH)
    inventory.run(500)
    assert silences(inventory.take()) == [str(PATH)]
    inventory.sent[PATH] = inventory.sequence[PATH] = 3
    inventory.cut.clear()
    inventory.run(1_500)
    assert [(event.who, event.state) for event in inventory.take()] == [(str(PATH), "speaking")]


def set_back(inventory, names):
    """By a minute; a node's alone is not synchronised then."""
    for name in names:
        inventory.offset_ns[name] -= 60_000 * MS
        inventory.bound_ns[name] = 100 if len(names) == len(inventory.names) else -1


CLOCKS = pytest.mark.parametrize("names", [["node1"], ["node0", "node1", "node2"]], ids=["its own", "all"])


@CLOCKS
def test_a_clock_that_is_set_back_keeps_no_silence_from_being_found(make_fleet, names):
    """The receiver waits for a dead process's paths meanwhile, of which one is dead when that is back.

    What it says from then on is new, whatever its clock says.
    """
    inventory = make_fleet()
    inventory.stopped.add("node0")
    inventory.run(3_000)
    set_back(inventory, names)
    inventory.run(1_000)
    inventory.take()
    inventory.cut.add(PATH)
    inventory.restart("node0")
    inventory.run(3_000)
    assert silences(inventory.take()) == [str(PATH)]


@CLOCKS
@pytest.mark.parametrize("numbered", [True, False])
def test_a_clock_that_is_set_back_keeps_no_path_silent(make_fleet, names, numbered):
    """Also where probes have no numbers."""
    inventory = make_fleet(numbered=numbered)
    inventory.cut.add(PATH)
    inventory.run(600)
    assert silences(inventory.take()) == [str(PATH)]
    set_back(inventory, names)
    inventory.run(1_000)
    inventory.cut.clear()
    inventory.run(3_000)
    assert [(event.who, event.state) for event in inventory.take()] == [(str(PATH), "speaking")]


def test_old_words_that_come_late_are_not_new_ones(make_fleet):
    """What a receiver heard last of a dead path stays as old as it is, however late its reports are."""
    inventory = make_fleet()
    inventory.cut.add(PATH)
    inventory.run(320)
    assert silences(inventory.take()) == [str(PATH)]
    heard_ns = inventory.detector.inventory.paths.heard_ns[inventory.detector.inventory.paths.id_of(PATH)]

    inventory.bus_delay_ns["node1"] = 180 * MS
    inventory.run(1_000)
    assert inventory.detector.inventory.paths.heard_ns[inventory.detector.inventory.paths.id_of(PATH)] == heard_ns


@pytest.mark.parametrize("nodes", [2, 3])
@pytest.mark.parametrize("report_ms", [50, 500, 5_000])
def test_where_nodes_report_more_seldom_silence_is_found_by_the_second_report(make_fleet, report_ms, nodes):
    """The sender's word that it sent on comes with its report, and then the receiver's that it did not hear it.

    Nobody has to tell the detector how often nodes report.
    """
    inventory = make_fleet(report_ms=report_ms, nodes=nodes)
    inventory.run(2 * report_ms)
    inventory.run(3_000)
    inventory.cut.add(PATH)
    inventory.run(2 * report_ms + 200)
    assert silences(inventory.take()) == [str(PATH)]
    inventory.cut.clear()
    inventory.run(3_000)
    assert [(event.who, event.state) for event in inventory.take()] == [(str(PATH), "speaking")]


@pytest.mark.parametrize("names_ms", [100, 0])
def test_a_host_that_stalls_regularly_leaves_out_reports(make_fleet, names_ms):
    """Its reports cover 350 ms each, but it names its settings' interval, or none.

    What it did not hear it may not have listened for, and it is not believed.
    """
    inventory = make_fleet(report_ms=350, names_ms=names_ms)
    inventory.cut.add(PATH)
    inventory.run(5_000)
    assert silences(inventory.take()) == []


def test_the_setting_says_how_often_nodes_report_that_do_not(make_fleet):
    """Those of an earlier version."""
    settings = DetectorSettings(report_ms=500, process_silence_s=1.25)
    inventory = make_fleet(report_ms=500, names_ms=0, settings=settings)
    inventory.cut.add(PATH)
    inventory.run(1_200)
    assert silences(inventory.take()) == [str(PATH)]


def test_without_numbers_silence_is_found_as_before(make_fleet):
    """Nodes of an earlier version do not say them."""
    inventory = make_fleet(numbered=False)
    inventory.cut.add(PATH)
    inventory.run(600)
    assert silences(inventory.take()) == [str(PATH)]


def test_a_peak_is_forgotten_after_two_seconds():
    """And not before one."""
    peak = RecentPeak()
    peak.note(7, 10_000 * MS)
    peak.note(3, 10_500 * MS)
    assert peak.at(10_900 * MS) == 7
    peak.note(2, 11_500 * MS)
    assert peak.at(11_900 * MS) == 7
    assert peak.at(13_200 * MS) == 2
    assert peak.at(20_000 * MS) == 0


def lose_in_a_full_queue(inventory, count):
    """Probes of all paths of a NIC wait for 12 ms, and of one path so many in a row are lost."""
    inventory.delay_ns.update({path: 12 * MS for path in inventory.paths if path.source == PATH.source})
    inventory.run(300)
    first = inventory.sent[PATH] + 1
    inventory.lose[PATH] = lambda _: first <= inventory.sent[PATH] < first + count


@pytest.mark.parametrize("phase_ms", range(0, 100, 34))
def test_a_few_probes_lost_in_a_full_queue_are_no_silence(make_fleet, phase_ms):
    """Chance loses three in a row there, as it has no room for padded ones; without a full queue it is a silence."""
    inventory = make_fleet(probe_ms=43)
    inventory.run(phase_ms)
    lose_in_a_full_queue(inventory, 4)
    inventory.run(1_500)
    assert silences(inventory.take()) == []


@pytest.mark.parametrize("phase_ms", range(0, 100, 34))
def test_a_few_lost_probes_are_no_silence_while_nobody_knows_of_queues(make_fleet, phase_ms):
    """Clocks that are not synchronised give no delays."""
    inventory = make_fleet(probe_ms=43, offsets_ms=(5, -5, 0))
    inventory.run(phase_ms)
    lose_in_a_full_queue(inventory, 4)
    inventory.run(1_500)
    assert silences(inventory.take()) == []


def test_a_dead_path_behind_a_full_queue_is_silent_soon(make_fleet):
    """It takes two probes more and a report, not a second."""
    inventory = make_fleet()
    lose_in_a_full_queue(inventory, 10_000)
    inventory.run(500)
    events = inventory.take()
    assert silences(events) == [str(PATH)]
    assert events[0].evidence["missing"] > 1


@pytest.mark.parametrize("late_ms", [0, 300])
@pytest.mark.parametrize("is_dead", [False, True])
def test_behind_a_full_queue_a_late_host_gives_a_probe_longer(make_fleet, late_ms, is_dead):
    """Its processors let the queue stand as they do everything else.

    What is dead is found within a second all the same.
    """
    inventory = make_fleet()
    inventory.delay_ns[PATH] = 20 * MS
    inventory.run(300)
    inventory.tell(msgspec.structs.replace(inventory.report("node1"), late_ns=late_ms * MS))
    if is_dead:
        inventory.cut.add(PATH)
        inventory.run(1_000)
    else:
        inventory.held.add(PATH)
        inventory.run(500)
        inventory.release()
        inventory.run(1_000)
    assert bool(silences(inventory.take())) is (is_dead or not late_ms)


def test_a_receiver_that_stands_still_again_and_again_is_believed_between(make_fleet):
    """It names the same probe as before, so that it has read what waited for it.

    The sender's words of before count still, although delays were long and it missed reports.
    """
    inventory = make_fleet(nodes=4)
    inventory.cut.add(PATH)
    arriving = [path for path in inventory.paths if node_of(path.destination) == "node1" and path != PATH]
    inventory.delay_ns.update(dict.fromkeys(arriving, 250 * MS))
    inventory.run(100)
    inventory.delay_ns.clear()
    inventory.run(60)
    for _ in range(4):
        inventory.held.update(arriving)
        inventory.stopped.add("node1")
        inventory.run(210)
        inventory.stopped.discard("node1")
        inventory.release()
        inventory.delay_ns.update(dict.fromkeys(arriving, 250 * MS))
        inventory.run(100)
        inventory.delay_ns.clear()
        inventory.run(170)
    assert str(PATH) in silences(inventory.take())
