"""Contention: the fewest flows leave a link that they share, if that gains something, and come back if it does not."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest
from contention_world import LINE, SPINES, ContentionWorld, flow, to_leaf, to_spine
from prepared import prepared
from remediator_world import SECOND, World, make_node

from draws import draws
from foliot.node.shard import Shard
from foliot_remediator.core.remediator import Remediator
from foliot_remediator.core.remedies.contention.rail_traffic import RailTraffic
from foliot_remediator.core.state.inventory import Destination
from foliot_remediator.core.state.routing_table import Cause
from foliot_remediator.core.steering.rail_flows import Plan
from foliot_remediator.settings import PlacementRule, RemediatorSettings
from foliot_schemas import Job, Node, Placement

TWO = (flow(0, 4), flow(1, 5))
CHOSEN = Cause("chosen", "")
THREE = (*TWO, flow(2, 6))


def world_of(flows=TWO, **settings):
    """A fabric with these flows, all of them on the first spine."""
    return prepared(ContentionWorld, flows=flows, **settings)


def moves(commands):
    """Which node was told which entropy."""
    return {(command.node, way.peer): way.entropy for command in commands for way in command.placements}


def home(world, name):
    """The home of a flow's traffic."""
    source, sink = name.split(">")
    return world.core.homes.of(Destination(source.partition(".")[0], *sink.split(".")))


def megabits(world):
    """What each flow gets, Mb/s."""
    return [round(rate / 1e6) for rate in world.rates().values()]


# -- moves ------------------------------------------------------------------------------------------------------------


def test_one_of_two_flows_gets_another_home():
    """One command takes it there; the other stays, and both get what they want."""
    world = world_of()
    assert megabits(world) == [50, 50]
    (command,) = world.contend()
    assert (command.verb, command.cause, command.fault) == (
        "reroute",
        "10.1.0.0/contention-1/fabric-contention",
        "10.1.0.0/contention-1",
    )
    assert command.id.startswith("10.1.0.0/contention-1/fabric-contention/contention/reroute/")
    (way,) = command.placements
    assert way.entropy != 0
    assert megabits(world) == [100, 100]
    assert world.core.homes.choice(Destination(command.node, way.peer, way.rail)) == way
    assert world.homes[command.node].placements == (way,)
    assert not world.core.routing.moved
    assert world.run(20.0) == []
    assert world.refusals == []


def test_of_three_flows_two_are_moved_where_it_is_known_what_they_want():
    """They had a link each before: to spines of their own, in one go."""
    world = world_of(())
    for number, name in enumerate(THREE):
        world.flows = {name: LINE}
        world.run(2.0 + number)
    world.flows = dict.fromkeys(THREE, LINE)
    world.run(2.0)
    given = moves(world.contend())
    assert len(given) == 2
    assert len({0, *given.values()}) == 3
    assert megabits(world) == [100, 100, 100]


def test_of_three_flows_that_never_had_more_one_is_moved_first():
    """Nobody knows that they want more than an equal part of what two would have; then the next one is moved."""
    world = world_of(THREE)
    assert len(moves(world.contend())) == 1
    assert sorted(megabits(world)) == [50, 50, 100]
    assert len(moves(world.run(20.0))) == 1
    assert megabits(world) == [100, 100, 100]
    assert world.refusals == []


def test_flows_that_want_no_more_than_they_get_stay():
    """The link is full, and nobody is short."""
    world = world_of(())
    world.flows = dict.fromkeys(TWO, LINE / 2.1)
    world.run(3.0)
    assert world.contend() == world.run(5.0) == []
    assert world.guards() == ["no-alternative"]


def test_where_no_way_is_free_nothing_moves():
    """Six flows leave a leaf with four uplinks, and are spread as well as they can be; and it says so, once."""
    world = world_of((), nodes=12)
    for number in range(6):
        way = Placement(peer=f"node{number + 6}", rail="rail0", via="rail0", entropy=number % SPINES)
        world.core.assign_home(Destination(f"node{number}", way.peer, "rail0"), way, CHOSEN)
    world.run(3.0)
    world.flows = {flow(number, number + 6): LINE for number in range(6)}
    world.run(3.0)
    before = len(world.commands)
    world.contend(flows=[flow(0, 6), flow(4, 10)])
    world.run(10.0)
    assert len(world.commands) == before
    assert world.guards() == ["no-alternative"]
    assert world.refusals[0].evidence["flows"] == 2


def test_the_contended_link_may_be_the_far_one():
    """Flows of two leaves meet on the way to a third."""
    world = world_of((flow(0, 4), flow(1, 5)))
    assert len(world.contend(to_leaf(0, 1))) == 1
    assert megabits(world) == [100, 100]


