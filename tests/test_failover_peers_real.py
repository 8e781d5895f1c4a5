"""The failover bench's real peers: each runs in a small fabric, finds or moves what it should, and leaves nothing."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path

import pytest

from bench.studies.failover_peers import frr, session_paths
from bench.studies.failover_peers.bfd import Bfd
from bench.studies.failover_peers.carriers import Carriers
from bench.studies.failover_peers.mptcp import Mptcp
from bench.studies.failover_peers.nexthop import Nexthops
from bench.studies.failover_peers.rows import Row
from bench.studies.failover_peers.stage import PeerError, Stage, cut, in_turn, place, until
from bench.studies.failover_peers.streams import Streams
from foliot_lab.fabric import capabilities
from foliot_lab.fabric.fabric import Fabric
from foliot_lab.fabric.iproute import IP
from foliot_lab.fabric.namespaces import Namespace, inside, make_socket
from foliot_lab.fabric.rtnetlink import link_state
from foliot_lab.measure.clock_truth import LabTime
from foliot_lab.scenario.spec import FabricSpec
from foliot_lab.scenario.topology import plan
from patience import patience

SPEC = FabricSpec(hosts=2, rails=2, leaves=2, spines=2)
UNPACKED = Path(__file__).parents[1] / "run/peers"


class Stub:
    """A peer that breaks down where it is told to."""

    def __init__(self, name, breaks_at=None):
        self.name = name
        self.stopped = 0
        self._breaks_at = breaks_at

    async def start(self):
        """Or breaks down."""
        self._do("start")

    async def measure(self, cut, rep):
        """Or breaks down."""
        self._do(cut.variant)
        return Row(variant=cut.variant, where=cut.where, tool=self.name, rep=rep)

    async def stop(self):
        """Counts."""
        self.stopped += 1

    def coverage(self):
        """None."""

    def _do(self, what):
        if what == self._breaks_at:
            raise PeerError(f"broke at\n{what}")


@pytest.fixture
async def stage(tmp_path):
    """A small fabric around a control namespace that is not this process's own."""
    if not capabilities.is_privileged():
        pytest.skip("this process may not make network namespaces")
    control = Namespace.make("control")
    built = Fabric.build(plan(SPEC, 1), control)
    yield Stage(built, SPEC, LabTime.starting_now(), tmp_path, UNPACKED)
    built.close()
    control.close()


@pytest.mark.net
async def test_a_peer_that_breaks_down_says_so_and_the_next_one_goes_on(stage):
    """Of every variant that it owes; and it is stopped."""
    told = []
    peers = [Stub("first", "start"), Stub("second", "silent uplink"), Stub("third")]
    await in_turn(peers, stage, ["silent NIC", "silent uplink"], 0, told.append)
    assert [(row.tool, row.variant, row.said) for row in told] == [
        ("first", "silent NIC", "broke at start"), ("first", "silent uplink", "broke at start"),
        ("second", "silent NIC", ""), ("second", "silent uplink", "broke at silent uplink"),
        ("third", "silent NIC", ""), ("third", "silent uplink", ""),
    ]  # fmt: skip
    assert [peer.stopped for peer in peers] == [1, 1, 1]


@pytest.mark.net
@pytest.mark.parametrize("hops", ["hosts", "leaf", "leaf by interface"])
async def test_bfd_finds_a_silent_nic_and_comes_up_again(stage, hops):
    """A real bfdd everywhere. Between hosts both ends know; with the leaf only the host itself does."""
    try:
        frr.find(UNPACKED)
    except PeerError as error:
        pytest.skip(str(error))
    peer = Bfd(stage, 50, hops)
    await peer.start()
    try:
        row = await peer.measure(cut("silent NIC", stage, 0), 0)
        again = await peer.measure(cut("silent NIC", stage, 1), 1)
    finally:
        await peer.stop()
    assert row.detect_ms is not None
    assert again.detect_ms is not None
    assert (row.did, row.ought) == (again.did, again.ought) == ((2, 2) if hops == "hosts" else (1, 2))
    assert (row.detect_all_ms is None) == (hops != "hosts")
    assert row.packets_per_s
    coverage = peer.coverage()
    # Two hosts on leaves of their own, two rails, two spines: each of two sessions' two streams rides one spine.
    assert (
        coverage is None if hops != "hosts" else (coverage.sessions, coverage.ridden_paths, coverage.paths) == (2, 4, 8)
    )


