"""Two jobs collide on a fabric link in a real lab, with all services, and Foliot parts them."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from bench.contention.draw import draw
from bench.contention.rows import Found, row_of
from lab_report import lab_report

pytestmark = [pytest.mark.e2e, pytest.mark.net]

SCENARIO = Path(__file__).parents[1] / "docs/examples/two-jobs-cured.toml"
FLOWS = ["node0>node2/rail0", "node1>node3/rail0"]
JOBS = ["large", "small"]
LEAST = 0.8
"""Share of its rate alone that a flow has at the end at least, also on a machine that stands still at times."""
LAST = 5
"""Seconds of the end."""
JUDGED_S = (2, 5)
"""After its answer, a move is judged by what the flows have from then until then."""
LITTLE = 0.4
"""Of its rate alone. What shares a link with one other has more."""


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    """The report of a run of the example in which the flows went on while a move was judged."""
    for _ in range(3):
        found = lab_report(SCENARIO, tmp_path_factory.mktemp("contention"))
        if not stood_still(found):
            return found
    return pytest.fail("the flows stood still each time")


def stood_still(found):
    """Whether a move was taken back because both jobs had little at a time: one process sends for both."""
    if not any(said["reverted"] for said in found["contention"]):
        return False
    zero_ns = found["jobs"][0]["began_ns"]
    moved_s = [(move["at_ns"] - zero_ns) * 1e-9 for move in found["moves"]]
    shares = [{each["at_s"]: each["share"] or 0.0 for each in job["seconds"]} for job in found["jobs"]]
    still_s = [at_s for at_s in shares[1] if max(of_job.get(at_s, 1.0) for of_job in shares) < LITTLE]
    return any(JUDGED_S[0] - 1 < at_s - each_s < JUDGED_S[1] for at_s in still_s for each_s in moved_s)


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


def test_the_map_of_links_is_right(report):
    """Of every pair, rail and entropy, by the ways that the lab's kernels send them."""
    found = report["map"]
    assert found["paths"] == 4 * 3 * 4
    assert (found["right"], found["wrong"], found["unknown"]) == (found["paths"], 0, 0), report["said"]


def test_nothing_else_is_said_or_moved(report):
    """The lab's truth explains the event, its end and the move."""
    assert (report["unexplained"]["events"], report["unexplained"]["commands"]) == (0, 0)
    assert report["mismatches"] == []


def test_the_bench_of_contention_makes_a_row_of_it(report):
    """With its time from the beginning of the second job, its moves, and the links that the lab saw."""
    trial = msgspec.structs.replace(draw("collision", 1), origin="small")
    row = row_of(trial, "foliot", msgspec.convert(report, Found))
    said = report["contention"][0]
    began_ns = next(job["began_ns"] for job in report["jobs"] if job["name"] == "small")
    assert (row.verdict, row.named_link_right, row.right) == ("fabric-contention", True, True)
    assert row.detected_s == pytest.approx((said["detected_ns"] - began_ns) * 1e-9, abs=1e-3)
    assert {*row.truth} & {*said["links"]}
    assert (row.place, row.flows, row.moves) == (said["place"], 2, 1)
    # The two share the links up and down. On a machine that stands still at times, both have been full.
    assert row.collisions == len(row.truth) >= 1
    assert row.slowest_share == min(job["slowest_share"] for job in report["jobs"])
