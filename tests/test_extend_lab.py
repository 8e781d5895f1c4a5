"""A detector, a verb and an actuator, each in one file of somebody's own (`tests/toys`), in a lab.

Nothing of Foliot's knows them by name.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

import pytest
from standing_lab import FOLIOT, standing

pytestmark = [pytest.mark.e2e, pytest.mark.net]

TOYS = Path(__file__).parent / "toys"
SCENARIO = """
[fabric]
hosts = 2
rails = 2
[services]
"extensions.modules" = ["toy_detector", "toy_verb", "toy_actuator"]
"extensions.toy_detector.counter" = "rx_packets"
"extensions.toy_detector.least" = 0
"remediator.policies.mark" = "act"
[workload]
kind = "none"
[[fault]]
at_s = 1
kind = "restart"
where = "detector"
[run]
duration_s = 8
skip_waits = true
"""
"""What the toy takes for an error is a setting: here any count is one, also of a port that heard nothing while its peer
stood still."""
NICS = {f"node{node}.rail{rail}" for node in range(2) for rail in range(2)}
PEER = "10.200.0.1"
"""Node 0's service address on rail0."""


@pytest.fixture(scope="module")
def lab(tmp_path_factory):
    """It stands, and nothing more befalls it but by the tests."""
    with standing(tmp_path_factory.mktemp("extended"), SCENARIO, environment={"PYTHONPATH": str(TOYS)}) as made:
        yield made


# -- a detector -------------------------------------------------------------------------------------------------------


def test_a_detector_works_from_the_kernel_to_the_gateway_and_through_a_restart(lab):
    """On the bus, stored, told by `foliot watch` and the gateway; the detector that was restarted repeats nothing."""
    log = lab.folder / "detector.log"
    lab.until(lambda: log.read_text().count("detector_started") == 2, "the detector did not start again")
    time.sleep(2.5)  # ports speak every second, and it looks at two words of each
    shown = lab.get("events?kind=errors")
    watched = lab.execute(
        "control", FOLIOT, "watch", "event.errors", "--last", "99", "--no-follow",
        "--config", str(lab.folder / "reader.toml"),
    ).splitlines()  # fmt: skip

    assert "restarting detector" in lab.said
    assert sorted(event["who"] for event in shown) == sorted(NICS), "once each, also by the detector that took over"
    assert {event["state"] for event in shown} == {"rising"}
    assert len(watched) == len(NICS)
    assert {nic for nic in NICS for line in watched if f"{nic} receives broken frames" in line} == NICS


# -- a verb -----------------------------------------------------------------------------------------------------------


def alias(lab):
    """What the kernel of a host says a NIC's alias is; empty: it has none."""
    lines = lab.execute("node0", "ip", "-d", "link", "show", "rail1").splitlines()
    return "".join(line.split(" ", 5)[-1].strip() for line in lines if line.strip().startswith("alias "))


def marks(lab):
    """What became of its commands, as the gateway tells it."""
    return [outcome for each in lab.get("commands") if each["verb"] == "mark" for outcome in each["outcomes"]]


def test_a_verb_works_from_the_event_to_the_kernel_and_back(lab):
    """Asked for by its remedy, done by its handler, confirmed, answered, and undone by the order that the node gave."""
    assert alias(lab) == ""
    lab.execute("node0", "ip", "link", "set", "rail1", "down")
    marked = lab.until(lambda: alias(lab), "the NIC was not marked")
    (outcome,) = lab.until(lambda: marks(lab), "no outcome is shown")
    assert (outcome["node"], outcome["status"], outcome["confirmed_ns"] > 0) == ("node0", "done", True)
    assert outcome["action"] == {"verb": "mark", "rail": "rail1", "alias": marked}
    assert outcome["undo_action"] == {"verb": "mark", "rail": "rail1", "alias": ""}
    lab.execute("node0", "ip", "link", "set", "rail1", "up")
    lab.until(lambda: not alias(lab), "the mark was not undone")


# -- an actuator ------------------------------------------------------------------------------------------------------


def device(lab, *mark):
    """The device by which the kernel of node 1 sends a packet to its peer."""
    words = lab.execute("node1", "ip", "route", "get", PEER, *mark).split()
    return words[words.index("dev") + 1]


def answered(lab, verb):
    """The outcomes of node 1's commands of a verb for this class of traffic."""
    commands = [each for each in lab.get("commands") if each["command"]["verb"] == verb]
    own = [each for each in commands if each["command"]["node"] == "node1"]
    return [outcome for each in own if each["command"]["action"] for outcome in each["outcomes"]]


def test_an_actuator_moves_its_own_class_of_traffic_beside_the_overlay(lab):
    """By orders of Foliot's own verbs: marked packets and service addresses each by their own rules.

    Uninstalled, it leaves nothing.
    """
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
