"""Outcomes held against what is promised, or what the scenario expects, and by how much they missed."""

import math
import re
from pathlib import Path

import msgspec
import pytest
from made_runs import (
    QUIET,
    SECOND,
    SEEN,
    command,
    event,
    evidence,
    injected,
    judge,
    lab_ns,
    record,
    scenario,
)

from foliot_lab.report.report import build
from foliot_lab.report.verdicts import verdicts
from foliot_lab.scenario.promises import PROMISES, promise_of
from foliot_lab.scenario.reading import parse_scenario

DOCS = Path(__file__).parents[2] / "docs"
FOR_30_S = "for_s = 30"


def seen(**fields):
    """The witness's verdict, with these changes."""
    return msgspec.structs.replace(SEEN, **fields)


def held(judgement, what):
    """The promise of a figure, the figure, and whether that was right."""
    return next((each.promised, each.was, each.right) for each in judgement.held if each.what == what)


def gap(since_s, until_s, flow=0):
    """A record in which a flow stood still for these seconds."""
    kept = record()
    kept.gap(kept.slot(lab_ns(until_s)), flow, round((until_s - since_s) * SECOND))
    return kept


@pytest.mark.parametrize(
    ("kind", "moved_s", "right"),
    [
        ("link-down", 0.49, True),
        ("link-down", 0.51, False),
        ("reload", 0.49, True),
        ("reload", 0.51, False),
        ("drop", 0.99, True),
        ("drop", 1.01, False),
        ("mtu", 5.99, True),
        ("mtu", 6.01, False),
    ],
)
def test_traffic_has_to_move_within_what_is_promised(kind, moved_s, right):
    """A lost carrier sooner than silence, that sooner than a hole for large packets; each at its promise's edge."""
    more = "for_s = 30\nbytes = 1400" if kind == "mtu" else "for_s = 30"
    of_fault, _ = judge(scenario(kind=kind, more=more), seen(moved_ns=lab_ns(10 + moved_s)))
    assert of_fault.right is right, of_fault.sentence
    assert held(of_fault, "moved_ms") == (promise_of(kind, "node3.rail0").moved_ms, pytest.approx(moved_s * 1e3), right)


def test_an_mtu_hole_has_to_be_found_and_left():
    """Small packets pass, which is no excuse: the witness saw the full-size ones fall silent."""
    run = scenario(kind="mtu", more="for_s = 30\nbytes = 1400")
    of_fault, _ = judge(run, seen(moved_ns=None, moves=0, changed=0), events=[])
    assert not of_fault.right
    assert of_fault.sentence.startswith(
        "node3.rail0 silently dropped large packets; nobody found it in 30.0 s, promised within 6.0 s"
    )
    assert "6 pairs fell silent and did not all move in 30.0 s, promised within 6.0 s" in of_fault.sentence


def test_a_miss_says_by_how_much():
    """In the words of the terminal: what was promised, and how much too late."""
    of_fault, _ = judge(scenario(kind="drop"), seen(moved_ns=lab_ns(41.0)))
    assert (
        "flowed again after 31.0 s, promised within 1.0 s: 30.0 s too late, 31 times what was promised"
        in of_fault.sentence
    )
    of_fault, _ = judge(scenario(), seen(moved_ns=lab_ns(10.6)))
    assert "after 600.0 ms, promised within 500.0 ms: 100.0 ms too late;" in of_fault.sentence


def test_a_switchs_lost_carrier_is_silence_to_hosts():
    """No host's NIC loses anything by it, so the promise is that of silence."""
    assert promise_of("link-down", "rail0.leaf1-spine0") == PROMISES["silent"]
    assert promise_of("link-down", "node3.rail0") == PROMISES["carrier"]


@pytest.mark.parametrize(("for_s", "right"), [(0.4, True), (0.6, False)])
def test_what_was_over_before_it_had_to_move_need_not_have_moved(for_s, right):
    """A fault that heals by itself sooner than promised asks nothing of anybody."""
    run = scenario(more=f"for_s = {for_s}")
    of_fault, _ = judge(run, seen(moved_ns=None, restored_ns=None, moves=0, changed=0), healed_s=10 + for_s)
    assert of_fault.right is right, of_fault.sentence


@pytest.mark.parametrize(("found_s", "right"), [(0.49, True), (0.51, False), (None, False)])
def test_a_fault_has_to_be_found(found_s, right):
    """An event about it within the promise, not only a move."""
    events = [] if found_s is None else [event(10 + found_s)]
    of_fault, _ = judge(scenario(), events=events)
    assert of_fault.right is right, of_fault.sentence
    if found_s is None:
        assert "nobody found it in 30.0 s, promised within 500.0 ms" in of_fault.sentence


