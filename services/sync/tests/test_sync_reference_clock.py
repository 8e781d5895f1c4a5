"""Whom clocks are measured against, and how the next one takes over."""

from __future__ import annotations

import numpy as np
import pytest

from foliot_sync.core.track.kalman import ClockTracks, local_at
from foliot_sync.core.track.reference_clock import crown, elect, hand_over

SECOND = 1_000_000_000
EPOCHS = {"node2": 50 * SECOND, "node1": 70 * SECOND}


@pytest.mark.parametrize(
    ("epochs", "wanted", "formerly", "patient", "chosen"),
    [
        (EPOCHS, "", {}, False, ("node1", 70 * SECOND)),
        (EPOCHS, "node2", {}, True, ("node2", 50 * SECOND)),
        (EPOCHS, "node9", {}, True, None),
        (EPOCHS, "node9", {}, False, ("node1", 70 * SECOND)),
        ({}, "", {}, False, None),
        (EPOCHS, "", {"node2": 50 * SECOND + 1_900_000_000}, False, ("node2", 50 * SECOND)),
        (EPOCHS, "", {"node2": 47 * SECOND}, False, ("node1", 70 * SECOND)),
        (EPOCHS, "node1", {"node2": 50 * SECOND}, False, ("node1", 70 * SECOND)),
    ],
    ids=["smallest", "wanted", "waits", "waited enough", "nobody", "resumes", "booted since", "wanted beats resumed"],
)
def test_election(epochs, wanted, formerly, patient, chosen):
    """The wanted clock, one that an earlier run left off with, or the smallest name, in that order."""
    assert elect(epochs, wanted, formerly, patient=patient) == chosen


def test_the_reference_wanders_no_more_than_the_steadiest_of_the_others():
    """Each of them is measured against it, so what they show has its wander in it."""
    tracks = ClockTracks.unknown(4, 20.0)._replace(
        windows=np.array([9, 9, 9, 0]), shown=np.array([0.02, 18.0, 50.0, 1.0])
    )
    assert crown(tracks, 0).shown[0] == 18.0
    assert crown(tracks._replace(windows=np.array([9, 0, 0, 0])), 0).shown[0] == tracks.guess[0]


def test_hand_over_leaves_every_reading_where_it_was():
    """At the moment of a hand-over no clock's reference time jumps, and from then on all keep the heir's pace."""
    ints = np.array([10**15, 3 * 10**14, 5 * 10**12])
    offsets = 1_700_000_000 * SECOND - ints
    drift = np.array([0.0, 25_000.0, -30_000.0])
    ones = np.ones(3)
    before = ClockTracks.unknown(3, 1.0)._replace(
        as_of_ns=ints, offset_ns=offsets, drift_ppb=drift, p00=ones, p11=ones, hard_ns=ones, measured_ns=ints,
        windows=np.full(3, 5), late_ns=np.array([0.0, 3.0, 4.0]),
    )  # fmt: skip
    at_ns = 1_700_000_003 * SECOND
    local = local_at(before, at_ns)
    after = hand_over(before, 1, at_ns, 1_000.0)

    def read(tracks, local_ns):
        return local_ns + tracks.offset_ns + np.rint(tracks.drift_ppb * (local_ns - tracks.as_of_ns) / SECOND)

    assert np.abs(read(after, local) - read(before, local)).max() <= 2
    assert after.drift_ppb[1] == 0
    # What was wrong with the heir is wrong with all others now.
    assert after.late_ns.tolist() == [3.0, 0.0, 5.0]
    # A second later by the heir's clock, every clock has gained exactly a second.
    later = read(before, local_at(before, int(read(before, local + SECOND)[1])))
    now = read(after, local_at(before, int(later[1])))
    assert np.abs(now - at_ns - SECOND).max() <= 3
