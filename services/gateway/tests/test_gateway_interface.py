"""The interface of gRPC as buf sees it: what clients of the last release built on stays."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from patience import patience

ROOT = Path(__file__).parents[3]
PROTO = Path("schemas/proto")
RPC = Path("services/gateway/foliot_gateway/rpc")
NPM = ROOT / "services/gateway/web/npm"
RELEASED = PROTO / "released/foliot.v1.binpb"


@pytest.fixture
def tree(tmp_path):
    """A copy of what buf reads and writes."""
    if not (ROOT / PROTO / "node_modules/.done").exists():
        pytest.skip("buf is not installed: make schemas/proto/node_modules/.done")
    shutil.copytree(ROOT / PROTO, tmp_path / PROTO, ignore=shutil.ignore_patterns("node_modules"))
    (tmp_path / PROTO / "node_modules").symlink_to(ROOT / PROTO / "node_modules")
    shutil.copytree(ROOT / RPC, tmp_path / RPC, ignore=shutil.ignore_patterns("*.py", "__pycache__"))
    return tmp_path


def run(tree, script):
    """What a script of the interface says, and its exit status."""
    command = (NPM, "--prefix", tree / PROTO, "run", "--silent", script)
    done = subprocess.run(command, capture_output=True, text=True, timeout=patience(120), check=False)
    return done.returncode, done.stdout + done.stderr


def change(tree, file, old, new):
    """Writes something else into a file of the interface, where it occurs once, and builds the descriptor anew."""
    path = tree / PROTO / "foliot/v1" / file
    text, count = re.subn(old, new, path.read_text())
    assert count == 1
    path.write_text(text)
    assert run(tree, "build") == (0, "")


def test_the_interface_as_it_is_breaks_nothing(tree):
    """And the descriptor that is served is what the files say."""
    assert run(tree, "lint") == (0, "")


@pytest.mark.parametrize(
    ("file", "old", "new", "complaint"),
    [
        ("live.proto", r"int64 events = 1;", "string events = 1;", 'Field "1" with name "events" on message "Missed" changed type'),
        ("live.proto", r"int64 events = 1;", "int64 events = 2;", 'Previously present field "1" with name "events" on message "Missed"'),
        ("live.proto", r"returns \(stream WatchResponse\)", "returns (WatchResponse)", 'RPC "Watch" on service "LiveService" changed'),
        ("fleet.proto", r"NIC_STATE_ADMIN_DOWN = \d+;", "NIC_STATE_ADMIN_DOWN = 9;", "NicState"),
    ],
    ids=["type", "number", "method", "enum"],
)  # fmt: skip
def test_a_breaking_change_fails_although_the_descriptor_was_built_anew(tree, file, old, new, complaint):
    """It is held against the last release, which only a release writes; and no release takes it up."""
    released = (tree / RELEASED).read_bytes()
    change(tree, file, old, new)

    for script in ("lint", "release"):
        status, said = run(tree, script)
        assert status != 0
        assert complaint in said
    assert (tree / RELEASED).read_bytes() == released


def test_a_field_more_breaks_nothing_and_is_promised_by_the_next_release(tree):
    """Before the release it may go again; after it, it stays."""
    more = "int64 events = 1;\n  // When. In ns.\n  int64 since_ns = 2;"
    change(tree, "live.proto", r"int64 events = 1;", more)
    assert run(tree, "lint") == (0, "")
    change(tree, "live.proto", re.escape(more), "int64 events = 1;")
    assert run(tree, "lint") == (0, "")

    change(tree, "live.proto", r"int64 events = 1;", more)
    assert run(tree, "release") == (0, "")
    change(tree, "live.proto", re.escape(more), "int64 events = 1;")
    assert run(tree, "lint")[0] != 0


def test_a_descriptor_that_was_not_built_anew_fails(tree):
    """What is served would not be what the files say."""
    path = tree / PROTO / "foliot/v1/live.proto"
    path.write_text(
        path.read_text().replace("int64 events = 1;", "int64 events = 1;\n  // When. In ns.\n  int64 since_ns = 2;")
    )

    assert run(tree, "lint")[0] != 0
