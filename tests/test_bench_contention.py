"""The bench of contention: what it draws, what it makes of a lab's reports, and what its goals ask."""

import json
import sys

import msgspec
import pytest

from bench import lab_command, place
from bench.contention import __main__ as command
from bench.contention import runs
from bench.contention.draw import (
    CASES,
    CONTENTION,
    LOOKALIKES,
    NOTHING,
    OF_HOSTS,
    POLICIES,
    SIZES,
    case_of,
    draw,
    sizes_of,
    under,
)
from bench.contention.goals import by_policy, by_verdict, goals, is_cured, left_out, percentile
from bench.contention.rows import Found, Row, row_of
from bench.scenario_text import scenario_text
from foliot_lab.report.contended import Contended
from foliot_lab.report.contention_report import ContentionReport, MoveReport
from foliot_lab.report.job_report import JobFlowReport, JobReport, JobSecond
from foliot_lab.scenario.job_traffic import hosts_of, pairs_of
from foliot_lab.scenario.reading import parse_scenario
from foliot_lab.scenario.topology import plan
from foliot_lab.services.job_placement import PlacementError, _Search, job_flows

SEEDS = range(25)


def drawn(case, **more):
    """Trials of a case."""
    return [draw(case, seed, **more) for seed in SEEDS]


def flows(trial, placed=None):
    """The flows of a trial's jobs, as job, sender and receiver; of those jobs that are so placed, if given."""
    fabric = trial.scenario.fabric
    return [
        (job.name, *ends)
        for job in trial.scenario.jobs
        if placed in {None, job.placed}
        for ends in pairs_of(job.kind, hosts_of(job, fabric))
    ]  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_every_scenario_that_is_drawn_passes_the_labs_own_check(case):
    """Under each policy; and is read from its file as it was drawn."""
    for number, trial in enumerate(drawn(case)):
        scenario = under(trial, POLICIES[number % len(POLICIES)]).scenario
        assert parse_scenario(scenario_text(scenario)) == scenario


@pytest.mark.parametrize("case", CASES)
def test_a_trial_follows_from_its_case_and_seed(case):
    """The same twice, and another for another seed; another fabric has another hash and nothing else."""
    assert drawn(case) == drawn(case)
    assert len({scenario_text(trial.scenario) for trial in drawn(case)}) == len(SEEDS)
    first, other = draw(case, 3), draw(case, 3, fabric=1)
    assert first.scenario.clock != other.scenario.clock
    assert (first.scenario.jobs, first.scenario.faults) == (other.scenario.jobs, other.scenario.faults)


def test_of_a_hundred_trials_forty_are_collisions():
    """And each lookalike has its turn."""
    turns = [case_of(seed) for seed in range(100)]
    assert turns.count("collision") == 40
    assert {case: turns.count(case) in {8, 9} for case in LOOKALIKES} == dict.fromkeys(LOOKALIKES, True)
    assert [case_of(seed, ["full", "jobs"]) for seed in (4, 5)] == ["full", "jobs"]


@pytest.mark.parametrize("case", CASES)
def test_a_fabric_is_as_large_as_two_processors_carry(case):
    """One rail, of four hosts or of eight, as asked for; another way exists, unless there are to be too few."""
    for trial in drawn(case):
        fabric = trial.scenario.fabric
        assert (fabric.rails, SIZES[fabric.hosts]) == (1, fabric.link_mbps)
        assert fabric.spines > 1 or case == "full"
        assert trial.scenario.services == {"probe.sweep_hz": 1.0}
    assert {trial.scenario.fabric.hosts for trial in drawn(case)} == {*sizes_of(case)}
    for size in sizes_of(case):
        assert {trial.scenario.fabric.hosts for trial in drawn(case, sizes=[size])} == {size}
    with pytest.raises(ValueError, match=r"needs .* hosts"):
        draw(case, 1, [16])
    assert not draw(case, 1, silent=True).scenario.fabric.icmp


