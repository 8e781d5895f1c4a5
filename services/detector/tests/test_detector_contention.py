"""Contention: the place and the verdict, its lookalikes, and what makes no verdict."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest
from leaf_spine import MS, RAIL, START_NS, LeafSpine, S, idle, nic
from prepared import prepared

from foliot_detector.core.state.ways import Ways
from foliot_schemas import (
    ClockState,
    Event,
    FlowBatch,
    FlowRow,
    HopBatch,
    HopRow,
    Job,
    Node,
    NodePaths,
    Placement,
)
from foliot_schemas.bounds import FAR_NS
from foliot_schemas.names import Path

SOLO_S, TOGETHER_S, AFTER_S = 3.0, 4.0, 4.0
LEAF1 = {"10.9.1.0", "10.2.1.0", "10.2.1.1"}
"""The addresses with which the second of two leaves would answer."""


def verdicts(events):
    """State and place of each."""
    return [(event.state, event.who) for event in events]


@pytest.fixture
def fabric():
    """Two leaves of two hosts, two spines; it has been idle for two seconds."""
    return idle(2)


def collide(fabric, pairs=((0, 2), (1, 3)), spine=0, **what):
    """Each pair's flow alone first, and then all of them by one spine."""
    fabric.become(prepared(after_each_alone, fabric=fabric, pairs=pairs, spine=spine, what=what))
    assert fabric.take() == [], "a flow that fills its own link is no trouble"
    return [fabric.begin(source, destination, **what) for source, destination in pairs]


def after_each_alone(fabric, pairs, spine, what):
    """A fabric on which each pair's flow was alone for a while."""
    for source, destination in pairs:
        fabric.send_by(source, destination, spine)
        alone = fabric.begin(source, destination, **what)
        fabric.run(SOLO_S)
        fabric.end(alone)
        fabric.run(1)
    return fabric


# -- verdicts ----------------------------------------------------------------------------------------------------------


def test_two_flows_on_one_spine_are_contention_of_the_fabric(fabric):
    """Named are all links that the same paths cross, with the flows and figures; and it is over once one has gone."""
    flows = collide(fabric)
    begun_ns = fabric.now_ns
    fabric.run(TOGETHER_S)
    (event,) = fabric.take()
    assert (event.kind, event.state, event.who) == ("contention", "fabric-contention", fabric.up(0, 0))
    assert event.related == {
        "links": (fabric.up(0, 0), fabric.down(0, 1)), "flows": tuple(sorted(flow.name for flow in flows)),
        "jobs": ("found:node0", "found:node1"),
    }  # fmt: skip
    assert begun_ns <= event.since_ns < event.at_ns < begun_ns + 5_000 * MS
    known = event.evidence
    assert 1_000 < known["queue_us"] < 10_000
    assert 0.2 < known["slowest_share"] < 0.7
    assert known["slowest_mbps"] == pytest.approx(known["slowest_share"] * known["usual_mbps"], rel=0.01)
    assert known["carried_mbps"] == pytest.approx(94, rel=0.1)
    assert known["capacity_mbps"] == pytest.approx(94, rel=0.1)
    assert known["flows"] == 2
    assert (event.id, event.fault) == (f"{event.fault}/fabric-contention", f"{event.who}/contention-{event.since_ns}")

    fabric.end(flows[0])
    fabric.run(AFTER_S)
    (relief,) = fabric.take()
    assert (relief.state, relief.who, relief.cause, relief.fault) == ("clear", event.who, event.id, event.fault)
    assert relief.related == event.related


def test_flows_that_were_never_alone_are_held_against_what_the_link_carries():
    """Nobody knows better, so the verdict is less sure."""
    fabric = idle(2)
    for source, destination in ((0, 2), (1, 3)):
        fabric.send_by(source, destination, 1)
        fabric.begin(source, destination)
    fabric.run(TOGETHER_S)
    (event,) = fabric.take()
    assert verdicts([event]) == [("fabric-contention", fabric.up(0, 1))]
    assert event.confidence < 1


def test_after_a_long_rest_bases_are_still_known(monkeypatch):
    """They are learnt now and then while nobody tells of flows."""
    monkeypatch.setattr("foliot_detector.core.detectors.contention.path_queues._EAGER", 0)
    fabric = idle(12)
    for source, destination in ((0, 2), (1, 3)):
        fabric.send_by(source, destination, 0)
        fabric.begin(source, destination)
    fabric.run(TOGETHER_S)
    assert verdicts(fabric.take()) == [("fabric-contention", fabric.up(0, 0))]


def test_where_there_are_more_leaves_one_link_is_named():
    """Paths to a third leaf tell the way up from the way down."""
    fabric = idle(2, leaves=3)
    for source, destination in ((0, 2), (1, 4)):
        fabric.send_by(source, destination, 0)
        fabric.begin(source, destination)
    fabric.run(TOGETHER_S)
    (event,) = fabric.take()
    assert event.related["links"] == (fabric.up(0, 0),)
    fabric.end()
    fabric.run(AFTER_S)
    assert verdicts(fabric.take()) == [("clear", fabric.up(0, 0))]
    for source, destination in ((0, 4), (2, 5)):
        fabric.send_by(source, destination, 1)
        fabric.begin(source, destination)
    fabric.run(TOGETHER_S)
    (event,) = fabric.take()
    assert (event.who, event.related["links"]) == (fabric.down(1, 2), (fabric.down(1, 2),))


def test_a_chain_of_flows_has_two_places():
    """The flow in the middle shares one link with the first and another with the last."""
    fabric = idle(2, leaves=3, hosts=2)
    for source, destination in ((0, 2), (1, 4), (3, 5)):
        fabric.send_by(source, destination, 0)
        fabric.begin(source, destination)
    fabric.run(TOGETHER_S)
    said = {event.who: event.related["flows"] for event in fabric.take()}
    first, middle, last = (flow.name for flow in fabric.flows)
    assert said == {fabric.up(0, 0): tuple(sorted((first, middle))), fabric.down(0, 2): tuple(sorted((middle, last)))}


def test_flows_of_one_nic_are_its_own_doing(fabric):
    """By whichever spines they go."""
    collide(fabric, [(0, 2), (0, 3)])
    fabric.run(TOGETHER_S)
    (event,) = fabric.take()
    assert verdicts([event]) == [("own-nic", nic(0))]
    assert event.related["links"] == (f"{nic(0)}/out",)
    fabric.end()
    fabric.run(AFTER_S)
    assert verdicts(fabric.take()) == [("clear", nic(0))]


