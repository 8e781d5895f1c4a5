"""Faults: that each does what it says, to nothing else, and heals."""

import asyncio
import contextlib
import json
import os
import socket
import struct
import subprocess
import time
from collections.abc import Callable
from difflib import unified_diff
from pathlib import Path

import pytest

from foliot_lab.fabric.fabric import Fabric, run_batch
from foliot_lab.fabric.iproute import IP, TC
from foliot_lab.fabric.namespaces import Namespace, inside, make_socket
from foliot_lab.faults.actions import Action, Hog, prepare
from foliot_lab.faults.injection import ScenarioTime, run_timeline
from foliot_lab.measure.clock_truth import LabTime
from foliot_lab.measure.outages import End, Pair, judge
from foliot_lab.measure.wire_witness import Witness
from foliot_lab.scenario.spec import FabricSpec, FaultSpec, Scenario
from foliot_lab.scenario.topology import Port

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


def action_of(fabric: Fabric | None, **keys: object) -> Action:
    """The action of a fault in the fabric of this file."""
    return prepare(FaultSpec(at_s=0, **keys), SPEC, fabric, Recorder())


def bound(fabric: Fabric, node: str, port: int = 0) -> socket.socket:
    """A UDP socket on a node's NIC of rail0, with room for all that a test sends."""
    made = make_socket(fabric.host(node), socket.AF_INET, socket.SOCK_DGRAM)
    made.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, 1 << 24)
    made.settimeout(PATIENCE_S)
    made.bind((fabric.plan.underlay(node, "rail0"), port))
    return made


def output(namespace: Namespace, *command: str) -> str:
    """The output of a command in a namespace."""
    with inside(namespace):
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def routes(fabric: Fabric) -> dict[str, str]:
    """All routes of all hosts and routers."""
    return {name: output(fabric.namespace(name), IP, "route") for name in fabric.plan.ports}


def changed(fabric: Fabric, before: dict[str, str]) -> dict[str, str]:
    """What changed, of hosts and routers whose routes are not soon as they were.

    The kernel tells of a carrier in its own time.
    """
    deadline_s = time.monotonic() + PATIENCE_S
    while (now := routes(fabric)) != before and time.monotonic() < deadline_s:
        time.sleep(0.02)
    return {
        name: "\n".join(unified_diff(before[name].splitlines(), now[name].splitlines(), lineterm="", n=0))
        for name in before
        if now[name] != before[name]
    }


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


def wait_for(condition: Callable[[], bool]) -> None:
    """Waits for what the kernel does.

    Where it is busy, its thread for softirqs takes packets from one device to the next some time later.
    """
    deadline_s = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline_s
        time.sleep(0.01)


def hooked(fabric: Fabric, port: Port) -> int:
    """Packets that have come by filters of a port, those that were dropped too."""
    queues = json.loads(output(fabric.namespace(port.owner), TC, "-s", "-j", "qdisc", "show", "dev", port.device))
    return next(int(queue["packets"]) for queue in queues if queue["kind"] == "clsact")


def taken(fabric: Fabric, router: str) -> int:
    """Packets that a router has taken from its devices, those for which it had no route too."""
    shown = output(fabric.namespace(router), "cat", "/proc/net/snmp").splitlines()
    names, values = (line.split() for line in shown if line.startswith("Ip:"))
    return int(values[names.index("InReceives")])


def lost(fabric: Fabric, one: socket.socket, other: socket.socket, sent: int, **fault: object) -> tuple[int, int]:
    """The numbers of datagrams, out of so many each way, that a fault swallows: from one to other, and back."""
    action, far = action_of(fabric, **fault), fabric.plan.links[str(fault["where"])].far
    exchange(one, other)
    before, ways = hooked(fabric, far), 1 if str(fault["kind"]).endswith("-one-way") else 2
    action.inject()
    for source, sink in ((one, other), (other, one)):
        for _ in range(sent):
            source.sendto(b"x", sink.getsockname())
    wait_for(lambda: hooked(fabric, far) >= before + ways * sent)
    action.heal()
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
    action = action_of(fabric, kind="link-down", where=where)
    with link_messages(fabric, link.near.owner) as messages:
        action.inject()
        assert next_carrier(messages, link.near.index) is False
        assert routes(fabric)[link.near.owner].count("linkdown") > 0
        action.heal()
        assert next_carrier(messages, link.near.index) is True
    assert changed(fabric, before) == {}