@pytest.mark.parametrize("case", ["collision", "link-lost", "priority"])
def test_flows_that_collide_are_of_two_or_three_jobs_with_nics_of_their_own(case):
    """So that each is clean while it runs alone, and can be cured: no NIC has more than a flow each way."""
    counts = set()
    for trial in drawn(case):
        sent, got = [source for _, source, _ in flows(trial)], [to for _, _, to in flows(trial)]
        assert max(map(sent.count, sent)) == max(map(got.count, got)) == 1
        assert {job.placed for job in trial.scenario.jobs} == {"collide"}
        fabric = plan(trial.scenario.fabric, 7)
        ways = [
            (job, fabric.leaf(source, "rail0"), fabric.leaf(to, "rail0"))
            for job, source, to in flows(trial)
            if fabric.leaf(source, "rail0") != fabric.leaf(to, "rail0")
        ]
        # One way over the fabric for each job, and for a ring one back.
        shared = [max(len({job for job, *way in ways if way[end] == leaf}) for _, *leaves in ways for leaf in leaves)
                  for end in (0, 1)]  # fmt: skip
        assert max(shared) == len(trial.scenario.jobs)
        assert len({(job, leaf) for job, leaf, _ in ways}) == len(ways)
        assert trial.shared.most == len(trial.scenario.jobs)
        counts.add(len(trial.scenario.jobs))
    assert counts == ({3} if case == "priority" else {2, 3})


def test_kinds_of_jobs_that_collide_are_all_there_are():
    """And the two links that a pair crosses can be told apart in some."""
    jobs = [job for trial in drawn("collision") for job in trial.scenario.jobs]
    assert {job.kind for job in jobs} == {"pairs", "ring", "all-to-all"}
    assert {len(job.hosts) for job in jobs} == {2, 4}
    assert {trial.scenario.fabric.leaves for trial in drawn("collision")} == {2, 4}


def test_what_is_expected_begins_with_a_job_or_fault_that_is_there():
    """The last to come; where nothing is expected, nothing begins it."""
    for case in CASES:
        for trial in drawn(case):
            begins = {job.name: job.at_s for job in trial.scenario.jobs} | {
                fault.id: fault.at_s for fault in trial.scenario.faults
            }
            assert bool(trial.origin) == (trial.expected not in {NOTHING, ""})
            if trial.origin and case != "slow-receiver":
                assert begins[trial.origin] == max(begins.values())
            assert trial.scenario.duration_s >= max(begins.values()) + 5


def test_an_own_nic_and_an_incast_have_two_flows_at_the_nic():
    """And fabric links that do not matter."""
    for trial in drawn("own-nic"):
        assert len({source for _, source, _ in flows(trial, "apart")}) == 1 < len(flows(trial))
    kinds = set()
    for trial in drawn("incast"):
        assert len({to for _, _, to in flows(trial, "apart")}) == 1 < len(flows(trial))
        kinds |= {job.kind for job in trial.scenario.jobs}
    assert kinds == {"pairs", "incast"}


def test_too_few_links_are_fewer_than_flows():
    """Of one leaf; and no two jobs share a NIC."""
    for trial in drawn("full"):
        assert len(trial.scenario.jobs) > trial.scenario.fabric.spines
        ends = [end for _, *ends in flows(trial) for end in ends]
        assert len({*ends}) == len(ends)


def test_jobs_that_are_held_against_policies_have_nics_and_steps_of_their_own():
    """So that fabric links alone decide: each host sends one flow, and gets one, over the fabric."""
    for each in drawn("jobs"):
        assert sorted(job.kind for job in each.scenario.jobs) == ["all-to-all", "all-to-all", "ring", "ring"]
        fabric = plan(each.scenario.fabric, 7)
        assert sorted(source for _, source, _ in flows(each)) == sorted(fabric.hosts)
        assert all(fabric.leaf(source, "rail0") != fabric.leaf(to, "rail0") for _, source, to in flows(each))


