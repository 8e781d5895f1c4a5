"""A leap second, on clocks whose truth is known.

The common time has none, and what is published turns it into UTC on both sides.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
from steered import SECOND, WINDOW_S, Steered

from foliot_schemas import ClockState
from foliot_sync.core.timescale.smear import SmearWatch
from foliot_sync.core.timescale.utc_seconds import KernelWord, UtcSeconds, believed

RATES = (-310.0, 120.0, 40.0, -90.0, 220.0)
DAY_S = 86_400
MIDNIGHT = 1_700_006_400
"""The end of a UTC day, as POSIX counts."""
INSERTED, DELETED = 1, -1


class LeapDay(Steered):
    """The last minutes of a day with a leap second, and the first of the next. `kinds` says what each host makes of it.

    A host of kind `kernel` announces it and steps, as Linux does; `untold` does so without knowing TAI; `silent` steps
    and announces nothing; `smears` does neither, and is off by the whole second ten minutes later.
    """

    def __init__(self, kinds, leap_s, *, until_midnight_s=121.5, tai=(), **settings):
        super().__init__(RATES[: len(kinds)], **settings)
        self.kinds, self.leap_s = list(kinds), leap_s
        self.begins_s = until_midnight_s - (leap_s == DELETED)
        """True time at which the leap second begins."""
        self.start_ns = MIDNIGHT * SECOND - round(until_midnight_s * SECOND)
        self.tai = dict(tai)
        self.announced = True

    def utc_ns(self, true_s):
        """UTC as POSIX counts."""
        return self.start_ns + round((true_s - (self.leap_s if true_s >= self.begins_s else 0)) * SECOND)

    def host(self, number):
        """As its kind has it."""
        kind, passed = self.kinds[number], self.true_s >= self.begins_s
        announces = kind in {"kernel", "untold"} and self.announced and not passed
        tai = self.tai.get(number, 0 if kind == "untold" else 37) + (passed and self.leap_s)
        leap_utc_ns = (MIDNIGHT - (self.leap_s == DELETED)) * SECOND
        word = {
            "tai_offset_s": tai if kind == "kernel" and tai >= 10 else 0,
            "leap_s": self.leap_s if announces else 0,
            "leap_utc_ns": leap_utc_ns if announces else 0,
        }
        if kind == "smears":
            smeared_s = self.leap_s * min(max((self.true_s - self.begins_s + 60) / 600, 0.0), 1.0)
            return self.start_ns + round((self.true_s - smeared_s) * SECOND), 2_000, word
        return self.utc_ns(self.true_s), 2_000, word

    def common_ns(self):
        """The common time, now."""
        return self.time_map.time_map.of(self.measured_ns())

    def ahead_ns(self):
        """By how much the common time is ahead of a UTC that had no leap second."""
        return self.common_ns() - self.start_ns - round(self.true_s * SECOND)

    def published(self):
        """The fields of a state that say how the common time becomes UTC."""
        seconds = self.time_map.seconds
        return {
            "utc_offset_s": seconds.utc_offset_s, "tai_offset_s": seconds.tai_offset_s, "leap_s": seconds.leap_s, "leap_at_ns": seconds.leap_at_ns,
        }  # fmt: skip

    def state(self):
        """A state with those."""
        return ClockState(
            clock="node0", reference="node0", offset_ns=0, drift_ppb=0.0, hard_bound_ns=0, bound_ns=0, growth_ppb=0.0, as_of_ns=0, void_after_ns=0,
            status="synchronised", **self.published(),
        )  # fmt: skip

    def off_utc_ns(self):
        """By how much UTC made of the common time is ahead of UTC."""
        return self.state().utc_ns(self.common_ns()) - self.utc_ns(self.true_s)


@pytest.mark.parametrize(("timescale", "offset_s"), [("utc", 0), ("tai", 37)])
@pytest.mark.parametrize("leap_s", [INSERTED, DELETED])
def test_a_leap_second_of_all_kernels_changes_nothing_but_utc(leap_s, timescale, offset_s):
    """The common time goes on within 2 us, every published word stays, and UTC made of it has the leap second when it is due."""
    clocks = LeapDay(["kernel"] * 5, leap_s, timescale=timescale)
    clocks.run(5)
    before = clocks.published()
    assert before == {
        "utc_offset_s": offset_s, "tai_offset_s": 37, "leap_s": leap_s, "leap_at_ns": (MIDNIGHT - (leap_s == DELETED) + offset_s) * SECOND,
    }  # fmt: skip
    for _ in range(100):
        clocks.window()
        assert abs(clocks.ahead_ns() - offset_s * SECOND) < 2_000
        assert abs(clocks.off_utc_ns()) < 2_000
        assert 2_000 <= clocks.time_map.utc_offset_error_ns < 6_000
        assert clocks.published() == before
        assert clocks.time_map.followed
        assert {clocks.time_map.disagreement(name) for name in clocks.names} == {"none"}
    assert clocks.time_map.utc_error_ns == pytest.approx(abs(offset_s + leap_s) * SECOND, abs=6_000)
    state = clocks.state()
    assert (state.tai_offset_at_s(state.leap_at_ns - 1), state.tai_offset_at_s(state.leap_at_ns)) == (37, 37 + leap_s)


@pytest.mark.parametrize("leap_s", [INSERTED, DELETED])
def test_a_time_that_begins_shortly_before_a_leap_second_is_tai(leap_s):
    """TAI's midnight is past by then, and UTC's is not: the leap second is still to come."""
    clocks = LeapDay(["kernel"] * 5, leap_s, until_midnight_s=21.5, timescale="tai")
    for _ in range(20):
        clocks.window()
        assert abs(clocks.ahead_ns() - 37 * SECOND) < 2_000
        assert abs(clocks.off_utc_ns()) < 2_000
    assert clocks.published()["leap_at_ns"] == (MIDNIGHT - (leap_s == DELETED) + 37) * SECOND


def test_the_free_time_of_a_fleet_tells_of_it_too():
    """It follows no UTC, so nothing can move it; and what the reference's kernel announces is published."""
    clocks = LeapDay(["kernel"] * 5, INSERTED)
    clocks.run(5)
    pace_ppb = clocks.pace_ppb()
    clocks.run(100)
    assert clocks.pace_ppb() == pytest.approx(pace_ppb, abs=1.0)
    assert abs(clocks.off_utc_ns()) < 100_000
    assert clocks.published()["leap_s"] == INSERTED


