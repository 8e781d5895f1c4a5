"""Words dated by the promptest of the last seconds."""

from __future__ import annotations

from foliot.clock.message_dating import MinimumOffsets

MS = 1_000_000


def test_a_late_word_is_as_old_as_it_says():
    """Its clock is five seconds behind the listener's, and the bus takes nothing, once 0.5 s."""
    offsets = MinimumOffsets()
    assert offsets.offset_ns("a") is None
    assert offsets.learn("a", 1_000 * MS, 6_000 * MS) == 6_000 * MS
    assert offsets.learn("a", 1_100 * MS, 6_600 * MS) == 6_100 * MS
    assert offsets.here_ns("a", 1_050 * MS, 6_600 * MS) == 6_050 * MS
    assert offsets.here_ns("a", 9_000 * MS, 6_600 * MS) == 6_600 * MS
    assert offsets.here_ns("b", 7, 6_600 * MS) == 7


def test_a_delay_that_lasts_is_how_it_is_after_four_seconds():
    """And not before two."""
    offsets = MinimumOffsets()
    offsets.learn("a", 0, 5_000 * MS)
    found = [offsets.learn("a", at * 100 * MS, (at * 100 + 5_400) * MS) - at * 100 * MS for at in range(1, 50)]
    assert found[19] == 5_000 * MS
    assert found[-1] == 5_400 * MS


def test_a_stepped_clock_is_followed_soon():
    """Both ways; one that is steered by a little goes on as it was."""
    offsets = MinimumOffsets()
    offsets.learn("a", 1_000 * MS, 6_000 * MS)
    assert offsets.learn("a", 1_090 * MS, 6_100 * MS) == 6_090 * MS
    assert offsets.learn("a", 4_000 * MS, 6_200 * MS) == 6_200 * MS
    for later in (0, 100):
        assert offsets.learn("a", (1_300 + later) * MS, (6_300 + later) * MS) < 4_000 * MS  # it may have been overtaken
    assert offsets.learn("a", 1_500 * MS, 6_500 * MS) == 6_500 * MS


def test_what_waited_and_comes_at_once_sets_no_clock_back():
    """Also if nothing newer comes between; a clock that was set back shows by what comes after."""
    offsets = MinimumOffsets()
    offsets.learn("a", 9_000 * MS, 9_000 * MS)
    for at in range(0, 2_000, 100):
        assert offsets.learn("a", at * MS, (9_010 + at // 100) * MS) == at * MS
    found = [offsets.learn("a", at * MS, (7_100 + at) * MS) for at in (2_000, 2_100)]
    assert found == [2_000 * MS, 9_200 * MS]


def test_who_left_is_forgotten():
    """Its next word is its first."""
    offsets = MinimumOffsets()
    offsets.learn("a", 1_000 * MS, 6_000 * MS)
    offsets.forget("a")
    assert offsets.learn("a", 1_000 * MS, 7_000 * MS) == 7_000 * MS