def test_a_rate_is_reduced_where_the_flow_is():
    """At either end, or on every link that it may take."""
    places = set()
    for trial in drawn("reduced-rate"):
        fabric = plan(trial.scenario.fabric, 7)
        ((_, source, to),) = flows(trial)
        uplinks = {link.name for link in fabric.trunks if link.near.owner == fabric.leaf(source, "rail0")}
        found = {fault.where for fault in trial.scenario.faults}
        places.add("links" if found == uplinks else "source" if found == {f"{source}.rail0"} else "receiver")
        assert found in (uplinks, {f"{source}.rail0"}, {f"{to}.rail0"})
    assert places == {"links", "source", "receiver"}


def test_policies_differ_in_who_gives_flows_their_ways():
    """The same flows at the same times; what is planned is not held against a verdict."""
    trial = draw("jobs", 1)
    by = {policy: under(trial, policy).scenario for policy in POLICIES}
    assert {policy: each.services["remediator.improve"] for policy, each in by.items()} == {
        "foliot": "act", "hash": "off", "rehash": "off", "best-of-two": "off", "planned": "off", "spray": "off",
    }  # fmt: skip
    assert {job.placed for job in by["planned"].jobs} == {"apart"}
    assert {policy for policy, each in by.items() if each.jobs == trial.scenario.jobs} == {*POLICIES} - {"planned"}
    assert [policy for policy, each in by.items() if each.fabric.spray] == ["spray"]
    assert [policy for policy, each in by.items() if "extensions.modules" in each.services] == [*OF_HOSTS]
    assert under(trial, "foliot", "advise").scenario.services["remediator.improve"] == "advise"
    collision = draw("collision", 1)
    assert [under(collision, policy).expected for policy in POLICIES] == [CONTENTION, CONTENTION, "", "", "", ""]
    assert {job.placed for job in under(collision, "rehash").scenario.jobs} == {"collide"}


S = 1_000_000_000
ZERO = 1_700_000_000 * S
"""Lab time of second 0."""
LINK = "rail0.leaf0-spine1"


def at(second):
    """Lab time of a second of a scenario."""
    return ZERO + round(second * S)


def job(name, began_s, **fields):
    """What the lab says of a job of one flow, which had less for ten seconds, and then ten as it should."""
    seconds = [
        JobSecond(
            at_s=second, mbps=80.0, share=0.9, slowest_share=0.5 if second < began_s + 10 else 0.99, step_ms=100.0
        )
        for second in range(int(began_s), int(began_s) + 20)
    ]
    values = {
        "name": name, "kind": "pairs", "hosts": ["node0", "node2"], "priority": 0, "began_ns": at(began_s),
        "solo_mbps": 90.0, "solo_step_ms": 100.0, "steps": 50, "step_ms": 110.0, "mbps": 80.0, "share": 0.91,
        "slowest_share": 0.9, "seconds": seconds,
        "flows": [JobFlowReport(id="node0>node2/rail0", solo_mbps=90.0, mbps=81.0, share=0.9, moves=0)],
    }  # fmt: skip
    return JobReport(**(values | fields))


def said(detected_s, **fields):
    """An event about contention, which is right and was cured two seconds after second 6."""
    values = {
        "event": f"e{detected_s}", "verdict": "fabric-contention", "place": LINK, "links": [LINK],
        "flows": ["node0>node2/rail0", "node1>node3/rail0"], "jobs": ["a", "b"], "since_ns": at(detected_s - 0.75),
        "detected_ns": at(detected_s), "ended_ns": None, "right": True, "moves": 1, "cured_ns": at(8),
        "reverted": False, "trace_id": None,
    }  # fmt: skip
    return ContentionReport(**(values | fields))


def move(at_s, event="e7.2", *, kept=True):
    """A flow that was moved for an event."""
    return MoveReport(at_ns=at(at_s), flow="node0>node2/rail0", before="p#0", to="p#1", event=event, kept=kept)


def shared(since_s, flows=("node0>node2/rail0", "node1>node3/rail0"), link=LINK):
    """A time in which flows shared a full link, by the lab's counters."""
    return Contended(link=link, since_ns=at(since_s), until_ns=at(since_s + 2), flows=[*flows], jobs=["a", "b"])


