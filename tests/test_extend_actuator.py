"""An actuator of another class of traffic in one file of somebody's own (`tests/toys/toy_actuator.py`), beside the overlay's."""

from __future__ import annotations

import sys

import pytest
from standing_lab import standing

pytestmark = [pytest.mark.e2e, pytest.mark.net]

SCENARIO = """
[fabric]
hosts = 2
rails = 2
[services]
"extensions.modules" = ["toy_actuator"]
[workload]
kind = "none"
[run]
duration_s = 2
"""
PEER = "10.200.0.1"
"""Node 0's service address on rail0."""


@pytest.fixture
def lab(tmp_path):
    """It stands, and nothing befalls it but by the test."""
    with standing(tmp_path, SCENARIO) as made:
        yield made


def device(lab, *mark):
    """The device by which the kernel of node 1 sends a packet to its peer."""
    words = lab.execute("node1", "ip", "route", "get", PEER, *mark).split()
    return words[words.index("dev") + 1]


def answered(lab, verb):
    """The outcomes of node 1's commands of a verb for this class of traffic."""
    commands = [each for each in lab.get("commands") if each["command"]["verb"] == verb]
    own = [each for each in commands if each["command"]["node"] == "node1"]
    return [outcome for each in own if each["command"]["action"] for outcome in each["outcomes"]]


def test_it_moves_its_own_class_of_traffic_beside_the_overlay(lab):
    """By orders of Foliot's own verbs: marked packets and service addresses each by their own rules; uninstalled, nothing is left."""
    home = device(lab)
    assert home.startswith("fo0")
    assert device(lab, "mark", "23") == home
    lab.execute("node1", "ip", "link", "set", "rail0", "down")
    (moved,) = lab.until(lambda: answered(lab, "reroute"), "marked packets were not moved")
    assert (moved["status"], moved["expected"], len(moved["confirmations"])) == ("done", 1, 1)
    assert device(lab, "mark", "23") == "fo1e0"
    assert "fwmark 0x17" in lab.execute("node1", "ip", "rule")
    lab.until(lambda: device(lab).startswith("fo1"), "service addresses were not moved")

    lab.execute("node1", "ip", "link", "set", "rail0", "up")
    (back,) = lab.until(lambda: answered(lab, "restore"), "marked packets were not moved back")
    assert back["undo_action"]["placements"][0]["via"] == "rail1"
    lab.until(lambda: device(lab, "mark", "23") == "fo0e0", "marked packets go another way than they should")

    settings = {"FOLIOT_EXTENSIONS__MODULES": '["toy_actuator"]'}
    lab.execute("node1", sys.executable, "-m", "foliot_agent", "--uninstall", **settings)
    assert "fwmark" not in lab.execute("node1", "ip", "rule")
