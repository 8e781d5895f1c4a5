"""The fleet of compose.yaml for real: up, a NIC set down by an administrator, a cable cut, and down without a trace."""

from __future__ import annotations

import re
import time

import pytest
from compose_fleet import NODES, RAILS
from reflected import Reflected, first

pytestmark = pytest.mark.containers

WAYS = 2 * (len(NODES) - 1)
"""Of a NIC when all is well: from and to every other node."""
UNTOUCHED_S = 30.0
"""Fifteen windows of the clocks' stamps, in whose ends all probes have the most to do."""


def test_the_fleet_comes_up_and_every_node_finds_its_rails(fleet):
    """Eight nodes with two NICs, each NIC in its rail's subnet, and a way between any two nodes on each rail."""
    nics = [f"{node}.{rail}" for node in NODES for rail in RAILS]
    fleet.until(lambda: all(fleet.nic(nic)["state"] == "up" for nic in nics), "every NIC is up")
    fleet.until(lambda: all(fleet.ways(nic) == WAYS for nic in nics), "every pair has its ways")
    told = {nic["nic"]: nic for node in fleet.get("fleet") for nic in node["nics"]}

    assert sorted(told) == sorted(nics)
    assert all(
        nic["address"].startswith({"rail0": "10.46.0.", "rail1": "10.47.0."}[nic["rail"]]) for nic in told.values()
    )
    fleet.execute("node3", "ping", "-c", "3", "-I", "10.200.0.4", "10.200.0.1")


def test_an_untouched_fleet_says_nothing_and_gets_no_command(fleet):
    """For a while, once each pair has its ways; who takes a stall of the machine for a fault does so within seconds."""
    for nic in (f"{node}.{rail}" for node in NODES for rail in RAILS):
        fleet.until(lambda nic=nic: fleet.nic(nic)["state"] == "up" and fleet.ways(nic) == WAYS, f"{nic} is in use")
    before = fleet.records()
    time.sleep(UNTOUCHED_S)
    assert [each for key, each in fleet.records().items() if key not in before] == []


def test_the_gateway_has_its_page(fleet):
    """Built in the image: the document, and every script and style that it names."""
    document = fleet.read("/")
    named = re.findall(r'(?:src|href)="\./?([^"]+)"|(?:src|href)="/([^"]+)"', document)

    assert "<title>" in document
    assert any(path.endswith(".js") for pair in named for path in pair)
    assert all(fleet.read(f"/{path}") for pair in named for path in pair if path)


def test_grpc_answers_outside_of_the_container_as_http_does(fleet):
    """By the port that Docker publishes: every NIC, how the gateway is, and a stream."""
    nics = {nic["nic"]: nic["address"] for node in fleet.get("fleet") for nic in node["nics"]}
    _, _, port = fleet.compose("port", "gateway", "8471").strip().rpartition(":")
    with Reflected(int(port), 60) as client:
        by_grpc = client.ask("foliot.v1.FleetService/ListNodes")
        watched = first(client.stream("foliot.v1.LiveService/Watch"), "tiles")
        status = client.ask("grpc.health.v1.Health/Check", service="foliot.v1.FleetService")

    assert {nic["nic"]: nic["address"] for node in by_grpc for nic in node["nics"]} == nics
    assert {tile.nic for tile in watched.tiles.tiles} == nics.keys()
    assert status == "serving"


def test_everybody_on_a_node_has_its_time(fleet):
    """From the page that its probe writes into a volume; a job's container reads it, and cannot write."""
    fleet.execute("node3-agent", "foliot", "clock", "--wait", "60")
    fleet.execute("node3", "test", "-r", "/run/foliot-probe/clock")
    for container in ("node3", "node3-agent"):
        fleet.execute(container, "sh", "-c", "! touch /run/foliot-probe/mine 2>/dev/null")


def test_a_probe_runs_compiled_code_in_an_image_without_a_compiler(fleet):
    """What the stage of the wheels compiled is loaded; what compiled it stayed there."""
    fleet.execute("node3-probe", "python", "-c", "from foliot import native; assert native.why_python() == ''")
    fleet.execute("node3-probe", "sh", "-c", "! command -v cc && ! command -v gcc")


