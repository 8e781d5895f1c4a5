"""A Kalman filter per clock: offset and drift with their covariance, extrapolated to now.

Each filter has two states. A clock's rate wanders as a random walk. So over t seconds the covariance of (offset, drift)
grows by ``q [[t^3/3, t^2/2], [t^2/2, t]]`` (Zucca and Tavella, IEEE Trans. UFFC 2005). Offsets are
reference minus local time in ns, drifts in ns per second of local time, which is ppb. One array element a clock.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from foliot_schemas.bounds import FAR_NS
from foliot_sync.core.arrays import put, take
from foliot_sync.core.track.noise_and_wander import Heard, NoiseAndWander, hear, judge, nothing
from foliot_sync.settings import NANOSECONDS

if TYPE_CHECKING:
    from foliot_sync.core.arrays import Floats, Ints, Mask


_OVERSTATED = 3.0
"""By how much fits overstate the variance of drifts: two to seven times in simulations, with stamps of NICs and of
kernels."""


_ENOUGH = 10.0
"""Lines through windows of a clock before its bound goes by what they show: half a minute of windows."""


class ClockTracks(NamedTuple):
    """Clocks, by number."""

    as_of_ns: Ints
    """Local time of the clock."""
    offset_ns: Ints
    drift_ppb: Floats
    p00: Floats
    """Variance of the offset, ns²."""
    p01: Floats
    p11: Floats
    """Variance of the drift, ppb²."""
    lasting_ns: Floats
    """Deviation of the part of the offset's error that windows have in common, so that no filter averages it out."""
    late_ns: Floats
    """Deviation of the offset's error by slow hosts, if it was to the same side in all windows that count."""
    hard_ns: Floats
    """Hard bound at `as_of_ns`."""
    measured_ns: Ints
    """Local time of the last measurement."""
    windows: Ints
    """Windows that agreed in a row; 0: the entry is no more than a place to start from."""
    density: Floats
    """Density of the wander of the clock's rate against the reference's, ppb² per second, as its windows have shown
    it, and more where `caution` is more than 1."""
    shown: Floats
    """The density that its windows have shown; the filter's until there are enough of them."""
    guess: Floats
    """The density that was assumed before they had."""
    factor: Floats
    """Factor on the variances that measurements of the clock state, as its windows have shown it; at least 1."""
    caution: Floats
    """By how much density and offsets' variances are greater than windows have shown, so that no less noise counts than
    fits state; at least 1."""
    heard: Heard
    """The last measurements, and what they have said of noise and wander."""

    @classmethod
    def unknown(cls, clocks: int, wander_ppb: float) -> ClockTracks:
        """Tracks of so many clocks of which only a first guess of their wander is known."""
        ints, floats, far = np.zeros(clocks, dtype=np.int64), np.zeros(clocks), np.full(clocks, np.inf)
        density = np.full(clocks, 2 * wander_ppb**2)
        return cls(
            ints,
            ints,
            floats,
            far,
            floats,
            far,
            floats,
            floats,
            far,
            ints,
            ints,
            density,
            density,
            density,
            np.ones(clocks),
            np.ones(clocks),
            nothing(clocks),
        )

    @property
    def known(self) -> Mask:
        """The clocks that have a track."""
        return self.windows > 0

    @property
    def likely(self) -> Floats:
        """The factor on the filter's variances that makes them as great as windows have shown.

        At most 1.
        """
        return np.asarray(self.shown / self.density)

    def anew(self) -> ClockTracks:
        """The tracks without what measurements have said of noise and wander, because the clock or its reference has changed."""
        ones = np.ones(len(self.windows))
        return self._replace(
            shown=self.density, guess=self.density, factor=ones, caution=ones, heard=nothing(len(self.windows))
        )


class Measurement(NamedTuple):
    """The differences of offset and drift from the tracks, with variances."""

    offset: Floats
    offset_variance: Floats
    drift: Floats
    drift_variance: Floats
    lasting: Floats
    """The part of the offset's variance that windows have in common, ns²."""
    late: Floats
    """The part of it that slow hosts make, see `HostErrors`, ns²."""


def local_at(tracks: ClockTracks, reference_ns: int) -> Ints:
    """The local time of each clock at a reference time."""
    since_ns = (reference_ns - tracks.as_of_ns - tracks.offset_ns) / (1 + tracks.drift_ppb / NANOSECONDS)
    # However far away it is, a message can hold it.
    return tracks.as_of_ns + np.rint(np.clip(since_ns, -float(FAR_NS), float(FAR_NS))).astype(np.int64)


def predict(tracks: ClockTracks, local_ns: Ints) -> ClockTracks:
    """Known tracks as of these local times."""
    age_s = (local_ns - tracks.as_of_ns) / NANOSECONDS
    span_s, density = np.abs(age_s), tracks.density
    return tracks._replace(
        as_of_ns=local_ns,
        offset_ns=tracks.offset_ns + np.rint(tracks.drift_ppb * age_s).astype(np.int64),
        p00=tracks.p00 + 2 * age_s * tracks.p01 + age_s**2 * tracks.p11 + density * span_s**3 / 3,
        p01=tracks.p01 + age_s * tracks.p11 + density * age_s * span_s / 2,
        p11=tracks.p11 + density * span_s,
    )


