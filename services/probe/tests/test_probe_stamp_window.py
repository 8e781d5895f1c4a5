"""Windows of stamps: whose they are, what is kept, how they are split."""

from __future__ import annotations

import numpy as np
import pytest

from foliot_probe.core.measure.sessions import Completed
from foliot_probe.core.measure.slope_range import SlopeRange
from foliot_probe.core.measure.stamp_window import MOST_ROWS, StampWindow, window_number
from foliot_probe.core.packet import HARDWARE, KERNEL, USER
from foliot_probe.core.stream_table import StreamEnds, StreamKey


def ends(count, *, initiator=True):
    """Streams by row."""
    return [
        StreamEnds(StreamKey(f"p{row}", "r", 0), f"n.r>p{row}.r#0", f"p{row}.r>n.r#0", "n", f"p{row}", initiator)
        for row in range(count)
    ]


def probes(row, count, *, shift_ns=0, seed=0):
    """Completed probes of a row with random queueing, 50 ms apart."""
    random = np.random.default_rng(seed)
    transmit = np.arange(1, count + 1) * 50_000_000
    receive = transmit + 1_000 + shift_ns + random.exponential(9_000, count).astype(np.int64)
    return Completed(np.full(count, row), np.arange(count), transmit, receive)


def nothing():
    """No probes."""
    return Completed(*(np.zeros(0, np.int64) for _ in Completed._fields))


def closed(window, *how):
    """The parts of a window, whatever steps it takes."""
    return [part for part in window.close(window.take(), *how) if part is not None]


@pytest.mark.parametrize(("count", "slices"), [(20, 1), (100, 2), (4_000, 64)])
def test_a_large_window_is_closed_in_steps_and_told_at_the_end(count, slices):
    """Sixty-four streams with many probes are more than a probe may spend between two ticks.

    What comes meanwhile is of the next window.
    """
    window = StampWindow(3)
    for row in range(64):
        window.add(probes(row, count), probes(row, count))
    steps = window.close(window.take(), ends(64), np.full(64, KERNEL), SlopeRange.unknown(64))
    # Both directions sifted, and counted, then some streams of each at a time pruned.
    silent = [next(steps) for _ in range(3 + 2 * slices)]
    window.add(probes(0, 5), nothing())
    (part, *more) = steps
    assert silent == [None] * (3 + 2 * slices)
    assert [each.responder for whole in (part, *more) for each in whole.streams] == [f"p{row}" for row in range(64)]
    (later,) = closed(window, ends(64), np.full(64, KERNEL), SlopeRange.unknown(64))
    assert [each.responder for each in later.streams] == ["p0"]


def test_both_directions_of_a_stream_come_whole():
    """Direction 0 goes to the responder, 1 comes back; the worse kind of stamp names the stream."""
    window = StampWindow(100)
    window.add(probes(1, 20), probes(1, 15, shift_ns=5))
    window.add(probes(0, 3), nothing())
    (part,) = closed(window, ends(3), np.array([KERNEL, USER, KERNEL]), SlopeRange.unknown(3))
    assert [(each.path, each.initiator, each.responder, each.kind) for each in part.streams] == [
        ("n.r>p0.r#0", "n", "p0", "kernel"),
        ("n.r>p1.r#0", "n", "p1", "user"),
    ]
    taken = [(stream, direction) for stream, direction in part.rows[["stream", "direction"]].tolist()]
    assert {each: taken.count(each) for each in taken} == {(0, 0): 3, (1, 0): 20, (1, 1): 15}
    forth = part.rows[(part.rows["stream"] == 1) & (part.rows["direction"] == 0)]
    assert (forth["receive_ns"] > forth["transmit_ns"]).all()


def test_a_window_is_empty_after_it_was_closed():
    """Every probe is published once."""
    window = StampWindow(3)
    window.add(probes(0, 5), nothing())
    assert len(list(closed(window, ends(1), np.array([KERNEL]), SlopeRange.unknown(1)))) == 1
    assert list(closed(window, ends(1), np.array([KERNEL]), SlopeRange.unknown(1))) == []


def test_streams_that_others_initiate_are_left_to_them():
    """So that no probe is counted twice."""
    window = StampWindow(3)
    window.add(probes(0, 5), probes(0, 5))
    assert list(closed(window, ends(1, initiator=False), np.array([KERNEL]), SlopeRange.unknown(1))) == []


def test_a_stream_that_ended_takes_its_probes_along():
    """Its row may be another stream's by the end of the window."""
    window = StampWindow(3)
    window.add(probes(0, 5), probes(1, 5))
    window.forget(0)
    (part,) = closed(window, ends(2), np.array([KERNEL] * 2), SlopeRange.unknown(2))
    assert [each.responder for each in part.streams] == ["p1"]


