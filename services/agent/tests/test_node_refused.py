"""What keeps a host from becoming a node is said, and then nothing is changed, neither on it nor on the bus."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from pathlib import Path

import pytest
from joining import RAILS, SECRETS, TOML, UNITS, run_foliot

from foliot.bus.one_shot import OneShot
from foliot.settings import SettingsError
from foliot_agent.install import join, systemd_units
from foliot_agent.install.addressing import PlaceError
from foliot_agent.install.survey import FleetSeen
from foliot_agent.install.tracked_files import Files
from foliot_schemas.subjects import CLAIMS
from patient_bus import connected

pytestmark = [pytest.mark.net, pytest.mark.nats]

_CAN_START = Path("/etc/foliot").exists() or (systemd_units.manager_runs() and not systemd_units.hidden_interpreter())


async def test_every_node_gets_an_index_of_its_own_also_when_they_join_at_once(fleet, nodes):
    """And one that insists on another's is refused before anything is written."""
    first, second = nodes
    await asyncio.gather(first.join("--name", "a", *RAILS), second.join("--name", "b", *RAILS))
    async with OneShot(fleet.server.settings) as bus:
        claims = await bus.present(CLAIMS)
    assert {claim.node for key, claim in claims.items() if key.startswith("index-")} == {"a", "b"}
    before = second.seen()
    taken = next(key for key, claim in claims.items() if key.startswith("index-") and claim.node == "a")
    said = await second.join("--index", taken.removeprefix("index-"), expect=1)
    assert "is taken by node 'a'" in said
    assert second.seen() == before


async def test_what_is_in_the_way_is_said_before_anything_is_done(fleet, nodes):
    """A NIC without an address, one that is down, one that is not there, a bus that does not answer."""
    node = nodes[0]
    assert "these could be: --rail rail0=rail0 --rail rail1=rail1" in await node.join(expect=1)
    assert "no device 'eth9'" in await node.join("--rail", "rail0=eth9", expect=1)
    node.host.ip("link set rail1 down")
    assert "stop rail1       rail1 is set down; ip link set rail1 up" in await node.join(*RAILS, expect=1)
    node.host.ip("link set rail1 up", "addr flush dev rail1")
    assert "rail1 has no IPv4 address" in await node.join(*RAILS, expect=1)
    node.host.ip("link set rail0 mtu 1300")
    assert "leaves 1250 inside of VXLAN" in await node.join("--rail", "rail0=rail0", expect=1)
    await fleet.server.kill()
    assert "does not answer" in await node.join("--rail", "rail0=rail0", "--index", "0", expect=1)
    assert not list(node.root.iterdir())


async def test_a_bus_that_no_service_was_on_yet_is_said_and_nothing_changed(namespace, secured, tmp_path):
    """Where it asks for credentials, a node may not make the buckets; once a service has, the same command joins."""
    bus = secured.settings_for("agent", "node3")
    where = (bus.url, "--root", str(tmp_path / "root"), "--credentials", bus.credentials)
    assert "root: is no folder" in await run_foliot("node", "join", *where, *RAILS, expect=1)
    (tmp_path / "root").mkdir()
    asked = ("node", "join", *where, "--name", "node3", *RAILS)
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
    async with OneShot(secured.settings_for("reader")) as visit:
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


async def test_what_a_key_needs(nodes, tmp_path):
    """An armed agent needs one; it is kept where only root reads it."""
    node = nodes[0]
    assert "give --key-file" in await node.join("--name", "a", *RAILS, "--armed", "always", expect=1)
    (tmp_path / "key").write_text("0123456789012345678\n")
    await node.join("--name", "a", *RAILS, "--armed", "always", "--key-file", str(tmp_path / "key"))
    secrets = node.root / "etc/foliot/agent.env"
    assert secrets.stat().st_mode & 0o777 == 0o600
    assert secrets.read_text() == "FOLIOT_AGENT__KEY='\"0123456789012345678\"'\nFOLIOT_AGENT__ARMED=always\n"
    assert json.loads((node.root / "etc/foliot/joined.json").read_text())["files"]["etc/foliot/agent.env"] is None


async def test_a_key_of_the_settings_is_a_key(nodes, tmp_path):
    """Nobody is asked for what the settings have.

    A file that only root reads is handed to the agent, and --key-file comes before it.
    """
    node = nodes[0]
    (node.root / "etc/foliot").mkdir(parents=True)
    key_file, handed_over = node.root / "etc/foliot/fleet.key", node.root / UNITS / "foliot-agent.service.d/key.conf"
    armed = ("--name", "a", *RAILS, "--armed", "always")
    for agent, sentence in (
        ("key = 7", "agent.key: expected `str`"),
        ('key = "short"', "agent.key in /etc/foliot/foliot.toml is too short"),
        ('key_file = "/etc/foliot/fleet.key"', f"agent.key_file: {key_file}: No such file"),
        ('policy = "act"', "give --key-file, or set agent.key_file"),
    ):
        (node.root / TOML).write_text(f"[agent]\n{agent}\n")
        said = await node.join(*armed, "--dry-run", expect=1)
        assert sentence in said
        assert "Traceback" not in said

    (node.root / TOML).write_text('[agent]\nkey = "0123456789012345678"\n')
    assert f"would write {node.root / SECRETS}" in await node.join(*armed, "--dry-run")

    (node.root / TOML).write_text('[agent]\nkey_file = "/etc/foliot/fleet.key"\n')
    key_file.write_text("0123456789012345678\n")
    assert str(handed_over) not in await node.join(*armed, "--dry-run")
    key_file.chmod(0o600)
    os.chown(key_file, 1234, 1234)
    assert str(handed_over) in await node.join(*armed, "--dry-run", privileged=False)
    await node.join(*armed)
    assert handed_over.read_text() == (
        "[Service]\nLoadCredential=fleet.key:/etc/foliot/fleet.key\nEnvironment=FOLIOT_AGENT__KEY_FILE=%d/fleet.key\n"
    )
    assert (node.root / SECRETS).read_text() == "FOLIOT_AGENT__ARMED=always\n"
    (tmp_path / "key").write_text("9876543210987654321\n")
    await node.join("--key-file", str(tmp_path / "key"))
    secrets = (node.root / SECRETS).read_text()
    assert (
        secrets == "FOLIOT_AGENT__ARMED=always\nFOLIOT_AGENT__KEY='\"9876543210987654321\"'\nFOLIOT_AGENT__KEY_FILE=\n"
    )
    assert "the files are as they shall be" in await node.join("--armed", "always")


