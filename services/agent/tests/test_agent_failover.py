"""What agents do when something happens, and what they tell each other, over real datagrams on loopback."""

from __future__ import annotations

import asyncio
import socket

import msgspec
import pytest
from emulated import FAULT, Agent, command, settle
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from foliot import tracing
from foliot.bus.lease import Count
from foliot_agent.control import reconciler as following_module
from foliot_agent.control.reconciler import Reconciler
from foliot_agent.core.peer_protocol import Seal
from foliot_agent.peers import failure_notifier
from foliot_schemas import NodePaths, Placement
from foliot_schemas.fault import root_span_id, trace_id
from foliot_schemas.notice import Notice
from virtual_clock import VirtualClock


@pytest.fixture
async def agents(free_port):
    """Three that know each other."""
    port, clock = free_port(socket.SOCK_DGRAM), VirtualClock()
    made = [Agent(index, port, clock) for index in range(3)]
    for agent in made:
        agent.cut = made[0].cut
        for peer in made:
            if peer is not agent:
                await agent.meet(peer)
    yield made
    for agent in made:
        agent.exchange.close()


async def test_a_lost_nic_moves_both_ends_and_both_say_so(agents):
    """One rule at the cut end, one route at each peer, an outcome of each under the fault's name."""
    cut, *peers = agents
    before = cut.kernel.counts["rules"]
    cut.lose()
    await settle(agents)
    assert cut.kernel.counts["rules"] == before + 1
    assert [cut.via(f"node{index}") for index in (1, 2)] == ["rail1", "rail1"]
    assert [peer.via("node0") for peer in peers] == ["rail1", "rail1"]
    assert peers[0].via("node2") == "rail0"
    for agent in agents:
        (outcome,) = agent.outcomes
        assert (outcome.command, outcome.status, outcome.armed) == (f"armed/{FAULT}", "done", True)
    assert len({agent.outcomes[0].id for agent in agents}) == 3
    assert {each.via for each in cut.outcomes[0].undo} == {"rail0"}


class Joined:
    """A kernel that peers join and leave: that of an emulated agent."""

    def __init__(self, agent: Agent) -> None:
        self.join, self.leave = agent.actuator.welcome, agent.actuator.dismiss


@pytest.fixture
def following(agents):
    """How the first agent follows the inventory."""
    agent = agents[0]
    made = Reconciler(
        situation=agent.situation,
        move_queue=agent.move_queue,
        kernel=Joined(agent),
        restart_cache=agent.restart_cache,
        fence=agent.commands.fence,
        policy="act",
        forget=agent.failover.forget,
    )
    agent.following = made
    yield made
    made.close()


def remembers(agent: Agent, peer: str) -> list[bool]:
    """Whether it knows of losses of the peer, of its notices, of its own answers, and of what it did for them."""
    parts = agent.failover
    memories = (agent.losses._peers, parts._guard._heard, parts._seen, parts._evaded)
    return [any(node == peer for node, _ in restart_cache) for restart_cache in memories]


@pytest.mark.usefixtures("hasty")
async def test_a_peer_that_has_left_for_long_is_forgotten(agents, following, monkeypatch):
    """With all that it said. One that comes back soon, as its record was lost for a moment, is not; nor are others."""
    one, peer, third = agents
    peer.lose()
    third.lose()
    await settle(agents)
    assert remembers(one, "node1") == remembers(one, "node2") == [True] * 4
    monkeypatch.setattr(following_module, "_FORGET_S", 3600.0)
    await following.on_node("node1", None)
    assert remembers(one, "node1") == [True] * 4
    await following.on_node("node1", peer.layout.node)
    assert not following._leaving
    monkeypatch.setattr(following_module, "_FORGET_S", 0.0)
    await following.on_node("node1", None)
    await following.on_node("node1", None)
    async with asyncio.timeout(60):
        while any(remembers(one, "node1")):  # noqa: ASYNC110 - the timer is the event
            await asyncio.sleep(0)
    assert (following._leaving, following.told) == ({}, set())
    assert remembers(one, "node2") == [True] * 4


