"""What `make` says where something cannot be fetched."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[1]
_HINT = "proxy that inspects TLS"
_PYTHON = """#!/bin/sh
# python -m venv FOLDER, with a pip that reaches no index.
mkdir -p "$3/bin"
printf '#!/bin/sh\necho "no index: $*" >&2\nexit 23\n' > "$3/bin/pip"
chmod +x "$3/bin/pip"
"""


def make(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Runs make, and not as a part of another that runs this test."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
    return subprocess.run(["make", *arguments], cwd=ROOT, env=environment, capture_output=True, text=True, check=False)


def test_a_step_that_cannot_fetch_points_to_certificates_and_fails(tmp_path):
    """With the status of what failed; the hint comes only then, and after what was said."""
    venv, python = tmp_path / "venv", tmp_path / "python"
    python.write_text(_PYTHON)
    python.chmod(0o755)
    done = make(f"VENV={venv}", f"PYTHON={python}", f"{venv}/bin/uv")
    assert done.returncode == 2
    said = "no index: install -q --disable-pip-version-check --require-hashes -r requirements/setup.txt"
    assert done.stderr.index(said) < done.stderr.index(_HINT) < done.stderr.index("Error 23")
    assert _HINT not in done.stdout
    assert f"{venv}/bin/pip install" in done.stdout
    assert not (venv / "bin/uv").exists()