def test_the_fit_sees_what_it_would_have_seen_unpruned():
    """For any slope the least residuals of the upper cloud and the largest of the lower one are kept."""
    window = StampWindow(2)
    forth, back = probes(0, 300, seed=1), probes(0, 300, seed=2)
    window.add(forth, back)
    (part,) = closed(window, ends(1), np.array([KERNEL]), SlopeRange.unknown(1))
    assert len(part.rows) < 150
    for slope in np.linspace(-3e-5, 3e-5, 31):
        upper = forth.receive_ns - forth.transmit_ns - slope * forth.transmit_ns
        lower = back.transmit_ns - back.receive_ns - slope * back.receive_ns
        rows = part.rows[part.rows["direction"] == 0]
        kept = rows["receive_ns"] - rows["transmit_ns"] - slope * rows["transmit_ns"]
        assert np.array_equal(np.sort(kept)[:2], np.sort(upper)[:2])
        rows = part.rows[part.rows["direction"] == 1]
        kept = rows["transmit_ns"] - rows["receive_ns"] - slope * rows["receive_ns"]
        assert np.array_equal(np.sort(kept)[-2:], np.sort(lower)[-2:])


def test_stamps_of_nics_are_sieved_and_those_of_kernels_are_not():
    """A NIC's stamp may be too early, and only pure pairs count. A kernel's is not, and the quickest probe counts, whatever the other one of its pair met."""
    count = 40
    transmit = np.repeat(np.arange(1, count + 1) * 50_000_000, 2) + np.tile([0, 30_000], count)
    delay = np.full(2 * count, 2_000)
    delay[::8] = 500  # ten first probes of a pair are quicker than all others
    streams = [Completed(np.full(2 * count, row), np.arange(2 * count), transmit, transmit + delay) for row in (0, 1)]
    window = StampWindow(3)
    for each in streams:
        window.add(each, each)
    (part,) = closed(window, ends(2), np.array([HARDWARE, KERNEL]), SlopeRange.unknown(2))
    assert [(each.pure_forth, each.pure_back) for each in part.streams] == [(30, 30), (0, 0)]
    took = part.rows["receive_ns"] - part.rows["transmit_ns"]
    assert set(took[part.rows["stream"] == 0]) == {2_000}
    assert took[part.rows["stream"] == 1].min() == 500


def test_it_is_said_how_many_probes_came_near_the_floor():
    """Before pruning, of stamps that are not sieved, and where the slope is known."""
    known = SlopeRange(np.full(2, -1e-8), np.full(2, 1e-8))
    window = StampWindow(10)
    for row in (0, 1):
        window.add(probes(row, 300, seed=1), probes(row, 100, seed=2))
    (part,) = closed(window, ends(2), np.array([HARDWARE, KERNEL]), known)
    sieved, unsieved = part.streams
    assert (sieved.near_forth, sieved.near_back) == (0, 0)
    assert 50 <= unsieved.near_back <= 55
    assert 130 <= unsieved.near_forth <= 220


def test_batches_hold_whole_streams_and_no_more_rows_than_allowed():
    """A stream's two clouds are of no use apart."""
    window = StampWindow(10_000)
    for row in range(30):
        window.add(probes(row, 60, seed=row), probes(row, 60, seed=-row % 97))
    parts = list(closed(window, ends(30), np.full(30, KERNEL), SlopeRange.unknown(30)))
    assert len(parts) == 4
    assert [each.responder for part in parts for each in part.streams] == [f"p{row}" for row in range(30)]
    for part in parts:
        assert len(part.rows) <= MOST_ROWS
        assert (np.bincount(part.rows["stream"], minlength=len(part.streams)) == 120).all()


def test_where_the_slope_is_known_less_is_kept_and_it_is_said_what_for():
    """Within the slopes that are said a fit sees everything that it tolerates.

    For any other the outermost points are there.
    """
    known = SlopeRange(np.array([-1e-8]), np.array([1e-8]))
    parts = []
    for tilt in (known, SlopeRange.unknown(1)):
        window = StampWindow(8)
        window.add(probes(0, 300, seed=1), probes(0, 300, seed=2))
        parts += closed(window, ends(1), np.array([KERNEL]), tilt)
    narrow, wide = parts
    assert len(narrow.rows) < len(wide.rows) / 2
    (stream,) = narrow.streams
    assert (stream.least_ppb, stream.most_ppb) == pytest.approx((-10.0, 10.0))
    assert (stream.pure_forth, stream.pure_back) == (0, 0)
    delays = [part.rows["receive_ns"] - part.rows["transmit_ns"] for part in parts]
    assert np.sort(delays[0][narrow.rows["direction"] == 0])[:8].tolist() == (
        np.sort(delays[1][wide.rows["direction"] == 0])[:8].tolist()
    )
    assert wide.streams[0].most_ppb == pytest.approx(200_000.0)


def test_windows_end_together_but_not_all_at_once():
    """Of a thousand nodes every window ends within a tenth of one, in all parts of that alike."""
    window_ns = 2_000_000_000
    boundary_ns = 850_000_000 * window_ns
    numbers = np.array(
        [
            [window_number(f"node{node}", boundary_ns + tenth * window_ns // 100, window_ns) for tenth in range(-1, 11)]
            for node in range(1_000)
        ]
    )
    assert set(numbers[:, 0]) == {850_000_000 - 1}
    assert set(numbers[:, -1]) == {850_000_000}
    assert np.diff(numbers, axis=1)[:, 1:].sum(axis=0).min() > 50
