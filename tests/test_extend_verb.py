"""A verb in one file of somebody's own (`tests/toys/toy_verb.py`): nothing of Foliot's knows it by name."""

from __future__ import annotations

import pytest
from standing_lab import standing

pytestmark = [pytest.mark.e2e, pytest.mark.net]

SCENARIO = """
[fabric]
hosts = 2
rails = 2
[services]
"extensions.modules" = ["toy_verb"]
"remediator.policies.mark" = "act"
[workload]
kind = "none"
[run]
duration_s = 2
"""


@pytest.fixture
def lab(tmp_path):
    """It stands, and nothing befalls it but by the test."""
    with standing(tmp_path, SCENARIO) as made:
        yield made


def alias(lab):
    """What the kernel of a host says a NIC's alias is; empty: it has none."""
    lines = lab.execute("node1", "ip", "-d", "link", "show", "rail0").splitlines()
    return "".join(line.split(" ", 5)[-1].strip() for line in lines if line.strip().startswith("alias "))


def outcomes(lab):
    """What became of its commands, as the gateway tells it."""
    return [outcome for each in lab.get("commands") if each["verb"] == "mark" for outcome in each["outcomes"]]


def test_it_works_from_the_event_to_the_kernel_and_back(lab):
    """Asked for by its remedy, carried out by its handler, confirmed, answered, and undone by the order that the node gave for that."""
    assert alias(lab) == ""
    lab.execute("node1", "ip", "link", "set", "rail0", "down")
    marked = lab.until(lambda: alias(lab), "the NIC was not marked")
    (outcome,) = lab.until(lambda: outcomes(lab), "no outcome is shown")
    assert (outcome["node"], outcome["status"], outcome["confirmed_ns"] > 0) == ("node1", "done", True)
    assert outcome["action"] == {"verb": "mark", "rail": "rail0", "alias": marked}
    assert outcome["undo_action"] == {"verb": "mark", "rail": "rail0", "alias": ""}
    lab.execute("node1", "ip", "link", "set", "rail0", "up")
    lab.until(lambda: not alias(lab), "the mark was not undone")