def test_a_nics_queue_that_probes_meet_is_its_own_doing_as_well():
    """As where the hardware has it."""
    fabric = idle(2, stamps_first=True)
    collide(fabric, [(0, 2), (0, 3)])
    fabric.run(TOGETHER_S)
    assert verdicts(fabric.take()) == [("own-nic", nic(0))]


def test_flows_of_one_nic_are_its_own_doing_where_spines_do_not_answer():
    """A NIC's own link has a name by itself."""
    fabric = idle(2, silent={"10.1.0.0", "10.1.1.0", "10.1.0.1", "10.1.1.1"})
    collide(fabric, [(0, 2), (0, 3)])
    fabric.run(TOGETHER_S)
    assert verdicts(fabric.take()) == [("own-nic", nic(0))]


def test_two_nics_whose_flows_meet_in_both_directions_are_their_own_doing(fabric):
    """Acknowledgements wait at the other end's full NIC as well; but each NIC carries the most that any did."""
    pairs = [(0, 2), (0, 3), (2, 0), (2, 1)]
    collide(fabric, pairs)
    fabric.run(TOGETHER_S)
    assert sorted(verdicts(fabric.take())) == [("own-nic", nic(0)), ("own-nic", nic(2))]


@pytest.mark.parametrize("spines", [(0, 1), (0, 0)], ids=["by two ways", "by one way"])
def test_flows_to_one_nic_are_an_incast(fabric, spines):
    """On one way they queue before the last link, which takes no more either."""
    for (source, destination), spine in zip(((0, 2), (1, 2)), spines, strict=True):
        fabric.send_by(source, destination, spine)
        fabric.begin(source, destination)
    fabric.run(TOGETHER_S)
    assert verdicts(fabric.take()) == [("incast", nic(2))]


def test_flows_to_a_nic_that_takes_more_contend_for_the_narrow_link_before_it():
    """They would gain by another way."""
    fabric = idle(2, up_mbps=40.0)
    for source, destination in ((3, 2), (0, 2)):
        alone = fabric.begin(source, destination)
        fabric.run(SOLO_S)
        fabric.end(alone)
    for source in (0, 1):
        fabric.send_by(source, 2, 0)
        fabric.begin(source, 2)
    fabric.run(TOGETHER_S)
    assert verdicts(fabric.take()) == [("fabric-contention", fabric.up(0, 0))]


@pytest.mark.parametrize("before", [True, False])
def test_a_receiver_that_reads_slowly_is_the_flows_own_trouble(fabric, before):
    """Whether or not it ever read faster, as the kernel says what it waits for."""
    flow = fabric.begin(0, 2)
    if before:
        fabric.run(SOLO_S)
    flow.reads = 20.0
    fabric.run(TOGETHER_S)
    assert verdicts(fabric.take()) == [("slow-receiver", flow.name)]
    flow.reads = None
    fabric.run(AFTER_S)
    assert verdicts(fabric.take()) == [("clear", flow.name)]


def test_a_flow_whose_job_is_short_elsewhere_shows_no_reduced_rate(fabric):
    """It sends less as it waits for the others, and its queue stands while it sends.

    What stays when these have gone is the link's own.
    """
    flows = collide(fabric, pairs=((2, 0), (3, 1)), spine=1)
    fabric.send_by(0, 2, 0)
    fabric.begin(0, 2)
    fabric.run(SOLO_S + TOGETHER_S)
    assert verdicts(fabric.take()) == [("fabric-contention", fabric.up(1, 1))]
    fabric.mbps[fabric.up(0, 0)] = 40.0
    fabric.run(3 * TOGETHER_S)
    assert fabric.take() == []
    fabric.end(flows[1])
    fabric.run(TOGETHER_S + AFTER_S)
    assert sorted(verdicts(fabric.take())) == [("clear", fabric.up(1, 1)), ("reduced-rate", fabric.up(0, 0))]


@pytest.mark.parametrize("place", ["10.1.0.0", f"{nic(0)}/out", f"{nic(2)}/in"])
def test_a_link_that_carries_less_than_it_did_has_a_reduced_rate(fabric, place):
    """With one flow on it, which is short as if another were there."""
    fabric.send_by(0, 2, 0)
    fabric.begin(0, 2)
    fabric.run(SOLO_S)
    fabric.mbps[place] = 40.0
    fabric.run(TOGETHER_S)
    who = place.partition("/")[0]
    (event,) = fabric.take()
    assert verdicts([event]) == [("reduced-rate", who)]
    assert event.evidence["carried_mbps"] < 0.5 * event.evidence["capacity_mbps"]
    fabric.mbps[place] = 100.0
    fabric.run(AFTER_S)
    assert verdicts(fabric.take()) == [("clear", who)]


# -- lookalikes ---------------------------------------------------------------------------------------------------------


def test_flows_by_different_spines_are_no_trouble(fabric):
    """Each fills its own way."""
    for number, (source, destination) in enumerate(((0, 2), (1, 3))):
        fabric.send_by(source, destination, number)
        fabric.begin(source, destination)
    fabric.run(TOGETHER_S)
    assert fabric.take() == []


def test_flows_of_one_nic_that_never_had_more_are_no_trouble(fabric):
    """One job's own doing, which TCP shares unevenly."""
    for destination, weight in ((1, 2.0), (2, 1.0), (3, 0.5)):
        fabric.begin(0, destination).weight = weight
    fabric.run(TOGETHER_S)
    assert fabric.take() == []


def test_flows_of_one_nic_on_one_narrow_link_are_not_its_doing():
    """The NIC has room, and it is only the spine that has not. Receivers' own NICs are full, where acknowledgements wait."""
    fabric = idle(2, hosts=4, up_mbps=40.0, queue_us=3_000.0)
    for source, destination in ((4, 6), (5, 7)):
        fabric.queues_us[f"{nic(source)}/out"] = 9_000.0
        fabric.begin(source, destination)
    collide(fabric, [(0, 4), (0, 5)])
    fabric.run(TOGETHER_S)
    assert fabric.take() == []


def test_a_flow_that_loses_packets_has_no_slower_nic(fabric):
    """It gets less, and its round-trip time may be that of before: it is smoothed, and few packets renew it."""
    flow = fabric.begin(0, 2)
    fabric.run(SOLO_S)
    flow.wants = 20.0
    flow.told = {"busy_ns": 500 * MS, "rtt_ns": 6 * MS, "retransmitted": 3}
    fabric.run(TOGETHER_S)
    assert fabric.take() == []


