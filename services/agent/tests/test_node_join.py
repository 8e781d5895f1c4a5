"""A host joins, changes its mind, and leaves: with real links, a real agent and a real bus, all files below a folder."""

from __future__ import annotations

import asyncio
import ctypes
import json
import os
import signal
import sys
from pathlib import Path

import pytest

from foliot.bus import Bus
from foliot.visit import Visit
from foliot_agent.host import join, nics, units
from foliot_agent.host.place import PlaceError
from foliot_agent.host.survey import FleetSeen
from foliot_schemas.subjects import CLAIMS, INVENTORY

pytestmark = [pytest.mark.net, pytest.mark.nats]

_PR_CAPBSET_DROP = 24
_libc = ctypes.CDLL(None)
_TOML = "etc/foliot/foliot.toml"
_SECRETS = "etc/foliot/agent.env"
_UNITS = "etc/systemd/system"
_CAN_START = Path("/etc/foliot").exists() or (units.manager_runs() and not units.hidden_interpreter())
_BY_HAND = '# ours\n[telemetry]\nendpoint = ""\n\n[probe]\nsweep_hz = 2.0\n'


def _drop_all() -> None:
    """What is executed next has no capability, whoever it runs as."""
    for capability in range(64):
        _libc.prctl(_PR_CAPBSET_DROP, capability)


async def run_foliot(*arguments: str, expect: int = 0, privileged: bool = True) -> str:
    """Runs ``foliot`` where the calling thread is, and returns what it said."""
    process = await asyncio.create_subprocess_exec(
        str(Path(sys.executable).with_name("foliot")), *arguments,
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT, preexec_fn=None if privileged else _drop_all,
    )  # fmt: skip
    output, _ = await process.communicate()
    assert process.returncode == expect, output.decode()
    return output.decode()


class Node:
    """One host of the fleet, with a folder for its files."""

    def __init__(self, fleet, index: int, root: Path) -> None:
        self.host = fleet.hosts[index]
        self.root = root
        self.url = fleet.server.settings.url
        root.mkdir()

    async def foliot(self, *arguments: str, expect: int = 0, privileged: bool = True) -> str:
        """Runs ``foliot`` inside and returns what it said."""
        with self.host.entered():
            return await run_foliot(*arguments, expect=expect, privileged=privileged)

    def set_sysctl(self, name: str, value: str) -> None:
        """Writes a setting below /proc/sys/net."""
        with self.host.entered():
            (Path("/proc/sys/net") / name).write_text(value)

    async def join(self, *arguments: str, expect: int = 0, privileged: bool = True) -> str:
        """Joins."""
        asked = ("node", "join", self.url, "--root", str(self.root), *arguments)
        return await self.foliot(*asked, expect=expect, privileged=privileged)

    async def leave(self, *arguments: str, expect: int = 0) -> str:
        """Leaves, with the kernel's part of its namespace."""
        return await self.foliot("node", "leave", "--root", str(self.root), "--kernel", *arguments, expect=expect)

    def seen(self) -> dict[str, object]:
        """The host, as ``ip -json`` shows it, byte for byte, and its files."""
        asked = ("link", "addr", "route show table all", "rule", "neigh show nud permanent", "nexthop")
        with self.host.entered():
            sysctls = {
                str(path): path.read_text()
                for family in ("ipv4", "ipv6")
                for path in Path(f"/proc/sys/net/{family}").rglob("*")
                if path.is_file() and path.stat().st_mode & 0o400 and "stable_secret" not in path.name
            }
        return {
            **{what: self.host.ip(what, options=("-json",)) for what in asked},
            "fdb": self.host.bridge("fdb"),
            "sysctls": sysctls,
            "files": {
                str(path): path.readlink()
                if path.is_symlink()
                else ((found := path.stat()).st_mode, found.st_uid, found.st_gid, path.is_dir() or path.read_text())
                for path in self.root.rglob("*")
            },
        }


_RAILS = ("--rail", "rail0=rail0", "--rail", "rail1=rail1")


@pytest.fixture
async def nodes(fleet, tmp_path):
    """Two hosts of the fleet, which have routes, rules and settings of their own."""
    made = [Node(fleet, index, tmp_path / f"root{index}") for index in (0, 1)]
    for node in made:
        node.host.ip(
            "route add 10.9.0.0/16 via 10.0.0.9 dev rail0 metric 7",
            "rule add priority 6999 to 10.200.0.0/13 lookup 7",
            "neigh add 10.0.0.77 lladdr 02:00:00:00:00:77 nud permanent dev rail0",
        )
        node.set_sysctl("ipv4/conf/default/rp_filter", "1")
        # Duplicate address detection of the host's own devices changes what is shown.
        await fleet.until(lambda node=node: "tentative" not in node.host.ip("addr"), "addresses stand")
    return made


