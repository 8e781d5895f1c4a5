"""What a person asks of a host (``foliot agent plan``, ``foliot node leave``) covers the actuators of extensions."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import msgspec
import pytest
from joining import TOML

from foliot_agent.control import actuator_kinds
from foliot_agent.control.actuator_kinds import ActuatorKind
from foliot_agent.install import plan_command
from foliot_agent.kernel.dry_run import Change

FOLIOT = Path(sys.executable).with_name("foliot")
TOYS = Path(__file__).parents[3] / "tests" / "toys"
SETTINGS = """
[extensions]
modules = ["{module}"]
[agent]
actuator = "elsewhere"
[node]
name = "node0"
index = 0
nics = [{{rail = "rail0", number = 0, device = "rail0", address = "10.0.0.1"}}]
"""


class Planned:
    """An actuator that would change one thing."""

    def __init__(self, kind):
        self._kind = kind

    async def rehearse(self, *_fleet, **_policy):
        """As that of service addresses and all others are asked."""
        return (Change(verb="add", kind=self._kind, name="17", detail={}),)


def test_the_plan_has_what_actuators_of_extensions_would_change(tmp_path, monkeypatch, capsys):
    """Of the one that the settings choose for service addresses, and of every other class."""

    def extend(service):
        assert service == "agent"
        actuator_kinds.register(ActuatorKind("elsewhere", lambda _view: Planned("tunnel")))
        actuator_kinds.register(ActuatorKind("pairs", lambda _view: Planned("queue-pair"), "queue-pairs"))

    monkeypatch.setattr(actuator_kinds, "_kinds", dict(actuator_kinds._kinds))
    monkeypatch.setitem(sys.modules, "planned", SimpleNamespace(extend=extend))
    monkeypatch.setenv("FOLIOT_CONFIG", "")
    config = tmp_path / "foliot.toml"
    config.write_text(SETTINGS.format(module="planned"))
    assert plan_command.run(argparse.Namespace(config=str(config), no_bus=True, json=True)) == 0
    said = msgspec.json.decode(capsys.readouterr().out)
    assert [(change["kind"], change["name"]) for change in said] == [("tunnel", "17"), ("queue-pair", "17")]


def leave(root, *arguments):
    """Leaves, where the calling thread is; the exit status, and what was said."""
    done = subprocess.run(
        [FOLIOT, "node", "leave", "--root", root, "--kernel", *arguments],
        env={**os.environ, "PYTHONPATH": f"{TOYS}:{os.environ.get('PYTHONPATH', '')}"},
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False,
    )  # fmt: skip
    return done.returncode, done.stdout


@pytest.fixture
def joined(tmp_path):
    """The folder of a host whose settings name a module."""

    def make(module):
        path = tmp_path / TOML
        path.parent.mkdir(parents=True)
        path.write_text(f'[extensions]\nmodules = ["{module}"]\n')
        return tmp_path

    return make


@pytest.mark.net
def test_leaving_takes_away_what_the_actuator_of_an_extension_left(joined, namespace, ip_here):
    """And says so beforehand; a rule of somebody else stays."""
    root = joined("toy_actuator")
    ip_here("rule add priority 6000 fwmark 23 lookup 6023", "rule add priority 6001 fwmark 24 lookup 7")
    ip_here("route add 10.200.0.2/32 via 10.0.0.2 dev rail0 table 6023")
    assert leave(root, "--dry-run") == (0, "would remove rule       fwmark 23  priority 6000 lookup 6023\n")
    assert "lookup 6023" in ip_here("rule")
    assert leave(root) == (0, "remove rule       fwmark 23  priority 6000 lookup 6023\n")
    assert "lookup 6023" not in ip_here("rule")
    assert "lookup 7" in ip_here("rule")
    assert "10.200.0.2" not in ip_here("route show table all")
    assert leave(root)[1].startswith("there is nothing to undo")


def test_without_its_extension_a_host_does_not_leave(joined):
    """What its actuator left could not be taken away any more."""
    root = joined("nowhere")
    status, said = leave(root, "--dry-run")
    assert status == 1
    assert said.startswith("extensions.modules: nowhere cannot be loaded: No module named 'nowhere'")