@pytest.mark.net
async def test_a_nexthop_group_moves_what_its_own_host_sends_and_leaves_nothing_behind(stage):
    """What is sent to the host is not moved by anybody."""
    before = _shown(stage)
    peer = Nexthops(stage)
    await peer.start()
    try:
        found = [
            await peer.measure(_of("lost carrier", stage, f"node{host}.{rail}"), 0)
            for host in (0, 1)
            for rail in stage.fabric.plan.rails
        ]
    finally:
        await peer.stop()
    assert all(row.detect_ms is not None for row in found)
    assert any(row.move_out_ms is not None for row in found)
    assert any(row.ought > row.did for row in found)
    assert all(row.move_in_ms is None for row in found)
    assert _shown(stage) == before


@pytest.mark.net
async def test_mptcp_has_a_subflow_on_every_rail_and_its_silences_are_seen(stage):
    """Real connections; nothing is cut."""
    peer = Mptcp(stage)
    try:
        await peer.start()
    except PeerError as error:
        await peer.stop()
        pytest.skip(str(error))
    streams = Streams(stage)
    try:
        await streams.connect()
        assert await until(streams.joined, patience(20.0))
        began_ns = stage.time.now_ns()
        assert await until(lambda: streams.came_since(began_ns), patience(20.0))
    finally:
        streams.close()
        await peer.stop()


@pytest.mark.net
async def test_the_loss_of_a_carrier_is_heard(stage):
    """As its own kernel says it of a NIC whose leaf has taken the port down; and forgotten."""
    hosts = [stage.fabric.host(host) for host in stage.fabric.plan.hosts]
    port = stage.fabric.plan.links["node0.rail0"].far
    heard = Carriers(hosts, stage.time)
    began_ns = stage.time.now_ns()
    stage.fabric.netlink(port).request(link_state(port.index, up=False))
    assert await until(lambda: heard.lost() is not None, patience(20.0))
    assert began_ns < heard.lost() <= stage.time.now_ns()
    heard.forget()
    assert heard.lost() is None
    heard.close()


@pytest.mark.net
def test_streams_ride_what_the_leaf_says(stage):
    """Of one source port one spine each way; both ends are told apart."""
    fabric = stage.fabric
    listeners = session_paths.Listeners(fabric, 4784)
    addresses = [fabric.plan.underlay(host, "rail0") for host in ("node0", "node1")]
    for host, address, other in (("node0", *addresses), ("node1", *reversed(addresses))):
        sender = make_socket(fabric.host(host), 2, 2)
        sender.bind((address, 49_152))
        for _ in range(3):
            sender.sendto(b"x", (other, 4784))
        sender.close()
    heard = set()
    give_up_s = time.monotonic() + patience(20)
    while len(heard) < 2 and time.monotonic() < give_up_s:  # a packet that was sent may not have come to its leaf yet
        heard |= listeners.heard()
        time.sleep(0.01)
    listeners.close()
    assert heard == {
        session_paths.Stream(addresses[0], addresses[1], 49_152, 4784),
        session_paths.Stream(addresses[1], addresses[0], 49_152, 4784),
    }
    found = session_paths.coverage(fabric, "any", heard)
    assert (found.sessions, found.paths, found.ridden_paths, found.trunk_ways, found.ridden_trunk_ways) == (
        1, 8, 2, 16, 4
    )  # fmt: skip


def _of(variant, stage, where):
    """A variant at a place of one's choice."""
    spot = next(rep for rep in range(99) if place(variant, stage.fabric.plan, rep) == where)
    return cut(variant, stage, spot)


def _shown(stage):
    """Routes, nexthops, addresses and hashing of all namespaces."""
    found = []
    for namespace in stage.fabric.namespaces():
        with inside(namespace):
            for what in ("route", "nexthop", "-o -4 addr"):
                done = subprocess.run([IP, *what.split()], capture_output=True, text=True, check=True)
                found.append(done.stdout.replace(" linkdown", ""))
            found.append(Path("/proc/sys/net/ipv4/fib_multipath_hash_policy").read_text())
    return found
