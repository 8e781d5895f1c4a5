"""Scenarios: what is read, what is refused, and on which line."""

import math
import re
from pathlib import Path

import pytest

from foliot_lab.scenario.fault_target import parse_where
from foliot_lab.scenario.reading import Problem, ScenarioError, load_scenario, parse_scenario
from foliot_lab.scenario.spec import RECOVERY_S, Expectation, FaultExpectation, TrainSpec
from foliot_lab.scenario.topology import HOSTS_PER_LEAF

EXAMPLES = Path(__file__).parents[2] / "docs/examples"
WHOLE = """\
[fabric]            # each rail is a fabric of its own
hosts = 4
rails = 1
leaves = 2
spines = 3
link_mbps = 100
queue_packets = 100
[clock]
seed = 3
offset_ms = 1.5
drift_ppb = 0
wander_ppb = 0
[services]
"remediator.armed" = "always"
detector.flap.half_life_s = 5.0
[workload]
kind = "all-to-all"
load = 0.25
[[fault]]
at_s = 10
kind = "link-down"
where = "node3.rail0"
for_s = 30
[[fault]]
id = "shaky"
at_s = 5
kind = "flap"
where = "rail0.leaf1-spine2"
times = 10
down_s = 0.5
up_s = 1
"""


def problems(text: str) -> list[tuple[int, str]]:
    """The problems for which a scenario is refused."""
    with pytest.raises(ScenarioError) as caught:
        parse_scenario(text)
    return [(problem.line, problem.reason) for problem in caught.value.problems]


def fault(**keys: object) -> str:
    """A [[fault]] table, sound but for these keys; None leaves one out."""
    given = {"at_s": 1, "kind": "link-down", "where": "node1.rail0", "for_s": 1} | keys
    lines = [f"{key} = {value!r}" for key, value in given.items() if value is not None]
    return "\n".join(("[[fault]]", *lines, ""))


def test_a_whole_scenario_is_read():
    """Every table of a scenario ends up in its struct; settings are read by dotted name, however written."""
    scenario = parse_scenario(WHOLE)
    assert (scenario.fabric.hosts, scenario.fabric.spines, scenario.fabric.link_mbps) == (4, 3, 100.0)
    assert (scenario.clock.seed, scenario.clock.offset_ms) == (3, 1.5)
    assert scenario.services == {"remediator.armed": "always", "detector.flap.half_life_s": 5.0}
    assert (scenario.workload.kind, scenario.workload.load) == ("all-to-all", 0.25)
    assert [(fault.id, fault.kind, fault.lasts_s) for fault in scenario.faults] == [
        ("f1", "link-down", 30.0),
        ("shaky", "flap", 14.0),
    ]


def test_nothing_given_is_the_eight_node_fabric_at_rest():
    """An empty scenario is the default fabric with the default workload and no fault."""
    scenario = parse_scenario("")
    assert (scenario.fabric.hosts, scenario.fabric.rails, scenario.fabric.leaves, scenario.fabric.spines) == (
        8,
        2,
        2,
        4,
    )
    assert scenario.faults == ()
    assert scenario.duration_s == RECOVERY_S


def test_a_run_ends_when_the_last_fault_has_had_time_to_recover():
    """Unless a duration is given, the run goes on for the recovery time after the last fault's end."""
    assert parse_scenario(WHOLE).duration_s == 40 + RECOVERY_S
    assert parse_scenario(WHOLE + "[run]\nduration_s = 12\n").duration_s == 12
    assert parse_scenario(fault(for_s=None)).duration_s == 1 + RECOVERY_S