def test_a_host_that_smears_is_outvoted_and_named():
    """The common time stays with the four others within 2 us.

    The fifth says nothing of a leap second, which contradicts the reference until it is due.
    """
    clocks = LeapDay(["kernel"] * 4 + ["smears"], INSERTED, timescale="utc")
    clocks.run(50)
    assert [clocks.time_map.disagreement(name) for name in clocks.names] == ["none"] * 4 + ["leap"]
    assert np.abs(clocks.run(200)).max() < 2_000
    assert abs(clocks.off_utc_ns()) < 2_000


def test_hosts_that_step_unannounced_move_nothing():
    """The common time goes on within 2 us, and tells how far it is from UTC.

    After a minute the offset is one of which UTC can be made.
    """
    clocks = LeapDay(["silent"] * 5, INSERTED, timescale="utc", until_midnight_s=61.5)
    clocks.run(40)
    assert clocks.published()["utc_offset_s"] == 0
    assert clocks.time_map.utc_error_ns > 999_000_000
    assert clocks.time_map.utc_offset_error_ns > 999_000_000
    assert np.abs(clocks.run(40)).max() < 2_000
    assert clocks.pace_ppb() == pytest.approx(0.0, abs=5.0)
    assert clocks.published()["utc_offset_s"] == 1
    assert clocks.time_map.utc_error_ns > 999_000_000
    assert clocks.time_map.utc_offset_error_ns < 6_000
    assert abs(clocks.off_utc_ns()) < 2_000


def test_half_of_the_hosts_step_late():
    """Those that have stepped and those that have not agree in the fraction of a second, which is what is followed."""
    clocks = LeapDay(["kernel", "kernel", "late", "late"], INSERTED, timescale="utc", until_midnight_s=61.5)
    in_time = clocks.host

    def host(number):
        """Those of kind `late` do not notice the leap second."""
        if clocks.kinds[number] == "kernel":
            return in_time(number)
        return clocks.start_ns + round(clocks.true_s * SECOND), 2_000, {}

    clocks.host = host
    ahead = clocks.run(100)
    assert np.abs(ahead).max() < 2_000
    assert clocks.time_map.followed
    assert abs(clocks.off_utc_ns()) < 2_000


