"""The solution of one window: the difference of each clock from its expected value."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from foliot_sync.core.arrays import put, take
from foliot_sync.core.solve import innovations
from foliot_sync.core.solve.hard_bounds import HardBounds, hard_bounds
from foliot_sync.core.solve.host_errors import host_errors
from foliot_sync.core.solve.least_squares import Edges, Solution, solve
from foliot_sync.core.track import kalman
from foliot_sync.settings import NANOSECONDS

if TYPE_CHECKING:
    from foliot_sync.core.arrays import Floats, Ints, Mask
    from foliot_sync.core.fit.pair_estimate import PairEstimates
    from foliot_sync.core.lasting_misfit import LastingMisfits


_NEAR_NS = 60 * NANOSECONDS
"""The pairs of a window are at times within some seconds, by clocks that are where they were expected."""


_BOTH_LATE = 6**0.5
"""The furthest that two hosts can put an offset wrong, over the deviation that is stated for both: see `HostErrors`."""


class WindowSolution(NamedTuple):
    """The mesh's measurement of the clocks in one window."""

    tracks: kalman.ClockTracks
    """As expected at the window's common time, for the clocks reached."""
    reached: Mask
    measured: kalman.Measurement
    """Valid for the clocks reached."""
    offsets: Solution
    sound: PairEstimates
    """The pairs it rests on: between placed clocks, none torn."""
    ground: int
    """The clock that the others were measured against."""
    noise_ns: Floats
    """The noise of each clock's stamps, see `HostErrors`; inf: the clock has no pair."""
    variance: Floats
    """Of each pair's offset, at the common time."""

    def teach(self, misfits: LastingMisfits, sure: Mask) -> None:
        """Remembers what pairs of clocks of which all are sure are off by.

        Parameters:
            misfits: where they are remembered.
            sure: the clocks that are where they were expected.
        """
        sound, misfit = self.sound, self.offsets.misfit
        known = np.isfinite(misfit) & sure[sound.initiator] & sure[sound.responder]
        misfits.learn(_keys(sound)[known], misfit[known], self.variance[known])


class Outliers(NamedTuple):
    """The clocks reached that are not where they were expected, of all clocks; never the reference.

    A certain one is outside even the hard bounds of the window: no congestion and no asymmetry explains it. A likely
    one is further than the gate, but a congested window could look like that.
    """

    certain: Mask
    likely: Mask
    gate_ns: Floats
    """The distance from which a clock is likely not where it was expected."""
    hard_ns: Floats
    """The distance from which that is certain."""


def torn_clocks(pairs: PairEstimates, clocks: int, reference: int) -> Mask:
    """The clocks that were stepped within the window: the fewest that explain the pairs that fit no line.

    Blames the clock with most of them, then the one with most of the rest, and so on. If only one of several pairs of a
    clock is torn, its stamps are bad, and no clock was stepped. Of two clocks alone, the one that does not set the pace
    is blamed.
    """
    torn = np.zeros(clocks, dtype=bool)
    left = pairs.torn.copy()
    every = np.bincount(pairs.initiator, minlength=clocks) + np.bincount(pairs.responder, minlength=clocks)
    while left.any():
        count = np.bincount(pairs.initiator[left], minlength=clocks) + np.bincount(
            pairs.responder[left], minlength=clocks
        )
        count = 2 * count
        count[reference] -= 1  # Loses a tie.
        blamed = int(count.argmax())
        torn[blamed] = count[blamed] > 3 or every[blamed] == 1
        left &= (pairs.initiator != blamed) & (pairs.responder != blamed)
    return torn


