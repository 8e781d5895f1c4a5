"""Ranks that were given to spares: what was told of it, what the job's own record says, and what is right."""

import json

import msgspec
import numpy as np
import pytest
from made_runs import MS, REFERENCE, SECOND, command, event, evidence, lab_ns

from foliot_lab.faults.injection import Injection
from foliot_lab.measure.bus_recorder import Heard
from foliot_lab.report.conclusion import conclude, lines
from foliot_lab.report.job_text import finding
from foliot_lab.report.replace_orders import in_words
from foliot_lab.report.report import build
from foliot_lab.scenario.reading import parse_scenario
from foliot_lab.scenario.spec import trained
from foliot_lab.workload.train.merged_steps import LINE, merge
from foliot_lab.workload.train.ranks import Ended
from foliot_lab.workload.train.record import STEP, JobRecord
from foliot_schemas import Outcome, WorkerBatch, WorkerState
from foliot_schemas.orders import RankChange, ReplaceRank, write

SCENARIO = """
[fabric]
hosts = 4
rails = 1
[services]
{services}
[[job]]
name = "train"
kind = "train"
use = "foliot"
spares = 1
ranks_per_host = {each}

[[fault]]
at_s = 10
kind = "{kind}"
where = "{where}"
[run]
duration_s = 60
{expect}
"""
STEP_S = 0.5
SPARE = 40
"""The number of the spare's process; a rank's is its rank and 10."""


def order(**fields):
    """Rank 2 goes from node2 to the spare on node3."""
    change = RankChange(rank=2, node="node2", process=12, to_node="node3", to_process=SPARE)
    given = {"job": "train", "generation": 1, "meet": "10.99.1.1:4", "cause": "dead", "changes": (change,)}
    return ReplaceRank(**(given | fields))


ANEW = order(changes=(), cause="broken")
"""The same ranks form their group anew."""


def ordered(at_s, what=None, node="node0", **fields):
    """The command of an order to a node."""
    given = {
        "id": f"c-{node}-{at_s}", "verb": "replace-rank", "node": node, "away": (), "fault": "lost", "cause": "e1",
        "action": write(order() if what is None else what),
    }  # fmt: skip
    return command(at_s, **(given | fields))


