"""The coded-pair filter."""

from __future__ import annotations

import numpy as np

from foliot_probe.coded import LEAST_TOLERANCE_NS, PAIR_GAP_NS, pure, tolerance_ns

MS = 1_000_000


def pairs(queueing_ns, *, gap_ns=30_000, row=0):
    """Pairs sent every 50 ms, the second of each delayed by this much more than the first."""
    count = len(queueing_ns)
    first = np.arange(count) * 50 * MS
    transmit = np.stack([first, first + gap_ns], axis=1).ravel()
    receive = transmit + 1_000
    receive[1::2] += queueing_ns
    return np.full(2 * count, row), np.arange(2 * count), transmit, receive


def test_a_pair_whose_gap_changed_is_dropped_whole():
    """Neither its first nor its second probe is worth a fit."""
    queueing = np.array([10, 20, 9_000, 15, 12, -4_000, 18, 30])
    keep = pure(*pairs(queueing))
    assert np.flatnonzero(~keep).tolist() == [4, 5, 10, 11]


def test_single_probes_pass():
    """Probes a whole interval apart, or with one missing between them, are no pairs."""
    row = np.zeros(5, np.intp)
    transmit = np.arange(5) * 50 * MS
    receive = transmit + np.array([0, 40_000, 0, 90_000, 0])
    assert pure(row, np.arange(5), transmit, receive).all()
    assert pure(row, np.arange(5) * 2, transmit // (50 * MS) * 1_000, receive).all()
    assert PAIR_GAP_NS < 5 * MS


def test_pairs_do_not_reach_across_streams_and_order_does_not_matter():
    """Streams mixed in any order are judged each by itself."""
    clean, bad = pairs(np.array([5, 5, 5, 5]), row=1), pairs(np.array([5, 5, 8_000, 5]), row=2)
    mixed = [np.concatenate(columns) for columns in zip(clean, bad, strict=True)]
    order = np.random.default_rng(3).permutation(16)
    keep = np.ones(16, np.bool_)
    keep[order] = pure(*(column[order] for column in mixed))
    assert np.flatnonzero(~keep).tolist() == [12, 13]


def test_the_tolerance_follows_the_pure_quarter():
    """Under heavy load, with three pairs of four queued, the tolerance is still that of the rest."""
    random = np.random.default_rng(4)
    quiet = random.integers(0, 400, 30)
    queued = random.integers(20_000, 90_000, 70)
    assert 400 < tolerance_ns(np.concatenate([quiet, queued])) < 20_000


def test_the_tolerance_is_never_finer_than_the_stamps():
    """On a fabric without any noise nothing is dropped for a nanosecond."""
    assert tolerance_ns(np.array([0, 0, 1])) == LEAST_TOLERANCE_NS
    assert pure(*pairs(np.array([0, 0, 60, 0]))).all()


def test_nothing_in_nothing_out():
    """An empty window is no trouble."""
    empty = np.zeros(0, np.int64)
    assert len(pure(empty, empty, empty, empty)) == 0