async def test_a_peer_of_the_last_run_stays_while_the_inventory_may_name_it_yet(agents, following, monkeypatch):
    """The bus has lost its store, and every node says again that it is there.

    The one that does not leaves in the end.
    """
    monkeypatch.setattr(following_module, "_FORGET_S", 0.0)
    one, peer, _ = agents
    answers = iter([False, True])
    leaving = asyncio.create_task(following.leave_unnamed(lambda: next(answers)))
    await asyncio.sleep(0)
    assert set(one.peers) == {"node1", "node2"}
    await following.on_node("node1", peer.layout.node)
    await leaving
    assert set(one.peers) == {"node1"}
    assert {each for each, _ in one.actuator.routing.placements} == {"node1"}


@pytest.mark.usefixtures("hasty")
async def test_a_peer_that_has_left_is_told_nothing_any_more(agents):
    """It had not answered."""
    cut, *peers = agents
    cut.cut |= {nic.address for nic in peers[0].layout.node.nics}
    cut.lose()
    await settle(agents)
    (word,) = cut.failover.notifier._words.values()
    assert word.missing == {"node1"}
    cut.failover.forget("node1")
    assert word.missing == set()


async def test_who_is_not_armed_waits(agents):
    """Neither the cut end nor, told by one that is armed, a peer that is not."""
    cut, unarmed, armed = agents
    unarmed.arm("off")
    unarmed.lose()
    await settle(agents)
    assert unarmed.via("node0") == "rail0"
    assert unarmed.outcomes == []
    cut.lose()
    await settle(agents)
    assert armed.via("node0") == "rail1"
    assert unarmed.via("node0") == "rail0"


async def test_armed_for_a_bus_that_is_away_acts_only_then(agents):
    """With the bus there, the remediator is waited for."""
    cut = agents[0]
    cut.arm("bus-away")
    cut.lose()
    await settle(agents)
    assert cut.outcomes == []
    cut.bus_connected = False
    cut.lose()
    await settle(agents)
    assert cut.outcomes[0].status == "done"


async def test_a_loss_before_the_missing_bus_was_noticed_is_acted_upon_then(agents):
    """A cut bus is noticed after seconds, and nobody else will act meanwhile."""
    cut, peer, _ = agents
    for agent in agents:
        agent.arm("bus-away")
    cut.lose()
    await settle(agents)
    assert cut.via("node1") == "rail0"
    cut.bus_connected = False
    cut.failover.on_bus_away()
    await settle(agents)
    assert cut.via("node1") == "rail1"
    assert peer.via("node0") == "rail1"


async def test_a_loss_that_was_acted_upon_is_not_told_once_more_as_the_bus_goes_away(agents):
    """Nothing was left to the remediator."""
    cut = agents[0]
    cut.arm("always")
    cut.lose()
    cut.failover.on_bus_away()
    await settle(agents)
    assert [outcome.status for outcome in cut.outcomes] == ["done"]


async def test_a_bus_that_goes_away_moves_nothing_of_a_node_that_may_not_act(agents):
    """Nor does it of one that has lost nothing."""
    cut, whole, _ = agents
    cut.arm("off")
    cut.lose()
    for agent in (cut, whole):
        agent.failover.on_bus_away()
    await settle(agents)
    assert cut.via("node1") == "rail0"
    assert cut.outcomes == whole.outcomes == []


async def test_a_node_without_backups_takes_any_way_that_is_not_known_to_be_dead(agents):
    """What it has is known to carry nothing; and its peers are told as well, who may have backups."""
    cut, peer, _ = agents
    await cut.disarm()
    cut.lose()
    await settle(agents)
    assert cut.actuator.routing.away == set()
    assert [cut.via(f"node{index}") for index in (1, 2)] == ["rail1", "rail1"]
    assert cut.outcomes[0].status == "done"
    assert peer.via("node0") == "rail1"
    assert peer.outcomes[0].status == "done"


