"""Innovations: the differences between a window's pairs and the clocks' tracks. It also places new clocks.

A pair's offset is never compared with another's directly, because probes' windows lie at different times. Instead, the
histories predict each offset for its own time. The differences from that are compared, and they hardly change in a
window.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from foliot_schemas.bounds import FAR_NS
from foliot_sync.settings import NANOSECONDS

if TYPE_CHECKING:
    from foliot_sync.core.arrays import Floats, Ints, Mask
    from foliot_sync.core.fit.pair_estimate import PairEstimates
    from foliot_sync.core.track.kalman import ClockTracks


class Innovations(NamedTuple):
    """Differences of pairs, measured minus predicted.

    A difference is by how much the initiator's true offset to the reference exceeds its predicted one, less the same of
    the responder.
    """

    at_ns: Ints
    """Reference time."""
    offset_ns: Floats
    drift_ppb: Floats
    predicted_ns: Floats
    """Offset predicted for the pair, relative to its `base_ns`."""


def place(sound: PairEstimates, tracks: ClockTracks) -> tuple[ClockTracks, Mask]:
    """The tracks with a place to start from for every clock that sound pairs connect to a known one.

    The best pair decides, so none may be torn; the mesh corrects it. Also tells which clocks have a place now, or a
    history. A pair is passed over if no message could hold the place that it gives.
    """
    located = tracks.known.copy()
    as_of, offset, drift = tracks.as_of_ns.copy(), tracks.offset_ns.copy(), tracks.drift_ppb.copy()
    if (located[sound.initiator] == located[sound.responder]).all():
        return tracks, located
    best_first, hopeless = np.argsort(sound.variance), np.zeros(len(sound.variance), dtype=bool)
    while True:
        reach = (located[sound.initiator] != located[sound.responder]) & ~hopeless
        if not reach.any():
            return tracks._replace(as_of_ns=as_of, offset_ns=offset, drift_ppb=drift), located
        for pair in best_first[reach[best_first]]:
            start, end = int(sound.initiator[pair]), int(sound.responder[pair])
            if located[start] == located[end]:
                continue
            here_ns = int(sound.at_ns[pair])
            there_ns = here_ns + int(sound.base_ns[pair]) + round(float(sound.offset_ns[pair]))
            rate = 1 + float(sound.slope_ppb[pair]) / NANOSECONDS
            known, new = (start, end) if located[start] else (end, start)
            known_ns, new_ns = (here_ns, there_ns) if known == start else (there_ns, here_ns)
            age_s = (known_ns - int(as_of[known])) / NANOSECONDS
            reference_ns = known_ns + int(offset[known]) + round(float(drift[known]) * age_s)
            pace = 1 + float(drift[known]) / NANOSECONDS
            pace = pace / rate if known == start else pace * rate
            if max(abs(new_ns), abs(reference_ns - new_ns)) >= FAR_NS:
                hopeless[pair] = True
                continue
            as_of[new], offset[new], drift[new] = new_ns, reference_ns - new_ns, (pace - 1) * NANOSECONDS
            located[new] = True


def innovations(pairs: PairEstimates, tracks: ClockTracks) -> Innovations:
    """The differences of these pairs, between placed clocks, from the tracks' predictions."""
    start, end = pairs.initiator, pairs.responder
    age_s = (pairs.at_ns - tracks.as_of_ns[start]) / NANOSECONDS
    gained = tracks.drift_ppb[start] * age_s
    whole_ns = pairs.at_ns + tracks.offset_ns[start]
    # The other clock's age follows from the reference time, because its local time is what is being measured.
    since_ns = (whole_ns - tracks.as_of_ns[end] - tracks.offset_ns[end]) + gained
    pace = 1 + tracks.drift_ppb[end] / NANOSECONDS
    other_age_s = since_ns / NANOSECONDS / pace
    apart_ns = tracks.offset_ns[start] - tracks.offset_ns[end] - pairs.base_ns
    predicted = apart_ns.astype(np.float64) + gained - tracks.drift_ppb[end] * other_age_s
    return Innovations(
        at_ns=whole_ns + np.rint(gained).astype(np.int64),
        offset_ns=pairs.offset_ns - predicted,
        drift_ppb=pairs.slope_ppb - (tracks.drift_ppb[start] - tracks.drift_ppb[end]) / pace,
        predicted_ns=predicted,
    )
