"""The filter over time, against its matrices and against simulated clocks."""

from __future__ import annotations

import numpy as np
import pytest

from foliot_sync.core.limits import GATE_SIGMAS, SIGMAS
from foliot_sync.core.track.kalman import (
    ClockTracks,
    Measurement,
    astray,
    learnt,
    local_at,
    predict,
    restart,
    tamed,
    unsettled,
    update,
    weighed,
)
from foliot_sync.core.track.noise_and_wander import judge
from foliot_sync.core.track.statistical_bound import promise
from foliot_sync.settings import SyncSettings

SECOND = 1_000_000_000


def track(*, p00=100.0, p01=20.0, p11=50.0, drift=0.0, offset=0, windows=1, wander=20.0):
    """One clock as of a large local time."""
    floats = [np.array([value], float) for value in (drift, p00, p01, p11, 0.0)]
    ints = [np.array([value]) for value in (10**15, offset)]
    names = ("as_of_ns", "offset_ns", "drift_ppb", "p00", "p01", "p11", "hard_ns", "measured_ns", "windows")
    columns = zip(names, (*ints, *floats, np.array([10**15]), np.array([windows])), strict=True)
    return ClockTracks.unknown(1, wander)._replace(**dict(columns))


def covariance(tracks):
    """The 2x2 covariance."""
    return np.array([[tracks.p00[0], tracks.p01[0]], [tracks.p01[0], tracks.p11[0]]])


@pytest.mark.parametrize("age_s", [0.5, 4.0, -1.0])
def test_prediction_follows_the_drift_and_spreads_the_covariance(age_s):
    """Offset and covariance after a time are those of the constant-drift model, with its wander added."""
    before = track(drift=30_000.0, offset=7)
    after = predict(before, before.as_of_ns + round(age_s * SECOND))
    step = np.array([[1, age_s], [0, 1]])
    span = abs(age_s)
    wander = 2 * 20.0**2 * np.array([[span**3 / 3, age_s * span / 2], [age_s * span / 2, span]])
    assert after.offset_ns[0] == 7 + round(30_000 * age_s)
    assert covariance(after) == pytest.approx(step @ covariance(before) @ step.T + wander)


def test_update_is_the_textbook_filter():
    """Gain, state and covariance equal those of the matrix equations."""
    before, noise = track(), np.diag([400.0, 90.0])
    measured = Measurement(*(np.array([value]) for value in (1_000.0, 400.0, -30.0, 90.0, 0.0, 0.0)))
    after = update(before, measured)
    gain = covariance(before) @ np.linalg.inv(covariance(before) + noise)
    state = gain @ np.array([1_000.0, -30.0])
    assert after.offset_ns[0] == round(state[0])
    assert after.drift_ppb[0] == pytest.approx(state[1])
    assert covariance(after) == pytest.approx((np.eye(2) - gain) @ covariance(before))
    assert after.windows[0] == 2


def test_restart_forgets():
    """After a contradiction only the last measurement counts."""
    measured = Measurement(*(np.array([value]) for value in (5e6, 400.0, -30.0, 90.0, 0.0, 0.0)))
    after = restart(track(windows=40), measured)
    assert (after.offset_ns[0], after.drift_ppb[0], after.windows[0]) == (5_000_000, -30.0, 1)
    assert covariance(after) == pytest.approx(np.diag([400.0, 90.0]))


def test_far_measurement_is_tamed():
    """An innovation of ten deviations moves the clock by less than one and a half of its own."""
    before = track(p00=100.0, p01=0.0)
    far = Measurement(*(np.array([value]) for value in (200.0, 300.0, 0.0, 90.0, 0.0, 0.0)))
    assert abs(update(before, tamed(before, far, 3.0)).offset_ns[0]) < 15
    near = far._replace(offset=np.array([10.0]))
    assert tamed(before, near, 3.0).offset_variance[0] == 300.0