async def test_a_node_without_any_way_stays_and_says_why(agents):
    """The second NIC is lost while the first still is."""
    cut = agents[0]
    cut.lose("rail0")
    await settle(agents)
    cut.lose("rail1")
    await settle(agents)
    assert cut.outcomes[1].status == "refused"
    assert "rail1 cannot be left" in cut.outcomes[1].reason


async def test_a_peer_without_backups_takes_any_way_that_is_not_known_to_be_dead(agents):
    """As the node itself does."""
    cut, peer, _ = agents
    await peer.disarm()
    cut.lose()
    await settle(agents)
    assert peer.via("node0") == "rail1"
    assert (peer.outcomes[0].status, peer.outcomes[0].armed) == ("done", True)


async def test_a_peer_without_any_way_says_that_it_did_not_move(agents):
    """The notice comes by its other NIC in the moment in which that is lost: its outcome is a refusal."""
    cut, peer, _ = agents
    peer.losses._own["rail1"] = "boot1/node1.rail1/carrier-2"
    cut.lose("rail0")
    await settle(agents)
    assert peer.via("node0") == "rail0"
    assert [(said.status, said.armed, said.fault) for said in peer.outcomes] == [("refused", True, FAULT)]


@pytest.fixture
def hasty(monkeypatch):
    """Nobody repeats a notice for longer than some milliseconds."""
    monkeypatch.setattr(failure_notifier, "REPEAT_S", (0.002, 0.002))


@pytest.mark.usefixtures("hasty")
@pytest.mark.parametrize(("first", "moves"), [("rail0", 1), ("rail1", 0)])
async def test_the_first_nic_to_return_carries_all_traffic_by_both_ends(agents, first, moves):
    """Both were lost, one after the other, and no bus is there: what stood still flows again.

    By the second one it went last, so nothing is moved.
    """
    cut, *peers = agents
    for agent in agents:
        agent.bus_connected = False
    for rail in ("rail0", "rail1"):
        cut.lose(rail)
        await settle(agents)
    cut.regain(first)
    await settle(agents)
    for rail in ("rail0", "rail1"):
        assert [cut.via(peer.layout.node.name, rail) for peer in peers] == [first, first]
        assert [peer.via("node0", rail) for peer in peers] == [first, first]
        assert peers[0].via("node2", rail) == rail
    back = [outcome for outcome in cut.outcomes if outcome.command.endswith("/back")]
    assert [(outcome.status, outcome.armed) for outcome in back] == [("done", True)] * moves
    for agent in agents:
        assert len({outcome.id for outcome in agent.outcomes}) == len(agent.outcomes)


@pytest.mark.usefixtures("hasty")
async def test_a_pair_that_had_no_rail_in_common_flows_as_soon_as_it_has_one(agents):
    """One lost its NIC on rail0, the other its own on rail1, and so could not tell the first of it."""
    one, other, third = agents
    for agent in agents:
        agent.bus_connected = False
    one.lose("rail0")
    await settle(agents)
    other.lose("rail1")
    await settle(agents)
    assert (one.via("node2"), other.via("node2", "rail1")) == ("rail1", "rail0")
    one.regain("rail0")
    await settle(agents)
    assert {one.via("node1", rail) for rail in ("rail0", "rail1")} == {"rail0"}
    assert {other.via("node0", rail) for rail in ("rail0", "rail1")} == {"rail0"}
    assert third.via("node1", "rail1") == "rail0"
    assert one.via("node2") == "rail1"


@pytest.mark.usefixtures("hasty")
async def test_a_nic_that_returns_moves_nothing_that_flows(agents):
    """The way home is the remediator's to choose, when the NIC has been good for a while."""
    cut, peer, _ = agents
    cut.lose()
    await settle(agents)
    cut.regain()
    await settle(agents)
    assert (cut.via("node1"), peer.via("node0")) == ("rail1", "rail1")
    assert len(cut.outcomes) == len(peer.outcomes) == 1


