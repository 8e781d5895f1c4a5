"""The report of a scenario that `foliot lab run` has run with all services."""

import functools
import json

import forked_lab
import pytest

from foliot_lab.fabric import capabilities
from patience import patience


def lab_report(scenario, folder):
    """What the lab reports of a scenario's file, and below `said` what it printed. Its logs stay in the folder."""
    if problems := missing():
        pytest.skip(problems)
    file, printed = folder / "report.json", folder / "said"
    with printed.open("wb") as said:
        lab = forked_lab.start(
            forked_lab.COMMAND, "lab", "run", "--force", str(scenario), "--port", "0", "--folder", str(folder / "lab"),
            "--report", str(file), said=said,
        )  # fmt: skip
    try:
        lab.wait(patience(400))
    finally:
        lab.kill()
    assert file.exists(), printed.read_text()
    return json.loads(file.read_text()) | {"said": printed.read_text()}


@functools.cache
def missing():
    """What this machine lacks for a lab, in sentences; empty if it has all."""
    return " ".join(capabilities.missing())