def test_a_host_without_time_for_its_flow_has_no_slower_nic(fabric):
    """Round trips are late, but not as late as behind a full queue of that NIC."""
    flow = fabric.begin(0, 2)
    fabric.run(SOLO_S)
    flow.wants = 20.0
    flow.told = {"busy_ns": 500 * MS, "rtt_ns": 1_500_000}
    fabric.run(TOGETHER_S)
    assert fabric.take() == []


def test_a_nic_that_carried_more_for_a_while_is_no_slower_one(fabric):
    """Traffic of a dead NIC came by it, and left: what a late host adds to round trips is as long now as before.

    How long its queue was meanwhile is not known, as acknowledgements waited at the other end.
    """
    kept = fabric.begin(0, 2, wants=50.0, late_us=1_500.0)
    kept.told = {"busy_ns": 500 * MS}
    fabric.run(SOLO_S)
    guests = [fabric.begin(0, 3), *(fabric.begin(host, 1, wants=20.0, late_us=5_000.0) for host in (2, 3))]
    fabric.run(15)
    for guest in guests:
        fabric.end(guest)
    fabric.run(2 * TOGETHER_S)
    assert "reduced-rate" not in [event.state for event in fabric.take()]


def test_a_collision_whose_acknowledgements_wait_elsewhere_is_no_slower_nic(fabric):
    """The receivers' own NICs are full by then, and round trips are as late as they were in the sender's."""
    collide(fabric)
    fabric.end()
    for source, destination in ((2, 1), (3, 0)):
        fabric.send_by(source, destination, source - 2)
        fabric.begin(source, destination)
    fabric.run(TOGETHER_S)
    assert fabric.take() == []
    for source, destination in ((0, 2), (1, 3)):
        fabric.begin(source, destination)
    fabric.run(TOGETHER_S)
    assert verdicts(fabric.take()) == [("fabric-contention", fabric.up(0, 0))]


@pytest.mark.parametrize("mbps", [5.0, 45.0])
def test_applications_that_send_less_than_the_link_carries_are_no_trouble(fabric, mbps):
    """They share a link that has room for both."""
    for source, destination in ((0, 2), (1, 3)):
        fabric.send_by(source, destination, 0)
        fabric.begin(source, destination, wants=mbps)
    fabric.run(TOGETHER_S)
    assert fabric.take() == []


@pytest.mark.parametrize("what", [{"wants": 3.0}, {"buffers": 3.0}])
def test_a_small_flow_beside_one_that_fills_the_link_is_no_trouble(fabric, what):
    """It waits in the queue, and so always has data on its way; but it gets all that it wants."""
    flow = fabric.begin(0, 2)
    fabric.send_by(0, 2, 0)
    fabric.run(SOLO_S)
    fabric.send_by(1, 3, 0)
    small = fabric.begin(1, 3, **what)
    fabric.run(TOGETHER_S)
    assert fabric.take() == []
    assert flow.rate > 10 * small.rate


def test_where_every_way_is_full_nothing_is_said():
    """Three flows on two uplinks: whichever moves, two share one."""
    fabric = idle(2, hosts=3)
    for source, spine in ((0, 0), (1, 0), (2, 1)):
        fabric.send_by(source, source + 3, spine)
        fabric.begin(source, source + 3)
    fabric.run(TOGETHER_S)
    assert fabric.take() == []


def test_where_a_third_way_is_free_it_is_contention_again():
    """The same flows, and another spine."""
    fabric = idle(2, hosts=3, spines=3, entropies=6)
    for source, spine in ((0, 0), (1, 0), (2, 1)):
        fabric.send_by(source, source + 3, spine)
        fabric.begin(source, source + 3)
    fabric.run(TOGETHER_S)
    (event,) = fabric.take()
    assert verdicts([event]) == [("fabric-contention", fabric.up(0, 0))]
    assert len(event.related["flows"]) == 2


@pytest.mark.parametrize("idle", [False, True], ids=["all are probed", "one of each route is"])
def test_of_64_entropies_one_leads_to_the_way_that_is_free(idle):
    """Three flows on 32 spines: two share one. With four entropies, few pairs would reach another."""
    fabric = LeafSpine(hosts=3, spines=32, entropies=64)
    if idle:
        fabric.let_idle()
    fabric.run(2)
    for source, spine in ((0, 0), (1, 0), (2, 1)):
        fabric.send_by(source, source + 3, spine)
        fabric.begin(source, source + 3)
    fabric.run(TOGETHER_S)
    (event,) = fabric.take()
    assert verdicts([event]) == [("fabric-contention", fabric.up(0, 0))]


def test_where_most_paths_idle_a_queue_is_found_by_those_that_do_not():
    """Of 32 entropies on two spines, one of sixteen is probed; the flows' own are, too. It ends as ever."""
    fabric = LeafSpine(entropies=32)
    fabric.let_idle()
    assert len(fabric.idle) > 0.9 * len(fabric.paths)
    fabric.run(2)
    flows = []
    for source in (0, 1):
        fabric.send_by(source, source + 2, 0)
        flows.append(fabric.begin(source, source + 2))
    fabric.run(TOGETHER_S)
    (event,) = fabric.take()
    assert verdicts([event]) == [("fabric-contention", fabric.up(0, 0))]
    fabric.send_by(1, 3, 1)
    fabric.run(TOGETHER_S)
    assert [each.state for each in fabric.take()] == ["clear"]


def test_a_port_that_others_fill_has_no_reduced_rate(fabric):
    """Its counters show as much as before, of which the flow has a part."""
    fabric.begin(0, 2)
    fabric.run(SOLO_S)
    fabric.foreign[f"{nic(0)}/out"] = 50.0
    fabric.run(TOGETHER_S)
    assert fabric.take() == []


def test_delays_that_vary_everywhere_are_no_queue():
    """As where every host is busy: a flow that loses its processor is not short of the network."""
    fabric = idle(2, noise_us=400.0, queue_us=0.0)
    flow = fabric.begin(0, 2)
    fabric.run(SOLO_S)
    flow.wants = 20.0
    flow.told = {"busy_ns": 500 * MS}
    fabric.run(TOGETHER_S)
    assert fabric.take() == []


# -- what makes no verdict ----------------------------------------------------------------------------------------------


