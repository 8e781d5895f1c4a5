"""A real training job in a real lab that loses a rank and then a host, and goes on with spares as if nothing had been."""

from __future__ import annotations

import hashlib
import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from foliot_lab.workload.train.merged_steps import merge, read_lines
from foliot_lab.workload.train.ranks import missing
from foliot_lab.workload.workload import JOB
from lab_report import lab_report
from patience import patience

if TYPE_CHECKING:
    import numpy as np

pytestmark = [pytest.mark.e2e, pytest.mark.net, pytest.mark.skipif(bool(missing()), reason=missing())]

SCENARIO = Path(__file__).parents[1] / "docs/examples/replace.toml"
RANKS, GRADIENT_BYTES = 4, 2_000_000


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    """The report of a run of the example."""
    return lab_report(SCENARIO, tmp_path_factory.mktemp("replace"))


def test_lost_ranks_go_to_spares(report):
    """The killed one at once, that of the drained host at a step's end; each once, and no other."""
    found = [
        (row["fault"], row["rank"], row["from"], row["to"] in {"node4", "node5"}, row["cause"], row["planned"])
        for row in report["replacements"]
    ]
    assert found == [
        ("f1", 2, "node2", True, "dead", False), ("f2", 1, "node1", True, "drain", True),
    ], report["said"]  # fmt: skip
    for row in report["replacements"]:
        times = [row[name] for name in ("decided_ns", "left_ns", "formed_ns", "copied_ns", "first_step_ns")]
        assert None not in times, report["said"]
        assert times == sorted(times)
        assert row["state_mb"] > 4, "the parameters and AdamW's two moments of them"
        assert row["refused"] is None
    assert len({row["to"] for row in report["replacements"]}) == 2


def test_no_step_is_lost_to_a_drain(report):
    """The job had ended the step after which its ranks left."""
    assert report["replacements"][1]["lost_steps"] == 0


def test_the_job_goes_on_and_every_outcome_is_right(report):
    """Only the killed process died, and what was promised is held against it."""
    assert report["verdict"]["right"], report["said"]
    assert {death["node"] for death in report["train"]["deaths"]} == {"node2"}
    assert (report["unexplained"]["events"], report["unexplained"]["commands"]) == (0, 0), report["said"]
    held = [held["what"] for outcome in report["verdict"]["outcomes"] for held in outcome["held"]]
    assert held.count("stall_ms") == 2
    assert report["jobs"][0]["ranks"] == RANKS
    assert report["jobs"][0]["spares"] == 2


def test_its_losses_are_those_of_a_job_that_lost_nothing(report, tmp_path):
    """To the bit, in every step: who takes a rank goes on where it was, with the same data."""
    steps = report["train"]["steps"]
    whole = undisturbed(tmp_path, steps)
    assert len(whole) == steps
    assert hashlib.sha256(whole.astype("<f8").tobytes()).hexdigest() == report["train"]["loss_sha256"]


def undisturbed(folder: Path, steps: int) -> np.ndarray:
    """The mean losses of the same job where no rank is ever lost: on this machine's loopback addresses."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    files = [folder / f"rank{rank}.jsonl" for rank in range(RANKS)]
    ranks = []
    for rank, file in enumerate(files):
        environment = {
            "RANK": str(rank), "WORLD_SIZE": str(RANKS), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port),
        }  # fmt: skip
        arguments = [
            "--address", f"127.0.1.{1 + rank}", "--record", str(file), "--gradient-bytes", str(GRADIENT_BYTES),
            "--steps", str(steps),
        ]  # fmt: skip
        ranks.append(subprocess.Popen([sys.executable, "-m", JOB, *arguments], env=os.environ | environment))
    assert [rank.wait(timeout=patience(300)) for rank in ranks] == [0] * RANKS
    assert all(json.loads(file.read_text().splitlines()[-1])["step"] == steps - 1 for file in files)
    return merge({file.stem: read_lines(file, 0) for file in files}, RANKS).losses
