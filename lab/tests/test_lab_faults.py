"""Faults: that each does what it says, to nothing else, and heals."""

import asyncio
import json
import os
import socket
import struct
import subprocess
import time
from pathlib import Path

import pytest

from foliot_lab.deeds import Deed, Hog, prepare
from foliot_lab.fabric import Fabric
from foliot_lab.faults import run_timeline
from foliot_lab.iproute import IP, TC
from foliot_lab.namespaces import Namespace, inside, make_socket
from foliot_lab.scenario import FabricSpec, FaultSpec, Scenario

SPEC = FabricSpec(hosts=4, rails=2, leaves=2, spines=4)
PATIENCE_S = 60.0
SO_RCVBUFFORCE = 33  # asm-generic/socket.h
RTMGRP_LINK, RTM_NEWLINK, IFF_LOWER_UP = 1, 16, 0x1_0000  # linux/rtnetlink.h, linux/if.h


class Recorder:
    """A world that only notes what is done to it."""

    def __init__(self):
        self.done = []

    def __getattr__(self, name):
        return lambda *arguments: self.done.append((name, *arguments))


def deed_of(fabric: Fabric | None, **keys: object) -> Deed:
    """The deed of a fault in the fabric of this file."""
    return prepare(FaultSpec(at_s=0, **keys), SPEC, fabric, Recorder())


def bound(fabric: Fabric, node: str, port: int = 0) -> socket.socket:
    """A UDP socket on a node's NIC of rail0, with room for all that a test sends."""
    made = make_socket(fabric.host(node), socket.AF_INET, socket.SOCK_DGRAM)
    made.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, 1 << 24)
    made.settimeout(PATIENCE_S)
    made.bind((fabric.underlay(node, "rail0"), port))
    return made


def output(namespace: Namespace, *command: str) -> str:
    """What a command prints in a namespace."""
    with inside(namespace):
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def routes(fabric: Fabric) -> dict[str, str]:
    """All routes of all hosts and routers."""
    return {name: output(fabric.namespace(name), IP, "route") for name in fabric.plan.ports}


def come_back(fabric: Fabric, before: dict[str, str]) -> bool:
    """Whether all routes are as they were, soon: that a carrier is back, the kernel tells the other end in its own time."""
    deadline_s = time.monotonic() + PATIENCE_S
    while routes(fabric) != before and time.monotonic() < deadline_s:
        time.sleep(0.02)
    return routes(fabric) == before


def arrived_before(sink: socket.socket, marker: bytes) -> int:
    """Datagrams that came before the marker."""
    count = 0
    while sink.recv(64) != marker:
        count += 1
    return count


def exchange(one: socket.socket, other: socket.socket) -> None:
    """A datagram each way arrives, so that both ends know their neighbours."""
    for source, sink in ((one, other), (other, one)):
        source.sendto(b"hello", sink.getsockname())
        assert sink.recv(64) == b"hello"


def lost(one: socket.socket, other: socket.socket, deed: Deed, sent: int) -> tuple[int, int]:
    """Of so many datagrams each way, how many the deed swallows: from one to other, and back."""
    exchange(one, other)
    deed.inject()
    for source, sink in ((one, other), (other, one)):
        for _ in range(sent):
            source.sendto(b"x", sink.getsockname())
    deed.heal()
    swallowed = []
    for source, sink in ((one, other), (other, one)):
        source.sendto(b"marker", sink.getsockname())
        swallowed.append(sent - arrived_before(sink, b"marker"))
    return swallowed[0], swallowed[1]


def link_messages(fabric: Fabric, name: str) -> socket.socket:
    """The kernel's link messages of a host or router, from now on."""
    made = make_socket(fabric.namespace(name), socket.AF_NETLINK, socket.SOCK_RAW)
    made.settimeout(PATIENCE_S)
    made.bind((0, RTMGRP_LINK))
    return made


def next_carrier(messages: socket.socket, index: int) -> bool:
    """The carrier of a device in the next link message that is about it."""
    while True:
        data = messages.recv(65536)
        _, kind, _, _, _, _, _, about, flags = struct.unpack_from("=IHHIIHHiI", data)
        if (kind, about) == (RTM_NEWLINK, index):
            return bool(flags & IFF_LOWER_UP)


