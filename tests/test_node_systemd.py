"""A host joins and leaves under a real systemd, with the units as they are shipped."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest
from machine import Machine, until

pytestmark = [pytest.mark.net, pytest.mark.nats]

_BUS = "nats://127.0.0.1:4222"
_KEYS = "/run/keys"
_UNITS = ("foliot-agent", "foliot-probe")
_AGENT_CAPABILITIES = 1 << 12 | 1 << 34
"""CAP_NET_ADMIN and CAP_SYSLOG of <linux/capability.h>."""


@pytest.fixture
def machine(tmp_path):
    """With two NICs and a bus."""
    with Machine(tmp_path) as booted:
        # Addresses of IPv6 are there at once, without the second and a half in which others may object.
        booted.run("bash", "-c", "echo 0 > /proc/sys/net/ipv6/conf/default/accept_dad")
        lines = ["link set lo up"]
        for rail in (0, 1):
            lines += [
                f"link add eth{rail} type veth peer name far{rail}",
                f"link set far{rail} up",
                f"link set eth{rail} up",
                f"addr add 10.{rail}.0.1/24 dev eth{rail}",
            ]
        for line in lines:
            booted.run("ip", *line.split())
        start_nats(booted, "nats", "4222")
        booted.run("bash", "-c", "while ip -6 addr | grep -q tentative; do sleep 0.1; done")
        booted.run("bash", "-c", "echo a-key-of-20-characters > /run/key")
        yield booted


def start_nats(machine: Machine, unit: str, port: str, *options: str) -> None:
    """Starts a server and waits until it listens."""
    machine.run(
        "systemd-run", "-q", f"--unit={unit}", "--service-type=exec", "/opt/src/.venv/bin/nats-server",
        "--addr", "127.0.0.1",
        "--port", port, "--jetstream", "--store_dir", f"/run/{unit}", *options,
    )  # fmt: skip
    machine.run("bash", "-c", f"until (: < /dev/tcp/127.0.0.1/{port}) 2>/dev/null; do sleep 0.1; done")


def shown(machine: Machine, unit: str) -> dict[str, str]:
    """What systemd says of a unit."""
    wanted = "ActiveState,SubState,MainPID,StatusText,UnitFileState,NRestarts"
    output = machine.run("systemctl", "show", unit, "-p", wanted).stdout
    return dict(line.partition("=")[::2] for line in output.splitlines())


def status(machine: Machine, unit: str) -> dict[str, str]:
    """What the kernel says of a unit's process."""
    text = machine.run("cat", f"/proc/{shown(machine, unit)['MainPID']}/status").stdout
    return dict(line.partition(":\t")[::2] for line in text.splitlines())


def host(machine: Machine) -> dict[str, object]:
    """Links, addresses, routes, rules, neighbours, forwarding entries as ``ip -json`` shows them, settings, files."""
    asked = ("link", "addr", "route show table all", "rule", "neigh show nud permanent", "nexthop")
    seen: dict[str, object] = {what: machine.run("ip", "-json", *what.split()).stdout for what in asked}
    seen["fdb"] = machine.run("bridge", "-json", "fdb").stdout
    seen["sysctl"] = machine.run("bash", "-c", "cd /proc/sys/net; grep -rs . ipv4 ipv6 core | sort").stdout
    seen["etc"] = sorted(machine.run("find", "/etc", "-newer", "/run/key", "-type", "f").stdout.splitlines())
    access = machine.run("find", "/etc/foliot", "-printf", "%p %m %U %G\\n", check=False).stdout
    seen["access"] = sorted(access.splitlines())
    seen["units"] = machine.run("find", "/etc/systemd", "/run/systemd/system", "-name", "foliot*").stdout
    return seen


def join(machine: Machine, *arguments: str, check: bool = True) -> str:
    """Joins, and returns what was said."""
    return machine.foliot("node", "join", _BUS, *arguments, check=check).stdout


