"""The bench of lost ranks: what it draws, and what it makes of reports and records."""

from __future__ import annotations

import itertools

import msgspec
import numpy as np
import pytest

from bench.ranks.account import Import, account, first_difference
from bench.ranks.draw import CASES, HOSTS, RANKS, SPARES, Lab, Trial, cases, draw
from bench.ranks.failures import Outcome, done, schedule
from bench.ranks.failures import Trial as RunTrial
from bench.ranks.rows import Found, FoundFault, FoundMachine, Losses, Row, by_case, goals, row_of, rows_of
from bench.scenario_text import scenario_text
from foliot_lab.report.replacement_report import ReplacementReport
from foliot_lab.scenario.reading import parse_scenario
from foliot_lab.workload.train.merged_steps import LINE

S = 1_000_000_000
SAME = Losses(known=1000, differs=None)


@pytest.mark.parametrize("seed", range(20))
def test_a_lab_that_is_drawn_can_be_run_and_is_drawn_again(seed):
    """The scenario's text means the same; each kind comes as often as another, and no host is used after an XID."""
    lab = draw(seed, [], 10, 7)
    assert parse_scenario(scenario_text(lab.scenario)) == lab.scenario
    assert draw(seed, [], 10, 7) == lab
    drawn = [trial.case for trial in lab.trials]
    assert {case: drawn.count(case) for case in CASES} == dict.fromkeys(CASES, 2)
    lost = [fault.where for fault in lab.scenario.faults if fault.kind == "xid"]
    assert drawn[-2:] == ["xid", "xid"]
    assert len({*lost}) == 2
    first = lab.scenario.faults[0].where.partition("/")[0]
    assert first in {f"node{host}" for host in range(RANKS)}


def test_no_more_xids_are_drawn_than_there_are_spares():
    """Each takes a host away for good."""
    assert cases(0, ["xid"], 10) == ["xid"] * SPARES
    assert cases(0, ["xid", "kill"], 8).count("xid") == SPARES
    assert len({fault.where for fault in draw(3, ["kill"], 12, 7).scenario.faults}) == HOSTS


def given(**more):
    """The report on a rank that went to a spare, at second 12, for a fault at second 10."""
    times = {"decided_ns": 12.0, "left_ns": 12.1, "formed_ns": 12.5, "copied_ns": 12.8, "first_step_ns": 13.0}
    row = {
        "fault": "f1", "job": "pretrain", "rank": 2, "from_": "node2", "to": "node4", "cause": "dead",
        "planned": False, "stall_ms": 2_500.0, "lost_steps": 0, "state_mb": 6.0, "state_from": 0, "refused": None,
        "trace_id": "", **{name: round(at_s * S) for name, at_s in times.items()},
    }  # fmt: skip
    return ReplacementReport(**row | more)


def single(*replacements, case="kill", ranks=(2,), losses=SAME, detected_s=11.5):
    """The rows of a lab with one fault, in which the job did steps 40 to 90."""
    lab = Lab(scenario=draw(0, [], 1, 7).scenario, trials=(Trial(id="f1", case=case, number=None),))
    fault = FoundFault(id="f1", injected_ns=10 * S, detected_ns=round(detected_s * S), ranks=[*ranks])
    machine = FoundMachine(idle_cpu=0.5, stolen_cpu=0.0)
    found = Found(faults=[fault], jobs=[], replacements=[*replacements], machine=machine)
    return rows_of(lab, 7, found, [40, 90], losses)


def test_a_rank_that_went_to_a_spare_is_a_row():
    """With the stall by the job's own record, and the rate at which the state went."""
    (row,) = single(given())
    assert (row.fault, row.tool, row.rep, row.rank, row.planned, row.went_on) == ("kill", "foliot", 7, 2, False, True)
    assert (row.stall_s, row.detect_s, row.command_s, row.copy_s) == (2.5, 1.5, 0.5, 0.3)
    assert (row.copy_mbps, row.lost_steps, row.loss_equal) == (160.0, 0, True)
    assert all(goal.met for goal in goals([row], 200.0))


def test_a_fault_on_a_spare_makes_no_row():
    """It took no rank."""
    assert single(ranks=()) == []


def test_a_fault_without_a_free_spare_makes_no_row():
    """The lab had started no process again by then. If one was free and failed, that counts."""
    assert single(given(to=None, first_step_ns=None, refused="no-spare")) == []
    (row,) = single(given(first_step_ns=None), given(to=None, first_step_ns=None, refused="no-spare"))
    assert (row.went_on, row.said) == (False, "no-spare")


def test_a_rank_that_was_not_replaced_is_a_row_that_meets_no_goal():
    """Its stall has no end, and the reason is told."""
    (row,) = single(given(to=None, first_step_ns=None, refused="not-confirmed"))
    assert (row.went_on, row.said, row.stall_s) == (False, "not-confirmed", None)
    met = {goal.goal: goal.met for goal in goals([row, *single(given())], 200.0)}
    assert not met["the rank goes to a spare"]
    assert not met["unplanned: stall at most 8 s"]
    (none,) = single()
    assert none.said == "no replacement was ordered"


