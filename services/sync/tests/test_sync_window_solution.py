"""The solution of one window, from pairs that are measured at different times."""

from __future__ import annotations

import numpy as np
import pytest

from foliot_sync.core.fit.pair_estimate import PairEstimates
from foliot_sync.core.lasting_misfit import LastingMisfits
from foliot_sync.core.solve.window_solution import weigh
from foliot_sync.core.track.kalman import ClockTracks

SECOND = 1_000_000_000
DRIFTS_PPB = np.array([0.0, 9_000.0, -7_000.0])
"""Of each clock's offset to the reference, clock 0: what it gains in a second."""
OFFSETS_NS = np.array([0.0, 400.0, -900.0])
"""The same at the time 0."""


def pairs() -> PairEstimates:
    """Every clock against every other, each pair as of a time of its own, up to a second off the mean one."""
    initiator, responder, at_s = np.array([(0, 1, -1.0), (1, 0, 0.9), (0, 2, 1.0), (2, 0, -0.8), (1, 2, 0.4)]).T
    initiator, responder = initiator.astype(int), responder.astype(int)
    offset = OFFSETS_NS + np.outer(at_s, DRIFTS_PPB)
    row, some = np.arange(len(at_s)), np.full(len(at_s), 1.0)
    apart = offset[row, initiator] - offset[row, responder]
    slope = DRIFTS_PPB[initiator] - DRIFTS_PPB[responder]
    at_ns = (1_000 * SECOND + np.rint(at_s * SECOND - offset[row, initiator])).astype(np.int64)
    zeros = np.zeros(len(at_s), np.int64)
    limits = apart - 1e4, apart + 1e4
    return PairEstimates(
        initiator,
        responder,
        at_ns,
        zeros,
        apart,
        400.0 * some,
        slope,
        400.0 * some,
        *limits,
        20.0 * some,
        0.0 * some,
        some < 0,
    )


@pytest.mark.parametrize(("p11", "known_ppb"), [(200_000.0**2, 0.0), (30.0**2, 1.0), (np.inf, 0.0)])
def test_offsets_are_carried_to_the_common_time_by_the_better_known_drift(p11, known_ppb):
    """Whether the track's drift is known badly, well or not at all: what is measured is where the clock is then.

    Parameters:
        known_ppb: the share of its true drift that a track has.
    """
    windows = np.array([5, 3, 3] if np.isfinite(p11) else [5, 0, 0])
    as_of_ns = np.full(3, 1_000 * SECOND)
    start = ClockTracks.unknown(3, 20.0)._replace(
        as_of_ns=as_of_ns, windows=windows, drift_ppb=known_ppb * DRIFTS_PPB,
        p00=np.array([1.0, 1e6, 1e6]), p01=np.zeros(3), p11=np.array([1.0, p11, p11]),
    )  # fmt: skip

    found = weigh(pairs(), start, 0, LastingMisfits())

    assert found is not None
    since_s = (found.tracks.as_of_ns + found.tracks.offset_ns - as_of_ns) / SECOND
    true = OFFSETS_NS + DRIFTS_PPB * since_s
    assert found.tracks.offset_ns + found.measured.offset == pytest.approx(true, abs=25)
    assert (found.measured.offset_variance[1:] < 40.0**2).all()
