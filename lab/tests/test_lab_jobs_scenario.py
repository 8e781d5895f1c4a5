"""Jobs in a scenario: what is read, what is refused and on which line, and which flows they have."""

from pathlib import Path

import pytest

from foliot_lab.measure.budget import traffic_gbps
from foliot_lab.scenario.job_traffic import pairs_of
from foliot_lab.scenario.job_validation import MOST_JOBS
from foliot_lab.scenario.reading import ScenarioError, load_scenario, parse_scenario
from foliot_lab.scenario.spec import RECOVERY_S, JobSpec, TrainSpec, WorkloadSpec, trains

EXAMPLES = Path(__file__).parents[2] / "docs/examples"
FABRIC = "[fabric]\nhosts = 4\nrails = 1\nlink_mbps = 100\n"
LINES = 4
"""Of the fabric, before the first job."""


def job(**keys: object) -> str:
    """A [[job]] table, sound but for these keys; None leaves one out."""
    given = {"name": "a", "kind": "ring", "step_mb": 2} | keys
    return "\n".join(("[[job]]", *(f"{key} = {value!r}" for key, value in given.items() if value is not None), ""))


def problems(text: str) -> list[tuple[int, str]]:
    """The problems for which a scenario is refused."""
    with pytest.raises(ScenarioError) as caught:
        parse_scenario(text)
    return [(problem.line, problem.reason) for problem in caught.value.problems]


def test_jobs_take_the_place_of_the_workload():
    """Every key of a job is read, and the workload of such a scenario is none."""
    text = job(hosts=["node2", "node0"], rails=["rail0"], read_mbps=5, priority=2, at_s=1, for_s=4, placed="apart")
    read = parse_scenario(FABRIC + text + job(name="b", step_mb=None, mbps=10, over="nic"))
    assert read.workload == WorkloadSpec(kind="none")
    assert read.jobs == (
        JobSpec(
            name="a", kind="ring", hosts=("node2", "node0"), rails=("rail0",), step_mb=2.0, read_mbps=5.0, priority=2,
            at_s=1.0, for_s=4.0, placed="apart",
        ),
        JobSpec(name="b", kind="ring", mbps=10.0, over="nic"),
    )  # fmt: skip
    assert not trains(read)


def test_a_run_lasts_beyond_its_last_job():
    """Without a duration, a job's end counts as a fault's does; each job may run alone before."""
    assert parse_scenario(FABRIC + job(at_s=5, for_s=30)).duration_s == 35 + RECOVERY_S
    read = parse_scenario(FABRIC + job() + "[run]\nduration_s = 9\nsolo_s = 3\n")
    assert (read.duration_s, read.solo_s) == (9, 3)
    assert parse_scenario(FABRIC + job()).solo_s is None


def test_a_training_job_has_the_keys_of_train():
    """In its own table, with the same defaults."""
    read = parse_scenario(FABRIC + job(kind="train", step_mb=None, gradient_mb=4, seed=3))
    assert read.jobs[0].train() == TrainSpec(gradient_mb=4.0, seed=3)
    assert trains(read)


@pytest.mark.parametrize("name", ["two-jobs", "two-jobs-cured", "two-priorities"])
def test_the_examples_are_read(name):
    """Those of the documentation."""
    read = load_scenario(EXAMPLES / f"{name}.toml")
    assert {each.placed for each in read.jobs} == {"collide"}
    assert read.solo_s


def test_the_example_of_a_job_past_foliot_is_read():
    """With a path to be late, and traffic that the lab leads elsewhere."""
    large, past = load_scenario(EXAMPLES / "past-foliot.toml").jobs
    assert (large.over, large.placed, past.over, past.placed) == ("service", "collide", "nic", "apart")


def test_routers_may_be_silent():
    """By a key of the fabric."""
    assert parse_scenario("").fabric.icmp
    assert not parse_scenario("[fabric]\nicmp = false\n").fabric.icmp


