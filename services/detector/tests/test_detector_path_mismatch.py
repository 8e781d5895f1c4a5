"""Traffic that does not take the path which is probed for it; and all that looks like it."""

from __future__ import annotations

import msgspec
import pytest
from leaf_spine import MS, START_NS, Flow, LeafSpine, S, nic
from prepared import prepared

from foliot_detector.core.detectors.path_mismatch.round_trips import Reading, RoundTrips
from foliot_detector.settings import DetectorSettings
from foliot_schemas import ClockState, Event, Job, Node, NodePaths, Placement, PortState

SETTLED_S, SOON_S, QUIET_S, LONG_S = 7.0, 5.0, 8.0, 12.0


def states(events):
    """State and flow of each."""
    return [(event.state, event.who) for event in events]


def make(**options):
    """Two leaves of two hosts and two spines, on which nothing has moved for a while. One NIC fills an uplink.

    The ways between the first hosts are those that `begin` gives them by default.
    """
    return prepared(settled, **({"only": "path-mismatch", "up_mbps": 50.0} | options))


def settled(**options):
    """As `make` has it."""
    fabric = LeafSpine(**options)
    fabric.run(SETTLED_S)
    say(fabric, 0)
    fabric.run(SETTLED_S)
    return fabric


@pytest.fixture
def fabric():
    """As `make` has it."""
    return make()


def fill(fabric, spine=0):
    """A flow between the second hosts of both leaves fills the way by a spine."""
    fabric.send_by(1, 3, spine)
    return fabric.begin(1, 3)


def say(fabric, spine):
    """Puts the traffic between the first hosts on its ways: by one spine, and back by the second."""
    fabric.send_by(0, 2, spine)
    fabric.send_by(2, 0, 1)


def begin(fabric, *, said=0, by=1, **what):
    """A flow between the first hosts, which is said to go by one spine and goes by another."""
    before = dict(fabric.ways)
    say(fabric, said)
    if fabric.ways != before:
        fabric.run(SETTLED_S)
    return fabric.begin(0, 2, by=by, **({"wants": 20.0} | what))


# -- what is found ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("between_nics", [True, False], ids=["between NICs", "between service addresses"])
def test_a_flow_that_is_quicker_than_the_queue_on_its_path_does_not_take_it(fabric, between_nics):
    """With both paths and both delays, in five seconds; it is over when the flow is told to take its real way."""
    flow = begin(fabric, between_nics=between_nics)
    fill(fabric)
    begun_ns = fabric.now_ns
    fabric.run(SOON_S)
    (event,) = fabric.take("mismatch")
    assert states([event]) == [("elsewhere", flow.name)]
    assert event.related == {
        "flows": (flow.name,),
        "paths": (str(fabric.said(0, 2)), str(fabric.said(2, 0))),
        "jobs": ("found:node0",),
    }
    assert begun_ns < event.since_ns < event.at_ns < begun_ns + 5 * S
    known = event.evidence
    assert known["in_band_us"] < 1_000
    assert 2_000 < known["out_of_band_us"] < 6_000
    assert known["quickest_us"] < 200
    assert known["addresses"] == ("nic" if between_nics else "service")
    assert known["readings"] >= 5
    assert event.id == f"{event.fault}/elsewhere"

    fabric.send_by(0, 2, 1)
    fabric.run(1)
    (relief,) = fabric.take("mismatch")
    assert (relief.state, relief.who, relief.cause, relief.fault) == ("agrees", flow.name, event.id, event.fault)
    assert relief.related == event.related
    assert relief.evidence["lasted_ms"] > 1_000
    fabric.run(LONG_S)
    assert fabric.take("mismatch") == []


def test_a_flow_that_begins_while_its_path_is_late_is_found_as_soon(fabric):
    """Nobody watched its path before."""
    fill(fabric)
    fabric.run(SETTLED_S)
    flow = begin(fabric)
    begun_ns = fabric.now_ns
    fabric.run(SOON_S)
    (event,) = fabric.take("mismatch")
    assert states([event]) == [("elsewhere", flow.name)]
    assert event.at_ns < begun_ns + 5 * S


