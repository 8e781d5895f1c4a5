"""Partitions of the frontend, a stepped clock, a full disk and killed services, in a lab with all services.

What is safe is done, and said.
"""

from __future__ import annotations

import pytest

from lab_report import lab_report

pytestmark = [pytest.mark.e2e, pytest.mark.net]

SCENARIO = """
[fabric]
hosts = 4
rails = 2
leaves = 2
spines = 2
bus_servers = 3

[services]
"remediator.armed" = "bus-away"
"remediator.probation_s" = 1.0

[workload]
kind = "none"

[[fault]]
id = "remediator-parted"
at_s = 2
kind = "partition"
where = "remediator|bus"
for_s = 7

[[fault]]
id = "while-remediator-parted"
at_s = 4
kind = "link-down"
where = "node1.rail0"
for_s = 18 # long enough for a remediator that finds the bus late

[[fault]]
id = "node-parted"
at_s = 27
kind = "partition"
where = "node3|bus"
for_s = 10

[[fault]]
id = "while-node-parted"
at_s = 31.5
kind = "link-down"
where = "node3.rail0"
for_s = 7

[[fault]]
id = "stepped"
at_s = 44
kind = "clock-step"
where = "node2"
offset_ns = 5_000_000_000

[[fault]]
id = "while-stepped"
at_s = 44.2
kind = "link-down"
where = "node2.rail1"
for_s = 11

# Last: servers may take ten seconds to agree on who leads once they hear each other again, \
on a busy machine twice as long, and there is no
# lease meanwhile. A command whose message did not pass comes after that, with what its stream has kept.
[[fault]]
id = "servers-parted"
at_s = 59
kind = "partition"
where = "nats0|nats1"
for_s = 5

[[fault]]
id = "while-servers-parted"
at_s = 61
kind = "link-down"
where = "node0.rail0"
for_s = 40

[run]
duration_s = 112
skip_waits = true
"""


@pytest.fixture(scope="module")
def played(tmp_path_factory):
    """The report by fault, and the folder with the logs."""
    folder = tmp_path_factory.mktemp("resilience")
    (folder / "scenario.toml").write_text(SCENARIO)
    report = lab_report(folder / "scenario.toml", folder)
    faults = {fault["id"]: fault for fault in report["faults"]}
    for id_, seconds in (("remediator-parted", 7), ("node-parted", 10)):
        faults[id_]["healed_ns"] = faults[id_]["injected_ns"] + seconds * 1_000_000_000
    return faults, folder / "lab", report["said"]


def test_a_remediator_without_the_bus_commands_nothing_until_it_has_its_lease_again(played):
    """It says that it lost the lease; what happened meanwhile is commanded afterwards."""
    faults, logs, said = played
    fault, parted = faults["while-remediator-parted"], faults["remediator-parted"]
    assert fault["detected_ns"] < parted["healed_ns"]
    assert fault["commanded_ns"] > parted["healed_ns"], said
    assert fault["moved_ns"] > parted["healed_ns"]
    assert "lease_lost" in (logs / "remediator.log").read_text()


def test_a_node_without_the_bus_does_what_it_was_armed_for(played):
    """Its own lost carrier is left by the rule that was armed; its peers hear of it over the other rail."""
    faults, _, said = played
    fault, parted = faults["while-node-parted"], faults["node-parted"]
    assert fault["injected_ns"] < fault["moved_ns"] < parted["healed_ns"], said
    assert fault["commanded_ns"] is None or fault["commanded_ns"] > parted["healed_ns"]


def test_two_bus_servers_that_do_not_hear_each_other_delay_a_move_and_lose_none(played):
    """Between clients of the one and of the other no message passes meanwhile.

    Traffic moves at the latest once they hear each other, and comes back.
    """
    faults, _, said = played
    fault = faults["while-servers-parted"]
    assert fault["moved_ns"] is not None, said
    assert fault["restored_ns"] is not None, said


def test_a_node_with_a_stepped_clock_is_not_trusted_with_a_deadline(played):
    """A refusal says so. Its traffic is moved all the same, and comes home when the NIC is back."""
    faults, _, said = played
    fault = faults["while-stepped"]
    refusals = [event for event in faults["stepped"]["events"] + fault["events"] if "/refused/" in event]
    assert any("/refused/stale-clock/" in event or "/refused/agent/" in event for event in refusals), said
    assert fault["moved_ns"] is not None, said
    assert fault["restored_ns"] is not None, said
