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

from patience import patience


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


@pytest.mark.skipif(importlib.util.find_spec("atheris") is None, reason="atheris has no wheel for this platform")
@pytest.mark.parametrize("family", FAMILIES)
def test_a_short_fuzz_finds_nothing(family):
    """2,000 inputs, the same in every run, and seldom a few more; in a process of its own, which the fuzzer ends."""
    runner = Path(__file__).with_name("run.py")
    command = [sys.executable, str(runner), family, "--runs", "2000", "--seed", "1"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=patience(300), check=False)
    assert done.returncode == 0, done.stderr[-4_000:]
    ran = re.search(r"Done (\d+) runs", done.stderr)
    assert ran is not None, done.stderr[-4_000:]
    assert int(ran[1]) >= 2_000
