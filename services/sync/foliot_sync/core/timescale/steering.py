"""Steers the common time: it follows the whole fleet, the rates of named clocks, UTC or TAI.

Slowly, and without a jump.

From window to window the common time goes on as the median of the clocks has it, whatever the reference does. From
there its rate is turned, by little in each second. So a node with the last window's state and one with this window's
differ by some nanoseconds. Before any clock but the reference has been called synchronised, no two nodes can differ. So
the common time begins where it should be.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from foliot_schemas.bounds import FAR_NS
from foliot_schemas.clock import same_boot
from foliot_sync.core.limits import RATE_LIMIT_PPB, TAKEOVER_WINDOWS
from foliot_sync.core.timescale.realtime_offsets import RealtimeOffsets
from foliot_sync.core.timescale.smear import SmearWatch
from foliot_sync.core.timescale.time_map import PriorStates, TimeMap
from foliot_sync.core.timescale.utc_phase import UtcPhase
from foliot_sync.core.timescale.utc_seconds import KernelWord, UtcSeconds, believed
from foliot_sync.core.track.kalman import local_at
from foliot_sync.core.track.status_machine import BELIEVED
from foliot_sync.settings import NANOSECONDS

if TYPE_CHECKING:
    from collections.abc import Iterable

    from foliot_schemas.clock import ClockState, UtcDisagreement
    from foliot_sync.core.arrays import Mask
    from foliot_sync.core.timescale.realtime_offsets import OffUtc
    from foliot_sync.core.timescale.time_map import Seen
    from foliot_sync.settings import SyncSettings

_CALM_S = 10.0
"""Time over which the rates of clocks are averaged: five windows, so that no window is followed alone."""
_SPREADS = 4.0
"""Median deviations (as of a normal distribution) beyond which a named clock is left out of the mean."""
_LEAST_SPREAD_PPB = 10.0
"""No clock is left out for less: a quartz wanders by as much."""
_MOST_ASKED = 1_000
"""Clocks to ask for UTC. More do not know it any better, and asking takes time."""


class Timescale:
    """The steering of the common time. Pure, as is all of sync but its shell."""

    def __init__(self, settings: SyncSettings) -> None:
        self.settings = settings
        self.time_map = TimeMap()
        self.realtime = RealtimeOffsets()
        self.followed = False
        """Whether there was a clock to follow in the last window; if not, the common time goes on as it ran."""
        self.seconds = UtcSeconds()
        self.smear = SmearWatch()
        self.off_ns: float | None = None
        """UTC minus the common time, but for whole seconds, as measured in the last window; None: it was not
        measured."""
        self.utc_error_ns = -1
        """How far the common time may be from UTC."""
        self.utc_offset_error_ns = -1
        """How far the common time less its offset from UTC may be from UTC."""
        self.word = KernelWord()
        """The kernel's word that was believed in the last window."""
        self._expected = self.seconds.expected(0)
        self._has_utc = settings.timescale in {"utc", "tai"}
        self._phase = UtcPhase()
        self._turned_ppb = 0.0
        """The sum of all turns, in ppb: by how much the common time runs faster than the clocks together would have
        it."""
        self._former_run: dict[str, ClockState] = {}
        self._told: PriorStates | None = None
        self._windows = 0
        self._fixed = False
        """Whether a node may have the common time already, so that it may not jump any more."""

    def resume(self, states: Iterable[ClockState]) -> None:
        """Takes up the common time where an earlier run of sync left it, as soon as its clocks are heard."""
        self._former_run = {state.clock: state for state in states if state.status in BELIEVED}

    def hand_over(self, drift_ppb: float, at_ns: int) -> None:
        """Measures against another clock from a measured time on; the former reference was faster by so much."""
        # By as much more does the common time gain on the measured one.
        self.time_map = self.time_map.turned(at_ns, drift_ppb)

    def follow(self, seen: Seen, now_ns: int, span_s: float) -> None:
        """Steers for another window.

        Parameters:
            seen: the clocks; there is a reference.
            now_ns: measured time.
            span_s: since the last call.
        """
        self._windows += 1
        now_ns = min(max(now_ns, 1 - FAR_NS), FAR_NS - 1)
        self._hear_kernels(seen, now_ns)
        if not self._fixed and self._former_run:
            self._take_up(seen, now_ns)
        elif self._fixed and self._told is not None:
            self._go_on(seen, self._told, seen.synchronised, now_ns)
        if self._fixed:
            most = self.settings.steer_ppb_s * span_s
            self._turn(min(max(self._wish_ppb(seen, span_s, now_ns), -most), most), now_ns)
        else:
            self._begin(seen, now_ns)
        others = seen.synchronised & (np.arange(len(seen.names)) != seen.reference)
        self._fixed |= bool(others.any()) or self._windows > TAKEOVER_WINDOWS
        self._remember(seen)
        self._expected = self.seconds.expected(self.time_map.of(now_ns))
        self.realtime.forget_whom()

    def _go_on(self, seen: Seen, told: PriorStates, which: Mask, now_ns: int, *, turning: bool = True) -> bool:
        """Takes the common time from the median of the last states of clocks that are measured now.

        Says whether there are any.

        So the error of one clock, be it the reference, moves no other clock's time.
        """
        which = which & seen.measured
        which[: len(told.believed)] &= told.believed
        which[len(told.believed) :] = False
        if not which.any():
            return False
        places = np.flatnonzero(which)
        local_ns, as_of_ns = local_at(seen.tracks, now_ns)[places], told.as_of_ns[places]
        drifts_ppb = told.drift_ppb[places]
        gained_ns = np.rint(drifts_ppb / NANOSECONDS * (local_ns - as_of_ns)).astype(np.int64)
        apart_ns = local_ns + told.offset_ns[places] + gained_ns - self.time_map.of(now_ns)
        slower_ppb = drifts_ppb - self.time_map.drift_ppb(seen.tracks.drift_ppb[places])
        rate_ppb = self._within(self.time_map.rate_ppb + float(np.median(slower_ppb)))
        self.time_map = self.time_map.shifted(round(float(np.median(apart_ns))))
        if turning:
            self.time_map = self.time_map.turned(now_ns, rate_ppb - self.time_map.rate_ppb)
        return True

    def _take_up(self, seen: Seen, now_ns: int) -> None:
        """Goes on with the time of an earlier run, by its states of clocks whose hosts have run on since."""
        count = len(seen.names)
        told = PriorStates(
            np.zeros(count, np.int64), np.zeros(count, np.int64), np.zeros(count), np.zeros(count, np.bool_)
        )
        for number, name in enumerate(seen.names):
            state = self._former_run.get(name)
            if state is not None and same_boot(self.realtime.epoch_ns(name), state.epoch_ns):
                told.as_of_ns[number], told.offset_ns[number] = state.as_of_ns, state.offset_ns
                told.drift_ppb[number], told.believed[number] = state.drift_ppb, True
        if told.believed[seen.reference]:
            # That rate is better known than the one that a first window shows.
            self.time_map = self.time_map.turned(now_ns, float(told.drift_ppb[seen.reference]) - self.time_map.rate_ppb)
        turning = not told.believed[seen.reference]
        # The median may be far away, and floats are good to 256 ns there; the second time it is near.
        taken = [self._go_on(seen, told, seen.measured, now_ns, turning=turning) for _ in range(2)]
        if taken[0]:
            self.seconds.resume(max(self._former_run.values(), key=lambda state: state.window))
            self._former_run, self._fixed = {}, True

    def _remember(self, seen: Seen) -> None:
        tracks, time_map = seen.tracks, self.time_map
        offset_ns = tracks.offset_ns + time_map.ahead_at(tracks.as_of_ns + tracks.offset_ns)
        self._told = PriorStates(tracks.as_of_ns, offset_ns, time_map.drift_ppb(tracks.drift_ppb), seen.synchronised)

    def _hear_kernels(self, seen: Seen, now_ns: int) -> None:
        """Takes the word of the reference's kernel on UTC, or that of others where they alone count, or know it."""
        words = self.realtime.words(self.settings.references if self._has_utc else ())
        if words:
            self.word = believed(words, seen.names[seen.reference])
            self.seconds.hear(self.word, self.time_map.of(now_ns))

    def disagreement(self, name: str) -> UtcDisagreement:
        """The part of UTC about which the kernel of a clock's host contradicts the published one."""
        return self._expected.contradicted(self.realtime.word(name))

    def _begin(self, seen: Seen, now_ns: int) -> None:
        """Sets rate and time at once.

        The rate is that of UTC, of the named clocks, or of the whole fleet. The time is UTC, TAI or the hosts' median.
        """
        named = self._named(seen) & seen.measured
        having = self._having_utc(seen)
        rate_ppb = self.realtime.rate_ppb(seen, having, self.time_map) if self._has_utc else None
        if self.settings.timescale == "nodes" and named.any():
            self._turn(self._mean_ppb(seen, named), now_ns)
        else:
            self._turn(self._least_motion_ppb(seen, seen.measured) if rate_ppb is None else rate_ppb, now_ns)
        offset_s = self.seconds.tai_offset_at_s(self.time_map.of(now_ns)) if self.settings.timescale == "tai" else 0
        off = self.realtime.off_utc(seen, having, self.time_map)
        utc_ns = off.whole_ns if self._has_utc and off is not None else None
        if utc_ns is not None:
            self.time_map = self.time_map.shifted(round(utc_ns) + offset_s * NANOSECONDS)
            self._phase.begin(rate_is_known=rate_ppb is not None)
        else:
            away_ns = self.realtime.away_ns(seen, np.flatnonzero(named).tolist(), self.time_map)
            if not len(away_ns):
                away_ns = self.realtime.away_ns(seen, np.flatnonzero(seen.measured).tolist(), self.time_map)
            median_ns = round(float(np.median(away_ns))) if len(away_ns) else 0
            self.time_map = self.time_map.shifted(median_ns + offset_s * NANOSECONDS)
        off = self.realtime.off_utc(seen, having, self.time_map)
        behind_s = None if off is None or self._has_utc else off.behind_s
        self.seconds.put(offset_s if behind_s is None else behind_s)
        self._measure_utc(seen, having, now_ns, 0.0)
        self.followed = utc_ns is not None if self._has_utc else bool(named.any())

    def _wish_ppb(self, seen: Seen, span_s: float, now_ns: int) -> float:
        """By how much faster the common time should run."""
        having, named = self._having_utc(seen), self._named(seen) & seen.synchronised
        off = self._measure_utc(seen, having, now_ns, span_s)
        if self._has_utc:
            rate_ppb = self.realtime.rate_ppb(seen, having, self.time_map)
            if off is not None and rate_ppb is not None:
                self.smear.watch(rate_ppb + self._turned_ppb, span_s)
            self.followed = off is not None and not self.smear.smeared
            self._phase.go_on(None if off is None else off.fraction_ns, rate_ppb, span_s)
            if self.smear.smeared:
                return self.smear.usual_ppb - self._turned_ppb
            return self._phase.wish_ppb(self.settings.slew_ppb, self.settings.steer_ppb_s)
        self.followed = bool(named.any())
        calmly = 1 - math.exp(-span_s / _CALM_S)
        if self.settings.timescale == "nodes":
            return calmly * self._mean_ppb(seen, named)
        return calmly * self._least_motion_ppb(seen, named)

    def _least_motion_ppb(self, seen: Seen, which: Mask) -> float:
        """By how much faster (ppb) the common time would run if it corrected these clocks as little as possible.

        0 where there is but one.
        """
        if which.sum() < 2:
            return 0.0
        return -float(np.median(self.time_map.drift_ppb(seen.tracks.drift_ppb[which])))

    def _mean_ppb(self, seen: Seen, which: Mask) -> float:
        """By how much faster (ppb) it would run as these clocks do on average, without those far from the rest.

        0 where there is none.
        """
        if not which.any():
            return 0.0
        drifts = self.time_map.drift_ppb(seen.tracks.drift_ppb[which])
        apart = np.abs(drifts - np.median(drifts))
        spread = max(1.4826 * float(np.median(apart)), _LEAST_SPREAD_PPB)
        return -float(drifts[apart <= _SPREADS * spread].mean())

    def _turn(self, by_ppb: float, now_ns: int) -> None:
        """Runs faster from now on, but by no more than any two clocks differ."""
        by_ppb = self._within(self.time_map.rate_ppb + by_ppb) - self.time_map.rate_ppb
        self.time_map = self.time_map.turned(now_ns, by_ppb)
        self._phase.turned(by_ppb)
        self._turned_ppb += by_ppb

    def _within(self, rate_ppb: float) -> float:
        return min(max(rate_ppb, -RATE_LIMIT_PPB), RATE_LIMIT_PPB)

    def _having_utc(self, seen: Seen) -> list[int]:
        """The clocks whose hosts have UTC, of those that count."""
        able = seen.measured & (seen.synchronised | (not self._fixed)) & np.isfinite(seen.bound_ns)
        return self.realtime.with_utc(seen, able & self._named(seen) if self._has_utc else able)[:_MOST_ASKED]

    def _measure_utc(self, seen: Seen, having: list[int], now_ns: int, span_s: float) -> OffUtc | None:
        """UTC minus the common time, and the errors that are published with it."""
        off = self.realtime.off_utc(seen, having, self.time_map)
        common_ns = self.time_map.of(now_ns)
        self.seconds.measured(None if off is None else off.behind_s, common_ns, span_s)
        self.off_ns, self.utc_error_ns, self.utc_offset_error_ns = None, -1, -1
        if off is not None:
            made_ns = self.seconds.offset_at_s(common_ns) * float(NANOSECONDS)
            whole_ns = off.fraction_ns - made_ns if off.whole_ns is None else off.whole_ns
            self.off_ns = off.fraction_ns
            self.utc_error_ns = math.ceil(abs(whole_ns) + off.error_ns)
            self.utc_offset_error_ns = math.ceil(abs(whole_ns + made_ns) + off.error_ns)
        return off

    def _named(self, seen: Seen) -> Mask:
        """Selects the clocks that the settings name; all, if they name none."""
        if not self.settings.references:
            return np.ones(len(seen.names), dtype=bool)
        return np.isin(np.array(seen.names), self.settings.references)
