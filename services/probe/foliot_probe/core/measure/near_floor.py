"""Counts the probes of each direction of a stream that came near the quickest one.

The least of many delays lies nearer to the floor than that of few. Where one direction is loaded, fewer of its probes
meet no queue. So sync has to know how many did, before pruning, to compare the two directions at an equal depth.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from foliot_probe.core.measure.sessions import Completed
    from foliot_probe.core.measure.slope_range import SlopeRange

    Counts = NDArray[np.intp]

_BENT = 1e-6
"""Where a slope is known worse, it spreads the delays of a window itself. Nothing is counted then."""
_SHARE = 0.5
"""Near is what lies within this quantile of the delays, of the direction in which that is narrower."""


def near_floor(directions: Sequence[Completed], tilt: SlopeRange) -> list[Counts]:
    """The number of probes near the quickest one, of each row of the table; 0: nobody counted. One array a direction.

    Parameters:
        directions: the probes forth, then those back, each ordered by row.
        tilt: the range of slopes of each row's line.
    """
    rows = len(tilt.least)
    clouds = [_cloud(number, probes, tilt) for number, probes in enumerate(directions)]
    width = np.minimum(*(cloud.width_ns for cloud in clouds))
    width = np.where(tilt.most - tilt.least < _BENT, width, 0.0)
    return [
        np.bincount(cloud.row[cloud.height_ns <= width[cloud.row]], minlength=rows) * (width > 0) for cloud in clouds
    ]


class _Cloud(NamedTuple):
    row: NDArray[np.intp]
    height_ns: NDArray[np.float64]
    """Of each probe, above the quickest one of its row."""
    width_ns: NDArray[np.float64]
    """Of each row of the table; 0: it has no probes."""


def _cloud(number: int, probes: Completed, tilt: SlopeRange) -> _Cloud:
    row, sent_ns, came_ns = probes.row, probes.transmit_ns, probes.receive_ns
    present, first, counts = np.unique(row, return_index=True, return_counts=True)
    place = np.repeat(np.arange(len(present)), counts)
    # By the initiator's clock, relative to the row's first probe, so that floats hold it.
    run_ns = (sent_ns - sent_ns[first][place]) if number == 0 else (came_ns[first][place] - came_ns)
    delay_ns = came_ns - sent_ns
    height = (delay_ns - delay_ns[first][place]) - ((tilt.least + tilt.most) / 2)[row] * run_ns
    order = np.lexsort((height, row))
    height = height[order]
    height -= height[first][place]
    width = np.zeros(len(tilt.least))
    width[present] = height[first + (_SHARE * counts).astype(np.intp)]
    return _Cloud(row, height, width)
