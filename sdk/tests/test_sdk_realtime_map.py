"""Kernel stamps under a system clock that is being disciplined: local time stays straight."""

from __future__ import annotations

import time

import numpy as np
import pytest

from foliot.clock import realtime_map

MILLISECOND = 1_000_000
EPOCH = 1_790_000_000 * 10**9
TICK = 40 * MILLISECOND


class Disciplined:
    """This machine's clocks, of which one is moved against the other as `distance` says."""

    CLOCK_REALTIME, CLOCK_MONOTONIC_RAW = time.CLOCK_REALTIME, time.CLOCK_MONOTONIC_RAW

    def __init__(self, distance):
        self.raw_ns = 10**12
        self._distance = distance

    def realtime_ns(self, raw_ns):
        """CLOCK_REALTIME at these moments."""
        return raw_ns + EPOCH + np.rint(self._distance(np.asarray(raw_ns) - 10**12)).astype(np.int64)

    def clock_gettime_ns(self, clock):
        """As of `time`; each look takes 50 ns."""
        self.raw_ns += 50
        return self.raw_ns if clock == self.CLOCK_MONOTONIC_RAW else int(self.realtime_ns(self.raw_ns))


class Slow(Disciplined):
    """A slow machine's: a look takes 400 ns and some more, before and after what it shows.

    One in 17 is interrupted, most for less than a microsecond.
    """

    def __init__(self, distance):
        super().__init__(distance)
        self._random = np.random.default_rng(2)

    def clock_gettime_ns(self, clock):
        """As of `time`."""
        self._pass()
        shown_ns = self.raw_ns if clock == self.CLOCK_MONOTONIC_RAW else int(self.realtime_ns(self.raw_ns))
        self._pass()
        return shown_ns

    def _pass(self):
        busy = self._random.random() < 0.03
        self.raw_ns += int(200 + self._random.exponential(20) + busy * self._random.pareto(1.5) * 400)


def errors_ns(monkeypatch, distance, ticks=100, kind=Disciplined):
    """By how much stamps are wrong that are read at ticks, after they were mapped."""
    clocks = kind(distance)
    monkeypatch.setattr(realtime_map, "time", clocks)
    kept, draw, found = realtime_map.RealtimeMap(), np.random.default_rng(1), []
    for tick in range(1, ticks):
        clocks.raw_ns = 10**12 + tick * TICK
        raw_ns = np.sort(clocks.raw_ns - draw.integers(0, TICK, 20))
        stamps_ns = clocks.realtime_ns(raw_ns)
        sockets = np.split(stamps_ns, 4)
        found.append(np.concatenate([kept.realtime_to_raw(part) for part in sockets]) - raw_ns)
    return np.abs(np.concatenate(found))


@pytest.mark.parametrize("ppm", [0, -1.09, 20, 500, 80_000])
def test_a_rate_is_taken_out(monkeypatch, ppm):
    """However fast the one runs against the other, up to chrony's fastest slew."""
    assert errors_ns(monkeypatch, lambda ns: ns * ppm * 1e-6).max() <= 10


def test_a_slew_that_begins_and_ends_costs_a_tick(monkeypatch):
    """5 ms are taken out at 500 ppm.

    Stamps of the ticks where it begins and ends are wrong by at most d T / 4, all others by nothing.
    """
    wrong = errors_ns(
        monkeypatch, lambda ns: np.clip(ns - 500 * MILLISECOND, 0, 2_000 * MILLISECOND + TICK // 2) * 500e-6
    )

    assert wrong.max() <= 500e-6 * TICK / 4 + 10
    assert np.mean(wrong > 10) <= 2 / 99


def test_a_short_step_costs_its_tick_alone(monkeypatch):
    """Whoever sets the clock by less than a tick moves the stamps waiting in the sockets.

    The next tick's are right.
    """
    wrong = errors_ns(monkeypatch, lambda ns: np.where(ns > 1_010 * MILLISECOND, -15e6, 0.0))

    assert np.mean(wrong > 10) <= 1 / 99


@pytest.mark.parametrize("step_s", [-1.0, 1.0, -37.0, 37.0])
def test_a_leap_second_costs_nothing(monkeypatch, step_s):
    """Stamps of before and after a long step that wait in the sockets are all right.

    They are so though CLOCK_REALTIME shows some times twice or never.
    """
    wrong = errors_ns(monkeypatch, lambda ns: ns * -1.09e-6 + np.where(ns > 1_010 * MILLISECOND, step_s * 1e9, 0.0))

    assert wrong.max() <= 10


@pytest.mark.parametrize("step_s", [-1.0, 1.0])
def test_a_leap_second_while_few_stamps_come(monkeypatch, step_s):
    """The first stamp after it lies before all that were read, or a second too late, and is right."""
    clocks = Disciplined(lambda ns: np.where(ns > 1_000 * MILLISECOND, step_s * 1e9, 0.0))
    monkeypatch.setattr(realtime_map, "time", clocks)
    kept = realtime_map.RealtimeMap()
    for at_ms in (960, 1_040, 1_080, 1_900, 2_900):
        clocks.raw_ns = 10**12 + at_ms * MILLISECOND
        raw_ns = np.array([clocks.raw_ns - 5 * MILLISECOND])
        assert np.abs(kept.realtime_to_raw(clocks.realtime_ns(raw_ns)) - raw_ns).max() <= 10


def slews(ns):
    """Each second the rate is another one, by some 20 ppm."""
    random = np.random.default_rng(3)
    at_ns = np.arange(22) * 1e9 + random.uniform(0, TICK, 22)
    return np.interp(ns, at_ns, np.cumsum(random.normal(0, 20e-6 * 1e9, 22)))


@pytest.mark.parametrize(
    ("distance", "most"),
    [(lambda ns: ns * 5e-6, 0), (slews, 0.04), (lambda ns: np.where(ns > 1_010 * MILLISECOND, -15e6, 0), 0.002)],
)
def test_readings_average_out_their_noise(monkeypatch, distance, most):
    """The quickest of five tries alone made 10 % of stamps wrong by 13 ns and more.

    Only ticks where the rate changes or the clock is set do worse.
    """
    wrong = errors_ns(monkeypatch, distance, 500, Slow)

    assert np.percentile(wrong, 90) <= 10
    assert np.mean(wrong > 30) <= most


def test_stamps_that_waited_for_long_are_right(monkeypatch):
    """A process that was halted finds old ones: between the readings before and after, the rate was even."""
    clocks = Disciplined(lambda ns: ns * 20e-6)
    monkeypatch.setattr(realtime_map, "time", clocks)
    kept = realtime_map.RealtimeMap()
    clocks.raw_ns += 3_000 * MILLISECOND
    raw_ns = 10**12 + np.arange(0, 3_000 * MILLISECOND, 100 * MILLISECOND)

    assert np.abs(kept.realtime_to_raw(clocks.realtime_ns(raw_ns)) - raw_ns).max() <= 10


def test_no_stamps_are_no_stamps():
    """A tick in which nothing came."""
    assert len(realtime_map.RealtimeMap().realtime_to_raw(np.empty(0, np.int64))) == 0
