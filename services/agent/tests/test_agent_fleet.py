"""Real agents on real kernels, joined by two rails, with the real bus between."""

from __future__ import annotations

import asyncio
import socket
import time

import msgspec
import pytest

from foliot.node.addressing import describe
from foliot_agent.control.restart_cache import Remembered, RestartCache
from foliot_schemas import ClockState, Command, NodePaths, Outcome, Placement
from foliot_schemas.subjects import CLOCKS, COMMAND, INVENTORY, OUTCOME, PATHS
from patience import patience

pytestmark = [pytest.mark.net, pytest.mark.nats]

_HOUR_NS = 3_600_000_000_000


def now_ns() -> int:
    """Reference time of these tests: every clock is the reference."""
    return time.clock_gettime_ns(time.CLOCK_MONOTONIC_RAW)


class Remediator:
    """What the tests say on the bus, and hear."""

    def __init__(self, fleet, bus) -> None:
        self._fleet = fleet
        self.bus = bus
        self.outcomes: list[Outcome] = []

    async def begin(self) -> None:
        """Gives every node a clock and arms it with the other rail."""
        await self.bus.subscribe_kept(OUTCOME, self._heard, durable="test")
        nodes = [describe(host.settings) for host in self._fleet.hosts]
        for node in nodes:
            state = ClockState(
                clock=node.name, reference="test", offset_ns=0, drift_ppb=0.0, hard_bound_ns=1, bound_ns=1,
                growth_ppb=0.0, as_of_ns=now_ns(), void_after_ns=now_ns() + _HOUR_NS, status="synchronised",
            )  # fmt: skip
            await self.bus.put(CLOCKS, node.name, state)
            backups = tuple(
                Placement(peer=peer.name, rail=f"rail{rail}", via=f"rail{1 - rail}", entropy=1)
                for peer in nodes
                if peer is not node
                for rail in (0, 1)
            )
            await self.bus.put(PATHS, node.name, NodePaths(node=node.name, lease_revision=1, backups=backups))

    async def _heard(self, outcome, subject):
        self.outcomes.append(outcome)

    def command(self, node: str, number: int, verb: str = "restore", **what) -> str:
        """Sends a command and returns its id."""
        command = Command(
            id=f"c{number}", verb=verb, node=node, cause="test", issued_ns=now_ns(),
            deadline_ns=now_ns() + _HOUR_NS, lease_revision=1, **what,
        )  # fmt: skip
        self.bus.publish_kept(COMMAND, command, verb, node)
        return command.id

    async def outcome(self, node: str, command: str = "armed/", count: int = 1) -> Outcome:
        """The latest of this many outcomes of a node to commands that begin so."""

        def fitting() -> list[Outcome]:
            return [each for each in self.outcomes if each.node == node and each.command.startswith(command)]

        await self._fleet.until(lambda: len(fitting()) >= count, f"{count} outcomes of {node} to {command}")
        return fitting()[-1]

    def told_back(self, node: str, via: str) -> bool:
        """Whether a node has said that it took traffic to a rail by itself."""
        return any(
            each.node == node and each.armed and each.status == "done" and {way.via for way in each.placements} == {via}
            for each in self.outcomes
        )


class PingPong:
    """A live TCP connection between two hosts' service addresses of rail0."""

    def __init__(self, client, server) -> None:
        self._client, self._server = client, server

    async def __aenter__(self):
        """Connects."""
        loop = asyncio.get_running_loop()
        with self._server.entered():
            listener = socket.create_server((self._server.service_address, 5000))
        with self._client.entered():
            self._ours = socket.socket()
        self._ours.bind((self._client.service_address, 0))
        for each in (listener, self._ours):
            each.setblocking(False)
        async with asyncio.timeout(60):
            await loop.sock_connect(self._ours, (self._server.service_address, 5000))
            self._theirs, _ = await loop.sock_accept(listener)
        listener.close()
        return self

    async def __aexit__(self, *_):
        """Closes both ends."""
        self._ours.close()
        self._theirs.close()

    async def plays(self) -> bool:
        """A word there and back."""
        loop = asyncio.get_running_loop()
        async with asyncio.timeout(60):
            await loop.sock_sendall(self._ours, b"ping")
            await loop.sock_sendall(self._theirs, await loop.sock_recv(self._theirs, 64))
            return await loop.sock_recv(self._ours, 64) == b"ping"


