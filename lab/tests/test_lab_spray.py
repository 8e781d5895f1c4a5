"""Leaves that spray packets give them to all spines in turn, whatever their hash."""

from __future__ import annotations

import json
import socket
import subprocess
from types import SimpleNamespace

import pytest

from foliot.node.addressing import describe
from foliot_lab.fabric.iproute import IP
from foliot_lab.fabric.namespaces import inside, make_socket
from foliot_lab.fabric.packet_marks import mark_in_turn
from foliot_lab.fabric.rtnetlink import acknowledged
from foliot_lab.scenario.spec import FabricSpec
from foliot_lab.scenario.topology import plan
from foliot_lab.services.deployment import node_settings
from foliot_lab.services.lab import Lab
from foliot_lab.workload.flow_loop import FlowPlan
from foliot_lab.workload.flow_ways import FlowWays, Way

SPEC = FabricSpec(hosts=4, rails=1, leaves=2, spines=3, spray=True)
PATIENCE_S = 60.0
ROUNDS = 12


def test_each_spine_has_a_table_that_leads_to_all_other_leaves():
    """And none to the leaf's own hosts; other leaves are as they were."""
    planned = plan(FabricSpec(hosts=6, rails=1, leaves=3, spines=2, spray=True), 7)
    leaf = next(router for router in planned.routers if router.name == "rail0.leaf1")
    assert [[route.prefix for route in table] for table in leaf.sprayed] == [["10.100.0.0/24", "10.100.2.0/24"]] * 2
    assert [{route.gateways for route in table} for table in leaf.sprayed] == [
        {(uplink,)} for uplink in leaf.routes[0].gateways
    ]  # fmt: skip
    assert not any(router.sprayed for router in planned.routers if router.kind == "spine")
    assert not any(router.sprayed for router in plan(FabricSpec(hosts=4, rails=1), 7).routers)


def bound(fabric, node):
    """A UDP socket on a node's NIC."""
    made = make_socket(fabric.host(node), socket.AF_INET, socket.SOCK_DGRAM)
    made.settimeout(PATIENCE_S)
    made.bind((fabric.plan.underlay(node, "rail0"), 0))
    return made


def sent_up(fabric, leaf):
    """Packets that a leaf has sent to each spine."""
    with inside(fabric.namespace(leaf)):
        shown = subprocess.run([IP, "-j", "-s", "link"], capture_output=True, text=True, check=True).stdout
    return {
        link["ifname"]: link["stats64"]["tx"]["packets"]
        for link in json.loads(shown)
        if link["ifname"].startswith("spine")
    }


@pytest.mark.net
def test_one_flow_goes_up_to_all_spines_in_turn(fabric):
    """Every packet arrives, and between hosts of one leaf none goes up."""
    with bound(fabric, "node0") as flow, bound(fabric, "node3") as far, bound(fabric, "node1") as near:
        for _ in range(SPEC.spines):  # routers ask for their neighbours' addresses now, not later
            flow.sendto(b"first", far.getsockname())
            far.recv(16)
        before = sent_up(fabric, "rail0.leaf0")
        for _ in range(ROUNDS):
            flow.sendto(b"x", far.getsockname())
            assert far.recvfrom(16) == (b"x", flow.getsockname())
        after = sent_up(fabric, "rail0.leaf0")
        assert {name: after[name] - count for name, count in before.items()} == dict.fromkeys(
            before, ROUNDS // SPEC.spines
        )
        flow.sendto(b"near", near.getsockname())
        assert near.recv(16) == b"near"
        assert sent_up(fabric, "rail0.leaf0") == after


@pytest.mark.net
def test_no_flow_has_a_spine_of_its_own(fabric):
    """So none is said to share a link, and no map of links is held against any."""
    nodes = [describe(node_settings(fabric.plan, host)) for host in fabric.plan.hosts]
    flow = FlowPlan(
        id="node0>node3/rail0", source="node0", destination="node3", rail="rail0", source_address="",
        destination_address="", bytes_per_s=0, job=0, over="nic", source_port=20_000,
    )  # fmt: skip
    ways = FlowWays(fabric, nodes, [flow])
    ways.look(1)
    assert ways.taken == [[(1, Way("rail0", -1, None))]]
    lab = SimpleNamespace(nodes=nodes, fabric=fabric, plan=fabric.plan)
    ends = {tuple(path.replace(".rail0", "").partition("#")[0].split(">")) for path in Lab.links_of_paths(lab)}
    assert ends == {("node0", "node1"), ("node1", "node0"), ("node2", "node3"), ("node3", "node2")}


@pytest.mark.net
def test_what_the_kernel_refuses_is_told(fabric):
    """With the name of the router."""
    with pytest.raises(OSError, match=r"rail0\.leaf0"):
        mark_in_turn(fabric.namespace("rail0.leaf0"), 0)


def test_an_answer_that_is_no_refusal_is_counted():
    """An acknowledgement is an error of number 0."""
    assert acknowledged(_answer(0) + _answer(0), "here") == 2
    with pytest.raises(OSError, match="here") as caught:
        acknowledged(_answer(0) + _answer(-95), "here")
    assert caught.value.errno == 95


def _answer(number):
    return (
        (20).to_bytes(4, "little") + (2).to_bytes(2, "little") + bytes(10) + number.to_bytes(4, "little", signed=True)
    )
