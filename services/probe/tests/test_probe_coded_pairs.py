"""The coded-pair filter."""

from __future__ import annotations

import numpy as np

from foliot_probe.core.measure.coded_pairs import LEAST_TOLERANCE_NS, PAIR_GAP_NS, CodedPairs

MS = 1_000_000


def pairs(queueing_ns, *, gap_ns=30_000, row=0):
    """Pairs sent every 50 ms, the second of each delayed by this much more than the first."""
    count = len(queueing_ns)
    first = np.arange(count) * 50 * MS
    transmit = np.stack([first, first + gap_ns], axis=1).ravel()
    receive = transmit + 1_000
    receive[1::2] += queueing_ns
    return np.full(2 * count, row), np.arange(2 * count), transmit, receive


def sifted(columns, coded=None, kind="kernel"):
    """The places of the probes that stand for pure pairs."""
    keep = (coded or CodedPairs()).sift(*columns, np.full(len(columns[0]), LEAST_TOLERANCE_NS[kind]))
    return np.flatnonzero(keep).tolist()


def test_of_a_pure_pair_the_later_probe_stands_for_both():
    """The one that seems quicker may be one whose stamp was wrong."""
    assert sifted(pairs(np.array([10, -20, 15, -12]))) == [1, 2, 5, 6]


def test_a_pair_whose_gap_changed_is_dropped_whole():
    """Neither its first nor its second probe is worth a fit."""
    assert sifted(pairs(np.array([10, 20, 9_000, 15, 12, -4_000, 18, 30]))) == [1, 3, 7, 9, 13, 15]


def test_single_probes_are_no_pure_pairs():
    """Probes a whole interval apart, or with one missing between them: nothing is known of what they met."""
    row = np.zeros(5, np.intp)
    transmit = np.arange(5) * 50 * MS
    receive = transmit + np.array([0, 40_000, 0, 90_000, 0])
    assert sifted((row, np.arange(5), transmit, receive)) == []
    assert sifted((row, np.arange(5) * 2, transmit // (50 * MS) * 1_000, receive)) == []
    assert PAIR_GAP_NS < 5 * MS


def test_pairs_do_not_reach_across_streams_and_order_does_not_matter():
    """Streams mixed in any order are judged each by itself."""
    clean, bad = pairs(np.array([5, 5, 5, 5]), row=1), pairs(np.array([5, 5, 8_000, 5]), row=2)
    mixed = [np.concatenate(columns) for columns in zip(clean, bad, strict=True)]
    order = np.random.default_rng(3).permutation(16)
    keep = np.zeros(16, np.bool_)
    keep[order[sifted([column[order] for column in mixed])]] = True
    assert np.flatnonzero(keep).tolist() == [1, 3, 5, 7, 9, 11, 15]


def test_the_tolerance_is_what_a_quiet_time_has_shown_and_is_forgotten_slowly():
    """Under load, with three pairs of four queued, it is still that of the quiet.

    After hours of load it has grown, but not beyond all sense.
    """
    random, coded = np.random.default_rng(4), CodedPairs()
    usual = LEAST_TOLERANCE_NS["kernel"]
    sifted(pairs(random.integers(0, 60, 100)), coded)
    loaded = random.integers(20_000, 90_000, 100)
    loaded[:2] = round(1.9 * usual), round(8.5 * usual)
    assert sifted(pairs(loaded), coded) == []
    for _ in range(200):
        last = sifted(pairs(loaded), coded)
    assert last == [1]


def test_the_tolerance_is_never_finer_than_the_stamps():
    """On a fabric without any noise nothing is dropped for a nanosecond, be it a NIC's or a kernel's."""
    still = pairs(np.array([0, 0, 20, 0]))
    assert sifted(still, kind="hardware") == [1, 3, 5, 7]
    assert sifted(pairs(np.array([0, 0, 60, 0])), kind="hardware") == [1, 3, 7]
    assert sifted(pairs(np.array([0, 0, 60, 0])), kind="kernel") == [1, 3, 5, 7]


def test_nothing_in_nothing_out():
    """An empty window is no trouble."""
    assert sifted([np.zeros(0, np.int64)] * 4) == []