async def test_leaving_undoes_joining_and_running(fleet, nodes):
    """Links, addresses, routes, rules, neighbours, settings and files; and on the bus nothing of the node is left."""
    node = nodes[0]
    (node.root / "etc/foliot").mkdir(parents=True)
    (node.root / _TOML).write_text(_BY_HAND)
    (node.root / _TOML).chmod(0o600)
    (node.root / _SECRETS).write_text("# the fleet's\n\nOTHER='a=b'\n")
    (node.root / _SECRETS).chmod(0o640)
    before = node.seen()
    said = await node.join("--name", "a", *_RAILS, "--armed", "off")
    assert "sweep_hz = 2.0" in (node.root / _TOML).read_text()
    assert (node.root / _TOML).stat().st_mode & 0o777 == 0o600
    assert (node.root / _SECRETS).stat().st_mode & 0o777 == 0o600
    assert (node.root / _SECRETS).read_text() == "# the fleet's\n\nOTHER='a=b'\nFOLIOT_AGENT__ARMED=off\n"
    assert "LoadCredential=foliot.toml" in (node.root / _UNITS / "foliot-agent.service.d/settings.conf").read_text()
    assert "node.index = 0" in said
    node.host.config = node.root / _TOML
    await node.host.start()
    await node.host.ready()
    assert "foliot0" in node.host.ip("link")
    await node.host.stop()
    of_image = await node.foliot("node", "leave", "--root", str(node.root), "--dry-run")
    assert "would remove inventory/a from the bus" in of_image
    assert "foliot0" not in of_image
    async with Visit(fleet.server.settings) as bus:
        assert sorted(await bus.present(INVENTORY)) == ["a"]
        planned = await node.leave("--dry-run")
        assert "would remove inventory/a from the bus" in planned
        done = await node.leave()
        assert {line.removeprefix("would ") for line in planned.splitlines()} <= set(done.splitlines())
        assert await bus.present(INVENTORY) == await bus.present(CLAIMS) == {}
        assert not await bus.delete_consumer("COMMANDS", "agent-a")
    assert node.seen() == before
    assert await node.leave() == ""


async def test_a_dry_run_changes_nothing_and_a_second_join_neither(fleet, nodes):
    """Also not on the bus; a third that asks for something else says what changes."""
    node = nodes[0]
    before = node.seen()
    said = await node.join("--name", "a", *_RAILS, "--dry-run")
    assert f"would write {node.root}/{_TOML}" in said
    assert node.seen() == before
    async with Visit(fleet.server.settings) as bus:
        assert await bus.present(CLAIMS) == {}
        await node.join("--name", "a", *_RAILS)
        joined, claims = node.seen(), await bus.present(CLAIMS)
        assert "the files are as they shall be" in await node.join()
        assert (node.seen(), await bus.present(CLAIMS)) == (joined, claims)
        assert "node.index: 0 -> 5" in await node.join("--index", "5")
        assert sorted(await bus.present(CLAIMS)) == ["address-10.0.0.1", "address-10.1.0.1", "index-5", "node-a"]


async def test_every_node_gets_an_index_of_its_own_also_when_they_join_at_once(fleet, nodes):
    """And one that insists on another's is refused before anything is written."""
    first, second = nodes
    await asyncio.gather(first.join("--name", "a", *_RAILS), second.join("--name", "b", *_RAILS))
    async with Visit(fleet.server.settings) as bus:
        claims = await bus.present(CLAIMS)
    assert {claim.node for key, claim in claims.items() if key.startswith("index-")} == {"a", "b"}
    before = second.seen()
    taken = next(key for key, claim in claims.items() if key.startswith("index-") and claim.node == "a")
    said = await second.join("--index", taken.removeprefix("index-"), expect=1)
    assert "is taken by node 'a'" in said
    assert second.seen() == before


async def test_without_the_bus_a_host_leaves_and_says_what_is_left_to_do(fleet, nodes):
    """The very command that it names does the rest from another host."""
    first, second = nodes
    before = first.seen()
    await first.join("--name", "a", *_RAILS)
    await fleet.server.kill()
    said = await first.leave(expect=1)
    assert first.seen() == before
    rest = said.partition("once it is back: foliot ")[2].splitlines()[0].split()
    assert rest[:4] == ["node", "leave", "--name", "a"]
    await fleet.server.start()
    assert "remove claims/index-0 from the bus" in await second.foliot(*rest)
    async with Visit(fleet.server.settings) as bus:
        assert await bus.present(CLAIMS) == {}