@pytest.mark.net
def test_a_cut_nic_hears_nothing_until_it_is_healed(fabric):
    """Packets to a host without carrier are lost for good, and later packets flow again."""
    action, link = action_of(fabric, kind="link-down", where="node0.rail0"), fabric.plan.links["node0.rail0"]
    index, leaf = link.near.index, link.far.owner
    with bound(fabric, "node0") as one, bound(fabric, "node3") as other, link_messages(fabric, "node0") as messages:
        exchange(one, other)
        action.inject()
        assert next_carrier(messages, index) is False
        before = taken(fabric, leaf)
        other.sendto(b"into the black hole", one.getsockname())
        wait_for(lambda: taken(fabric, leaf) > before)
        action.heal()
        assert next_carrier(messages, index) is True
        exchange(one, other)


@pytest.mark.net
def test_an_administrators_down_gives_the_route_back(fabric):
    """A NIC set down on its host loses the host's route, which comes back with it."""
    before = routes(fabric)
    action = action_of(fabric, kind="admin-down", where="node1.rail1")
    action.inject()
    assert "dev rail1" not in routes(fabric)["node1"]
    action.heal()
    assert changed(fabric, before) == {}


@pytest.mark.net
def test_a_one_way_drop_at_a_nic_drops_what_the_nic_sends_and_nothing_else(fabric):
    """All datagrams from the host vanish without an error; all to it arrive."""
    with bound(fabric, "node0") as one, bound(fabric, "node3") as other:
        assert lost(fabric, one, other, 100, kind="drop-one-way", where="node0.rail0") == (100, 0)


@pytest.mark.net
def test_a_drop_drops_both_ways(fabric):
    """All datagrams from the host and to it vanish."""
    with bound(fabric, "node0") as one, bound(fabric, "node3") as other:
        assert lost(fabric, one, other, 100, kind="drop", where="node0.rail0") == (100, 100)


@pytest.mark.net
def test_a_one_way_drop_in_the_fabric_drops_what_goes_up(fabric):
    """If both directions of a flow take the same spine, only the packets from the leaf to the spine vanish."""
    ports = range(50000, 50100)
    port, spine = next(
        (port, spine) for port in ports
        if (spine := fabric.spine("node0", "node3", "rail0", port, port))
        == fabric.spine("node3", "node0", "rail0", port, port)
    )  # fmt: skip
    assert spine is not None
    where = f"rail0.leaf0-{spine.partition('.')[2]}"
    with bound(fabric, "node0", port) as one, bound(fabric, "node3", port) as other:
        assert lost(fabric, one, other, 50, kind="drop-one-way", where=where) == (50, 0)
        assert lost(fabric, one, other, 50, kind="drop", where=where) == (50, 50)


@pytest.mark.net
def test_a_loss_takes_about_its_share(fabric):
    """Of 2,000 datagrams each way through a loss of 0.2, between 280 and 520 are lost: 6.7 sigma to either side."""
    with bound(fabric, "node0") as one, bound(fabric, "node3") as other:
        for swallowed in lost(fabric, one, other, 2000, kind="loss", where="node0.rail0", share=0.2):
            assert 280 < swallowed < 520


@pytest.mark.net
def test_a_loss_one_way_takes_its_share_of_what_the_nic_sends_and_nothing_else(fabric):
    """Likewise."""
    with bound(fabric, "node0") as one, bound(fabric, "node3") as other:
        forth, back = lost(fabric, one, other, 2000, kind="loss-one-way", where="node0.rail0", share=0.2)
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
    action = action_of(fabric, kind="rate", where="node2.rail1", mbps=12.5)
    action.inject()
    during = rates()
    assert {place: rate for place, rate in during.items() if rate != before[place]} == {
        (link.near.owner, link.near.device): 12.5,
        (link.far.owner, link.far.device): 12.5,
    }
    action.heal()
    assert rates() == before


def of_size(wire_bytes: int) -> bytes:
    """A UDP payload whose IPv4 packet has this size."""
    return bytes(wire_bytes - 28)


@pytest.mark.net
@pytest.mark.parametrize("where", ["node0.rail0", "fabric link"])
def test_a_link_with_an_mtu_hole_passes_small_packets_and_drops_large_ones(fabric, where):
    """Both ways, to the byte, without a word to the sender; everything passes again after it."""
    ports = range(50000, 50100)
    port = next(
        port for port in ports
        if fabric.spine("node0", "node3", "rail0", port, port) == fabric.spine("node3", "node0", "rail0", port, port)
    )  # fmt: skip
    if where == "fabric link":
        where = f"rail0.leaf0-{fabric.spine('node0', 'node3', 'rail0', port, port).partition('.')[2]}"
    action = action_of(fabric, kind="mtu", where=where, bytes=1400)
    with bound(fabric, "node0", port) as one, bound(fabric, "node3", port) as other:
        exchange(one, other)
        action.inject()
        for source, sink in ((one, other), (other, one)):
            for size in (1401, 1500, 1400):
                source.sendto(of_size(size), sink.getsockname())
            assert len(sink.recv(2000)) == 1400 - 28, "the first that comes is the last that was sent"
        action.heal()
        for source, sink in ((one, other), (other, one)):
            source.sendto(of_size(1500), sink.getsockname())
            assert len(sink.recv(2000)) == 1500 - 28