@pytest.mark.usefixtures("hasty")
async def test_a_returned_nic_is_used_only_when_the_overlay_stands_on_it(agents):
    """Its devices may have to be made anew first; a NIC that is lost again meanwhile was never back."""
    cut, peer, _ = agents
    for rail in ("rail0", "rail1"):
        cut.lose(rail)
        await settle(agents)
    cut.nics_stand.clear()
    cut.regain("rail0")
    cut.lose("rail0")
    await settle(agents)
    assert peer.losses.dead("node0", "rail0")
    cut.regain("rail0")
    await asyncio.sleep(0)
    assert cut.via("node1") == "rail1"
    cut.nics_stand.set()
    await settle(agents)
    assert (cut.via("node1"), peer.via("node0")) == ("rail0", "rail0")


async def test_traffic_that_had_fled_onto_the_lost_rail_leaves_it_again(agents):
    """rail1's traffic to one peer went by rail0; with rail0 lost it takes its backup, as rail0's own does."""
    cut = agents[0]
    await cut.actuator.place(Placement(peer="node1", rail="rail1", via="rail0", entropy=0))
    for rail in ("rail0", "rail1"):
        await cut.actuator.arm(Placement(peer="node1", rail=rail, via="rail1", entropy=1))
    cut.lose()
    await settle(agents)
    assert [cut.via("node1", rail) for rail in ("rail0", "rail1")] == ["rail1", "rail1"]
    assert cut.outcomes[0].status == "done"


async def test_a_command_for_what_was_done_already_changes_nothing(agents):
    """Its status says so, and what is in force stays."""
    cut = agents[0]
    cut.lose()
    await settle(agents)
    counts = dict(cut.kernel.counts)
    await cut.commands.on_command(command(cut, away=("rail0",)))
    assert cut.outcomes[-1].status == "already"
    assert cut.kernel.counts == counts
    assert cut.via("node1") == "rail1"


async def test_the_same_command_twice_is_done_once_and_answered_twice(agents):
    """Also when the second comes while the first is under way, and after its deadline."""
    agent = agents[0]
    moved = command(agent, placements=(Placement(peer="node1", rail="rail0", via="rail1", entropy=0),))
    await asyncio.gather(agent.commands.on_command(moved), agent.commands.on_command(moved))
    agent.clock.advance(10_000)
    counts = dict(agent.kernel.counts)
    await agent.commands.on_command(moved)
    assert [outcome.status for outcome in agent.outcomes] == ["done"] * len(agent.outcomes)
    assert agent.outcomes[0] == agent.outcomes[-1]
    assert agent.kernel.counts == counts


async def test_advice_is_answered_and_not_followed(agents):
    """Nothing is moved."""
    agent = agents[0]
    await agent.commands.on_command(command(agent, away=("rail0",), advice=True))
    assert (agent.outcomes[0].status, agent.kernel.counts["rules"]) == ("advised", 0)


async def test_an_older_lease_is_refused_unless_the_bus_counts_anew(agents):
    """A bus that forgot its leases says so by when it began to count; how far it has counted since says nothing."""
    agent = agents[0]
    away = {"away": ("rail0",)}
    await agent.commands.on_command(command(agent, "c1", lease_revision=90, **away))
    await agent.quiet()
    await agent.commands.on_command(command(agent, "c2", lease_revision=3, **away))
    agent.leases = Count(since_ns=2, last=5_000)
    await agent.commands.on_command(command(agent, "c3", lease_revision=3, **away))
    await agent.quiet()
    assert [outcome.status for outcome in agent.outcomes] == ["done", "refused", "already"]
    assert agent.commands.fence.highest == 3


