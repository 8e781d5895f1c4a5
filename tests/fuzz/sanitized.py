"""The contract tests of compiled code, in a build that looks at every index and every access to memory."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

_ROOT = Path(__file__).parents[2]
_BUILD = _ROOT / "run" / "sanitized"
_TESTS = (
    "native/tests/test_native_contract.py",
    "native/tests/test_native_fits_contract.py",
    "services/probe/tests/test_probe_packet_loop.py",
)
_ENGINES = ("services/probe/tests/test_probe_engine.py", "-k", "compiled")
_SECONDS_A_DRAW = 5
"""Drawn tests draw as many times as many, see `draws`."""


def run(seconds: int) -> int:
    """Runs them for about so long, at least once. 0: nothing was found; or nothing can be compiled, which it says."""
    libraries = [_library(name) for name in ("libasan.so", "libubsan.so")]
    if not all(libraries):
        sys.stdout.write("native: left out, as there is no C compiler with sanitizers\n")
        return 0
    shutil.rmtree(_BUILD, ignore_errors=True)
    shutil.copytree(_ROOT / "native", _BUILD, ignore=shutil.ignore_patterns("build", "*.so", "*.egg-info"))
    build = [sys.executable, "setup.py", "-q", "build_ext", "--inplace"]
    subprocess.run(build, cwd=_BUILD, env=os.environ | {"FOLIOT_NATIVE_SANITIZE": "1"}, check=True)
    environment = os.environ | {
        "LD_PRELOAD": " ".join(libraries),
        "ASAN_OPTIONS": "detect_leaks=0",  # the interpreter never frees what it keeps
        "PYTHONPATH": str(_BUILD),
        "FOLIOT_DRAWS": str(max(1, seconds // _SECONDS_A_DRAW)),
    }
    pytest = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    if not seconds:
        pytest.append("--hypothesis-profile=few")
    runs = [subprocess.run([*pytest, *tests], cwd=_ROOT, env=environment, check=False) for tests in (_TESTS, _ENGINES)]
    return max(each.returncode for each in runs)


def _library(name: str) -> str:
    """Where the compiler has a library; empty: it has none."""
    compiler = shutil.which(os.environ.get("CC", "cc"))
    if compiler is None:
        return ""
    said = subprocess.run([compiler, f"-print-file-name={name}"], capture_output=True, text=True, check=False)
    path = said.stdout.strip()
    return path if Path(path).is_absolute() else ""