@pytest.mark.parametrize("wander_ppb", [0.5, 20.0])
def test_bound_covers_every_age(wander_ppb):
    """What is promised is never less than the filter's own deviations, and hardly more where the rate's error says nothing of the offset's."""
    settings, density = SyncSettings(), np.array([2 * wander_ppb**2])
    for tracks in (track(), track(p00=1.0, p01=0.0, p11=0.1), track(p00=1e6, p01=-900.0, p11=1.0)):
        known = tracks._replace(density=density, shown=density)
        promised = promise(known, settings)
        steady = known._replace(density=np.maximum(density, 2 * settings.least_wander_ppb**2))
        for age_s in np.linspace(0.01, 20, 200):
            wanted = SIGMAS * np.sqrt(predict(steady, np.array([10**15 + int(age_s * 1e9)])).p00[0])
            assert wanted <= promised.at(age_s)[0] <= 1.5 * wanted + SIGMAS * 60


def test_deviation_is_that_of_clocks_that_wander():
    """Simulated pairs of clocks stray from a straight line by as much as the filter expects."""
    random, step_s = np.random.default_rng(3), 0.01
    rates = random.normal(0, 20 * np.sqrt(step_s), (4_000, 2, 400)).cumsum(axis=2)
    strayed = (rates[:, 0] - rates[:, 1]).sum(axis=1) * step_s
    perfect = track(p00=0.0, p01=0.0, p11=0.0)
    assert strayed.std() == pytest.approx(np.sqrt(predict(perfect, np.array([10**15 + 4 * 10**9])).p00[0]), rel=0.05)


def test_local_time_at_a_reference_time_inverts_the_track():
    """Reading the reference time at the local time found gives the reference time asked for."""
    tracks = track(drift=30_000.0, offset=1_700_000_000 * SECOND)
    asked = int(tracks.as_of_ns[0] + tracks.offset_ns[0]) + 12_345_678_901
    local = int(local_at(tracks, asked)[0])
    read = local + int(tracks.offset_ns[0]) + round(30_000.0 * (local - int(tracks.as_of_ns[0])) / SECOND)
    assert abs(read - asked) <= 2


@pytest.mark.parametrize("stated", [1.0, 4.0])
@pytest.mark.parametrize("true_ppb", [1.0, 10.0, 100.0])
def test_noise_and_wander_are_learnt_from_how_far_measurements_lie_from_lines(true_ppb, stated):
    """Whatever was taken for them at first, after some minutes both are right, wherever both show.

    Noise is so within a factor of two, and so is wander, but for what is still doubtful of it.
    """
    random, clocks, sigma = np.random.default_rng(4), 200, 30.0
    tracks = ClockTracks.unknown(clocks, 20.0)._replace(
        windows=np.ones(clocks, np.int64), p00=np.full(clocks, sigma**2), p11=np.full(clocks, 100.0**2)
    )
    rate, offset = np.zeros(clocks), np.zeros(clocks)
    # Of offset and rate after a window of 2 s of wander.
    shape = np.linalg.cholesky(2 * true_ppb**2 * np.array([[8 / 3, 2.0], [2.0, 2.0]]))
    for window in range(1, 150):
        walk = random.normal(0, 1, (clocks, 2)) @ shape.T
        offset, rate = offset + 2 * rate + walk[:, 0], rate + walk[:, 1]
        tracks = predict(tracks, np.full(clocks, 2 * window * SECOND))
        seen = offset - tracks.offset_ns + random.normal(0, sigma, clocks)
        stated_ns2 = np.full(clocks, (stated * sigma) ** 2)
        measured = Measurement(seen, stated_ns2, np.zeros(clocks), np.full(clocks, 1e12), *np.zeros((2, clocks)))
        tracks = update(learnt(tracks, measured), weighed(tracks, measured))
    told = judge(tracks.heard, tracks.guess)
    assert true_ppb / 2 < np.sqrt(np.median(told.density) / 2) < true_ppb * 2.2
    if true_ppb < 100:  # else a window's wander is ten times the noise, which nobody sees beside it
        assert 0.5 < np.sqrt(np.median(told.factor)) * stated < 2
    assert (tracks.factor >= 1).all()
    assert tracks.caution == pytest.approx(np.maximum(1 / told.factor, 1.0))
    assert (tracks.density >= told.density).all()
    assert tracks.shown == pytest.approx(told.density)
    assert (tracks.likely <= 1).all()


