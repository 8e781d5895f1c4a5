"""A job between NICs in a real lab takes another way than Foliot probes for its pair, and the detector says so."""

from __future__ import annotations

from pathlib import Path

import pytest

from lab_report import lab_report

pytestmark = [pytest.mark.e2e, pytest.mark.net]

SCENARIO = Path(__file__).parents[1] / "docs/examples/past-foliot.toml"


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    """The report of a run of the example."""
    return lab_report(SCENARIO, tmp_path_factory.mktemp("mismatch"))


def test_the_job_past_foliot_is_named_and_no_other(report):
    """By the routes of the lab's kernels it is so, and so nothing is unexplained."""
    (found,) = report["mismatches"]
    assert (found["job"], found["flow"], found["right"]) == ("past", "past:node0>node2/rail0", True), report["said"]
    assert (report["unexplained"]["events"], report["unexplained"]["commands"]) == (0, 0)
    assert "mismatch: past:node0>node2/rail0 of job past does not take the path that is probed" in report["said"]


def test_round_trips_stand_beside_the_delays_of_paths(report):
    """The flow between NICs is quicker than its path, and those between service addresses are not."""
    flows = {flow["id"]: flow for job in report["jobs"] for flow in job["flows"]}
    past = flows.pop("past:node0>node2/rail0")
    assert past["in_band_us"] < 0.5 * past["out_of_band_us"]
    for flow in flows.values():
        assert flow["in_band_us"] > 0.5 * flow["out_of_band_us"]