def test_everything_wrong_is_told_at_once_each_with_its_line():
    """A scenario with many mistakes is refused with all of them, in the order of its lines."""
    text = WHOLE.replace("seed = 3", "seed = 3.5\nseeds = 1").replace("load = 0.25", "load = 2")
    text = text.replace("for_s = 30", 'for_s = "long"') + fault(where="node9.rail0") + "[color]\n"
    assert problems(text) == [
        (9, "seed = 3.5: expected `int`, got `float`"),
        (10, "unknown key seeds in clock; expected one of seed, offset_ms, drift_ppb, wander_ppb, nic_clocks"),
        (19, "load = 2: expected `float` <= 1.0"),
        (24, "for_s = 'long': expected `float`, got `str`"),
        (36, "there is no node9; the fabric has node0 to node3"),
        (38, "unknown: color; expected one of fabric, clock, services, workload, train, job, fault, run, expect"),
    ]


@pytest.mark.parametrize(
    ("fabric", "line", "reason"),
    [
        ("hosts = 1", 2, "hosts = 1: expected `int` >= 2"),
        ("hosts = 255", 2, "hosts = 255: expected `int` <= 254"),
        ("rails = 9", 2, "rails = 9: expected `int` <= 8"),
        ("rails = true", 2, "rails = True: expected `int`, got `bool`"),
        ("spines = 0", 2, "spines = 0: expected `int` >= 1"),
        ("link_mbps = 0", 2, "link_mbps = 0: expected `float` >= 1.0"),
        ("link_mbps = 400_000", 2, "link_mbps = 400000: expected `float` <= 10000.0"),
        ("link_mbps = nan", 2, "link_mbps = nan: expected `float` >= 1.0"),
        ("queue_packets = 8", 2, "queue_packets = 8: expected `int` >= 64"),
        ("hosts = 2\nleaves = 3", 3, "3 leaves for 2 hosts: some would be empty"),
        ("hosts = 254\nleaves = 1", 2, f"254 hosts on 1 leaves: a leaf has addresses for {HOSTS_PER_LEAF}"),
    ],
)
def test_impossible_fabrics_are_refused(fabric, line, reason):
    """A fabric that cannot be built is refused on the line of the number that makes it so."""
    assert (line, reason) in problems(f"[fabric]\n{fabric}\n")


@pytest.mark.parametrize(
    ("keys", "line", "reason"),
    [
        ({"kind": "burn"}, 3, "kind = 'burn': invalid enum value 'burn'"),
        ({"at_s": -1}, 2, "at_s = -1: expected `float` >= 0.0"),
        ({"at_s": None}, 1, "a fault needs at_s"),
        ({"for_s": 0}, 5, "for_s = 0: expected `float` > 0.0"),
        ({"share": 0.5}, 6, "link-down has no share"),
        ({"kind": "loss"}, 3, "loss needs share"),
        ({"kind": "loss-one-way"}, 3, "loss-one-way needs share"),
        ({"kind": "loss", "share": 1.5}, 6, "share = 1.5: expected `float` <= 1.0"),
        ({"kind": "rate", "mbps": 200}, 6, "200 is no less than the link's own 200"),
        ({"kind": "flap", "times": 2, "down_s": 1, "up_s": 1}, 5, "flap has no for_s"),
        ({"kind": "flap", "for_s": None, "down_s": 1, "up_s": 1}, 3, "flap needs times"),
        ({"kind": "clock-step", "where": "node1", "offset_ns": 0}, 6, "a clock step of 0 is none"),
        ({"kind": "cpu", "share": 0.5}, 4, "cpu cannot be done to a NIC (node1.rail0), only to a host"),
        ({"where": "node1"}, 4, "link-down cannot be done to a host (node1), only to a NIC or a fabric link"),
        ({"kind": "admin-down", "where": "rail0.leaf0-spine0"}, 4, "admin-down cannot be done to a fabric link"),
        ({"kind": "kill", "where": "bus"}, 4, "kill cannot be done to the bus"),
        ({"where": "node8.rail0"}, 4, "there is no node8; the fabric has node0 to node7"),
        ({"where": "node01.rail0"}, 4, "there is no node01"),
        ({"where": "rail2.leaf0-spine0"}, 4, "there is no rail2; the fabric has rail0 to rail1"),
        ({"where": "rail0.leaf0-spine4"}, 4, "there is no spine4; the fabric has spine0 to spine3"),
        ({"where": "rail0.leaf2-spine0"}, 4, "there is no leaf2; the fabric has leaf0 to leaf1"),
        ({"where": "node1/gateway"}, 4, "'node1/gateway' names nothing; expected a NIC (node3.rail0)"),
        ({"kind": "mtu"}, 3, "mtu needs bytes"),
        ({"kind": "mtu", "bytes": 575}, 6, "bytes = 575: expected `int` >= 576"),
        ({"kind": "mtu", "bytes": 1500}, 6, "1,500 is no less than the link's own 1,500"),
        ({"kind": "drop", "bytes": 1000}, 6, "drop has no bytes"),
        ({"kind": "reload", "where": "rail0.leaf0-spine0"}, 4, "reload cannot be done to a fabric link"),
        ({"kind": "hang"}, 4, "hang cannot be done to a NIC (node1.rail0), only to a rank of a training job"),
        ({"kind": "hang", "where": "node1/rank"}, 4, "no training job has a rank on node1"),
        ({"kind": "throttle", "where": "node1/rank"}, 3, "throttle needs share"),
        ({"kind": "data-slow", "where": "node1/rank"}, 3, "data-slow needs ms"),
        ({"kind": "data-slow", "where": "node1/rank", "ms": 0}, 6, "ms = 0: expected `float` > 0.0"),
        ({"kind": "mismatch", "where": "node1/rank"}, 5, "mismatch has no for_s: the job does not survive it"),
        ({"kind": "kill", "where": "node1/rank"}, 5, "the kill of a rank has for_s only where spares"),
    ],
)
def test_impossible_faults_are_refused(keys, line, reason):
    """A fault whose target, parameters or times make no sense is refused on the line to blame."""
    found = problems(fault(**keys))
    assert any(at == line and text.startswith(reason) for at, text in found), found


