"""The main road on a real fabric: a cut cable, a silent drop and a clock, all services real, seen from outside."""

from __future__ import annotations

import itertools
import json
import signal
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import pytest

from foliot.clock import Reader
from foliot_lab.fabric import capabilities
from foliot_schemas.fault import trace_id
from patience import patience

pytestmark = [pytest.mark.e2e, pytest.mark.net]

SCENARIO = """
[fabric]
hosts = 4
rails = 2
leaves = 2
spines = 2

[services]
"remediator.armed" = "{armed}"
"remediator.probation_s" = 1.0

[workload]
kind = "ring"
load = 0.2

[[fault]]
at_s = 3
kind = "link-down"
where = "node3.rail0"
for_s = 5

[[fault]]
at_s = 15
kind = "drop-one-way"
where = "node1.rail1"
for_s = 5

# How long it takes is for benches to say. Here the machine may be slow and busy, and stand still for two seconds.
# Found and moved: that, the second that is promised, and one to spare; not five, as long as a fault lasts. Gap: TCP's
# fifth time comes after 6.2 s, and may meet a machine that stands still. Back: the probation and the ten that are \
promised.
[expect]
found_ms = 4_000
moved_ms = 4_000
gap_ms = 10_000
back_s = 11

[run]
duration_s = 34
"""
EDGES = {
    # Who acts on whose word, between services. Armed agents have moved before anybody could command them; the way back
    # is commanded.
    "off": {("probe", "detector"), ("detector", "remediator"), ("remediator", "agent"), ("agent", "gateway")},
    "always": {
        ("probe", "detector"),
        ("probe", "agent"),
        ("agent", "agent"),
        ("remediator", "agent"),
        ("agent", "gateway"),
    },
}


def get(address: str, path: str):
    """JSON of the lab's API."""
    with urllib.request.urlopen(f"{address}{path}", timeout=patience(30)) as answer:
        return json.load(answer)


def wait_for(what):
    """What a function returns, once it returns anything: a service may be late to tell, or stand still for a moment."""
    give_up_s = time.monotonic() + patience(30)
    while (found := what()) is None:
        assert time.monotonic() < give_up_s
        time.sleep(0.2)
    return found


def edges(spans):
    """From which service to which the trace goes on."""
    by_id = {span["span_id"]: span for span in spans}
    return {(by_id[span["parent_id"]]["service"], span["service"]) for span in spans if span.get("parent_id") in by_id}


class Run:
    """A lab in a process of its own, asked while it still runs."""

    def __init__(self, folder: Path, armed: str) -> None:
        scenario = folder / "scenario.toml"
        scenario.write_text(SCENARIO.format(armed=armed))
        self.report_file = folder / "report.json"
        self.process = subprocess.Popen(
            [str(Path(sys.executable).with_name("foliot")), "lab", "run", "--force", str(scenario), "--stay",
             "--port", "0",
             "--report", str(self.report_file), "--folder", str(folder / "lab")],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )  # fmt: skip
        self.said = ""
        self.armed = armed
        self.folder = folder / "lab"

    def through(self) -> None:
        """Waits until the sequence is over and the lab goes on."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.said += line
            if line.startswith("the API will be at "):
                self.address = line.split()[-1].removesuffix("/api/v1/")
            if line.startswith("  .venv/bin/foliot lab exec"):
                break
        assert self.process.poll() is None, self.said
        self.report = json.loads(self.report_file.read_text())

    def end(self) -> int:
        """Interrupts it; its exit status."""
        self.process.send_signal(signal.SIGINT)
        try:
            rest, _ = self.process.communicate(timeout=patience(60))
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise
        self.said += rest
        return self.process.returncode

    def trace_of_the_move(self):
        """The event whose trace has the move, the edges that it lacks, and its spans, once all expected are there.

        The event is the kernel's link message. Where the probe that tells of the link stood still, a path's silence may
        come before it, and either may be what moved the traffic. Spans come in batches, and not those of all services
        at once.
        """
        opening = [event for event in self.report["faults"][0]["events"] if event.endswith(("/down", "/silent"))]
        opening.sort(key=lambda event: event.endswith("/silent"))
        deadline_s = time.monotonic() + patience(20)
        while True:
            for event in opening if self.armed == "off" else opening[:1]:
                fault = trace_id(event.rpartition("/")[0])
                spans = get(self.address, f"/api/v1/traces/{fault:032x}")["spans"]
                lacks = self.edges(event) - edges(spans)
                if (not lacks and any("confirm" in span["name"] for span in spans)) or time.monotonic() > deadline_s:
                    return event, lacks, spans
            time.sleep(0.2)

    def edges(self, event: str) -> set[tuple[str, str]]:
        """Who acts on whose word in that event's trace. Nobody tells of a silence before the detector."""
        return {edge for edge in EDGES[self.armed] if event.endswith("/down") or edge[0] != "probe"}


@pytest.fixture(scope="module", params=["off", "always"])
def lab_run(request, tmp_path_factory):
    """A finished sequence, the lab still running."""
    missing = capabilities.missing()
    if missing:
        pytest.skip(" ".join(missing))
    run = Run(tmp_path_factory.mktemp(f"armed-{request.param}"), request.param)
    try:
        run.through()
        yield run
    finally:
        if run.process.poll() is None:
            run.process.kill()
            run.process.wait()
        if run.process.stdout is not None:
            run.process.stdout.close()