def found(**fields):
    """What is found of a collision at second 6, which is named and cured; as read from a lab's report."""
    values = {
        "jobs": [job("a", 3.0), job("b", 6.0)], "contended": [shared(6.2)], "contention": [said(7.2)],
        "moves": [move(7.3)], "faults": [{"id": "f1", "injected_ns": at(6), "kind": "rate"}],
        "unexplained": {"events": 0, "commands": 0, "least_idle_cpu": None},
        "machine": {"idle_cpu": 0.55555, "speed": 1.0},
        "verdict": {"right": True, "outcomes": [{"fault": "", "right": True, "sentence": "well", "held": []}]},
    } | fields  # fmt: skip
    return msgspec.json.decode(msgspec.json.encode(values), type=Found)


def trial(case="collision", **fields):
    """A trial in which what a job begins begins with job b."""
    drawn_one = draw(case, 3)
    origin = {"origin": "b"} if drawn_one.origin not in {"", "f1"} else {}
    return msgspec.structs.replace(drawn_one, **(origin | fields))


def test_a_collision_that_is_named_and_cured_has_its_times():
    """From the beginning of the last of its jobs; with shares, steps and moves as the lab has them."""
    row = row_of(trial(), "foliot", found())
    assert (row.workload, row.policy, row.seed, row.hosts) == (
        "collision", "foliot", 3, trial().scenario.fabric.hosts,
    )  # fmt: skip
    assert (row.expected, row.verdict, row.named_link_right, row.right) == (CONTENTION, CONTENTION, True, True)
    assert (row.detected_s, row.cure_s) == (1.2, 2.0)
    assert (row.share_of_solo, row.slowest_share, row.end_share) == (0.91, 0.9, 0.99)
    assert (row.step_ms, row.step_over_alone) == (110.0, 1.1)
    assert (row.moves, row.moves_after, row.reverted, row.idle_cpu) == (1, 0, 0, 0.556)
    assert (row.collisions, row.flows, row.truth, row.place) == (1, 2, (LINK,), LINK)
    assert (row.left_out, row.lab, row.reasons, row.unexplained) == ("", "right", (), 0)
    assert is_cured(row)


def test_moves_after_the_cure_are_counted_for_as_long_as_the_settings_say():
    """And one that is taken back is two."""
    again = [move(7.3), move(20), move(30, kept=False), move(75)]
    row = row_of(trial(), "foliot", found(moves=again))
    assert (row.moves, row.reverted, row.moves_after) == (5, 1, 3)
    assert row_of(trial(after_s=15.0), "foliot", found(moves=again)).moves_after == 1
    assert not is_cured(row)


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({"contention": []}, {"verdict": NOTHING, "named_link_right": None, "detected_s": None, "cure_s": None}),
        ({"contention": [said(7.2, right=False)]}, {"named_link_right": False, "detected_s": None, "false_events": 1}),
        ({"contention": [said(7.2, verdict="incast")]}, {"verdict": "incast", "named_link_right": None}),
        ({"contention": [said(4), said(7.2, right=False)]}, {"named_link_right": False, "detected_s": None}),
        ({"contention": [said(7.2), said(9, right=False)]}, {"detected_s": 1.2, "false_events": 1, "false_moves": 0}),
        ({"contention": [said(7.2, right=False)]}, {"false_moves": 1, "moves_after": None}),
        ({"unexplained": {"events": 1, "commands": 2}}, {"unexplained": 3, "false_events": 0}),
    ],
)
def test_what_is_not_said_or_is_not_so_is_not_right(fields, told):
    """Nor is a trial in which something else happened that nothing explains."""
    row = row_of(trial(), "foliot", found(**fields))
    assert not row.right
    assert {name: getattr(row, name) for name in told} == told


