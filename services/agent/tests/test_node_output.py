"""What join and leave say.

All that is in the way is said, in words that help, and in order, and what would be done without it.
"""

from __future__ import annotations

import asyncio
import os
import resource
import sys
import tempfile
from pathlib import Path

import forked
import pytest
from joining import RAILS, SECRETS, TOML, UNITS, run_foliot

pytestmark = [pytest.mark.net, pytest.mark.nats]

_DROP_IN = f"{UNITS}/foliot-agent.service.d"


async def test_without_the_bus_all_the_rest_is_said(fleet, nodes):
    """Also where only the bus knows an index; what would be written is named, and the sum comes last."""
    node = nodes[0]
    await fleet.server.kill()
    for more in ((), ("--dry-run",)):
        said = await node.join("--name", "a", *RAILS, *more, expect=1)
        lines = said.splitlines()
        assert lines[0].startswith(f"stop bus         {node.url} does not answer: nothing listens there")
        assert lines[0].endswith("to join without it: --no-start and --index with one that no other node has")
        assert not any(word in said for word in ("Error", "Errno", "Traceback"))
        assert {line.split()[1] for line in lines if line.split()[0] in {"ok", "note", "warn"}} >= {
            "rail0", "rail1", "kernel", "rdma", "clock", "place",
        }  # fmt: skip
        assert "a asks for name a, address 10.0.0.1 of rail0, address 10.1.0.1 of rail1;" in said
        would = lines[lines.index("what would be done, were it not for what is said after `stop`:") :]
        for path in (TOML, "etc/foliot/joined.json", f"{UNITS}/foliot-agent.service", f"{UNITS}/foliot-probe.service"):
            assert f"would write {node.root}/{path}" in would
        assert "      node.index = (the lowest that no other node has, which the bus knows)" in would
        assert would[-2:] == [
            f"a would be a node of the fleet at {node.url}", "nothing was changed: see what is said after `stop`"
        ]  # fmt: skip
    assert not list(node.root.iterdir())
    said = await node.join("--name", "a", *RAILS, "--index", "5", "--no-start")
    assert "warn bus" in said
    assert "note place       a asks for name a, index 5, address 10.0.0.1" in said
    assert "a is node 5" in said


async def test_without_rails_it_is_said_which_nics_could_be_some_and_why_others_not(nodes):
    """And all the rest."""
    node = nodes[0]
    node.host.ip("link add br7 type bridge", "route add default dev rail1")
    said = await node.join("--name", "a", "--dry-run", expect=1)
    assert "stop rails       say which NICs are rails; on this host these could be: --rail rail0=rail0\n" in said
    assert "note rails       left out: " in said
    assert "rail1 (the default route leaves by it)" in said
    assert "front (it leads to the bus)" in said
    assert "br7 (bridge, no NIC, no IPv4 address)" in said
    assert "ok   bus" in said
    assert "node.nics = (those that --rail gives)" in said
    node.host.ip("addr flush dev rail0")
    assert "these could be: none; give them as --rail rail0=eth2" in await node.join("--dry-run", expect=1)
    assert not list(node.root.iterdir())


async def test_a_wrong_address_for_spans_is_refused(nodes):
    """Before anything else."""
    said = await nodes[0].join(*RAILS, "--telemetry", "gateway:8470", expect=1)
    assert said.startswith("--telemetry gateway:8470: give the whole address")
    assert said.count("\n") == 1


async def test_a_bus_whose_address_cannot_be_read_is_said(tmp_path):
    """By both, without a traceback."""
    said = await run_foliot("node", "join", "nats://[::1", "--root", str(tmp_path), "--dry-run", expect=1)
    assert (
        "stop bus         nats://[::1 does not answer: the address cannot be read: give it as nats://host:4222" in said
    )
    assert "Traceback" not in said


async def test_where_nothing_is_to_undo_that_is_said(nodes, tmp_path):
    """On a host that never joined; and of a node that the bus does not know."""
    node = nodes[0]
    for more in (("--dry-run",), ()):
        assert (await node.leave(*more)).startswith("there is nothing to undo")
    said = await node.foliot("node", "leave", "--name", "b", "--bus", node.url)
    assert said == f"nothing of b is on the bus at {node.url}\n"


async def test_a_later_join_takes_away_the_drop_ins_that_it_does_not_want(nodes):
    """As where everybody may read the settings by now; leaving puts back what the first join found there, as ever."""
    node = nodes[0]
    (node.root / "etc/foliot").mkdir(parents=True)
    (node.root / TOML).touch(0o600)
    before = node.seen_files()
    await node.join("--name", "a", *RAILS)
    settings = node.root / _DROP_IN / "settings.conf"
    assert settings.exists()
    (node.root / TOML).chmod(0o644)
    assert f"would remove {settings}\n" in await node.join("--dry-run")
    assert settings.exists()
    assert f"remove {settings}\n" in await node.join()
    assert not settings.parent.exists()
    assert "the files are as they shall be" in await node.join()
    await node.leave()
    assert node.seen_files() == before


