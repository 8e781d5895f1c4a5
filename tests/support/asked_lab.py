"""A lab that runs a scenario, is asked by its API once that is over, and is then interrupted."""

from __future__ import annotations

import contextlib
import json
import signal
import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from foliot_lab.fabric import capabilities
from foliot_schemas.fault import trace_id
from patience import patience

if TYPE_CHECKING:
    from collections.abc import Iterator

FOLIOT = str(Path(sys.executable).with_name("foliot"))
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

    def __init__(self, folder: Path, scenario: str, armed: str, options: tuple[str, ...]) -> None:
        (folder / "scenario.toml").write_text(scenario)
        self.report_file = folder / "report.json"
        self.process = subprocess.Popen(
            [FOLIOT, "lab", "run", "--force", str(folder / "scenario.toml"), "--stay", "--port", "0", *options,
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

        The event is the kernel's link message: of a lost carrier or of a port that was set down. Where the probe that tells of the link stood still, a path's silence may
        come before it, and either may be what moved the traffic. Spans come in batches, and not those of all services
        at once.
        """
        opening = [event for event in self.report["faults"][0]["events"] if event.endswith(("down", "/silent"))]
        assert opening, self.said
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
        return {edge for edge in EDGES[self.armed] if event.endswith("down") or edge[0] != "probe"}


@contextlib.contextmanager
def asked_lab(folder: Path, scenario: str, armed: str, *options: str) -> Iterator[Run]:
    """A lab whose sequence is over, and which still runs."""
    if problems := capabilities.missing():
        pytest.skip(" ".join(problems))
    run = Run(folder, scenario, armed, options)
    try:
        run.through()
        yield run
    finally:
        if run.process.poll() is None:
            run.end()
        if run.process.stdout is not None:
            run.process.stdout.close()
