"""The reference clock: its election, the origin of its time, and a hand-over without a jump."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from foliot_schemas.clock import same_boot
from foliot_sync.core.arrays import changed, put, take
from foliot_sync.core.track.kalman import local_at, predict
from foliot_sync.settings import NANOSECONDS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from foliot_sync.core.arrays import Mask
    from foliot_sync.core.track.kalman import ClockTracks


def elect(
    epochs: Mapping[str, int], wanted: str, formerly: Mapping[str, int], *, patient: bool
) -> tuple[str, int] | None:
    """The clock to begin with and its offset for good; None while there is none, or the wanted one may yet be heard.

    Parameters:
        epochs: CLOCK_REALTIME minus local time, of the clocks heard.
        wanted: the configured reference; empty: any.
        formerly: references of an earlier run of sync, with their epochs then.
        patient: whether to go on waiting for the wanted one.
    """
    for name, epoch_ns in formerly.items():
        if name in epochs and same_boot(epochs[name], epoch_ns) and wanted in {"", name}:
            return name, epochs[name]
    if wanted in epochs:
        return wanted, epochs[wanted]
    if not epochs or (wanted and patient):
        return None
    name = min(epochs)
    return name, epochs[name]


def first_by_name(which: Mask, names: Sequence[str]) -> int | None:
    """The first of these clocks by name; None if there are none."""
    return min(np.flatnonzero(which).tolist(), key=names.__getitem__, default=None)


def hand_over(tracks: ClockTracks, heir: int, reference_ns: int, worst_ppb: float) -> ClockTracks:
    """The tracks with another clock as the reference from a reference time on.

    No clock's reference time jumps then; all go on at the pace of the heir instead.

    Parameters:
        worst_ppb: by how much hard bounds grow with age.
    """
    known = tracks.known
    before = take(tracks, known)
    now = predict(before, local_at(tracks, reference_ns)[known])
    age_s = np.abs(now.as_of_ns - before.as_of_ns) / NANOSECONDS
    tracks = put(tracks, known, now._replace(hard_ns=before.hard_ns + worst_ppb * age_s))
    pace = 1 + tracks.drift_ppb[heir] / NANOSECONDS
    drift = ((1 + tracks.drift_ppb / NANOSECONDS) / pace - 1) * NANOSECONDS
    # The heir's own uncertainty is now everyone else's; correlations are not tracked, so it is added in full.
    tracks = tracks._replace(
        drift_ppb=drift,
        p00=tracks.p00 + tracks.p00[heir],
        p01=tracks.p01 + tracks.p01[heir],
        p11=tracks.p11 + tracks.p11[heir],
        lasting_ns=np.hypot(tracks.lasting_ns, tracks.lasting_ns[heir]),
        late_ns=np.hypot(tracks.late_ns, tracks.late_ns[heir]),
        hard_ns=tracks.hard_ns + tracks.hard_ns[heir],
        density=tracks.density + tracks.density[heir],
    )
    return crown(tracks.anew(), heir)


def crown(tracks: ClockTracks, reference: int) -> ClockTracks:
    """The tracks with the reference's own as it is by definition: certain, and without drift.

    What every other clock wanders against it has its own wander in it.
    """
    windows, others = max(int(tracks.windows[reference]), 1), tracks.known.copy()
    others[reference] = False
    shown = tracks.shown[others].min() if others.any() else tracks.guess[reference]
    return changed(
        tracks, reference, drift_ppb=0.0, p00=0.0, p01=0.0, p11=0.0, lasting_ns=0.0, late_ns=0.0, hard_ns=0.0,
        windows=windows, shown=shown,
    )  # fmt: skip
