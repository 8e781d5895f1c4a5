"""Contention where no router answers: the link that delays tell of, its flows, and nothing that is not so."""

from __future__ import annotations

import pytest
from drawn_fabric import drawn
from leaf_spine import LeafSpine, idle, nic
from test_detector_contention import AFTER_S, SOLO_S, TOGETHER_S, collide, verdicts

from draws import draws
from foliot.link_map import is_inferred
from foliot_schemas.names import Path, parse_path

SEEDS = draws(1)


@pytest.fixture
def fabric():
    """Two leaves of three hosts, three spines, and no router that answers; it has been idle for two seconds."""
    return idle(2, hosts=3, spines=3, entropies=6, silent={"all"})


def way(fabric, flow):
    """The name of a flow's path."""
    return str(Path(nic(flow.source), nic(flow.destination), fabric.ways[flow.source, flow.destination]))


def shared(fabric, event):
    """The links between routers that all flows of an event cross."""
    flows = [flow for flow in fabric.flows if flow.name in event.related["flows"]]
    crossed = [{link for link in fabric.way(flow) if "/" not in link} for flow in flows]
    return set.intersection(*crossed)


@pytest.mark.parametrize("count", [2, 3])
def test_flows_on_one_link_are_found_by_their_delays(fabric, count):
    """The link has the name of the first of its paths, and is over as one with routers is."""
    flows = collide(fabric, [(host, host + 3) for host in range(count)])
    begun_ns = fabric.now_ns
    fabric.run(TOGETHER_S)
    (event,) = fabric.take()
    ways = tuple(sorted(way(fabric, flow) for flow in flows))
    assert verdicts([event]) == [("fabric-contention", f"inferred:{ways[0]}")]
    assert event.at_ns < begun_ns + 3_000_000_000
    assert (event.related["links"], event.related["paths"]) == ((event.who,), ways)
    assert event.related["flows"] == tuple(sorted(flow.name for flow in flows))
    assert event.evidence["correlation"] > 0.8
    assert event.evidence["carried_mbps"] == pytest.approx(94, rel=0.1)
    fabric.end(*flows[1:])
    fabric.run(AFTER_S)
    (relief,) = fabric.take()
    assert (relief.state, relief.who, relief.related) == ("clear", event.who, event.related)


def test_an_event_names_the_ways_that_are_not_late(fabric):
    """Of the flows' own pairs, and by other spines."""
    collide(fabric, [(0, 3), (1, 4)])
    fabric.run(TOGETHER_S)
    (event,) = fabric.take()
    free = [parse_path(path) for path in event.related["free"]]
    assert {(path.source, path.destination) for path in free} == {(nic(0), nic(3)), (nic(1), nic(4))}
    assert {fabric.spine_of[path] for path in free} == {1, 2}


def test_where_all_other_ways_are_late_nothing_is_said():
    """There is one spine."""
    fabric = idle(2, spines=1, silent={"all"})
    collide(fabric)
    fabric.run(TOGETHER_S)
    assert fabric.take() == []


def test_two_links_at_once_are_two():
    """In two directions, and in one moment: queues of both rise together, and vary differently."""
    fabric = LeafSpine(hosts=2, spines=2, silent={"all"})
    fabric.spread = 0.05
    fabric.run(2)
    collide(fabric)
    for source, destination in ((2, 0), (3, 1)):
        fabric.send_by(source, destination, 1)
        fabric.begin(source, destination)
    fabric.run(TOGETHER_S)
    events = fabric.take()
    pairs = [fabric.flows[:2], fabric.flows[2:]]
    assert {event.related["flows"] for event in events} == {tuple(sorted(flow.name for flow in pair)) for pair in pairs}
    assert len({event.who for event in events}) == len(events) == 2


