"""The interface of gRPC as buf sees it.

What clients of the last release built on stays, and a client that shares no code with the gateway reads it.
"""

import asyncio
import json
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from foliot_schemas import Event, PortState
from patience import patience

ROOT = Path(__file__).parents[3]
PROTO = Path("schemas/proto")
RPC = Path("services/gateway/foliot_gateway/rpc")
BUF = next((ROOT / PROTO / "node_modules/@bufbuild").glob("buf-*/bin"), None)
"""Where buf itself is. What npm finds it by starts Node.js twice, which takes longer than buf does."""
RELEASED = PROTO / "released/foliot.v1.binpb"


BY_BUF = {**os.environ, "PATH": f"{BUF}:{os.environ['PATH']}"}
pytestmark = pytest.mark.skipif(
    BUF is None or not (ROOT / PROTO / "node_modules/.done").exists(),
    reason="buf is not installed: make schemas/proto/node_modules/.done",
)


@pytest.fixture
def tree(tmp_path):
    """A copy of what buf reads and writes."""
    shutil.copytree(ROOT / PROTO, tmp_path / PROTO, ignore=shutil.ignore_patterns("node_modules"))
    (tmp_path / PROTO / "node_modules").symlink_to(ROOT / PROTO / "node_modules")
    shutil.copytree(ROOT / RPC, tmp_path / RPC, ignore=shutil.ignore_patterns("*.py", "__pycache__"))
    return tmp_path


def scripts(tree):
    """What npm runs, by name."""
    return json.loads((tree / PROTO / "package.json").read_text())["scripts"]


def run(tree, script):
    """What a script of the interface says, and its exit status."""
    command = ("sh", "-c", scripts(tree)[script])
    done = subprocess.run(
        command, cwd=tree / PROTO, env=BY_BUF, capture_output=True, text=True, timeout=patience(120), check=False
    )
    return done.returncode, done.stdout + done.stderr


def change(tree, *changes):
    """Writes something else into files of the interface, where it occurs once, and builds the descriptor anew."""
    for file, old, new in changes:
        path = tree / PROTO / "foliot/v1" / file
        text, count = re.subn(old, new, path.read_text())
        assert count == 1
        path.write_text(text)
    assert run(tree, "build") == (0, "")


def test_the_interface_as_it_is_breaks_nothing(tree):
    """And the descriptor that is served is what the files say."""
    assert run(tree, "lint") == (0, "")


def test_breaking_changes_fail_although_the_descriptor_was_built_anew(tree):
    """Of a type, a number, a method and an enumeration.

    They are held against the last release, which only a release writes; and no release takes them up.
    """
    released = (tree / RELEASED).read_bytes()
    change(
        tree,
        ("live.proto", r"int64 events = 1;", "string events = 1;"),
        ("fleet.proto", r"repeated NicView nics = 2;", "repeated NicView nics = 20;"),
        ("live.proto", r"returns \(stream WatchResponse\)", "returns (WatchResponse)"),
        ("fleet.proto", r"NIC_STATE_ADMIN_DOWN = \d+;", "NIC_STATE_ADMIN_DOWN = 9;"),
    )

    for script in ("lint", "release"):
        status, said = run(tree, script)
        assert status != 0
        for complaint in (
            'Field "1" with name "events" on message "Missed" changed type',
            'Previously present field "2" with name "nics" on message "NodeView"',
            'RPC "Watch" on service "LiveService" changed',
            "NicState",
        ):
            assert complaint in said
    assert (tree / RELEASED).read_bytes() == released


def test_a_field_more_breaks_nothing_and_is_promised_by_the_next_release(tree):
    """Until that, nothing remembers it; after it, it stays."""
    released = (tree / RELEASED).read_bytes()
    more = "int64 events = 1;\n  // When. In ns.\n  int64 since_ns = 2;"
    change(tree, ("live.proto", r"int64 events = 1;", more))
    assert run(tree, "lint") == (0, "")
    assert (tree / RELEASED).read_bytes() == released

    assert run(tree, "release") == (0, "")
    path = tree / PROTO / "foliot/v1/live.proto"
    path.write_text(path.read_text().replace(more, "int64 events = 1;"))
    status, said = run(tree, "breaking")
    assert status != 0
    assert '"since_ns"' in said


def test_a_descriptor_that_was_not_built_anew_fails(tree):
    """What is served would not be what the files say."""
    path = tree / PROTO / "foliot/v1/live.proto"
    path.write_text(
        path.read_text().replace("int64 events = 1;", "int64 events = 1;\n  // When. In ns.\n  int64 since_ns = 2;")
    )

    assert run(tree, "lint")[0] != 0


async def started(*arguments):
    """``buf curl``, a client in Go, without a proxy between."""
    command = ("sh", "-c", f'exec {scripts(ROOT)["ask"]} "$@"', "ask", *arguments)
    return await asyncio.create_subprocess_exec(
        *command, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE, env={**BY_BUF, "NO_PROXY": "*"}
    )


async def answered(*arguments):
    """Its exit status, and what it prints on either output."""
    async with asyncio.timeout(patience(120)):
        curl = await started(*arguments)
        out, err = await curl.communicate()
    return curl.returncode, out.decode(), err.decode()


async def test_a_client_of_another_kind_learns_and_reads_the_interface(served, store, rpc_port):
    """By reflection: services, a list, a question with a request, an error with its reason."""
    store.fleet.fold_port(
        PortState(
            node="node3", nic="node3.rail0", at_ns=7, carrier=False, admin_up=True, carrier_down_count=1,
            carrier_up_count=1, counters={"rx_bytes": 1 << 60},
        )
    )  # fmt: skip
    store.event(Event(id="e1", kind="flap", who="node3.rail0", state="down", at_ns=1, since_ns=1))
    address = f"http://127.0.0.1:{rpc_port}"

    _, listed, _ = await answered("--list-services", address)
    _, nodes, _ = await answered(f"{address}/foliot.v1.FleetService/ListNodes")
    _, events, _ = await answered(
        "-d", '{"kind": "flap", "limit": 5}', f"{address}/foliot.v1.RecordsService/ListEvents"
    )
    status, _, refused = await answered("-d", '{"event": "e1"}', f"{address}/foliot.v1.TracesService/GetTraceOfEvent")

    assert {"foliot.v1.LiveService", "grpc.health.v1.Health", "grpc.reflection.v1.ServerReflection"} <= set(
        listed.split()
    )
    (nic,) = json.loads(nodes)["nodes"][0]["nics"]
    assert (nic["condition"], nic["counters"]) == ("CONDITION_LOST", {"rx_bytes": str(1 << 60)})
    assert json.loads(events)["events"][0]["id"] == "e1"
    assert status != 0
    assert json.loads(refused)["code"] == "not_found"
    assert json.loads(refused)["details"][0]["type"] == "google.rpc.ErrorInfo"


async def test_a_client_of_another_kind_watches_until_the_gateway_ends(served, rpc_port):
    """It is told the state, and the end is no error to it."""
    async with asyncio.timeout(patience(120)):
        curl = await started(f"http://127.0.0.1:{rpc_port}/foliot.v1.LiveService/Watch")
        while b'"state"' not in (line := await curl.stdout.readline()):
            assert line, (await curl.stderr.read()).decode()
        served.cancel()
        _, err = await curl.communicate()
        await asyncio.gather(served, return_exceptions=True)

    assert (curl.returncode, err) == (0, b"")