def test_a_device_that_goes_takes_along_what_was_done_to_it():
    """Nothing else may be done to that NIC until its carrier is back, a second after its device; to others it may."""
    away = fault(kind="reload", where="node1.rail0", for_s=2)
    assert parse_scenario(away).faults[0].lasts_s == 3.0
    for other in (fault(kind="drop", at_s=3.5), fault(kind="mtu", bytes=1000, at_s=3.9), fault(kind="admin-down")):
        (said,) = [text for _, text in problems(away + other)]
        assert said.startswith("f2 overlaps f1, ")
    assert "and with a device goes what was done to it" in problems(away + fault(kind="drop"))[0][1]
    assert len(parse_scenario(away + fault(kind="drop", at_s=4) + fault(kind="drop", where="node1.rail1")).faults) == 3


def test_a_training_job_has_settings_of_its_own():
    """A table [train], with Gloo's own timeout unless another is given."""
    scenario = parse_scenario('[workload]\nkind = "train"\n[train]\ngradient_mb = 4\nsteps = 50\n')
    assert (scenario.workload.kind, scenario.train) == ("train", TrainSpec(gradient_mb=4.0, steps=50))
    assert parse_scenario('[workload]\nkind = "train"\n').train == TrainSpec(gradient_mb=8.0, timeout_s=1800.0)
    assert load_scenario(EXAMPLES / "train.toml").workload.kind == "train"