def test_acknowledgements_that_do_not_take_their_path_show_as_well(fabric):
    """Their queue is in no round trip."""
    fabric.send_by(0, 2, 1)
    fabric.send_by(2, 0, 0)
    fabric.send_by(3, 1, 0)
    fabric.run(SETTLED_S)
    flow = fabric.begin(0, 2, wants=20.0, acks_by=1)
    fabric.begin(3, 1)
    fabric.run(SOON_S)
    assert states(fabric.take("mismatch")) == [("elsewhere", flow.name)]


def test_the_event_names_the_registered_job(fabric):
    """Of both NICs."""
    fabric.tell(Job(name="large", nics=(nic(0), nic(2)), since_ns=1))
    begin(fabric)
    fill(fabric)
    fabric.run(SOON_S)
    (event,) = fabric.take("mismatch")
    assert event.related["jobs"] == ("large",)


@pytest.mark.parametrize("off_us", [None, 0.0], ids=["round trips alone", "one way"])
def test_a_delay_one_way_shows_what_round_trips_hide(off_us):
    """Acknowledgements come late, so the round trip takes longer than the probes of the path, which it is not on."""
    fabric = make(queue_us=24_000.0)
    flow = begin(fabric, late_back_us=30_000.0, in_band_off_us=off_us)
    fill(fabric)
    begun_ns = fabric.now_ns
    fabric.run(SOON_S)
    events = fabric.take("mismatch")
    if off_us is None:
        assert events == []
        return
    (event,) = events
    assert states([event]) == [("elsewhere", flow.name)]
    assert event.at_ns < begun_ns + 5 * S
    assert event.evidence["measured"] == "one-way"
    assert event.evidence["in_band_us"] < 200
    assert 8_000 < event.evidence["out_of_band_us"] < 25_000
    flow.by = None
    fabric.run(LONG_S)
    assert [each.state for each in fabric.take("mismatch")] == ["agrees"]


def test_acknowledgements_that_do_not_take_their_path_show_beside_delays_one_way():
    """These say nothing of the way back, so the round trip counts."""
    fabric = make(queue_us=24_000.0)
    fabric.send_by(0, 2, 1)
    fabric.send_by(2, 0, 0)
    fabric.send_by(3, 1, 0)
    fabric.run(SETTLED_S)
    flow = fabric.begin(0, 2, wants=20.0, acks_by=1, in_band_off_us=0.0)
    fabric.begin(3, 1)
    fabric.run(SOON_S)
    (event,) = fabric.take("mismatch")
    assert (event.who, event.evidence["measured"]) == (flow.name, "round-trip")


# -- what ends it -------------------------------------------------------------------------------------------------------


def mismatch(fabric):
    """A mismatch that was said, with its flow, and the flow that fills the path."""
    flow = begin(fabric)
    other = fill(fabric)
    fabric.run(SOON_S)
    (event,) = fabric.take("mismatch")
    return event, flow, other


def test_what_shows_nothing_any_more_stands(fabric):
    """Its path is idle, and so nothing is said of it."""
    _, _, other = mismatch(fabric)
    fabric.end(other)
    fabric.run(30)
    assert fabric.take("mismatch") == []


def test_a_flow_that_is_as_late_as_its_path_again_ends_it(fabric):
    """Somebody has mended the hash; the bucket had told the truth."""
    event, flow, _ = mismatch(fabric)
    flow.by = None
    fabric.run(LONG_S)
    (relief,) = fabric.take("mismatch")
    assert (relief.state, relief.cause) == ("agrees", event.id)


def test_a_flow_that_is_over_ends_it(fabric):
    """After ten seconds."""
    event, flow, _ = mismatch(fabric)
    fabric.end(flow)
    fabric.run(8)
    assert fabric.take("mismatch") == []
    fabric.run(4)
    (relief,) = fabric.take("mismatch")
    assert (relief.state, relief.cause) == ("agrees", event.id)


