"""A real training job in a real lab that loses a link, a rank, a host and its connections, and goes on regardless."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from bench.ranks import undisturbed
from foliot_lab.scenario.spec import TrainSpec
from foliot_lab.workload.train.ranks import missing
from lab_report import lab_report
from patience import patience

pytestmark = [pytest.mark.e2e, pytest.mark.net, pytest.mark.skipif(bool(missing()), reason=missing())]

SCENARIO = Path(__file__).parents[1] / "docs/examples/replace.toml"
RANKS, GRADIENT_MB = 3, 2.0
PATIENT = "\n[expect]\nstall_ms = 30_000\n"
"""How long the job stands is for benches to say. On a slow and busy machine it takes four times as long as promised."""
GAVE_UP = "this process ends"
"""What a rank says that waits in Gloo for what never comes, as `test_torch_groups` explains. No spare is left for it."""


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    """The report of a run of the example in which no rank gave up."""
    for _ in range(3):
        folder = tmp_path_factory.mktemp("replace")
        (folder / "replace.toml").write_text(SCENARIO.read_text() + PATIENT)
        found = lab_report(folder / "replace.toml", folder)
        if not any(GAVE_UP in death["reason"] for death in found["train"]["deaths"]):
            return found
    return pytest.fail("a rank gave up each time")


def test_a_lost_link_ends_no_rank(report):
    """Traffic leaves it and returns, and the report says how long the longest step was."""
    fault = report["faults"][0]
    assert fault["moved_ns"] is not None, report["said"]
    assert fault["restored_ns"] > fault["healed_ns"]
    assert fault["train"]["deaths"] == []
    assert fault["train"]["stuck"] is False
    assert "no rank died, no step took longer than" in report["said"]


def test_lost_ranks_go_to_spares(report):
    """The killed one at once, that of the drained host at a step's end; each once, and no other."""
    found = [
        (row["fault"], row["rank"], row["from"], row["to"] in {"node3", "node4"}, row["cause"], row["planned"])
        for row in report["replacements"]
    ]
    assert found == [
        ("f2", 2, "node2", True, "dead", False), ("f3", 1, "node1", True, "drain", True),
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


def test_ranks_whose_connections_were_reset_form_their_group_anew(report):
    """No spare takes a rank, and nobody is blamed. It takes longer than a usual step."""
    outcome = next(each for each in report["verdict"]["outcomes"] if each["fault"] == "f4")
    assert outcome["held"][-1]["what"] == "stall_ms", report["said"]
    assert report["faults"][3]["train"]["stall_ms"] > 1_000
    assert "form their group anew: broken" in report["said"]
    assert report["faults"][3]["detected_ns"] is not None


def test_the_job_goes_on_and_every_outcome_is_right(report):
    """Only the killed process died, and what was promised is held against it."""
    assert report["verdict"]["right"], report["said"]
    assert {death["node"] for death in report["train"]["deaths"]} == {"node2"}
    assert (report["unexplained"]["events"], report["unexplained"]["commands"]) == (0, 0), report["said"]
    held = [held["what"] for outcome in report["verdict"]["outcomes"] for held in outcome["held"]]
    assert held.count("stall_ms") == 3
    assert report["jobs"][0]["ranks"] == RANKS
    assert report["jobs"][0]["spares"] == 2


def test_its_losses_are_those_of_a_job_that_lost_nothing(report, tmp_path):
    """To the bit, in every step: who takes a rank goes on where it was, with the same data."""
    steps = report["train"]["steps"]
    whole = undisturbed.losses(
        tmp_path, ranks=RANKS, gradient_mb=GRADIENT_MB, seed=TrainSpec().seed, steps=steps, niceness=0,
        within_s=patience(300),
    )  # fmt: skip
    assert len(whole) == steps
    assert hashlib.sha256(whole.astype("<f8").tobytes()).hexdigest() == report["train"]["loss_sha256"]
