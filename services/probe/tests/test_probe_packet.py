"""The wire form, and the start-up check of stamps."""

from __future__ import annotations

import numpy as np
import pytest

from foliot_probe.core.packet import KERNEL, KINDS, MAGIC, MOST_BYTES, USER, ProbePacket, is_probe
from foliot_probe.io.timestamp_check import DIRECTIONS, PATIENCE, StampChecks

LENGTH = np.array([ProbePacket.itemsize], np.uint32)


def probe(**fields):
    """A sane probe, but for these fields."""
    made = np.zeros(1, ProbePacket)
    for name, value in {"magic": MAGIC, "kind": KERNEL, "interval_us": 50_000, "heard": -1, **fields}.items():
        made[name] = value
    return made


def test_the_layout_is_what_the_docstring_draws():
    """Other programs may read it by the diagram."""
    offsets = {name: ProbePacket.fields[name][1] for name in ProbePacket.names}
    assert offsets == {
        "magic": 0, "kind": 4, "use": 5, "mesh_ms": 6, "row": 8, "interval_us": 12, "session": 16, "sequence": 24,
        "transmit_ns": 32, "peer_session": 64, "heard": 72, "receive_ns": 80,
    }  # fmt: skip
    assert ProbePacket.itemsize == 144
    assert KINDS[KERNEL] == "kernel"


def test_a_probe_is_recognised():
    """Also one that has not heard anything yet."""
    assert is_probe(probe(), LENGTH).tolist() == [True]


@pytest.mark.parametrize("length", [ProbePacket.itemsize + 1, 1_422, MOST_BYTES])
def test_a_padded_probe_is_recognised(length):
    """By its first bytes, however many follow."""
    assert is_probe(probe(), np.array([length], np.uint32)).tolist() == [True]


@pytest.mark.parametrize(
    "fields",
    [{"magic": MAGIC + 1}, {"kind": 3}, {"interval_us": 0}, {"sequence": -1}, {"sequence": 1 << 62},
     {"heard": -2}, {"heard": 1 << 62}],
)  # fmt: skip
def test_what_is_no_sane_probe_is_refused(fields):
    """Another version, or numbers that no sender of ours would send."""
    assert is_probe(probe(**fields), LENGTH).tolist() == [False]


@pytest.mark.parametrize("length", [0, ProbePacket.itemsize - 1, MOST_BYTES + 1])
def test_a_datagram_of_another_length_is_refused(length):
    """What lies behind the end of a short one is of an earlier datagram; no packet is longer than the longest."""
    assert is_probe(probe(), np.array([length], np.uint32)).tolist() == [False]


def test_a_stamp_convinces():
    """Kernel stamps are believed at the first one, also when it is late, and for good."""
    checks = StampChecks(1)
    for stamped in (np.zeros(PATIENCE - 1, np.bool_), np.ones(1, np.bool_), np.zeros(10 * PATIENCE, np.bool_)):
        checks.came(np.zeros(len(stamped), np.intp), stamped)
        assert checks.received_by_hand().tolist() == [False]


def test_without_any_stamp_it_falls_back_and_comes_back():
    """After enough probes without one, until the first stamp comes after all."""
    checks = StampChecks(1)
    for _ in range(PATIENCE):
        assert checks.received_by_hand().tolist() == [False]
        checks.came(np.array([0]), np.array([False]))
    assert checks.received_by_hand().tolist() == [True]
    checks.came(np.array([0]), np.array([True]))
    assert checks.received_by_hand().tolist() == [False]


def test_what_has_just_left_is_not_missed_yet():
    """Its stamp comes with the next tick; what never left is not waited for, and the first stamp convinces."""
    checks = StampChecks(1)
    for _ in range(PATIENCE):
        assert not checks.sent_by_hand(0, np.array([False]))
    assert not checks.sent_by_hand(0, np.ones(PATIENCE, np.bool_))
    assert checks.sent_by_hand(0, np.array([True]))
    checks.left(np.array([0]))
    assert not checks.sent_by_hand(0, np.array([True]))
    assert checks.kind.tolist() == [USER]  # of what it receives nothing is known
    checks.came(np.array([0, 0]), np.array([False, True]))
    assert checks.kind.tolist() == [KERNEL]


def test_a_socket_without_stamps_is_named_once_for_each_direction():
    """Those of the packets that it sends, and those of what comes."""
    checks = StampChecks(1)
    told = []
    for _ in range(3):
        checks.sent_by_hand(0, np.ones(PATIENCE, np.bool_))
        checks.came(np.zeros(PATIENCE, np.intp), np.zeros(PATIENCE, np.bool_))
        told += checks.take_missing()
    assert sorted((place, DIRECTIONS[direction]) for place, direction in told) == [(0, "receive"), (0, "transmit")]


def test_the_worse_direction_counts():
    """A socket is called stamped by the kernel only when both of its directions are."""
    checks = StampChecks(2)
    checks.came(np.array([0, 1]), np.array([True, True]))
    checks.left(np.array([1]))
    assert checks.kind.tolist() == [USER, KERNEL]
    checks.left(np.array([0]))
    assert checks.kind.tolist() == [KERNEL, KERNEL]