def test_two_contended_links_of_a_rail_are_seen_to_one_after_the_other():
    """The second as soon as flows have found what they get after the moves for the first."""
    world = world_of((), nodes=16)
    for node in (2, 3):
        way = Placement(peer=f"node{node + 8}", rail="rail0", via="rail0", entropy=1)
        world.core.assign_home(Destination(f"node{node}", way.peer, "rail0"), way, CHOSEN)
    world.run(3.0)
    world.flows = {flow(node, node + 8): LINE for node in range(4)}
    world.run(2.0)
    assert sorted(megabits(world)) == [50, 50, 50, 50]
    first = world.contend(flows=(flow(0, 8), flow(1, 9)))
    assert len(moves(first)) == 1
    assert world.contend(to_spine(0, 1), (flow(2, 10), flow(3, 11))) == []
    assert {node for node, _ in moves(world.run(3.0))} <= {"node2", "node3"}
    assert megabits(world) == [100, 100, 100, 100]
    assert world.run(12.0) == []
    assert world.refusals == []


@pytest.mark.parametrize("seed", draws(2))
def test_wherever_flows_begin_nobody_has_less_afterwards(seed):
    """As many flows as spines, at random: one event is enough for any of their links, and each flow moves once."""
    chance = np.random.default_rng(seed)
    world = world_of((), nodes=2 * SPINES)
    names = [flow(node, SPINES + peer) for node, peer in enumerate(chance.permutation(SPINES).tolist())]
    for name in names:
        home = world.way_of(name)
        way = msgspec.structs.replace(home, entropy=int(chance.integers(2)))
        world.core.assign_home(Destination(name.partition(".")[0], home.peer, "rail0"), way, CHOSEN)
    world.run(3.0)
    world.flows = dict.fromkeys(names, LINE)
    world.run(2.0)
    before = len(world.commands)
    for spine in (0, 1):
        sharing = [name for name in names if world.way_of(name).entropy == spine]
        if len(sharing) > 1:
            world.contend(to_spine(0, spine), sharing)
            world.run(22.0)
    moved = [*moves(world.commands[before:])]
    assert megabits(world) == [100] * SPINES
    assert len(moved) == len(world.commands) - before <= 3
    assert world.refusals == []


def test_events_that_come_in_a_flood_hold_up_nobody(monkeypatch):
    """Not more than two plans a second are made, however many links are said to be contended."""
    world = world_of((flow(0, 4), flow(1, 5)), improve="act")
    planned = []
    monkeypatch.setattr(RailTraffic, "plan", lambda self, _rng, _most: (planned.append(self), Plan())[1])
    for number in range(50):
        link = to_spine(0, 0)
        world.see(msgspec.structs.replace(world.contention(link, TWO, number=number), who=f"link{number}"))
    world.run(2.0)
    assert 3 <= len(planned) <= 5


# -- limits -----------------------------------------------------------------------------------------------------------


def known_three(**settings):
    """Three flows on one link, of which it is known what they want."""
    world = world_of((), **settings)
    for name in THREE:
        world.flows = {name: LINE}
        world.run(2.0)
    world.flows = dict.fromkeys(THREE, LINE)
    world.run(2.0)
    return world


def test_no_more_is_moved_in_a_minute_than_the_budget_has():
    """It says so; failover's budget is another, and the rest follows when there is room."""
    world = known_three(improvements_per_minute=1)
    assert len(moves(world.contend())) == 1
    assert world.guards() == ["moves-per-minute"]
    assert world.refusals[0].evidence == {
        "verb": "reroute", "moves": 2, "moved_last_minute": 0, "moves_per_minute": 1, "moves_now": 1,
    }  # fmt: skip
    assert world.core.remedies["losses"].budget.moved(world.now_ns) == 0
    assert world.run(10.0) == world.wait(30.0) == []
    assert len(moves(world.run(60.0))) == 1


@pytest.mark.parametrize(
    "settings", [{}, {"improve": "act", "restore": "advise"}, {"improve": "act", "reroute": "advise"}]
)
def test_advice_says_what_would_be_moved_and_moves_nothing(settings):
    """That is the default; and what may not be taken back is not moved."""
    world = ContentionWorld(TWO, **{"improve": "advise", **settings})
    (command,) = world.contend()
    assert command.advice
    assert len(command.placements) == 1
    world.run(10.0)
    assert len(world.commands) == 1
    assert (world.homes, megabits(world), world.guards()) == ({}, [50, 50], [])


def test_advice_is_the_default():
    """To act is a decision of its own."""
    assert RemediatorSettings().improve == "advise"


def test_off_moves_nothing_and_says_so():
    """Once for each event."""
    world = world_of(improve="off")
    assert world.contend() == world.run(3.0) == []
    assert world.guards() == ["policy"]


def test_a_flow_is_moved_once_in_its_interval():
    """If others come to its new link, they are to leave it."""
    world = world_of()
    ((node, _), entropy) = moves(world.contend()).popitem()
    world.contend(state="clear")
    world.run(10.0)
    third = flow(2, 6)
    world.core.assign_home(
        Destination("node2", "node6", "rail0"),
        Placement(peer="node6", rail="rail0", via="rail0", entropy=entropy), CHOSEN,
    )  # fmt: skip
    world.flows[third] = LINE
    world.run(3.0)
    mover = next(name for name in TWO if name.startswith(f"{node}."))
    given = moves(world.contend(to_spine(0, entropy), (mover, third), number=2))
    assert [*given] == [("node2", "node6")]
    assert megabits(world) == [100, 100, 100]