@pytest.fixture
async def remediator(fleet, bus):
    """On the bus, with all agents ready and armed."""
    made = Remediator(fleet, bus)
    await made.begin()
    for host in fleet.hosts:
        await host.start()
    for host in fleet.hosts:
        await host.ready()
        await fleet.until(lambda host=host: host.routes(7100) == host.routes(7101) == 2, "backups are armed")
    return made


def way(host, other, rail: int = 0) -> str:
    """What the kernel says of the way to another host's service address."""
    return host.ip(f"route get 10.20{rail}.0.{other.settings.index + 1}")


async def test_a_live_connection_survives_a_cut_and_comes_back_by_command(fleet, remediator):
    """Both ends leave the lost NIC by themselves and confirm it on the wire; the restore brings both ends back."""
    cut, other, third = fleet.hosts
    async with PingPong(cut, other) as connection:
        assert await connection.plays()
        assert "dev fo0e0" in way(cut, other)

        fleet.cut("rail0-0")
        assert await connection.plays()
        own, peers = await remediator.outcome("node0"), await remediator.outcome("node1")
        assert (own.status, own.armed, own.expected, len(own.confirmations)) == ("done", True, 2, 2)
        assert (peers.status, peers.armed, peers.expected, len(peers.confirmations)) == ("done", True, 1, 1)
        assert own.fault == peers.fault
        assert own.fault.startswith("boot1/node0.rail0/device-")
        assert own.confirmed_ns >= own.moved_ns > 0
        assert "dev fo1e1" in way(cut, other)
        assert "dev fo1e1" in way(other, cut)
        assert "dev fo0e0" in way(other, third)
        assert "7000:" in cut.ip("rule")

        again = remediator.command("node0", 1, "reroute", away=("rail0",), fault=own.fault)
        repeated = await remediator.outcome("node0", again)
        assert (repeated.status, repeated.moved_ns) == ("already", 0)

        early = remediator.command("node0", 2, back=("rail0",))
        assert (await remediator.outcome("node0", early)).reason == "the node's own NIC on rail0 is lost"
        fleet.cut("rail0-0", "up")
        await fleet.until(lambda: '"state": "back"' in cut.log, "node0 sees its carrier")
        home = {rail: Placement(peer="node0", rail=rail, via=rail, entropy=0) for rail in ("rail0", "rail1")}
        for number, node in enumerate(("node1", "node2"), 3):
            sent = remediator.command(node, number, placements=(home["rail0"],))
            assert (await remediator.outcome(node, sent)).status == "done"
        restored = await remediator.outcome("node0", remediator.command("node0", 5, back=("rail0",)))
        assert (restored.status, restored.expected, len(restored.confirmations)) == ("done", 2, 2)
        assert "7000:" not in cut.ip("rule")
        assert "dev fo0e0" in way(cut, other)
        assert "dev fo0e0" in way(other, cut)
        assert await connection.plays()


async def test_a_cut_heals_and_is_reported_though_the_bus_was_away(fleet, remediator):
    """The agents agree without the bus; what they did is told once it is back."""
    cut, other, _ = fleet.hosts
    async with PingPong(cut, other) as connection:
        await fleet.server.kill()

        fleet.cut("rail0-0")
        assert await connection.plays()
        assert "dev fo1e1" in way(cut, other)
        assert "dev fo1e1" in way(other, cut)

        await fleet.server.start()
        assert (await remediator.outcome("node0")).status == "done"
        assert (await remediator.outcome("node1")).status == "done"


@pytest.mark.parametrize("fleet", ["off"], indirect=True)
async def test_an_unarmed_node_waits_for_the_command(fleet, remediator):
    """Without being armed nothing moves by itself; commands to both ends move it."""
    cut, other, _ = fleet.hosts
    async with PingPong(cut, other) as connection:
        fleet.cut("rail0-0")
        await fleet.until(lambda: '"state": "lost"' in cut.log, "node0 sees the loss")
        assert "dev fo0e0" in way(cut, other)

        there = remediator.command("node0", 1, "reroute", away=("rail0",))
        detour = Placement(peer="node0", rail="rail0", via="rail1", entropy=0)
        back = remediator.command("node1", 2, "reroute", placements=(detour,))
        assert (await remediator.outcome("node0", there)).status == "done"
        outcome = await remediator.outcome("node1", back)
        assert outcome.status == "done"
        assert len(outcome.confirmations) == 1
        assert outcome.undo == (Placement(peer="node0", rail="rail0", via="rail0", entropy=0),)
        assert await connection.plays()