@pytest.mark.skipif(_CAN_START, reason="nothing stops this host")
async def test_a_dry_run_of_this_host_shows_what_stops_it(nodes):
    """That services cannot see this Python, or that no systemd runs: only a note where nothing is to be started."""
    node = nodes[0]
    asked = ("node", "join", node.url, "--name", "a", *RAILS, "--dry-run")
    said = await node.foliot(*asked, expect=1)
    assert "stop install" in said or "stop systemd" in said
    said = await node.foliot(*asked, "--no-start")
    assert "note install" in said or "note systemd" in said


@pytest.mark.usefixtures("bus")
async def test_who_cannot_become_a_node_takes_no_place(fleet, nodes, tmp_path):
    """Nor leaves a trace; each time with a sentence that names what is in the way."""
    node = nodes[0]
    (node.root / "etc").mkdir()
    (node.root / "etc/systemd").touch()
    (tmp_path / "short").write_text("short")
    (tmp_path / "binary").write_bytes(b"\xff" * 20)
    before = node.seen()
    asked = ("--name", "a", *RAILS)
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
    async with OneShot(fleet.server.settings) as bus:
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
    (node.root / SECRETS).touch(0o600)
    os.chown(node.root / SECRETS, 1234, 1234)
    asked = ("--name", "a", *RAILS, "--armed", "always", "--dry-run")
    assert f"would write {node.root / SECRETS}" in await node.join(*asked, privileged=False)
    (node.root / TOML).touch(0o600)
    os.chown(node.root / TOML, 1234, 1234)
    said = await node.join(*asked, privileged=False, expect=1)
    assert f"{node.root / TOML}: may not be read; run as root\n" in said


def is_stopped(pid: int) -> bool:
    """Whether a process stands still, see proc_pid_stat(5)."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"


async def test_a_bus_that_falls_silent_while_a_place_is_claimed_is_said(fleet, settings_of, monkeypatch):
    """The server halts after the connection stood."""
    monkeypatch.setattr(join, "_BUS_S", 2.0)
    async with connected(fleet.server.settings):
        pass  # it has made what `claim` writes into

    async def halted(*arguments):
        pid = fleet.server.process.pid
        os.kill(pid, signal.SIGSTOP)
        # Its other threads serve on until the one that is to take the signal has its turn.
        while not is_stopped(pid):  # noqa: ASYNC110 - the kernel sets no event of ours
            await asyncio.sleep(0.001)
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


async def test_a_broken_record_is_said_before_anything_is_done(fleet, nodes):
    """Of what was there before the first join: neither kernel, bus nor files are touched, until it is put right."""
    node = nodes[0]
    await node.join("--name", "a", *RAILS)
    record = node.root / "etc/foliot/joined.json"
    text = record.read_bytes()
    record.write_bytes(text[: len(text) // 2])
    before = node.seen_files()
    async with OneShot(fleet.server.settings) as bus:
        claims = await bus.present(CLAIMS)
        for again in (node.join("--index", "5", expect=1), node.leave("--dry-run", expect=1), node.leave(expect=1)):
            said = await again
            assert said.startswith(f"{record}: is broken (")
            assert "put it back from a copy" in said
            assert said.count("\n") == 1
        assert node.seen_files() == before
        assert await bus.present(CLAIMS) == claims

        record.write_bytes(text)
        await node.leave()
        assert await bus.present(CLAIMS) == {}
    assert not list(node.root.iterdir())


@pytest.mark.parametrize("broken", [b"", b'{"files": {"etc', b"no JSON", b"[]", b'{"files": 1}', b"\xff", None])
def test_however_a_record_is_broken_it_is_named(tmp_path, broken):
    """Cut off by a full disk, written over, or no file at all."""
    record = tmp_path / "etc/foliot/joined.json"
    record.parent.mkdir(parents=True)
    if broken is None:
        record.mkdir()
    else:
        record.write_bytes(broken)
    with pytest.raises(SettingsError, match=f"{record}: is broken"):
        Files(tmp_path).check_record()


@pytest.mark.parametrize(
    ("broken", "sentence"),
    [
        (b'x = "\xff"', "is no text ('utf-8' codec"),
        (b"bus = 3", "bus: expected a table [bus], got int"),
        (b"[[telemetry]]", "telemetry: expected a table [telemetry], got list"),
        (b"x = " + b"9" * 5000, "not TOML: "),
    ],
)
async def test_however_settings_are_broken_they_are_named(tmp_path, broken, sentence):
    """In one line, by both."""
    (tmp_path / "etc/foliot").mkdir(parents=True)
    (tmp_path / TOML).write_bytes(broken)
    for asked in (("join", "nats://127.0.0.1:1"), ("leave",)):
        said = await run_foliot("node", *asked, "--root", str(tmp_path), "--dry-run", expect=1)
        assert f"/{TOML}: {sentence}" in said
        assert said.count("\n") == 1
