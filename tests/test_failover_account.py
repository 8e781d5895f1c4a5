"""The failover bench's arithmetic of lost time."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest

from bench.failover import account
from bench.failover.report import CALM, Taken, rows
from bench.failover.runs import Ran
from bench.failover.variants import CONTROL
from foliot_lab.faults.injection import Injection
from foliot_lab.report.allowances import Allowance, NotCounted
from foliot_lab.report.report import FaultReport

SECOND = 1_000_000_000
NOTHING = NotCounted(found=Allowance(), moved=Allowance(), no_way_ms=0.0, back=Allowance())
STEP = np.dtype([("step", "i8"), ("began_ns", "i8"), ("ended_ns", "i8"), ("comm_ns", "i8"), ("loss", "f8")])


def ran(*durations_s):
    """The records of two ranks whose steps took so long, one after another."""
    ends = np.cumsum(np.array(durations_s) * SECOND).astype(np.int64)
    rows = np.zeros(len(ends), STEP)
    rows["step"], rows["ended_ns"], rows["loss"] = np.arange(len(ends)), ends, 1 / (1 + np.arange(len(ends)))
    rows["began_ns"] = np.concatenate(([0], ends[:-1]))
    return {"node0": rows, "node1": rows.copy()}


def test_the_first_steps_do_not_count():
    """In those PyTorch sets itself up."""
    assert account.total_s(ran(5, 3, 1, 1, 1), 5) == pytest.approx(3)
    assert account.total_s(ran(5, 3, 1, 1), 5) is None


def test_what_fewer_links_take_longer_is_explained_and_the_stall_is_not():
    """Ten steps at half speed, after one that stalled for two seconds more.

    Lost are twelve seconds, of which two are the failover's own.
    """
    calm = ran(*[1.0] * 32)
    hit = ran(*[1.0] * 10, 3.0, *[2.0] * 10, *[1.0] * 11)
    away = [(round(10.5 * SECOND), 33 * SECOND)]
    lost_s = account.total_s(hit, 32) - account.total_s(calm, 32)
    assert lost_s == pytest.approx(12)
    assert account.explained_s(hit, calm, away) == pytest.approx(10)
    assert account.dip_steps(hit, away) == 1


def test_by_a_control_what_the_failover_makes_slower_is_its_own():
    """Half of the links cost one second a step; the run's steps took half a second more than that.

    Its own median would explain that half second.
    """
    calm, control = ran(*[1.0] * 32), ran(5.0, 3.0, *[2.0] * 8)
    hit = ran(*[1.0] * 10, 3.0, *[2.5] * 10, *[1.0] * 11)
    away = [(round(10.5 * SECOND), 38 * SECOND)]
    assert account.explained_s(hit, calm, away) == pytest.approx(15)
    assert account.explained_s(hit, calm, away, control) == pytest.approx(10)


def test_only_a_fault_of_a_nic_is_judged_by_the_control_of_its_repetition():
    """The control itself explains nothing, and a link of the fabric has its own steps."""
    calm = Ran(ran(*[1.0] * 32), "", (), (), {}, None, 0.5)
    throughout, never_healed = fault(1, moved_s=10.1)
    never_healed = msgspec.structs.replace(never_healed, healed_ns=None)
    slow = Ran(ran(*[1.5] * 12), "", (throughout,), (never_healed,), {}, None, 0.5)
    hit = Ran(ran(*[1.0] * 10, *[2.0] * 10, *[1.0] * 12), "", *zip(fault(1, moved_s=10.1), strict=True), {}, None, 0.5)
    taken = [
        Taken(CALM, "foliot", 1, calm, 32), Taken(CONTROL.name, "foliot", 1, slow, 12),
        Taken("NIC", "foliot", 1, hit, 32, of_a_nic=True), Taken("uplink", "foliot", 1, hit, 32),
    ]  # fmt: skip
    _, control, nic, uplink = rows(taken)
    assert (control.explained_s, control.explained_by, control.excess_s) == (None, "", None)
    assert control.restore_s is None
    assert (nic.explained_by, uplink.explained_by) == ("control", "own")
    assert nic.explained_s == pytest.approx(uplink.explained_s / 2)
    assert nic.excess_s == pytest.approx(nic.lost_s - nic.explained_s)


def fault(number, *, detected_s=None, moved_s=None, at_s=10):
    """A dead link, and what came of it."""
    restored_ns = None if moved_s is None else 31 * SECOND
    told, moved = (None if each is None else round(each * SECOND) for each in (detected_s, moved_s))
    made = FaultReport(
        id=f"f{number}", kind="drop", where="rail0.leaf0-spine0", injected_ns=at_s * SECOND,
        healed_ns=28 * SECOND, detected_ns=told, not_counted=NOTHING,
        commanded_ns=None, moved_ns=moved, restored_ns=restored_ns, moves=0, events=[], trace_id=None, flows=[],
    )  # fmt: skip
    return made, Injection(
        fault_id=made.id, kind=made.kind, where=made.where, injected_ns=made.injected_ns, healed_ns=28 * SECOND,
        edges=(),
    )  # fmt: skip


def row(*faults):
    """Of ten slow steps, beside a calm run."""
    calm = Ran(ran(*[1.0] * 32), "", (), (), {}, None, 0.5)
    hit = Ran(ran(*[1.0] * 10, *[2.0] * 10, *[1.0] * 12), "", *zip(*faults, strict=True), {}, None, 0.5)
    _, found = rows([Taken(CALM, "foliot", 1, calm, 32), Taken("dead link", "foliot", 1, hit, 32)])
    return found


def test_where_nothing_was_moved_nothing_is_explained():
    """Slow steps on a bad link are what somebody could have done something about."""
    assert row(fault(1)).excess_s == row(fault(1)).lost_s == pytest.approx(10)
    assert row(fault(1, moved_s=10.1)).excess_s < 1


def test_faults_that_came_together_are_told_when_the_first_of_them_is():
    """As the links of a spine, of which the words may be put down to any."""
    assert row(fault(1), fault(2, detected_s=10.1)).detect_ms == pytest.approx(100)
    assert row(fault(1), fault(2, detected_s=14.1, at_s=14)).detect_ms is None


def test_no_time_is_explained_twice():
    """Two faults whose times overlap are one time of reduced capacity."""
    assert account.merged([(5, 9), (0, 3), (8, 12), (3, 4)]) == [(0, 4), (5, 12)]


def test_losses_are_compared_to_the_bit():
    """Of the steps that both have done."""
    calm, hit = ran(*[1.0] * 10), ran(*[1.0] * 6)
    assert account.same_losses(hit, calm)
    hit["node1"]["loss"][4] = np.nextafter(hit["node1"]["loss"][4], 1)
    assert not account.same_losses(hit, calm)