def test_nobody_has_more_privileges_than_needed(fleet):
    """Read-only file systems, no capability but NET_ADMIN where routes are moved, none to gain, no needless root."""
    for service, container in fleet.inspect().items():
        host, moves = container["HostConfig"], service.endswith("-agent") or service in NODES

        assert host["ReadonlyRootfs"]
        assert host["CapDrop"] == ["ALL"]
        assert [name.removeprefix("CAP_") for name in host["CapAdd"] or []] == (["NET_ADMIN"] if moves else [])
        assert host["SecurityOpt"] == ["no-new-privileges:true"]
        assert not host["Privileged"]
        assert host["GroupAdd"] == (["10001"] if service == "keys" else None)
        if not moves and service not in {"nats", "keys"}:
            assert container["Config"]["User"] == "foliot", service


def test_an_administrators_down_moves_the_traffic_and_is_no_flap(fleet):
    """All of the node's traffic goes by the other rail, and comes back when the NIC is set up again."""
    before = fleet.flaps("node3.rail0")
    fleet.until(lambda: fleet.ways("node3.rail0") == WAYS, "the NIC is in use")
    fleet.execute("node3", "ip", "link", "set", "rail0", "down")
    fleet.until(lambda: fleet.nic("node3.rail0")["state"] == "admin-down", "the gateway knows")
    fleet.until(lambda: fleet.nic("node3.rail0")["moved"] and not fleet.ways("node3.rail0"), "the traffic has moved")
    assert fleet.ways("node3.rail1") == WAYS
    fleet.execute("node3", "ping", "-c", "3", "-I", "10.200.0.4", "10.200.0.1")

    fleet.execute("node3", "ip", "link", "set", "rail0", "up")
    fleet.until(lambda: not fleet.nic("node3.rail0")["moved"], "the NIC is in use again")
    fleet.until(lambda: fleet.ways("node3.rail0") == fleet.ways("node3.rail1") == WAYS, "every way is as before")
    told = fleet.flaps("node3.rail0")[len(before) :]

    assert [event["state"] for event in told] == ["admin-down", "admin-up"]
    assert [event["evidence"]["flaps"] for event in told] == [0, 0]


def test_a_cut_at_the_bridge_moves_the_traffic_and_is_a_flap(fleet):
    """The NIC loses its carrier though nobody set it down; one trace goes from the kernel's message to confirmation."""
    before = fleet.flaps("node3.rail0")
    fleet.until(lambda: fleet.ways("node3.rail0") == WAYS, "the NIC is in use")
    fleet.cable("node3", "rail0", "down")
    fleet.until(lambda: fleet.nic("node3.rail0")["state"] == "down", "the gateway knows")
    fleet.until(lambda: fleet.nic("node3.rail0")["moved"] and not fleet.ways("node3.rail0"), "the traffic has moved")
    fleet.execute("node3", "ping", "-c", "3", "-I", "10.200.0.4", "10.200.0.1")
    fleet.until(lambda: len(fleet.flaps("node3.rail0")) > len(before), "there is an event")
    (told,) = fleet.flaps("node3.rail0")[len(before) :]

    assert (told["state"], told["evidence"]["flaps"]) == ("down", 1)
    trace = fleet.execute("gateway", "foliot", "trace", told["id"])
    assert all(step in trace for step in ("node3/probe", "link lost", "node3/agent", "confirm on the wire"))

    fleet.cable("node3", "rail0", "up")
    fleet.until(lambda: not fleet.nic("node3.rail0")["moved"], "the NIC is in use again")
    fleet.until(lambda: fleet.ways("node3.rail0") == fleet.ways("node3.rail1") == WAYS, "every way is as before")


def test_traffic_goes_on_while_an_agent_is_away(fleet):
    """The routes belong to the node, not to the container of its agent."""
    fleet.compose("stop", "node5-agent")
    fleet.execute("node5", "ping", "-c", "3", "-I", "10.200.0.6", "10.200.0.1")

    fleet.compose("up", "--detach", "--no-build", "--wait", "node5-agent")