@pytest.mark.parametrize(
    ("keys", "line", "reason"),
    [
        ({"name": None}, 1, "a job needs name"),
        ({"name": "a b"}, 2, "name = 'a b': expected `str` matching regex"),
        ({"kind": "burst"}, 3, "kind = 'burst': invalid enum value 'burst'"),
        ({"colour": 1}, 5, "unknown key colour in job; expected one of name, kind, hosts, rails"),
        ({"hosts": ["node0", "node4"]}, 5, "there is no node4; the fabric has node0 to node3"),
        ({"hosts": ["node0", "node0"]}, 5, "node0 is named twice"),
        ({"hosts": ["node0"]}, 5, "ring needs two hosts or more"),
        ({"hosts": []}, 5, "hosts is empty; left out, it means all"),
        ({"hosts": "node0"}, 5, "hosts = 'node0': expected `array`, got `str`"),
        ({"kind": "pairs", "hosts": ["node0", "node1", "node2"]}, 5, "pairs needs an even number of hosts, not 3"),
        ({"rails": ["rail1"]}, 5, "there is no rail1; the fabric has rail0 to rail0"),
        ({"step_mb": None}, 3, "ring needs either step_mb or mbps"),
        ({"mbps": 5}, 3, "ring needs either step_mb or mbps"),
        ({"step_mb": 0}, 4, "step_mb = 0: expected `float` >= 0.01"),
        ({"read_mbps": 0}, 5, "read_mbps = 0: expected `float` >= 0.01"),
        ({"priority": 0.5}, 5, "priority = 0.5: expected `int`, got `float`"),
        ({"placed": "near"}, 5, "placed = 'near': invalid enum value 'near'"),
        ({"over": "bus"}, 5, "over = 'bus': invalid enum value 'bus'"),
        ({"seed": 1}, 5, "ring has no seed; only train has"),
        ({"kind": "train"}, 4, "train has no step_mb"),
        ({"kind": "train", "step_mb": None, "placed": "apart"}, 4, "train has no placed: the lab does not know"),
        ({"kind": "train", "step_mb": None, "for_s": 3}, 4, "train has no for_s: it goes on until its steps are done"),
        (
            {"placed": "collide", "hosts": ["node0", "node1"]},
            5,
            "no two flows of the jobs that are to collide leave the same leaf, or come to the same from another",
        ),
    ],
)
def test_impossible_jobs_are_refused(keys, line, reason):
    """Each with the line to blame."""
    found = problems(FABRIC + job(**keys))
    assert any(at == LINES + line and said.startswith(reason) for at, said in found), found


def test_a_flow_has_no_way_where_leaves_spray():
    """So it cannot be placed."""
    spray = FABRIC + "spray = true\n"
    assert parse_scenario(spray + job()).fabric.spray
    assert problems(spray + job(placed="apart")) == [
        (10, "apart means nothing where leaves spray packets: no flow has a way of its own")
    ]


def test_what_jobs_do_not_go_with_is_refused():
    """A workload beside them, a [train] table, a second job of a name, and a time alone without a job."""
    both = problems(FABRIC + job() + '[workload]\nkind = "ring"\n[train]\nsteps = 5\n')
    assert both == [
        (9, "there are jobs; a scenario has either a [workload] or [[job]]s"),
        (11, "there are jobs; the keys of [train] go into the [[job]] of kind train"),
    ]
    assert problems(FABRIC + job() + job()) == [(10, "a job a is there already")]
    assert problems("[run]\nsolo_s = 5\n") == [(2, "solo_s goes with [[job]]s; there is none")]
    late = problems(FABRIC + job(at_s=9) + "[run]\nduration_s = 9\n")
    assert late == [(9, "a would begin when the run is over")]
    trainings = job(kind="train", step_mb=None) + job(name="b", kind="train", step_mb=None)
    assert problems(FABRIC + trainings) == [(10, "there is a job of kind train already, and there can be one")]
    crowd = "".join(job(name=f"a{number}", hosts=["node0", "node1"]) for number in range(MOST_JOBS + 1))
    assert [reason for _, reason in problems(FABRIC + crowd)] == [f"there can be {MOST_JOBS} jobs"]
    assert problems("job = 5\n") == [(1, "jobs are written as [[job]], each its own table")]


@pytest.mark.parametrize(
    ("kind", "pairs"),
    [
        ("ring", ["01", "12", "23", "30"]),
        ("all-to-all", ["01", "02", "03", "12", "13", "10", "23", "20", "21", "30", "31", "32"]),
        ("pairs", ["02", "13"]),
        ("incast", ["10", "20", "30"]),
        ("train", []),
    ],
)
def test_a_kind_says_who_sends_to_whom(kind, pairs):
    """The hosts in the order in which the job names them."""
    assert pairs_of(kind, "0123") == tuple(map(tuple, pairs))


def test_the_machine_is_asked_for_the_traffic_of_all_jobs():
    """Of a NIC no more than its rate; what is paced or read slowly is no more than that."""
    assert traffic_gbps(parse_scenario(FABRIC + job())) == pytest.approx(0.4)
    assert traffic_gbps(parse_scenario(FABRIC + job(kind="incast") + job(name="b", kind="incast"))) == pytest.approx(
        0.3
    )
    assert traffic_gbps(parse_scenario(FABRIC + job(step_mb=None, mbps=10))) == pytest.approx(0.04)
    assert traffic_gbps(parse_scenario(FABRIC + job(read_mbps=20))) == pytest.approx(0.08)
