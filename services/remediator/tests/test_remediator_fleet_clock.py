"""The remediator's time: the median of what nodes say."""

from __future__ import annotations

import pytest

from foliot_remediator.shell.fleet_clock import FleetClock
from foliot_schemas import DelayBatch


@pytest.fixture
def clock(monkeypatch):
    """A clock whose local time stands still at 1,000 ns."""
    monkeypatch.setattr(FleetClock, "local_ns", lambda _: 1_000)
    return FleetClock()


def batch(at_ns, bound_ns=10, node="node0"):
    """A node's report, empty but for its time."""
    return DelayBatch(node=node, at_ns=at_ns, interval_ns=1, bound_ns=bound_ns, paths=(), columns={})


def test_one_wrong_clock_changes_nothing(clock):
    """Whichever way it is wrong, and however often it says so, as long as it is in the minority."""
    for _ in range(10):
        for number, at_ns in enumerate((50_000, 50_002, 9_000_000_000_000)):
            clock.learn(batch(at_ns, node=f"node{number}"))
    assert clock.now_ns() == 50_002


@pytest.mark.parametrize("by_ns", [43_000, -43_000])
def test_a_new_reference_is_followed(monkeypatch, by_ns):
    """When all nodes agree on another time, that is the time.

    An earlier one is so as soon as it cannot be the bus's delay, which lasts no four seconds.
    """
    bus = Bus(monkeypatch)
    bus.hear(40, 50 * SECOND + by_ns)
    assert bus.ahead_ns() == 50 * SECOND + max(by_ns, 0)
    bus.hear(400, 50 * SECOND + by_ns)
    assert bus.ahead_ns() == 50 * SECOND + by_ns


def test_what_all_are_late_by_for_a_moment_does_not_set_the_clock_back(monkeypatch):
    """As on a busy bus. What lies a moment back must not seem to be of now by that."""
    bus = Bus(monkeypatch)
    bus.local_ns += 200_000_000
    bus.hear(150, 50 * SECOND - 200_000_000)
    assert bus.ahead_ns() == 50 * SECOND


def test_a_node_that_left_is_no_part_of_the_clock(monkeypatch):
    """Nothing is remembered of it."""
    bus = Bus(monkeypatch)
    bus.clock.forget("node0")
    assert bus.clock._offsets._nodes == {}
    assert bus.ahead_ns() == 50 * SECOND


SECOND = 1_000_000_000


class Bus:
    """Batches that say 50 s more than the local time, one every 10 ms."""

    def __init__(self, monkeypatch):
        self.local_ns = 0
        monkeypatch.setattr(FleetClock, "local_ns", lambda _: self.local_ns)
        self.clock = FleetClock()
        self.hear(40)

    def hear(self, count, offset_ns=50 * SECOND):
        """So many batches, one after the other."""
        for _ in range(count):
            self.local_ns += SECOND // 100
            self.clock.learn(batch(offset_ns + self.local_ns))

    def ahead_ns(self):
        """How far the clock is from the local time."""
        return self.clock.now_ns() - self.local_ns


def test_what_waited_while_the_bus_was_away_does_not_set_the_clock_back(monkeypatch):
    """It comes all at once, more of it than the median holds; the time goes on as it was, whatever is said now."""
    bus = Bus(monkeypatch)
    bus.local_ns += 20 * SECOND
    for _ in range(100):
        bus.clock.learn(batch(51 * SECOND))
    assert bus.ahead_ns() == 50 * SECOND


def test_a_reference_that_was_set_back_is_believed_in_the_end(monkeypatch):
    """When nobody has said anything else for five seconds."""
    bus = Bus(monkeypatch)
    bus.hear(499, 40 * SECOND)
    assert bus.ahead_ns() == 50 * SECOND
    bus.hear(2, 40 * SECOND)
    assert bus.ahead_ns() == 40 * SECOND


def test_who_is_not_synchronised_is_not_asked(clock):
    """Its time is its own."""
    clock.learn(batch(50_000))
    for _ in range(40):
        clock.learn(batch(90_000, bound_ns=-1))
    assert clock.now_ns() == 50_000
    assert clock.bound_ns() == -1