async def test_an_older_lease_is_obeyed_where_the_count_has_not_come_as_far_as_the_highest(agents):
    """The bus did not answer when that was heard.

    Then it lost its store: the highest was given by a count of before.
    """
    agent, agent.leases = agents[0], None
    away = {"away": ("rail0",)}
    await agent.commands.on_command(command(agent, "c1", lease_revision=90, **away))
    await agent.quiet()
    for name, agent.leases in (("c2", Count(since_ns=2, last=95)), ("c3", Count(since_ns=2, last=5))):
        await agent.commands.on_command(command(agent, name, lease_revision=3, **away))
        await agent.quiet()
    assert [outcome.status for outcome in agent.outcomes] == ["done", "refused", "already"]


@pytest.mark.parametrize("leases", [None, Count(since_ns=2, last=2)], ids=["no answer", "never given"])
async def test_an_older_lease_is_refused_where_the_bus_does_not_say_that_it_is_its_own(agents, leases):
    """It does not answer; or it counts anew, and has not got that far."""
    agent = agents[0]
    away = {"away": ("rail0",)}
    await agent.commands.on_command(command(agent, "c1", lease_revision=90, **away))
    await agent.quiet()
    agent.leases = leases
    await agent.commands.on_command(command(agent, "c2", lease_revision=3, **away))
    assert [outcome.status for outcome in agent.outcomes] == ["done", "refused"]


async def test_a_value_shuts_out_what_was_written_under_an_earlier_lease(agents, following):
    """Though its lease has commanded nothing here yet. The earlier value comes late, and so does a command."""
    agent = agents[0]
    moved = Placement(peer="node1", rail="rail0", via="rail1", entropy=0)
    await following.on_paths("node0", NodePaths(node="node0", lease_revision=9, placements=(moved,), backups=(moved,)))
    await following.on_paths("node0", NodePaths(node="node0", lease_revision=5))
    await agent.commands.on_command(command(agent, lease_revision=5, away=("rail0",)))
    await agent.quiet()
    assert (agent.via("node1"), set(agent.actuator.routing.backups.values())) == ("rail1", {moved})
    assert agent.outcomes[0].status == "refused"


@pytest.mark.parametrize("armed", ["always", "off"])
async def test_a_way_home_that_was_asked_for_too_early_is_taken_when_the_nic_is_back(agents, following, armed):
    """The bus takes back a move that the node made by the bus itself: it had refused the command for it."""
    one = agents[0]
    one.arm(armed)
    ways = tuple(one.actuator.routing.placements.values())
    kept = {"node": "node0", "lease_revision": 9, "backups": tuple(one.actuator.routing.backups.values())}
    await following.on_paths("node0", NodePaths(placements=ways, **kept))
    one.losses._own["rail0"] = FAULT
    await following.on_paths("node0", NodePaths(placements=ways, away=("rail0",), **kept))
    await following.on_paths("node0", NodePaths(placements=ways, decided_ns=one.clock.now_ns(), **kept))
    assert [one.via(f"node{index}") for index in (1, 2)] == ["rail1", "rail1"]
    one.regain()
    await settle(agents)
    assert [one.via(f"node{index}") for index in (1, 2)] == ["rail0", "rail0"]
    one.lose()  # what was done once is not asked for at the next return
    await one.move_queue.flee("rail0")
    one.regain()
    await settle(agents)
    assert one.via("node1") == "rail1"


@pytest.mark.parametrize("later", ["value", "command"])
async def test_a_way_home_that_waits_for_a_nic_is_forgotten_with_the_wish(agents, following, later):
    """The remediator changes its mind, or commands something else meanwhile."""
    one = agents[0]
    backups = tuple(one.actuator.routing.backups.values())
    home, away = (
        NodePaths(node="node0", lease_revision=9, away=rails, backups=backups, decided_ns=one.clock.now_ns())
        for rails in ((), ("rail0",))
    )
    one.losses._own["rail0"] = FAULT
    await following.on_paths("node0", away)
    await following.on_paths("node0", home)
    one.clock.advance(1)
    if later == "value":
        await following.on_paths("node0", away)
    else:
        await one.commands.on_command(command(one, away=("rail0",), lease_revision=9))
    one.regain()
    await settle(agents)
    assert "rail0" in one.actuator.routing.away