def test_ranks_of_training_jobs_are_places_for_faults():
    """Of the workload's job, which is on all hosts, and of one among others, on its own."""
    hang = fault(kind="hang", where="node1/rank")
    assert parse_scenario('[workload]\nkind = "train"\n' + hang).faults[0].kind == "hang"
    job = '[[job]]\nname = "a"\nkind = "train"\nuse = "foliot"\nhosts = ["node1", "node2"]\n'
    made = parse_scenario(job + hang)
    assert made.jobs[0].train().use == "foliot"
    assert "no training job has a rank on node3" in problems(job + fault(kind="hang", where="node3/rank"))[0][1]
    assert [each.where for each in load_scenario(EXAMPLES / "ranks.toml").faults] == [
        "node2/rank", "node3/rank", "node1/rank",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "line", "reason"),
    [
        ('[workload]\nload = 0.5\nkind = "train"\n', 2, "train has no load: a job takes what the links give while it"),
        ("[train]\nsteps = 5\n", 1, 'the workload is ring; a [train] goes with kind = "train" in [workload]'),
        ("[train]\nsteps = 0\n", 2, "steps = 0: expected `int` >= 1"),
        ("[train]\ngradient_mb = 0.5\n", 2, "gradient_mb = 0.5: expected `float` >= 1.0"),
        ("[train]\nbatch = 1.5\n", 2, "batch = 1.5: expected `int`, got `float`"),
        ("[train]\nseed = -1\n", 2, "seed = -1: expected `int` >= 0"),
        ("[train]\ntimeout_s = 0\n", 2, "timeout_s = 0: expected `float` > 0.0"),
        (
            "[train]\nranks = 8\n",
            2,
            "unknown key ranks in train; expected one of gradient_mb, batch, steps, seed, timeout_s, use",
        ),
        ("train = 5\n", 1, "train is a table, not 5"),
    ],
)
def test_impossible_jobs_are_refused(text, line, reason):
    """Each with the line to blame; a load too, which a job does not have."""
    found = problems(text)
    assert any(at == line and said.startswith(reason) for at, said in found), found


@pytest.mark.parametrize(
    ("one", "other"), [("node1|bus", "bus|node1"), ("node1|bus", "node1|nats"), ("sync|node1", "node1|sync")]
)
def test_partitions_of_the_same_two_places_are_refused(one, other):
    """In whatever order they are named: the end of one would end the other."""
    parted = fault(kind="partition", where=one) + fault(kind="partition", where=other, at_s=1.5)
    assert [text for _, text in problems(parted)] == [f"f2 overlaps f1, which does the like to {one} then"]
    apart = fault(kind="partition", where=one) + fault(kind="partition", where="node1|detector", at_s=1.5)
    assert len(parse_scenario(apart).faults) == 2


def test_faults_that_would_undo_each_other_are_refused():
    """Two faults may not change the same thing of the same target at a time; a fault without for_s lasts to the end."""
    open_ended = fault(for_s=None)
    assert problems(open_ended + fault(at_s=50, kind="admin-down")) == [
        (8, "f2 overlaps f1, which does the like to node1.rail0 then")
    ]
    kills = fault(kind="kill", where="node1") + fault(kind="stop", where="node1/agent")
    assert problems(kills) == [(9, "f2 overlaps f1, which does the like to node1 then")]
    apart = (
        fault()
        + fault(at_s=3)
        + fault(kind="drop")
        + fault(where="node1.rail1")
        + fault(kind="stop", where="node2/agent")
    )
    assert len(parse_scenario(apart).faults) == 5


def test_ids_are_unique():
    """A fault's own id may not be one that another has, given or not."""
    assert problems(fault() + fault(at_s=5, id="f1")) == [(11, "a fault f1 is there already, the number 1 in the file")]


@pytest.mark.parametrize("setting", ["armed = 1", '"remediator." = 1', '"remediator.armed" = 2020-01-01'])
def test_settings_have_dotted_names_and_plain_values(setting):
    """A value that cannot be a setting of a configuration file is refused."""
    assert [line for line, _ in problems(f"[services]\n{setting}\n")] == [2]


@pytest.mark.parametrize(
    ("text", "line"),
    [("[fabric]\nhosts = = 4\n", 2), ("[fabric]\nhosts = 4\nhosts = 5\n", 3), ('a = """\nx\n', 2), ("fabric = 3\n", 1)],
)
def test_text_that_is_no_scenario_is_refused_with_its_line(text, line):
    """A file that is not TOML, or a number where a table belongs, is refused on its line."""
    assert [at for at, _ in problems(text)] == [line]


