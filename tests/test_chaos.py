"""A few rounds of the chaos bench: what it counts is what is claimed of it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from foliot_lab.fabric import capabilities
from patience import patience

pytestmark = [pytest.mark.e2e, pytest.mark.net]

_HERE = Path(__file__).parent.parent


def test_a_few_rounds_heal_with_nothing_done_twice_and_nothing_lost(tmp_path):
    """A probe, an agent, the detector and the bus are struck in the middle of faults."""
    missing = capabilities.missing()
    if missing:
        pytest.skip(" ".join(missing))
    command = (
        "--anyway", "--rounds", "4", "--hosts", "3", "--seed", "11", "--armed", "off", "--victims", "probe", "agent",
        "detector", "nats", "--healed-within-s", str(patience(20)),
        "--folder", str(tmp_path / "lab"), "--json", str(tmp_path / "chaos.json"),
    )  # fmt: skip
    done = subprocess.run(
        [sys.executable, "-m", "bench.chaos", *command],
        cwd=_HERE,
        capture_output=True,
        text=True,
        check=False,
        timeout=patience(400),
    )
    assert done.returncode == 0, done.stderr
    document = json.loads((tmp_path / "chaos.json").read_text())
    every = document["rows"][-1]
    assert (every["victim"], every["rounds"]) == ("all", 4)
    assert (every["healed"], every["done_twice"], every["lost"]) == (4, 0, 0), done.stderr
    assert {result["means"] for result in document["rounds"]} <= {"SIGKILL", "SIGSTOP", "SIGTERM"}