def test_every_outcome_was_right(lab_run):
    """Both faults moved, both directions, and back; no flow broke; nothing happened that no fault explains."""
    assert "WRONG" not in lab_run.said, lab_run.said
    assert lab_run.report["verdict"]["right"] is True
    for outcome in lab_run.report["verdict"]["outcomes"]:
        assert f"right  {outcome['fault']:<4} {outcome['sentence']}\n" in lab_run.said
    for fault in lab_run.report["faults"]:
        assert fault["detected_ns"] is not None
        assert fault["moved_ns"] is not None
        assert fault["restored_ns"] is not None
        assert [flow["errors"] for flow in fault["flows"]] == [0] * len(fault["flows"])
        assert fault["flows"]
    assert lab_run.report["unexplained"] == {"events": 0, "commands": 0, "least_idle_cpu": None}


def test_clocks_are_right_about_the_time_and_about_themselves(lab_run):
    """Each clock is in step, under a microsecond where nothing else runs, and says so; the hard bound always holds."""

    def synchronised():
        told = get(lab_run.address, "/api/v1/clocks")
        return told if {state["status"] for state in told} == {"synchronised"} else None

    clocks, states = lab_run.report["clocks"], wait_for(synchronised)

    assert clocks["windows"] > 3
    assert clocks["within_hard_bound"] == 1.0
    assert clocks["within_bound"] > 0.9
    assert clocks["true_error_ns"]["p50"] < 20_000  # of 50 ms injected, and also where the kernel is late to deliver
    assert [state["clock"] for state in states] == [f"node{n}" for n in range(4)]
    assert max(state["hard_bound_ns"] for state in states) < 10_000_000  # a bound that says nothing would always hold


def test_one_trace_holds_the_fault_from_its_first_word_to_confirmation(lab_run):
    """Over all services, with every edge of the road."""
    _, lacks, spans = lab_run.trace_of_the_move()

    assert not lacks
    assert sum(span.get("parent_id") in {None, ""} for span in spans) == 1, "one root: the first word of it"
    assert any("confirm" in span["name"] for span in spans)


def test_the_trace_can_be_asked_for_by_event(lab_run):
    """As ``foliot trace <event id>`` does, and prints."""
    event, _, _ = lab_run.trace_of_the_move()
    printed = subprocess.run(
        [str(Path(sys.executable).with_name("foliot")), "trace", event, "--gateway", lab_run.address],
        capture_output=True, text=True, check=False,
    )  # fmt: skip

    assert printed.returncode == 0, printed.stderr
    for service in {service for edge in lab_run.edges(event) for service in edge}:
        assert service in printed.stdout


def test_the_gateway_shows_the_fleet_as_it_is_now(lab_run):
    """Four nodes, all carriers up, nothing moved any more; and it counts what happened."""

    def at_home():
        told = get(lab_run.address, "/api/v1/fleet")
        return (
            told if {(nic["state"], nic["moved"]) for node in told for nic in node["nics"]} == {("up", False)} else None
        )

    fleet = wait_for(at_home)
    with urllib.request.urlopen(f"{lab_run.address}/metrics", timeout=patience(30)) as answer:
        metrics = answer.read().decode()

    assert [node["node"] for node in fleet] == ["node0", "node1", "node2", "node3"]
    assert 'foliot_events_total{kind="flap"' in metrics
    assert get(lab_run.address, "/healthz")


def test_any_process_has_the_time_of_its_node(lab_run):
    """From the probes' pages: clocks that are milliseconds apart give times that agree within their bounds."""
    readers = [Reader(str(page)) for page in sorted(lab_run.folder.glob("node*.clock"))]
    for reader in readers:
        reader.wait(60)
    began_ns = time.monotonic_ns()
    times = [reader.now() for reader in readers]
    took_ns = time.monotonic_ns() - began_ns
    local_ns = [reader.read().local_ns for reader in readers]

    assert len(times) == 4
    assert max(local_ns) - min(local_ns) > 1_000_000
    for one, other in itertools.permutations(times, 2):
        assert one.earliest_ns <= other.latest_ns + took_ns


def test_an_interrupted_lab_leaves_nothing_behind(lab_run):
    """The last test of a run: the verdict as exit status, every process gone, also what ``lab exec`` started."""
    foliot = str(Path(sys.executable).with_name("foliot"))
    command = [foliot, "lab", "exec", "--folder", str(lab_run.folder), "node3", "--", "sleep", "1000"]
    with subprocess.Popen(command) as guest:
        try:
            while Path(f"/proc/{guest.pid}/comm").read_text() != "sleep\n":
                assert guest.poll() is None
                time.sleep(0.05)
            children = subprocess.run(
                ["ps", "-o", "pid=", "--ppid", str(lab_run.process.pid)], capture_output=True, text=True, check=True
            )
            pids = [int(pid) for pid in children.stdout.split()]

            assert lab_run.end() == int(not lab_run.report["verdict"]["right"]), lab_run.said
            assert pids
            assert [pid for pid in pids if Path(f"/proc/{pid}").exists()] == []
            assert guest.wait(timeout=patience(30)) == -signal.SIGTERM
        finally:
            guest.kill()