def test_lines_are_right_behind_values_of_several_lines():
    """Long strings and arrays that look like keys and headers do not mislead the line numbers."""
    text = '[services]\n"a.b" = [1,\n 2, # ]\n]\n"a.c" = """\n[[fault]]\nhosts = 1\n"""\n[fabric]\nhosts = 1\n'
    assert problems(text) == [(10, "hosts = 1: expected `int` >= 2")]
    inline = 'fault = [\n{at_s = 1, kind = "drop"},\n]\n'
    assert problems(inline) == [(1, "a fault needs where")]


def test_the_message_names_file_line_and_reason(tmp_path):
    """A refused file is reported as file:line: reason, a line each."""
    path = tmp_path / "bad.toml"
    path.write_text("[fabric]\nhosts = 1\n")
    with pytest.raises(ScenarioError, match=re.escape(f"{path}:2: hosts = 1: expected `int` >= 2")):
        load_scenario(path)
    with pytest.raises(ScenarioError, match="cannot be read"):
        load_scenario(tmp_path / "none.toml")
    assert Problem(1, "a") < Problem(2, "a")


@pytest.mark.parametrize(
    ("where", "kind", "node"),
    [
        ("node3.rail0", "nic", "node3"),
        ("rail1.leaf1-spine2", "fabric link", ""),
        ("node3", "host", "node3"),
        ("node3/probe", "process", "node3"),
        ("node3/rank", "rank", "node3"),
        ("sync", "service", ""),
        ("bus", "bus", ""),
    ],
)
def test_a_target_is_known_by_its_form(where, kind, node):
    """Every form of `where` is told from the others."""
    target = parse_where(where, parse_scenario("").fabric)
    assert (target.kind, target.name, target.node) == (kind, where, node)


def test_expectations_are_read_wherever_they_are_written():
    """The run's in a table of its own; a fault's in a table after it, or in one line of it."""
    text = "[expect]\nunexplained = 2\ngap_ms = inf\n" + fault() + "[fault.expect]\nmoved_ms = 10\n"
    scenario = parse_scenario(text + fault(where="node2.rail0") + "expect = {found_ms = 5}\n")
    assert scenario.expect == Expectation(unexplained=2, gap_ms=math.inf)
    assert [fault.expect for fault in scenario.faults] == [FaultExpectation(moved_ms=10), FaultExpectation(found_ms=5)]
    assert parse_scenario(fault()).faults[0].expect is None
    assert len(load_scenario(EXAMPLES / "two-rails-without-bus.toml").faults) == 3


@pytest.mark.parametrize(
    ("text", "line", "reason"),
    [
        ("[expect]\nunexplained = -1\n", 2, "unexplained = -1: expected `int` >= 0"),
        ("[expect]\nmoved_ms = 0\n", 2, "moved_ms = 0: expected `float` > 0.0"),
        ("[expect]\nmoved_ms = nan\n", 2, "moved_ms = nan: expected `float` > 0.0"),
        ("[expect]\nmoved = 1\n", 2, "unknown key moved in expect; expected one of found_ms, moved_ms, gap_ms, back_s"),
        ("expect = 5\n", 1, "expect is a table, not 5"),
        (fault() + "[fault.expect]\nunexplained = 1\n", 7, "unknown key unexplained in expect"),
        (fault() + fault(where="node2.rail0") + '[fault.expect]\nmoved_ms = "1"\n', 12, "moved_ms = '1': expected"),
        (
            fault(for_s=None) + "expect = {gap_ms = 1, back_s = 1}\n",
            5,
            "the fault lasts to the end of the run: give it",
        ),
        (fault(kind="kill", where="node1") + "[fault.expect]\ngap_ms = 1\nmoved_ms = 1\n", 8, "kill moves no traffic"),
        (fault(kind="kill", where="node1") + "expect = {back_s = 1}\n", 6, "kill moves no traffic, so nothing comes"),
    ],
)
def test_impossible_expectations_are_refused(text, line, reason):
    """Each with the line to blame; one in a line of its own table is found there."""
    found = problems(text)
    assert any(at == line and said.startswith(reason) for at, said in found), found
