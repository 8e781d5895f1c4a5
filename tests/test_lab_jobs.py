"""Four jobs in a real lab, with all services: two collide on a fabric link of one rail, two are apart on the other."""

from __future__ import annotations

import json

import pytest

from lab_report import lab_report

pytestmark = [pytest.mark.e2e, pytest.mark.net]

FABRIC = """
[fabric]
hosts = 4
rails = 2
leaves = 2
spines = 2
link_mbps = 50
icmp = false

[clock]
seed = 9

[run]
solo_s = 3
duration_s = 9
"""
JOB = """
[[job]]
name = "{placed}{number}"
kind = "pairs"
hosts = {hosts}
rails = ["{rail}"]
step_mb = {step_mb}
placed = "{placed}"
"""
HOSTS = (["node0", "node2"], ["node1", "node3"])
HALF = (0.25, 0.75)
"""Between these is what a flow has that shares a link with one other, by the medians of its steps. They are short, so
that most of them are undisturbed also on a machine that stands still at times."""


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    """The report of a run."""
    folder = tmp_path_factory.mktemp("jobs")
    jobs = [
        JOB.format(placed=placed, number=number, hosts=json.dumps(hosts), rail=rail, step_mb=0.5 + 0.5 * number)
        for placed, rail in (("collide", "rail0"), ("apart", "rail1"))
        for number, hosts in enumerate(HOSTS)
    ]
    (folder / "jobs.toml").write_text(FABRIC + "".join(jobs))
    return lab_report(folder / "jobs.toml", folder)


def test_jobs_that_collide_have_half_of_what_they_had_alone(report):
    """Their steps take twice as long; what is apart is as it was."""
    jobs = {job["name"]: job for job in report["jobs"]}
    for name, job in jobs.items():
        assert job["steps"] > 0
        assert job["solo_step_ms"] > 0
        assert len(job["flows"]) == 1
        assert f"job {name}: {job['steps']} steps, " in report["said"]
        assert job["slowest_share"] > 0
    shares = {name: job["solo_step_ms"] / job["step_ms"] for name, job in jobs.items()}
    for number in range(2):
        assert HALF[0] < shares[f"collide{number}"] < HALF[1], shares
        assert HALF[1] < shares[f"apart{number}"], shares


def test_the_link_that_they_share_is_named_and_no_other(report):
    """For most of the run, with both flows and both jobs.

    On a machine that stands still at times, the link behind it has been full as well.
    """
    links = {each["link"] for each in report["contended"]}
    assert links
    assert any(links <= {f"rail0.leaf{leaf}-spine{spine}" for leaf in range(2)} for spine in range(2))
    for each in report["contended"]:
        assert each["jobs"] == ["collide0", "collide1"]
        assert each["flows"] == ["node0>node2/rail0", "node1>node3/rail0"]
    lasted_s = sum(each["until_ns"] - each["since_ns"] for each in report["contended"]) * 1e-9
    assert lasted_s > 5


def test_nothing_is_moved_or_said_where_nothing_is_broken(report):
    """Full queues are no fault."""
    assert [flow["moves"] for job in report["jobs"] for flow in job["flows"]] == [0] * 4
    assert report["unexplained"]["commands"] == 0


def test_where_routers_are_silent_only_the_shared_link_is_inferred(report):
    """No path is known then. Of the two that collide, it may be said that they share a link."""
    found = report["map"]
    assert (found["right"], found["wrong"]) == (0, 0)
    assert found["inferred"] in {0, 2}
    assert found["inferred"] + found["unknown"] == found["paths"]
