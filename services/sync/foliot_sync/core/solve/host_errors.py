"""The errors that hosts' own ways of sending and stamping make, by what the nodes that probe them report.

No message states either of them: a shard measures them in the stamps of each pair of clocks. But the node that reports
a pair also says of which kind its stamps are, and the kind limits the noise that may be measured. So no single reporter
lowers the noise of a clock, neither of its own nor of a neighbour's. Nor does it make its pairs weigh more than those
that others report of the same clocks let them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from foliot_sync.core.arrays import Floats, Ints
    from foliot_sync.core.fit.pair_estimate import PairEstimates

_UNIFORM = 3**-0.5
"""The deviation of what lies anywhere up to a limit on either side of 0, over that limit."""


class HostErrors(NamedTuple):
    """Deviations in ns."""

    noise: Floats
    """Of each clock's stamps, as no single reporter can lower it: the second least of its reporters', or its only reporter's; inf: it has none."""
    pair_noise: Floats
    """The least that each pair can have: the greater of its two clocks'. Where two nodes report a clock, their lesser
    one counts: nobody can say which of them is wrong, and the other's pairs are not to pay for it."""
    lateness: Floats
    """Of each clock's offset, because its host is slow; 0: no pair shows that it is.

    A host whose processors are taken sends or receives all its probes later, for some windows. The pairs of a clock are
    then wrong to the same side by up to half of that, however many there are. In their widths it shows as an excess
    over their floors, and not in which direction. What its pairs with all neighbours but one exceed their floors by may
    be the host's; of two neighbours both count. A node that reports all pairs of its clock can hide that it is slow, as
    it can any asymmetry."""


def host_errors(pairs: PairEstimates, clocks: int) -> HostErrors:
    """The errors of all clocks and pairs."""
    noise, lesser = _noise(pairs, clocks)
    both = np.concatenate((pairs.initiator, pairs.responder)), np.concatenate((pairs.responder, pairs.initiator))
    _, excess = _second_least(*_least(*both, np.tile(pairs.excess_ns, 2), clocks), clocks)
    return HostErrors(
        noise,
        np.maximum(lesser[pairs.initiator], lesser[pairs.responder]),
        _UNIFORM * np.where(np.isfinite(excess), excess, 0.0),
    )


def _noise(pairs: PairEstimates, clocks: int) -> tuple[Floats, Floats]:
    """The noise of each clock by its reporters, see `_second_least`.

    The initiator reports a pair, and by that also tells of itself. A pair's noise is that of both ends, so that of all
    pairs of a clock the quietest is nearest to its own.
    """
    own = np.full(clocks, np.inf)
    np.minimum.at(own, pairs.initiator, pairs.noise_ns)
    reporting = np.flatnonzero(np.isfinite(own))
    clock, said = _least(pairs.responder, pairs.initiator, pairs.noise_ns, clocks)
    return _second_least(np.concatenate((clock, reporting)), np.concatenate((said, own[reporting])), clocks)


def _least(clock: Ints, other: Ints, values: Floats, clocks: int) -> tuple[Ints, Floats]:
    """Clocks, each as often as it has others, and the least value of each with that one.

    One that reports a pair in several batches is still one.
    """
    ends, place = np.unique(clock * clocks + other, return_inverse=True)
    least = np.full(len(ends), np.inf)
    np.minimum.at(least, place, values)
    return ends // clocks, least


def _second_least(clock: Ints, values: Floats, clocks: int) -> tuple[Floats, Floats]:
    """Of each clock, the second least of its values, or the only one; inf: it has none.

    Then the same, but of two the lesser.
    """
    order = np.lexsort((values, clock))
    count = np.bincount(clock, minlength=clocks)
    there = np.flatnonzero(count)
    second, lesser = np.full((2, clocks), np.inf)
    first = np.cumsum(count)[there] - count[there]
    second[there] = values[order][first + (count[there] > 1)]
    lesser[there] = values[order][first + (count[there] > 2)]
    return second, lesser