def test_a_link_that_a_flow_leaves_is_over_and_the_next_is_another(fabric):
    """One moves away, and meets a third."""
    collide(fabric, [(0, 3), (1, 4)])
    fabric.run(TOGETHER_S)
    (first,) = fabric.take()
    fabric.send_by(2, 5, 1)
    fabric.begin(2, 5)
    fabric.run(3)
    fabric.send_by(1, 4, 1)
    fabric.run(TOGETHER_S)
    clear, second = fabric.take()
    assert verdicts([clear]) == [("clear", first.who)]
    assert is_inferred(second.who)
    assert second.who != first.who
    assert second.related["flows"] == tuple(sorted(flow.name for flow in fabric.flows[1:]))


def test_routers_that_answer_later_are_believed(fabric):
    """What was inferred is over, and the link has its name."""
    collide(fabric, [(0, 3), (1, 4)])
    fabric.run(TOGETHER_S)
    (inferred,) = fabric.take()
    fabric.silent.clear()
    for host in range(fabric.hosts):
        fabric.tell(fabric.hops(host))
    fabric.run(TOGETHER_S)
    assert verdicts(fabric.take()) == [("clear", inferred.who), ("fabric-contention", fabric.up(0, 0))]


def test_what_an_earlier_run_said_is_ended_by_the_next(fabric):
    """Its paths are in the event."""
    flows = collide(fabric, [(0, 3), (1, 4)])
    fabric.run(TOGETHER_S)
    (event,) = fabric.take()
    fabric.start_detector()
    fabric.detector.resume(event)
    fabric.run(15)
    assert fabric.take() == []
    fabric.end(flows[1])
    fabric.run(AFTER_S)
    assert verdicts(fabric.take()) == [("clear", event.who)]


def test_flows_that_were_never_alone_tell_of_nothing():
    """Nobody knows what a link carries, and so how many links there are."""
    fabric = idle(2, silent={"all"})
    for source, destination in ((0, 2), (1, 3)):
        fabric.send_by(source, destination, 0)
        fabric.begin(source, destination)
    fabric.run(TOGETHER_S)
    assert fabric.take() == []


def test_in_a_large_fleet_paths_are_watched_once_they_have_a_flow(monkeypatch, fabric):
    """Then a NIC with one flow has no other path to tell what is its own doing; its other paths are not late."""
    monkeypatch.setattr("foliot_detector.core.detectors.contention.inferred_links._MOST_WATCHED", 4)
    collide(fabric, [(0, 3)])
    fabric.send_by(1, 4, 0)
    fabric.flows[0].wants = 20.0
    fabric.begin(1, 4, wants=20.0)
    fabric.run(3)
    for flow in fabric.flows:
        flow.wants = None
    fabric.run(TOGETHER_S)
    (event,) = fabric.take()
    assert event.related["paths"] == tuple(sorted(way(fabric, flow) for flow in fabric.flows))


def test_lone_flows_on_narrow_links_share_none():
    """Each fills a way of its own, and both began in one moment."""
    fabric = idle(2, up_mbps=50.0, silent={"all"})
    for source, destination, spine in ((0, 2, 0), (1, 3, 1)):
        fabric.send_by(source, destination, spine)
        fabric.begin(source, destination)
    fabric.run(TOGETHER_S)
    assert fabric.take() == []


def test_flows_of_two_busy_nics_share_no_link():
    """Two hosts with two flows each: they are their own doing."""
    fabric = idle(2, hosts=3, spines=2, silent={"all"})
    for source in (0, 1):
        alone = fabric.begin(source, 3)
        fabric.run(SOLO_S)
        fabric.end(alone)
    fabric.run(1)
    for source, destination, spine in ((0, 3, 0), (0, 4, 1), (1, 5, 0), (1, 4, 1)):
        fabric.send_by(source, destination, spine)
        fabric.begin(source, destination)
    fabric.run(TOGETHER_S)
    assert not [event for event in fabric.take() if event.state == "fabric-contention"]


