"""The report on jobs and on contended links, of runs that never were."""

import json

import msgspec
import numpy as np
import pytest
from made_runs import MS, QUIET, SECOND, START, evidence, lab_ns

from foliot.node.addressing import describe
from foliot_lab.faults.injection import Injection
from foliot_lab.measure.intervals import Intervals
from foliot_lab.measure.link_load import Lane
from foliot_lab.measure.told_delays import Told
from foliot_lab.report.conclusion import conclude, lines
from foliot_lab.report.contended import contended
from foliot_lab.report.job_report import job_reports
from foliot_lab.report.report import build
from foliot_lab.scenario.reading import parse_scenario
from foliot_lab.scenario.topology import plan
from foliot_lab.services.deployment import node_settings
from foliot_lab.services.job_placement import Carrier, Placement, job_flows
from foliot_lab.workload.flow_loop import FlowPlan
from foliot_lab.workload.flow_record import SLOT_NS, FlowRecord
from foliot_lab.workload.flow_ways import Way, moves, spells
from foliot_lab.workload.flows import plan_jobs
from foliot_lab.workload.jobs import JobsRecord
from foliot_lab.workload.train.record import STEP

SCENARIO = """
[fabric]
hosts = 4
rails = 2
spines = 2
link_mbps = 100
[[job]]
name = "a"
kind = "pairs"
hosts = ["node0", "node1", "node2", "node3"]
rails = ["rail0"]
step_mb = 2
priority = 3
[[job]]
name = "b"
kind = "ring"
hosts = ["node1", "node3"]
rails = ["rail0"]
mbps = 40
{more}
[run]
duration_s = 60
"""
ALONE = {0: (lab_ns(-20), lab_ns(-10)), 1: (lab_ns(-10), lab_ns(0))}
HOME = Way("rail0", 0, "rail0.spine0")
SOLO_STEP_MS, STEP_MS = 200, 400


def run(more=""):
    """A scenario of two jobs, one of which has a flow between the same ends as the other."""
    return parse_scenario(SCENARIO.format(more=more))


def flows(scenario):
    """The plans of its flows, without addresses."""
    named = {"a": [("node0", "node2"), ("node1", "node3")], "b": [("node1", "node3"), ("node3", "node1")]}
    found = []
    for number, job in enumerate(scenario.jobs):
        for source, destination in named.get(job.name, ()):
            twice = (source, destination) == ("node1", "node3")
            found.append(
                FlowPlan(
                    id=f"{job.name + ':' if twice else ''}{source}>{destination}/rail0", source=source,
                    destination=destination, rail="rail0", source_address="", destination_address="", bytes_per_s=0,
                    job=number, over=job.over,
                )
            )  # fmt: skip
    return tuple(found)


def fill(record, flow, since_s, until_s, mbps, *, due=1.0):
    """A flow at a rate while it is due, and due for a share of the time."""
    for slot in range(record.slot(lab_ns(since_s)), record.slot(lab_ns(until_s))):
        record.received(slot, flow, round(mbps * due * SLOT_NS / 8e3))
        record.was_due(slot, flow, round(SLOT_NS * due))


def jobs(scenario, *, alone=ALONE, **fields):
    """A record: alone every flow has 80 Mb/s, then the first flow of job a has 80 and the second 40, b's 40 and 80."""
    record = FlowRecord(bytearray(FlowRecord.size(4, 5000, 2)), 4, 5000, 2)
    record.begin(lab_ns(-20))
    for flow, job in enumerate((0, 0, 1, 1)):
        for interval in [alone[job]] if job in (alone or {}) else []:
            fill(record, flow, *((at - START) / SECOND for at in interval), 80)
    fill(record, 0, 0, 60, 80, due=0.5)
    for flow, mbps in ((1, 40), (2, 40), (3, 80)):
        fill(record, flow, 0, 60, mbps)
    for interval, step_ms in ((ALONE[0], SOLO_STEP_MS), ((START, lab_ns(60)), STEP_MS)):
        for began_ns in range(interval[0], interval[1], step_ms * MS):
            record.step(0, began_ns, began_ns + step_ms * MS)
    record.last_ns[:] = lab_ns(60)
    record.written(lab_ns(60))
    values = {
        "specs": scenario.jobs, "hosts": (("node0", "node1", "node2", "node3"), ("node1", "node3")),
        "flows": flows(scenario), "record": record, "alone": alone or {},
        "ran": {0: (START, lab_ns(60)), 1: (START, lab_ns(60))}, "ways": [[(START, HOME)]] * 4, "full": {},
        "fabric": plan(scenario.fabric, 7), "zero_ns": START,
    }  # fmt: skip
    return JobsRecord(**(values | fields))