@pytest.mark.net
@pytest.mark.parametrize("where", ["node0.rail0", "rail0.leaf0-spine2"])
def test_a_cut_link_is_seen_by_its_near_end_and_comes_back(fabric, where):
    """The near end of a cut link hears that its carrier is gone, then that it is back, and all routes are as before."""
    before, link = routes(fabric), fabric.plan.links[where]
    deed = deed_of(fabric, kind="link-down", where=where)
    with link_messages(fabric, link.near.owner) as messages:
        deed.inject()
        assert next_carrier(messages, link.near.index) is False
        assert routes(fabric)[link.near.owner].count("linkdown") > 0
        deed.heal()
        assert next_carrier(messages, link.near.index) is True
    assert come_back(fabric, before)


@pytest.mark.net
def test_a_cut_nic_hears_nothing_until_it_is_healed(fabric):
    """What is sent to a host without carrier is lost for good, and what is sent after it flows again."""
    deed, index = deed_of(fabric, kind="link-down", where="node0.rail0"), fabric.plan.links["node0.rail0"].near.index
    with bound(fabric, "node0") as one, bound(fabric, "node3") as other, link_messages(fabric, "node0") as messages:
        exchange(one, other)
        deed.inject()
        assert next_carrier(messages, index) is False
        other.sendto(b"into the black hole", one.getsockname())
        deed.heal()
        assert next_carrier(messages, index) is True
        exchange(one, other)


@pytest.mark.net
def test_an_administrators_down_gives_the_route_back(fabric):
    """A NIC set down on its host loses the host's route, which comes back with it."""
    before = routes(fabric)
    deed = deed_of(fabric, kind="admin-down", where="node1.rail1")
    deed.inject()
    assert "dev rail1" not in routes(fabric)["node1"]
    deed.heal()
    assert come_back(fabric, before)


@pytest.mark.net
def test_a_one_way_drop_at_a_nic_drops_what_the_nic_sends_and_nothing_else(fabric):
    """All datagrams from the host vanish without an error; all to it arrive."""
    with bound(fabric, "node0") as one, bound(fabric, "node3") as other:
        deed = deed_of(fabric, kind="drop-one-way", where="node0.rail0")
        assert lost(one, other, deed, 100) == (100, 0)


@pytest.mark.net
def test_a_drop_drops_both_ways(fabric):
    """All datagrams from the host and to it vanish."""
    with bound(fabric, "node0") as one, bound(fabric, "node3") as other:
        assert lost(one, other, deed_of(fabric, kind="drop", where="node0.rail0"), 100) == (100, 100)


@pytest.mark.net
def test_a_one_way_drop_in_the_fabric_drops_what_goes_up(fabric):
    """Of a flow whose two directions take the same spine, only what the leaf sends to the spine vanishes."""
    ports = range(50000, 50100)
    port, spine = next(
        (port, spine) for port in ports
        if (spine := fabric.spine("node0", "node3", "rail0", port, port))
        == fabric.spine("node3", "node0", "rail0", port, port)
    )  # fmt: skip
    assert spine is not None
    where = f"rail0.leaf0-{spine.partition('.')[2]}"
    with bound(fabric, "node0", port) as one, bound(fabric, "node3", port) as other:
        assert lost(one, other, deed_of(fabric, kind="drop-one-way", where=where), 50) == (50, 0)
        assert lost(one, other, deed_of(fabric, kind="drop", where=where), 50) == (50, 50)


@pytest.mark.net
def test_a_loss_takes_about_its_share(fabric):
    """Of 2,000 datagrams each way through a loss of 0.2, between 280 and 520 are lost: 6.7 sigma to either side."""
    with bound(fabric, "node0") as one, bound(fabric, "node3") as other:
        for swallowed in lost(one, other, deed_of(fabric, kind="loss", where="node0.rail0", share=0.2), 2000):
            assert 280 < swallowed < 520


@pytest.mark.net
def test_a_loss_one_way_takes_its_share_of_what_the_nic_sends_and_nothing_else(fabric):
    """Likewise."""
    with bound(fabric, "node0") as one, bound(fabric, "node3") as other:
        forth, back = lost(one, other, deed_of(fabric, kind="loss-one-way", where="node0.rail0", share=0.2), 2000)
    assert 280 < forth < 520
    assert back == 0


