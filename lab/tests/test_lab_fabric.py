"""The fabric: its plan, and that the kernel routes, rates and predicts as planned."""

import ipaddress
import json
import socket
import subprocess

import pytest

from foliot_lab.fabric.fabric import Fabric, FabricError
from foliot_lab.fabric.iproute import IP, TC
from foliot_lab.fabric.link_shaping import BURST_BYTES
from foliot_lab.fabric.namespaces import Namespace, inside, make_socket
from foliot_lab.measure.capacity_check import Carrying, arrived, measure, refusal
from foliot_lab.scenario.spec import FabricSpec, Scenario, WorkloadSpec
from foliot_lab.scenario.topology import plan

SPEC = FabricSpec(hosts=4, rails=2, leaves=2, spines=4)
PATIENCE_S = 60.0
PORTS = range(49152, 49164)


def bound(fabric: Fabric, node: str, rail: str = "rail0", port: int = 0) -> socket.socket:
    """A UDP socket on a node's NIC."""
    made = make_socket(fabric.host(node), socket.AF_INET, socket.SOCK_DGRAM)
    made.settimeout(PATIENCE_S)
    made.bind((fabric.plan.underlay(node, rail), port))
    return made


def shown(namespace: Namespace, *command: str) -> list[dict]:
    """The output of a JSON command of iproute2 in a namespace."""
    with inside(namespace):
        return json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


def sent_up(fabric: Fabric, leaf: str) -> dict[str, int]:
    """Packets that a leaf has sent to each spine."""
    links = shown(fabric.namespace(leaf), IP, "-j", "-s", "link")
    return {link["ifname"]: link["stats64"]["tx"]["packets"] for link in links if link["ifname"].startswith("spine")}


def test_every_address_and_device_index_is_one_of_a_kind():
    """No two ports of a fabric share an address or an index, and every link's two addresses are a /31."""
    planned = plan(FabricSpec(hosts=37, rails=8, leaves=5, spines=7), 1)
    ports = [port for link in planned.links.values() for port in (link.near, link.far)]
    assert len({port.address for port in ports}) == len({port.index for port in ports}) == len(ports)
    assert len(ports) == 2 * (37 * 8 + 8 * 5 * 7)
    for link in planned.links.values():
        near, far = (ipaddress.ip_interface(port.address) for port in (link.near, link.far))
        assert near.network == far.network
        assert near.network.prefixlen == 31


def test_hosts_are_split_among_leaves_in_contiguous_blocks():
    """The first leaves take one more host where it does not come out even."""
    planned = plan(FabricSpec(hosts=5, rails=2, leaves=2, spines=1), 1)
    assert [planned.leaf(host, "rail1") for host in planned.hosts] == ["rail1.leaf0"] * 3 + ["rail1.leaf1"] * 2
    assert planned.underlay("node3", "rail1") == "10.101.1.1"
    assert planned.front("node3") == "10.99.1.4"


def test_a_seed_makes_the_fabric_and_no_two_routers_hash_alike():
    """The same seed plans the same fabric, another seed other hashes, and each router has its own."""
    seeds = [router.hash_seed for router in plan(SPEC, 7).routers]
    assert plan(SPEC, 7) == plan(SPEC, 7)
    assert len(set(seeds)) == len(seeds) == 2 * (2 + 4)
    assert seeds != [router.hash_seed for router in plan(SPEC, 8).routers]


def test_a_leaf_without_addresses_for_its_hosts_is_no_fabric():
    """More hosts on a leaf than it has addresses are refused."""
    with pytest.raises(ValueError, match="200 hosts on a leaf"):
        plan(FabricSpec(hosts=200, leaves=1), 1)


@pytest.mark.net
def test_the_kernel_takes_the_spine_that_it_predicts(fabric):
    """For every source port, all packets go up to the predicted spine and none to another."""
    predicted = set()
    with bound(fabric, "node3") as sink:
        destination = sink.getsockname()
        for port in PORTS:
            spine = fabric.spine("node0", "node3", "rail0", port, destination[1])
            predicted.add(spine)
            with bound(fabric, "node0", port=port) as flow:
                flow.sendto(b"first", destination)  # Routers ask for their neighbours' addresses now, not later.
                sink.recv(16)
                before = sent_up(fabric, "rail0.leaf0")
                for _ in range(5):
                    flow.sendto(b"x", destination)
                    sink.recv(16)
            after = sent_up(fabric, "rail0.leaf0")
            grown = {f"rail0.{name}": after[name] - count for name, count in before.items() if after[name] != count}
            assert grown == {spine: 5}
    assert len(predicted) > 1
    assert fabric.spine("node0", "node1", "rail0", 50000) is None


