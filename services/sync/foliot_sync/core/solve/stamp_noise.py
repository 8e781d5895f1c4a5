"""The noise of each clock's stamps, by what the nodes that probe it report of it.

No message states a noise: a shard measures it in the stamps of each pair of clocks. But the node that reports a pair also says of which kind its stamps
are, and the kind limits what may be measured. So no single reporter lowers the noise of a clock, neither of its own nor of a neighbour's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from foliot_sync.core.arrays import Floats
    from foliot_sync.core.fit.pair_estimate import PairEstimates


def stamp_noise(pairs: PairEstimates, clocks: int) -> Floats:
    """Returns the noise of each clock's stamps in ns: the second least of its reporters', or its only reporter's; inf: it has none.

    A pair's noise is that of both ends, so that of all pairs of a clock the quietest is nearest to its own. The initiator reports a pair.
    """
    own = np.full(clocks, np.inf)
    np.minimum.at(own, pairs.initiator, pairs.noise_ns)
    reporting = np.flatnonzero(np.isfinite(own))
    clock = np.concatenate((pairs.responder, reporting))
    noise = np.concatenate((pairs.noise_ns, own[reporting]))
    order = np.lexsort((noise, clock))
    count = np.bincount(clock, minlength=clocks)
    there = np.flatnonzero(count)
    found = np.full(clocks, np.inf)
    first = np.cumsum(count)[there] - count[there]
    found[there] = noise[order][first + (count[there] > 1)]
    return found