def weigh(
    sound: PairEstimates, tracks: kalman.ClockTracks, reference: int, misfits: LastingMisfits
) -> WindowSolution | None:
    """The innovation of every clock that sound pairs connect to one that is known; None if they connect none.

    Parameters:
        sound: the pairs, none torn.
        tracks: what is known of the clocks.
        reference: the clock to measure against, if it is there.
        misfits: what pairs are usually off by.
    """
    ground = _ground(sound, tracks, reference)
    if ground is None:
        return None
    tracks, located = innovations.place(sound, tracks)
    sound = take(sound, located[sound.initiator] & located[sound.responder])
    if not len(sound.initiator):
        return None
    clocks, fresh = len(tracks.windows), ~tracks.known
    drift, drift_variance = _drifts(sound, tracks, ground)
    # Offsets are carried to the common time by the window's drift as far as it is known better than the track's. So a
    # clock without a history, which has nothing better, goes by this window's alone.
    gain = 1 / (1 + drift_variance / np.maximum(tracks.p11, np.finfo(np.float64).tiny))
    tracks = tracks._replace(drift_ppb=tracks.drift_ppb + np.where(fresh, drift, 0.0))
    drift = np.where(fresh, 0.0, drift)

    seen = innovations.innovations(sound, tracks)
    at_ns = _common_ns(seen.at_ns)
    apart_s = (seen.at_ns - at_ns) / NANOSECONDS
    turned, doubt = gain * drift, gain * drift_variance
    offset_ns = seen.offset_ns - apart_s * (turned[sound.initiator] - turned[sound.responder])
    errors = host_errors(sound, clocks)
    variance = sound.variance + np.maximum(errors.pair_noise**2 - sound.noise_ns**2, 0.0)
    variance += apart_s**2 * (doubt[sound.initiator] + doubt[sound.responder])
    edges = Edges(sound.initiator, sound.responder, offset_ns, variance)
    offsets = solve(edges, clocks, ground, misfits.of(_keys(sound)))
    reached = np.isfinite(offsets.value)
    # The errors of hosts' own stamping paths do not average out, neither over the mesh nor over windows.
    lasting = np.where(reached, errors.noise**2, 0.0)
    # Of two clocks alone, their one pair's excess counts once.
    of_ground = errors.lateness[ground] if reached.sum() > 2 else 0.0
    late = np.where(reached, errors.lateness**2 + of_ground**2, 0.0)
    offset_variance = np.where(reached, np.maximum(offsets.variance, late) + lasting, 1.0)
    measured = kalman.Measurement(
        np.where(reached, offsets.value, 0.0), offset_variance, drift, drift_variance, lasting, late
    )
    tracks = _expected(tracks, reached, at_ns)
    if ground != reference:
        measured = _by_majority(measured, tracks, reached)
    return WindowSolution(tracks, reached, measured, offsets, sound, ground, errors.noise, variance)


def _keys(pairs: PairEstimates) -> Ints:
    """A number for each pair of clocks, the same in all windows."""
    return (pairs.initiator << 32) | pairs.responder


def _ground(sound: PairEstimates, tracks: kalman.ClockTracks, reference: int) -> int | None:
    """The clock to measure against: the reference or, in its absence, the one whose time is known best."""
    present = np.zeros(len(tracks.windows), dtype=bool)
    present[sound.initiator] = present[sound.responder] = True
    if present[reference]:
        return reference
    candidates = np.flatnonzero(present & tracks.known)
    return int(candidates[tracks.p00[candidates].argmin()]) if len(candidates) else None


def _common_ns(at_ns: Ints) -> int:
    """The mean time of a window's pairs, but for those far from most.

    The time of a pair is that of the clock that initiates it. If this one was set, or its host has booted, it may be
    years away.
    """
    first_ns, half = int(at_ns[0]), len(at_ns) // 2
    since_ns = at_ns - first_ns
    near = np.abs(since_ns - np.partition(since_ns, half)[half]) <= _NEAR_NS
    return first_ns + int(np.mean(since_ns[near]))


def _drifts(sound: PairEstimates, tracks: kalman.ClockTracks, ground: int) -> tuple[Floats, Floats]:
    """The difference of each clock's rate from its track's, and the variance of that."""
    seen = innovations.innovations(sound, tracks)
    edges = Edges(sound.initiator, sound.responder, seen.drift_ppb, sound.slope_variance)
    found = solve(edges, len(tracks.windows), ground)
    reached = np.isfinite(found.value)
    return np.where(reached, found.value, 0.0), np.where(reached, found.variance, 1.0)


