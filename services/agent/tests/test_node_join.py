"""A host joins, changes its mind, and leaves: with a real agent, real links and bus, all files below a folder."""

from __future__ import annotations

import pytest
from joining import RAILS, SECRETS, TOML, UNITS

from foliot.bus.one_shot import OneShot
from foliot_agent.install import nics
from foliot_schemas.subjects import CLAIMS, INVENTORY

pytestmark = [pytest.mark.net, pytest.mark.nats]

_BY_HAND = '# ours\n[telemetry]\nendpoint = ""\n\n[probe]\nsweep_hz = 2.0\n'


async def test_leaving_undoes_joining_and_running(fleet, nodes):
    """Links, addresses, routes, rules, neighbours, settings and files; and on the bus nothing of the node is left."""
    node = nodes[0]
    (node.root / "etc/foliot").mkdir(parents=True)
    (node.root / TOML).write_text(_BY_HAND)
    (node.root / TOML).chmod(0o600)
    (node.root / SECRETS).write_text("# the fleet's\n\nOTHER='a=b'\n")
    (node.root / SECRETS).chmod(0o640)
    before = node.seen()
    said = await node.join("--name", "a", *RAILS, "--armed", "off")
    assert "sweep_hz = 2.0" in (node.root / TOML).read_text()
    assert (node.root / TOML).stat().st_mode & 0o777 == 0o600
    assert (node.root / SECRETS).stat().st_mode & 0o777 == 0o600
    assert (node.root / SECRETS).read_text() == "# the fleet's\n\nOTHER='a=b'\nFOLIOT_AGENT__ARMED=off\n"
    assert "LoadCredential=foliot.toml" in (node.root / UNITS / "foliot-agent.service.d/settings.conf").read_text()
    assert "node.index = 0" in said
    node.host.config = node.root / TOML
    await node.host.start()
    await node.host.ready()
    assert "foliot0" in node.host.ip("link")
    await node.host.stop()
    of_image = await node.foliot("node", "leave", "--root", str(node.root), "--dry-run")
    assert "would remove inventory/a from the bus" in of_image
    assert "foliot0" not in of_image
    async with OneShot(fleet.server.settings) as bus:
        assert sorted(await bus.present(INVENTORY)) == ["a"]
        planned = await node.leave("--dry-run")
        assert "would remove inventory/a from the bus" in planned
        done = await node.leave()
        assert {line.removeprefix("would ") for line in planned.splitlines()} <= set(done.splitlines())
        assert await bus.present(INVENTORY) == await bus.present(CLAIMS) == {}
        assert not await bus.delete_consumer("COMMANDS", "agent-a")
    assert node.seen() == before
    assert (await node.leave()).startswith("there is nothing to undo")


async def test_a_dry_run_changes_nothing_and_a_second_join_neither(fleet, nodes):
    """Also not on the bus; a third that asks for something else says what changes."""
    node = nodes[0]
    before = node.seen()
    said = await node.join("--name", "a", *RAILS, "--dry-run")
    assert f"would write {node.root}/{TOML}" in said
    assert "code        the probe's inner loops" in said
    assert node.seen() == before
    async with OneShot(fleet.server.settings) as bus:
        assert await bus.present(CLAIMS) == {}
        await node.join("--name", "a", *RAILS)
        joined, claims = node.seen(), await bus.present(CLAIMS)
        assert "the files are as they shall be" in await node.join()
        assert (node.seen(), await bus.present(CLAIMS)) == (joined, claims)
        assert "node.index: 0 -> 5" in await node.join("--index", "5")
        assert sorted(await bus.present(CLAIMS)) == ["address-10.0.0.1", "address-10.1.0.1", "index-5", "node-a"]


async def test_without_the_bus_a_host_leaves_and_says_what_is_left_to_do(fleet, nodes):
    """The very command that it names does the rest from another host."""
    first, second = nodes
    before = first.seen()
    await first.join("--name", "a", *RAILS)
    await fleet.server.kill()
    said = await first.leave(expect=1)
    assert first.seen() == before
    rest = said.partition("once it is back: foliot ")[2].splitlines()[0].split()
    assert rest[:4] == ["node", "leave", "--name", "a"]
    await fleet.server.start()
    assert "remove claims/index-0 from the bus" in await second.foliot(*rest)
    async with OneShot(fleet.server.settings) as bus:
        assert await bus.present(CLAIMS) == {}


async def test_what_is_seen_of_nics_is_the_host_s_own(namespace, ip_here):
    """Devices of the agent are no NICs to propose; next hops count where they lead to the very peer."""
    ip_here(
        "link add foliot0 type veth peer name foliot0-end",
        "link add fo0e0 type vxlan id 700000 dstport 4789 dev rail0",
        "link add fo9 type veth peer name far9",
        "addr add 10.200.0.1/32 dev foliot0",
        "addr add 100.64.0.1/16 dev fo0e0",
        "route add 10.9.0.0/16 nexthop via 10.0.0.7 dev rail0 nexthop via 10.0.0.8 dev rail0 "
        "nexthop via 10.1.0.8 dev rail1",
        "route add 10.8.0.0/16 via 10.0.0.7",
    )
    states = await nics.nics()
    assert sorted(states) == ["far0", "far1", "far9", "fo9", "rail0", "rail1"]
    ways = {}
    for peer in ("10.9.0.1", "10.8.0.1", "10.0.0.3", "10.77.0.1"):
        found = await nics.route_to(peer, states["rail0"].index)
        assert found is not None
        ways[peer] = (found.device, found.ways)
    assert ways == {
        "10.9.0.1": ("rail0", 2), "10.8.0.1": ("rail0", 1), "10.0.0.3": ("rail0", 1), "10.77.0.1": ("rail0", 1)
    }  # fmt: skip


async def test_settings_that_name_a_subnet_are_planned_and_joined_by_the_device_that_is_in_it(nodes):
    """A file written by hand may leave device and address to the host."""
    node = nodes[0]
    (node.root / "etc/foliot").mkdir(parents=True)
    nic = '{rail = "rail0", number = 0, address = "10.0.0.0/24"}'
    (node.root / TOML).write_text(f'[node]\nname = "a"\nindex = 0\nnics = [{nic}]\n')
    assert "dev rail0" in await node.foliot("agent", "plan", "--no-bus", "--config", str(node.root / TOML))
    assert "rail0 with 10.0.0.1" in await node.join("--dry-run")


async def test_leaving_an_image_leaves_this_host_s_overlay_alone(nodes, tmp_path):
    """Traffic of the node on which the image was made goes on."""
    node = nodes[0]
    await node.join("--name", "a", *RAILS)
    node.host.config = node.root / TOML
    await node.host.start()
    await node.host.ready()
    await node.host.stop()
    before = node.seen()
    (tmp_path / "image").mkdir()
    image = ("--root", str(tmp_path / "image"))
    (tmp_path / "image/etc/foliot").mkdir(parents=True)
    (tmp_path / "image" / TOML).write_text(f'[bus]\nurl = "{node.url}"\n')
    await node.foliot("node", "leave", *image)
    assert node.seen() == before
    assert "foliot0" in await node.leave()