@pytest.mark.parametrize("policy", OF_HOSTS)
def test_what_hosts_move_is_told_by_the_kernels_and_needs_no_event(policy):
    """Other than what is said."""
    flow = JobFlowReport(id="node0>node2/rail0", solo_mbps=90.0, mbps=81.0, share=0.9, moves=3)
    moved = {"jobs": [job("a", 3.0, flows=[flow, flow]), job("b", 6.0)], "moves": []}
    row = row_of(
        under(trial(), policy), policy, found(**moved, unexplained={"events": 0, "commands": 7, "least_idle_cpu": 0.5})
    )
    assert (row.moves, row.unexplained, row.right) == (6, 0, True)
    events = {"events": 2, "commands": 7, "least_idle_cpu": 0.5}
    row = row_of(under(trial(), policy), policy, found(**moved, unexplained=events))
    assert (row.moves, row.unexplained, row.right) == (6, 2, False)


def test_a_collision_is_cured_when_all_its_links_are():
    """The last of them counts, and one that never is."""
    later = said(7.9, cured_ns=at(10), event="e2")
    assert row_of(trial(), "foliot", found(contention=[said(7.2), later])).cure_s == 4.0
    never = said(7.9, cured_ns=None, event="e2")
    row = row_of(trial(), "foliot", found(contention=[said(7.2), never]))
    assert (row.cure_s, row.moves_after, row.right) == (None, None, True)


@pytest.mark.parametrize("case", ["alone", "apart"])
def test_any_alarm_is_false_where_nothing_is_to_be_said(case):
    """And any move."""
    quiet = found(contention=[], contended=[], moves=[])
    assert row_of(trial(case), "foliot", quiet).right
    loud = row_of(trial(case), "foliot", found(contended=[]))
    assert (loud.right, loud.false_events, loud.false_moves, loud.detected_s) == (False, 1, 1, None)


@pytest.mark.parametrize("case", ["own-nic", "incast", "slow-receiver", "reduced-rate"])
def test_a_lookalike_is_right_by_its_own_name(case):
    """From its job or fault on; what is moved for it is false."""
    is_so = said(7.5, verdict=case, place="node0.rail0")
    row = row_of(trial(case), "foliot", found(contended=[], contention=[is_so], moves=[]))
    assert (row.right, row.verdict, row.detected_s, row.named_link_right, row.place) == (
        True, case, 1.5, None, "node0.rail0",
    )  # fmt: skip
    assert (row.cure_s, row.moves_after, row.false_moves) == (None, None, 0)
    assert row_of(trial(case), "foliot", found(contended=[], contention=[is_so])).false_moves == 1
    assert not row_of(trial(case), "foliot", found(contended=[])).right


def test_what_the_lab_saw_decides_whether_a_trial_is_as_drawn():
    """Before anything was moved; and a machine with something else to do is no trial at all."""
    assert row_of(trial(), "foliot", found(contended=[])).left_out == "not as drawn"
    assert row_of(trial("alone"), "foliot", found()).left_out == "not as drawn"
    assert not row_of(trial("alone"), "foliot", found(contended=[shared(7.4)])).left_out
    strays = {"events": 1, "commands": 0}
    assert not row_of(trial("alone"), "foliot", found(unexplained=strays)).left_out
    many = [shared(6.2, [f"node{number}>node7/rail0" for number in range(3)])]
    full = trial("full")
    assert row_of(full, "foliot", found(contended=many)).left_out == "not as drawn"
    assert not row_of(full, "foliot", found()).left_out
    assert row_of(trial(), "foliot", found(machine={"idle_cpu": 0.19})).left_out == "busy"
    assert not row_of(under(trial(), "planned"), "planned", found(contended=[])).left_out


def test_where_nothing_is_expected_the_labs_verdict_decides():
    """With its reasons."""
    wrong = {"right": False, "outcomes": [{"fault": "f1", "right": False, "sentence": "too late"}]}
    row = row_of(trial("link-lost"), "foliot", found(verdict=wrong))
    assert (row.right, row.lab, row.reasons, row.expected) == (False, "wrong", ("f1 too late",), "")
    assert row_of(trial("link-lost"), "foliot", found()).right


def test_the_job_that_matters_most_is_told_by_itself():
    """At the end, when what is to yield has yielded."""
    jobs = [job("a", 6.0), job("b", 6.0, seconds=[])]
    assert row_of(trial("priority", priority="a"), "foliot", found(jobs=jobs)).priority_share == 0.99
    assert row_of(trial("priority", priority="b"), "foliot", found(jobs=jobs)).priority_share is None