def test_what_no_traffic_felt_need_not_be_found():
    """A link that carried nothing is found by the slow sweep, in its own time."""
    assert judge(scenario(kind="drop", where="rail0.leaf1-spine1"), QUIET, events=[])[0].right


@pytest.mark.parametrize(("back_s", "right"), [(14.9, True), (15.1, False)])
def test_traffic_has_to_be_back_after_its_probation(back_s, right):
    """Ten seconds beyond the five of the default probation, counted from the healing."""
    of_fault, _ = judge(scenario(duration_s=90), seen(restored_ns=lab_ns(40 + back_s)))
    assert of_fault.right is right, of_fault.sentence
    assert held(of_fault, "back_s") == (15.0, pytest.approx(back_s), right)


@pytest.mark.parametrize(("until_s", "right"), [(11.4, True), (11.6, False), (44.0, False)])
def test_a_flow_that_stands_still_while_a_way_lives_is_wrong(until_s, right):
    """Whatever else was right: the pulses flowed after 6 ms."""
    of_fault, _ = judge(scenario(), kept=gap(10.0, until_s))
    assert of_fault.right is right, of_fault.sentence
    assert ("node2>node3/rail0 stood still for" in of_fault.sentence) is not right


def test_a_flow_may_stand_still_without_a_way_and_as_long_again():
    """TCP tries at ever longer intervals, so it may wait once more for what it waited; not more than that."""
    run = scenario(rails=1)
    unmoved = seen(moved_ns=None, moves=0, changed=0)
    assert judge(run, unmoved, kept=gap(10.0, 55.0))[0].right
    run, unmoved = scenario(rails=1, more="for_s = 2"), seen(moved_ns=None, restored_ns=None, moves=0, changed=0)
    of_fault, _ = judge(
        run, unmoved, kept=gap(10.0, 31.0), healed_s=12
    )  # 2 s dead and 5 s until trusted, twice: 7 s of 21 s are left
    assert (
        "node2>node3/rail0 stood still for 7.0 s beyond what the want of a way explains, promised within 1.5 s"
        in of_fault.sentence
    )
    assert not of_fault.right


def test_a_flow_that_stands_still_for_no_fault_makes_the_run_wrong():
    """node0 and node1 have nothing to do with node3's NIC; nor has anybody before the fault."""
    for kept in (gap(20.0, 24.0, flow=1), gap(5.0, 9.0)):
        run = scenario()
        made = build(evidence(run, [injected(run.faults[0], 40)], {"f1": SEEN}, [event(10.001)], kept=kept))
        of_fault, of_rest, of_run = verdicts(made, run, {"f1": SEEN})
        assert of_fault.right
        assert of_run.right
        assert not of_rest.right
        assert (
            "stood still for 4.0 s though no fault was on its own rail, promised within 1.5 s: 2.5 s too long"
            in of_rest.sentence
        )


TWO_DEAD_RAILS = """
[fabric]
hosts = 4
rails = 2
leaves = 2
spines = 2
[services]
"remediator.armed" = "{armed}"
[[fault]]
id = "cut"
at_s = 3
kind = "bus-cut"
where = "bus"
[[fault]]
id = "first"
at_s = 10
kind = "link-down"
where = "node3.rail0"
for_s = 4
[[fault]]
id = "second"
at_s = 12
kind = "{kind}"
where = "node3.rail1"
for_s = 33
[run]
duration_s = 60
"""


def two_dead_rails(armed, kind="link-down", kept=None):
    """Both NICs of a host die while the bus is cut; one returns after 4 s, and traffic moves when the other heals."""
    run = parse_scenario(TWO_DEAD_RAILS.format(armed=armed, kind=kind))
    injections = [injected(fault, healed_s) for fault, healed_s in zip(run.faults, (None, 14, 45), strict=True)]
    moved = {
        "first": seen(moved_ns=lab_ns(10.006), restored_ns=None, moves=1),
        "second": seen(moved_ns=lab_ns(45.01), restored_ns=None, moves=1),
    }
    events = [event(10.001), event(12.001, who="node3.rail1", id="second")]
    made = build(evidence(run, injections, moved, events, kept=kept, armed=armed))
    return {each.fault: each for each in verdicts(made, run, moved)}


def test_a_link_that_is_back_between_two_dead_ones_has_to_be_used():
    """Armed agents need no bus: the way of the first NIC lived for 26 s unused, and its flow stood still for longer."""
    judged = two_dead_rails("always", kept=gap(12.0, 54.0))
    second = judged["second"]
    assert not second.right
    assert (
        "after 33.0 s (7.0 s of it not counted: no way lived), promised within 500.0 ms: 25.5 s too late, 52 times"
        in second.sentence
    )
    assert held(second, "moved_ms") == (500.0, pytest.approx(26_010), False)
    first = judged["first"]
    assert not first.right
    assert (
        "node2>node3/rail0 stood still for 28.0 s beyond what the want of a way explains, promised within 1.5 s"
        in first.sentence
    )