@pytest.mark.net
def test_the_witness_sees_an_mtu_hole_by_pulses_of_full_size_alone(fabric):
    """Small ones go on passing; large ones fall silent both ways with the fault and flow again after it."""
    ends = {End(node, "rail0"): fabric.plan.underlay(node, "rail0") for node in ("node0", "node3")}
    both = [Pair(*ends), Pair(*reversed(ends))]
    action, lab = action_of(fabric, kind="mtu", where="node0.rail0", bytes=1400), LabTime.starting_now()
    with Witness(ends, {end.node: fabric.host(end.node) for end in ends}, lab) as witness:
        small, large = witness.arm(both), witness.arm(both, full_size=True)

        def come(watch, since_ns):
            seen = witness.look(watch).values()
            return all(((pulses.sent_ns > since_ns) & (pulses.arrived_ns > 0)).any() for pulses in seen)

        wait_for(lambda: come(small, 0) and come(large, 0))
        injected_ns = lab.now_ns()
        action.inject()
        wait_for(lambda: all((each.sent_ns > injected_ns).sum() >= 20 for each in witness.look(large).values()))
        wait_for(lambda: come(small, lab.now_ns() - 20_000_000))
        told = judge(witness.look(large), injected_ns), judge(witness.look(small), injected_ns)
        assert [each.interrupted for each in told] == [2, 0]
        healed_ns = lab.now_ns()
        action.heal()
        wait_for(lambda: come(large, healed_ns))


def received(sink: socket.socket, size: int) -> int:
    """The number of bytes of a stream that arrived before it fell silent for a second."""
    sink.settimeout(1.0)
    count = 0
    with contextlib.suppress(TimeoutError):
        while count < size:
            count += len(sink.recv(65536))
    return count


@pytest.mark.net
def test_a_stream_stands_still_in_an_mtu_hole_and_a_word_passes(fabric):
    """TCP's full-size segments are lost, also where the kernel handles many as one; a short message comes through."""
    with inside(fabric.host("node3")):
        listener = socket.create_server((fabric.plan.underlay("node3", "rail0"), 0))
    with listener, make_socket(fabric.host("node0"), socket.AF_INET, socket.SOCK_STREAM) as one:
        one.settimeout(PATIENCE_S)
        one.connect(listener.getsockname())
        other, _ = listener.accept()
        action = action_of(fabric, kind="mtu", where="node0.rail0", bytes=1400)
        with other:
            action.inject()
            one.sendall(b"a word")
            other.settimeout(PATIENCE_S)
            assert other.recv(64) == b"a word"
            one.setblocking(False)
            sent = one.send(bytes(100_000))
            assert sent > 1500
            assert received(other, sent) < sent
            action.heal()
            other.settimeout(PATIENCE_S)
            assert other.recv(65536)


def settings_of(fabric: Fabric, name: str, device: str) -> tuple[object, ...]:
    """The state of a device except its index: queues, addresses, MTU and neighbours' time."""
    (link,) = json.loads(output(fabric.namespace(name), IP, "-j", "addr", "show", "dev", device))
    queues = json.loads(output(fabric.namespace(name), TC, "-j", "qdisc", "show", "dev", device))
    time_ms = output(fabric.namespace(name), "cat", f"/proc/sys/net/ipv4/neigh/{device}/base_reachable_time_ms")
    addresses = [(each["local"], each["prefixlen"]) for each in link["addr_info"]]
    return link["mtu"], link["flags"], addresses, [(each["kind"], each.get("options")) for each in queues], time_ms