@pytest.mark.parametrize("true_ppb", [5.0, 20.0])
def test_a_rate_that_turns_in_the_first_minute_is_within_the_gate(true_ppb):
    """Clocks that have run straight for some windows wander on, and none is taken for disrupted, nor its bound broken."""
    random, clocks, sigma, settings = np.random.default_rng(11), 10_000, 12.0, SyncSettings()
    tracks = ClockTracks.unknown(clocks, settings.wander_ppb)._replace(
        windows=np.ones(clocks, np.int64), p00=np.full(clocks, sigma**2), p11=np.full(clocks, 12.0**2)
    )
    rate, offset, before, beyond = np.zeros(clocks), np.zeros(clocks), np.zeros(clocks), np.zeros(clocks, bool)
    shape = np.linalg.cholesky(2 * true_ppb**2 * np.array([[8 / 3, 2.0], [2.0, 2.0]]))
    outside = []
    for window in range(1, 25):
        walk = random.normal(0, 1, (clocks, 2)) @ shape.T
        offset, rate = offset + 2 * rate + walk[:, 0], rate + walk[:, 1]
        later = predict(tracks, np.full(clocks, 2 * window * SECOND))
        outside.append((np.abs(offset - later.offset_ns) > promise(tracks, settings).at(2.0)).mean())
        away = offset - later.offset_ns + random.normal(0, sigma, clocks)
        drift = rate - later.drift_ppb + random.normal(0, 7, clocks)
        columns = (
            away,
            np.full(clocks, 14.0**2),
            drift,
            np.full(clocks, 12.0**2),
            np.full(clocks, 100.0),
            np.zeros(clocks),
        )
        measured = Measurement(*columns)
        far = np.abs(away) > GATE_SIGMAS * np.sqrt(later.p00 + measured.offset_variance)
        beyond |= far & (away * before > 0)
        before = np.where(far, away, 0.0)
        measured = tamed(later, weighed(later, measured), 3.0)
        tracks = update(learnt(later, measured._replace(offset_variance=columns[1])), measured)
    assert beyond.sum() <= 1
    assert np.mean(outside) < 1e-3


def test_a_bound_goes_by_the_noise_that_windows_have_shown():
    """Fits that state four times the noise do not make it four times as wide, and it holds."""
    random, clocks, sigma, stated = np.random.default_rng(7), 300, 2.0, 8.0
    tracks = ClockTracks.unknown(clocks, 20.0)._replace(
        windows=np.ones(clocks, np.int64), p00=np.full(clocks, stated**2), p11=np.full(clocks, 100.0)
    )
    rate, offset, wrong, bounds = np.zeros(clocks), np.zeros(clocks), [], []
    shape = np.linalg.cholesky(2 * 1.0**2 * np.array([[8 / 3, 2.0], [2.0, 2.0]]))
    for window in range(1, 100):
        walk = random.normal(0, 1, (clocks, 2)) @ shape.T
        offset, rate = offset + 2 * rate + walk[:, 0], rate + walk[:, 1]
        later = predict(tracks, np.full(clocks, 2 * window * SECOND))
        if window > 40:
            wrong.append(np.abs(offset - later.offset_ns))
            bounds.append(promise(tracks, SyncSettings()).at(2.0))
        seen = offset - later.offset_ns + random.normal(0, sigma, clocks)
        variance = np.full(clocks, stated**2)
        measured = Measurement(
            seen, variance, np.zeros(clocks), np.full(clocks, 1e12), np.full(clocks, 1.0), np.zeros(clocks)
        )
        tracks = update(learnt(later, measured), weighed(later, measured))
    assert (np.array(wrong) <= bounds).mean() > 0.999
    assert np.median(bounds) < 3 * np.percentile(wrong, 99)


def test_what_windows_have_in_common_is_not_averaged_out():
    """It is the mean of what they have, and the bound allows for it where the filter's own variance is too great."""
    tracks = track(p00=100.0)
    measured = Measurement(*(np.array([value]) for value in (0.0, 400.0, 0.0, 90.0, 49.0, 0.0)))
    assert restart(tracks, measured).lasting_ns[0] == 7.0
    for _ in range(40):
        tracks = update(predict(tracks, tracks.as_of_ns + 2 * SECOND), measured)
    assert tracks.lasting_ns[0] == pytest.approx(7.0, abs=0.1)
    quiet = tracks._replace(shown=tracks.density / 16)
    wanted = SIGMAS * np.sqrt(tracks.p00[0] / 16 + 15 / 16 * tracks.lasting_ns[0] ** 2)
    assert promise(quiet, SyncSettings()).bound_ns[0] == pytest.approx(wanted)