def test_where_a_router_does_not_answer_nothing_is_named():
    """A queue behind it looks like one at the link before it."""
    fabric = idle(2, silent={"10.1.0.0"})
    collide(fabric)
    fabric.run(TOGETHER_S)
    assert fabric.take() == []


def test_where_a_last_router_does_not_answer_nothing_is_named():
    """Nothing in what senders tell shows it. Any link behind the last answer may be the full one."""
    fabric = idle(2, silent=LEAF1)
    collide(fabric)
    fabric.run(TOGETHER_S)
    assert fabric.take() == []


def test_where_a_last_router_does_not_answer_no_link_before_it_has_a_reduced_rate():
    """The one that enters it may be what carries less."""
    fabric = idle(2, silent=LEAF1)
    fabric.send_by(0, 2, 0)
    fabric.begin(0, 2)
    fabric.run(SOLO_S)
    fabric.mbps[fabric.down(0, 1)] = 40.0
    fabric.run(TOGETHER_S)
    assert fabric.take() == []


def test_ways_from_below_a_router_that_does_not_answer_are_known():
    """Their last router does, and they have no link that enters the first one."""
    fabric = idle(2, silent=LEAF1)
    collide(fabric, [(2, 0), (3, 1)])
    fabric.run(TOGETHER_S)
    assert verdicts(fabric.take()) == [("fabric-contention", fabric.up(1, 0))]


@pytest.mark.parametrize("host", [0, 3], ids=["a sender", "a receiver"])
def test_clocks_that_are_not_synchronised_make_no_verdict(host):
    """Delays to and from the node mean nothing; the other flow alone is short of nothing that is known."""
    fabric = LeafSpine()
    fabric.bound_ns = dict.fromkeys(range(4), -1) | {host ^ 1: 500}
    fabric.run(2)
    for source, destination in ((0, 2), (1, 3)):
        fabric.send_by(source, destination, 0)
        fabric.begin(source, destination)
    fabric.run(TOGETHER_S)
    assert fabric.take() == []


def test_clocks_that_promise_nothing_make_no_verdict():
    """Their bounds are the largest that there are."""
    fabric = idle(2, bound_ns=FAR_NS)
    for source, destination in ((0, 2), (1, 3)):
        fabric.send_by(source, destination, 0)
        fabric.begin(source, destination)
    fabric.run(TOGETHER_S)
    assert fabric.take() == []


@pytest.mark.parametrize("stepped", ["node2", "node2.rail0:phc"], ids=["host", "nic"])
def test_a_clock_that_was_disrupted_makes_no_verdict_until_its_paths_are_known_anew(fabric, stepped):
    """Its delays leap, a host's or a NIC's, and a base from before says nothing."""

    def state(status, window):
        return ClockState(
            clock=stepped, reference="node0", offset_ns=0, drift_ppb=0.0, hard_bound_ns=1, bound_ns=1, growth_ppb=0.0,
            as_of_ns=window, void_after_ns=window, status=status, window=window,
        )  # fmt: skip

    fabric.begin(0, 2)
    fabric.run(SOLO_S)
    fabric.flows[0].told = {"acked_bytes": 1_000_000}
    fabric.flows[0].rate = 16e6
    fabric.tell(state("disrupted", 1))
    fabric.lies_us[2] = 50_000.0
    fabric.run(2)
    fabric.tell(state("synchronised", 2))
    fabric.run(TOGETHER_S)
    assert fabric.take() == []


def test_a_node_that_is_not_heard_makes_no_verdict_and_ends_none(fabric):
    """Neither its flows nor the delays to it are known; what was said stands until they are."""
    flows = collide(fabric)
    fabric.off_bus.add(1)
    fabric.run(TOGETHER_S)
    assert fabric.take() == []
    fabric.off_bus.clear()
    fabric.run(TOGETHER_S)
    (event,) = fabric.take()
    fabric.off_bus.add(1)
    fabric.run(5)
    assert fabric.take() == []
    fabric.end(flows[1])
    fabric.off_bus.clear()
    fabric.run(AFTER_S)
    assert verdicts(fabric.take()) == [("clear", event.who)]


def test_hosts_that_become_busy_do_not_end_it(fabric):
    """Then less counts as a queue at the beginning of a trouble, but flows are as short as they were."""
    collide(fabric, [(0, 2), (0, 3)])
    fabric.run(TOGETHER_S)
    assert verdicts(fabric.take()) == [("own-nic", nic(0))]
    fabric.noise_us = 6_000.0
    fabric.run(10)
    assert fabric.take() == []


def test_a_full_nic_whose_receivers_are_not_heard_stays_full():
    """Nobody knows how late probes are there, and others see no queue of that NIC."""
    fabric = idle(2, hosts=3)
    collide(fabric, [(0, 3), (0, 4)])
    fabric.run(TOGETHER_S)
    assert verdicts(fabric.take()) == [("own-nic", nic(0))]
    fabric.off_bus |= {3, 4}
    fabric.run(TOGETHER_S)
    assert fabric.take() == []


def test_a_link_that_a_flow_of_a_node_may_cross_that_is_not_heard_has_no_reduced_rate(fabric):
    """The node's probe died, and its traffic goes on: the link carries as much as ever."""
    collide(fabric)
    fabric.run(0.5)
    fabric.off_bus.add(1)
    fabric.run(20)
    assert fabric.take() == []


def of_a_third():
    """A fabric with a third one's flow on a link of two others."""
    fabric = idle(2, hosts=4)
    fabric.send_by(2, 6, 0)
    fabric.begin(2, 6)
    fabric.run(SOLO_S)
    return fabric


def share_a_link_with_one_more(lost):
    """Two flows on a link after a third one's sender was lost, by a function of fabric and host, for 13 s."""
    fabric = prepared(of_a_third)
    lost(fabric, 2)
    fabric.run(13)
    for source in (0, 1):
        fabric.send_by(source, source + 4, 0)
        fabric.begin(source, source + 4)
    fabric.run(TOGETHER_S)
    return fabric


@pytest.mark.parametrize("others", [[], [(5, 6)]], ids=["alone", "beside others"])
def test_a_host_that_lost_its_power_hides_no_collision(others):
    """It is in the inventory as before, and its flow had much to send. Its receiver's port counts nothing of it."""

    def lose(fabric, host):
        fabric.lose_power(host)
        for source, destination in others:
            fabric.begin(source, destination, wants=80.0)

    fabric = share_a_link_with_one_more(lose)
    (event,) = fabric.take()
    assert verdicts([event]) == [("fabric-contention", fabric.up(0, 0))]
    assert event.evidence["flows"] == 2