def test_a_node_that_leaves_ends_what_was_said_of_its_flows(fabric):
    """As a flow that is over."""
    event, flow, _ = mismatch(fabric)
    fabric.off_bus.add(0)
    fabric.end(flow)
    fabric.tell(Node(name="node0", nics=()))
    fabric.run(LONG_S)
    assert [relief.cause for relief in fabric.take("mismatch")] == [event.id]


def test_what_an_earlier_run_said_is_ended_by_the_next(fabric):
    """Also where the flow is over before anybody tells of it; what was over is not taken up."""
    event, flow, _ = mismatch(fabric)
    fabric.start_detector()
    fabric.detector.resume(event)
    fabric.run(LONG_S)
    assert fabric.take("mismatch") == []
    fabric.end(flow)
    fabric.start_detector()
    fabric.detector.resume(event)
    fabric.run(LONG_S)
    (relief,) = fabric.take("mismatch")
    assert (relief.state, relief.cause, relief.fault) == ("agrees", event.id, event.fault)
    fabric.start_detector()
    fabric.detector.resume(relief)
    fabric.detector.resume(Event(id="f", kind="path", who=flow.name, state="silent", at_ns=1, since_ns=1))
    fabric.run(LONG_S)
    assert fabric.take("mismatch") == []


# -- what says nothing --------------------------------------------------------------------------------------------------


def test_on_an_idle_fabric_nothing_shows(fabric):
    """All ways are as quick."""
    begin(fabric)
    fabric.run(QUIET_S)
    assert fabric.take("mismatch") == []


def test_a_flow_on_its_path_is_as_late_as_that(fabric):
    """However little it sends."""
    begin(fabric, by=None)
    fill(fabric)
    fabric.run(QUIET_S)
    assert fabric.take("mismatch") == []


@pytest.mark.parametrize(("queue_us", "off_us"), [(24_000.0, 0.0), (24_000.0, -2_000.0), (5_000.0, -5_000.0)])
def test_a_flow_on_its_path_is_so_one_way_too(queue_us, off_us):
    """Also while a daemon slews a host's clock. What that hides in a shorter queue does not count."""
    fabric = make(queue_us=queue_us)
    begin(fabric, by=None, in_band_off_us=off_us)
    fill(fabric)
    fabric.run(QUIET_S)
    assert fabric.take("mismatch") == []


@pytest.mark.parametrize("what", [{"late_us": 40_000.0}, {"reads": 5.0}, {"buffers": 9.0}])
def test_a_flow_that_is_later_than_its_path_contradicts_nothing(fabric, what):
    """Its own queue, acknowledgements that wait and hosts make it so, whichever way it takes."""
    begin(fabric, **({"wants": None} | what))
    fabric.run(QUIET_S)
    assert fabric.take("mismatch") == []


def test_a_flow_of_few_bytes_says_nothing(fabric):
    """Its smoothed round trip may be from before the queue."""
    begin(fabric, wants=1.0)
    fill(fabric)
    fabric.run(QUIET_S)
    assert fabric.take("mismatch") == []


def test_where_every_way_is_as_late_nothing_is_said(fabric):
    """No other way explains the round trips: the receiver's stamps are wrong, or what it says is."""
    begin(fabric, by=None)
    fabric.lies_us[2] = 8_000.0
    fabric.run(QUIET_S)
    assert fabric.take("mismatch") == []


@pytest.mark.parametrize("steps", [0, 2, 4])
@pytest.mark.parametrize("moves", [True, False])
def test_a_way_that_is_quick_afterwards_explains_nothing(fabric, steps, moves):
    """It was as late as all others, while the flow was not. Nor does that of before count for another path."""
    begin(fabric, by=None)
    fabric.lies_us[2] = 8_000.0
    fabric.run(6 + steps / 10)
    fabric.lies_us = {}
    if moves:
        fabric.send_by(0, 2, 1)
    fabric.run(QUIET_S)
    assert fabric.take("mismatch") == []


