"""Parts of extensions that fail: said once a while, left out for longer each time, and tried again."""

from __future__ import annotations

import pytest

from foliot.runtime.extension_failures import ExtensionFailures, Failure

SECOND = 1_000_000_000


def fail(failures, second):
    """A failure; for how long the part is left out, in whole seconds."""
    failures.note("part", ValueError("odd"), second * SECOND)
    return next(more for more in range(99) if not failures.is_left_out("part", (second + more) * SECOND))


def fail_whenever_let_in(failures, times, second=0):
    """So many failures; for how long it was left out after each, and when it is let in again."""
    rests = []
    for _ in range(times):
        rests.append(fail(failures, second))
        second += rests[-1]
    return rests, second


def test_it_is_left_out_for_twice_as_long_each_time():
    """Not after the first three, and for a minute at most."""
    rests, _ = fail_whenever_let_in(ExtensionFailures(), 12)
    assert rests == [0, 0, 0, 1, 2, 4, 8, 16, 32, 60, 60, 60]


@pytest.mark.parametrize(("after_s", "rest_s"), [(59, 16), (60, 0)])
def test_a_minute_without_a_failure_forgives(after_s, rest_s):
    """Counted from when it was let in again."""
    failures = ExtensionFailures()
    _, second = fail_whenever_let_in(failures, 7)
    assert fail(failures, second + after_s) == rest_s


def test_a_time_that_was_set_back_leaves_nobody_out():
    """Else a clock that was an hour ahead for a moment would cost an hour."""
    failures = ExtensionFailures()
    fail_whenever_let_in(failures, 6, 3_600)
    assert not failures.is_left_out("part", 10 * SECOND)


def test_its_failures_are_said_once_a_minute():
    """The first at once, then how many there were; others have a turn of their own."""
    failures = ExtensionFailures()
    said = []
    for second in range(130):
        failures.note("part", ValueError("odd"), second * SECOND)
        said += [(second, each.failures) for each in failures.news(second * SECOND)]
    assert said == [(0, 1), (60, 60), (120, 60)]
    failures.note("other", KeyError("x"), 130 * SECOND)
    assert failures.news(130 * SECOND) == [Failure("other", "KeyError: 'x'", 1, 0.0)]