def some(count, **fields):
    """Rows that are as they should be, but for some fields."""
    values = {
        "workload": "collision", "policy": "foliot", "hosts": 4, "icmp": True, "expected": CONTENTION,
        "verdict": CONTENTION, "named_link_right": True, "right": True, "detected_s": 1.2, "cure_s": 2.0,
        "slowest_share": 0.95, "end_share": 0.99, "step_over_alone": 1.05, "moves": 1, "moves_after": 0,
        "collisions": 1, "flows": 2, "clock_seed": 7,
    } | fields  # fmt: skip
    return [Row(seed=seed, **values) for seed in range(count)]


def lookalikes(count=12):
    """Rows of all lookalikes that are as they should be."""
    quiet = {"moves": 0, "cure_s": None, "moves_after": None, "named_link_right": None}
    kinds = ("own-nic", "incast", "slow-receiver", "reduced-rate")
    named = [row for kind in kinds for row in some(count, workload=kind, expected=kind, verdict=kind, **quiet)]
    silent = {"expected": NOTHING, "verdict": NOTHING, "detected_s": None}
    return named + [row for case in ("alone", "full") for row in some(count, workload=case, **silent, **quiet)]


def met(rows):
    """Whether each goal is met, by its words, of those that there are rows for."""
    return {goal.what: goal.met for goal in goals(rows) if goal.met is not None}


def test_goals_are_met_by_rows_that_are_as_they_should_be():
    """Those of which there is no row are not."""
    rows = some(40) + lookalikes()
    assert set(met(rows).values()) == {True}
    assert {goal.number for goal in goals(rows) if goal.met is None} == {3, 4}
    assert {goal.number for goal in goals(rows)} == {1, 2, 3, 4}
    assert met([]) == {}


@pytest.mark.parametrize(
    ("wrong", "missed"),
    [
        ({"right": False}, {"collisions: verdict and link right"}),
        ({"detected_s": None}, {"found: p99, s"}),
        ({"detected_s": 5.5}, {"found: p99, s"}),
        ({"cure_s": 6.0}, {"collisions cured"}),
        ({"cure_s": None, "moves_after": None}, {"collisions cured"}),
        ({"moves": 3}, {"collisions cured"}),
        ({"moves_after": 1}, {"collisions cured"}),
        ({"left_out": "busy"}, {"collisions"}),
        ({"workload": "incast", "expected": "incast", "right": False, "moves": 0}, {"incast: right", "collisions"}),
        ({"workload": "full", "expected": NOTHING, "moves": 2}, {"moves where none can help", "collisions"}),
        ({"workload": "alone", "expected": NOTHING, "moves": 0, "unexplained": 1},
         {"alarms where nothing is to be said", "collisions"}),
    ],
)  # fmt: skip
def test_a_goal_is_missed_by_more_than_one_wrong_row_of_twenty(wrong, missed):
    """And no other goal by that."""
    rows = some(37) + lookalikes() + some(3, **wrong)
    assert {what for what, is_met in met(rows).items() if not is_met} == missed


def test_the_worst_row_is_told():
    """By what it missed."""
    rows = [*some(39), msgspec.structs.replace(some(1, cure_s=None, end_share=0.5, moves=2)[0], seed=77)]
    (cured,) = [goal for goal in goals(rows) if goal.number == 2]
    assert (cured.was, cured.met, cured.n) == (0.975, True, 40)
    assert cured.worst == "collision seed 77: cure_s None, end_share 0.5, moves 2, moves_after 0"
    restless = [*some(9, cure_s=4.9), msgspec.structs.replace(some(1, moves_after=1)[0], seed=78)]
    (cured,) = [goal for goal in goals(restless) if goal.number == 2]
    assert cured.worst.startswith("collision seed 78: cure_s 2.0")