@pytest.mark.net
def test_a_device_goes_and_comes_as_with_a_driver_that_is_reloaded(fabric):
    """The host hears of the loss, of a new device without a carrier, and of the carrier; only the index changes."""
    before, link = routes(fabric), fabric.plan.links["node1.rail1"]
    ports = (link.near, link.far)
    were = [settings_of(fabric, port.owner, port.device) for port in ports]
    action = action_of(fabric, kind="reload", where="node1.rail1", for_s=1.0)
    for _ in range(2):
        index = fabric.index(link.near)
        with link_messages(fabric, "node1") as messages:
            action.inject()
            assert "rail1" not in output(fabric.host("node1"), IP, "-br", "link")
            assert "rail1" not in routes(fabric)["node1"]
            action.before_heal()
            assert fabric.index(link.near) not in {index, link.far.index}
            assert next_carrier(messages, fabric.index(link.near)) is False
            action.heal()
            while not next_carrier(messages, fabric.index(link.near)):
                pass
        assert changed(fabric, before) == {}
        assert [settings_of(fabric, port.owner, port.device) for port in ports] == were
    with bound(fabric, "node1") as one, bound(fabric, "node3") as other:
        exchange(one, other)


@pytest.mark.net
def test_a_new_device_can_be_done_to_what_the_old_one_could(fabric):
    """Faults that came ready before the device went know the new one."""
    link = fabric.plan.links["node1.rail1"]
    admin, rate = (
        action_of(fabric, kind="admin-down", where="node1.rail1"),
        action_of(fabric, kind="rate", where="node1.rail1", mbps=12.5),
    )
    absence = action_of(fabric, kind="reload", where="node1.rail1")
    before = routes(fabric)
    absence.inject()
    absence.heal()
    assert changed(fabric, before) == {}
    admin.inject()
    assert "dev rail1" not in routes(fabric)["node1"]
    admin.heal()
    assert changed(fabric, before) == {}
    rate.inject()
    queues = json.loads(output(fabric.host("node1"), TC, "-j", "qdisc", "show", "dev", link.near.device))
    assert [queue["options"]["rate"] * 8e-6 for queue in queues if queue["kind"] == "tbf"] == [12.5]


@pytest.mark.net
def test_a_new_device_gets_its_routes_though_somebody_was_first(fabric, monkeypatch):
    """The agent of its host puts them back as soon as it is up."""
    before = routes(fabric)
    (own,) = [line for line in before["node1"].splitlines() if "via" in line and "dev rail1" in line]

    def run(namespace, tool, lines):
        if "link set rail1 up" in lines:
            after = lines.index("link set rail1 up") + 1
            lines = [*lines[:after], f"route add {own}", *lines[after:]]
        run_batch(namespace, tool, lines)

    monkeypatch.setattr("foliot_lab.fabric.fabric.run_batch", run)
    action = action_of(fabric, kind="reload", where="node1.rail1")
    action.inject()
    action.heal()
    assert changed(fabric, before) == {}


@pytest.mark.net
async def test_a_timeline_on_a_real_fabric_leaves_it_as_it_was(fabric):
    """Cut off in the middle of faults of every kind that touches links, everything is healed."""
    before = routes(fabric)
    queues = {name: sorted(output(fabric.namespace(name), TC, "qdisc").splitlines()) for name in fabric.plan.ports}
    scenario = Scenario(
        fabric=SPEC,
        faults=(
            FaultSpec(id="f1", at_s=0, kind="link-down", where="node0.rail0", for_s=900.0),
            FaultSpec(id="f2", at_s=0, kind="flap", where="rail0.leaf1-spine0", times=3, down_s=300.0, up_s=1.0),
            FaultSpec(id="f3", at_s=0, kind="loss", where="node1.rail0", share=0.5),
            FaultSpec(id="f4", at_s=0, kind="rate", where="node1.rail1", mbps=1.0),
            FaultSpec(id="f5", at_s=0, kind="admin-down", where="node2.rail0"),
            FaultSpec(id="f6", at_s=0, kind="mtu", where="node2.rail1", bytes=1000),
            FaultSpec(id="f7", at_s=0, kind="reload", where="node3.rail1", for_s=900.0),
        ),
        duration_s=1000.0,
    )
    injected = asyncio.Queue()
    running = asyncio.create_task(
        run_timeline(
            scenario,
            ScenarioTime(asyncio.get_running_loop().time()),
            fabric,
            Recorder(),
            clock=lambda: 0,
            report=injected.put_nowait,
        )
    )
    assert {(await injected.get()).fault_id for _ in scenario.faults} == {"f1", "f2", "f3", "f4", "f5", "f6", "f7"}
    assert routes(fabric) != before
    running.cancel()
    await asyncio.wait([running])
    assert changed(fabric, before) == {}
    after = {name: sorted(output(fabric.namespace(name), TC, "qdisc").splitlines()) for name in fabric.plan.ports}
    assert after == queues
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
    action = prepare(FaultSpec(at_s=0, **keys), SPEC, None, world)
    action.inject()
    assert world.done == [injected]
    action.heal()
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
