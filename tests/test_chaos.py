"""A few rounds of the chaos bench: what it counts is what is claimed of it."""

from __future__ import annotations

import json

import forked_lab
import pytest

from lab_report import missing
from patience import patience

pytestmark = [pytest.mark.e2e, pytest.mark.net]


def test_a_few_rounds_heal_with_nothing_done_twice_and_nothing_lost(tmp_path):
    """A probe, an agent, the detector and the bus are struck in the middle of faults."""
    if problems := missing():
        pytest.skip(problems)
    command = (
        "--anyway", "--rounds", "4", "--hosts", "3", "--seed", "11", "--armed", "off", "--victims", "probe", "agent",
        "detector", "nats", "--healed-within-s", str(patience(20)),
        "--folder", str(tmp_path / "lab"), "--json", str(tmp_path / "chaos.json"),
    )  # fmt: skip
    printed = tmp_path / "said"
    with printed.open("wb") as said:
        chaos = forked_lab.start("bench.chaos", *command, said=said)
    try:
        status = chaos.wait(patience(400))
    finally:
        chaos.kill()
    assert status == 0, printed.read_text()
    document = json.loads((tmp_path / "chaos.json").read_text())
    every = document["rows"][-1]
    assert (every["victim"], every["rounds"]) == ("all", 4)
    assert (every["healed"], every["done_twice"], every["lost"]) == (4, 0, 0), printed.read_text()
    assert {result["means"] for result in document["rounds"]} <= {"SIGKILL", "SIGSTOP", "SIGTERM"}
