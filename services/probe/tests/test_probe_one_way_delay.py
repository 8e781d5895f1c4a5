"""One-way delays, their digest, and the rows made of them."""

from __future__ import annotations

import numpy as np
import pytest

from foliot_probe.core.measure.one_way_delay import (
    DestinationColumns,
    References,
    SourceColumns,
    count_rows,
    digest,
    interval_columns,
    one_way_ns,
    sent_since_ns,
    silence_rows,
)
from foliot_probe.core.measure.sessions import Completed
from foliot_schemas import ClockState, DelayRow, Witness
from foliot_schemas.columns import unpack
from foliot_schemas.delay_buckets import bucket_of


def state(**fields):
    """A clock that is synchronised."""
    told = {
        "clock": "c", "reference": "r", "offset_ns": 0, "drift_ppb": 0.0, "hard_bound_ns": 1, "bound_ns": 1,
        "growth_ppb": 1.0, "as_of_ns": 0, "void_after_ns": 1 << 62, "status": "synchronised",
    }  # fmt: skip
    return ClockState(**(told | fields))


def heard(row, transmit_ns, receive_ns):
    """Probes heard."""
    return Completed(*(np.array(column, np.int64) for column in (row, range(len(row)), transmit_ns, receive_ns)))


def test_reference_time_is_read_as_the_contract_says():
    """The columns give what `ClockState.reference_ns` gives, over offsets, drifts and ages."""
    random = np.random.default_rng(2)
    references = References(16)
    states = [
        state(
            offset_ns=int(random.integers(-(10**18), 10**18)),
            drift_ppb=float(random.normal(0, 30_000)),
            as_of_ns=10**12,
        )
        for _ in range(16)
    ]
    for row, each in enumerate(states):
        references.set(row, each)
    local = 10**12 + random.integers(-(10**9), 5 * 10**9, 16)
    times, known = references.columns.read(np.arange(16), local)
    assert known.all()
    expected = [each.reference_ns(int(at)) for each, at in zip(states, local, strict=True)]
    assert np.abs(times - expected).max() <= 1  # the two round at different places


def test_a_delay_needs_both_clocks():
    """Rows with one end unknown, unsynchronised or expired give no delay; holdover does."""
    own, peers = References(5), References(5)
    for row in range(5):
        own.set(row, state(offset_ns=500))
    peers.set(0, state(offset_ns=100))
    peers.set(2, state(status="unsynchronised"))
    peers.set(3, state(void_after_ns=9))
    peers.set(4, state(status="holdover"))
    row, delay = one_way_ns(heard(range(5), [10] * 5, [20] * 5), own, peers)
    assert dict(zip(row.tolist(), delay.tolist(), strict=True)) == {0: 410, 4: 510}


def test_a_clock_that_is_disrupted_is_no_longer_read():
    """The word of sync is taken back at once."""
    own, peers = References(1), References(1)
    own.set(0, state())
    peers.set(0, state())
    assert one_way_ns(heard([0], [10], [20]), own, peers)[1].tolist() == [10]
    peers.set(0, state(status="disrupted"))
    assert one_way_ns(heard([0], [10], [20]), own, peers)[1].tolist() == []
    peers.set(0, None)
    assert one_way_ns(heard([0], [10], [20]), own, peers)[1].tolist() == []


def test_a_negative_delay_is_told_as_it_is():
    """It says that the clocks are worse than they claim, which somebody should see."""
    own, peers = References(1), References(1)
    own.set(0, state(offset_ns=-50))
    peers.set(0, state())
    assert one_way_ns(heard([0], [10], [20]), own, peers)[1].tolist() == [-40]


def test_the_digest_is_by_nearest_rank():
    """Least, median and p99 are delays that were seen; rows without any have zeros."""
    delays = np.random.default_rng(1).permutation(np.arange(1, 201))
    row = np.concatenate([np.full(200, 2), [0, 0]])
    result = digest(row, np.concatenate([delays, [7, 5]]), 4)
    assert [column[2] for column in result] == [1, 100, 198]
    assert [column[0] for column in result] == [5, 5, 7]
    assert [column[3] for column in result] == [0, 0, 0]
    assert not any(column.any() for column in digest(np.zeros(0, np.intp), np.zeros(0, np.int64), 4))


def test_every_stream_has_a_row_as_source_and_one_as_destination():
    """Counts of either end land with the witness that made them."""
    source = SourceColumns(*(np.arange(4) + base for base in (10, 60, 80, 5)))
    counted = [np.arange(4) + base for base in (20, 30, 70, 90, 40, 50, 1_450)]
    digested = digest(np.array([3, 3, 3]), np.array([9, 8, 7]), 4)
    destination = DestinationColumns(*counted[:2], *digested, *counted[2:])
    rows = unpack(interval_columns(np.array([3, 1]), None, source, destination, 0), DelayRow)
    assert rows["path"].tolist() == [0, 1, 2, 3]
    assert rows[0].tolist() == (0, Witness.SOURCE, 13, 0, 0, 0, 0, 63, 83, 0, 0, 0, 8)
    assert rows[1].tolist() == (1, Witness.DESTINATION, 23, 33, 7, 8, 9, 73, 93, 43, 53, 1_453, 0)
    assert rows[3].tolist() == (3, Witness.DESTINATION, 21, 31, 0, 0, 0, 71, 91, 41, 51, 1_451, 0)


@pytest.mark.parametrize(
    ("left_ms", "since_ms"),
    [([], 0), ([-80, -40, 0, 1, 29], 0), ([0, 40, 80], 40), ([200, 120], 120), ([30], 0)],
    ids=["nothing", "the same tick", "each tick", "a later one", "at the limit"],
)
def test_a_sender_is_known_to_have_sent_by_its_probes_of_later_ticks(left_ms, since_ms):
    """The first of them counts. The path was last heard at 0, and has a probe every 40 ms."""
    left_ns = 10**18 + 1_000_000 * np.array(left_ms, np.int64)
    assert sent_since_ns(10**18, 40_000_000, left_ns) == since_ms * 1_000_000


def test_silence_rows_name_what_fell_and_then_what_speaks():
    """Each with when it was heard last."""
    rows = silence_rows(np.array([2, 0]), np.array([1]), np.array([7, 5, 6]), np.array([70, 50, 60]), np.array([40, 0]))
    assert rows["witness"].tolist() == [Witness.FELL_SILENT, Witness.FELL_SILENT, Witness.SPEAKS_AGAIN]
    assert rows["last_ns"].tolist() == [7, 5, 6]
    assert rows["least_ns"].tolist() == [40, 0, 0]
    assert rows["sequence"].tolist() == [70, 50, 60]
    assert rows["path"].tolist() == [0, 1, 2]


def test_each_delay_is_counted_with_its_path():
    """By bucket, in the order of the rows of the report; a path without delays costs nothing."""
    near_ns, far_ns = 50_000, 90_000
    row = np.array([3, 1, 3, 1, 1, 3])
    delay_ns = np.array([near_ns, -7, far_ns, near_ns, near_ns + 1, near_ns])
    near, far = bucket_of(np.array([near_ns, far_ns])).tolist()
    table = count_rows(np.array([3, 0, 1]), row, delay_ns, 4)
    assert table.tolist() == [(1, near, 2), (1, far, 1), (5, 0, 1), (5, near, 2)]
    assert count_rows(np.array([0, 2]), row, delay_ns, 4).tolist() == []


def test_a_row_counts_as_many_alike_as_a_byte_holds():
    """More than a stream remembers."""
    many = np.zeros(300, np.intp)
    assert count_rows(np.array([0]), many, many, 1).tolist() == [(1, 0, 255)]
