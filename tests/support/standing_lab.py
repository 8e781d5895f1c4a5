"""A lab that runs a scenario to its end and then stands, to be asked and disturbed."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING

import forked_lab
import pytest

from lab_report import missing
from patience import patience

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

FOLIOT = str(Path(sys.executable).with_name("foliot"))


class StandingLab:
    """The lab's process, and what it says.

    Parameters:
        options: more of ``foliot lab run``.
        environment: more variables of the lab and of what `execute` runs.
    """

    def __init__(self, folder: Path, scenario: str, options: tuple[str, ...], environment: Mapping[str, str]) -> None:
        (folder / "scenario.toml").write_text(scenario)
        self.folder = folder / "lab"
        self._report_file = folder / "report.json"
        self._environment = os.environ | environment
        self._printed = folder / "said"
        with self._printed.open("wb") as said:
            self.process = forked_lab.start(
                forked_lab.COMMAND, "lab", "run", "--force", str(folder / "scenario.toml"), "--stay", "--port", "0",
                *options, "--report", str(self._report_file), "--folder", str(self.folder), said=said,
                env=self._environment,
            )  # fmt: skip
        self.address = ""
        """The origin of the gateway."""

    def through(self) -> None:
        """Waits until the scenario is over and the lab stands."""
        while "until you interrupt it" not in self.said:
            assert self.process.poll() is None, self.said
            time.sleep(0.1)
        (line,) = (line for line in self.said.splitlines() if line.startswith("the API will be at "))
        self.address = line.split()[-1].removesuffix("/api/v1/")
        self.report = json.loads(self._report_file.read_text())

    @property
    def said(self) -> str:
        """All that it has said."""
        return self._printed.read_text()

    def get(self, path: str) -> list[dict]:
        """What the gateway answers, below ``/api/v1/``."""
        with urllib.request.urlopen(f"{self.address}/api/v1/{path}", timeout=patience(30)) as answer:
            return json.load(answer)

    def execute(self, place: str, *command: str, **environment: str) -> str:
        """What a command in the namespace of a host, or ``control``, says."""
        with tempfile.TemporaryFile() as said, tempfile.TemporaryFile() as errors:
            process = forked_lab.start(
                forked_lab.COMMAND, "lab", "exec", "--folder", str(self.folder), place, "--", *command, said=said,
                errors=errors, env=self._environment | environment, is_lab=False,
            )  # fmt: skip
            try:
                status = process.wait(patience(60))
            finally:
                process.kill()
            for file in (said, errors):
                file.seek(0)
            assert status == 0, errors.read().decode()
            return said.read().decode()

    def until(self, what, why: str):
        """What a function returns, as soon as that is true of anything."""
        give_up_s = time.monotonic() + patience(30)
        while not (found := what()):
            assert time.monotonic() < give_up_s, why
            time.sleep(0.2)
        return found

    def end(self) -> int:
        """Interrupts it; its exit status."""
        self.process.send_signal(signal.SIGINT)
        try:
            return self.process.wait(patience(60))
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise


def descendants(pid: int) -> list[int]:
    """The processes that a process has started, and those that they have."""
    listed = subprocess.run(["ps", "-o", "pid=", "--ppid", str(pid)], capture_output=True, text=True, check=False)
    children = [int(each) for each in listed.stdout.split()]
    return children + [each for child in children for each in descendants(child)]


@contextlib.contextmanager
def standing(
    folder: Path, scenario: str, *options: str, environment: Mapping[str, str] | None = None
) -> Iterator[StandingLab]:
    """Builds it, and takes it down."""
    if problems := missing():
        pytest.skip(problems)
    lab = StandingLab(folder, scenario, options, environment or {})
    try:
        lab.through()
        yield lab
    finally:
        if lab.process.poll() is None:
            lab.end()