async def test_a_way_to_a_peer_that_was_asked_for_too_early_is_taken_when_its_nic_is_back(agents, following):
    """The value names a way by the NIC that the peer says is lost."""
    one, peer, _ = agents
    detour, home = (Placement(peer="node1", rail="rail0", via=via, entropy=0) for via in ("rail1", "rail0"))
    value = NodePaths(node="node0", lease_revision=9, backups=tuple(one.actuator.routing.backups.values()))
    await following.on_paths("node0", msgspec.structs.replace(value, placements=(detour,)))
    peer.lose()
    await settle(agents)
    await following.on_paths("node0", msgspec.structs.replace(value, placements=(home,)))
    assert one.via("node1") == "rail1"
    peer.regain()
    await settle(agents)
    assert one.via("node1") == "rail0"


async def test_who_has_not_noticed_that_the_bus_counts_anew_does_not_shut_out_who_has(agents):
    """The former holder is obeyed for as long as it takes itself for one, but its high revision stands for nothing."""
    agent = agents[0]
    agent.leases = Count(since_ns=2, last=4)
    for name, revision in (("c1", 90), ("c2", 3)):
        await agent.commands.on_command(command(agent, name, lease_revision=revision, away=("rail0",)))
        await agent.quiet()
    assert [outcome.status for outcome in agent.outcomes] == ["done", "already"]


async def test_a_rail_comes_back_without_those_whose_own_nic_is_still_lost(agents):
    """The restore of one end leaves the traffic to a peer that said lost, and not back, on the other rail."""
    cut = agents[0]
    cut.losses._own["rail0"] = FAULT
    await cut.move_queue.flee("rail0")
    notice = Notice(node="node1", rail="rail0", state="lost", fault="b/n/c", sequence=1, at_ns=cut.clock.now_ns())
    cut.losses.take_notice(notice)
    del cut.losses._own["rail0"]
    await cut.commands.on_command(command(cut, back=("rail0",)))
    assert (cut.via("node1"), cut.via("node2")) == ("rail1", "rail0")
    assert cut.outcomes[0].status == "done"


async def test_a_strangers_datagram_changes_nothing(agents):
    """It is counted and dropped."""
    peer = agents[1]
    notice = Notice(node="node0", rail="rail0", state="lost", fault=FAULT, sequence=1, at_ns=peer.clock.now_ns())
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as stranger:
        forged = Seal("some other key of the same size").close(notice)
        stranger.sendto(forged, ("127.77.0.2", peer.layout.node.agent_port))
        async with asyncio.timeout(60):
            while not peer.exchange.rejected:  # noqa: ASYNC110 - the socket is the event
                await asyncio.sleep(0)
    assert peer.via("node0") == "rail0"
    assert peer.tasks == set()


async def test_one_trace_leads_from_the_lost_carrier_to_the_peers(agents, monkeypatch):
    """The peers' spans are children of the notice that told them, in the trace that the fault's name gives."""
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(tracing._now, "tracer", provider.get_tracer("test"))
    agents[0].lose()
    await settle(agents)
    spans = {}
    for span in exporter.get_finished_spans():
        spans.setdefault(span.name, []).append(span)
    assert set(spans) == {"own carrier lost", "notify peers", "peer lost a NIC", "confirm on the wire"}
    (lost,), (notified,), evaded = spans["own carrier lost"], spans["notify peers"], spans["peer lost a NIC"]
    assert lost.parent.span_id == root_span_id(FAULT)
    assert notified.parent.span_id == lost.context.span_id
    assert [span.parent.span_id for span in evaded] == [notified.context.span_id] * 2
    assert {span.context.trace_id for span in (lost, notified, *evaded)} == {trace_id(FAULT)}