async def test_a_restarted_agent_adopts_and_an_uninstalled_one_leaves_nothing(fleet, remediator):
    """The stop disturbs nothing, the start finds everything in force, the uninstall undoes it all."""
    cut, other, _ = fleet.hosts
    async with PingPong(cut, other) as connection:
        fleet.cut("rail0-0")
        await remediator.outcome("node0")
        paths = await remediator.bus.get(PATHS, "node0")
        moved = NodePaths(node="node0", lease_revision=1, away=("rail0",), backups=paths.backups)
        await remediator.bus.put(PATHS, "node0", moved)
        before = cut.ip("link"), cut.ip("rule"), cut.ip("route show table 0", options=("-4",))

        assert await cut.stop() == 0
        assert await connection.plays()
        await cut.start()
        await cut.ready(times=2)
        assert (cut.ip("link"), cut.ip("rule"), cut.ip("route show table 0", options=("-4",))) == before
        assert await connection.plays()

        await cut.stop()
        await cut.start("--uninstall")
        assert await cut.ended() == 0
        assert "fo" not in "".join(line.split(":")[1] for line in cut.ip("link").splitlines() if "front" not in line)
        assert len(cut.ip("rule").splitlines()) == 3
        assert "table 7" not in cut.ip("route show table all")


async def test_routes_that_an_administrators_down_flushed_are_put_back(fleet, remediator):
    """The kernel drops a static route with its NIC; it is there again after the NIC is."""
    host = fleet.hosts[2]
    await host.stop()
    host.ip("route add 10.9.0.0/16 via 10.0.0.1 dev rail0")
    await host.start()
    await host.ready(times=2)
    host.ip("link set rail0 down")
    assert "10.9.0.0/16" not in host.ip("route")
    host.ip("link set rail0 up")
    await fleet.until(lambda: "10.9.0.0/16 via 10.0.0.1 dev rail0" in host.ip("route"), "the route is back")


async def test_a_nic_that_is_plugged_in_again_carries_traffic_again(fleet, remediator):
    """Its device is another, which comes down, without carrier, address and routes, one after the other.

    Live connections and sockets on path addresses go on.
    """
    cut, other, third = fleet.hosts
    await cut.stop()
    cut.ip("route add 10.9.0.0/16 via 10.0.0.77 dev rail0 metric 7")
    await cut.start()
    await cut.ready(times=2)
    sockets = []
    for host in (cut, other):
        with host.entered():
            sockets.append(socket.socket(socket.AF_INET, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK))
        sockets[-1].bind((describe(host.settings).nics[0].path_addresses[1], 5001))
    async with PingPong(cut, other) as connection:
        cut.ip("link del rail0")
        assert await connection.plays()
        assert (await remediator.outcome("node0")).status == "done"
        assert "fo0e0" not in cut.ip("link")

        fleet.make(cut, "rail0")
        await fleet.until(lambda: "fo0e0" in cut.ip("link"), "the overlay stands on a device without carrier")
        cut.ip("link set rail0 mtu 3000 up")
        fleet.hub_ip("link set rail0-0 mtu 3000 master rail0 up")
        cut.ip("addr add 10.0.0.1/24 dev rail0")
        await fleet.until(
            lambda: "10.9.0.0/16 via 10.0.0.77 dev rail0 metric 7" in cut.ip("route"), "its route is back"
        )
        await fleet.until(lambda: "mtu 2950" in cut.ip("link show fo0e1"), "the overlay has the NIC's new MTU")
        await fleet.until(lambda: '"state": "back"' in cut.log, "node0 sees its carrier")
        assert "dev fo1e1" in way(cut, other)

        home = Placement(peer="node0", rail="rail0", via="rail0", entropy=0)
        for number, node in enumerate(("node1", "node2"), 1):
            assert (
                await remediator.outcome(node, remediator.command(node, number, placements=(home,)))
            ).status == "done"
        restored = await remediator.outcome("node0", remediator.command("node0", 3, back=("rail0",)))
        assert (restored.status, len(restored.confirmations)) == ("done", 2)
        assert "dev fo0e0" in way(cut, other)
        assert await connection.plays()
        assert "dev fo0e1" in cut.ip("route show table 7101")

        loop = asyncio.get_running_loop()
        async with asyncio.timeout(patience(20)):
            for mine, theirs in (sockets, sockets[::-1]):
                mine.sendto(b"probe", theirs.getsockname())
                assert await loop.sock_recv(theirs, 64) == b"probe"
        for each in sockets:
            each.close()
    assert third.log.count("overlay_restored") == 0


