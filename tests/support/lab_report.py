"""The report of a scenario that `foliot lab run` has run with all services."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from foliot_lab.fabric import capabilities
from patience import patience

FOLIOT = str(Path(sys.executable).with_name("foliot"))


def lab_report(scenario, folder):
    """What the lab reports of a scenario's file, and below `said` what it printed. Its logs stay in the folder."""
    if problems := capabilities.missing():
        pytest.skip(" ".join(problems))
    done = subprocess.run(
        [FOLIOT, "lab", "run", "--force", str(scenario), "--port", "0", "--folder", str(folder / "lab"),
         "--report", str(folder / "report.json")],
        capture_output=True, text=True, check=False, timeout=patience(400),
    )  # fmt: skip
    assert (folder / "report.json").exists(), done.stdout + done.stderr
    return json.loads((folder / "report.json").read_text()) | {"said": done.stdout}