@pytest.mark.parametrize("others", [[], [(5, 6)]], ids=["alone", "beside others"])
def test_a_host_whose_probe_alone_is_gone_may_send_what_others_lack(others):
    """Its receiver's port counts the flow, and perhaps what others send there."""

    def lose(fabric, host):
        fabric.off_bus.add(host)
        for source, destination in others:
            fabric.begin(source, destination, wants=40.0)

    assert share_a_link_with_one_more(lose).take() == []


def test_a_port_that_is_not_heard_says_of_no_flow_that_it_is_over():
    """What it counted last is of another time."""

    def lose(fabric, host):
        fabric.end()
        fabric.run(2.2)
        fabric.off_bus.add(6)
        fabric.begin(2, 6)
        fabric.run(1)
        fabric.lose_power(host)

    assert share_a_link_with_one_more(lose).take() == []


def test_what_has_just_changed_its_way_is_left_alone(fabric):
    """Traffic that moves about meets the other for less than a second at a time."""
    collide(fabric)
    for _ in range(8):
        fabric.send_by(0, 2, 1)
        fabric.run(0.9)
        fabric.send_by(0, 2, 0)
        fabric.run(0.6)
    assert fabric.take() == []


def test_a_move_ends_it(fabric):
    """The other spine has room."""
    flows = collide(fabric)
    fabric.run(TOGETHER_S)
    (event,) = fabric.take()
    fabric.send_by(1, 3, 1)
    fabric.run(TOGETHER_S)
    assert verdicts(fabric.take()) == [("clear", event.who)]
    assert all(flow.rate > 85e6 for flow in flows)


def test_flows_that_come_when_others_go_are_a_trouble_of_their_own():
    """The link is full all the time. What was said of the first two is over, and moves are made for those that are there."""
    fabric = LeafSpine(hosts=3, spines=3, seed=2)
    fabric.run(2)
    collide(fabric, pairs=((0, 3), (1, 4)))
    fabric.run(TOGETHER_S)
    (before,) = fabric.take()
    fabric.send_by(0, 3, 1)
    fabric.send_by(2, 5, 0)
    late = fabric.begin(2, 5)
    fabric.run(TOGETHER_S)
    relief, after = fabric.take()
    assert (relief.state, relief.cause) == ("clear", before.id)
    assert verdicts([after]) == verdicts([before])
    assert after.related["flows"] == (fabric.flows[1].name, late.name)
    fabric.run(TOGETHER_S)
    assert fabric.take() == [], "they stay, and so does what was said"


def test_a_rail_that_is_away_takes_its_backups(fabric):
    """The way that counts is the one that traffic takes."""
    collide(fabric)
    spare = next(entropy for entropy in range(4) if fabric.spine_of[Path(nic(1), nic(3), entropy)] == 1)
    backup = Placement(peer="node3", rail=RAIL, via=RAIL, entropy=spare)
    ways = Ways()
    paths = NodePaths(node="node1", lease_revision=1, placements=fabric.node_paths(1).placements, backups=(backup,))
    ways.take(paths, 1)
    name = f"{nic(1)}>{nic(3)}"
    assert ways.path_of(name) == f"{name}#{fabric.ways[1, 3]}"
    assert ways.changed_ns == {}
    ways.take(msgspec.structs.replace(paths, away=(RAIL,)), 2)
    assert ways.path_of(name) == f"{name}#{spare}"
    assert ways.changed_ns == {"node1": 2}
    ways.take(NodePaths(node="node1", lease_revision=0), 3)
    assert ways.path_of(name) == ""


# -- how often nodes report -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("every_s", "within_s"), [(0.1, 3.5), (1, 6), (10, 50)])
def test_a_collision_is_found_however_seldom_nodes_report(fabric, every_s, within_s):
    """Later, as what they say has to hold for longer; and so is its end, by what flows get."""
    fabric.report_every = round(10 * every_s)
    fabric.run(2 * every_s)
    flows = collide(fabric)
    fabric.run(within_s)
    (event,) = fabric.take()
    assert verdicts([event]) == [("fabric-contention", fabric.up(0, 0))]
    fabric.end(flows[0])
    fabric.run(AFTER_S + every_s)
    assert verdicts(fabric.take()) == [("clear", event.who)]


@pytest.mark.parametrize("every_s", [1, 3])
def test_steps_of_a_job_are_no_slower_nic_though_delays_are_those_of_the_step_before(fabric, every_s):
    """Round trips are told twice a second, and what probes meet is older than that."""
    fabric.report_every = round(10 * every_s)
    fabric.run(2 * every_s)
    for seconds in (SOLO_S, *[1.5] * 15):
        flow = fabric.begin(0, 2)
        fabric.run(seconds)
        fabric.end(flow)
        fabric.run(1)
    assert fabric.take() == []


def test_a_sender_whose_probe_is_gone_is_unknown_before_its_last_report_holds_no_longer():
    """Until then nobody knows whether it still sends: of flows it speaks more often."""
    fabric = idle(2, hosts=3)
    fabric.report_every = 30
    fabric.run(6)
    for source in (0, 1, 2):
        fabric.send_by(source, source + 3, 0)
        fabric.begin(source, source + 3)
    fabric.run(1)
    fabric.off_bus.add(2)
    fabric.run(25)
    assert fabric.take() == []


def test_a_sender_whose_probe_is_gone_ends_nothing_while_its_last_report_holds(fabric):
    """Nobody knows whether its flow is over."""
    fabric.report_every = 30
    fabric.run(6)
    collide(fabric)
    fabric.run(14)
    assert verdicts(fabric.take()) == [("fabric-contention", fabric.up(0, 0))]
    fabric.off_bus.add(1)
    fabric.run(10)
    assert fabric.take() == []


# -- lies ---------------------------------------------------------------------------------------------------------------


def test_a_receiver_that_tells_of_late_probes_makes_no_event(fabric):
    """Its word alone says nothing of flows whose senders see quick round trips."""
    for source in (0, 1):
        fabric.send_by(source, 2, source)
        fabric.begin(source, 2, wants=40.0).told = {"busy_ns": 500 * MS}
    fabric.run(SOLO_S)
    fabric.lies_us[2] = 8_000.0
    fabric.run(TOGETHER_S)
    assert fabric.take() == []