async def test_a_device_of_the_overlay_that_somebody_deleted_is_made_again(fleet, remediator):
    """With all its entries and routes, so that a live connection goes on."""
    host, other, _ = fleet.hosts
    async with PingPong(host, other) as connection:
        assert await connection.plays()
        host.ip("link del fo0e0")
        await fleet.until(lambda: "overlay_restored" in host.log, "it is made again")
        assert await connection.plays()
        assert "dev fo0e0" in way(host, other)


async def test_the_first_nic_to_return_takes_the_traffic_though_the_bus_is_away(fleet, remediator):
    """All went from rail0 to rail1, and that died too. No remediator is there to take it back to the first one."""
    cut, other, _ = fleet.hosts
    async with PingPong(cut, other) as connection:
        await fleet.server.kill()
        for rail in (0, 1):
            fleet.cut(f"rail{rail}-0")
            lost = f'"rail": "rail{rail}", "state": "lost"'
            await fleet.until(lambda lost=lost: lost in cut.log, "node0 sees the loss")
        await fleet.until(lambda: "notice_given_up" in cut.log, "nobody can be told of the second loss")
        fleet.cut("rail0-0", "up")
        assert await connection.plays()
        await fleet.until(
            lambda: "dev fo0e" in way(other, cut) and "dev fo0e" in way(cut, other), "both ends came back"
        )
        await fleet.until(
            lambda: "dev fo0e" in way(other, cut, 1) and "dev fo0e" in way(cut, other, 1), "of both rails"
        )

        await fleet.server.start()
        for node in ("node0", "node1"):
            await fleet.until(lambda node=node: remediator.told_back(node, "rail0"), f"{node} tells of it")


async def test_a_peer_s_new_record_cuts_no_way_unless_its_nics_are_others(fleet, remediator, tmp_path):
    """That it is armed now, say: the routes to it stay where they are. Another address is another way."""
    host, told = fleet.hosts[0], tmp_path / "monitor"
    with host.entered(), told.open("wb") as file:
        monitor = await asyncio.create_subprocess_exec("ip", "monitor", "route", stdout=file)

    async def known(record) -> None:
        await remediator.bus.put(INVENTORY, record.name, record)
        await fleet.until(
            lambda: record in RestartCache(str(tmp_path), "node0", recalled.boot).recall().peers,
            "node0 knows the record",
        )

    try:
        await fleet.until(lambda: _marked(host, told), "changes of routes are told")
        peer, memory = describe(fleet.hosts[1].settings), tmp_path / "agent-node0.json"
        await fleet.until(memory.exists, "node0 has written what it knows")
        recalled = msgspec.json.decode(memory.read_bytes(), type=Remembered)
        await known(msgspec.structs.replace(peer, armed=not peer.armed, agent_port=7949, probe_port=7950))
        assert "table 7000" not in told.read_text()
        moved = msgspec.structs.replace(peer.nics[0], service_address="10.200.0.99")
        await known(msgspec.structs.replace(peer, nics=(moved, *peer.nics[1:])))
        await fleet.until(lambda: "Deleted 10.200.0.2 " in told.read_text(), "the way to the old address is gone")
        assert "10.200.0.99 " in host.ip("route show table 7000")
    finally:
        monitor.terminate()
        await monitor.wait()


def _marked(host, told) -> bool:
    """Changes a route of no concern; whether that was told."""
    host.ip("route add 10.99.0.0/16 dev rail0", "route del 10.99.0.0/16 dev rail0")
    return "10.99.0.0/16" in told.read_text()