def told(at_s, node, process, rank, **fields):
    """What a node tells of its process, half a millisecond after it came about."""
    at_ns = REFERENCE + round(at_s * SECOND)
    times = {key: REFERENCE + round(value * SECOND) for key, value in fields.items() if key.endswith("_ns")}
    state = WorkerState(
        process=process, rank=rank, alive="running", since_ns=at_ns, heard_ns=at_ns,
        **({"generation": 1, "step": 7, "stage": "training"} | fields | times),
    )  # fmt: skip
    batch = WorkerBatch(job="train", node=node, at_ns=at_ns, bound_ns=1, size=3, workers=(state,))
    return Heard(lab_ns(at_s) + MS // 2, batch)


COURSE = [
    told(11.2, "node0", 10, 0, left_ns=11.1),
    told(11.25, "node1", 11, 1, left_ns=11.2),
    told(11.6, "node0", 10, 0, left_ns=11.1, formed_ns=11.5),
    told(11.7, "node3", SPARE, 2, formed_ns=11.6, copied_ns=11.65, state_bytes=3_000_000, state_from=0),
    told(12.6, "node3", SPARE, 2, formed_ns=11.6, copied_ns=11.65, first_step_ns=12.5, state_bytes=3_000_000, state_from=0),
    told(12.7, "node0", 10, 0, left_ns=11.1, formed_ns=11.5, first_step_ns=12.6),
    told(30, "node3", SPARE, 2, left_ns=30),  # for the next generation
]  # fmt: skip


def record(run, *, lost_s=10.0, back_s=12.0, again=0, ended=()):
    """The job's own record: rank 2 is on node2 until it is lost, and on node3 afterwards."""
    before = int(lost_s / STEP_S)
    after = range(before - again, before - again + int((60 - back_s) / STEP_S))

    def rows(rank, first, last):
        early = [(rank, step, lab_ns(step * STEP_S), lab_ns((step + 1) * STEP_S), 1.0) for step in range(before)]
        late = [
            (rank, step, lab_ns(back_s + number * STEP_S), lab_ns(back_s + (number + 1) * STEP_S), 1.0)
            for number, step in enumerate(after)
        ]
        return np.array((early if first else []) + (late if last else []), dtype=LINE)

    whole = merge(
        {"node0": rows(0, True, True), "node1": rows(1, True, True), "node2": rows(2, True, False), "node3": rows(2, False, True)},
        3,
    )  # fmt: skip
    return JobRecord(
        name="train", spec=trained(run)[1], folder="", steps={"node0": np.zeros(0, STEP)}, merged=whole, ended=ended,
        zero_ns=lab_ns(0), at_ns=lab_ns(60),
    )  # fmt: skip


def judged(
    commands=(), events=(), *, kind="kill", where="node2/rank", each=1, services="", expect="", workers=COURSE,
    outcomes=(), before=(), **kept,
):  # fmt: skip
    """The report on a run with that fault, and what came of it."""
    run = parse_scenario(SCENARIO.format(kind=kind, where=where, each=each, services=services, expect=expect))
    fault = run.faults[0]
    made = Injection(fault_id="f1", kind=kind, where=fault.where, injected_ns=lab_ns(10), healed_ns=None, edges=())
    seen = msgspec.structs.replace(
        evidence(run, [*before, made], {}, events, commands=commands, job=record(run, **kept)),
        workers=workers,
        outcomes=outcomes,
    )
    made_report = build(seen)
    return conclude(made_report, run, {})


def hang(at_s=10.9, state="dead", node="node2", rank=2, **fields):
    """An event that blames a rank."""
    given = {"id": "e1", "fault": "lost", "related": {"jobs": ("train",), "nodes": (node,)}} | fields
    return event(at_s, "hang", f"train/rank{rank}", state, **given)


def test_a_replacement_is_told_with_its_course():
    """In lab time, by the messages; what the job lost of it, by its own record."""
    report, conclusion = judged([ordered(11), ordered(11, node="node3")], [hang()])
    (row,) = json.loads(report.json())["replacements"]
    assert row.pop("trace_id") == report.faults[0].trace_id
    assert row == {
        "fault": "f1", "job": "train", "rank": 2, "from": "node2", "to": "node3", "cause": "dead", "planned": False,
        "decided_ns": lab_ns(11), "left_ns": lab_ns(11.2), "formed_ns": lab_ns(11.6), "copied_ns": lab_ns(11.65),
        "first_step_ns": lab_ns(12.6), "stall_ms": 2000.0, "lost_steps": 0, "state_mb": 3.0, "state_from": 0,
        "refused": None,
    }  # fmt: skip
    assert report.faults[0].ranks == [2]
    assert (report.unexplained.events, report.unexplained.commands) == (0, 0)
    first = conclusion.outcomes[0]
    assert first.right
    assert "rank 2 went to node3, and the job stood for 2.0 s; the job went on" in first.sentence
    (said,) = [line for line in lines(report, conclusion) if line.startswith("replacement")]
    assert said == (
        "replacement: rank 2 of train from node2 to node3 (dead); the first step 1.6 s after the order; the job stood "
        "for 2.0 s, 0 steps were done again; 3.0 MB of state from rank 0"
    )


def test_steps_that_are_done_again_are_lost():
    """And their second time is no progress to compare by, but it is a step."""
    report, _ = judged([ordered(11)], [hang()], again=4)
    assert report.replacements[0].lost_steps == 4
    assert report.train.lost_steps == 4


@pytest.mark.parametrize(
    ("given", "right", "words"),
    [
        ({}, False, "rank 2 was not replaced in 50.0 s, promised within 8.0 s"),
        ({"commands": [ordered(11)], "workers": ()}, False, "rank 2 was not replaced"),
        ({"commands": [ordered(11)], "back_s": 25.0}, False, "promised within 8.0 s"),
        ({"commands": [ordered(11)], "back_s": 15.0, "expect": "[expect]\nstall_ms = 3_000\n"}, False, "within 3.0 s"),
        ({"commands": [ordered(11)], "back_s": 25.0, "expect": "[expect]\nstall_ms = inf\n"}, True, "node2/rank was"),
        ({"services": '"remediator.replace" = "advise"', "back_s": 12.0}, True, "node2/rank was killed"),
        ({"commands": [ordered(11)], "kind": "stop"}, True, "rank 2 went to node3"),
        ({"commands": [ordered(11)], "kind": "drain", "where": "node2"}, True, "rank 2 went to node3"),
        ({"kind": "kill", "where": "node3/rank", "lost_s": 60.0, "back_s": 60.0}, True, "node3/rank was killed"),
    ],
)
def test_a_lost_rank_is_to_be_replaced_in_time(given, right, words):
    """If a spare is free, and the remediator may act."""
    _, conclusion = judged(**({"events": [hang()] if "commands" in given else []} | given))
    assert conclusion.outcomes[0].right is right, conclusion.outcomes[0].sentence
    assert words in conclusion.outcomes[0].sentence


def test_a_spare_that_was_lost_before_may_be_there_again():
    """If it took the rank, it had to do so in time; if nobody did, none may have been free."""
    more = '[[fault]]\nat_s = 5\nkind = "kill"\nwhere = "node3/rank"\nfor_s = 1\n'
    spare = Injection(
        fault_id="f2", kind="kill", where="node3/rank", injected_ns=lab_ns(5), healed_ns=lab_ns(6), edges=()
    )
    late = judged([ordered(11)], [hang()], back_s=25.0, expect=more, before=[spare])[1].outcomes[1]
    assert (late.right, "promised within 8.0 s" in late.sentence) == (False, True), late.sentence
    none = judged([], [hang()], back_s=25.0, expect=more, before=[spare])[1].outcomes[1]
    assert (none.right, "no spare was free" in none.sentence) == (True, True), none.sentence


@pytest.mark.parametrize(
    ("given", "right", "words"),
    [
        ({"commands": [ordered(11, ANEW)], "back_s": 15.0}, True, "the job stood for 5.0 s; the job went on"),
        ({"commands": [ordered(11, ANEW)], "back_s": 25.0}, False, "for 15.0 s, promised within 8.0 s: 7.0 s too long"),
        ({"commands": [ordered(11, ANEW)], "lost_s": 10.0, "back_s": 60.0}, False, "made no step any more"),
        ({"commands": [ordered(11, ANEW)], "ended": "node2"}, False, "the rank of node2 died"),
        ({"commands": [ordered(11)], "back_s": 15.0}, False, "rank 2 went to node3 though none was lost"),
        ({"services": '"remediator.replace" = "advise"', "ended": "node2"}, True, "the rank of node2 died"),
    ],
)
def test_ranks_whose_connections_were_reset_are_to_go_on_in_time(given, right, words):
    """All of them, where the remediator may act. Elsewhere the job ends with them."""
    ended = tuple(
        Ended(node=node, at_ns=lab_ns(10.1), status=1, reason="it broke") for node in [given.get("ended")] if node
    )
    report, conclusion = judged(**({"events": [hang()]} | given | {"ended": ended}), kind="reset")
    outcome = conclusion.outcomes[0]
    assert outcome.right is right, outcome.sentence
    assert words in outcome.sentence
    assert report.unexplained.commands == 0


def test_a_healthy_rank_that_is_replaced_is_wrong():
    """Nothing befell its node, or only another process there."""
    change = RankChange(rank=0, node="node0", process=10, to_node="node3", to_process=SPARE)
    report, conclusion = judged([ordered(11, order(changes=(change,)))], workers=())
    assert report.replacements[0].fault is None
    assert report.unexplained.commands == 1
    assert any("Rank 0 of train went from node0 to node3 though" in each.sentence for each in conclusion.outcomes)
    assert not conclusion.right


def test_a_refusal_is_a_row_of_its_own():
    """With the guard that forbade it. It is explained by the fault."""
    refusal = event(
        11.5, "refusal", "train/rank2", "refused", policy="no-spare", cause="e1", evidence={"verb": "replace-rank"}
    )
    report, _ = judged([], [hang(), refusal])
    (row,) = report.replacements
    assert (row.fault, row.rank, row.to, row.cause, row.refused) == ("f1", 2, None, "dead", "no-spare")
    assert report.unexplained.events == 0


def test_what_a_node_could_not_do_is_said():
    """In its words."""
    failed = Outcome(
        id="o", command="c-node0-11", verb="replace-rank", node="node0", status="failed", reason="nobody there"
    )
    report, _ = judged([ordered(11)], [hang()], outcomes=[Heard(lab_ns(12), failed)])
    assert report.replacements[0].refused == "nobody there"


def test_advice_replaces_nothing():
    """It is no row."""
    report, _ = judged([ordered(11, advice=True)], [hang()])
    assert report.replacements == []


@pytest.mark.parametrize(("node", "right"), [("node2", True), ("node1", False)])
def test_none_but_the_lost_process_may_die(node, right):
    """The job goes on without it."""
    ended = (Ended(node=node, at_ns=lab_ns(10.1), status=-9, reason="killed by SIGKILL"),)
    _, conclusion = judged([ordered(11)], [hang()], ended=ended)
    assert conclusion.right is right
    assert any("died but those that were taken" in each.sentence for each in conclusion.outcomes) is right


@pytest.mark.parametrize(("taken", "right"), [((), False), (("node1/rank",), True), (("node2/rank",), False)])
def test_a_rank_that_another_fault_takes_is_not_held_against_this_one(taken, right):
    """Two are killed within a second, and each is within the other's time."""
    ended = (Ended(node="node1", at_ns=lab_ns(10.1), status=-9, reason="killed by SIGKILL"),)
    report, _ = judged([ordered(11)], [hang()], ended=ended)

    assert [each for each, _ in finding(report.faults[0], is_replaced=True, taken=taken)] == [right]
    assert all(each for each, _ in finding(report.faults[0], taken=("node1/rank",)))


def test_the_end_of_a_ranks_trouble_may_come_from_another_node():
    """The one that has the rank by then."""
    over = hang(12, "replaced", node="node3", id="e2", cause="e1")
    report, _ = judged([ordered(11)], [hang(), over])
    assert report.unexplained.events == 0
    assert report.hangs[0].ended_ns == lab_ns(12)


def test_an_order_is_told_in_words():
    """At once, or when a step is done, or as advice."""
    assert list(in_words(ordered(11).message)) == ["rank 2 of train goes from node2 to node3: dead"]
    later = ordered(11, order(at_step=9, cause="drain")).message
    assert list(in_words(later)) == ["rank 2 of train goes from node2 to node3 when step 9 is done: drain"]
    assert list(in_words(ordered(11, advice=True).message)) == ["rank 2 of train would go from node2 to node3: dead"]
    assert list(in_words(ordered(11, ANEW).message)) == ["the ranks of train form their group anew: broken"]
    assert list(in_words(ordered(11, ANEW, advice=True).message)) == [
        "the ranks of train would form their group anew: broken"
    ]
    assert list(in_words(command(11).message)) == []


def test_a_group_that_a_later_one_replaced_did_its_first_step_there():
    """Another rank was lost before the group had formed; rank 2's new process keeps its rank."""
    other = RankChange(rank=1, node="node1", process=11, to_node="node0", to_process=50)
    later = order(generation=2, changes=(other,), cause="absent")
    workers = [
        told(12, "node3", SPARE, 2, formed_ns=11.6),
        told(14.5, "node3", SPARE, 2, generation=2, left_ns=14, formed_ns=14.2, copied_ns=14.3, first_step_ns=14.4),
    ]
    report, _ = judged([ordered(11), ordered(14, later)], [hang()], workers=workers)

    first, _ = report.replacements
    assert (first.rank, first.decided_ns, first.first_step_ns) == (2, lab_ns(11), lab_ns(14.4))

    given_away = RankChange(rank=2, node="node3", process=SPARE, to_node="node0", to_process=50)
    report, _ = judged(
        [ordered(11), ordered(14, order(generation=2, changes=(given_away,)))], [hang()], workers=workers
    )
    assert report.replacements[0].first_step_ns is None
