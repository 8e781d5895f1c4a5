"""The contract tests of compiled code, in a build that looks at every index and every access to memory."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

_ROOT = Path(__file__).parents[2]
_BUILD = _ROOT / "run" / "sanitized"
_TESTS = (
    "native/tests/test_native_contract.py",
    "native/tests/test_native_fits_contract.py",
    "services/probe/tests/test_probe_packet_loop.py",
    "services/probe/tests/test_probe_engine.py",
)
_COMPILED = "compiled or not test_probe_engine"
"""Of the engine's tests, those without its twin. In one process with the others: each takes seconds to begin."""
_SECONDS_A_DRAW = 5
"""Drawn tests draw as many times as many, see `draws`."""
_SHORT = 0.25
"""So many times as many in a usual run, which draws all that it draws without the sanitizers as well: what is wrong with
an access is wrong for most inputs."""


def run(seconds: int) -> int:
    """Runs them for about so long, at least once. 0: nothing was found; or nothing can be compiled, which it says."""
    libraries = [_library(name) for name in ("libasan.so", "libubsan.so")]
    if not all(libraries):
        sys.stdout.write("native: left out, as there is no C compiler with sanitizers\n")
        return 0
    _build()
    environment = os.environ | {
        "LD_PRELOAD": " ".join(libraries),
        "ASAN_OPTIONS": "detect_leaks=0",  # the interpreter never frees what it keeps
        "PYTHONPATH": str(_BUILD),
        "PYTEST_ADDOPTS": "",  # which may name plugins of another path
        "FOLIOT_DRAWS": str(max(1, seconds // _SECONDS_A_DRAW) if seconds else _SHORT),
    }
    # What a sanitizer says goes to the descriptor itself, and nobody would see it who has the process ended.
    pytest = [sys.executable, "-m", "pytest", "-q", "--capture=sys", "-p", "no:cacheprovider", *_TESTS, "-k", _COMPILED]
    if not seconds:
        pytest.append("--hypothesis-profile=few")
    return subprocess.run(pytest, cwd=_ROOT, env=environment, check=False).returncode


def _build() -> None:
    """Compiles it, unless what stands there was made of these very sources: that takes longer than the tests do."""
    sources = [_ROOT / "native/setup.py", *sorted((_ROOT / "native/foliot_native").glob("*.p*"))]
    compiler = subprocess.run([_compiler(), "--version"], capture_output=True, text=True, check=True).stdout
    said = [sys.version, compiler, *(version(name) for name in ("cython", "numpy", "setuptools"))]
    parts = [*(text.encode() for text in said), *(source.read_bytes() for source in sources)]
    made_of = hashlib.sha256(b"\0".join(parts)).hexdigest()
    stamp = _BUILD / "made-of"
    if stamp.exists() and stamp.read_text() == made_of:
        return
    shutil.rmtree(_BUILD, ignore_errors=True)
    shutil.copytree(_ROOT / "native", _BUILD, ignore=shutil.ignore_patterns("build", "*.so", "*.egg-info"))
    build = [sys.executable, "setup.py", "-q", "build_ext", "--inplace"]
    subprocess.run(build, cwd=_BUILD, env=os.environ | {"FOLIOT_NATIVE_SANITIZE": "1"}, check=True)
    stamp.write_text(made_of)


def _compiler() -> str:
    return shutil.which(os.environ.get("CC", "cc")) or ""


def _library(name: str) -> str:
    """Where the compiler has a library; empty: it has none."""
    compiler = _compiler()
    if not compiler:
        return ""
    said = subprocess.run([compiler, f"-print-file-name={name}"], capture_output=True, text=True, check=False)
    path = said.stdout.strip()
    return path if Path(path).is_absolute() else ""