def test_an_error_of_a_clock_is_in_both_directions_and_so_in_none(fabric):
    """What probes to the node seem to take more, those from it take less."""
    begin(fabric, by=None)
    for spine in (0, 1):
        fabric.send_by(0, 2, spine)
        fabric.run(SETTLED_S)
        fabric.lies_us = {2: 8_000.0, 0: -8_000.0}
        fabric.run(QUIET_S)
    assert fabric.take("mismatch") == []


@pytest.mark.parametrize("host", [0, 2], ids=["of the sender", "of the receiver"])
def test_a_clock_that_is_not_synchronised_says_nothing(fabric, host):
    """Its delays mean nothing."""
    begin(fabric)
    fabric.bound_ns[host] = -1
    fill(fabric)
    fabric.run(QUIET_S)
    assert fabric.take("mismatch") == []


def test_clocks_that_promise_little_are_off_by_as_much(fabric):
    """The queue may be their error."""
    begin(fabric)
    fabric.bound_ns = dict.fromkeys(range(4), 2 * MS)
    fill(fabric)
    fabric.run(QUIET_S)
    assert fabric.take("mismatch") == []


def clock(status, window, name="node2"):
    """A word of the clock of the receiving host, or of its NIC."""
    return ClockState(
        clock=name, reference="node0", offset_ns=0, drift_ppb=0.0, hard_bound_ns=1, bound_ns=1, growth_ppb=0.0,
        as_of_ns=window, void_after_ns=window, status=status, window=window,
    )  # fmt: skip


def test_a_disrupted_clock_says_nothing_until_it_is_synchronised(fabric):
    """And then it counts from that moment."""
    begin(fabric)
    fabric.tell(clock("disrupted", 1))
    fill(fabric)
    fabric.run(QUIET_S)
    assert fabric.take("mismatch") == []
    fabric.tell(clock("synchronised", 2))
    back_ns = fabric.now_ns
    fabric.run(SOON_S)
    (event,) = fabric.take("mismatch")
    assert event.since_ns > back_ns


def test_a_disrupted_clock_of_a_nic_is_no_matter(fabric):
    """Round trips of TCP are by the host's."""
    begin(fabric)
    fabric.tell(clock("disrupted", 1, "node2.rail0:phc"))
    fill(fabric)
    fabric.run(LONG_S)
    assert len(fabric.take("mismatch")) == 1


@pytest.mark.parametrize("ahead", [True, False], ids=["told before", "told after"])
def test_a_move_in_progress_is_no_mismatch(fabric, ahead):
    """The bucket is ahead of the traffic, or behind it, for as long as a command may take."""
    flow = begin(fabric, said=1, by=None)
    fill(fabric)
    fabric.run(3)
    if ahead:
        flow.by = 1
        fabric.send_by(0, 2, 0)
        fabric.run(5)
        flow.by = None
    else:
        flow.by = 0
        fabric.run(2)
        fabric.send_by(0, 2, 0)
        flow.by = None
        fabric.run(2)
        flow.by = 1
        fabric.run(1.5)
        fabric.send_by(0, 2, 1)
        flow.by = None
    fabric.run(QUIET_S)
    assert fabric.take("mismatch") == []


def test_a_detector_that_has_just_begun_says_nothing(fabric):
    """A move may be in progress that began before it."""
    begin(fabric)
    fill(fabric)
    fabric.run(1)
    fabric.start_detector()
    fabric.run(5)
    assert fabric.take("mismatch") == []
    fabric.run(SOON_S)
    assert len(fabric.take("mismatch")) == 1


def port(fabric, *, up, count):
    """The state of the receiving host's port."""
    return PortState(
        node="node2", nic=nic(2), at_ns=fabric.now_ns, carrier=up, admin_up=True, carrier_down_count=count,
        carrier_up_count=count + up, fault="boot",
    )  # fmt: skip


