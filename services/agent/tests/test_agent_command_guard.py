"""The guards that a node keeps for itself."""

from __future__ import annotations

import msgspec
import pytest

from foliot.node.addressing import describe
from foliot_agent.core.command_guard import judge
from foliot_agent.core.failed_links import FailedLinks
from foliot_agent.core.overlay_layout import Layout
from foliot_agent.core.route_guard import Situation, object_to_route
from foliot_agent.core.routing_table import RoutingTable
from foliot_schemas import Command, Placement
from foliot_schemas.notice import Notice

_HOME = Placement(peer="node1", rail="rail0", via="rail0", entropy=0)
_MOVED = Placement(peer="node1", rail="rail0", via="rail1", entropy=1)
_COMMAND = Command(
    id="c1", verb="reroute", node="node0", cause="e1", issued_ns=1_000, deadline_ns=2_000, lease_revision=7,
    placements=(_MOVED,),
)  # fmt: skip


@pytest.fixture
def situation(settings_of):
    """Node 0, one peer, nothing lost, time 1,500."""
    layout = Layout.of(settings_of(0))
    routing = RoutingTable()
    routing.placements["node1", "rail0"] = _HOME
    routing.backups["node1", "rail0"] = _MOVED
    return Situation(
        layout=layout, peers={"node1": describe(settings_of(1))}, routing=routing, losses=FailedLinks(layout, "boot1"),
    )  # fmt: skip


def judged(command, situation, **standing):
    """The judgement of a node with these settings."""
    known = {"node": "node0", "policy": "act", "now_ns": 1_500, "synchronised": True, "highest_lease": 7, **standing}
    return judge(command, lambda command: object_to_route(command.order(), command.issued_ns, situation), **known)


def test_a_good_command_is_acted_upon(situation):
    """All guards silent."""
    assert judged(_COMMAND, situation).status == "act"


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"node": "node2"}, "it is for node2"),
        ({"lease_revision": 6}, "is past: 7 was seen"),
        ({"lease_revision": 0}, "no lease revision"),
        ({"deadline_ns": 1_400}, "its deadline was over"),
        ({"placements": ()}, "asks for nothing"),
        ({"away": ("rail7",)}, "has no NIC on rail7"),
        ({"away": ("rail0",), "back": ("rail0",)}, "away and back at once"),
        ({"away": ("rail1",)}, "rail1 cannot be left: no backup"),
        ({"placements": (msgspec.structs.replace(_MOVED, peer="node9"),)}, "node9 is not in the inventory"),
        ({"placements": (msgspec.structs.replace(_MOVED, via="rail7"),)}, "has no NIC on rail7"),
        ({"placements": (msgspec.structs.replace(_MOVED, entropy=2),)}, "there is no number 2"),
        ({"placements": (msgspec.structs.replace(_MOVED, entropy=-1),)}, "there is no number -1"),
        ({"placements": (msgspec.structs.replace(_MOVED, key="qp-17"),)}, "a service address has no key"),
    ],
)
def test_a_doubtful_command_is_refused_with_its_reason(situation, change, reason):
    """Fence, deadline and every name are checked."""
    judgement = judged(msgspec.structs.replace(_COMMAND, **change), situation)
    assert judgement.status == "refused"
    assert reason in judgement.reason


def test_without_a_synchronised_clock_no_deadline_can_be_checked(situation):
    """So the command is refused."""
    judgement = judged(_COMMAND, situation, synchronised=False)
    assert judgement.status == "refused"
    assert "not synchronised" in judgement.reason


@pytest.mark.parametrize(
    ("policy", "advice", "status"),
    [("act", True, "advised"), ("advise", False, "advised"), ("off", False, "refused"), ("off", True, "refused")],
)
def test_the_policy_and_advice_keep_from_acting(situation, policy, advice, status):
    """Advice is answered, not followed; the policy off refuses all."""
    command = msgspec.structs.replace(_COMMAND, advice=advice)
    assert judged(command, situation, policy=policy).status == status


def test_a_peers_newer_word_beats_a_command_and_an_older_one_does_not(situation):
    """A command that was issued before the peer lost its NIC cannot know of it."""
    notice = Notice(node="node1", rail="rail1", state="lost", fault="b/x", sequence=1, at_ns=1_200)
    situation.losses.take_notice(notice)
    assert "has said since" in judged(_COMMAND, situation).reason
    assert judged(msgspec.structs.replace(_COMMAND, issued_ns=1_300), situation).status == "act"
