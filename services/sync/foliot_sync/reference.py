"""Which clock sets the pace, where its time begins, and how another takes over without a jump."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from foliot_sync.history import local_at, predict
from foliot_sync.settings import NANOSECONDS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from foliot_sync.history import Tracks

RESUME_NS = NANOSECONDS
"""An anchor from before sync was restarted still holds if the host's own time is this close to it: since its last boot
whoever disciplines it moves it by less, and a boot moves it by far more."""


def elect(
    epochs: Mapping[str, int], wanted: str, anchors: Mapping[str, int], *, patient: bool
) -> tuple[str, int] | None:
    """The clock to begin with and its offset for good; None while there is none, or the wanted one may yet be heard.

    Parameters:
        epochs: of the clocks heard, CLOCK_REALTIME minus local time.
        wanted: the configured reference; empty: any.
        anchors: references of an earlier run of sync and their offsets.
        patient: whether to go on waiting for the wanted one.
    """
    for name, offset_ns in anchors.items():
        if name in epochs and abs(epochs[name] - offset_ns) <= RESUME_NS and wanted in {"", name}:
            return name, offset_ns
    if wanted in epochs:
        return wanted, epochs[wanted]
    if not epochs or (wanted and patient):
        return None
    name = min(epochs)
    return name, epochs[name]


def hand_over(tracks: Tracks, heir: int, reference_ns: int) -> Tracks:
    """The tracks with another clock as the reference from a reference time on.

    No clock's reference time jumps then; all go on at the pace of the heir instead.
    """
    known = tracks.known
    now = predict(tracks.take(known), local_at(tracks, reference_ns)[known])
    tracks = tracks.put(known, now)
    pace = 1 + tracks.drift_ppb[heir] / NANOSECONDS
    drift = ((1 + tracks.drift_ppb / NANOSECONDS) / pace - 1) * NANOSECONDS
    # The heir's own uncertainty is now everyone else's; correlations are not tracked, so it is added in full.
    tracks = tracks._replace(
        drift_ppb=drift,
        p00=tracks.p00 + tracks.p00[heir],
        p01=tracks.p01 + tracks.p01[heir],
        p11=tracks.p11 + tracks.p11[heir],
        hard_ns=tracks.hard_ns + tracks.hard_ns[heir],
        density=tracks.density + tracks.density[heir],
    )
    return crown(tracks, heir)


def crown(tracks: Tracks, reference: int) -> Tracks:
    """The tracks with the reference's own as it is by definition: certain, and without drift."""
    columns = {name: getattr(tracks, name).copy() for name in ("drift_ppb", "p00", "p01", "p11", "hard_ns", "windows")}
    for name in ("drift_ppb", "p00", "p01", "p11", "hard_ns"):
        columns[name][reference] = 0.0
    columns["windows"][reference] = np.maximum(columns["windows"][reference], 1)
    return tracks._replace(**columns)