def test_a_job_is_told_beside_its_time_alone():
    """Steps and rates of both; a flow that waits for the slowest is not slower for that."""
    a, b = job_reports(jobs(run()))
    assert (a.name, a.kind, a.priority, a.hosts) == ("a", "pairs", 3, ["node0", "node1", "node2", "node3"])
    assert (a.solo_step_ms, a.step_ms, a.steps) == (SOLO_STEP_MS, STEP_MS, 150)
    assert (a.solo_mbps, a.mbps, a.share) == (160.0, 80.0, 0.5)
    assert [(flow.solo_mbps, flow.mbps, flow.share) for flow in a.flows] == [(80.0, 80.0, 1.0), (80.0, 40.0, 0.5)]
    assert a.slowest_share == 0.5
    assert (b.steps, b.step_ms, b.solo_step_ms) == (None, None, None)
    assert [flow.id for flow in b.flows] == ["b:node1>node3/rail0", "node3>node1/rail0"]


def test_every_second_of_a_job_is_told():
    """From the first whole one on, with the steps that ended in it."""
    late = jobs(run(), ran={0: (lab_ns(5.5), lab_ns(9.2)), 1: (START, lab_ns(60))})
    told = job_reports(late)[0]
    seconds = told.seconds
    assert told.began_ns == lab_ns(5.5)
    assert [second.at_s for second in seconds] == [6.0, 7.0, 8.0]
    assert {(second.mbps, second.share, second.slowest_share) for second in seconds} == {(80.0, 0.5, 0.5)}
    assert {second.step_ms for second in seconds} == {STEP_MS}
    assert [second.step_ms for second in job_reports(late)[1].seconds] == [None] * 60


def test_what_did_not_happen_is_null():
    """A job that did not run, and one that was never alone."""
    (a, b) = job_reports(jobs(run(), alone=None, ran={1: (START, lab_ns(60))}))
    assert (a.mbps, a.share, a.step_ms, a.steps, a.slowest_share, a.seconds) == (None, None, None, 0, None, [])
    assert (a.began_ns, b.began_ns) == (None, START)
    assert {flow.mbps for flow in a.flows} == {None}
    assert (b.solo_mbps, b.share, b.slowest_share) == (None, None, None)
    assert b.mbps == 120.0


def test_a_training_job_has_steps_and_no_flows():
    """Its share is that of its steps; all ranks' last end makes a step."""
    text = SCENARIO.split("[[job]]", maxsplit=1)[0] + '[[job]]\nname = "t"\nkind = "train"\n'
    steps = np.zeros(3, STEP)
    steps["step"] = range(3)
    steps["began_ns"], steps["ended_ns"] = (lab_ns(-15), START, lab_ns(1)), (lab_ns(-14.8), lab_ns(0.4), lab_ns(1.4))
    later = steps.copy()
    later["ended_ns"] += 200 * MS
    train = jobs(
        parse_scenario(text), flows=(), ways=[], hosts=(("node0", "node1"),), train={"node0": steps, "node1": later},
        alone={0: (lab_ns(-20), lab_ns(-10))}, ran={0: (START, lab_ns(60))},
    )  # fmt: skip
    (told,) = job_reports(train)
    assert (told.solo_step_ms, told.step_ms, told.steps, told.flows, told.mbps) == (400.0, 600.0, 2, [], None)
    assert told.share == pytest.approx(0.6667)
    assert told.seconds[0].step_ms == 600.0


def test_round_trips_and_delays_of_the_path_are_those_beside_the_others():
    """Medians of what probes told meanwhile; null where they told nothing, or where nobody listened."""
    first = [Told(lab_ns(-5), 1.0, 1.0), *(Told(lab_ns(5 + number), 100.0 + number, None) for number in range(4))]
    second = [Told(lab_ns(1), 900.0, 9_000.0), Told(lab_ns(2), 800.0, 9_500.0), Told(lab_ns(61), 1.0, 1.0)]
    a, b = job_reports(jobs(run(), told=[first, second, [], []]))
    assert [(flow.in_band_us, flow.out_of_band_us) for flow in a.flows] == [(101.5, None), (850.0, 9_250.0)]
    assert {(flow.in_band_us, flow.out_of_band_us) for flow in b.flows} == {(None, None)}
    assert job_reports(jobs(run()))[0].flows[0].in_band_us is None


def test_moves_are_counted_while_the_job_runs():
    """Changes of the way, back too; the first way is none."""
    other = Way("rail0", 1, "rail0.spine1")
    taken = [(lab_ns(-1), HOME), (lab_ns(10), other), (lab_ns(20), HOME), (lab_ns(70), other)]
    assert moves(taken, START, lab_ns(60)) == 2
    moved = jobs(run(), ways=[taken, *[[(START, HOME)]] * 3])
    assert [flow.moves for flow in job_reports(moved)[0].flows] == [2, 0]
    assert list(spells(taken, lab_ns(5), lab_ns(15))) == [
        (lab_ns(5), lab_ns(10), HOME),
        (lab_ns(10), lab_ns(15), other),
    ]
    assert list(spells([], START, lab_ns(60))) == []


UP = Lane("rail0.leaf0-spine0", "up")


def test_a_full_link_that_flows_share_is_contended():
    """With the flows that cross it in that direction, and their jobs; what is full for one alone is not."""
    full = {UP: Intervals([(lab_ns(3), lab_ns(9))]), Lane("rail0.leaf1-spine0", "up"): Intervals([(START, lab_ns(5))])}
    (found,) = contended(jobs(run(), full=full))
    assert (found.link, found.since_ns, found.until_ns) == ("rail0.leaf0-spine0", lab_ns(3), lab_ns(9))
    assert found.flows == ["node0>node2/rail0", "a:node1>node3/rail0", "b:node1>node3/rail0"]
    assert found.jobs == ["a", "b"]