@pytest.mark.parametrize(("placed", "other"), [(0, 1), (1, 0)])
def test_what_an_administrator_placed_stays(placed, other):
    """The other flow moves."""
    rule = PlacementRule(node=f"node{placed}", peer=f"node{placed + 4}", rail="rail0", via="rail0", entropy=0)
    world = world_of(placements=(rule,))
    assert [*moves(world.contend())] == [(f"node{other}", f"node{other + 4}")]


def test_what_is_placed_only_at_first_moves():
    """A placement that is not pinned says where traffic begins."""
    rules = tuple(
        PlacementRule(node=f"node{node}", peer=f"node{node + 4}", rail="rail0", via="rail0", entropy=0, pinned=False)
        for node in range(2)
    )
    assert len(moves(world_of(placements=rules).contend())) == 1


def test_a_way_that_nobody_hears_is_not_taken():
    """Of three, two are silent or unknown."""
    world = world_of()
    for source, sink in ((0, 4), (1, 5)):
        world.silent.add(f"node{source}.rail0>node{sink}.rail0#1")
        world.path_event(f"node{source}.rail0>node{sink}.rail0#2", "lossy")
    world.run(3.0)
    assert {*moves(world.contend()).values()} == {3}


# -- priorities -------------------------------------------------------------------------------------------------------


def two_ways(*homes, **settings):
    """Flows of nodes with two ways that are heard, each beginning on one of them; all had a link alone before."""
    world = world_of((), **settings)
    flows = [flow(node, node + 4) for node in range(len(homes))]
    for node, entropy in enumerate(homes):
        world.silent |= {f"node{node}.rail0>node{node + 4}.rail0#{spine}" for spine in (2, 3)}
        way = Placement(peer=f"node{node + 4}", rail="rail0", via="rail0", entropy=entropy)
        world.core.assign_home(Destination(f"node{node}", way.peer, "rail0"), way, CHOSEN)
    for name in flows:
        world.flows = {name: LINE}
        world.run(2.0)
    world.flows = dict.fromkeys(flows, LINE)
    world.run(2.0)
    world.decisions.clear()
    return world


def register(world, node, priority, name=""):
    """The job of a node and its peer is registered."""
    nics = (f"node{node}.rail0", f"node{node + 4}.rail0")
    world.see(Job(name=name or f"job{node}", nics=nics, priority=priority, since_ns=1))


@pytest.mark.parametrize("high", range(3))
def test_of_three_flows_with_two_ways_the_one_that_matters_most_is_alone(high):
    """It keeps its rate, and the other two share a link, as there is no other; nobody gets less than before."""
    world = two_ways(0, 0, 0)
    register(world, high, 5)
    (command,) = world.contend()
    assert megabits(world) == [100 if node == high else 50 for node in range(3)]
    assert command.evidence == {}
    assert world.run(20.0) == []
    assert world.guards() == ["no-alternative"]


@pytest.mark.parametrize(("priority", "others"), [(5, None), (5, 4), (0, -1)])
def test_a_flow_that_matters_less_yields(priority, others):
    """It goes where another one loses by it; the command says who loses, and for whom. Nobody takes it back."""
    world = two_ways(0, 0, 1)
    register(world, 0, priority)
    for node in (1, 2) if others is not None else ():
        register(world, node, others)
    assert megabits(world) == [50, 50, 100]
    (command,) = world.contend(flows=TWO)
    assert moves([command]) == {("node1", "node5"): 1}
    assert megabits(world) == [100, 50, 50]
    assert command.evidence == {
        "gaining": flow(0, 4), "gaining_priority": priority, "gaining_mbps": 50.0, "gaining_predicted_mbps": 100.0,
        "losing": flow(2, 6), "losing_priority": others or 0, "losing_mbps": 100.0, "losing_predicted_mbps": 50.0,
        "losing_flows": 1, "lost_mbps": 50.0,
    }  # fmt: skip
    assert world.run(20.0) == []
    assert world.refusals == []


@pytest.mark.parametrize("priorities", [{}, {0: 5, 1: 5, 2: 5}, {2: 5}, {0: -1}, {0: 5, 1: 5}])
def test_nobody_yields_to_one_that_matters_no_more(priorities):
    """As all matter alike, or the one that has a way for itself matters most, or one more would not help."""
    world = two_ways(0, 0, 1)
    for node, priority in priorities.items():
        register(world, node, priority)
    assert world.contend(flows=TWO) == world.run(5.0) == []
    assert world.guards() == ["no-alternative"]


@pytest.mark.parametrize("silent_s", [0, 61])
def test_a_job_that_is_over_has_no_priority(silent_s):
    """Whoever registered it took it out, or does not tell of it any more."""
    world = two_ways(0, 0, 1)
    register(world, 0, 5)
    if silent_s:
        world.run(silent_s)
    else:
        world.see(Job(name="job0", nics=()))
    assert world.contend(flows=TWO) == []
    assert world.guards() == ["no-alternative"]


