"""The density of each stream's least delays, which shows whether more probes would add accuracy.

On average, the quickest probe of a window lies as far above the path's floor as the next ones lie above each other. An
offset is wrong by that much, if queues make it wrong. Half as many probes would have had every second of these delays.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from foliot import native
from foliot.columns import grown
from foliot_probe.core.measure.one_way_delay import one_way_ns
from foliot_probe.core.measure.sessions import joined

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Sequence

    from numpy.typing import NDArray

    from foliot_probe.core.measure.one_way_delay import References
    from foliot_probe.core.measure.sessions import Completed

    Floats = NDArray[np.float64]

_LEFT_OUT = 2
"""Least delays to leave out, because their stamps may be wrong; sync leaves out as many."""
_GAPS = 5
"""Gaps whose mean counts, as in sync. Fewer are too noisy, and more lie where queues already delay probes."""


class DelayDensity(NamedTuple):
    """The density of each row's least delays, in its worse direction."""

    ns: Floats
    """Mean gap between the least delays; inf: too few are known."""
    halved_ns: Floats
    """The same with half as many probes."""
    heard: NDArray[np.bool_]
    """Whether any probe came through."""

    def of(self, rows: int) -> DelayDensity:
        """The same with at least so many rows. Of new rows nothing is known."""
        return DelayDensity(grown(self.ns, rows, np.inf), grown(self.halved_ns, rows, np.inf), grown(self.heard, rows))


def repeatable_ns(own: References, peers: References, usual_ns: Floats) -> Floats:
    """Returns how far apart each row's least delays lie by the noise of its stamps alone.

    As sync has measured the noisier end, or as is usual.
    """
    measured = np.maximum(own.noise_ns, peers.noise_ns)
    return np.where(measured > 0, measured, usual_ns)


def densities(
    probes: Sequence[Sequence[Completed]], wanted: NDArray[np.bool_], own: References, peers: References
) -> Generator[None, None, DelayDensity]:
    """Returns the densities of a window for the rows wanted, over a few steps of the generator.

    Parameters:
        probes: of the window, on the outgoing and on the incoming paths.
        own, peers: the references of the clocks of both ends. Delays of a row without a reference do not count.
    """
    rows = len(wanted)
    result = DelayDensity(np.zeros(rows), np.zeros(rows), np.zeros(rows, np.bool_))
    for some, sender, receiver in zip(probes, (own, peers), (peers, own), strict=True):
        done = joined(some)
        done = done.take(wanted[done.row])
        result.heard[done.row] = True
        row, delay_ns = one_way_ns(done, receiver, sender)
        gaps_ns, halved_ns = _least_gaps(row, delay_ns, rows, _LEFT_OUT, _GAPS)
        np.maximum(result.ns, gaps_ns, out=result.ns)
        np.maximum(result.halved_ns, halved_ns, out=result.halved_ns)
        yield
    return result


def least_gaps_by_numpy(
    row: NDArray[np.intp], delay_ns: NDArray[np.int64], rows: int, left_out: int, gaps: int
) -> tuple[Floats, Floats]:
    """The twin of `foliot_native.delays.least_gaps`."""
    order = np.lexsort((delay_ns, row))
    row, delay_ns = row[order], delay_ns[order]
    each, start, count = np.unique(row, return_index=True, return_counts=True)
    of_all, of_halved = np.full((2, rows), np.inf)
    for column, every in ((of_all, 1), (of_halved, 2)):
        first, last = left_out * every, (left_out + gaps) * every
        enough = count > last
        column[each[enough]] = (delay_ns[start[enough] + last] - delay_ns[start[enough] + first]) / gaps
    return of_all, of_halved


_compiled = native.compiled("delays")
_least_gaps: Callable[[NDArray[np.intp], NDArray[np.int64], int, int, int], tuple[Floats, Floats]] = (
    _compiled.least_gaps if _compiled else least_gaps_by_numpy
)
