"""What the kernel hands over where a NIC stamps: fabricated control messages below real sockets, for both packet loops."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from foliot_probe.core.packet import HARDWARE, KERNEL
from patience import patience

HERE = Path(__file__).parent
SHIFT_NS = 37_000_000_000
"""The NIC's clock is TAI: so far ahead of CLOCK_REALTIME, by which the fabricated stamps go."""
SECOND = 1_000_000_000
pytestmark = pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler for what stands below the sockets")


@pytest.fixture(scope="session")
def below(tmp_path_factory):
    """The library that stands between the sockets and the kernel."""
    made = tmp_path_factory.mktemp("nic") / "stamping_nic.so"
    subprocess.run(["cc", "-O1", "-shared", "-fPIC", "-o", made, HERE / "stamping_nic.c", "-ldl"], check=True)
    return made


@pytest.fixture
def between(below, packets, stamping):
    """Runs two engines, and returns what each said in turn: by the kernel, one NIC, both, the other one, the kernel."""

    def run(shift="right", **nic):
        environment = {**os.environ, "LD_PRELOAD": str(below), "SHIFT_NS": str(SHIFT_NS)}
        environment |= {name: str(value) for name, value in nic.items()}
        done = subprocess.run(
            [sys.executable, HERE / "between_nics.py", shift], env=environment, capture_output=True, text=True,
            timeout=patience(60.0), check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout.splitlines()[-1])

    return run


def test_stamps_of_a_nic_are_those_of_its_own_clock_and_all_else_is_by_the_hosts(between):
    """Each end by itself: whose stamps they are stands in every probe. Departures and silence go by the kernel."""
    for said, ends in zip(between(), ((), (0,), (0, 1), (1,), ()), strict=True):
        for number, one in enumerate(said):
            own, peer = number in ends, 1 - number in ends
            assert one["kinds"] == [HARDWARE if own else KERNEL, HARDWARE if peer else KERNEL]
            assert one["count"] >= 15
            # By a clock that counts from 1970, or by one that counts from the boot.
            assert all((age_ns < -SECOND) == own for age_ns in (*one["transmit_age"], *one["receive_age"]))
            assert all(abs(delay_ns) < SECOND for delay_ns in one["delays"]) == (own == peer)
            if own and peer:  # 900 ns before the kernel, and 1,700 after it: a NIC is between two kernels
                assert all(delay_ns > -2_800 for delay_ns in one["delays"])
            assert 0 < one["left_age"] < SECOND
            assert one["unsent"] == 0
            assert one["received"] >= 20
            (left, left_by_nic, left_odd), (came, came_by_nic, came_odd) = one["counts"]
            assert left == left_by_nic >= 20
            assert came == came_by_nic >= 20
            assert left_odd == came_odd == 0


def test_a_packet_without_the_nics_stamp_has_none(between):
    """It is not stamped by another clock instead, and counts for its path all the same."""
    for said, ends in zip(between(LOSES=4), ((), (0,), (0, 1), (1,), ()), strict=True):
        for number, one in enumerate(said):
            (left, left_by_nic, _), (came, came_by_nic, _) = one["counts"]
            assert left + came > left_by_nic + came_by_nic > (left + came) * 0.6
            assert all((age_ns < -SECOND) == (number in ends) for age_ns in one["transmit_age"])
            assert one["received"] >= 20
            assert one["unsent"] == 0


@pytest.mark.parametrize("lie", [{"shift": "off"}, {"FAR": 1}])
def test_stamps_that_cannot_be_are_left_out(between, lie):
    """A second away from the kernel's, or beyond all time: none gets into a probe, which peers would refuse."""
    for said, ends in zip(between(**lie), ((), (0,), (0, 1), (1,), ()), strict=True):
        for number, one in enumerate(said):
            assert (one["count"] == 0) == bool(ends)
            assert one["received"] >= 20
            (left, left_by_nic, left_odd), (came, came_by_nic, came_odd) = one["counts"]
            if "FAR" in lie:
                assert left_by_nic == came_by_nic == 0
            else:
                assert (left, came) == (left_by_nic, came_by_nic) == (left_odd, came_odd)
            assert number in {0, 1}
