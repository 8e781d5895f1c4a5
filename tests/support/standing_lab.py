"""A lab that runs a scenario to its end and then stands, with extensions in it."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pytest

from foliot_lab.fabric import capabilities
from patience import patience

if TYPE_CHECKING:
    from collections.abc import Iterator

TOYS = Path(__file__).parent.parent / "toys"
FOLIOT = str(Path(sys.executable).with_name("foliot"))


class StandingLab(NamedTuple):
    """Where it is."""

    api: str
    """Address of the gateway's API."""
    folder: Path
    said: str
    """By the lab, until it stood."""

    def get(self, path: str) -> list[dict]:
        """What the gateway answers."""
        with urllib.request.urlopen(f"{self.api}{path}", timeout=patience(30)) as answer:
            return json.load(answer)

    def execute(self, place: str, *command: str, **environment: str) -> str:
        """What a command in the namespace of a host, or ``control``, says."""
        return subprocess.run(
            [FOLIOT, "lab", "exec", "--folder", str(self.folder), place, "--", *command],
            env=os.environ | {"PYTHONPATH": str(TOYS)} | environment, capture_output=True, text=True, check=True,
            timeout=patience(60),
        ).stdout  # fmt: skip

    def until(self, what, why: str):
        """What a function returns, as soon as that is true of anything."""
        give_up_s = time.monotonic() + patience(30)
        while not (found := what()):
            assert time.monotonic() < give_up_s, why
            time.sleep(0.2)
        return found


@contextlib.contextmanager
def standing(folder: Path, scenario: str) -> Iterator[StandingLab]:
    """Builds it, and takes it down."""
    missing = capabilities.missing()
    if missing:
        pytest.skip(" ".join(missing))
    (folder / "scenario.toml").write_text(scenario)
    with subprocess.Popen(
        [FOLIOT, "lab", "run", "--force", str(folder / "scenario.toml"), "--stay", "--port", "0",
         "--folder", str(folder / "lab")],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        env=os.environ | {"PYTHONPATH": str(TOYS), "PYTHONUNBUFFERED": "1"},
    ) as running:  # fmt: skip
        said: list[str] = []
        try:
            while not (said and "until you interrupt it" in said[-1]):
                said.append(running.stdout.readline())
                assert said[-1], "".join(said)
            (address,) = (line.split()[-1] for line in said if line.startswith("the API will be at "))
            yield StandingLab(address, folder / "lab", "".join(said))
        finally:
            running.send_signal(signal.SIGINT)
            running.communicate(timeout=patience(60))
