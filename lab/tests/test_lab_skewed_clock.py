"""A clock with an injected error, and how services and readers come to it."""

from __future__ import annotations

import time

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from paged import local, state

from foliot.clock import Reader
from foliot.clock import lab_clock as door
from foliot.clock.writer import PageWriter
from foliot.runtime.service import node_clock
from foliot.settings import SettingsError
from foliot_lab.faults.skewed_clock import NicSkewSpec, Skew, SkewedClock, SkewSpec, write_nic_clock
from foliot_lab.scenario.spec import ClockSpec
from foliot_lab.services.deployment import desk, write_skews
from foliot_probe.io.ptp_clock import nic_ns

START = 1_000_000_000_000


@given(
    offset=st.integers(-(10**9), 10**9), drift=st.floats(-1e5, 1e5), wander=st.sampled_from([0.0, 20.0]),
    age=st.integers(0, 10**13),
)  # fmt: skip
def test_one_moment_and_many_moments_have_the_same_skew(offset, drift, wander, age):
    """The vectorised form is the scalar one."""
    skew = Skew(SkewSpec(start_raw_ns=START, offset_ns=offset, drift_ppb=drift, wander_ppb=wander, seed=3))
    raw = START + age

    assert abs(skew.offset_ns(raw) - int(skew.offsets_ns(np.array([raw]))[0])) <= 1


def test_wander_is_a_random_walk_that_the_seed_repeats():
    """Drift changes by `wander_ppb` per square root of a second; the same seed walks the same way."""
    spec = SkewSpec(start_raw_ns=START, wander_ppb=20.0, seed=5)
    one, same, other = Skew(spec), Skew(spec), Skew(SkewSpec(start_raw_ns=START, wander_ppb=20.0, seed=6))
    seconds = START + np.arange(0, 4_000) * 10**9
    drift = np.diff(one.offsets_ns(seconds))

    assert (one.offsets_ns(seconds) == same.offsets_ns(seconds)).all()
    assert (one.offsets_ns(seconds) != other.offsets_ns(seconds)).any()
    assert np.std(np.diff(drift)) == pytest.approx(20.0, rel=0.1)


def test_a_step_is_seen_at_the_next_reading(tmp_path):
    """The lab rewrites a file; every process that maps it sees the step."""
    path = tmp_path / "step"
    path.write_bytes(bytes(8))
    skew = Skew(SkewSpec(start_raw_ns=START, offset_ns=7, step_file=str(path)))
    before = skew.offset_ns(START)
    with path.open("r+b") as file:
        file.write((5_000_000).to_bytes(8, "little", signed=True))

    assert (before, skew.offset_ns(START)) == (7, 5_000_007)


def test_packet_stamps_become_local_time_with_the_skew():
    """A stamp lies between the local times before and after it, which the skew sets back by 50 ms.

    Stamps keep their distances.
    """
    raw = time.clock_gettime_ns(time.CLOCK_MONOTONIC_RAW)
    skewed_ns = -50_000_000
    clock = SkewedClock("node3", Skew(SkewSpec(start_raw_ns=raw, offset_ns=skewed_ns)))
    while True:
        before = clock.local_ns()
        stamp = time.clock_gettime_ns(time.CLOCK_REALTIME)
        mapped = clock.realtime_to_local(np.array([stamp, stamp + 1_000], dtype=np.int64))
        after = clock.local_ns()
        if after - before < -skewed_ns // 4:
            break  # else the machine halted in between, and the stamp says nothing of the skew

    # A reading of both clocks is wrong by half of what it took, and a machine that halts in it may make that long.
    slack_ns = (after - before) // 2 + 10_000
    assert before - slack_ns <= int(mapped[0]) <= after + slack_ns
    assert abs(int(mapped[1] - mapped[0]) - 1_000) <= 2