def test_what_slow_hosts_make_of_an_error_is_not_averaged_out_either():
    """It is not less than the mean of what windows may be wrong by, however little noise they have."""
    tracks = track(p00=100.0)
    measured = Measurement(*(np.array([value]) for value in (0.0, 90_400.0, 0.0, 90.0, 0.0, 90_000.0)))
    assert restart(tracks, measured).late_ns[0] == 300.0
    for _ in range(120):
        tracks = update(predict(tracks, tracks.as_of_ns + 2 * SECOND), measured)
    assert tracks.late_ns[0] == pytest.approx(300.0, abs=3.0)
    assert promise(tracks, SyncSettings()).bound_ns[0] == pytest.approx(SIGMAS * tracks.late_ns[0])
    assert promise(tracks._replace(late_ns=np.zeros(1)), SyncSettings()).bound_ns[0] < SIGMAS * 200.0


def test_what_a_window_states_beyond_usual_ones_may_last():
    """How much less noise there is than is stated, only usual windows have shown."""
    tracks = track()._replace(caution=np.array([4.0]))
    heard = tracks.heard._replace(variance=np.full(tracks.heard.variance.shape, 100.0))
    usual = Measurement(*(np.array([value]) for value in (0.0, 100.0, 0.0, 90.0, 9.0, 0.0)))
    worse = usual._replace(offset_variance=np.array([500.0]))
    assert weighed(tracks._replace(heard=heard), usual).lasting[0] == 9.0
    assert weighed(tracks._replace(heard=heard), worse).lasting[0] == 9.0 + 0.75 * 400.0


def test_a_measurement_is_astray_by_the_noise_that_windows_have_shown():
    """The filter may take noise for greater, and be astonished at nothing."""
    tracks = track(p00=100.0)
    measured = Measurement(*(np.array([value]) for value in (50.0, 300.0, 0.0, 90.0, 0.0, 0.0)))
    assert astray(tracks, measured, 3.0)[0] == 0.0
    heard = tracks.heard._replace(variance=np.full(tracks.heard.variance.shape, 300.0))
    quiet = tracks._replace(shown=tracks.density / 16, heard=heard)
    assert astray(quiet, measured, 3.0)[0] == 50.0 * 15 / 16
    # What a window states beyond usual ones, none of them has shown to be too much.
    assert astray(quiet, measured._replace(offset_variance=np.array([2_000.0])), 3.0)[0] == 0.0


def test_a_drift_tells_as_little_as_an_offset_where_fits_overstate_their_noise():
    """Where offsets are a quarter as noisy as stated, and wander counts for more instead, drifts get no more weight for it."""
    measured = Measurement(*(np.array([value]) for value in (0.0, 400.0, 0.0, 90.0, 0.0, 0.0)))
    assert weighed(track(), measured).drift_variance[0] == 90.0
    wary = track()._replace(caution=np.array([16.0]))
    assert weighed(wary, measured).drift_variance[0] == 90.0 * 16 / 3
    assert weighed(wary.anew(), measured).drift_variance[0] == 90.0


def test_hand_over_and_contradiction_begin_the_learning_anew():
    """What measurements of another reference, or of a clock before its step, said counts no more."""
    tracks = ClockTracks.unknown(2, 20.0)._replace(windows=np.array([3, 3]), p00=np.ones(2), p11=np.ones(2))
    for window in range(1, 12):
        tracks = predict(tracks, np.full(2, 2 * window * SECOND))
        tracks = learnt(tracks, Measurement(*np.tile([[3.0], [25.0], [0.0], [1e12], [0.0], [0.0]], 2)))
    assert (tracks.heard.lines[:, 0] > 5).all()
    later = unsettled(tracks, np.array([True, False]), 20.0)
    assert (later.heard.lines[0] == 0).all()
    assert (later.heard.lines[1] == tracks.heard.lines[1]).all()
    assert later.density[0] >= 2 * 20.0**2
    assert (later.factor[0], later.factor[1]) == (1.0, tracks.factor[1])