def test_a_port_that_is_down_or_just_back_says_nothing(fabric):
    """Traffic may take a backup of which the bucket does not tell yet."""
    fabric.port = lambda host, at_ns: (
        port(fabric, up=host != 2, count=1) if host == 2 else LeafSpine.port(fabric, host, at_ns)
    )
    begin(fabric)
    fill(fabric)
    fabric.run(QUIET_S)
    assert fabric.take("mismatch") == []
    del fabric.port
    fabric.tell(port(fabric, up=True, count=1))
    fabric.port = lambda host, at_ns: (
        port(fabric, up=True, count=1) if host == 2 else LeafSpine.port(fabric, host, at_ns)
    )
    fabric.run(5.5)
    assert fabric.take("mismatch") == []
    fabric.run(SOON_S)
    assert len(fabric.take("mismatch")) == 1


@pytest.mark.parametrize("host", [0, 2], ids=["the sender", "the receiver"])
def test_a_node_that_is_not_heard_all_the_while_says_nothing(fabric, host):
    """A queue may have been away in the meantime."""
    begin(fabric)
    fill(fabric)
    for _ in range(12):
        fabric.run(0.6)
        fabric.off_bus.add(host)
        fabric.run(0.5)
        fabric.off_bus.discard(host)
    assert fabric.take("mismatch") == []


@pytest.mark.parametrize(("full_s", "found"), [(0.8, 0), (3.0, 1)])
def test_a_queue_that_is_empty_at_times_says_nothing_then(fabric, full_s, found):
    """The flow's packets may go just then. What is said between two such times stands."""
    begin(fabric)
    for _ in range(8):
        other = fill(fabric)
        fabric.run(full_s)
        fabric.end(other)
        fabric.run(0.3)
    assert len(fabric.take("mismatch")) == found


@pytest.mark.parametrize("steps", [0, 2, 4])
def test_a_flow_that_sends_only_while_the_queue_is_short_says_nothing(fabric, steps):
    """Its round trips are of then, whenever its sender tells of them."""
    flow, other = begin(fabric, by=None), fill(fabric)
    fabric.run(1 + steps / 10)
    for _ in range(20):
        flow.wants, other.wants = 0.01, None
        fabric.run(0.3)
        flow.wants, other.wants = 40.0, 0.01
        fabric.run(0.2)
    assert fabric.take("mismatch") == []


class AcrossRails(Flow):
    """A flow to a NIC of another rail."""

    @property
    def name(self):
        """As nodes name it."""
        return f"{nic(self.source)}>node{self.destination}.rail1"


@pytest.mark.parametrize("between_nics", [True, False])
def test_traffic_between_nics_is_held_against_paths_between_these_alone(fabric, between_nics):
    """That between service addresses may go by any NICs, as a backup does."""
    begin(fabric, wants=0.01)
    for source, destination, rail in ((0, 2, "rail1"), (2, 0, "rail0")):
        way = Placement(peer=f"node{destination}", rail=rail, via="rail0", entropy=fabric.ways[source, destination])
        fabric.tell(NodePaths(node=f"node{source}", lease_revision=1, placements=(way,)))
    fabric.flows.append(AcrossRails(0, 2, by=1, wants=20.0, between_nics=between_nics))
    fill(fabric)
    fabric.run(LONG_S)
    assert [event.who for event in fabric.take("mismatch")] == [f"{nic(0)}>node2.rail1"] * (not between_nics)


def test_nodes_of_before_say_nothing(fabric):
    """They do not tell what the connection had acknowledged whose round trips they tell."""
    begin(fabric, told={"busiest_acked_bytes": 0})
    fill(fabric)
    fabric.run(QUIET_S)
    assert fabric.take("mismatch") == []


