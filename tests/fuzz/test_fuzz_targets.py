"""The fuzzing targets: sound inputs pass, and a short fuzz of each finds nothing."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from pathlib import Path

import pytest
import seeds
from targets import FAMILIES

from draws import draws
from patience import patience

RUNS = len(draws(800))
"""Inputs for each family."""


@pytest.mark.parametrize("family", FAMILIES)
def test_sound_inputs_and_their_truncations_pass(family):
    """What fuzzing starts from, whole and cut anywhere."""
    for seed in seeds.of(family):
        for length in range(len(seed), -1, -max(1, len(seed) // 40)):
            FAMILIES[family](seed[:length])


def test_a_target_finds_what_there_is_to_find(monkeypatch):
    """A core that fails at a message is not swallowed."""

    def fails(*_):
        raise LookupError

    monkeypatch.setattr("targets.Pipeline.observe", fails)
    with pytest.raises(LookupError):
        FAMILIES["messages"](next(seed for seed in seeds.of("messages") if b"delay.v1" in seed))


@pytest.fixture(scope="module")
def fuzzed():
    """What was said of each family, and the verdict: as many inputs each, the same in every run, and seldom a few more."""
    if importlib.util.find_spec("atheris") is None:
        pytest.skip("atheris has no wheel for this platform")
    command = [sys.executable, str(Path(__file__).with_name("run.py")), "--runs", str(RUNS), "--seed", "1"]
    done = subprocess.run(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=patience(900), check=False
    )
    _, *said = re.split(r"^(\w+): /.*$", done.stdout, flags=re.MULTILINE)
    return dict(zip(said[::2], said[1::2], strict=True)), done.stdout.splitlines()[-1]


@pytest.mark.parametrize("family", FAMILIES)
def test_a_short_fuzz_finds_nothing(fuzzed, family):
    """In a process of its own, which the fuzzer ends."""
    said, verdict = fuzzed
    assert re.fullmatch(r"found (nothing|something in: .+)", verdict)
    assert not re.search(rf"\b{family}\b", verdict), said[family][-4_000:]
    ran = re.search(r"Done (\d+) runs", said[family])
    assert ran is not None, said[family][-4_000:]
    assert int(ran[1]) >= RUNS


def test_compiled_code_passes_its_tests_where_every_access_is_looked_at(fuzzed):
    """In the build with sanitizers, which comes after the family before."""
    said, verdict = fuzzed
    assert not re.search(r"\bnative\b", verdict), said["kernel_logs"][-4_000:]
    assert re.search(r"\d+ passed|native: left out", said["kernel_logs"]), said["kernel_logs"][-4_000:]