async def test_what_is_seen_of_nics_is_the_host_s_own(namespace, ip_here):
    """Devices of the agent are no NICs to propose; next hops count where they lead to the very peer."""
    ip_here(
        "link add foliot0 type veth peer name foliot0-end",
        "link add fo0e0 type vxlan id 700000 dstport 4789 dev rail0",
        "link add fo9 type veth peer name far9",
        "addr add 10.200.0.1/32 dev foliot0",
        "addr add 100.64.0.1/16 dev fo0e0",
        "route add 10.9.0.0/16 nexthop via 10.0.0.7 dev rail0 nexthop via 10.0.0.8 dev rail0 nexthop via 10.1.0.8 dev rail1",
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


async def test_what_is_in_the_way_is_said_before_anything_is_done(fleet, nodes):
    """A NIC without an address, one that is down, one that is not there, a bus that does not answer."""
    node = nodes[0]
    assert "these could be: --rail rail0=rail0 --rail rail1=rail1" in await node.join(expect=1)
    assert "no device 'eth9'" in await node.join("--rail", "rail0=eth9", expect=1)
    node.host.ip("link set rail1 down")
    assert "stop rail1       rail1 is set down; ip link set rail1 up" in await node.join(*_RAILS, expect=1)
    node.host.ip("link set rail1 up", "addr flush dev rail1")
    assert "rail1 has no IPv4 address" in await node.join(*_RAILS, expect=1)
    node.host.ip("link set rail0 mtu 1300")
    assert "leaves 1250 inside of VXLAN" in await node.join("--rail", "rail0=rail0", expect=1)
    await fleet.server.kill()
    assert "does not answer" in await node.join("--rail", "rail0=rail0", "--index", "0", expect=1)
    assert not list(node.root.iterdir())


async def test_a_bus_that_no_service_was_on_yet_is_said_and_nothing_changed(namespace, secured, tmp_path):
    """Where it asks for credentials, a node may not make the buckets; once a service has, the same command joins."""
    bus = secured.settings_for("agent", "node3")
    where = (bus.url, "--root", str(tmp_path / "root"), "--credentials", bus.credentials)
    assert "root: is no folder" in await run_foliot("node", "join", *where, *_RAILS, expect=1)
    (tmp_path / "root").mkdir()
    asked = ("node", "join", *where, "--name", "node3", *_RAILS)
    for more in (("--dry-run",), ("--index", "3")):
        said = await run_foliot(*asked, *more, expect=1)
        assert "nobody has made the buckets of a fleet" in said
        assert "claims" in said
        assert "start the central services there first" in said
        assert "Traceback" not in said
    assert not list((tmp_path / "root").iterdir())
    assert "nobody has made" in await run_foliot(*asked, "--no-start", "--index", "3")

    await secured.bus("detector")
    assert "node3 is node 3" in await run_foliot(*asked)
    async with Visit(secured.settings_for("reader")) as visit:
        assert "index-3" in await visit.present(CLAIMS)


async def test_a_place_that_cannot_be_claimed_is_said(secured, settings_of, monkeypatch):
    """With the probe's credentials instead of the agent's, the bus does not answer a claim."""
    await secured.bus("detector")
    monkeypatch.setattr(join, "_BUS_S", 2.0)
    settings = secured.settings_for("probe", "node3")
    with pytest.raises(
        PlaceError, match=r"no place could be claimed for node3 .* whether the credentials are an agent's"
    ):
        await join._claimed(settings, settings_of(3), FleetSeen(url=settings.url), is_free=True)


async def test_settings_that_name_a_subnet_are_planned_and_joined_by_the_device_that_is_in_it(nodes):
    """A file written by hand may leave device and address to the host."""
    node = nodes[0]
    (node.root / "etc/foliot").mkdir(parents=True)
    nic = '{rail = "rail0", number = 0, address = "10.0.0.0/24"}'
    (node.root / _TOML).write_text(f'[node]\nname = "a"\nindex = 0\nnics = [{nic}]\n')
    assert "dev rail0" in await node.foliot("agent", "plan", "--no-bus", "--config", str(node.root / _TOML))
    assert "rail0 with 10.0.0.1" in await node.join("--dry-run")


async def test_what_a_key_needs(nodes, tmp_path):
    """An armed agent needs one; it is kept where only root reads it."""
    node = nodes[0]
    assert "give --key-file" in await node.join("--name", "a", *_RAILS, "--armed", "always", expect=1)
    (tmp_path / "key").write_text("0123456789012345678\n")
    await node.join("--name", "a", *_RAILS, "--armed", "always", "--key-file", str(tmp_path / "key"))
    secrets = node.root / "etc/foliot/agent.env"
    assert secrets.stat().st_mode & 0o777 == 0o600
    assert secrets.read_text() == "FOLIOT_AGENT__KEY='\"0123456789012345678\"'\nFOLIOT_AGENT__ARMED=always\n"
    assert json.loads((node.root / "etc/foliot/joined.json").read_text())["files"]["etc/foliot/agent.env"] is None


async def test_leaving_an_image_leaves_this_host_s_overlay_alone(nodes, tmp_path):
    """Traffic of the node on which the image was made goes on."""
    node = nodes[0]
    await node.join("--name", "a", *_RAILS)
    node.host.config = node.root / _TOML
    await node.host.start()
    await node.host.ready()
    await node.host.stop()
    before = node.seen()
    (tmp_path / "image").mkdir()
    image = ("--root", str(tmp_path / "image"))
    (tmp_path / "image/etc/foliot").mkdir(parents=True)
    (tmp_path / "image" / _TOML).write_text(f'[bus]\nurl = "{node.url}"\n')
    await node.foliot("node", "leave", *image)
    assert node.seen() == before
    assert "foliot0" in await node.leave()


@pytest.mark.skipif(_CAN_START, reason="nothing stops this host")
async def test_a_dry_run_of_this_host_shows_what_stops_it(nodes):
    """That services cannot see this Python, or that no systemd runs: only a note where nothing is to be started."""
    node = nodes[0]
    asked = ("node", "join", node.url, "--name", "a", *_RAILS, "--dry-run")
    said = await node.foliot(*asked, expect=1)
    assert "stop install" in said or "stop systemd" in said
    said = await node.foliot(*asked, "--no-start")
    assert "note install" in said or "note systemd" in said


async def test_who_cannot_become_a_node_takes_no_place(fleet, nodes, tmp_path):
    """Nor leaves a trace; each time with a sentence that names what is in the way."""
    node = nodes[0]
    await (await Bus.connect(fleet.server.settings, "test")).close()  # makes the bucket
    (node.root / "etc").mkdir()
    (node.root / "etc/systemd").touch()
    (tmp_path / "short").write_text("short")
    (tmp_path / "binary").write_bytes(b"\xff" * 20)
    before = node.seen()
    asked = ("--name", "a", *_RAILS)
    for more, sentence in (
        (("--key-file", str(tmp_path / "none")), "none: cannot be read: No such file"),
        (("--key-file", str(tmp_path / "short")), "at least 16 letters"),
        (("--key-file", str(tmp_path / "binary")), "binary: cannot be read: no text"),
        (("--armed", "always"), "give --key-file"),
        ((), "etc/systemd/system/foliot-agent.service: Not a directory"),
    ):
        said = await node.join(*asked, *more, expect=1)
        assert sentence in said
        assert "Traceback" not in said
    async with Visit(fleet.server.settings) as bus:
        assert await bus.present(CLAIMS) == {}
        assert node.seen() == before

        (node.root / "etc/systemd").unlink()
        for path in (node.root / "etc", node.root):
            os.chown(path, 1234, 1234)
        before = node.seen()
        said = await node.join(*asked, expect=1, privileged=False)
        assert "etc/foliot/joined.json: may not be written; run as root, or look with --dry-run first" in said
        assert await bus.present(CLAIMS) == {}
        assert node.seen() == before


async def test_who_may_not_read_the_secrets_may_look_all_the_same(nodes):
    """What is in them cannot be told, but that they would be written."""
    node = nodes[0]
    (node.root / "etc/foliot").mkdir(parents=True)
    (node.root / _SECRETS).touch(0o600)
    os.chown(node.root / _SECRETS, 1234, 1234)
    asked = ("--name", "a", *_RAILS, "--armed", "always", "--dry-run")
    assert f"would write {node.root / _SECRETS}" in await node.join(*asked, privileged=False)
    (node.root / _TOML).touch(0o600)
    os.chown(node.root / _TOML, 1234, 1234)
    said = await node.join(*asked, privileged=False, expect=1)
    assert f"{node.root / _TOML}: may not be read; run as root\n" in said


async def test_a_bus_that_falls_silent_while_a_place_is_claimed_is_said(fleet, settings_of, monkeypatch):
    """The server halts after the connection stood."""
    monkeypatch.setattr(join, "_BUS_S", 2.0)
    await (await Bus.connect(fleet.server.settings, "test")).close()

    async def halted(*arguments):
        os.kill(fleet.server.process.pid, signal.SIGSTOP)
        await really(*arguments)

    really = join.claim
    monkeypatch.setattr(join, "claim", halted)
    try:
        with pytest.raises(PlaceError, match="no place could be claimed for node0"):
            await join._claimed(
                fleet.server.settings, settings_of(0), FleetSeen(url=fleet.server.settings.url), is_free=True
            )
    finally:
        os.kill(fleet.server.process.pid, signal.SIGCONT)
