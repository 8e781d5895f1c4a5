"""Two jobs collide on a fabric link in a real lab, with all services, and Foliot parts them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from foliot_lab.fabric import capabilities
from patience import patience

pytestmark = [pytest.mark.e2e, pytest.mark.net]

FOLIOT = str(Path(sys.executable).with_name("foliot"))
SCENARIO = Path(__file__).parents[1] / "docs/examples/two-jobs-cured.toml"
FLOWS = ["node0>node2/rail0", "node1>node3/rail0"]
JOBS = ["large", "small"]
LEAST = 0.8
"""Share of its rate alone that a flow has at the end at least, also on a machine that stands still at times."""
LAST = 5
"""Seconds of the end."""


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    """The report of a run of the example."""
    if problems := capabilities.missing():
        pytest.skip(" ".join(problems))
    folder = tmp_path_factory.mktemp("contention")
    done = subprocess.run(
        [FOLIOT, "lab", "run", "--force", str(SCENARIO), "--port", "0", "--folder", str(folder / "lab"),
         "--report", str(folder / "report.json")],
        capture_output=True, text=True, check=False, timeout=patience(400),
    )  # fmt: skip
    assert (folder / "report.json").exists(), done.stdout + done.stderr
    return json.loads((folder / "report.json").read_text()) | {"said": done.stdout}


def test_the_contended_link_is_named(report):
    """The lab's own counters say which it is, and which flows share it."""
    truth = {each["link"] for each in report["contended"]}
    said = report["contention"][0]
    assert said["verdict"] == "fabric-contention", report["said"]
    assert truth & {*said["links"]}
    assert (said["flows"], said["jobs"], said["right"]) == (FLOWS, JOBS, True)
    assert f"contention: fabric-contention at {' or '.join(said['links'])};" in report["said"]


def test_one_flow_is_moved_and_stays(report):
    """From one way to another, for that event."""
    (move,) = report["moves"]
    said = report["contention"][0]
    assert move["flow"] in FLOWS
    assert move["from"] != move["to"]
    assert (move["event"], move["kept"]) == (said["event"], True)
    assert (said["moves"], said["reverted"]) == (1, False)
    assert [sum(flow["moves"] for job in report["jobs"] for flow in job["flows"])] == [1]


def test_both_jobs_have_what_they_had_alone(report):
    """At the end, in the median of some seconds."""
    for job in report["jobs"]:
        shares = sorted(second["slowest_share"] for second in job["seconds"][-LAST:])
        assert shares[len(shares) // 2] >= LEAST


def test_nothing_else_is_said_or_moved(report):
    """The lab's truth explains the event, its end and the move."""
    assert (report["unexplained"]["events"], report["unexplained"]["commands"]) == (0, 0)
