"""What an agent knows over its own restart."""

from __future__ import annotations

import asyncio
import shutil

import pytest

from foliot.node.addressing import describe
from foliot_agent.control.restart_cache import RestartCache
from foliot_schemas import NodePaths, Outcome, Placement
from foliot_schemas.subjects import INVENTORY, OUTCOME, PATHS
from patience import patience
from patient_bus import connected


def outcome(number: int) -> Outcome:
    """Of a command of its own."""
    return Outcome(id=f"c{number}/outcome/node0", command=f"c{number}", verb="restore", node="node0", status="done")


async def test_what_was_written_is_recalled_within_the_boot_and_forgotten_after_it(tmp_path, settings_of):
    """Peers, answers and routes; another boot has other routes and other commands."""
    restart_cache, peer = RestartCache(str(tmp_path), "node0", "boot1"), describe(settings_of(1))
    assert restart_cache.recall().peers == ()
    restart_cache.keep_peers((peer,))
    restart_cache.keep_answer(outcome(1))
    restart_cache.keep_routes({"rail0": [{"dst": "10.9.0.0", "dst_len": 16, "metrics": {"mtu": 1400}}]})

    recalled = RestartCache(str(tmp_path), "node0", "boot1").recall()
    assert (recalled.peers, recalled.answers) == ((peer,), (outcome(1),))
    assert recalled.routes == {"rail0": [{"dst": "10.9.0.0", "dst_len": 16, "metrics": {"mtu": 1400}}]}
    assert RestartCache(str(tmp_path), "node0", "boot2").recall().peers == ()


async def test_a_fleet_that_is_met_at_once_is_written_once(tmp_path, settings_of):
    """Shortly after the first, with all that have come until then; at the end, at once."""
    restart_cache, path = RestartCache(str(tmp_path), "node0", "boot1"), tmp_path / "agent-node0.json"
    peers = tuple(describe(settings_of(index)) for index in range(1, 101))
    for count in range(1, 101):
        restart_cache.keep_peers(peers[:count])
    assert not list(tmp_path.iterdir())
    async with asyncio.timeout(patience(60)):
        while not path.exists():  # noqa: ASYNC110 - a file sets no event
            await asyncio.sleep(0.05)
    assert RestartCache(str(tmp_path), "node0", "boot1").recall().peers == peers
    restart_cache.keep_peers(peers[:7])
    restart_cache.flush()
    assert RestartCache(str(tmp_path), "node0", "boot1").recall().peers == peers[:7]


def test_a_broken_file_and_a_folder_that_cannot_be_are_done_without(tmp_path, settings_of):
    """Memory is a help, never a condition."""
    (tmp_path / "agent-node0.json").write_bytes(b"{half a fi")
    restart_cache = RestartCache(str(tmp_path), "node0", "boot1")
    assert restart_cache.recall().peers == ()
    restart_cache.keep_answer(outcome(1))
    assert RestartCache(str(tmp_path), "node0", "boot1").recall().answers == (outcome(1),)

    nowhere = RestartCache(str(tmp_path / "agent-node0.json" / "below"), "node0", "boot1")
    nowhere.keep_answer(outcome(1))
    assert nowhere.recall().answers == (outcome(1),)


def test_a_command_answered_before_the_restart_gets_the_same_answer(tmp_path):
    """It is not carried out twice, however often it is delivered; the oldest answers go first."""
    restart_cache = RestartCache(str(tmp_path), "node0", "boot1")
    for number in range(100):
        restart_cache.keep_answer(outcome(number))
    restarted = RestartCache(str(tmp_path), "node0", "boot1")
    restarted.recall()
    assert restarted.answer("c99") == outcome(99)
    assert restarted.answer("c0") is None


def way(host, peer: int) -> str:
    """What the kernel says of the way to a peer's service address."""
    return host.ip(f"route get 10.200.0.{peer + 1}")


