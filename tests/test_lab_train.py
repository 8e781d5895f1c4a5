"""A real training job in a real lab, with all services: it loses a link, and nothing else."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from foliot_lab.workload.train.ranks import missing
from foliot_lab.workload.workload import JOB
from lab_report import lab_report
from patience import patience

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.e2e, pytest.mark.net, pytest.mark.skipif(bool(missing()), reason=missing())]

HOSTS, SEED, GRADIENT_MB, BATCH = 2, 11, 4, 4
AT_S, DURATION_S = 3, 16
SECOND_NS = 1_000_000_000
SCENARIO = f"""
[fabric]
hosts = {HOSTS}
rails = 2
leaves = 1
spines = 2

[services]
"remediator.armed" = "always"
"remediator.probation_s" = 1.0

[workload]
kind = "train"

[train]
gradient_mb = {GRADIENT_MB}
batch = {BATCH}
seed = {SEED}

[[fault]]
at_s = {AT_S}
kind = "link-down"
where = "node1.rail0"
for_s = 5

[run]
duration_s = {DURATION_S}
"""


def losses(folder: Path) -> dict[str, list[float]]:
    """Each rank's, step by step."""
    files = sorted(folder.glob("*.jsonl"))
    return {file.stem: [json.loads(line)["loss"] for line in file.read_text().splitlines()] for file in files}


def undisturbed(folder: Path, steps: int, port: int) -> dict[str, list[float]]:
    """What the same job loses where no link ever fails: on this machine's loopback addresses."""
    folder.mkdir()
    ranks = []
    for rank in range(HOSTS):
        environment = {
            "RANK": str(rank),
            "WORLD_SIZE": str(HOSTS),
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(port),
        }
        arguments = [
            "--address", f"127.0.1.{1 + rank}", "--address", f"127.0.2.{1 + rank}",
            "--record", str(folder / f"node{rank}.jsonl"),
            "--gradient-bytes", str(GRADIENT_MB * 1_000_000), "--batch", str(BATCH), "--seed", str(SEED),
            "--steps", str(steps),
        ]  # fmt: skip
        ranks.append(subprocess.Popen([sys.executable, "-m", JOB, *arguments], env=os.environ | environment))
    assert [rank.wait(timeout=patience(300)) for rank in ranks] == [0] * HOSTS
    return losses(folder)


def ended_lab_ns(folder: Path, known: dict[str, int]) -> dict[str, list[int]]:
    """When each rank's steps ended, in lab time, by a step of which both times are known."""
    steps = {file.stem: [json.loads(line) for line in file.read_text().splitlines()] for file in folder.glob("*.jsonl")}
    base_ns = known["began_ns"] - steps[known["node"]][known["step"]]["began_ns"]
    return {node: [step["ended_ns"] + base_ns for step in done] for node, done in steps.items()}


def test_a_job_that_loses_a_link_goes_on_and_loses_nothing_else(tmp_path, kept_port):
    """Its losses are to the bit those of a job that no fault befell, and it went on after the healing."""
    (tmp_path / "train.toml").write_text(SCENARIO)
    told = lab_report(tmp_path / "train.toml", tmp_path)
    (fault,) = told["faults"]

    assert fault["moved_ns"] is not None, told["said"]
    assert fault["train"]["deaths"] == told["train"]["deaths"] == []
    assert fault["train"]["stuck"] is False
    assert "no rank died, no step took longer than" in told["said"]
    assert "No rank of the job died." in told["said"]
    assert told["train"]["folder"] == str(tmp_path / "lab/train")
    seen = losses(tmp_path / "lab/train")
    steps = min(len(values) for values in seen.values())
    ended = ended_lab_ns(tmp_path / "lab/train", told["train"]["longest"])
    over_ns = fault["injected_ns"] + (DURATION_S - AT_S) * SECOND_NS
    # The report was made when the run was over, and the job went on meanwhile.
    assert (
        min(sum(at_ns < over_ns - SECOND_NS for at_ns in of_rank) for of_rank in ended.values())
        <= told["train"]["steps"]
        <= steps
    )
    assert all(of_rank[-1] > fault["healed_ns"] for of_rank in ended.values())
    assert undisturbed(tmp_path / "undisturbed", steps, kept_port) == {
        node: values[:steps] for node, values in seen.items()
    }
