"""Jobs that lose ranks, in a scenario: what is read, what is refused and on which line, and what is promised."""

import math
from pathlib import Path

import pytest

from foliot_lab.scenario.promises import promise_of
from foliot_lab.scenario.reading import ScenarioError, load_scenario, parse_scenario
from foliot_lab.scenario.spec import trained
from foliot_lab.services.deployment import replacing

EXAMPLE = Path(__file__).parents[2] / "docs/examples/replace.toml"
FABRIC = "[fabric]\nhosts = 4\nrails = 1\n"
LINES = 3


def job(**keys):
    """A training job whose ranks can be replaced, but for these keys; None leaves one out."""
    given = {"name": "t", "kind": "train", "use": "foliot", "spares": 1, "ranks_per_host": 2} | keys
    told = (f"{key} = {value}" if not isinstance(value, str) else f'{key} = "{value}"' for key, value in given.items())
    return "\n".join(("[[job]]", *(line for line in told if not line.endswith("None")), ""))


def fault(kind, where, **keys):
    """A fault at second 1."""
    more = "".join(f"{key} = {value}\n" for key, value in keys.items())
    return f'[[fault]]\nat_s = 1\nkind = "{kind}"\nwhere = "{where}"\n{more}'


def problems(text):
    """The problems for which a scenario is refused."""
    with pytest.raises(ScenarioError) as caught:
        parse_scenario(text)
    return [(problem.line, problem.reason) for problem in caught.value.problems]


def test_a_job_has_ranks_and_spares():
    """Its last hosts stand by; by default it has a rank on every host."""
    name, spec = trained(parse_scenario(FABRIC + job()))
    assert (name, spec.ranks_per_host, spec.spares, spec.ranks(4)) == ("t", 2, 1, 6)
    assert (spec.is_replaceable, spec.is_restarted) == (True, False)
    plain = trained(parse_scenario(FABRIC + job(use=None, checkpoint_steps=20)))[1]
    assert (plain.is_replaceable, plain.is_restarted) == (False, True)
    alone = trained(parse_scenario('[workload]\nkind = "train"\n'))
    assert (alone[0], alone[1].ranks(8), alone[1].outlives_ranks) == ("train", 8, False)
    assert trained(parse_scenario("")) is None


def test_a_killed_rank_comes_back_where_there_are_spares():
    """As one of them; nothing else starts it again."""
    kill = '[[fault]]\nat_s = 1\nkind = "kill"\nwhere = "node1/rank0"\nfor_s = 2\n'
    assert parse_scenario(FABRIC + job() + kill).faults[0].for_s == 2
    ((_, reason),) = problems(FABRIC + job(use=None, spares=None) + kill)
    assert reason.startswith("the kill of a rank has for_s only where spares take over")


def test_the_remediator_acts_where_there_are_spares():
    """Unless the scenario says otherwise."""
    assert replacing(parse_scenario(FABRIC + job())) == {
        "remediator.replace": "act", "remediator.replace_hung_s": 3.0,
    }  # fmt: skip
    assert replacing(parse_scenario(FABRIC + job(spares=None))) == {}
    assert replacing(parse_scenario(FABRIC + job(use=None, checkpoint_steps=20))) == {}


def test_the_example_is_read():
    """That of the documentation: three ranks, two spares, a loss, a drain, and connections that are reset."""
    read = load_scenario(EXAMPLE)
    assert trained(read)[1].ranks(read.fabric.hosts) == 3
    assert [(fault.kind, fault.where) for fault in read.faults] == [
        ("link-down", "node0.rail0"), ("kill", "node2/rank"), ("drain", "node1"), ("reset", "node0/rank"),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("keys", "line", "reason"),
    [
        ({"spares": 4}, 5, "4 spares of 4 hosts leave none for ranks"),
        ({"spares": 3, "ranks_per_host": 1}, 5, "train needs two ranks or more beside its spares"),
        ({"spares": -1}, 5, "spares = -1: expected `int` >= 0"),
        ({"ranks_per_host": 0}, 6, "ranks_per_host = 0: expected `int` >= 1"),
        ({"use": "plain"}, 5, 'spares go with use = "foliot", or with checkpoint_steps'),
        ({"checkpoint_steps": 5}, 7, 'checkpoint_steps go with use = "plain"'),
        ({"at_s": 2}, 7, "t cannot wait: halted, it would lose ranks"),
        ({"kind": "ring", "use": None, "ranks_per_host": None, "mbps": 5}, 4, "ring has no spares; only train has"),
    ],
)
def test_impossible_jobs_are_refused(keys, line, reason):
    """Each with the line to blame."""
    found = problems(FABRIC + job(**keys))
    assert any(at == LINES + line and said.startswith(reason) for at, said in found), found


def test_nothing_runs_alone_beside_a_job_that_must_not_be_halted():
    """It would take the halt for a loss."""
    found = problems(FABRIC + job() + "[run]\nsolo_s = 5\n")
    assert found == [(11, "t cannot be halted while others run alone: it would lose ranks")]


@pytest.mark.parametrize(
    ("kind", "where", "keys", "line", "reason"),
    [
        ("kill", "node9/rank0", {}, 4, "there is no node9; the fabric has node0 to node3"),
        ("kill", "node1/rank", {}, 4, "node1 has 2 ranks: node1/rank0 to node1/rank1"),
        ("kill", "node1/rank2", {}, 4, "there is no node1/rank2; node1 has node1/rank0 to rank1"),
        ("kill", "node1/rank01", {}, 4, "there is no rank01; the first of a host is rank0"),
        ("xid", "node1", {}, 3, "xid needs number"),
        ("xid", "node1/rank0", {"number": 79}, 4, "xid cannot be done to a rank of a training job"),
        ("xid", "node1", {"number": 79, "for_s": 3}, 6, "xid has no for_s: what was logged stays so"),
        ("drain", "node7", {}, 4, "there is no node7"),
        ("drain", "node1.rail0", {}, 4, "drain cannot be done to a NIC (node1.rail0), only to a host"),
        ("cut-off", "node1/rank0", {}, 4, "cut-off cannot be done to a rank of a training job"),
    ],
)
def test_faults_of_nothing_are_refused(kind, where, keys, line, reason):
    """With the line and the reason."""
    found = problems(FABRIC + job() + fault(kind, where, **keys))
    assert any(at == LINES + 6 + line and said.startswith(reason) for at, said in found), found


def test_a_rank_of_several_is_named_by_its_number():
    """And one that is alone by none."""
    assert parse_scenario(FABRIC + job() + fault("kill", "node3/rank1")).faults[0].where == "node3/rank1"
    found = problems(FABRIC + job(ranks_per_host=1) + fault("kill", "node1/rank0"))
    assert found[0][1] == "node1 has one rank: node1/rank"


@pytest.mark.parametrize(
    ("kind", "where", "promised"),
    [
        ("kill", "node1/rank", True), ("kill", "node1", True), ("stop", "node1/rank1", True),
        ("hang", "node1/rank", True), ("cut-off", "node1", True), ("drain", "node1", True),
        ("kill", "node1/agent", False), ("kill", "detector", False), ("data-slow", "node1/rank", False),
        ("xid", "node1", False), ("drop", "node1.rail0", False),
    ],
)  # fmt: skip
def test_a_lost_rank_is_promised_to_be_replaced(kind, where, promised):
    """A slow one is not."""
    assert math.isfinite(promise_of(kind, where).stall_ms) is promised