def test_settings_say_how_much_and_for_how_long():
    """A queue of 5 ms is none that counts; or it has to last."""
    for settings, least, most in (({"mismatch_us": 9_000.0}, 0, 0), ({"mismatch_for_s": 6.0}, 6, 9)):
        fabric = make(settings=DetectorSettings(**settings))
        begin(fabric)
        fill(fabric)
        begun_ns = fabric.now_ns
        fabric.run(LONG_S)
        took_s = [(event.at_ns - begun_ns) / S for event in fabric.take("mismatch")]
        assert len(took_s) == (most > 0)
        assert all(least < each < most for each in took_s)


def test_all_detectors_together_say_the_same():
    """And the same twice, with the same ids."""

    def said():
        fabric = settled(only="", up_mbps=50.0, seed=3)
        begin(fabric)
        fill(fabric)
        fabric.run(SOON_S)
        return fabric.take("mismatch")

    first = said()
    assert first == said()
    assert [event.since_ns > START_NS for event in first] == [True]
    assert [msgspec.structs.replace(event, evidence={}).kind for event in first] == ["mismatch"]


# -- round trips, by themselves -----------------------------------------------------------------------------------------


def judged(*readings, interval_s=0.5):
    """What is known of a flow after readings: second, round trip and delays of its path in ms; a millisecond counts."""
    flow = RoundTrips()
    for at_s, rtt_ms, path_ms in readings:
        flow.judge(Reading(round(at_s * S), round(rtt_ms * MS), round(interval_s * S)), round(path_ms * MS), MS)
    return flow


@pytest.mark.parametrize(("rtt_ms", "path_ms", "contradicts"), [
    (1.0, 9.0, True), (4.4, 9.0, True), (4.6, 9.0, False), (12.0, 9.0, False), (0.1, 1.2, True), (0.1, 1.0, False),
])  # fmt: skip
def test_a_round_trip_contradicts_by_a_millisecond_and_half_of_the_delay(rtt_ms, path_ms, contradicts):
    """Both are needed."""
    flow = judged(*((1 + number / 2, rtt_ms, path_ms) for number in range(5)))
    assert flow.contradicts(2 * S) == contradicts
    assert flow.contradicts(3 * S) is False


@pytest.mark.parametrize(("times_s", "interval_s", "contradicts"), [
    ((1, 2, 3, 4), 0.5, True),
    ((1, 2, 4), 0.5, False),
    ((1, 2, 4.1, 4.6, 5.1), 0.5, False),
    ((1, 3, 5, 7), 0.5, True),
    ((1, 5, 9, 13), 3.0, True),
    ((1, 5, 9), 3.0, False),
])  # fmt: skip
def test_a_series_has_four_readings_without_a_break(times_s, interval_s, contradicts):
    """A break is longer than four intervals of the sender's, or of the default."""
    flow = judged(*((at_s, 1.0, 9.0) for at_s in times_s), interval_s=interval_s)
    assert flow.contradicts(2 * S) == contradicts


def test_a_reading_that_does_not_contradict_begins_anew():
    """That it is later than half of the path. How long it is as late as that counts from the last one that was not."""
    flow = judged((1, 1, 9), (2, 1, 9), (3, 9, 9), (4, 1, 9), (5, 1, 9), (6, 1, 9))
    assert (flow.since_ns, flow.readings, flow.agrees_ns) == (4 * S, 3, 0)
    flow = judged((1, 1, 9), (2, 1, 9), (2.5, 4.6, 9), (3, 1, 9))
    assert (flow.since_ns, flow.readings) == (3 * S, 1)


def test_a_reading_while_the_path_is_not_late_says_nothing():
    """Neither for it nor against it; nor does one that is not quicker by enough."""
    flow = judged((1, 1, 9), (1.5, 1, 9), (2, 0.2, 0.4), (2.5, 0.4, 1.2), (3, 1, 9), (3.5, 1, 9))
    assert (flow.since_ns, flow.readings) == (S, 4)
    assert judged((1, 9, 9), (2, 5, 9), (3, 8, 9), (4, 20, 9)).agrees_ns == S
    assert judged((1, 9, 9), (2, 9, 9), (3, 0.4, 0.5)).agrees_ns == 0
