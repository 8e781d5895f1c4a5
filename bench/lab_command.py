"""The command ``foliot lab`` as a bench starts it, once for each of its runs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from bench.scenario_text import scenario_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from foliot_lab.scenario.spec import Scenario

LAB = (sys.executable, "-u", "-m", "foliot.cli", "lab")
"""The command without its subcommand. Unbuffered, so that its last line is what it said last."""
RUN = (*LAB, "run")


class Ended(NamedTuple):
    """What a run came to."""

    report: bytes | None
    """None: it ended without one."""
    status: int
    log: Path
    """The file with all that it said."""


def run(scenario: Scenario, files: Path, lab: Path, *options: object) -> Ended:
    """Runs a scenario in a lab of its own.

    Parameters:
        files: the path of the scenario, the report and the log, without their endings. They stay there.
        lab: the folder of the lab.
        options: further ones.
    """
    file, report, log = (Path(f"{files}.{ending}") for ending in ("toml", "json", "log"))
    report.unlink(missing_ok=True)
    file.write_text(scenario_text(scenario))
    status = finished((*RUN, file, "--report", report, "--folder", lab, "--port", 0, *options), log)
    return Ended(report.read_bytes() if report.exists() else None, status, log)


def finished(command: Sequence[Any], log: Path) -> int:
    """Runs a command to its end, and returns its exit status.

    Parameters:
        log: the file for all that it says.
    """
    with (
        log.open("w") as said,
        # A session of its own: Ctrl-C reaches this process alone, which then ends the command in order.
        subprocess.Popen(
            [*map(str, command)], stdout=said, stderr=subprocess.STDOUT, start_new_session=True
        ) as process,
    ):
        try:
            return process.wait()
        except BaseException:
            process.terminate()
            raise