def test_a_job_that_begins_is_a_reason_to_look_again():
    """Nothing could be done before, and so the next look would have been a minute later; a renewal is none."""
    world = two_ways(0, 0, 1)
    assert world.contend(flows=TWO) == world.run(60.0) == []
    register(world, 0, 5)
    assert moves(world.run(1.0)) == {("node1", "node5"): 1}
    assert world.run(4.0) == []
    looks = world.core.remedies["contention"]._incidents[to_spine(0, 0)].looks
    register(world, 0, 5)
    assert world.core.remedies["contention"]._incidents[to_spine(0, 0)].looks == looks


def test_a_job_of_others_nics_has_no_say():
    """Traffic between two jobs is of neither; NICs that the fleet does not have make no job."""
    world = two_ways(0, 0, 1)
    world.see(Job(name="a", nics=("node8.rail0", "node9.rail0"), priority=5, since_ns=1))
    world.see(Job(name="b", nics=("node0.rail0", "node7.rail0"), priority=5, since_ns=1))
    assert world.contend(flows=TWO) == []
    assert world.guards() == ["no-alternative"]


def test_a_job_keeps_its_priority_when_one_of_its_nodes_leaves():
    """It is registered as before, and one of its nodes was replaced."""
    world = two_ways(0, 0, 1)
    job = Job(name="job0", nics=tuple(f"node{node}.rail0" for node in (0, 3, 4)), priority=5, since_ns=1)
    world.see(job)
    world.names.remove("node3")
    world.see(Node(name="node3", nics=()))
    for _ in range(3):
        world.wait(30.0)
        world.see(job)
    world.run(2.0)
    assert moves(world.contend(flows=TWO)) == {("node1", "node5"): 1}


def test_who_yields_comes_back_if_the_other_does_not_gain():
    """Something else holds that one up: the gain did not come, so the loss was for nothing."""
    world = two_ways(0, 0, 1)
    register(world, 0, 5)
    world.unfair = {flow(0, 4): LINE / 2}
    world.contend(flows=TWO)
    given = world.run(12.0)
    assert [(command.verb, command.node) for command in given] == [("restore", "node1")]
    (refusal,) = world.refusals
    assert (refusal.policy, refusal.who) == ("no-gain", flow(1, 5))
    assert refusal.evidence["for"] == "node0>node4/rail0"
    assert [round(refusal.evidence[name]) for name in ("before_mbps", "after_mbps", "predicted_mbps")] == [50, 50, 100]
    world.unfair = {}
    assert megabits(world) == [50, 50, 100]


def test_what_matters_less_beside_a_move_may_lose_more_than_was_predicted():
    """The gain of the other has come."""
    world = two_ways(0, 0, 1)
    register(world, 0, 5)
    world.unfair = {flow(2, 6): LINE / 10}
    world.contend(flows=TWO)
    assert world.run(12.0) == []
    assert world.refusals == []


# -- doubts -----------------------------------------------------------------------------------------------------------


def test_a_detector_that_names_flows_that_do_not_send_moves_nothing():
    """Their own nodes say otherwise."""
    world = world_of((flow(0, 4), flow(1, 5)))
    world.contend(flows=(flow(2, 6), flow(3, 7)))
    world.run(10.0)
    assert world.commands == []
    assert world.guards() == ["contradicted"]
    assert world.refusals[0].evidence["flows_idle"] == 2


def test_one_node_alone_moves_nothing():
    """Both of the flows are its own."""
    world = world_of((flow(0, 4), flow(0, 5), flow(1, 6)))
    world.contend(flows=(flow(0, 4), flow(0, 5)))
    world.run(10.0)
    assert world.commands == []
    assert world.guards() == ["contradicted"]


def test_a_link_that_the_flows_do_not_cross_is_contradicted():
    """By what is known of their paths."""
    world = world_of()
    world.contend(to_spine(0, 3))
    world.run(10.0)
    assert (world.commands, world.guards()) == ([], ["contradicted"])


def test_flows_that_the_fleet_does_not_have_are_unknown():
    """Nothing moves for them."""
    world = world_of()
    world.contend(flows=("node8.rail0>node9.rail0", "nonsense"))
    world.run(10.0)
    assert (world.commands, world.guards()) == ([], ["unknown"])


def test_stale_words_move_nothing():
    """The senders have said nothing for a while; once they do, the flow moves."""
    world = world_of()
    world.muted = {*world.names}
    world.run(4.0)
    world.contend()
    assert world.run(3.0) == []
    assert world.guards() == ["stale-observation"]
    world.muted = set()
    assert len(moves(world.run(10.0))) == 1


def test_words_that_come_a_moment_after_the_event_are_no_refusal():
    """The detector heard them first."""
    world = world_of()
    world.muted = {*world.names}
    world.run(3.0)
    world.contend()
    world.muted = set()
    assert len(moves(world.run(3.0))) == 1
    assert world.refusals == []