def test_a_leap_second_that_is_withdrawn():
    """What was announced is published no more, and midnight passes like any moment."""
    clocks = LeapDay(["kernel"] * 5, INSERTED, timescale="utc")
    clocks.run(20)
    assert clocks.published()["leap_s"] == INSERTED
    clocks.announced, clocks.begins_s = False, math.inf
    ahead = clocks.run(80)
    assert clocks.published() == {"utc_offset_s": 0, "tai_offset_s": 37, "leap_s": 0, "leap_at_ns": 0}
    assert np.abs(ahead).max() < 2_000
    assert abs(clocks.off_utc_ns()) < 2_000


def test_kernels_that_contradict_the_reference_are_named_and_not_believed():
    """One has another offset, one announces nothing, and one knows nothing, which is no contradiction."""
    clocks = LeapDay(["kernel", "kernel", "kernel", "silent", "untold"], INSERTED, timescale="tai", tai={1: 36})
    clocks.run(10)
    assert [clocks.time_map.disagreement(name) for name in clocks.names] == ["none", "offset", "none", "leap", "none"]
    assert clocks.published()["tai_offset_s"] == 37
    assert abs(clocks.ahead_ns() - 37 * SECOND) < 2_000


def test_where_no_kernel_knows_tai_the_time_begins_at_utc():
    """And goes on so when a kernel learns it, for it never jumps; UTC is made of it as ever."""
    clocks = LeapDay(["untold"] * 5, INSERTED, timescale="tai")
    clocks.run(20)
    assert clocks.published()["tai_offset_s"] == clocks.published()["utc_offset_s"] == 0
    clocks.kinds = ["kernel"] * 5
    assert np.abs(clocks.run(60)).max() < 2_000
    assert clocks.state().tai_offset_at_s(clocks.common_ns()) == 38
    assert abs(clocks.off_utc_ns()) < 2_000


def test_all_hosts_smear_a_day():
    """After half an hour in which UTC's rate was learnt, a second is spread over a day.

    The common time goes on within 0.3 ms, and says that it is alone.
    """
    clocks = LeapDay(["silent"] * 3, INSERTED, timescale="utc", until_midnight_s=20_000)
    clocks.run(910)
    begins_s, plain = clocks.true_s, clocks.host

    def host(number):
        """UTC, from then on slower by 11.6 ppm."""
        wall_ns, error_ns, word = plain(number)
        return wall_ns - round((clocks.true_s - begins_s) * SECOND / DAY_S), error_ns, word

    clocks.host = host
    ahead = clocks.run(900)
    assert np.abs(ahead).max() < 300_000
    assert (clocks.time_map.followed, clocks.time_map.smear.smeared) == (False, True)
    assert clocks.time_map.utc_error_ns == pytest.approx(900 * WINDOW_S * SECOND / DAY_S, rel=0.02)


# -- what is published, from one window's words to the next's ---------------------------------------------------------

MIDNIGHT_NS = MIDNIGHT * SECOND


def told(word, common_s, seconds=None):
    """After such a word, so many seconds before or after midnight."""
    seconds = seconds or UtcSeconds()
    seconds.hear(word, MIDNIGHT_NS + round(common_s * SECOND))
    return seconds


def both_sides(seconds):
    """The offsets from UTC before and after midnight."""
    return seconds.offset_at_s(MIDNIGHT_NS - 1), seconds.offset_at_s(MIDNIGHT_NS)


ANNOUNCED = KernelWord(37, INSERTED, MIDNIGHT_NS)


