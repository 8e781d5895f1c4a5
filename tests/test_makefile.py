"""What `make` says where something cannot be fetched."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[1]
_NOWHERE = "http://127.0.0.1:1/simple"
_HINT = "proxy that inspects TLS"


def make(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Runs make where no package index answers."""
    of_index = {"PIP_INDEX_URL": _NOWHERE, "PIP_RETRIES": "0", "PIP_CONFIG_FILE": os.devnull, "PIP_NO_CACHE_DIR": "1"}
    others = {name: value for name, value in os.environ.items() if not name.startswith(("PIP_", "UV_", "MAKE"))}
    return subprocess.run(
        ["make", *arguments], cwd=ROOT, env={**others, **of_index}, capture_output=True, text=True, check=False
    )


def test_a_step_that_cannot_fetch_points_to_certificates_and_fails(tmp_path):
    """With the status of what failed; the hint comes only then, and after what was said."""
    venv = tmp_path / "venv"
    done = make(f"VENV={venv}", f"{venv}/bin/uv")
    assert done.returncode == 2
    assert "No matching distribution found for uv" in done.stderr
    assert done.stderr.index("No matching distribution") < done.stderr.index(_HINT) < done.stderr.index("Error 1")
    assert _HINT not in done.stdout
    assert f"{venv}/bin/pip install" in done.stdout
    assert not (venv / "bin/uv").exists()