def test_a_sender_that_tells_of_slow_flows_makes_no_event(fabric):
    """No receiver sees a queue."""
    fabric.send_by(0, 2, 0)
    flow = fabric.begin(0, 2, wants=60.0)
    flow.told = {"busy_ns": 500 * MS}
    fabric.send_by(1, 3, 0)
    fabric.begin(1, 3, wants=30.0)
    fabric.run(SOLO_S)
    flow.told |= {"acked_bytes": 500_000, "rtt_ns": 50 * MS}
    fabric.run(TOGETHER_S)
    assert fabric.take() == []


def test_a_flow_that_is_told_to_share_a_full_link_must_leave_the_other_less():
    """A sender speaks of a flow on a link that another fills: together they would carry more than the link can."""
    fabric = idle(2, up_mbps=60.0)
    fabric.send_by(0, 2, 0)
    fabric.begin(0, 2)
    fabric.run(SOLO_S)
    fabric.send_by(1, 3, 0)
    fabric.begin(1, 3, wants=0.1).told = {"acked_bytes": 2_500_000, "busy_ns": 500 * MS}
    fabric.run(TOGETHER_S)
    assert fabric.take() == []


def test_a_receiver_that_tells_of_early_probes_makes_no_nic_full():
    """It hides the queue of the spine on its own flow, and not on the other one."""
    fabric = idle(2, up_mbps=60.0)
    for source, destination in ((0, 2), (0, 3)):
        fabric.send_by(source, destination, 0)
        alone = fabric.begin(source, destination)
        fabric.run(SOLO_S)
        fabric.end(alone)
    for destination in (2, 3):
        fabric.begin(0, destination)
    fabric.lies_us[2] = -50_000.0
    fabric.run(TOGETHER_S)
    assert fabric.take() == []


@pytest.mark.parametrize(
    ("mbps", "receivers"), [(1e6, (5,)), (300.0, (4, 5))], ids=["far too quick, to one", "to two by turns"]
)
def test_a_sender_that_tells_of_quick_flows_makes_no_link_slower(mbps, receivers):
    """Their receivers' ports count no such flows, so the link never carried as much."""
    fabric = idle(2, hosts=3)
    lies = []
    for receiver in receivers:
        fabric.send_by(2, receiver, 0)
        lies.append(fabric.begin(2, receiver, wants=1.0))
    for turn in range(8):
        for number, lie in enumerate(lies):
            told = mbps if turn % len(lies) == number else 0.0
            lie.told = {"acked_bytes": round(told * 1e6 / 16), "busy_ns": 500 * MS}
        fabric.run(0.5)
    fabric.end()
    fabric.run(1)
    for source in (0, 1):
        fabric.send_by(source, source + 3, 0)
        fabric.begin(source, source + 3)
    fabric.run(TOGETHER_S)
    assert verdicts(fabric.take()) == [("fabric-contention", fabric.up(0, 0))]


def test_a_senders_word_of_its_own_flows_is_believed(fabric):
    """It says that they wait in its own host, and the place is its own NIC."""
    collide(fabric, [(0, 2), (0, 3)])
    fabric.end()
    for destination in (2, 3):
        fabric.begin(0, destination, wants=40.0).told = {"busy_ns": 500 * MS, "rtt_ns": 9 * MS}
    fabric.run(TOGETHER_S)
    assert verdicts(fabric.take()) == [("own-nic", nic(0))]


# -- later --------------------------------------------------------------------------------------------------------------


def test_what_an_earlier_run_said_is_ended_by_the_next(fabric):
    """Not while the flows are still short, though this one has seen no better delay or rate."""
    flows = collide(fabric)
    fabric.run(TOGETHER_S)
    (event,) = fabric.take()
    fabric.start_detector()
    fabric.detector.resume(event)
    fabric.run(20)
    assert fabric.take() == []
    fabric.end(flows[1])
    fabric.run(AFTER_S)
    (relief,) = fabric.take()
    assert (relief.state, relief.who, relief.cause, relief.fault) == ("clear", event.who, event.id, event.fault)


@pytest.mark.parametrize("widened", [True, False], ids=["the link becomes wide", "the flow is short elsewhere"])
def test_what_an_earlier_run_said_is_ended_though_both_flows_go_on(fabric, widened):
    """One of them could never get as much as the slowest. The queue has drained, which this run has seen stand."""
    fabric.mbps[f"{nic(1)}/out"] = 53.0
    flows = collide(fabric)
    for flow in flows:
        flow.weight = 1.0
    fabric.run(TOGETHER_S)
    (event,) = fabric.take()
    assert event.evidence["slowest"] == flows[0].name
    fabric.start_detector()
    fabric.detector.resume(event)
    fabric.run(2)
    if widened:
        fabric.mbps |= dict.fromkeys(event.related["links"], 200.0)
    else:
        fabric.mbps[f"{nic(2)}/in"] = 40.0
    fabric.run(10 + AFTER_S)
    assert ("clear", event.who) in verdicts(fabric.take())


def test_what_an_earlier_run_said_of_a_nic_is_ended_though_its_flows_go_on(fabric):
    """They are short elsewhere by then. Of its queue, round trips tell."""
    collide(fabric, [(0, 2), (0, 3)])
    fabric.run(TOGETHER_S)
    (event,) = fabric.take()
    fabric.start_detector()
    fabric.detector.resume(event)
    fabric.run(3)
    for link in (f"{nic(2)}/in", f"{nic(3)}/in"):
        fabric.mbps[link], fabric.queues_us[link] = 30.0, 300.0
    fabric.run(10 + AFTER_S)
    assert ("clear", nic(0)) in verdicts(fabric.take())


def test_what_an_earlier_run_said_is_not_ended_by_delays_that_were_never_shorter(fabric):
    """The queue is as long as ever, so it is in all that this run has heard of delays."""
    collide(fabric)
    fabric.run(TOGETHER_S)
    (event,) = fabric.take()
    fabric.chance.uniform, fabric.spread = (lambda _, most: most), 0.0
    fabric.run(3)
    fabric.start_detector()
    fabric.detector.resume(event)
    fabric.run(25)
    assert fabric.take() == []


def test_what_was_over_is_not_taken_up(fabric):
    """Nor another kind of event."""
    clear = Event(id="f/clear", kind="contention", who="10.1.0.0", state="clear", at_ns=1, since_ns=1)
    fabric.detector.resume(clear)
    fabric.detector.resume(msgspec.structs.replace(clear, kind="path", state="silent"))
    fabric.run(15)
    assert fabric.take() == []