@pytest.fixture
async def armed(fleet, bus):
    """Every agent is ready and armed with the other rail."""
    nodes = [describe(host.settings) for host in fleet.hosts]
    for node in nodes:
        backups = tuple(
            Placement(peer=peer.name, rail=f"rail{rail}", via=f"rail{1 - rail}", entropy=1)
            for peer in nodes
            if peer is not node
            for rail in (0, 1)
        )
        await bus.put(PATHS, node.name, NodePaths(node=node.name, lease_revision=1, backups=backups))
    for host in fleet.hosts:
        await host.start()
    for host in fleet.hosts:
        await host.ready()
        await fleet.until(lambda host=host: host.routes(7100) == 2, "backups are armed")
    return fleet


@pytest.mark.net
@pytest.mark.nats
async def test_an_agent_that_starts_without_the_bus_moves_its_traffic_all_the_same(armed):
    """It adopts its routes and backups, knows its peers, leaves a lost NIC and tells them.

    The bus finds it when it is back.
    """
    cut, other, _ = armed.hosts
    await armed.server.kill()
    await cut.stop()
    await cut.start()
    await armed.until(lambda: cut.log.count("agent_adopted") == 2, "node0 has adopted what it left")
    assert "dev fo0e0" in way(cut, 1)

    armed.cut("rail0-0")
    await armed.until(lambda: "dev fo1e1" in way(cut, 1) and "dev fo1e1" in way(other, 0), "both ends have moved")
    assert "agent_ready" not in cut.log.rpartition("agent_adopted")[2]

    await armed.server.start()
    await cut.ready(times=2)
    async with connected(armed.server.settings, "late") as bus, asyncio.timeout(patience(60)):
        while not (told := await bus.newest(OUTCOME, "reroute", "node0")):  # noqa: ASYNC110 - the stream sets no event
            await asyncio.sleep(0.05)
    assert (told[0].armed, told[0].status) == (True, "done")


@pytest.mark.net
@pytest.mark.nats
async def test_a_nic_lost_while_nobody_watched_is_left_at_the_start(armed):
    """The carrier went while the agent was away, and so was the bus."""
    cut, other, _ = armed.hosts
    await armed.server.kill()
    await cut.stop()
    armed.cut("rail0-0")
    assert "dev fo0e0" in way(other, 0)

    await cut.start()
    await armed.until(lambda: "dev fo1e1" in way(cut, 1) and "dev fo1e1" in way(other, 0), "both ends have moved")


@pytest.mark.net
@pytest.mark.nats
async def test_nodes_say_again_that_they_are_there_when_the_bus_has_lost_its_store(armed, tmp_path):
    """Nobody else knows: a service that starts later would find an empty fleet."""
    await armed.server.kill()
    shutil.rmtree(tmp_path / "nats" / "jetstream")
    await armed.server.start()
    found = {}

    async def met(name, node):
        found[name] = node

    async with connected(armed.server.settings, "late") as bus:
        await bus.watch(INVENTORY, met)
        await armed.until(lambda: set(found) == {"node0", "node1", "node2"}, "all nodes are in the inventory again")
    assert all(node.armed for node in found.values())


@pytest.mark.net
@pytest.mark.nats
async def test_routes_flushed_by_an_administrator_outlive_the_agents_restart(armed):
    """It starts while the NIC is down, and still knows what routes it had."""
    host = armed.hosts[2]
    await host.stop()
    host.ip("route add 10.9.0.0/16 via 10.0.0.1 dev rail0")
    await host.start()
    await host.ready(times=2)
    host.ip("link set rail0 down")
    await host.stop()
    await host.start()
    await host.ready(times=3)
    assert "10.9.0.0/16" not in host.ip("route")

    host.ip("link set rail0 up")
    await armed.until(lambda: "10.9.0.0/16 via 10.0.0.1 dev rail0" in host.ip("route"), "the route is back")