@pytest.mark.parametrize(
    ("losses", "equal"),
    [
        (Losses(known=90, differs=None), True),
        (Losses(known=89, differs=None), None),
        (Losses(known=200, differs=90), True),
        (Losses(known=200, differs=89), False),
        (Losses(known=200, differs=3), False),
        (Losses(known=0, differs=None), None),
    ],
)
def test_losses_are_judged_up_to_the_next_fault(losses, equal):
    """Nothing is said of steps that the run without a loss has not done."""
    (row,) = single(given(), losses=losses)
    assert row.loss_equal is equal
    judged = [goal for goal in goals([row], 200.0) if goal.goal == "losses equal to the bit"]
    assert judged[0].met is (equal is True)


def test_what_was_planned_is_held_to_a_second_and_to_the_links_rate():
    """A step's end costs no detection."""
    (quick,) = single(given(planned=True, stall_ms=900.0, copied_ns=round(12.75 * S)), case="drain")
    (slow,) = single(given(planned=True, stall_ms=1_900.0, copied_ns=round(13.5 * S)), case="drain")
    assert [goal.met for goal in goals([quick], 200.0)[3:]] == [True, True]
    assert [goal.met for goal in goals([slow], 200.0)[3:]] == [False, False]


def test_an_xid_is_held_to_a_second_from_event_to_command():
    """Whatever its ranks' stall is."""
    (quick,) = single(given(), case="xid")
    (late,) = single(given(decided_ns=round(12.6 * S)), case="xid")
    assert goals([quick], 200.0)[-1].met
    assert not goals([quick, late], 200.0)[-1].met
    (made,) = by_case([quick, late])
    assert (made.n, made.command_p50_s, made.command_max_s) == (2, 0.8, 1.1)


def lines(*spans, rank=0):
    """Lines of a rank's process: of each step the number, and the seconds of its beginning and end."""
    rows = [(rank, step, round(began_s * S), round(ended_s * S), 0.5 + step) for step, began_s, ended_s in spans]
    return np.array(rows, LINE)


def steady(first, last, at_s, rank=0):
    """Steps of a second each, from one second on."""
    spans = [(step, at_s + step - first, at_s + step - first + 1) for step in range(first, last)]
    return lines(*spans, rank=rank)


def both(*parts):
    """The same lines of two ranks, on two places."""
    found = {}
    for rank in range(2):
        rows = np.concatenate(parts)
        rows["rank"] = rank
        found[f"node{rank}"] = rows
    return found


def test_a_run_without_a_loss_has_steps_alone():
    """All its time is in steps that count."""
    made = account(both(steady(0, 11, 0.0)), ranks=2, steps=11, batch=8, failures_ns=[], imports={})
    assert (made.steps, made.total_s, made.step_s, made.lost_steps) == (11, 10.0, 1.0, 0)
    assert (made.restart_s, made.import_s, made.longest_s, made.goodput) == (0.0, 0.0, 0.0, 1.0)


def test_lost_work_restart_and_import_are_told_apart():
    """At second 10 the job is killed, goes on at second 16 from step 6, and was there after an import of 4 s."""
    parts = both(steady(0, 10, 0.0), steady(6, 20, 16.0))
    imports = {
        "node0": [Import(ready_ns=0, import_s=9.0), Import(ready_ns=15 * S, import_s=3.0)],
        "node1": [Import(ready_ns=15 * S, import_s=4.0)],
        "node2": [Import(ready_ns=15 * S, import_s=5.0)],  # it stands by
    }
    made = account(parts, ranks=2, steps=20, batch=8, failures_ns=[10 * S + 1], imports=imports)
    assert (made.total_s, made.lost_steps, made.lost_work_s) == (29.0, 4, 4.0)
    assert (made.import_s, made.restart_s, made.longest_s) == (4.0, 2.0, 6.0)
    assert made.goodput == pytest.approx(19 / 29, abs=0.01)
    assert (made.calm_step_s, made.loading_s) == (1.0, 0.0)


def test_what_steps_take_longer_while_a_process_loads_is_told_apart():
    """A process is started again beside ten steps that take twice as long; the wait for the lost rank is not in it."""
    slower = lines(*((step, 2.0 * step - 4, 2.0 * step - 2) for step in range(10, 20)))
    parts = both(steady(0, 10, 0.0), slower, steady(20, 40, 36.0))
    imports = {"node0": [Import(ready_ns=0, import_s=9.0), Import(ready_ns=36 * S, import_s=20.0)]}
    made = account(parts, ranks=2, steps=40, batch=8, failures_ns=[10 * S], imports=imports)
    assert (made.total_s, made.restart_s, made.import_s) == (55.0, 7.0, 0.0)
    assert (made.calm_step_s, made.loading_s) == (1.0, 9.0)


