"""The wheel of compiled code in a container that has nothing else of ours."""

from __future__ import annotations

import platform
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
from compose_fleet import engine

ROOT = Path(__file__).parents[2]
BIN = Path(sys.executable).parent
PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"
CALL = "from foliot_native import delays; print(delays.digest([0, 0, 1], [7, 5, 9], 3)[0].tolist())"
pytestmark = [
    pytest.mark.containers,
    pytest.mark.skipif(find_spec("ziglang") is None, reason="zig is not installed (make wheels)"),
]


def test_the_wheel_works_in_a_clean_container(tmp_path):
    """Without a network: what is installed comes from the folder that is mounted."""
    reason = engine()
    if reason:
        pytest.skip(reason)
    subprocess.run([ROOT / "native/wheels", BIN, tmp_path], capture_output=True, check=True)
    fetch = [BIN / "pip", "download", "-q", "--no-deps", "--only-binary", ":all:", "-d", tmp_path]
    subprocess.run([*fetch, f"numpy=={np.__version__}"], check=True)
    install = "pip install -q --root-user-action=ignore --no-index --find-links /wheels foliot-native"
    said = subprocess.run(
        ["docker", "run", "--rm", "--network", "none", "-v", f"{tmp_path}:/wheels:ro", f"python:{PYTHON}-slim",
         "sh", "-c", f"{install} && python -c '{CALL}'"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert said.stdout == "[5, 9, 0]\n", f"{platform.machine()}: {said.stderr}"
