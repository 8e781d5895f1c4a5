"""A NIC's device that goes and comes anew is used again, and is the only way that is left a little later, without the bus; in a lab with all services."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from foliot_lab import kernel
from patience import patience

pytestmark = [pytest.mark.e2e, pytest.mark.net]

SCENARIO = """
[fabric]
hosts = 4
rails = 2
leaves = 2
spines = 2

[services]
"remediator.armed" = "always"
"remediator.probation_s" = 1.0

[workload]
kind = "ring"
load = 0.2

[[fault]]
id = "reload"
at_s = 2
kind = "reload"
where = "node3.rail0"
for_s = 2

[[fault]]
id = "cut"
at_s = 12
kind = "bus-cut"
where = "bus"

[[fault]]
id = "first"
at_s = 13
kind = "link-down"
where = "node3.rail0"
for_s = 2

[[fault]] # no way for a second, then the new device alone
id = "second"
at_s = 14
kind = "link-down"
where = "node3.rail1"

[run]
duration_s = 26
"""


def test_a_new_device_carries_what_the_old_one_did(tmp_path):
    """Traffic leaves it, is back, and returns to it at once where no other way lives: each within what is promised."""
    missing = kernel.missing()
    if missing:
        pytest.skip(" ".join(missing))
    (tmp_path / "scenario.toml").write_text(SCENARIO)
    done = subprocess.run(
        [str(Path(sys.executable).with_name("foliot")), "lab", "run", str(tmp_path / "scenario.toml"), "--port", "0",
         "--report", str(tmp_path / "report.json"), "--folder", str(tmp_path / "lab")],
        capture_output=True, text=True, check=False, timeout=patience(200),
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    faults = {fault["id"]: fault for fault in json.loads((tmp_path / "report.json").read_text())["faults"]}
    assert faults["reload"]["restored_ns"] is not None
    assert faults["second"]["moved_ns"] > faults["first"]["healed_ns"]
