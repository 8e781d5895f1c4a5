"""The wheels of a release: for the machines that their names say, and they work where nothing else of ours is."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
import zipfile
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parents[2]
BIN = Path(sys.executable).parent
RELEASE = ROOT / "run/release"
MACHINES = {"x86_64": 62, "aarch64": 183}
"""Each machine's number in the head of an ELF file (its e_machine)."""
PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"
CALL = "from foliot_native import delays; print(delays.digest([0, 0, 1], [7, 5, 9], 3)[0].tolist())"
pytestmark = pytest.mark.skipif(find_spec("ziglang") is None, reason="zig is not installed (make wheels)")


def newest_source_s():
    """When the last of what wheels are made of was written."""
    sources = [*(ROOT / "native").glob("*"), *(ROOT / "native/foliot_native").glob("*.p*")]
    sources += [ROOT / "requirements/build.txt", ROOT / "requirements/zig.txt"]
    return max(source.stat().st_mtime for source in sources if source.is_file())


@pytest.fixture(scope="module")
def wheels(tmp_path_factory):
    """The wheel of each machine, made of these sources: by `make wheels`, unless something has changed since."""
    made = [next(RELEASE.glob(f"*_{machine}.whl"), RELEASE / "none") for machine in MACHINES]
    if all(wheel.exists() and wheel.stat().st_mtime > newest_source_s() for wheel in made):
        return dict(zip(MACHINES, made, strict=True))
    folder = tmp_path_factory.mktemp("wheels")
    done = subprocess.run([ROOT / "native/wheels", BIN, folder], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return {machine: next(folder.glob(f"*_{machine}.whl")) for machine in MACHINES}


@pytest.mark.parametrize("machine", MACHINES)
def test_a_wheel_has_modules_for_its_machine_alone(wheels, machine):
    """By the head of each file, and by the name that Python looks for; no folder of where it was made is in it."""
    with zipfile.ZipFile(wheels[machine]) as wheel:
        modules = {name: wheel.read(name) for name in wheel.namelist() if name.endswith(".so")}
        stubs = {name for name in wheel.namelist() if name.endswith((".pyi", "py.typed"))}
    assert {Path(name).name.partition(".")[0] for name in modules} == {
        source.stem for source in (ROOT / "native/foliot_native").glob("*.pyx")
    }
    assert len(stubs) == len(modules) + 1
    for name, content in modules.items():
        assert name.endswith(f".cpython-{PYTHON.replace('.', '')}-{machine}-linux-gnu.so")
        assert int.from_bytes(content[18:20], "little") == MACHINES[machine]
        assert os.fsencode(ROOT) not in content
        assert os.fsencode(sys.base_prefix) not in content


def test_the_wheel_works_in_a_clean_environment(wheels, tmp_path):
    """With numpy, and nothing else."""
    if platform.machine() not in wheels:
        pytest.skip(f"no wheel is made for {platform.machine()}")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "venv"], check=True)
    python = tmp_path / "venv/bin/python"
    wheel = wheels[platform.machine()]
    subprocess.run(
        [BIN / "uv", "pip", "install", "-q", "--python", python, f"numpy=={np.__version__}", wheel], check=True
    )
    said = subprocess.run([python, "-c", CALL], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert said.stdout == "[5, 9, 0]\n"
