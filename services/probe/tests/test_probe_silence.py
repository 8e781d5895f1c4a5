"""Silence: when a path is silent, when it speaks again, and when the listener must not judge."""

from __future__ import annotations

import numpy as np
import pytest

from foliot.columns import enlarge
from foliot_probe.core.measure.silence import SilenceWatch

MS = 1_000_000
PROMISED_US = 50_000
IN_USE = np.array([True])


def hear(watch, row, at_ms, *, promised_us=PROMISED_US, in_use=IN_USE):
    """One probe on a row."""
    return watch.hear(np.array([row]), np.array([at_ms * MS]), np.array([promised_us]), in_use).tolist()


@pytest.fixture
def watch():
    """Three intervals and 10 ms."""
    return SilenceWatch(4)


def test_a_path_falls_silent_after_three_promised_intervals_and_the_grace(watch):
    """Not a nanosecond sooner, and once."""
    hear(watch, 1, 1_000)
    assert watch.next_ns() == 1_160 * MS
    assert watch.judge(1_160 * MS - 1).tolist() == []
    assert watch.judge(1_160 * MS).tolist() == [1]
    assert watch.judge(2_000 * MS).tolist() == []
    assert watch.next_ns() is None


def test_a_path_that_is_heard_in_time_never_falls_silent(watch):
    """Two lost probes of three are loss, not silence."""
    for at_ms in range(0, 3_000, 150):
        assert watch.judge(at_ms * MS).tolist() == []
        hear(watch, 1, at_ms)


def test_a_silent_path_speaks_again_at_the_first_probe_heard(watch):
    """Said once, also where several probes come in one batch."""
    hear(watch, 1, 0)
    watch.judge(200 * MS)
    again = watch.hear(
        np.array([1, 1]), np.array([300 * MS, 301 * MS]), np.array([PROMISED_US] * 2), np.array([True] * 2)
    )
    assert again.tolist() == [1]
    assert hear(watch, 1, 350) == []
    assert watch.judge(511 * MS).tolist() == [1]


def test_all_paths_of_a_tick_fall_silent_together(watch):
    """Paths heard within a tick are judged in one call."""
    for row in range(3):
        hear(watch, row, row)
    assert watch.judge(165 * MS).tolist() == [0, 1, 2]


def test_a_path_that_is_not_in_use_is_not_judged(watch):
    """Its sender sends seldom, and nobody waits for it."""
    hear(watch, 1, 0, promised_us=200_000, in_use=np.array([False]))
    assert watch.judge(10_000 * MS).tolist() == []


def test_a_path_that_goes_out_of_use_is_no_longer_judged(watch):
    """The last word of the sender counts."""
    hear(watch, 1, 0)
    hear(watch, 1, 50, in_use=np.array([False]))
    assert watch.judge(10_000 * MS).tolist() == []


def test_a_path_never_heard_is_not_judged(watch):
    """At the start of a fleet most peers are not there yet."""
    assert watch.judge(10_000 * MS).tolist() == []


def test_the_promise_of_the_sender_sets_the_patience(watch):
    """A sender that promises one probe in 200 ms is given 600 ms."""
    hear(watch, 1, 0, promised_us=200_000)
    assert watch.judge(609 * MS).tolist() == []
    assert watch.judge(610 * MS).tolist() == [1]


def test_an_excuse_gives_every_path_its_full_time_again(watch):
    """A listener that was stopped accuses nobody when it wakes up; a path that is dead is found later."""
    hear(watch, 1, 0)
    watch.excuse(5_000 * MS)
    assert watch.judge(5_000 * MS).tolist() == []
    assert watch.judge(5_160 * MS).tolist() == [1]


def test_an_excuse_brings_nothing_forward(watch):
    """A path heard later than the excuse keeps its own time; one already silent stays so."""
    hear(watch, 1, 100)
    watch.excuse(50 * MS)
    assert watch.judge(259 * MS).tolist() == []
    assert watch.judge(260 * MS).tolist() == [1]
    watch.excuse(300 * MS)
    assert watch.judge(10_000 * MS).tolist() == []


def test_an_excuse_can_be_for_some_paths_only(watch):
    """A full queue cost the packets of one socket alone."""
    hear(watch, 1, 0)
    hear(watch, 2, 0)
    watch.excuse(150 * MS, np.array([2]))
    assert watch.judge(160 * MS).tolist() == [1]
    assert watch.judge(310 * MS).tolist() == [2]


def test_a_forgotten_row_is_neither_silent_nor_awaited(watch):
    """A stream that ended leaves nothing to the next in its row."""
    hear(watch, 1, 0)
    watch.judge(200 * MS)
    watch.forget(1)
    assert hear(watch, 1, 300) == []
    watch.forget(1)
    assert watch.next_ns() is None


def test_growing_keeps_the_deadlines(watch):
    """A larger table judges as before."""
    hear(watch, 1, 0)
    enlarge(watch, 8)
    hear(watch, 7, 100)
    assert watch.judge(160 * MS).tolist() == [1]
    assert watch.judge(260 * MS).tolist() == [7]