def test_a_host_joins_and_leaves(machine):
    """The services run with the least they need, a second join disturbs nothing, and leaving leaves nothing."""
    before = host(machine)
    rails = ("--rail", "rail0=eth0", "--rail", "rail1=eth1")
    machine.run("mknod", "-m", "644", "/dev/kmsg", "c", "1", "11")
    join(machine, "--name", "a", *rails, "--armed", "always", "--key-file", "/run/key")

    for unit in _UNITS:
        state = shown(machine, unit)
        assert (state["ActiveState"], state["SubState"], state["UnitFileState"]) == ("active", "running", "enabled")
        assert state["NRestarts"] == "0"
        kernel = status(machine, unit)
        assert "0" not in kernel["Uid"].split()
        wanted = _AGENT_CAPABILITIES if unit == "foliot-agent" else 0
        assert {int(kernel[name], 16) for name in ("CapEff", "CapPrm", "CapBnd")} == {wanted}
        assert kernel["NoNewPrivs"] == "1"
        assert kernel["Seccomp"] == "2"
    assert shown(machine, "foliot-agent")["StatusText"] == "keeps the ways of a"
    opened = machine.run("bash", "-c", f"readlink /proc/{shown(machine, 'foliot-agent')['MainPID']}/fd/*").stdout
    assert "/dev/kmsg" in opened.splitlines()
    assert shown(machine, "foliot-probe")["StatusText"] == "probes from a"
    assert json.loads(machine.foliot("agent", "plan", "--json").stdout) == []
    assert machine.run("cat", "/proc/sys/net/ipv4/conf/fo0e0/rp_filter").stdout.strip() == "2"
    # Nobody in particular may read the time; sync does not run here.
    as_nobody = (
        "runuser",
        "-u",
        "nobody",
        "--",
        "env",
        "-i",
        "LD_LIBRARY_PATH=/opt/python/lib",
        "/opt/foliot/bin/python",
    )
    page = machine.run(*as_nobody, "-m", "foliot.cli", "clock", "--json", check=False)
    assert '"why": "unsynchronised"' in page.stdout, page.stderr
    access = machine.run("find", "/run/foliot-probe", "-printf", "%f=%m\\n").stdout.split()
    assert sorted(access) == [".clock.lock=600", "clock=644", "foliot-probe=755"]
    machine.run("bash", "-c", "ss -Hulnp 'sport = :7946' | grep -c python | grep -qx 8")

    pids = [shown(machine, unit)["MainPID"] for unit in _UNITS]
    said = join(machine)
    assert "the files are as they shall be" in said
    assert [shown(machine, unit)["MainPID"] for unit in _UNITS] == pids

    assert "index: 0 -> 3" in join(machine, "--index", "3")
    assert "10.200.0.4/32" in machine.run("ip", "addr", "show", "foliot0").stdout
    assert "10.200.0.1/32" not in machine.run("ip", "addr", "show", "foliot0").stdout

    said = machine.foliot("node", "leave").stdout
    assert "remove inventory/a from the bus" in said
    assert host(machine) == before
    assert shown(machine, "foliot-agent")["ActiveState"] == "inactive"


