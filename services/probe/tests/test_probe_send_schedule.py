"""The schedule: rates in ticks, faster at once, slower only after it was said."""

from __future__ import annotations

from foliot.columns import enlarge
from foliot_probe.core.rate.send_schedule import FAREWELL, SendSchedule


def sends(schedule, row, ticks):
    """The ticks in which a row sends."""
    return [tick for tick in ticks if row in schedule.due(tick)[0]]


def test_a_row_sends_every_so_many_ticks():
    """A rate is kept exactly, whatever the row's place in its interval."""
    schedule = SendSchedule(8)
    for row in range(8):
        schedule.begin(row, 4, 0)
    assert [len(schedule.due(tick)[0]) for tick in range(1, 9)] == [2] * 8


def test_missed_ticks_are_not_made_up_for():
    """After a stall a row sends once and goes on in its old rhythm."""
    schedule = SendSchedule(1)
    schedule.begin(0, 2, 0)
    assert sends(schedule, 0, [1, 2, 3, 21, 22, 23]) == [1, 3, 21, 23]


def test_a_faster_rate_holds_at_once():
    """A path that comes into use is not kept waiting."""
    schedule = SendSchedule(1)
    schedule.begin(0, 20, 0)
    schedule.change(0, 2, 0, in_use=True)
    assert schedule.announced[0] == 2
    assert schedule.in_use[0]
    assert sends(schedule, 0, range(1, 8)) == [1, 3, 5, 7]


def test_a_slower_rate_is_announced_before_it_holds():
    """Announcements may be lost, so several go out at the old rate."""
    schedule = SendSchedule(1)
    schedule.begin(0, 1, 0)
    schedule.change(0, 10, 0, in_use=False)
    assert schedule.announced[0] == 10
    assert not schedule.in_use[0]
    assert sends(schedule, 0, range(1, 30)) == [1, 2, 3, 4, 5, 15, 25]
    assert FAREWELL == 4


def test_a_change_of_mind_during_the_farewell_keeps_the_fast_rate():
    """Back in use before it slowed down."""
    schedule = SendSchedule(1)
    schedule.begin(0, 1, 0)
    schedule.change(0, 10, 0, in_use=False)
    sends(schedule, 0, range(1, 3))
    schedule.change(0, 1, 2, in_use=True)
    assert sends(schedule, 0, range(3, 20)) == list(range(3, 20))


def test_coded_pairs_are_sent_as_often_as_is_asked():
    """And by no other stream; whether a path is in use has nothing to do with it."""
    schedule = SendSchedule(3)
    for row, coded_every in enumerate((4, 0, 1)):
        schedule.begin(row, 1, 0)
        schedule.change(row, 1, 0, in_use=row == 1, coded_every=coded_every)
    coded = [row for tick in range(3, 19) for row in schedule.due(tick)[1].tolist()]
    assert [coded.count(row) for row in range(3)] == [4, 0, 16]


def test_full_size_probes_are_spread_and_meet_no_usual_pairs():
    """Each row's turn comes in every so many rounds, in another one than its neighbour's; 0: never."""
    schedule, never = SendSchedule(4, full_every=4), SendSchedule(4)
    for row in range(4):
        for each in (schedule, never):
            each.begin(row, 1, 0)
            each.change(row, 1, 0, in_use=True, coded_every=4)
    full = []
    for tick in range(3, 19):
        _, coded, now = schedule.due(tick)
        assert not set(coded.tolist()) & set(now.tolist())
        assert len(now) == 1
        full += now.tolist()
        assert not len(never.due(tick)[2])
    assert [full.count(row) for row in range(4)] == [4] * 4


def test_an_ended_row_sends_no_more():
    """Nor does a row never begun."""
    schedule = SendSchedule(2)
    schedule.begin(0, 1, 0)
    schedule.end(0)
    enlarge(schedule, 4)
    assert schedule.due(100)[0].tolist() == []


def test_a_schedule_that_grows_goes_on_sending_probes_of_full_size():
    """A node with more streams than there was room for at first finds links that pass only small packets, too."""
    schedule = SendSchedule(1, full_every=4)
    enlarge(schedule, 2)
    for row in range(2):
        schedule.begin(row, 1, 0)
    full = [row for tick in range(1, 9) for row in schedule.due(tick)[2].tolist()]
    assert sorted(full) == [0, 0, 1, 1]