def test_a_node_that_leaves_ends_what_its_flows_did(fabric):
    """Its record is gone from the inventory."""
    flows = collide(fabric)
    fabric.run(TOGETHER_S)
    (event,) = fabric.take()
    fabric.off_bus.add(1)
    fabric.end(flows[1])
    fabric.tell(Node(name="node1", nics=()))
    fabric.run(AFTER_S)
    assert verdicts(fabric.take()) == [("clear", event.who)]


@pytest.mark.parametrize("silent", [(), {"all"}], ids=["routers answer", "no router answers"])
def test_paths_to_nodes_that_left_hide_no_contention(silent):
    """Three of five nodes below a leaf: nobody hears the paths to them any more."""
    fabric = idle(2, hosts=5, spines=3, entropies=6, silent=silent)
    for host in (7, 8, 9):
        fabric.off_bus.add(host)
        fabric.tell(Node(name=f"node{host}", nics=()))
    collide(fabric, [(0, 5), (1, 6)])
    fabric.run(TOGETHER_S)
    assert [event.state for event in fabric.take()] == ["fabric-contention"]


@pytest.mark.parametrize("silent", [(), {"all"}], ids=["routers answer", "no router answers"])
def test_paths_of_entropies_that_nodes_no_longer_have_hide_no_contention(silent):
    """Four of 16: a pair has a path over four of 16 spines. All come back with the entropies."""
    fabric = idle(2, hosts=3, spines=16, entropies=16, silent=silent)
    with_few(fabric, 4)
    spine = next(
        spine for spine in range(16) if fabric.send_by(0, 3, spine) and fabric.send_by(1, 4, spine)
    )  # fmt: skip
    flows = collide(fabric, [(0, 3), (1, 4)], spine=spine)
    fabric.run(TOGETHER_S)
    assert [event.state for event in fabric.take()] == ["fabric-contention"]
    fabric.end(flows[1])
    fabric.run(AFTER_S)
    assert [event.state for event in fabric.take()] == ["clear"]
    with_few(fabric, 16)
    fabric.run(2)
    fabric.flows.append(flows[1])
    fabric.run(TOGETHER_S)
    assert [event.state for event in fabric.take()] == ["fabric-contention"]


def with_few(fabric, entropies):
    """All nodes have so many entropies from now on, and tell of their paths again."""
    fabric.entropies = entropies
    for host in range(fabric.hosts):
        fabric.tell(fabric.record(host))
    for host in range(fabric.hosts):
        fabric.tell(fabric.hops(host))


def sizes(fabric):
    """How much the detector of contention remembers: flows, links, and paths of two kinds."""
    (detector,) = fabric.detector._detectors
    return (
        len(detector._flows.names), len(detector._links.names), len(detector._links._map.paths()),
        len(fabric.detector.inventory.paths),
    )  # fmt: skip