def test_policies_are_held_against_each_other_by_their_trials():
    """A trial that one of them lacks is left out."""
    jobs = {"workload": "jobs", "expected": ""}
    hashed = some(4, policy="hash", slowest_share=0.5, step_over_alone=1.9, **jobs)
    planned = some(9, policy="planned", slowest_share=0.96, step_over_alone=1.04, **jobs)
    by = {goal.what: (goal.n, goal.was, goal.met) for goal in goals(some(9, **jobs) + hashed + planned)}
    assert by["slowest flow, over that of hash"] == (4, 1.9, True)
    assert by["step time, over that of hash"] == (4, 0.553, True)
    assert by["slowest flow, over that of planned"] == (9, 0.99, False)
    assert [by[f"slowest flow, over that of {policy}"] for policy in OF_HOSTS] == [(0, None, None)] * 2
    assert by["step time, over that of planned"] == (9, 1.01, False)
    shares = {(each.workload, each.policy): (each.n, each.slowest_share, each.moves) for each in by_policy(hashed)}
    assert shares == {("jobs", "hash"): (4, 0.5, 1.0)}


def test_the_hard_cases_have_goals_of_their_own():
    """Rows without routers that answer count for no other goal."""
    silent = some(4, icmp=False) + some(1, icmp=False, cure_s=None, named_link_right=False)
    hard = some(2, workload="priority", priority_share=0.985) + some(2, workload="link-lost", expected="")
    assert met(silent + hard) == {
        "silent routers: collisions cured": True,
        "silent routers: wrong links named": False,
        "the job that matters most, of alone: least": True,
        "a link lost meanwhile: all as promised": True,
    }
    worse = some(1, workload="priority", priority_share=0.6) + some(1, workload="link-lost", right=False)
    assert set(met(worse).values()) == {False}


def test_rows_are_summed_up_by_what_is_expected():
    """Missed ones count as endless; what is left out is told by its reason and nowhere else."""
    rows = some(1) + some(1, detected_s=None, right=False, false_events=2) + some(2, left_out="busy")
    (of,) = by_verdict(rows)
    assert (of.policy, of.expected, of.n, of.right, of.missed, of.false_events) == ("foliot", CONTENTION, 2, 1, 1, 2)
    assert (of.detected_p50_s, of.detected_p99_s) == (None, None)
    assert left_out(rows) == {"busy": 2}
    assert (percentile([3.0, 1.0, 2.0], 0.5), percentile([1.0, None], 0.99), percentile([], 0.5)) == (2.0, None, None)


STAND_IN = """
import json, pathlib, sys
scenario = pathlib.Path(sys.argv[1])
assert "[[job]]" in scenario.read_text()
again = scenario.with_suffix(".again")
said = json.loads(pathlib.Path(ANSWERS).read_text())
count = int(again.read_text()) if again.exists() else 0
again.write_text(str(count + 1))
answer = said[min(count, len(said) - 1)]
print(answer.get("said", "so it began"))
if "report" in answer:
    pathlib.Path(sys.argv[sys.argv.index("--report") + 1]).write_text(json.dumps(answer["report"]))
sys.exit(answer.get("status", 0))
"""


@pytest.fixture
def ran(monkeypatch, tmp_path):
    """Runs the bench with these options, where a lab answers so, run by run; returns its status and its file."""

    def run(answers, *options):
        (tmp_path / "answers.json").write_text(json.dumps(answers))
        program = f"ANSWERS = {str(tmp_path / 'answers.json')!r}\n{STAND_IN}"
        monkeypatch.setattr(lab_command, "RUN", (sys.executable, "-c", program))
        file = tmp_path / "contention.json"
        line = ["contention", "--folder", str(tmp_path), "--json", str(file), *options]
        monkeypatch.setattr(sys, "argv", line)
        return command.main(), json.loads(file.read_text()) if file.exists() else None

    monkeypatch.setattr(place.capabilities, "missing", list)
    return run


def report(**fields):
    """A report as a lab writes it."""
    return {"report": msgspec.to_builtins(found(**fields))}


