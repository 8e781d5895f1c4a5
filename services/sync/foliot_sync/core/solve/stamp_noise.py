"""The noise of each clock's stamps, by what the nodes that probe it report of it.

No message states a noise: a shard measures it in the stamps of each pair of clocks. But the node that reports a pair
also says of which kind its stamps are, and the kind limits what may be measured. So no single reporter lowers the noise
of a clock, neither of its own nor of a neighbour's. Nor does it make its pairs weigh more than those that others report
of the same clocks let them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from foliot_sync.core.arrays import Floats
    from foliot_sync.core.fit.pair_estimate import PairEstimates


class StampNoise(NamedTuple):
    """The noise of stamps in ns, as no single reporter can lower it."""

    clocks: Floats
    """Of each clock: the second least of its reporters', or its only reporter's; inf: it has none."""
    pairs: Floats
    """The least that each pair can have: the greater of its two clocks'. Where two nodes report a clock, their lesser
    one counts: nobody can say which of them is wrong, and the other's pairs are not to pay for it."""


def stamp_noise(pairs: PairEstimates, clocks: int) -> StampNoise:
    """Returns the noise of all clocks and pairs.

    A pair's noise is that of both ends, so that of all pairs of a clock the quietest is nearest to its own. The
    initiator reports a pair.
    """
    own = np.full(clocks, np.inf)
    np.minimum.at(own, pairs.initiator, pairs.noise_ns)
    reporting = np.flatnonzero(np.isfinite(own))
    # One that reports a pair in several batches is still one reporter.
    ends, place = np.unique(pairs.responder * clocks + pairs.initiator, return_inverse=True)
    said = np.full(len(ends), np.inf)
    np.minimum.at(said, place, pairs.noise_ns)
    clock = np.concatenate((ends // clocks, reporting))
    noise = np.concatenate((said, own[reporting]))
    order = np.lexsort((noise, clock))
    count = np.bincount(clock, minlength=clocks)
    there = np.flatnonzero(count)
    found, least = np.full((2, clocks), np.inf)
    first = np.cumsum(count)[there] - count[there]
    found[there] = noise[order][first + (count[there] > 1)]
    least[there] = noise[order][first + (count[there] > 2)]
    return StampNoise(found, np.maximum(least[pairs.initiator], least[pairs.responder]))