def test_nothing_moves_before_everybody_was_heard():
    """Of a way that seems free, the one who fills it may not have spoken yet; by then it is known."""
    world = world_of((*TWO, flow(2, 6), flow(3, 7)))
    for spine in (2, 3):
        world.silent |= {f"node{node}.rail0>node{node + 4}.rail0#{spine}" for node in range(4)}
    way = Placement(peer="node6", rail="rail0", via="rail0", entropy=1)
    world.core.assign_home(Destination("node2", "node6", "rail0"), way, CHOSEN)
    world.core.assign_home(Destination("node3", "node7", "rail0"), msgspec.structs.replace(way, peer="node7"), CHOSEN)
    world.run(4.0)
    before = len(world.commands)
    world.muted = {*world.names}
    world.run(12.0)
    world.contend(flows=TWO)
    world.muted = {"node2", "node3"}
    world.run(1.0)
    world.muted = set()
    world.run(10.0)
    assert len(world.commands) == before
    assert world.guards() == ["no-alternative"]


def test_traffic_over_unknown_links_is_a_doubt(monkeypatch):
    """It may fill any way that seems free."""
    routers = ContentionWorld.routers
    monkeypatch.setattr(
        ContentionWorld, "routers", lambda self, path: [] if path.startswith("node3.") else routers(self, path)
    )
    world = world_of((*TWO, flow(3, 7)))
    world.contend(flows=TWO)
    world.run(5.0)
    assert (world.commands, world.guards()) == ([], ["unknown-links"])
    assert world.refusals[0].evidence["mbps_unmapped"] > 0
    little = world_of()
    little.flows[flow(3, 7)] = LINE / 20
    little.run(3.0)
    assert len(moves(little.contend(flows=TWO))) == 1


@pytest.mark.parametrize("links", [(), ("node0.rail0/out",)])
def test_an_event_that_names_no_link_between_routers_moves_nothing(links):
    """Where routers are silent, or the NIC is what is short."""
    world = world_of()
    world.see(msgspec.structs.replace(world.contention(to_spine(0, 0), TWO), related={"links": links, "flows": TWO}))
    world.run(10.0)
    assert (world.commands, world.guards()) == ([], ["unknown-links"])


def test_paths_whose_routers_are_silent_move_nothing(monkeypatch):
    """No way is known to be another one."""
    monkeypatch.setattr(ContentionWorld, "routers", lambda _self, _path: [])
    world = ContentionWorld(TWO)
    world.contend()
    world.run(10.0)
    assert (world.commands, world.guards()) == ([], ["unknown-links"])


# -- where no router answers -------------------------------------------------------------------------------------------


def silent_world(flows=TWO, **settings):
    """A fabric of which nobody knows over which links paths go."""
    world = ContentionWorld((), **settings)
    world.routers = lambda _path: []
    world.core.links.forget_paths(world.core.links.paths())
    for number, name in enumerate(flows):
        world.flows = {name: LINE}
        world.run(2.0 + number)
    world.flows = dict.fromkeys(flows, LINE)
    world.run(2.0)
    return world


def test_a_flow_leaves_an_inferred_link_for_the_quickest_way_that_is_not_late():
    """One of two, as the event says which ways share the link and which are not late."""
    world = silent_world()
    assert megabits(world) == [50, 50]
    world.see(world.inferred(TWO, free=(3, 1)))
    assert [*moves(world.run(0.1)).values()] == [3]
    assert megabits(world) == [100, 100]
    assert world.run(20.0) == []
    assert world.refusals == []


def test_of_three_flows_two_leave_an_inferred_link():
    """To ways that nobody knows to be different ones. Here they are one, and both have more than at home."""
    world = silent_world(THREE)
    world.see(world.inferred(THREE, free=(2, 1)))
    assert [*moves(world.run(0.1)).values()] == [2, 2]
    assert sorted(megabits(world)) == [50, 50, 100]
    assert world.run(10.0) == []
    assert world.guards() == []


def test_flows_that_have_no_more_on_another_link_come_back_to_an_inferred_one():
    """That way is narrow, of which nobody has told."""
    world = silent_world(THREE)
    world.capacity[to_spine(0, 2)] = LINE / 2
    world.see(world.inferred(THREE, free=(2, 1)))
    assert [*moves(world.run(0.1)).values()] == [2, 2]
    world.run(10.0)
    assert world.guards() == ["no-gain", "no-gain"]
    assert [world.way_of(name).entropy for name in THREE] == [0, 0, 0]


@pytest.mark.parametrize("free", [(), (0,)], ids=["none", "its own"])
def test_where_no_way_is_said_to_be_free_nothing_leaves_an_inferred_link(free):
    """All other ways are late, or were not heard."""
    world = silent_world()
    world.see(world.inferred(TWO, free=free))
    world.run(5.0)
    assert (world.commands, world.guards()) == ([], ["no-alternative"])


def test_a_way_that_fell_silent_since_is_not_taken():
    """It was quick when the event was made."""
    world = silent_world()
    world.silent |= {f"node{node}.rail0>node{node + 4}.rail0#3" for node in range(4)}
    world.run(4.0)
    world.see(world.inferred(TWO, free=(3, 1)))
    assert [*moves(world.run(0.1)).values()] == [1]


