"""How a run ends: the report's verdict, and the last lines on the terminal."""

from __future__ import annotations

import json

import msgspec
import pytest
from made_runs import SEEN, command, event, report, scenario

from foliot_lab.conclusion import conclude, lines
from foliot_lab.lateness import Lateness


@pytest.mark.parametrize("idle", [0.5, 0.01])
def test_the_report_has_the_verdict_in_the_words_of_the_terminal(idle):
    """Every outcome with its reasons, and whether all were right; and what a busy machine is an excuse for."""
    run = scenario()
    made = report(run, events=[event(5)], commands=[command(5)])
    machine = msgspec.structs.replace(made.machine, idle_cpu=idle, scheduler_lateness_ms=Lateness(p50=0.1, p99=0.2))
    made, conclusion = conclude(msgspec.structs.replace(made, machine=machine), run, {"f1": SEEN})
    said = list(lines(made, conclusion))
    written = json.loads(made.json())["verdict"]

    assert written["right"] is conclusion.right is False
    assert [(each["fault"], each["right"]) for each in written["outcomes"]] == [("f1", True), ("", False)]
    assert [
        f"right  f1   {written['outcomes'][0]['sentence']}",
        f"WRONG       {written['outcomes'][1]['sentence']}",
    ] == (said[:2])
    assert "1 event and 1 command that no fault explains." in said[1]
    assert written["excuse"] == (said[-1] if idle < 0.1 else "")
