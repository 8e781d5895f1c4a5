"""What the fabric links carry, by the kernel's own counters at their queues, sampled ten times a second.

The counters are those of the token buckets that give the links their rates. So they count every packet's headers, and
what is full in them is full. A link has a counter for each direction.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np

from foliot_lab.fabric.link_shaping import ask_counters, counted
from foliot_lab.measure.intervals import Intervals

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from foliot_lab.fabric.fabric import Fabric
    from foliot_lab.scenario.topology import Port

SAMPLE_S = 0.1
FULL = 0.9
"""A link is full that carries this share of its rate."""
FULL_NS = 500_000_000
"""The shortest time in which it has to do so. Steps of a job have short pauses between them. A shorter pause between
two such times is none."""
QUEUED = 0.5
"""The share of samples that have to find a queue before the link. A link of the same rate as the one before it may be
as busy, and has none (measured: all samples with a queue, or at most one in seven)."""

_LEAST_SAMPLES = 6
"""Of these, as of half a second on time. Where the lab was late, two or three samples do not tell one in seven from all
of them, so a longer time is looked at."""


class Lane(NamedTuple):
    """One direction of a fabric link."""

    link: str
    way: Literal["up", "down"]
    """Up: from the leaf to the spine."""


class LinkLoads:
    """The samples of all fabric links.

    Parameters:
        clock: lab time.
    """

    def __init__(self, fabric: Fabric, clock: Callable[[], int]) -> None:
        self._fabric = fabric
        self._clock = clock
        ends: list[tuple[Lane, Port]] = []
        for trunk in fabric.plan.trunks:
            ends += [(Lane(trunk.name, "up"), trunk.near), (Lane(trunk.name, "down"), trunk.far)]
        self.lanes = tuple(lane for lane, _ in ends)
        self._columns = {port.index: column for column, (_, port) in enumerate(ends)}
        self._one_of_each = {port.owner: port for _, port in ends}
        self._samples: list[NDArray[np.int64]] = []

    def look(self) -> None:
        """Takes a sample."""
        sample = np.zeros((4, len(self.lanes)), dtype=np.int64)
        for port in self._one_of_each.values():
            at_ns = self._clock()
            for answer in self._fabric.netlink(port).dump(ask_counters()):
                found = counted(answer)
                column = None if found is None else self._columns.get(found.device)
                if found is not None and column is not None:
                    sample[:, column] = at_ns, found.sent_bytes, found.queued_bytes, found.rate_bytes
        self._samples.append(sample)

    def full(self) -> dict[Lane, Intervals]:
        """When each direction of a link was full, of those that ever were."""
        if len(self._samples) < 2:
            return {}
        table = np.stack(self._samples)
        found = {lane: full_times(table[:, :, column]) for column, lane in enumerate(self.lanes)}
        return {lane: times for lane, times in found.items() if list(times)}


def full_times(samples: NDArray[np.int64]) -> Intervals:
    """When a link was full.

    Parameters:
        samples: shape (samples, 4): lab time in ns, bytes so far, bytes queued, bytes a second that may leave.
    """
    at_ns, sent, queued, rate = samples.T
    # Of each sample, the last one that is long enough before it, with enough between them.
    before = np.searchsorted(at_ns, at_ns - FULL_NS, side="right") - 1
    before = np.minimum(before, np.arange(len(at_ns)) - (_LEAST_SAMPLES - 1))
    times = []
    for now, then in enumerate(before):
        if then < 0:
            continue
        lasted_s = (at_ns[now] - at_ns[then]) * 1e-9
        waited = queued[then : now + 1] > 0
        if sent[now] - sent[then] >= FULL * rate[now] * lasted_s and waited.mean() >= QUEUED:
            times.append((int(at_ns[then]), int(at_ns[now])))
    joined = Intervals(times).longer(FULL_NS) | Intervals()
    return Intervals((since, until - FULL_NS) for since, until in joined)