def test_an_inferred_link_that_its_flows_have_left_moves_nothing():
    """Nor one of which routers tell otherwise by now."""
    world = silent_world()
    event = world.inferred(TWO, free=(3, 1))
    for node in range(2):
        way = Placement(peer=f"node{node + 4}", rail="rail0", via="rail0", entropy=2)
        world.core.assign_home(Destination(f"node{node}", way.peer, "rail0"), way, CHOSEN)
    world.run(3.0)
    before = len(world.commands)
    world.see(event)
    world.run(5.0)
    assert (len(world.commands), world.guards()) == (before, ["unknown-links"])
    told = silent_world()
    event = told.inferred(TWO, free=(3, 1))
    del told.routers
    told.tell_hops()
    told.see(event)
    told.run(5.0)
    assert (told.commands, told.guards()) == ([], ["contradicted"])


def test_what_was_inferred_long_ago_moves_nothing():
    """Which ways are late may have changed."""
    world = silent_world()
    event = world.inferred(TWO, free=(3, 1))
    world.run(11.0)
    world.see(event)
    assert (world.run(5.0), world.guards()) == ([], ["stale-observation"])
    assert world.refusals[0].evidence["age_s"] > 10


def test_a_way_with_a_silent_router_is_not_taken(monkeypatch):
    """Its link may be any."""
    routers = ContentionWorld.routers

    def some(self, path):
        return [hop for hop in routers(self, path) if path.endswith("#0") or hop[0] != 2]

    monkeypatch.setattr(ContentionWorld, "routers", some)
    world = ContentionWorld(TWO)
    world.contend()
    world.run(10.0)
    assert (world.commands, world.guards()) == ([], ["no-alternative"])


def test_a_way_whose_last_router_is_silent_is_not_taken(monkeypatch):
    """The link that enters it may be any, and full, though nothing in what senders tell of the way shows it."""
    routers = ContentionWorld.routers

    def some(self, path):
        found = routers(self, path)
        if path.endswith("#0"):
            return found
        # The far leaf answers neither as the last router nor as the first one of the way back.
        return found[:-1] if path.startswith(("node0.", "node1.")) else found[1:]

    monkeypatch.setattr(ContentionWorld, "routers", some)
    world = ContentionWorld(TWO)
    world.contend()
    world.run(10.0)
    assert (world.commands, world.guards()) == ([], ["no-alternative"])


def test_without_the_lease_nothing_moves():
    """One that lost it says so; one that stands by is silent."""
    world = world_of()
    world.core.hold(0, world.now_ns)
    world.contend()
    assert (world.commands, world.guards()) == ([], ["lease"])
    by = world_of(lease=0)
    by.contend()
    assert not by.decisions


def test_one_of_several_shards_moves_nothing():
    """While nobody coordinates them: two would take the same free link."""
    core = Remediator(RemediatorSettings(improve="act"), Shard("", "node4"))
    for number in range(4):
        core.observe(make_node(f"node{number}"), 0)
    core.hold(7, 0)
    world = world_of()
    core.observe(world.contention(to_spine(0, 0), TWO), world.now_ns)
    assert not [each for each in core.tick(world.now_ns) if hasattr(each, "refusals")]
    (decision,) = [each for each in core.tick(world.now_ns + 3 * SECOND) if hasattr(each, "refusals")]
    assert [refusal.policy for refusal in decision.refusals] == ["not-coordinated"]
    assert decision.commands == ()


# -- afterwards -------------------------------------------------------------------------------------------------------


def crowd_others(world):
    """Something that nobody sees fills all links but the first spine's."""
    world.capacity = {to_spine(0, spine): LINE / 10 for spine in range(1, SPINES)}


def test_a_move_without_gain_is_taken_back():
    """To the home of before, with a word of what was expected and what came; and nothing else is tried."""
    world = world_of()
    crowd_others(world)
    (command,) = world.contend()
    assert sorted(megabits(world)) == [10, 100]
    given = world.run(12.0)
    assert [(each.verb, each.node, each.cause) for each in given] == [("restore", command.node, command.cause)]
    assert {*moves(given).values()} == {0}
    (refusal,) = world.refusals
    assert (refusal.policy, refusal.fault) == ("no-gain", command.fault)
    assert refusal.who in TWO
    assert [round(refusal.evidence[name]) for name in ("before_mbps", "after_mbps", "predicted_mbps")] == [50, 10, 100]
    assert world.homes[command.node].placements == ()
    assert megabits(world) == [50, 50]
    assert world.run(10.0) == world.wait(60.0) == world.run(5.0) == []


@pytest.mark.parametrize("comes", [True, False])
def test_a_move_whose_gain_others_took_who_came_since_stays(comes):
    """They would come again, and have their own event. If the way itself gives so little, the flow goes back."""
    world = world_of()
    (command,) = world.contend()
    (entropy,) = moves([command]).values()
    if comes:
        way = Placement(peer="node7", rail="rail0", via="rail0", entropy=entropy)
        world.core.assign_home(Destination("node3", "node7", "rail0"), way, CHOSEN)
        world.flows[flow(3, 7)] = LINE
    else:
        world.capacity[to_spine(0, entropy)] = LINE / 2
    assert sorted(megabits(world)) == ([50, 50, 100] if comes else [50, 100])
    back = [each.verb for each in world.run(12.0) if each.node == command.node]
    assert back == ([] if comes else ["restore"])
    assert world.guards() == ([] if comes else ["no-gain"])


