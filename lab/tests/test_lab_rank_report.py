"""What was said of ranks of a training job: what explains it, and what was promised."""

import json

import msgspec
import pytest
from made_runs import REFERENCE, SECOND, event, evidence, lab_ns

from foliot_lab.faults.injection import Injection
from foliot_lab.measure.host_latency import Second
from foliot_lab.report.conclusion import conclude
from foliot_lab.report.report import build
from foliot_lab.scenario.reading import parse_scenario

HANG = """
[fabric]
hosts = 4
rails = 1
[workload]
kind = "train"
[train]
use = "{use}"
[[fault]]
at_s = 10
kind = "{kind}"
where = "node2/rank"
for_s = 15
{more}
[run]
duration_s = 60
"""


def said(at_s, kind="hang", state="absent", node="node2", rank="/rank2", **fields):
    """An event about a rank."""
    given = {
        "id": f"{kind}/{state}/{at_s}", "fault": f"{kind}-{node}", "since_ns": REFERENCE + round((at_s - 3) * SECOND),
        "related": {"jobs": ("train",), "nodes": (node,)}, "evidence": {"collective": "all_reduce", "number": 42},
    }  # fmt: skip
    return event(at_s, kind, f"train{rank}", state, **(given | fields))


def told(events, kind="hang", use="foliot", more="", seconds=()):
    """The report on a run with that fault, and what came of it."""
    run = parse_scenario(HANG.format(kind=kind, use=use, more=more))
    made = Injection(
        fault_id="f1", kind=kind, where="node2/rank", injected_ns=lab_ns(10), healed_ns=lab_ns(25), edges=()
    )
    kept = msgspec.structs.replace(evidence(run, [], {}, events), injections=[made], seconds=seconds)
    report = build(kept)
    return report, conclude(report, run, {})[1]


def test_a_hang_is_told_with_its_fault_rank_and_collective():
    """In lab time, with its end."""
    begun = said(14)
    report, verdict = told([begun, said(25.5, state="moving", cause=begun.message.id)])
    (hang,) = json.loads(report.json())["hangs"]
    hang.pop("trace_id")
    assert hang == {
        "fault": "f1", "job": "train", "rank": 2, "node": "node2", "why": "absent", "collective": "all_reduce",
        "seq": 42, "detected_ns": lab_ns(14), "ended_ns": lab_ns(25.5),
    }  # fmt: skip
    assert report.faults[0].detected_ns == lab_ns(14)
    assert report.unexplained.events == 0
    assert verdict.outcomes[0].right


def test_a_rank_of_another_node_is_not_explained():
    """It is a false alarm."""
    report, verdict = told([said(14), said(15, node="node1", rank="/rank1")])
    assert [hang.fault for hang in report.hangs] == ["f1", None]
    assert (report.unexplained.events, verdict.right) == (1, False)


def test_a_slow_rank_is_told_with_its_cause():
    """And with the time since which it is."""
    slow = said(14, "straggler", "data", evidence={"share": 0.25})
    report, _ = told([slow], kind="data-slow", more="ms = 60")
    (found,) = report.stragglers
    assert (found.fault, found.rank, found.cause, found.share) == ("f1", 2, "data", 0.25)
    assert (found.since_ns, found.detected_ns, found.ended_ns) == (lab_ns(11), lab_ns(14), None)


@pytest.mark.parametrize(
    ("waited_s", "state", "strays"),
    [((0.1, 0.0, 0.3), "processor", 0), ((0.3, 0.3, 0.3), "processor", 2), ((0.3, 0.0, 0.0), "processor", 2),
     ((0.1, 0.0, 0.3), "compute", 2), ((), "processor", 2)],
)  # fmt: skip
def test_a_rank_without_a_processor_is_right_where_the_lab_counted_that(waited_s, state, strays):
    """Beyond its peers; so is the end of it. Before the fault, it has no other reason."""
    slow = said(5, "straggler", state, evidence={"share": 0.2})
    over = said(8, "straggler", "in-step", cause=slow.message.id)
    waited = {f"node{number}/train": each_s for number, each_s in enumerate(waited_s)} | {"node2/probe": 0.9}
    seconds = [Second(lab_ns(at_s), 0.0, 1.0, waited) for at_s in range(9)]
    report, _ = told([slow, over], kind="data-slow", more="ms = 60", seconds=seconds)
    assert report.unexplained.events == strays


@pytest.mark.parametrize(
    ("events", "kind", "use", "more", "right"),
    [
        ([said(14)], "hang", "foliot", "", True),
        ([said(21)], "hang", "foliot", "", False),
        ([], "hang", "foliot", "", False),
        ([], "hang", "plain", "", True),
        ([], "stop", "foliot", "", False),
        ([], "data-slow", "foliot", "ms = 60", True),
    ],
)
def test_who_holds_up_the_job_is_to_be_found_in_time(events, kind, use, more, right):
    """If the job tells of its collectives. Of a slow rank nothing is promised."""
    _, verdict = told(events, kind, use, more)
    assert verdict.outcomes[0].right is right, verdict.outcomes[0].sentence


def test_the_job_as_a_whole_has_no_rank():
    """All its nodes are named."""
    stuck = said(14, state="stuck", rank="", related={"jobs": ("train",), "nodes": ("node0", "node1")})
    report, _ = told([stuck])
    (hang,) = report.hangs
    assert (hang.job, hang.rank, hang.node) == ("train", None, None)
