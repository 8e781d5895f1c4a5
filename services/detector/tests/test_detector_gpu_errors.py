"""Nodes whose GPUs have errors: when nothing should run there any more, and when again."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from told_job import START_NS, S, node

from foliot_detector.core.detectors.gpu_errors.xids import XIDS
from foliot_detector.core.pipeline import Pipeline
from foliot_detector.settings import DetectorSettings
from foliot_schemas import DelayBatch, DelayRow, GpuError, Node, PortState, decode, encode
from foliot_schemas.event import Event

HOUR_S = 3_600


class Host:
    """A node, and what its agent and its probe tell."""

    def __init__(self, **settings):
        self.now_ns = START_NS
        self.pipeline = Pipeline(DetectorSettings(**settings))
        self.pipeline.observe(node("node0"))
        self.boot("a")

    def error(self, xid, device="0000:3b:00", age_s=0.0):
        """The driver logs an error, and the agent tells it."""
        at_ns = self.now_ns - round(age_s * S)
        error = GpuError(node="node0", at_ns=at_ns, bound_ns=9, xid=xid, device=device, message="GPU has fallen off")
        return self.pipeline.observe(error, 0)

    def boot(self, boot):
        """The probe tells of a port, in a boot."""
        return self.pipeline.observe(
            PortState(
                node="node0", nic="node0.rail0", at_ns=self.now_ns, carrier=True, admin_up=True, carrier_down_count=0,
                carrier_up_count=1, fault=boot,
            ), 0,
        )  # fmt: skip

    def wait(self, seconds):
        """Lets time pass; returns what was said, but of the probe's own silence."""
        found = []
        for _ in range(round(seconds / 10)):
            self.now_ns += 10 * S
            found += [event for event in self.pipeline.tick(10 * S) if event.kind == "hardware"]
        return found


@pytest.mark.parametrize(
    ("xid", "state"),
    [(79, "failed"), (48, "failed"), (95, "failed"), (119, "failed"), (64, "degraded"), (54, "degraded"),
     (74, "degraded"), (145, "degraded")],
)  # fmt: skip
def test_an_error_of_the_hardware_makes_an_event_about_its_node(xid, state):
    """With its number and its device, as of when the kernel logged it."""
    host = Host()
    (event,) = host.error(xid, age_s=2)

    assert (event.kind, event.who, event.state, event.since_ns) == ("hardware", "node0", state, host.now_ns - 2 * S)
    assert (event.evidence["xid"], event.evidence["device"]) == (xid, "0000:3b:00")
    assert event.related == {"nodes": ("node0",)}


@pytest.mark.parametrize("xid", [13, 31, 43, 45, 63, 92, 94, 154, 160, 9_999])
def test_an_error_of_a_program_makes_none(xid):
    """Nor does one that the driver deals with, one that sends to another, or one that nobody knows."""
    assert Host().error(xid) == []


def test_an_error_that_repeats_makes_one_event():
    """On whichever device; so does another of which no more follows."""
    host = Host()
    assert len(host.error(119)) == 1
    host.wait(1_200)

    assert [*host.error(119), *host.error(119, "0000:5e:00"), *host.error(64)] == []


def test_a_worse_error_makes_another():
    """What is to be reset may fail, and may then be lost until the node starts anew."""
    host = Host()
    found = [event for xid in (64, 119, 79, 62) for event in host.error(xid)]

    assert [(event.state, event.evidence["xid"]) for event in found] == [
        ("degraded", 64), ("failed", 119), ("failed", 79),
    ]  # fmt: skip


@pytest.mark.parametrize("xid", [79, 119])
def test_it_ends_when_the_node_has_started_anew(xid):
    """Its probe says so. The same error after that is another."""
    host = Host()
    (begun,) = host.error(xid)
    assert host.boot("a") == []
    (ended,) = host.boot("b")

    assert (ended.state, ended.cause, ended.fault, ended.related) == (
        "restarted", begun.id, begun.fault, begun.related,
    )  # fmt: skip
    host.now_ns += S
    assert [event.state for event in host.error(xid)] == ["failed"]


def test_it_ends_an_hour_after_the_last_error_that_a_reset_mends():
    """Nobody says that a GPU was reset."""
    host = Host()
    host.error(64)
    assert host.wait(HOUR_S - 20) == []
    host.error(64)
    assert host.wait(HOUR_S - 20) == []

    assert [event.state for event in host.wait(40)] == ["restarted"]


def test_one_that_has_fallen_off_the_bus_stays_so():
    """Its driver logs nothing more of it."""
    host = Host()
    host.error(79)

    assert host.wait(3 * HOUR_S) == []


def test_another_run_of_the_detector_ends_it():
    """The event names the boot in which it was."""
    (begun,) = Host().error(79)
    later = Host()
    later.pipeline.resume(decode(encode(begun), Event))
    assert later.error(79) == []

    assert [event.state for event in later.boot("b")] == ["restarted"]


def test_what_the_kernel_has_kept_for_long_is_over():
    """An agent that is started anew tells it again."""
    host = Host()
    host.wait(3 * HOUR_S)
    header = {"node": "node0", "at_ns": host.now_ns, "interval_ns": S // 10, "bound_ns": 9, "paths": ()}
    host.pipeline.observe(DelayBatch.of(np.zeros(0, DelayRow), **header), 0)

    assert host.error(119, age_s=2 * HOUR_S) == []


def test_a_site_decides_otherwise():
    """By the number of an error."""
    host = Host(xid={"31": "failed", "79": "degraded", "119": "ignore"})

    assert [event.state for xid in (119, 79, 31) for event in host.error(xid)] == ["degraded", "failed"]


def test_a_node_that_has_left_the_fleet_is_forgotten():
    """And what strangers say is counted."""
    host = Host()
    host.error(79)
    host.pipeline.observe(Node(name="node0", nics=()))

    assert host.error(79) == []
    assert host.pipeline.counts["nodes_foreign"] == 1


@pytest.mark.parametrize("severity", ["failed", "degraded"])
def test_the_page_names_the_errors_that_the_table_has(severity):
    """An operator reads there after which of them ranks leave a node."""
    page = (Path(__file__).parents[3] / "docs/training-jobs.md").read_text()
    (row,) = re.findall(rf"^\| `{severity}` \| ([0-9, to]+) \|", page, re.MULTILINE)
    ranges = [[int(number) for number in part.split(" to ")] for part in row.split(", ")]
    named = {number for each in ranges for number in range(each[0], each[-1] + 1)}

    assert named == {number for number, follows in XIDS.items() if follows.severity == severity}
