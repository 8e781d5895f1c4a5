"""The bench of slow and hung ranks: what it draws, and what it makes of a report."""

from __future__ import annotations

import numpy as np
import pytest

from bench.record_cost import Row, blocks, is_recorded, summed
from bench.scenario_text import scenario_text
from bench.stragglers.draw import ALIKE, CASES, HUNG, SLOW, Lab, Trial, draw
from bench.stragglers.rows import Found, FoundFault, FoundMachine, goals, rows_of
from foliot_lab.report.job_report import JobReport, JobSecond
from foliot_lab.report.rank_report import HangReport, StragglerReport
from foliot_lab.scenario.reading import parse_scenario

S = 1_000_000_000
ZERO_NS = 1_700_000_000 * S


@pytest.mark.parametrize("seed", range(20))
def test_a_lab_that_is_drawn_can_be_run_and_is_drawn_again(seed):
    """The scenario's text means the same; half of the trials have a slow rank, and trials do not overlap."""
    lab = draw(seed, [], 6)
    assert parse_scenario(scenario_text(lab.scenario)) == lab.scenario
    assert draw(seed, [], 6) == lab
    assert sum(trial.case in SLOW for trial in lab.trials) == 3
    assert {trial.case for trial in lab.trials} <= {*SLOW, *ALIKE}
    ends = [trial.at_s + trial.for_s for trial in lab.trials]
    assert all(end + 5 < later.at_s for end, later in zip(ends, lab.trials[1:], strict=False))


def test_a_mismatch_comes_last_and_once():
    """The job does not survive it. A rank that paused once does not pause again in the same lab."""
    for seed in range(20):
        lab = draw(seed, HUNG, 6)
        found = [trial.case for trial in lab.trials]
        assert "mismatch" not in found[:-1]
        paused = [trial.rank for trial in lab.trials if trial.case == "hang"]
        assert len(paused) > 4 or len({*paused}) == len(paused)
    assert {*CASES} == {*SLOW, *ALIKE, *HUNG}


def job(step_ms=lambda at_s: 100.0):
    """A job's report, by the length of its steps in each second."""
    seconds = [
        JobSecond(at_s=float(at_s), mbps=0.0, share=None, slowest_share=None, step_ms=step_ms(at_s))
        for at_s in range(60)
    ]
    return JobReport(
        name="pretrain", kind="train", hosts=["node0", "node1"], priority=0, began_ns=ZERO_NS, solo_mbps=None,
        solo_step_ms=None, steps=500, step_ms=100.0, mbps=None, share=None, slowest_share=None, flows=[],
        seconds=seconds,
    )  # fmt: skip


def slow(at_s, rank, cause="compute"):
    """What was said of a slow rank."""
    return StragglerReport(
        fault="f1", job="pretrain", rank=rank, node=f"node{rank}", cause=cause, share=0.3, since_ns=ZERO_NS,
        detected_ns=ZERO_NS + round(at_s * S), ended_ns=None, confidence=1.0, trace_id="",
    )  # fmt: skip


def hung(at_s, rank, why="absent"):
    """What was said of a rank that hangs."""
    return HangReport(
        fault="f1", job="pretrain", rank=rank, node=f"node{rank}", why=why, collective="all_reduce", seq=1,
        detected_ns=ZERO_NS + round(at_s * S), ended_ns=None, trace_id="",
    )  # fmt: skip


def rows(*said, case="compute", rank=2, **more):
    """The rows of a lab with one trial, from second 10 to 22, of which this was said."""
    trial = Trial(case=case, at_s=10.0, for_s=12.0, rank=rank, fault=None if case == "clean" else "f1")
    found = Found(
        faults=[FoundFault(id="f1", injected_ns=ZERO_NS + 10 * S)], jobs=[job(**more)],
        hangs=[each for each in said if isinstance(each, HangReport)],
        stragglers=[each for each in said if isinstance(each, StragglerReport)], machine=FoundMachine(idle_cpu=0.5),
    )  # fmt: skip
    return rows_of(Lab(scenario=draw(0, [], 2).scenario, trials=(trial,)), 7, found)