def test_systemd_hands_the_services_what_the_bus_asks_for(machine):
    """Credentials and the authority's certificate, which only root may read, over TLS.

    Leaving takes them off the bus and the host.
    """
    machine.foliot("keys", "--keys", _KEYS, "make", "--host", "127.0.0.1")
    machine.foliot("keys", "--keys", _KEYS, "node", "a")
    start_nats(machine, "nats-tls", "4223", "--config", f"{_KEYS}/server/server.conf")
    bus = "tls://127.0.0.1:4223"
    machine.run(
        "systemd-run", "-q", "--unit=detector", "-p", "NotifyAccess=main", "--service-type=exec",
        f"--setenv=FOLIOT_BUS__URL={bus}",
        f"--setenv=FOLIOT_BUS__CREDENTIALS={_KEYS}/services/detector", f"--setenv=FOLIOT_BUS__CA={_KEYS}/ca.pem",
        "/opt/foliot/bin/python", "-m", "foliot_detector",
    )  # fmt: skip
    until(lambda: shown(machine, "detector")["StatusText"] == "on the bus", "the detector has made the buckets")
    before = host(machine)
    own = ("--credentials", f"{_KEYS}/nodes/a", "--ca", f"{_KEYS}/ca.pem")
    machine.foliot("node", "join", bus, "--name", "a", "--rail", "rail0=eth0", *own)

    assert shown(machine, "foliot-agent")["StatusText"] == "keeps the ways of a"
    assert shown(machine, "foliot-probe")["StatusText"] == "probes from a"
    for unit in _UNITS:
        assert "0" not in status(machine, unit)["Uid"].split()
        handed = f"/run/credentials/{unit}.service"
        environment = machine.run("cat", f"/proc/{shown(machine, unit)['MainPID']}/environ").stdout.split("\0")
        assert {f"FOLIOT_BUS__CREDENTIALS={handed}/credentials", f"FOLIOT_BUS__CA={handed}/ca"} <= set(environment)
        creds = f"{_KEYS}/nodes/a/{unit.removeprefix('foliot-')}.creds"
        assert machine.run("stat", "-c", "%a %U", creds).stdout == "600 root\n"
        assert machine.run("cat", f"{handed}/credentials").stdout == machine.run("cat", creds).stdout

    said = machine.foliot("node", "leave", check=False).stdout
    assert "remove claims/index-0 from the bus" in said
    assert host(machine) == before
    # What other services wrote for it is an administrator's to remove.
    rest = machine.foliot(
        "node",
        "leave",
        "--name",
        "a",
        "--bus",
        bus,
        "--credentials",
        f"{_KEYS}/tools/admin.creds",
        "--ca",
        f"{_KEYS}/ca.pem",
    )
    assert "remove consumer agent-a from the bus" in rest.stdout


def test_settings_that_only_root_reads_stay_so_and_an_agent_that_cannot_be_stopped_keeps_its_ways(machine):
    """The manager hands them, and the key file that they name, to the services.

    Leaving takes nothing away from under a service that runs.
    """
    machine.run("bash", "-c", "mkdir /etc/foliot; umask 77; "
                "printf '[agent]\nkey_file = \"/etc/foliot/fleet.key\"' > /etc/foliot/foliot.toml; "
                "cp /run/key /etc/foliot/fleet.key; echo 'A=1' > /etc/foliot/agent.env")  # fmt: skip
    before = host(machine)
    join(machine, "--name", "a", "--rail", "rail0=eth0", "--armed", "always")
    for unit in _UNITS:
        assert shown(machine, unit)["ActiveState"] == "active"
        assert "0" not in status(machine, unit)["Uid"].split()
    for name in ("foliot.toml", "fleet.key"):
        assert machine.run("stat", "-c", "%a", f"/etc/foliot/{name}").stdout == "600\n"

    machine.run(
        "bash", "-c", "mkdir -p /run/systemd/system/foliot-agent.service.d; "
        "printf '[Unit]\nRefuseManualStop=yes\n' > /run/systemd/system/foliot-agent.service.d/stays.conf; systemctl "
        "daemon-reload",
    )  # fmt: skip
    done = machine.foliot("node", "leave", check=False)
    assert done.returncode == 1
    assert "could not be stopped, so nothing was taken away" in done.stderr
    assert "foliot0" in machine.run("ip", "link").stdout
    assert shown(machine, "foliot-agent")["ActiveState"] == "active"

    machine.run("bash", "-c", "rm -r /run/systemd/system/foliot-agent.service.d; systemctl daemon-reload")
    machine.foliot("node", "leave")
    assert host(machine) == before


