"""A training job's record and what is said of it, from jobs that never were."""

from __future__ import annotations

import json
import sys
from collections import Counter

import numpy as np
import pytest
from made_runs import judge, lab_ns, report, scenario

from foliot.cli import main
from foliot_lab.report.conclusion import conclude, lines
from foliot_lab.scenario.spec import TrainSpec
from foliot_lab.workload.train.ranks import Ended, missing
from foliot_lab.workload.train.record import STEP, JobRecord, read
from foliot_lab.workload.train.toy_language import KINDS, VOCABULARY, Speaker

CLOSED = "RuntimeError: Connection closed by peer [10.200.0.4]:41000"


def steps(until_s, *, long_at=None, long_s=0.0, every_s=0.5):
    """Steps of half a second from second 0 on, but for a long one from `long_at`; the last one ends at `until_s`."""
    rows, at_s = [], 0.0
    while at_s < until_s:
        took_s = long_s if at_s == long_at else every_s
        rows.append((len(rows), lab_ns(at_s), lab_ns(at_s + took_s), 300_000_000, 2.0 - 0.01 * len(rows)))
        at_s += took_s
    return np.array(rows, dtype=STEP)


def job(rows=None, *, ended=(), spec=None):
    """A job of two ranks, read at second 60."""
    rows = rows if rows is not None else steps(60.0)
    return JobRecord(
        spec=spec or TrainSpec(), folder="run/lab/train", steps={"node0": rows, "node3": rows}, ended=ended,
        zero_ns=lab_ns(0),
        at_ns=lab_ns(60),
    )  # fmt: skip


def died(node, at_s, status=1, reason=CLOSED):
    """A rank that ended."""
    return Ended(node=node, at_ns=lab_ns(at_s), status=status, reason=reason)


def test_a_fault_has_the_longest_step_that_it_can_have_lengthened():
    """One that was under way at the injection counts whole; what is compared with it is the five seconds before."""
    made = report(scenario(), job=job(steps(60.0, long_at=9.5, long_s=3.25)))
    seen = made.faults[0].train
    assert (seen.longest.ms, seen.longest.step, seen.longest.done, seen.before_ms) == (3250.0, 19, True, 500.0)
    assert (seen.stuck, seen.deaths) == (False, [])
    assert made.train.longest == seen.longest
    assert made.train.longest_at_s == 9.5


def test_a_step_long_before_or_after_is_not_the_faults():
    """The first step of all, in which PyTorch sets itself up, is nobody's."""
    for long_at in (0.0, 5.0):
        made = report(scenario(duration_s=90), job=job(steps(60.0, long_at=long_at, long_s=4.0)))
        assert made.faults[0].train.longest.ms == 500.0
        assert made.train.longest.ms == (500.0 if long_at == 0.0 else 4000.0)


def test_the_job_went_on_is_right_and_says_how_long_its_steps_took():
    """With the median of before beside it."""
    of_fault, of_job = judge_job(job(steps(60.0, long_at=9.5, long_s=3.25)))
    assert of_fault.right
    assert "no rank died, no step took longer than 3250 ms (before, in the median 500 ms)" in of_fault.sentence
    assert (of_job.right, of_job.sentence) == (True, "No rank of the job died.")


def judge_job(record, **keys):
    """The texts about the fault and about the job."""
    run = scenario(**keys)
    _, conclusion = conclude(report(run, events=(), job=record), run, {})
    return conclusion.outcomes[0], conclusion.outcomes[1]


@pytest.mark.parametrize(("until_s", "right"), [(55.0, True), (48.0, False), (10.0, False)])
def test_a_job_that_hangs_at_the_end_is_wrong(until_s, right):
    """A step that is not over tells of no trouble until it is both ten seconds old and far longer than any other."""
    made = report(scenario(), job=job(steps(until_s)))
    assert made.faults[0].train.stuck is not right
    outcome, _ = judge_job(job(steps(until_s)))
    assert ("was not over after" in outcome.sentence) is not right