def test_a_move_that_costs_others_more_than_was_predicted_is_taken_back():
    """A flow that was there, and wanted little, gets less; though what was moved gets what was expected."""
    beside = flow(2, 6)
    world = world_of()
    world.flows[beside] = LINE / 5
    world.silent |= {f"node{node}.rail0>node{node + 4}.rail0#{spine}" for node in (0, 1, 2) for spine in (2, 3)}
    way = Placement(peer="node6", rail="rail0", via="rail0", entropy=1)
    world.core.assign_home(Destination("node2", "node6", "rail0"), way, CHOSEN)
    world.run(4.0)
    assert megabits(world) == [50, 50, 20]
    before = len(world.commands)
    world.contend(flows=TWO)
    world.unfair = {beside: LINE / 20}
    world.run(12.0)
    assert [command.verb for command in world.commands[before:]] == ["reroute", "restore"]
    assert world.guards() == ["no-gain"]
    assert world.refusals[0].evidence["beside"] == "node2>node6/rail0"


def test_failover_wins_during_a_move():
    """The new path is lost before the gain is known: its traffic leaves it, and comes back to the new home."""
    world = world_of()
    (command,) = world.contend()
    (way,) = command.placements
    path = f"{command.node}.rail0>{way.peer}.rail0#{way.entropy}"
    world.silent.add(path)
    world.run(0.2)
    (left,) = world.path_event(path, "silent")
    assert left.node == command.node
    crowd_others(world)
    assert world.run(8.0) == []
    assert world.guards() == []
    world.silent.discard(path)
    world.word(path, "speaks again")
    world.path_event(path, "speaking")
    assert (way.peer, way) in {(each.peer, each) for one in world.run(20.0) for each in one.placements}
    assert world.core.homes.of(Destination(command.node, way.peer, "rail0")) == way


@pytest.mark.parametrize(("lost", "other"), [(0, 1), (1, 0)])
def test_what_failover_has_moved_stays_where_it_is(lost, other):
    """A path was lost, and its traffic meets another flow on the way around: that one moves."""
    world = world_of(())
    for node in (0, 1):
        world.silent |= {f"node{node}.rail0>node{node + 4}.rail0#{spine}" for spine in (2, 3)}
    way = Placement(peer=f"node{other + 4}", rail="rail0", via="rail0", entropy=1)
    world.core.assign_home(Destination(f"node{other}", way.peer, "rail0"), way, CHOSEN)
    world.flows = dict.fromkeys(TWO, LINE)
    path = f"node{lost}.rail0>node{lost + 4}.rail0#0"
    world.silent.add(path)
    world.run(3.0)
    world.path_event(path, "silent")
    world.silent = {path}
    world.run(3.0)
    assert megabits(world) == [50, 50]
    assert [*moves(world.contend(to_spine(0, 1)))] == [(f"node{other}", f"node{other + 4}")]


def test_what_is_away_is_not_moved():
    """Its NIC is lost, so that its rail goes by the backups."""
    world = world_of(rails=2)
    world.flap("node0.rail0", "down")
    world.run(1.0)
    world.contend()
    world.run(3.0)
    assert [command for command in world.commands if "contention" in command.id] == []


def test_a_node_that_refuses_keeps_its_home():
    """And says why; nothing is stored of the move."""
    world = world_of()
    world.answer = "refused"
    (command,) = world.contend()
    (way,) = command.placements
    assert world.core.homes.choice(Destination(command.node, way.peer, way.rail)) is None
    assert world.guards() == ["agent"]
    assert not world.core.routing.moved
    world.run(3.0)
    assert world.homes[command.node].placements == ()


def test_a_node_that_does_not_answer_is_taken_home():
    """Nobody knows what it did; the other flow moves in its place."""
    world = world_of()
    world.answer = None
    (command,) = world.contend()
    world.answer = "done"
    back, instead = sorted(world.run(10.0), key=lambda each: each.verb == "reroute")
    assert (back.verb, back.node, {*moves([back]).values()}) == ("restore", command.node, {0})
    assert (instead.verb, instead.node) == ("reroute", {"node0": "node1", "node1": "node0"}[command.node])
    assert world.guards() == ["agent"]
    assert megabits(world) == [100, 100]


def test_who_makes_room_for_others_has_nothing_to_gain():
    """A flow that wants little moves aside, as there is no other way; it is not taken back for that."""
    world = world_of()
    world.flows[flow(2, 6)] = LINE / 5
    for spine in (2, 3):
        world.silent |= {f"node{node}.rail0>node{node + 4}.rail0#{spine}" for node in (0, 1)}
    world.run(3.0)
    way = Placement(peer="node6", rail="rail0", via="rail0", entropy=1)
    world.core.assign_home(Destination("node2", "node6", "rail0"), way, CHOSEN)
    world.run(3.0)
    assert len(moves(world.contend(flows=TWO))) == 2
    assert world.run(12.0) == []
    assert (megabits(world), world.guards()) == ([100, 100, 20], [])