@pytest.mark.parametrize(("armed", "kind"), [("off", "link-down"), ("always", "drop")])
def test_what_nobody_was_there_to_move_is_not_held_against_anybody(armed, kind):
    """Without the bus nobody commands: of unarmed agents, and of silence, nothing is promised until it is back."""
    judged = two_dead_rails(armed, kind)
    assert judged["second"].right, judged["second"].sentence
    assert held(judged["second"], "moved_ms")[1] == 0.0


def test_what_is_not_counted_is_said():
    """With the fault by which those who act could not, where the outcome is wrong all the same."""
    run = parse_scenario(
        '[[fault]]\nid = "f1"\nat_s = 10\nkind = "drop"\nwhere = "node3.rail0"\n'
        '[[fault]]\nid = "halt"\nat_s = 9\nkind = "stop"\nwhere = "detector"\nfor_s = 2\n'
        "[run]\nduration_s = 60\n"
    )
    late = {"f1": seen(moved_ns=lab_ns(33), restored_ns=None, moves=1)}
    made = build(evidence(run, [injected(run.faults[0], None), injected(run.faults[1], 11)], late, [event(10.1)]))
    (of_fault, *_) = verdicts(made, run, late)
    assert not of_fault.right
    assert (
        "after 23.0 s (21.0 s of it not counted: halt (stop)), promised within 1.0 s: 1.0 s too late"
        in of_fault.sentence
    )


def test_agents_that_are_armed_without_the_bus_have_to_miss_it_first():
    """From three seconds after the cut on they are held to what armed agents promise."""
    assert not two_dead_rails("bus-away")["second"].right


def expecting(more="", own="", kind="link-down", **fields):
    """A fault with expectations of its own and the run's."""
    run = scenario(kind=kind, more=f"{FOR_30_S}\n{own}", **fields)
    return msgspec.structs.replace(run, expect=parse_scenario(f"[expect]\n{more}").expect)


@pytest.mark.parametrize(
    ("more", "own", "right"),
    [
        ("moved_ms = 5", "", False),
        ("moved_ms = 7", "", True),
        ("moved_ms = 5", "expect = {moved_ms = 7}", True),
        ("moved_ms = 7", "expect = {moved_ms = 5}", False),
        ("", "expect = {found_ms = 0.5}", False),
        ("back_s = 4.9", "", False),
        ("back_s = 5.1", "", True),
        ("gap_ms = 199", "", False),
        ("gap_ms = 201", "", True),
    ],
)
def test_what_a_scenario_expects_takes_the_place_of_what_is_promised(more, own, right):
    """A fault's own expectation before the run's, the run's before the promise; as it stands, at its edge."""
    of_fault, _ = judge(expecting(more, own), kept=record())
    assert of_fault.right is right, of_fault.sentence


def test_infinity_asks_for_nothing():
    """A figure that is not to be judged has no limit."""
    run = expecting("moved_ms = inf\ngap_ms = inf\nback_s = inf")
    of_fault, _ = judge(run, seen(moved_ns=lab_ns(39), restored_ns=lab_ns(59)), kept=gap(10.0, 44.0))
    assert of_fault.right, of_fault.sentence
    assert {each.what for each in of_fault.held} == {"found_ms"}


def test_more_can_be_expected_of_what_has_no_promise():
    """Loss lets traffic through, so an expectation of a move has to give the time."""
    lossy = "expect = {moved_ms = 100}\nshare = 0.5"
    assert judge(expecting(own=lossy, kind="loss"))[0].right
    of_fault, _ = judge(expecting(own=lossy, kind="loss"), seen(moved_ns=None, moves=0))
    assert "did not all move in 30.0 s, promised within 100.0 ms" in of_fault.sentence


@pytest.mark.parametrize(("most", "right"), [(2, False), (3, True)])
def test_strays_may_be_expected(most, right):
    """Events and commands that no fault explains count together."""
    run = expecting(f"unexplained = {most}")
    strays = {"events": [event(5), event(10.001, id="found")], "commands": [command(5), command(6)]}
    _, of_run = judge(run, **strays)
    assert of_run.right is right
    assert f"expected at most {most}" in of_run.sentence


def test_the_manual_has_the_table():
    """docs/lab.md promises what the code holds outcomes against."""
    text = (DOCS / "lab.md").read_text()
    rows = {}
    for name in PROMISES:
        (row,) = re.findall(rf"^\| {name} \|.*$", text, re.MULTILINE)
        rows[name] = [cell.strip() for cell in row.split("|")[3:7]]
    said = {
        name: [
            "none" if each == math.inf else f"{each:,.0f}"
            for each in (row.found_ms, row.moved_ms, row.gap_ms, row.back_s)
        ]
        for name, row in PROMISES.items()
    }
    assert rows == said