def update(tracks: ClockTracks, measured: Measurement) -> ClockTracks:
    """Known tracks after a measurement at the time they are predicted to."""
    s00, s11 = tracks.p00 + measured.offset_variance, tracks.p11 + measured.drift_variance
    # Without rounding it is no less than this, because the determinant of P is not below 0. Where all is certain, there
    # is nothing to learn.
    least = measured.offset_variance * s11 + tracks.p00 * measured.drift_variance
    determinant = np.maximum(np.maximum(s00 * s11 - tracks.p01**2, least), np.finfo(np.float64).tiny)
    # The gain is P S^-1, with S = P + R; R is diagonal, and the new covariance is the gain times R.
    k00 = (tracks.p00 * s11 - tracks.p01**2) / determinant
    k01 = tracks.p01 * measured.offset_variance / determinant
    k10 = tracks.p01 * measured.drift_variance / determinant
    k11 = (tracks.p11 * s00 - tracks.p01**2) / determinant
    correction = np.rint(k00 * measured.offset + k01 * measured.drift).astype(np.int64)
    return tracks._replace(
        offset_ns=tracks.offset_ns + correction,
        drift_ppb=tracks.drift_ppb + k10 * measured.offset + k11 * measured.drift,
        p00=k00 * measured.offset_variance,
        p01=k01 * measured.drift_variance,
        p11=k11 * measured.drift_variance,
        # What windows have in common adds up, however small the gains are.
        lasting_ns=(1 - k00) * tracks.lasting_ns + k00 * np.sqrt(measured.lasting),
        late_ns=(1 - k00) * tracks.late_ns + k00 * np.sqrt(measured.late),
        measured_ns=tracks.as_of_ns,
        windows=tracks.windows + 1,
    )


def learnt(tracks: ClockTracks, measured: Measurement) -> ClockTracks:
    """Known tracks that have learnt noise and wander from one more measurement.

    The measurement is at the time to which they are predicted, and has its variance as it was stated.
    """
    told = NoiseAndWander(tracks.density, tracks.factor)
    seen_ns = tracks.offset_ns + np.rint(measured.offset).astype(np.int64)
    heard = hear(tracks.heard, told, tracks.as_of_ns, seen_ns, measured.offset_variance)
    shown = judge(heard, tracks.guess)
    told = shown.cautious(tracks.guess)
    sure = heard.lines[:, 0] >= _ENOUGH
    return tracks._replace(
        density=told.density,
        shown=np.where(sure, shown.density, told.density),
        factor=told.factor,
        caution=told.factor / shown.factor,
        heard=heard,
    )


def weighed(tracks: ClockTracks, measured: Measurement) -> Measurement:
    """The measurement with the variance that measurements of these clocks were seen to have.

    Where the filter takes offsets and wander to be worse than they are, it has to take drifts to be so too. Else they
    would count for more than they tell.

    How much less noise there is than fits state, usual windows have shown. What a window states beyond them may last.
    """
    return measured._replace(
        offset_variance=tracks.factor * measured.offset_variance,
        drift_variance=np.maximum(tracks.caution / _OVERSTATED, 1.0) * measured.drift_variance,
        lasting=measured.lasting + (1 - 1 / tracks.caution) * _beyond_usual(tracks, measured),
    )


def _beyond_usual(tracks: ClockTracks, measured: Measurement) -> Floats:
    """By how much measurements state more variance than those before."""
    return np.maximum(measured.offset_variance - np.median(tracks.heard.variance, axis=1), 0.0)


def restart(tracks: ClockTracks, measured: Measurement) -> ClockTracks:
    """The tracks by the measurement alone: everything before is forgotten."""
    return tracks._replace(
        offset_ns=tracks.offset_ns + np.rint(measured.offset).astype(np.int64),
        drift_ppb=tracks.drift_ppb + measured.drift,
        p00=measured.offset_variance,
        p01=np.zeros_like(measured.offset),
        p11=measured.drift_variance,
        lasting_ns=np.sqrt(measured.lasting),
        late_ns=np.sqrt(measured.late),
        measured_ns=tracks.as_of_ns,
        windows=np.ones_like(tracks.windows),
    )


def unsettled(tracks: ClockTracks, which: Mask, wander_ppb: float) -> ClockTracks:
    """The tracks with no less wander of these clocks than clocks may have at first.

    How steady they were tells nothing any more.
    """
    if not which.any():
        return tracks
    anew = take(tracks, which).anew()
    density = np.maximum(anew.density, 2 * wander_ppb**2)
    return put(tracks, which, anew._replace(density=density, shown=density, guess=density))


def astray(tracks: ClockTracks, measured: Measurement, sigmas: float) -> Floats:
    """How far measurements are from known tracks, where that is more than so many likely deviations; else 0, in ns.

    It counts as far as the filter's variances are greater than likely ones: for these, no bound needs to be wider.
    """
    away = np.abs(measured.offset)
    chance = tracks.likely * (tracks.p00 + measured.offset_variance)
    chance = chance + (1 - tracks.likely) * _beyond_usual(tracks, measured)
    return np.where(away > sigmas * np.sqrt(chance), (1 - tracks.likely) * away, 0.0)


def tamed(tracks: ClockTracks, measured: Measurement, sigmas: float) -> Measurement:
    """The measurement with larger variances where it is further than so many deviations from the tracks, until it is not.

    A congested window then moves a clock little, instead of by what its own optimism says.
    """
    offset = (measured.offset / sigmas) ** 2 - tracks.p00
    drift = (measured.drift / sigmas) ** 2 - tracks.p11
    return measured._replace(
        offset_variance=np.maximum(measured.offset_variance, offset),
        drift_variance=np.maximum(measured.drift_variance, drift),
    )