def test_a_host_that_hangs_is_started_again_and_a_wrong_one_is_not(machine):
    """The watchdog hears no more of a stopped process; an index that another node has stays refused."""
    machine.run(
        "bash", "-c", "for u in agent probe; do mkdir -p /run/systemd/system/foliot-$u.service.d; "
        "printf '[Service]\\nWatchdogSec=5\\nTimeoutAbortSec=1\\n' > /run/systemd/system/foliot-$u.service.d/soon.conf; done",
    )  # fmt: skip
    join(machine, "--name", "a", "--rail", "rail0=eth0")
    machine.run("systemctl", "kill", "--signal=STOP", *_UNITS)
    for unit in _UNITS:
        until(lambda unit=unit: shown(machine, unit)["NRestarts"] != "0", f"{unit} is started again")
        until(lambda unit=unit: shown(machine, unit)["ActiveState"] == "active", f"{unit} does its work again")

    machine.run("systemctl", "stop", *_UNITS)
    machine.run("sed", "-i", 's/name = "a"/name = "b"/', "/etc/foliot/foliot.toml")
    assert machine.run("systemctl", "start", "foliot-agent", check=False).returncode != 0
    machine.run("journalctl", "--sync")
    assert "index 0 is taken by node 'a'" in machine.run("journalctl", "-o", "cat", "-u", "foliot-agent").stdout
    assert shown(machine, "foliot-agent")["ActiveState"] == "failed"


def test_the_central_services_run_as_shipped(machine):
    """Each under its own instance of the template, with only the network and the credentials that systemd gives."""
    machine.foliot("keys", "--keys", _KEYS, "make", "--host", "127.0.0.1")
    start_nats(machine, "nats-tls", "4223", "--config", f"{_KEYS}/server/server.conf")
    drop_in = (Path(__file__).parents[1] / "docs/hosts.md").read_text().partition("```ini\n")[2].partition("```")[0]
    for line in (
        "mkdir -p /etc/foliot/credentials /etc/systemd/system/foliot@.service.d",
        f"cp {_KEYS}/services/*/*.creds /etc/foliot/credentials; cp {_KEYS}/ca.pem /etc/foliot",
        f"printf %s {shlex.quote(drop_in)} > /etc/systemd/system/foliot@.service.d/bus.conf",
        "printf '[bus]\nurl = \"tls://127.0.0.1:4223\"\n' > /etc/foliot/foliot.toml",
    ):
        machine.run("bash", "-c", line)
    machine.run(
        "bash", "-c", "sed s,@PYTHON@,/opt/foliot/bin/python, "
        "/opt/src/services/agent/foliot_agent/install/units/foliot@.service > /etc/systemd/system/foliot@.service"
    )  # fmt: skip
    units = [f"foliot@{name}" for name in ("gateway", "sync", "detector", "remediator")]
    machine.run("systemctl", "enable", "--now", *units)
    for unit in units:
        until(lambda unit=unit: shown(machine, unit)["StatusText"] == "on the bus", f"{unit} is on the bus")
        state, kernel = shown(machine, unit), status(machine, unit)
        assert (state["ActiveState"], state["NRestarts"]) == ("active", "0")
        assert {int(kernel[name], 16) for name in ("CapEff", "CapPrm", "CapBnd")} == {0}


def test_the_units_are_as_systemd_wants_them(machine):
    """systemd-analyze finds no fault, and little exposure."""
    units = Path(__file__).parents[1] / "services/agent/foliot_agent/install/units"
    machine.run("bash", "-c", "mkdir /run/units; cd /opt/src/services/agent/foliot_agent/install/units; "
                "for u in *; do sed 's,@PYTHON@,/opt/foliot/bin/python,; s,@HOST@,,' $u > /run/units/$u; "
                "done")  # fmt: skip
    for unit in sorted(path.name for path in units.iterdir()):
        named = unit.replace("@", "@sync")
        machine.run("bash", "-c", f"cd /run/units; [ -e {named} ] || cp {unit} {named}")
        assert not machine.run("systemd-analyze", "verify", "--man=no", f"/run/units/{named}").stderr
        machine.run("systemd-analyze", "security", "--offline=yes", "--threshold=20", f"/run/units/{named}")