async def test_every_wrong_rail_is_said_and_all_the_rest(nodes):
    """Whether there is no such device or it has no address; what would be done is said as far as it is known."""
    node = nodes[0]
    node.host.ip("addr flush dev rail1")
    rails = ("--rail", "rail0=rail0", "--rail", "rail1=rail1", "--rail", "rail2=eth9")
    lines = (await node.join("--name", "a", *rails, "--dry-run", expect=1)).splitlines()
    assert "stop rail1       rail1 has no IPv4 address; give it the one that it has in the fabric" in lines
    assert "stop rail2       there is no device 'eth9' on this host; with an IPv4 address are front, rail0" in lines
    assert any(line.startswith("ok   rail0       rail0 with 10.0.0.1") for line in lines)
    assert {line.split()[1] for line in lines} >= {"bus", "kernel", "rdma", "clock", "systemd", "place"}
    would = lines[lines.index("what would be done, were it not for what is said after `stop`:") :]
    assert f"would write {node.root}/{TOML}" in would
    assert "      node.nics = (those that --rail gives, once rail1 and rail2 can be had)" in would
    assert "      node.index = 0" in would
    assert not list(node.root.iterdir())


async def test_what_would_be_armed_is_said_also_without_a_key(nodes, tmp_path):
    """And settings as the TOML that is written; a key is never shown."""
    node = nodes[0]
    said = await node.join("--name", "a", *RAILS, "--armed", "always", "--dry-run", expect=1)
    assert "stop key         --armed: " in said
    assert f"would write {node.root / SECRETS}\n" in said
    assert "      agent.env: FOLIOT_AGENT__ARMED=always\n" in said
    assert '      node.name = "a"\n' in said
    assert (
        '      node.nics = [{rail = "rail0", number = 0, device = "rail0", address = "10.0.0.1"}, '
        '{rail = "rail1", number = 1, device = "rail1", address = "10.1.0.1"}]\n'
    ) in said
    key = tmp_path / "key"
    of_key = f"      agent.env: FOLIOT_AGENT__KEY=(what {key} has)\n"
    assert of_key in await node.join(*RAILS, "--key-file", str(key), "--dry-run", expect=1)
    key.write_text("0123456789012345678\n")
    armed = ("--name", "a", *RAILS, "--key-file", str(key), "--armed")
    said = await node.join(*armed, "always")
    assert of_key in said
    assert "0123456789012345678" not in said
    said = await node.join(*armed, "off", "--dry-run")
    assert "      agent.env: FOLIOT_AGENT__ARMED=always -> off\n" in said
    assert of_key not in said


async def _unread(node, *arguments: str, unbuffered: str) -> tuple[int, str]:
    """Joins where nobody reads standard output any more; the exit status, and what standard error got."""
    asked = ("node", "join", node.url, "--root", str(node.root), *arguments)
    reading, writing = os.pipe()
    os.close(reading)
    with tempfile.TemporaryFile() as complained:
        with node.host.entered():
            if unbuffered:  # which Python reads when it starts
                process = await asyncio.create_subprocess_exec(
                    str(Path(sys.executable).with_name("foliot")), *asked, stdout=writing, stderr=complained,
                    env={**os.environ, "PYTHONUNBUFFERED": unbuffered},
                )  # fmt: skip
            else:
                process = forked.start("foliot.cli", *asked, stdout=writing, stderr=complained.fileno())
        os.close(writing)
        status = await process.wait()
        complained.seek(0)
        return status, complained.read().decode()


@pytest.mark.parametrize("unbuffered", ["", "1"])
async def test_a_reader_that_goes_is_no_error_of_the_bus(nodes, unbuffered):
    """Nothing is said of it, the status is the work's, and the work is done to its end."""
    node = nodes[0]
    asked = ("--name", "a", *RAILS)
    if not unbuffered:
        assert await _unread(node, *asked, "--dry-run", unbuffered=unbuffered) == (0, "")
        stopped = (1, "nothing was changed: see what is said after `stop`\n")
        assert await _unread(node, "--dry-run", unbuffered=unbuffered) == stopped
    assert await _unread(node, *asked, unbuffered=unbuffered) == (0, "")
    assert "the files are as they shall be" in await node.join()


async def test_what_the_disk_refuses_is_not_said_of_the_bus(nodes):
    """But of the file; nothing half written stays."""
    node = nodes[0]
    with node.host.entered():
        process = await asyncio.create_subprocess_exec(
            str(Path(sys.executable).with_name("foliot")), "node", "join", node.url, "--root", str(node.root), *RAILS,
            stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.PIPE,
            env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100)),
        )  # fmt: skip
    _, complained = await process.communicate()
    record = node.root / "etc/foliot/joined.json"
    assert complained.decode() == f"{record}: File too large; put it right, and join again\n"
    assert process.returncode == 1
    assert not list(record.parent.iterdir())


async def test_a_probe_that_uses_stamps_of_nics_may_read_their_clocks(nodes):
    """By a group of its own, as long as the settings say so; leaving takes the group's files along."""
    node = nodes[0]
    (node.root / "etc/foliot").mkdir(parents=True)
    (node.root / TOML).write_text('[probe]\nnic_stamps = "auto"\n')
    before = node.seen_files()
    await node.join("--name", "a", *RAILS)
    drop_in = node.root / UNITS / "foliot-probe.service.d/nic-clocks.conf"
    group = [node.root / "etc/sysusers.d/foliot-ptp.conf", node.root / "etc/udev/rules.d/60-foliot-ptp.rules"]
    assert "SupplementaryGroups=foliot-ptp\nDeviceAllow=char-ptp r\n" in drop_in.read_text()
    assert all("foliot-ptp" in file.read_text() for file in group)
    text = (node.root / TOML).read_text()
    (node.root / TOML).write_text(text.replace('"auto"', '"off"'))
    assert f"remove {drop_in}\n" in await node.join()
    assert not any(file.exists() for file in (drop_in, *group))
    (node.root / TOML).write_text(text)
    await node.join()
    assert all(file.exists() for file in (drop_in, *group))
    await node.leave()
    assert node.seen_files() == before