def steps(at_s):
    """Steps that take half as long again from second 10 to 22."""
    return 150.0 if 10 <= at_s < 22 else 100.0


def test_a_slow_rank_that_is_named_counts_as_found():
    """With the time, the cause, and by how much the steps were longer."""
    (row,) = rows(slow(12.5, 2), step_ms=steps)
    assert (row.detected_s, row.named_right, row.cause_right, row.false_alarms) == (2.5, True, True, 0)
    assert row.slowdown == 1.5
    assert all(goal.met for goal in goals([row]))


@pytest.mark.parametrize(
    ("said", "case", "rank", "expected"),
    [
        ((), "compute", 2, (False, False, 0)),
        ((slow(12, 1),), "compute", 2, (False, False, 1)),
        ((slow(12, 2, "data"),), "compute", 2, (True, False, 0)),
        ((slow(12, 2), slow(13, 1)), "compute", 2, (True, True, 1)),
        ((slow(30, 2),), "compute", 2, (False, False, 0)),
        ((), "clean", None, (True, False, 0)),
        ((slow(12, 1),), "clean", None, (True, False, 1)),
        ((hung(14, 2),), "hang", 2, (True, True, 0)),
        ((hung(14, 2, "behind"),), "hang", 2, (True, False, 0)),
        ((hung(14, 2, "stopped"),), "stop", 2, (True, True, 0)),
        ((hung(14, 1),), "mismatch", 2, (False, False, 1)),
    ],
)
def test_what_is_wrong_or_missing_is_counted(said, case, rank, expected):
    """A goal that is not met says so."""
    (row,) = rows(*said, case=case, rank=rank, step_ms=steps)
    assert (row.named_right, row.cause_right, row.false_alarms) == expected
    named, cause, alarms = expected
    is_right = named and not alarms and (cause or rank is None or case in HUNG)
    assert all(goal.met for goal in goals([row])) is is_right


def test_a_hang_is_late_by_the_steps_of_before():
    """Five seconds and three steps of 100 ms are allowed."""
    (quick,) = rows(hung(15.2, 2), case="hang")
    (late,) = rows(hung(15.4, 2), case="hang")
    assert (quick.steps_waited, late.steps_waited) == (2.0, 4.0)
    assert [goal.met for goal in goals([quick])] == [True, True, True]
    assert [goal.met for goal in goals([late])] == [True, False, True]


def test_what_costs_next_to_nothing_is_no_slow_rank():
    """A fifth of a step is the least that is asked for."""
    (row,) = rows()
    assert goals([row]) == []


def test_the_price_of_the_record_is_a_median_with_its_interval():
    """Of twelve runs the third and the tenth: no fewer lie on one side in 96 of 100 such series."""
    rows = [
        Row(run=run, plain_ms=10.0, recorded_ms=10.0 + run, ratio=1.0 + run / 10, more_us=run * 1e3, blocks=3,
            told=2_800, idle_cpu=0.1)
        for run in range(12)
    ]  # fmt: skip
    found = summed(rows, 400)
    assert (found.ratio, found.low, found.high) == (pytest.approx(1.55), 1.2, 1.9)
    assert (found.more_us, found.more_low_us, found.more_high_us) == (5_500.0, 2_000.0, 9_000.0)
    assert found.collectives == 7.0


def test_a_block_with_the_record_is_held_against_the_one_beside_it():
    """Steps with the record take 3 ms longer, and a change of it takes long, which is left out."""
    block = 20
    steps_ms = np.array([10.0 + 3.0 * is_recorded(step, block) for step in range(7 * block)])
    steps_ms[block::block] += 500.0
    assert blocks(steps_ms, block).tolist() == [[10.0, 13.0], [10.0, 13.0]]
