"""How a run ends: the report's verdict, and the last lines on the terminal."""

from __future__ import annotations

import json

import msgspec
from made_runs import SEEN, command, event, report, scenario

from foliot.runtime import loop_steps
from foliot_lab.measure.host_latency import Steps
from foliot_lab.report.conclusion import conclude, lines


def test_the_report_has_the_verdict_in_the_words_of_the_terminal():
    """Every outcome has its reasons and its promise, and the state of the machine changes no outcome."""
    run = scenario()
    made = report(run, events=[event(5), event(10.6, id="late")], commands=[command(5)])
    machine = msgspec.structs.replace(made.machine, idle_cpu=0.01)
    made, conclusion = conclude(msgspec.structs.replace(made, machine=machine), run, {"f1": SEEN})
    said = list(lines(made, conclusion))
    written = json.loads(made.json())["verdict"]

    assert list(written) == ["right", "outcomes"]
    assert list(written["outcomes"][0]) == ["fault", "right", "sentence", "held"]
    assert written["right"] is conclusion.right is False
    assert [(each["fault"], each["right"]) for each in written["outcomes"]] == [("f1", False), ("", False)]
    assert [
        f"WRONG  f1   {written['outcomes'][0]['sentence']}",
        f"WRONG       {written['outcomes'][1]['sentence']}",
    ] == (said[:2])
    assert "found after 600.0 ms, promised within 500.0 ms: 100.0 ms too late" in said[0]
    assert "1 event and 1 command that no fault explains (" in said[1]
    assert said[-1].startswith("machine: 1% idle")
    assert written["outcomes"][0]["held"][0] == {"what": "found_ms", "promised": 500.0, "was": 600.0, "right": False}


def test_the_machine_is_told_with_its_quota():
    """The idle share is of the processors that the lab may use, and the last line says so."""
    made = report(scenario())
    machine = msgspec.structs.replace(made.machine, idle_cpu=0.4, stolen_cpu=0.1, speed=0.5)
    made, conclusion = conclude(msgspec.structs.replace(made, machine=machine), scenario(), {"f1": SEEN})
    last = list(lines(made, conclusion))[-1]
    assert last.startswith("machine: 40% idle of the 50% of it that the lab may use, 10% stolen; a sleeper is woken")


def test_the_long_steps_of_all_loops_are_told():
    """The services' own work beside what they waited for, and whose the longest were; the report has the histograms."""
    loops = {}
    for name, took_and_own_ms in (("node0/probe", [(0.5, 0.4), (30, 2)]), ("sync", [(0.5, 0.5), (12, 11), (40, 1)])):
        steps = loop_steps.Steps.kept()
        for took_ms, own_ms in took_and_own_ms:
            steps.add(round(took_ms * 1e6), round(own_ms * 1e6))
        loops[name] = Steps.of(steps.counted())
    made = report(scenario())
    made, conclusion = conclude(
        msgspec.structs.replace(made, machine=msgspec.structs.replace(made.machine, loops=loops)),
        scenario(), {"f1": SEEN},
    )  # fmt: skip
    last = list(lines(made, conclusion))[-1]
    assert last.startswith("loops: 3 of 5 steps took 10 ms or more, at most 4")
    assert " ms (sync); 1 by their own work, at most 1" in last
    written = json.loads(made.json())["machine"]["loops"]["sync"]
    assert written["by_bound_ms"] == {"1": 1, "20": 1, "50": 1}
    assert written["own_by_bound_ms"] == {"1": 1, "2": 1, "20": 1}
