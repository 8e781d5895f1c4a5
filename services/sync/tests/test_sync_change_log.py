"""What the log says of the common time: once, when it changes."""

from __future__ import annotations

import pytest
import structlog

from foliot_schemas import ClockState, Nic, Node
from foliot_sync.core.timescale.steering import Timescale
from foliot_sync.settings import SyncSettings
from foliot_sync.shell import change_log, clock_census
from foliot_sync.shell.change_log import ChangeLog
from foliot_sync.shell.clock_census import ClockCensus


@pytest.fixture
def said(monkeypatch):
    """The words of the log, whatever was logged before."""
    words = structlog.testing.LogCapture()
    for module in (change_log, clock_census):
        monkeypatch.setattr(module, "log", structlog.wrap_logger(None, processors=[words]))
    return words.entries


def windows(announcer, time_map, count, *, followed=True, off_ns=None):
    """So many of them alike."""
    time_map.followed, time_map.off_ns = followed, off_ns
    for _ in range(count):
        announcer.window(time_map)


def test_going_on_alone_is_said_once_and_taken_back(said):
    """Not before it has lasted, and not where nobody is to be followed."""
    settings = SyncSettings(timescale="nodes", references=("node3",))
    announcer, time_map = ChangeLog(settings), Timescale(settings)
    windows(announcer, time_map, 3, followed=False)
    assert said == []
    windows(announcer, time_map, 20, followed=False)
    windows(announcer, time_map, 5)
    assert [entry["event"] for entry in said] == ["timescale_goes_on_alone", "timescale_followed"]
    free = SyncSettings()
    windows(ChangeLog(free), Timescale(free), 20, followed=False)
    assert len(said) == 2


def test_far_from_utc_is_said_once_and_taken_back_at_half(said):
    """A millisecond, and half of one."""
    settings = SyncSettings(timescale="utc")
    announcer, time_map = ChangeLog(settings), Timescale(settings)
    for off_ns in (900_000.0, -1_100_000.0, 900_000.0, 600_000.0, None, 400_000.0, 400_000.0):
        windows(announcer, time_map, 2, off_ns=off_ns)
    assert [entry["event"] for entry in said] == ["far_from_utc", "near_utc"]


def test_leap_seconds_smears_and_a_time_that_is_not_tai_are_said_once(said):
    """Each when it begins and when it ends."""
    settings = SyncSettings(timescale="tai")
    announcer, time_map = ChangeLog(settings), Timescale(settings)
    windows(announcer, time_map, 2)
    time_map.smear.smeared = True
    windows(announcer, time_map, 2)
    time_map.smear.smeared = False
    time_map.seconds.leap_s, time_map.seconds.leap_at_ns = 1, 77
    windows(announcer, time_map, 2)
    time_map.seconds.tai_offset_s = 37
    windows(announcer, time_map, 2)
    assert [entry["event"] for entry in said] == ["utc_is_smeared", "utc_is_steady", "leap_second", "time_is_not_tai"]
    assert (said[2]["leap_s"], said[2]["leap_at_ns"], said[3]["tai_offset_s"]) == (1, 77, 37)


def test_kernels_that_contradict_are_named_once(said):
    """And again when others do, or none."""
    announcer, time_map = ChangeLog(SyncSettings()), Timescale(SyncSettings())
    for contradictions in (["none", "none"], ["none", "leap"], ["none", "leap"], ["both", "leap"], ["none", "none"]):
        states = [
            ClockState(
                clock=f"node{number}", reference="node0", offset_ns=0, drift_ppb=0.0, hard_bound_ns=0, bound_ns=0, growth_ppb=0.0, as_of_ns=0,
                void_after_ns=0, status="synchronised", utc_disagreement=each,
            )
            for number, each in enumerate(contradictions)
        ]  # fmt: skip
        announcer.window(time_map, states)
    assert [entry["hosts"] for entry in said] == [{"node1": "leap"}, {"node0": "both", "node1": "leap"}, {}]


def test_an_asymmetry_of_nobody_is_said_once_when_the_inventory_is_known(said):
    """Before any node is there, all names are unknown, which is no news; afterwards those that are slips are told."""
    census = ClockCensus({"node0.rail0": 300.0, "node0.rail0>nod1.rail0": 5.0})
    census.tell_of_nobody()
    assert said == []
    nic = Nic(
        name="node0.rail0", rail="rail0", device="nic0", address="10.0.0.1", clock="node0",
        service_address="10.200.0.1", path_addresses=("100.64.0.1",), entropies=(0,),
    )  # fmt: skip
    census.learn("node0", Node(name="node0", nics=(nic,)))
    for _ in range(3):
        census.tell_of_nobody()
    assert [(entry["event"], entry["names"]) for entry in said] == [("asymmetry_of_nobody", ["node0.rail0>nod1.rail0"])]