def test_a_step_that_ends_after_the_failure_does_not_hide_it():
    """The others had all that they needed for it."""
    parts = both(steady(0, 10, 0.0), steady(10, 20, 13.0))
    made = account(parts, ranks=2, steps=20, batch=8, failures_ns=[round(9.5 * S)], imports={})
    assert (made.restart_s, made.lost_steps) == (3.0, 0)


def test_what_a_lost_replica_did_not_train_on_is_counted():
    """The other goes on without it for five steps."""
    alone = {"node0": steady(0, 20, 0.0), "node1": np.concatenate([steady(0, 10, 0.0, 1), steady(15, 20, 15.0, 1)])}
    made = account(alone, ranks=2, steps=20, batch=8, failures_ns=[10 * S], imports={})
    assert (made.steps, made.samples_lost) == (20, 5 * 8)
    assert made.goodput == pytest.approx(35 / 40)


def test_who_is_killed_at_the_end_of_a_step_had_its_part_in_it():
    """Its loss is known, and the other did the step to its end."""
    parts = both(steady(0, 20, 0.0))
    parts["node1"]["ended_ns"][7] = 0
    made = account(parts, ranks=2, steps=20, batch=8, failures_ns=[8 * S], imports={})
    assert (made.steps, made.samples_lost, made.goodput) == (20, 0, 1.0)


def test_one_step_is_no_run():
    """There is no time from it to another."""
    assert account(both(steady(0, 1, 0.0)), ranks=2, steps=5, batch=8, failures_ns=[], imports={}) is None


def test_the_first_difference_is_one_of_a_bit():
    """Only steps that both runs have are compared."""
    whole = np.array([2.0, 1.5, 1.25])
    assert first_difference(whole[:2], whole) is None
    assert first_difference(np.array([2.0, np.nextafter(1.5, 2)]), whole) == 1
    assert first_difference(np.array([]), whole) is None


def test_failures_come_as_often_as_published_and_alike_for_each_tool():
    """From three quarters of the mean to five quarters."""
    drawn = [*schedule(3, 10, 20.0)]
    assert drawn == [*schedule(3, 10, 20.0)] == [*itertools.islice(schedule(3, None, 20.0), 10)]
    apart = np.diff([0.0, *(at_s for at_s, _ in drawn)])
    assert len(drawn) == 10
    assert (apart > 14.9).all()
    assert (apart < 25.1).all()
    assert {rank for _, rank in drawn} <= {*range(RANKS)}


def ran(tool, made, *, finished=True, rep=0, failures=1):
    """The row of a run with many failures."""
    trial = RunTrial(
        tool=tool, rep=rep, job_seed=7, steps=20, checkpoint_steps=5, failures=failures, each_s=20.0, within_s=100.0
    )
    outcome = Outcome(
        trial=trial, failures=1, finished=finished, idle_cpu=0.1, stolen_cpu=0.0, account=made, failures_ns=[]
    )
    return row_of(outcome, SAME)


def test_the_time_with_many_failures_is_held_against_torchrun_of_the_same_seed():
    """Runs that did not do all their steps have none."""
    quick = account(both(steady(0, 11, 0.0)), ranks=2, steps=11, batch=8, failures_ns=[], imports={})
    slow = account(both(steady(0, 5, 0.0), steady(2, 11, 16.0)), ranks=2, steps=11, batch=8, failures_ns=[], imports={})
    rows = [ran("foliot", quick), ran("torchrun", slow)]
    (goal,) = goals(rows, 200.0)
    assert (goal.n, goal.met, goal.was) == (1, True, f"{quick.total_s / slow.total_s:.2f}")
    assert not goals([rows[0], ran("torchrun", quick)], 200.0)[0].met
    assert goals([rows[0], ran("torchrun", slow, rep=1)], 200.0) == []
    assert goals([rows[0], ran("torchrun", slow, finished=False)], 200.0) == []
    assert goals([rows[0], ran("torchrun", slow, failures=None)], 200.0) == []
    (lasting,) = goals([ran("foliot", quick, failures=None), ran("torchrun", slow, failures=None)], 200.0)
    assert (lasting.met, lasting.was) == (goal.met, goal.was)
    assert ran("none", None).said


def test_rows_are_read_again_as_they_were_written():
    """Documents can be merged."""
    rows = [*single(given()), ran("torchft", None)]
    assert msgspec.convert(msgspec.to_builtins(rows), list[Row]) == rows


def test_a_process_that_has_ended_no_step_has_done_none(tmp_path):
    """A spare that has just taken a rank knows a loss first."""
    file = tmp_path / "node4.jsonl"
    file.write_text('{"rank": 0, "step": 72, "began_ns": 5, "loss": 0.5}\n')
    assert done({"node4": file, "node5": tmp_path / "node5.jsonl"}) == 0
    file.write_text(file.read_text() + '{"rank": 0, "step": 72, "began_ns": 5, "ended_ns": 9, "loss": 0.5}\n')
    assert done({"node4": file, "node5": tmp_path / "node5.jsonl"}) == 73
