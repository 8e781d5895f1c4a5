"""The schedule: rates in ticks, faster at once, slower only after it was said."""

from __future__ import annotations

from foliot_probe.schedule import FAREWELL, Schedule


def sends(schedule, row, ticks):
    """The ticks in which a row sends."""
    return [tick for tick in ticks if row in schedule.due(tick)[0]]


def test_a_row_sends_every_so_many_ticks():
    """A rate is kept exactly, whatever the row's place in its interval."""
    schedule = Schedule(8, 4)
    for row in range(8):
        schedule.begin(row, 4, 0, in_use=False)
    assert [len(schedule.due(tick)[0]) for tick in range(1, 9)] == [2] * 8


def test_missed_ticks_are_not_made_up_for():
    """After a stall a row sends once and goes on in its old rhythm."""
    schedule = Schedule(1, 4)
    schedule.begin(0, 2, 0, in_use=False)
    assert sends(schedule, 0, [1, 2, 3, 21, 22, 23]) == [1, 3, 21, 23]


def test_a_faster_rate_holds_at_once():
    """A path that comes into use is not kept waiting."""
    schedule = Schedule(1, 4)
    schedule.begin(0, 20, 0, in_use=False)
    schedule.change(0, 2, 0, in_use=True)
    assert schedule.announced[0] == 2
    assert schedule.in_use[0]
    assert sends(schedule, 0, range(1, 8)) == [1, 3, 5, 7]


def test_a_slower_rate_is_announced_before_it_holds():
    """Announcements may be lost, so several go out at the old rate."""
    schedule = Schedule(1, 4)
    schedule.begin(0, 1, 0, in_use=True)
    schedule.change(0, 10, 0, in_use=False)
    assert schedule.announced[0] == 10
    assert not schedule.in_use[0]
    assert sends(schedule, 0, range(1, 30)) == [1, 2, 3, 4, 5, 15, 25]
    assert FAREWELL == 4


def test_a_change_of_mind_during_the_farewell_keeps_the_fast_rate():
    """Back in use before it slowed down."""
    schedule = Schedule(1, 4)
    schedule.begin(0, 1, 0, in_use=True)
    schedule.change(0, 10, 0, in_use=False)
    sends(schedule, 0, range(1, 3))
    schedule.change(0, 1, 2, in_use=True)
    assert sends(schedule, 0, range(3, 20)) == list(range(3, 20))


def test_every_so_many_rounds_a_path_in_use_sends_a_coded_pair():
    """And no other path does."""
    schedule = Schedule(2, 4)
    schedule.begin(0, 1, 0, in_use=True)
    schedule.begin(1, 1, 0, in_use=False)
    coded = [schedule.due(tick)[1].tolist() for tick in range(3, 19)]
    assert [row for rows in coded for row in rows] == [0] * 4


def test_an_ended_row_sends_no_more():
    """Nor does a row never begun."""
    schedule = Schedule(2, 4)
    schedule.begin(0, 1, 0, in_use=True)
    schedule.end(0)
    schedule.grow(4)
    assert schedule.due(100)[0].tolist() == []