def test_each_trial_has_a_row_and_the_file_says_what_they_come_to(ran, capsys):
    """With its settings; one policy after the other."""
    options = ("--only", "collision", "--first", "3", "--trials", "2", "--policy", "foliot", "hash", "--after-s", "15")
    status, written = ran([report()], *options)
    assert status == 0
    assert [(row["seed"], row["policy"]) for row in written["rows"]] == [
        (3, "foliot"), (3, "hash"), (4, "foliot"), (4, "hash"),
    ]  # fmt: skip
    assert (written["settings"]["after_s"], written["settings"]["improve"]) == (15.0, "act")
    assert {goal["number"] for goal in written["goals"]} == {1, 2, 3, 4}
    assert len(written["by_policy"]) == 2
    told = capsys.readouterr().out
    assert "fabric-contention" in told
    assert "collisions cured" in told


def test_a_busy_run_is_taken_again_and_says_so(ran, capsys):
    """As often as is permitted."""
    busy = report(machine={"idle_cpu": 0.05})
    _, written = ran([busy, report()], "--only", "collision", "--trials", "1")
    assert [(row["tries"], row["left_out"]) for row in written["rows"]] == [(2, "")]
    _, written = ran([busy], "--only", "collision", "--first", "1", "--trials", "1", "--again", "2")
    assert [(row["tries"], row["left_out"]) for row in written["rows"]] == [(3, "busy")]
    assert "1 rows left out: busy" in capsys.readouterr().out


def test_what_the_machine_cannot_carry_says_so(ran):
    """Once; a lab that ended without a report is tried again, and its last word told."""
    status, written = ran([{"status": 77, "said": "well\nIt is too busy."}], "--only", "alone", "--trials", "1")
    (row,) = written["rows"]
    assert status == place.CANNOT
    assert (row["left_out"], row["reasons"], row["tries"], row["lab"]) == (
        "not carried",
        ["It is too busy."],
        1,
        "none",
    )
    status, written = ran([{"status": 1, "said": "not ready"}], "--only", "alone", "--first", "1", "--trials", "1")
    (row,) = written["rows"]
    assert (status, row["left_out"], row["reasons"], row["tries"]) == (0, "no report", ["not ready"], 2)


def test_a_hash_that_parts_the_flows_is_exchanged(ran):
    """For that of another fabric, which is no second try."""
    unplaced = {"status": 2, "said": f"{runs._UNPLACED} of the jobs that are to collide over one link."}
    _, written = ran([unplaced, unplaced, report()], "--only", "collision", "--first", "3", "--trials", "1")
    (row,) = written["rows"]
    assert (row["clock_seed"], row["tries"]) == (draw("collision", 3, fabric=2).scenario.clock.seed, 1)


def test_pieces_are_put_together(ran, tmp_path, monkeypatch):
    """With the goals of all of them."""
    for first in (0, 1):
        ran([report()], "--only", "collision", "--first", str(first), "--trials", "1")
        (tmp_path / "contention.json").rename(tmp_path / f"{first}.json")
    pieces = [str(tmp_path / f"{first}.json") for first in (0, 1)]
    whole = tmp_path / "whole.json"
    monkeypatch.setattr(sys, "argv", ["contention", "--merge", *pieces, "--json", str(whole)])
    assert command.main() == 0
    written = json.loads(whole.read_text())
    assert [row["seed"] for row in written["rows"]] == [0, 1]
    assert written["goals"][0]["n"] == 2
    assert [each["first"] for each in written["settings"]] == [0, 1]


def test_a_case_that_needs_more_hosts_is_refused(monkeypatch, capsys):
    """Before anything runs."""
    monkeypatch.setattr(sys, "argv", ["contention", "--only", "jobs", "--hosts", "4"])
    with pytest.raises(SystemExit) as ended:
        command.main()
    assert ended.value.code == 2
    assert "jobs needs 8 hosts" in capsys.readouterr().err


def test_the_labs_words_about_its_hash_are_as_it_says_them():
    """Otherwise no other fabric would be tried."""
    scenario = draw("collision", 3).scenario
    search = _Search(scenario.jobs, job_flows(scenario), lambda *_: "rail0.leaf0", lambda _: (None,), first=True)
    with pytest.raises(PlacementError, match=runs._UNPLACED):
        search.collide()