def test_a_leap_second_is_told_of_for_a_day():
    """Then it is part of the offsets.

    Whatever a kernel says meanwhile, also one that takes over as reference, changes nothing.
    """
    seconds = told(ANNOUNCED, -3_600)
    for at_s in (-0.9, 0.0, 0.5, 10, 3_600, DAY_S - 1):
        for word in (ANNOUNCED, KernelWord(38, 0), KernelWord(37, 0), KernelWord()):
            told(word, at_s, seconds)
            assert both_sides(seconds) == (0, 1)
            assert (seconds.tai_offset_s, seconds.leap_s, seconds.leap_at_ns) == (37, INSERTED, MIDNIGHT_NS)
    told(KernelWord(38, 0), DAY_S, seconds)
    assert (seconds.utc_offset_s, seconds.tai_offset_s, seconds.leap_s, seconds.leap_at_ns) == (1, 38, 0, 0)


def test_an_offset_that_becomes_known_after_the_leap_second_is_that_of_before():
    """For both sides of it, as the others are."""
    seconds = told(KernelWord(0, INSERTED, MIDNIGHT_NS), -60)
    assert seconds.tai_offset_at_s(MIDNIGHT_NS) == 0
    told(KernelWord(38, 0), 60, seconds)
    assert (seconds.tai_offset_at_s(MIDNIGHT_NS - 1), seconds.tai_offset_at_s(MIDNIGHT_NS)) == (37, 38)


def test_a_kernel_that_does_not_know_withdraws_nothing():
    """A handover to a host whose kernel nobody disciplines leaves the announcement, and one to a host that knows of none withdraws it."""
    seconds = told(ANNOUNCED, -3_600)
    assert told(KernelWord(), -3_000, seconds).leap_s == INSERTED
    assert told(KernelWord(37, 0), -2_400, seconds).leap_s == 0


def test_a_leap_second_of_another_day_is_not_believed():
    """No kernel announces one but for the end of its own day: that host's time of day is wrong."""
    assert told(KernelWord(37, INSERTED, MIDNIGHT_NS + 3 * DAY_S * SECOND), -60).leap_s == 0


def test_daemons_that_set_the_clock_late_do_not_take_the_leap_second_back():
    """For an hour most hosts may show the offset of before; if they do so for longer, there was no leap second."""
    seconds, span_s = told(ANNOUNCED, -60), 20.0
    for number in range(1, 180):
        seconds.measured(0, MIDNIGHT_NS + round(number * span_s * SECOND), span_s)
        assert both_sides(seconds) == (0, 1)
    seconds.measured(0, MIDNIGHT_NS + 3_600 * SECOND, span_s)
    assert (both_sides(seconds), seconds.leap_s) == ((0, 0), 0)


def test_another_offset_counts_after_a_minute():
    """What is seen for less, or not agreed on, changes nothing; a leap second that is to come stays announced."""
    seconds = told(ANNOUNCED, -3_600)
    for offset_s in (*[3] * 29, None, *[3] * 29):
        seconds.measured(offset_s, MIDNIGHT_NS - 3_600 * SECOND, WINDOW_S)
    assert seconds.utc_offset_s == 0
    seconds.measured(3, MIDNIGHT_NS - 3_600 * SECOND, WINDOW_S)
    assert (seconds.utc_offset_s, seconds.leap_s) == (3, INSERTED)
    assert told(ANNOUNCED, -3_598, seconds).leap_at_ns == MIDNIGHT_NS + 3 * SECOND


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ({}, KernelWord()),
        ({"node0": ANNOUNCED, "node1": KernelWord(36, 0), "node2": KernelWord(36, 0)}, ANNOUNCED),
        ({"node1": KernelWord(36, 0), "node2": KernelWord(37, 0), "node3": KernelWord(37, 0)}, KernelWord(37, 0)),
        ({"node0": KernelWord(0, 0), "node1": ANNOUNCED, "node2": ANNOUNCED}, KernelWord(37, 0)),
        ({"node0": KernelWord(37), "node1": KernelWord(36, 0), "node2": ANNOUNCED, "node3": ANNOUNCED}, ANNOUNCED),
    ],
    ids=["nobody", "the reference alone", "without it most", "what it does not know is asked of others", "so for leaps"],
)  # fmt: skip
def test_whose_kernel_is_believed(words, expected):
    """The reference's, here node0's, as far as it knows."""
    assert believed(words, "node0") == expected


LATER = KernelWord(37, INSERTED, MIDNIGHT_NS + DAY_S * SECOND)