def outliers(weighing: WindowSolution, reference: int, gate_sigmas: float, sigmas: float) -> Outliers:
    """The clocks that are not where they were expected."""
    judged = weighing.reached & weighing.tracks.known
    judged[reference] = False
    begun = kalman.restart(take(weighing.tracks, weighing.reached), take(weighing.measured, weighing.reached))
    room = hard_room(weighing, put(weighing.tracks, weighing.reached, begun), sigmas)
    away = np.abs(weighing.measured.offset)
    promised = np.sqrt(np.where(judged, weighing.tracks.p00, 0.0))
    late, scatter = weighing.measured.late, weighing.offsets.variance
    chance = gate_sigmas * np.sqrt(promised**2 + weighing.measured.offset_variance + np.minimum(scatter - late, 0.0))
    # Chance may go on to any distance, a slow host no further than it is slow, and the reference's no further than that.
    gate = chance + _BOTH_LATE * np.sqrt(late)
    hard = room + sigmas * promised
    certain = judged & (away > np.maximum(hard, chance))
    return Outliers(certain, judged & (away > gate) & ~certain, gate, hard)


def disbelieved(measured: kalman.Measurement, window_s: float) -> kalman.Measurement:
    """Measurements that contradict their histories, with larger variances.

    They are good only for a place to start from.

    A clock that did not run straight is not where the middle of the window has it. Nor does it go on at the window's
    rate.
    """
    away = measured.offset**2
    return measured._replace(
        offset_variance=measured.offset_variance + away, drift_variance=measured.drift_variance + away / window_s**2
    )


def hard_room(weighing: WindowSolution, tracks: kalman.ClockTracks, sigmas: float, worst_ppb: float = 0.0) -> Floats:
    """The largest distance of the truth from each clock's track, if the ground's track holds.

    Rates may err by so many deviations, or by `worst_ppb` if that is more.
    """
    sound = weighing.sound
    seen = innovations.innovations(sound, tracks)
    # A pair's interval holds at its own time. From there to the common one, the clocks' drifts may err.
    common_ns = int(tracks.as_of_ns[weighing.ground] + tracks.offset_ns[weighing.ground])
    drifts = np.sqrt(tracks.p11[sound.initiator] + tracks.p11[sound.responder])
    slack = np.abs(seen.at_ns - common_ns) / NANOSECONDS * np.maximum(sigmas * drifts, worst_ppb)
    lower, upper = sound.lower_ns - seen.predicted_ns - slack, sound.upper_ns - seen.predicted_ns + slack
    allowed = HardBounds(sound.initiator, sound.responder, lower, upper)
    return hard_bounds(allowed, len(tracks.windows), weighing.ground)


def _expected(tracks: kalman.ClockTracks, reached: Mask, at_ns: int) -> kalman.ClockTracks:
    """The tracks of the clocks reached, as of a reference time."""
    local_ns = kalman.local_at(tracks, at_ns)
    known, new = reached & tracks.known, reached & ~tracks.known
    places = take(tracks, new)
    gained = places.drift_ppb * ((local_ns[new] - places.as_of_ns) / NANOSECONDS)
    moved = places._replace(as_of_ns=local_ns[new], offset_ns=places.offset_ns + np.rint(gained).astype(np.int64))
    predicted = kalman.predict(take(tracks, known), local_ns[known])
    return put(put(tracks, new, moved), known, predicted)


def _by_majority(measured: kalman.Measurement, tracks: kalman.ClockTracks, reached: Mask) -> kalman.Measurement:
    """Without the reference, the time goes on as most of the clocks remember it, and is as doubtful as they are."""
    common = reached & tracks.known
    offset, drift = np.median(measured.offset[common]), np.median(measured.drift[common])
    return kalman.Measurement(
        offset=measured.offset - offset,
        offset_variance=measured.offset_variance + np.median(tracks.p00[common]),
        drift=measured.drift - np.where(tracks.known, drift, 0.0),
        drift_variance=measured.drift_variance + np.median(tracks.p11[common]),
        lasting=measured.lasting,
        late=measured.late,
    )
