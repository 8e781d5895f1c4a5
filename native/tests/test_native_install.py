"""Where nothing can be compiled, one sentence says so, and nothing else fails by that."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

INSTALL = Path(__file__).parents[1] / "install"
_FETCHES_ALL_BUT = """#!/bin/sh
case "$*" in *{lacks}*) exit 1 ;; esac
"""


@pytest.fixture
def installed(tmp_path):
    """Runs the script with programs that stand in for an environment's, and returns its status and what it said."""

    def run(*, headers=True, lacks="nothing"):
        binaries, include = tmp_path / "bin", tmp_path / "include"
        for folder in (binaries, include):
            folder.mkdir()
        if headers:
            (include / "Python.h").touch()
        for name, text in {
            "python": f"#!/bin/sh\ncase $1 in -c) echo {include} ;; *) exit 1 ;; esac\n",
            "uv": _FETCHES_ALL_BUT.format(lacks=lacks),
            "pip": "#!/bin/sh\nexit 1\n",
        }.items():
            (binaries / name).write_text(text)
            (binaries / name).chmod(0o755)
        done = subprocess.run(
            [INSTALL, binaries, tmp_path / "wheels"],
            env={**os.environ, "CC": str(tmp_path / "no-compiler")}, capture_output=True, text=True, check=False,
        )  # fmt: skip
        return done.returncode, done.stdout.splitlines(), done.stderr

    return run


@pytest.mark.parametrize(
    ("how", "reason"),
    [
        ({"headers": False}, "as this Python's headers are missing"),
        ({"lacks": "build.txt"}, "as Cython could not be fetched"),
        ({"lacks": "zig.txt"}, "as there is no C compiler, and zig could not be fetched"),
        ({}, "as there is no C compiler that works"),
    ],
)
def test_what_is_missing_is_said_in_one_sentence(installed, how, reason):
    """With what Foliot does then; the status is for `make`, which goes on."""
    status, said, errors = installed(**how)
    assert status == 1
    assert errors == ""
    (sentence,) = said
    assert sentence.startswith(f"native/ was not compiled, {reason}")
    assert "Foliot runs in Python alone" in sentence