def test_a_dead_rank_is_wrong_and_tells_of_what():
    """The rank that died first is named, with its last line."""
    record = job(steps(20.0), ended=(died("node3", 20.1), died("node0", 20.2)))
    outcome, of_job = judge_job(record)
    assert (outcome.right, of_job.right) == (False, False)
    assert f"the rank of node3 died, and 1 more after it: {CLOSED}" in outcome.sentence
    assert of_job.sentence.startswith("The job ended before its time: the rank of node3 died")


@pytest.mark.parametrize(("kind", "where", "right"), [("kill", "node3", True), ("kill", "node3/probe", False)])
def test_a_job_rightly_ends_with_a_host_that_is_killed(kind, where, right):
    """And with nothing else: a killed probe is no business of its rank's."""
    record = job(steps(10.0), ended=(died("node3", 10.1, -9, "killed by SIGKILL"), died("node0", 10.2)))
    outcome, of_job = judge_job(record, kind=kind, where=where)
    assert "the rank of node3 died, and 1 more after it: killed by SIGKILL" in outcome.sentence
    assert (outcome.right, of_job.right) == (right, right)


def test_a_job_that_has_done_its_steps_is_no_dead_job():
    """It ended with status 0; nobody waits for its next step."""
    record = job(steps(20.0), ended=(died("node0", 20.1, 0), died("node3", 20.1, 0)), spec=TrainSpec(steps=40))
    outcome, of_job = judge_job(record)
    assert (outcome.right, of_job.right) == (True, True)
    made = report(scenario(), job=record)
    assert (made.train.steps, made.train.asked, made.train.deaths) == (40, 40, [])
    assert made.train.longest.ms == 500.0


def test_the_terminal_tells_the_jobs_steps_and_losses():
    """In a line under the outcomes; without a job there is none."""
    run = scenario()
    made, conclusion = conclude(report(run, job=job(steps(60.0, long_at=9.5, long_s=3.25))), run, {})
    (line,) = [line for line in lines(made, conclusion) if line.startswith("job:")]
    assert line == (
        "job: 115 steps of 2 ranks; 500 ms each in the median, 300 ms of it all-reduce; the longest 3250 ms (step 19 "
        "of node0, at"
        " 9.5 s); loss from 2.000 to 0.860"
    )
    made, conclusion = conclude(report(run), run, {})
    assert not any(line.startswith("job:") for line in lines(made, conclusion))
    assert "rank" not in judge(run)[0].sentence


def test_a_record_ends_where_its_rank_was_killed(tmp_path):
    """In the middle of a line too; a loss is exact to the bit, times become lab time."""
    file = tmp_path / "node0.jsonl"
    line = {"step": 0, "began_ns": 5, "ended_ns": 8, "comm_ns": 2, "loss": 2.503749370574951}
    file.write_text(f"{json.dumps(line)}\n{json.dumps(line)[:20]}")
    (row,) = read(file, 100)
    assert row.tolist() == (0, 105, 108, 2, 2.503749370574951)
    assert len(read(tmp_path / "none.jsonl", 0)) == 0


def test_the_language_is_brackets_that_fit():
    """The same ones for the same seed; what closes is what was opened last; most kinds follow from the one around."""
    said = Speaker("7/0").sentence(20_000)
    assert said == Speaker("7/0").sentence(20_000)
    assert said != Speaker("7/1").sentence(20_000)
    assert set(said) == set(range(VOCABULARY))
    usual: Counter[bool] = Counter()
    stack = []
    for token in said:
        if token >= KINDS:
            assert stack.pop() == token - KINDS
            continue
        if stack:
            usual[token == (stack[-1] + 1) % KINDS] += 1
        stack.append(token)
    assert 0.9 < usual[True] / usual.total() < 0.95


def test_without_pytorch_a_job_is_refused_with_what_to_do(tmp_path, monkeypatch, capsys):
    """Before anything is built, with the status of what this machine cannot do."""
    monkeypatch.setitem(sys.modules, "torch", None)
    file = tmp_path / "train.toml"
    file.write_text('[workload]\nkind = "train"\n')
    assert main(["lab", "run", str(file)]) == 77
    assert capsys.readouterr().err == f"{missing()}\n"
    assert "`make train`" in missing()