def test_the_end_of_a_contention_ends_its_incident():
    """Also if it comes before anything could be done, and the first word comes again after it."""
    world = world_of()
    world.muted = {*world.names}
    world.run(4.0)
    first = world.contention(to_spine(0, 0), TWO)
    world.see(first)
    world.run(0.2)
    world.contend(state="clear")
    world.see(msgspec.structs.replace(first, id="again"))
    world.muted = set()
    assert world.run(10.0) == []
    assert world.refusals == []


def test_another_verdict_about_the_link_ends_it_too():
    """It carries less than it did: no contention."""
    world = world_of()
    world.muted = {*world.names}
    world.run(4.0)
    world.contend()
    world.run(0.2)
    world.contend(state="reduced-rate")
    world.muted = set()
    assert world.run(10.0) == []


def test_an_event_that_nobody_takes_back_is_forgotten():
    """After five minutes; and one of so long ago is not taken."""
    world = world_of()
    world.muted = {*world.names}
    old = world.contention(to_spine(0, 0), TWO, number=3)
    world.run(4.0)
    world.contend()
    world.now_ns += 360 * SECOND
    world.run(2.0)
    world.see(old)
    world.muted = set()
    assert world.run(10.0) == []
    assert not world.core.remedies["contention"]._incidents


# -- takeover ---------------------------------------------------------------------------------------------------------


def successor(before, **more):
    """One that stood by, and is told what the buckets have."""
    after = ContentionWorld(tuple(before.flows), lease=0, **more)
    after.now_ns = before.now_ns
    for value in (*before.homes.values(), *(before.paths(name) for name in before.names)):
        after.see(value)
    return after


def test_a_new_holder_does_not_move_the_same_flow_again():
    """It takes the last events once more, and the bucket has the homes."""
    before = world_of()
    event = before.contention(to_spine(0, 0), TWO)
    before.see(event)
    assert len(before.run(0.5)) == 1
    after = successor(before)
    after.see(event)
    after.core.hold(8, after.now_ns)
    assert after.run(10.0) == []
    assert megabits(after) == [100, 100]


def test_a_new_holder_does_what_the_one_before_did_not_get_to():
    """It stood by, and knows the event."""
    world = world_of(lease=0)
    world.contend()
    world.run(1.0)
    world.core.hold(8, world.now_ns)
    (command,) = world.run(1.0)
    assert command.lease_revision == 8
    assert megabits(world) == [100, 100]


@pytest.mark.parametrize("comes_late", [False, True])
def test_a_new_holder_does_not_repeat_a_move_without_gain(comes_late):
    """It hears that nothing came of it, mostly after the event. A next event moves another flow."""
    before = world_of()
    crowd_others(before)
    event = before.contention(to_spine(0, 0), TWO)
    before.see(event)
    (command, _) = before.run(12.0)
    after = successor(before)
    crowd_others(after)
    for word in sorted([event, *before.refusals], key=lambda each: (each.kind == "refusal") != comes_late):
        after.see(word)
    after.core.hold(8, after.now_ns)
    assert after.run(20.0) == []
    (instead,) = after.contend(flows=TWO, number=2)
    assert (command.verb, instead.verb) == ("reroute", "reroute")
    assert {command.node, instead.node} == {"node0", "node1"}


def test_a_flow_that_came_back_may_move_again_after_a_minute():
    """Nor does it rest for long if who judged it has a clock that is ahead."""
    before = world_of()
    crowd_others(before)
    before.contend()
    before.run(12.0)
    (refusal,) = before.refusals
    (other,) = {0, 1} - {TWO.index(refusal.who)}
    pinned = PlacementRule(node=f"node{other}", peer=f"node{other + 4}", rail="rail0", via="rail0", entropy=0)
    after = successor(before, placements=(pinned,))
    after.see(msgspec.structs.replace(refusal, at_ns=after.now_ns + 3_600 * SECOND))
    after.core.hold(8, after.now_ns)
    after.run(2.0)
    assert after.contend(number=2) == []
    after.wait(60.0)
    after.run(2.0)
    assert [*moves(after.contend(number=3))] == [tuple(nic.partition(".")[0] for nic in refusal.who.split(">"))]


def test_plans_of_two_who_know_the_same_are_the_same():
    """So what a former holder commanded late is what its successor would."""
    assert moves(ContentionWorld(TWO).contend()) == moves(ContentionWorld(TWO).contend())


def test_flows_of_nobody_cost_a_world_without_traffic_nothing():
    """A fleet whose senders say nothing has no incidents and no trials."""
    world = World()
    world.run(5.0)
    remedy = world.core.remedies["contention"]
    assert (remedy._incidents, remedy._trials, remedy._moved_ns) == ({}, [], {})