def flows_told(source, *names):
    """A node's word of 10 MB for each of these flows."""
    rows = np.zeros(len(names), FlowRow)
    rows["flow"], rows["acked_bytes"], rows["busy_ns"] = range(len(names)), 10_000_000, S // 2
    return FlowBatch.of(rows, node=f"node{source}", at_ns=START_NS, interval_ns=S // 2, flows=names)


def hops_told(source, paths, address):
    """A node's word of its paths: over 15 routers with these addresses and the following ones."""
    rows = np.zeros(15 * len(paths), HopRow)
    rows["path"], rows["hop"] = np.repeat(np.arange(len(paths)), 15), np.tile(np.arange(1, 16), len(paths))
    rows["address"] = address + np.arange(len(rows))
    return HopBatch.of(rows, node=f"node{source}", at_ns=START_NS, paths=tuple(paths))


def test_flows_and_paths_to_nobody_take_no_memory(fabric):
    """A node that makes up names fills nothing; what it says of its flows to others still counts."""
    before = sizes(fabric)
    for turn in range(10):
        names = [f"strange{turn}-{number}.{RAIL}" for number in range(20)]
        fabric.tell(flows_told(0, *(f"{nic(0)}>{name}" for name in names)))
        fabric.tell(hops_told(0, [f"{nic(0)}>{name}#0" for name in names] + [f"{nic(0)}>{nic(2)}#99"], 1))
    assert sizes(fabric) == before
    collide(fabric)
    fabric.run(TOGETHER_S)
    assert verdicts(fabric.take()) == [("fabric-contention", fabric.up(0, 0))]


def test_addresses_that_are_made_up_take_no_memory(fabric):
    """A thousand of links that nobody crosses are remembered. What stands at one stays, whoever makes up others."""
    flows = collide(fabric)
    fabric.run(TOGETHER_S)
    (event,) = fabric.take()
    paths = [str(path) for path in fabric.paths if path.source == nic(0)]
    said = [str(fabric.said(0, 2))]
    for turn in range(25):
        fabric.tell(hops_told(0, [path for path in paths if path not in said], 1_000 * (turn + 1)))
    assert sizes(fabric)[1] < 1_500
    fabric.run(AFTER_S)
    assert fabric.take() == []
    fabric.tell(fabric.hops(0))
    fabric.end(flows[0])
    fabric.run(AFTER_S)
    assert verdicts(fabric.take()) == [("clear", event.who)]
    fabric.flows.append(flows[0])
    fabric.run(TOGETHER_S)
    assert verdicts(fabric.take()) == [("fabric-contention", fabric.up(0, 0))]


def test_a_link_whose_number_was_anothers_knows_nothing_of_it(fabric):
    """What a forgotten link carried at best is no other one's."""
    collide(fabric)
    fabric.run(TOGETHER_S)
    (event,) = fabric.take()
    fabric.end()
    fabric.run(AFTER_S)
    (detector,) = fabric.detector._detectors
    number = detector._links.id_of(event.who)
    assert detector._loads.best(number) > 0
    for turn in range(25):
        fabric.tell(hops_told(0, [str(path) for path in fabric.paths if path.source == nic(0)], 1_000 * (turn + 1)))
        fabric.tell(hops_told(1, [str(path) for path in fabric.paths if path.source == nic(1)], 1_000_000 * (turn + 1)))
    assert detector._links.names[number] != event.who
    assert detector._loads.best(number) == 0


def test_nodes_that_come_and_go_leave_nothing(fabric):
    """With flows both ways: their rows are others' then."""
    collide(fabric)
    fabric.run(TOGETHER_S)
    fabric.take()
    sized = set()
    for turn in range(20):
        guest = f"guest{turn}"
        fabric.tell(guest_record(fabric, guest))
        fabric.tell(msgspec.structs.replace(flows_told(0, f"{nic(0)}>{guest}.{RAIL}"), at_ns=fabric.now_ns))
        told = flows_told(0, f"{guest}.{RAIL}>{nic(0)}", f"{guest}.{RAIL}>{nic(1)}")
        fabric.tell(msgspec.structs.replace(told, node=guest, at_ns=fabric.now_ns))
        fabric.tell(Node(name=guest, nics=()))
        sized.add(sizes(fabric)[0])
    assert len(sized) == 1
    fabric.run(AFTER_S)
    assert fabric.take() == [], "what is told of others stands"


def guest_record(fabric, name):
    """The record of a node that is no host of a fabric."""
    record = fabric.record(0)
    (one,) = record.nics
    return Node(name=name, nics=(msgspec.structs.replace(one, name=f"{name}.{RAIL}", clock=name),))


def test_a_flow_that_was_told_before_its_receiver_was_known_counts_from_then_on(fabric):
    """Its sender tells of the same flows again each half second."""
    (detector,) = fabric.detector._detectors
    names = [f"{nic(0)}>{nic(host)}" for host in (1, 2, 3)] + [f"{nic(0)}>guest{number}.{RAIL}" for number in range(6)]
    fabric.tell(flows_told(0, *names))
    assert detector._flows.row_of(names[-1]) < 0
    fabric.tell(guest_record(fabric, "guest5"))
    fabric.tell(flows_told(0, *names))
    row = detector._flows.row_of(names[-1])
    assert detector._flows.names[row] == names[-1]
    assert detector._flows.rate[row] == pytest.approx(160e6)
    assert detector._flows.row_of(names[-2]) < 0


def test_the_same_words_make_the_same_events():
    """The ids too."""

    def said():
        fabric = LeafSpine(seed=5)
        fabric.run(2)
        collide(fabric)
        fabric.run(TOGETHER_S)
        return fabric.take()

    first = said()
    assert first == said()
    assert len(first) == 1
    assert first[0].since_ns > START_NS


def test_all_detectors_together_say_the_same(fabric):
    """A full queue is no silence and no loss."""
    fabric = idle(2, only="", sweep_hz=10.0)
    for source, destination in ((0, 2), (1, 3)):
        fabric.send_by(source, destination, 0)
        fabric.begin(source, destination)
    fabric.run(TOGETHER_S)
    assert verdicts(fabric.events) == [("fabric-contention", fabric.up(0, 0))]


# -- whose flows they are ----------------------------------------------------------------------------------------------


def register(fabric, name, hosts, since_ns=1, priority=0):
    """Tells the detector of a job."""
    fabric.tell(Job(name=name, nics=tuple(nic(host) for host in hosts), since_ns=since_ns, priority=priority))


def test_an_event_names_the_jobs_of_its_flows(fabric):
    """A registered one by its name, another by the first of its nodes; and so does its end."""
    register(fabric, "large", (0, 2))
    flows = collide(fabric)
    fabric.run(TOGETHER_S)
    (event,) = fabric.take()
    assert event.related["jobs"] == ("found:node1", "large")
    register(fabric, "small", (1, 3))
    fabric.end(flows[1])
    fabric.run(AFTER_S)
    (relief,) = fabric.take()
    assert relief.related["jobs"] == event.related["jobs"]


def test_flows_of_nodes_that_talk_in_a_circle_are_one_jobs(fabric):
    """Also where a flow of it has paused for a while."""
    for source, destination in ((2, 1), (3, 0)):
        fabric.send_by(source, destination, 1)
        fabric.begin(source, destination, wants=1.0)
    fabric.run(2)
    fabric.end()
    fabric.run(4)
    collide(fabric)
    fabric.run(TOGETHER_S)
    (event,) = fabric.take()
    assert event.related["jobs"] == ("found:node0",)


def test_a_job_that_is_not_registered_again_is_a_found_one(fabric):
    """It died without a word."""
    register(fabric, "large", (0, 2))
    fabric.run(0.2)
    fabric.now_ns += 62 * S
    fabric.run(4)
    collide(fabric)
    fabric.run(TOGETHER_S)
    (event,) = fabric.take()
    assert event.related["jobs"] == ("found:node0", "found:node1")


def test_a_job_with_addresses_of_others_is_refused_and_counted(fabric):
    """Of another job's, or of nobody's; its flows are a found one's."""
    register(fabric, "large", (0, 2))
    register(fabric, "thief", (1, 2), since_ns=2)
    register(fabric, "stranger", (8, 9))
    assert fabric.detector.counts["jobs_refused"] == 2
    collide(fabric)
    fabric.run(TOGETHER_S)
    (event,) = fabric.take()
    assert event.related["jobs"] == ("found:node1", "large")


# -- priorities --------------------------------------------------------------------------------------------------------


def fill(first, second, third):
    """Two flows on one of two spines, and one on the other, of jobs with these priorities; each alone first."""
    fabric = idle(2, hosts=3)
    for host, priority in enumerate((first, second, third)):
        register(fabric, f"job{host}", (host, host + 3), priority=priority)
    collide(fabric, [(host, host + 3) for host in range(2)])
    fabric.send_by(2, 5, 1)
    fabric.begin(2, 5)
    fabric.run(TOGETHER_S)
    return fabric


@pytest.mark.parametrize("priorities", [(0, 5, 0), (1, 0, -1)])
def test_where_every_way_is_full_one_that_matters_less_may_yield(priorities):
    """The flow that matters most is short, and it is the one that the event is about; over when it is alone there."""
    fabric = fill(*priorities)
    high = fabric.flows[priorities.index(max(priorities))]
    (event,) = fabric.take()
    assert verdicts([event]) == [("fabric-contention", fabric.up(0, 0))]
    assert event.evidence["slowest"] == high.name
    assert event.evidence["flows"] == 2
    lower = 1 - fabric.flows.index(high)
    fabric.send_by(lower, lower + 3, 1)
    fabric.run(AFTER_S)
    assert ("clear", fabric.up(0, 0)) in verdicts(fabric.take())


@pytest.mark.parametrize("priorities", [(0, 0, 0), (5, 5, 0), (5, 0, 5)])
def test_where_every_way_is_full_nobody_yields_to_one_that_matters_no_more(priorities):
    """Neither on the shared link nor on the other one."""
    assert fill(*priorities).take() == []