def test_contention_ends_when_a_flow_is_moved():
    """Though the link stays full: the flow is on another one from then on."""
    away = [(START, HOME), (lab_ns(6), Way("rail0", 1, "rail0.spine1"))]
    full = {UP: Intervals([(lab_ns(3), lab_ns(9))])}
    two = jobs(run(), full=full, ways=[away, away, [(START, HOME)], [(START, HOME)]])
    (found,) = contended(two)
    assert (found.since_ns, found.until_ns, len(found.flows)) == (lab_ns(3), lab_ns(6), 3)


def test_flows_that_send_next_to_nothing_do_not_share():
    """Nor those of a job that does not run."""
    full = {UP: Intervals([(lab_ns(3), lab_ns(9))])}
    quiet = jobs(run(), full=full)
    for slot in range(quiet.record.slot(START), quiet.record.slot(lab_ns(60))):
        quiet.record._bytes[slot, :2] = 10
    assert contended(quiet) == []
    ended = jobs(run(), full=full, ran={0: (START, lab_ns(2)), 1: (START, lab_ns(60))})
    assert contended(ended) == []


def told(scenario, kept, injections=(), seen=None):
    """The report on a run of jobs."""
    made = evidence(scenario, list(injections), seen or {})
    return build(msgspec.structs.replace(made, flows=kept.flows, record=kept.record, jobs=kept))


def test_the_report_has_jobs_and_contended_links():
    """In its JSON, by the names of the documentation; and the terminal a line for each job."""
    scenario = run()
    made = told(scenario, jobs(scenario, full={UP: Intervals([(lab_ns(3), lab_ns(9))])}))
    written = json.loads(made.json())
    assert [job["name"] for job in written["jobs"]] == ["a", "b"]
    assert written["jobs"][0].keys() == {
        "name", "kind", "hosts", "priority", "began_ns", "solo_mbps", "solo_step_ms", "steps", "step_ms", "mbps",
        "share", "slowest_share", "flows", "seconds", "ranks", "spares", "lost_steps", "goodput", "loss_sha256",
    }  # fmt: skip
    assert written["jobs"][0]["flows"][0].keys() == {
        "id", "solo_mbps", "mbps", "share", "moves", "in_band_us", "out_of_band_us",
    }  # fmt: skip
    assert written["contended"][0]["link"] == "rail0.leaf0-spine0"
    said = list(lines(*conclude(made, scenario, {})))
    assert (
        "job a: 150 steps, 400 ms each in the median (alone, 200 ms); 80 Mb/s (alone, 160);"
        " the slowest flow, a:node1>node3/rail0, had 50% of its rate alone"
    ) in said


@pytest.mark.parametrize(("over", "judged"), [("service", True), ("nic", False)])
def test_a_fault_answers_for_the_flows_that_foliot_moves(over, judged):
    """Those of every job between service addresses; what goes past Foliot stays on its NIC, and is not judged."""
    fault = '[[fault]]\nat_s = 10\nkind = "link-down"\nwhere = "node1.rail0"\nfor_s = 5\n'
    scenario = run(f'over = "{over}"\n{fault}')
    kept = jobs(scenario)
    kept.record.gap(kept.record.slot(lab_ns(14)), 2, 4 * SECOND)
    down = Injection(
        fault_id="f1", kind="link-down", where="node1.rail0", injected_ns=lab_ns(10), healed_ns=lab_ns(15), edges=()
    )
    report = told(scenario, kept, [down], {"f1": QUIET})
    ids = {flow.id for flow in report.faults[0].flows}
    assert "a:node1>node3/rail0" in ids
    assert ("b:node1>node3/rail0" in ids) == judged
    assert {"b:node1>node3/rail0"} <= {flow.id for flow in report.flows} or not judged
    _, conclusion = conclude(report, scenario, {"f1": QUIET})
    assert ("b:node1>node3/rail0 stood still" in conclusion.outcomes[0].sentence) == judged


@pytest.mark.parametrize("over", ["service", "nic"])
def test_plans_name_the_job_where_two_have_the_same_flow(over):
    """And only there; between NICs a flow has the port that places it."""
    scenario = run(f'over = "{over}"')
    fabric = plan(scenario.fabric, 7)
    nodes = [describe(node_settings(fabric, host)) for host in fabric.hosts]
    ports = {Carrier(*flow[1:], flow.job): 20_001 for flow in job_flows(scenario)}
    planned = plan_jobs(scenario, fabric, nodes, Placement(ports))
    expected = [flow.id for flow in flows(scenario)]
    assert [flow.id for flow in planned] == expected
    last = planned[-1]
    assert last.source_address == (nodes[3].nics[0].service_address if over == "service" else "10.100.1.3")
    assert (last.source_port, last.bytes_per_s) == (20_001 if over == "nic" else 0, 5_000_000)
    assert planned[0].bytes_per_s == 0