@pytest.mark.parametrize(
    ("word", "before", "meanwhile", "after"),
    [
        (ANNOUNCED, "none", "none", "both"),
        (KernelWord(), "none", "none", "none"),
        (KernelWord(36), "offset", "offset", "offset"),
        (KernelWord(37, 0), "leap", "none", "offset"),
        (KernelWord(38, 0), "both", "none", "none"),
        (KernelWord(0, 0), "leap", "none", "none"),
        (LATER, "leap", "leap", "both"),
        (KernelWord(37, DELETED, MIDNIGHT_NS - SECOND), "leap", "leap", "both"),
    ],
)
def test_what_a_kernel_contradicts(word, before, meanwhile, after):
    """Whoever does not know contradicts nobody.

    And in the minute after a leap second some kernels have counted it in what they said last, and others not.
    """
    seconds = told(ANNOUNCED, -3_600)
    found = [seconds.expected(MIDNIGHT_NS + round(at_s * SECOND)).contradicted(word) for at_s in (-60, 30, 90)]
    assert found == [before, meanwhile, after]


def test_where_nothing_is_known_nothing_is_contradicted():
    """But an announcement that is not believed is."""
    expected = UtcSeconds().expected(MIDNIGHT_NS)
    assert [expected.contradicted(word) for word in (KernelWord(37), KernelWord(37, 0), ANNOUNCED)] == [
        "none", "none", "leap",
    ]  # fmt: skip


# -- smears -----------------------------------------------------------------------------------------------------------


def smeared_ns(rate_ppb, lasts_s):
    """How much of a smear is followed: what has passed of it while it was not noticed, after two days of steady UTC."""
    watch, followed_ns = SmearWatch(), 0.0
    for _ in range(round(2 * DAY_S / WINDOW_S)):
        watch.watch(4_000.0, WINDOW_S)
    for number in range(round(lasts_s / WINDOW_S)):
        rate = rate_ppb(number * WINDOW_S)
        watch.watch(4_000.0 + rate, WINDOW_S)
        followed_ns += 0.0 if watch.smeared else rate * WINDOW_S
    return abs(followed_ns)


def test_smears_are_noticed():
    """Of one that is even, less than a millisecond is followed; of those that begin slowly, 30 ms at most.

    A cosine, and a rate that rises for nine hours and then falls.
    """
    even, most = -SECOND / DAY_S, -2 * SECOND / 64_800
    assert smeared_ns(lambda _: even, DAY_S) < 1_000_000
    assert smeared_ns(lambda at_s: even * (1 - math.cos(2 * math.pi * at_s / DAY_S)), DAY_S) < 30_000_000
    assert smeared_ns(lambda at_s: most * (1 - abs(at_s / 32_400 - 1)), 64_800) < 30_000_000


def test_clocks_that_all_warm_up_are_no_smear():
    """All quartzes of a fleet get slower by 2 ppm in ten minutes, when its work begins."""
    watch = SmearWatch()
    for number in range(4_000):
        watch.watch(10_000.0 + 2_000.0 * min(max(number - 2_000, 0) / 300, 1.0), WINDOW_S)
        assert not watch.smeared


def test_daemons_that_slew_all_clocks_after_a_start_teach_no_rate():
    """By 500 ppm for ten minutes, as ntpd does: what comes after it is no smear."""
    watch = SmearWatch()
    for number in range(2_000):
        watch.watch(500_000.0 if number < 300 else 0.0, WINDOW_S)
        assert not watch.smeared
    assert watch.usual_ppb == pytest.approx(0.0, abs=1_000.0)


def test_a_rate_that_stays_is_learnt_anew():
    """No smear lasts for longer than a day; after thirty hours the rate counts, whatever it was."""
    watch = SmearWatch()
    for _ in range(2_000):
        watch.watch(0.0, WINDOW_S)
    seen = []
    for _ in range(60_000):
        watch.watch(-20_000.0, WINDOW_S)
        seen.append(watch.smeared)
    assert sum(seen) * WINDOW_S == pytest.approx(108_000, abs=60)
    assert not seen[-1]
    assert watch.usual_ppb == pytest.approx(-20_000.0, abs=1.0)