def test_a_lab_s_skew_is_part_of_local_time(tmp_path):
    """The page names it, so that nobody reads a skewed clock as if it were straight."""
    spec = SkewSpec(start_raw_ns=local(), offset_ns=-50_000_000, drift_ppb=30_000.0)
    (tmp_path / "skew.json").write_bytes(msgspec.json.encode(spec))
    host = SkewedClock("node3", Skew(spec))
    writer = PageWriter(str(tmp_path / "clock"), "node3", str(tmp_path / "skew.json"))
    writer.write(state(as_of_ns=host.local_ns()), host.local_ns())
    host.update(Reader(str(tmp_path / "clock")).read().state)
    before, interval, after = host.now_ns(), Reader(str(tmp_path / "clock")).now(), host.now_ns()
    writer.close()

    assert before - 10_000 <= interval.middle_ns <= after + 10_000


@pytest.mark.parametrize("content", [None, b"{", b"{}", b'{"start_raw_ns": 1, "step_file": "/nowhere"}'])
def test_a_clock_skew_that_is_none_is_a_wrong_setting(tmp_path, monkeypatch, content):
    """As any other."""
    file = tmp_path / "skew.json"
    if content is not None:
        file.write_bytes(content)
    monkeypatch.setenv("FOLIOT_CLOCK_SKEW", str(file))
    with pytest.raises(SettingsError, match="FOLIOT_CLOCK_SKEW"):
        node_clock("node3")


def test_a_node_of_a_lab_has_its_clock(tmp_path, monkeypatch):
    """A variable names the file of its error; without it, the clock is as it is."""
    file = tmp_path / "skew.json"
    file.write_bytes(msgspec.json.encode(SkewSpec(start_raw_ns=local(), offset_ns=10**12)))
    straight = node_clock("node3")
    monkeypatch.setenv("FOLIOT_CLOCK_SKEW", str(file))
    skewed = node_clock("node3")

    assert (skewed.name, skewed.local_ns() - straight.local_ns() > 10**12 // 2) == ("node3", True)
    assert skewed.epoch_ns() - straight.epoch_ns() == pytest.approx(-(10**12), abs=10**9)


def test_where_no_lab_is_installed_a_skew_is_a_wrong_setting(tmp_path, monkeypatch):
    """A service there says so, and does not run by a straight clock."""
    monkeypatch.setattr(door, "entry_points", lambda **_: ())
    monkeypatch.setenv("FOLIOT_CLOCK_SKEW", str(tmp_path / "skew.json"))
    with pytest.raises(SettingsError, match=r"FOLIOT_CLOCK_SKEW: .* the lab is not installed here"):
        node_clock("node3")


def test_a_nic_of_a_lab_has_a_clock_that_does_wrong_when_it_is_told_to(tmp_path):
    """Its steps, lies and losses are in a file that whoever runs by it has mapped."""
    file = tmp_path / "nic"
    write_nic_clock(file, step_ns=5, lies_ns=7, lost=3, unread=True)
    nic = NicSkewSpec(start_ns=START, offset_ns=11, drift_ppb=1_000.0, file=str(file))
    clock = SkewedClock("node3", Skew(SkewSpec(start_raw_ns=START, offset_ns=2, nics={"rail0": nic})))
    injected = clock.injected_nics["rail0"]
    local_ns = np.array([START, START + 10**9])
    assert (nic_ns(injected, local_ns) - local_ns).tolist() == [16, 1_016]
    assert injected.faults.tolist() == [7, 3, 1]
    write_nic_clock(file)
    assert (nic_ns(injected, local_ns) - local_ns).tolist() == [11, 1_011]
    assert injected.faults.tolist() == [0, 0, 0]
    assert clock.raw_to_local(START) == START + 2


def test_a_scenarios_nics_have_clocks_and_its_hosts_are_as_without(tmp_path):
    """They are drawn from the seed, each another one; without the setting there are none."""
    hosts, rails = ("node0", "node1"), ("rail0", "rail1")
    made = [
        write_skews(ClockSpec(nic_clocks=nic_clocks), hosts, desk(tmp_path), rails)
        for nic_clocks in (True, True, False)
    ]
    drawn = [[nic.offset_ns for skew in skews.values() for nic in skew.spec.nics.values()] for skews in made]
    assert drawn[0] == drawn[1]
    assert len(set(drawn[0])) == 4
    assert drawn[2] == []
    hosts_ns = [[skew.spec.offset_ns for skew in skews.values()] for skews in made]
    assert hosts_ns[0] == hosts_ns[2]