@pytest.mark.net
def test_every_host_reaches_every_other_on_every_rail_and_the_control_namespace(fabric):
    """Datagrams between all pairs arrive on both rails, and over the frontend."""
    for rail in fabric.plan.rails:
        sockets = {node: bound(fabric, node, rail) for node in fabric.plan.hosts}
        for source in sockets.values():
            for sink in sockets.values():
                source.sendto(b"hello", sink.getsockname())
                assert sink.recvfrom(16) == (b"hello", source.getsockname())
        for made in sockets.values():
            made.close()
    with (
        make_socket(fabric.control, socket.AF_INET, socket.SOCK_DGRAM) as control,
        make_socket(fabric.host("node2"), socket.AF_INET, socket.SOCK_DGRAM) as host,
    ):
        control.settimeout(PATIENCE_S)
        control.bind(("10.99.0.1", 0))
        host.sendto(b"hello", control.getsockname())
        assert control.recvfrom(16)[1][0] == fabric.plan.front("node2")


@pytest.mark.net
def test_every_link_has_its_rate_in_both_directions(fabric):
    """Every port of the fabric has a token bucket of the planned rate that lets a GSO packet pass whole."""
    for name, ports in fabric.plan.ports.items():
        buckets = {
            queue["dev"]: queue["options"] for queue in shown(fabric.namespace(name), TC, "-j", "qdisc")
            if queue["kind"] == "tbf"
        }  # fmt: skip
        assert buckets.keys() == {port.device for port in ports}
        for options in buckets.values():
            assert options["rate"] * 8 == 200e6
            assert options["burst"] == pytest.approx(BURST_BYTES, rel=0.01)


@pytest.mark.net
def test_what_the_kernel_refuses_is_told(fabric):
    """A step that fails names the tool, the namespace and the kernel's words."""
    with pytest.raises(FabricError, match=r"ip in control: .*File exists"):
        Fabric.build(fabric.plan, fabric.control)


@pytest.mark.net
async def test_a_machine_is_measured_before_it_is_measured_on(fabric):
    """The self-check moves real traffic and reports shares that can be judged."""
    carrying = await measure(fabric)
    assert 0 < carrying.solo_mbps < 1.1 * carrying.link_mbps
    assert carrying.processors >= 1


def test_what_waits_for_a_late_reader_has_arrived():
    """A loop that stands still reads a second's bytes later, which are no part of the time after it."""
    with socket.create_server(("127.0.0.1", 0)) as listener, socket.create_connection(listener.getsockname()) as sender:
        receiver, _ = listener.accept()
        with receiver:
            sender.sendall(bytes(1000))
            receiver.recv(1, socket.MSG_PEEK)
            assert arrived(receiver, 24) == 1024
            assert arrived(receiver, 24 + len(receiver.recv(300))) == 1024


@pytest.mark.parametrize(
    ("changed", "load", "words"),
    [
        ({}, 0.6, ""),
        ({"solo_mbps": 90.0}, 0.6, "gets 90 Mb/s over links of 200"),
        ({"cpu_per_gbps": 1.0}, 0.6, "would keep 1.9 of this machine's 2 processors busy"),
        ({"cpu_per_gbps": 1.0}, 0.2, ""),
    ],
)
def test_a_fabric_that_the_machine_cannot_carry_is_refused_in_words(changed, load, words):
    """A link that cannot be filled, and traffic for more processors than there are, are told apart."""
    sound = {"solo_mbps": 185.0, "link_mbps": 200.0, "cpu_per_gbps": 0.25, "processors": 2}
    told = refusal(Carrying(**(sound | changed)), Scenario(workload=WorkloadSpec(load=load)))
    assert words in told
    assert bool(words) == bool(told)