@pytest.mark.net
def test_a_rate_holds_in_both_directions_and_is_given_back(fabric):
    """A link's rate changes at both its ends, at no other port, and is the planned one again after it."""
    link = fabric.plan.links["node2.rail1"]

    def rates():
        return {
            (name, queue["dev"]): queue["options"]["rate"] * 8e-6
            for name in fabric.plan.ports
            for queue in json.loads(output(fabric.namespace(name), TC, "-j", "qdisc"))
            if queue["kind"] == "tbf"
        }

    before = rates()
    deed = deed_of(fabric, kind="rate", where="node2.rail1", mbps=12.5)
    deed.inject()
    during = rates()
    assert {place: rate for place, rate in during.items() if rate != before[place]} == {
        (link.near.owner, link.near.device): 12.5,
        (link.far.owner, link.far.device): 12.5,
    }
    deed.heal()
    assert rates() == before


@pytest.mark.net
async def test_a_timeline_on_a_real_fabric_leaves_it_as_it_was(fabric):
    """Cut off in the middle of faults of every kind that touches links, everything is healed."""
    before = routes(fabric)
    queues = {name: output(fabric.namespace(name), TC, "qdisc") for name in fabric.plan.ports}
    scenario = Scenario(
        fabric=SPEC,
        faults=(
            FaultSpec(id="f1", at_s=0, kind="link-down", where="node0.rail0", for_s=900.0),
            FaultSpec(id="f2", at_s=0, kind="flap", where="rail0.leaf1-spine0", times=3, down_s=300.0, up_s=1.0),
            FaultSpec(id="f3", at_s=0, kind="loss", where="node1.rail0", share=0.5),
            FaultSpec(id="f4", at_s=0, kind="rate", where="node1.rail1", mbps=1.0),
            FaultSpec(id="f5", at_s=0, kind="admin-down", where="node2.rail0"),
        ),
        duration_s=1000.0,
    )
    injected = asyncio.Queue()
    running = asyncio.create_task(
        run_timeline(
            scenario, asyncio.get_running_loop().time(), fabric, Recorder(), clock=lambda: 0, report=injected.put_nowait
        )
    )
    assert {(await injected.get()).fault_id for _ in scenario.faults} == {"f1", "f2", "f3", "f4", "f5"}
    assert routes(fabric) != before
    running.cancel()
    await asyncio.wait([running])
    assert come_back(fabric, before)
    assert {name: output(fabric.namespace(name), TC, "qdisc") for name in fabric.plan.ports} == queues
    filters = output(fabric.namespace("rail0.leaf0"), TC, "filter", "show", "dev", "node1", "ingress")
    assert filters.strip() == ""


@pytest.mark.parametrize(
    ("keys", "injected", "healed"),
    [
        ({"kind": "kill", "where": "node1/probe", "for_s": 1.0}, ("kill", "node1/probe"), ("restart", "node1/probe")),
        ({"kind": "kill", "where": "sync"}, ("kill", "sync"), None),
        ({"kind": "stop", "where": "node1"}, ("stop", "node1"), ("resume", "node1")),
        ({"kind": "bus-cut", "where": "bus"}, ("cut_bus",), ("mend_bus",)),
        (
            {"kind": "clock-step", "where": "node1", "offset_ns": 500, "for_s": 1.0},
            ("step_clock", "node1", 500),
            ("step_clock", "node1", -500),
        ),
        ({"kind": "clock-step", "where": "node1", "offset_ns": 500}, ("step_clock", "node1", 500), None),
    ],
)
def test_what_is_not_a_wire_is_done_by_the_world(keys, injected, healed):
    """Processes, clocks and the bus are reached through the world, and let go of where that makes sense."""
    world = Recorder()
    deed = prepare(FaultSpec(at_s=0, **keys), SPEC, None, world)
    deed.inject()
    assert world.done == [injected]
    deed.heal()
    assert world.done[1:] == ([] if healed is None else [healed])


def test_a_hog_burns_on_every_processor_and_stops():
    """A CPU fault has one busy process on each processor that the lab may use, and none after it."""
    hog = Hog(0.01)
    hog.start()
    try:
        pids = hog.pids
        assert [os.sched_getaffinity(pid) for pid in pids] == [{number} for number in sorted(os.sched_getaffinity(0))]
    finally:
        hog.stop()
    assert not any(Path(f"/proc/{pid}").exists() for pid in pids)