# -- lookalikes --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("flows", "verdict"),
    [
        (((0, 3, 0), (0, 4, 1)), [("own-nic", nic(0))]),
        (((0, 3, 0), (1, 3, 1)), [("incast", nic(3))]),
        (((0, 3, 0),), []),
        (((0, 3, 0), (1, 4, 1), (2, 5, 2)), []),
    ],
    ids=["own NIC", "incast", "alone", "apart"],
)
def test_what_nics_do_is_theirs(fabric, flows, verdict):
    """And flows that share nothing are no trouble."""
    alone = fabric.begin(0, 4)
    fabric.run(SOLO_S)
    fabric.end(alone)
    fabric.run(1)
    for source, destination, spine in flows:
        fabric.send_by(source, destination, spine)
        fabric.begin(source, destination)
    fabric.run(TOGETHER_S)
    assert verdicts(fabric.take()) == verdict


def test_a_slow_receiver_is_found_as_ever(fabric):
    """The kernel says so."""
    flow = fabric.begin(0, 3)
    fabric.run(SOLO_S)
    flow.reads = 20.0
    fabric.run(TOGETHER_S)
    assert verdicts(fabric.take()) == [("slow-receiver", flow.name)]


@pytest.mark.parametrize(("place", "verdict"), [
    ("10.1.0.0", []), (f"{nic(0)}/out", [("reduced-rate", nic(0))]), (f"{nic(3)}/in", [("reduced-rate", nic(3))]),
])  # fmt: skip
def test_a_reduced_rate_is_told_of_nics_alone(fabric, place, verdict):
    """Of a link between silent routers, one flow says nothing."""
    fabric.send_by(0, 3, 0)
    fabric.begin(0, 3)
    fabric.run(SOLO_S)
    fabric.mbps[place] = 40.0
    fabric.run(TOGETHER_S)
    assert verdicts(fabric.take()) == verdict


def test_where_every_way_is_full_the_link_that_is_named_is_shared():
    """Nobody knows that the other way is full, too: one flow fills it without a queue."""
    fabric = idle(2, hosts=3, silent={"all"})
    collide(fabric, [(0, 3), (1, 4)])
    fabric.send_by(2, 5, 1)
    fabric.begin(2, 5)
    fabric.run(TOGETHER_S)
    (event,) = fabric.take()
    assert shared(fabric, event) == {fabric.up(0, 0), fabric.down(0, 1)}


# -- drawn -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [2, 3])
def test_drawn_collisions_are_found_and_nothing_else(size):
    """Within four seconds; and all flows that are named share a link."""
    found_s = []
    for seed in SEEDS:
        it = drawn(seed, silent={"all"})
        it.go(*zip(it.sources[:size], it.destinations, [it.spine] * size, strict=False), alone=True)
        begun_ns = it.fabric.now_ns
        it.fabric.run(5)
        events = it.fabric.take()
        assert all(shared(it.fabric, event) for event in events), seed
        assert all(len(event.related["flows"]) == len(it.fabric.flows) for event in events), seed
        found_s += [(event.at_ns - begun_ns) / 1e9 for event in events]
    assert len(found_s) >= 0.9 * len(SEEDS)
    assert max(found_s) <= 4


@pytest.mark.parametrize("gap_s", [0.0, 0.4])
def test_of_two_drawn_collisions_no_flow_is_named_beside_one_of_the_other(gap_s):
    """One in each direction between two leaves, at once or nearly so."""
    named = 0
    for seed in SEEDS:
        it = drawn(seed, silent={"all"})
        it.go(*zip(it.sources[:2], it.destinations, [it.spine] * 2, strict=False), alone=True)
        it.fabric.run(gap_s)
        it.go(*zip(it.destinations[:2], it.sources, [it.other] * 2, strict=False), alone=False)
        it.fabric.run(5)
        events = it.fabric.take()
        assert all(shared(it.fabric, event) for event in events if event.state != "clear"), seed
        named += len(events)
    assert named
