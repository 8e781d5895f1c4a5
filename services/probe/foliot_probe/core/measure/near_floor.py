"""Counts the probes of each direction of a stream that came near the quickest one.

The least of many delays lies nearer to the floor than that of few. Where one direction is loaded, fewer of its probes
meet no queue. So sync has to know how many did, before pruning, to compare the two directions at an equal depth.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from foliot import native

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from foliot_probe.core.measure.sessions import Completed
    from foliot_probe.core.measure.slope_range import SlopeRange

    Floats = NDArray[np.float64]
    Counts = NDArray[np.intp]
    Probes = tuple[NDArray[np.intp], NDArray[np.int64], NDArray[np.int64]]

_BENT = 1e-6
"""Where a slope is known worse, it spreads the delays of a window itself. Nothing is counted then."""
_SHARE = 0.5
"""Near is what lies within this quantile of the delays, of the direction in which that is narrower."""


def near_floor(directions: Sequence[Completed], tilt: SlopeRange) -> tuple[Counts, Counts]:
    """The number of probes near the quickest one, of each row of the table; 0: nobody counted. One array a direction.

    Parameters:
        directions: the probes forth, then those back, each ordered by row.
        tilt: the range of slopes of each row's line.
    """
    forth, back = ((probes.row, probes.transmit_ns, probes.receive_ns) for probes in directions)
    return _near_floor(forth, back, tilt, _BENT, _SHARE)


def near_floor_by_numpy(
    forth: Probes, back: Probes, slopes: tuple[Floats, Floats], bent: float, share: float
) -> tuple[Counts, Counts]:
    """The twin of `foliot_native.delays.near_floor`."""
    least, most = slopes
    there, again = (
        _cloud(probes, (least + most) / 2, share, back=comes) for probes, comes in ((forth, False), (back, True))
    )
    width = np.where(most - least < bent, np.minimum(there.width_ns, again.width_ns), 0.0)
    return _counted(there, width), _counted(again, width)


_compiled = native.compiled("delays")
_near_floor: Callable[[Probes, Probes, tuple[Floats, Floats], float, float], tuple[Counts, Counts]] = (
    _compiled.near_floor if _compiled else near_floor_by_numpy
)


class _Cloud(NamedTuple):
    row: NDArray[np.intp]
    height_ns: Floats
    """Of each probe, above the quickest one of its row."""
    width_ns: Floats
    """Of each row of the table; 0: it has no probes."""


def _cloud(probes: Probes, slope: Floats, share: float, *, back: bool) -> _Cloud:
    row, sent_ns, came_ns = probes
    present, first, counts = np.unique(row, return_index=True, return_counts=True)
    place = np.repeat(np.arange(len(present)), counts)
    # By the initiator's clock, relative to the row's first probe, so that floats hold it.
    run_ns = (came_ns[first][place] - came_ns) if back else (sent_ns - sent_ns[first][place])
    delay_ns = came_ns - sent_ns
    height = (delay_ns - delay_ns[first][place]) - slope[row] * run_ns
    order = np.lexsort((height, row))
    height = height[order]
    height -= height[first][place]
    width = np.zeros(len(slope))
    width[present] = height[first + (share * counts).astype(np.intp)]
    return _Cloud(row, height, width)


def _counted(cloud: _Cloud, width_ns: Floats) -> Counts:
    near = cloud.row[cloud.height_ns <= width_ns[cloud.row]]
    return np.bincount(near, minlength=len(width_ns)) * (width_ns > 0)
