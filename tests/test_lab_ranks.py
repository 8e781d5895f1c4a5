"""A real training job in a real lab, of which Foliot names the rank that stands, the slow one and the stopped one."""

from __future__ import annotations

from pathlib import Path

import pytest

from foliot_lab.workload.train.ranks import missing
from lab_report import lab_report

pytestmark = [pytest.mark.e2e, pytest.mark.net, pytest.mark.skipif(bool(missing()), reason=missing())]

SCENARIO = Path(__file__).parents[1] / "docs/examples/ranks.toml"


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    """The report of a run of the example."""
    return lab_report(SCENARIO, tmp_path_factory.mktemp("ranks"))


def test_each_rank_that_holds_up_the_job_is_named_and_none_else(report):
    """A rank that begins no step, and one whose process is stopped: each once, and both are over."""
    found = [(hang["fault"], hang["rank"], hang["node"], hang["why"]) for hang in report["hangs"]]
    assert found == [("f1", 2, "node2", "absent"), ("f3", 1, "node1", "stopped")], report["said"]
    assert all(hang["ended_ns"] is not None and hang["collective"] and hang["seq"] for hang in report["hangs"])


def test_the_slow_rank_is_named_with_its_cause(report):
    """Its program waits for data, as its loader says. Others may lack a processor on a busy machine, as the lab saw."""
    (slow,) = [each for each in report["stragglers"] if each["fault"] == "f2"]
    assert (slow["rank"], slow["node"], slow["cause"]) == (3, "node3", "data"), report["said"]
    assert slow["ended_ns"] is not None


def test_nothing_is_said_that_no_fault_explains(report):
    """The outcome of every fault is right, and what was promised is held against it."""
    assert (report["unexplained"]["events"], report["unexplained"]["commands"]) == (0, 0), report["said"]
    assert report["verdict"]["right"], report["said"]
    held = {held["what"] for outcome in report["verdict"]["outcomes"] for held in outcome["held"]}
    assert "found_ms" in held
