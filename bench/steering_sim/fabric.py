"""A leaf-spine fabric without a bottleneck, and the flows that jobs send over it.

Every leaf has as many spines as NICs, and all links are equally fast. So a network that could place each flow freely
would carry any permutation at full rate. Only flows between leaves are looked at: the others share no link here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias

import numpy as np

from foliot_remediator.core.steering.assignment import Flows

if TYPE_CHECKING:
    from numpy.typing import NDArray

Traffic: TypeAlias = Literal["permutation", "jobs"]
LINE_BPS = 400e9
_JOB = 32
"""NICs of a job. Half of the jobs are rings, half are all-to-all."""


@dataclass(frozen=True, slots=True)
class Fabric:
    """Leaves with as many NICs as spines.

    Attributes:
        nics: how many there are; a multiple of `width`.
        width: NICs of a leaf, and spines.
    """

    nics: int
    width: int

    @property
    def leaves(self) -> int:
        """How many there are."""
        return self.nics // self.width

    @property
    def capacity_bps(self) -> NDArray[np.float64]:
        """Of every link: those from leaves to spines, then those from spines to leaves."""
        return np.full(2 * self.leaves * self.width, LINE_BPS)

    def links(self, sources: NDArray[np.intp], sinks: NDArray[np.intp], spines: NDArray[np.intp]) -> NDArray[np.intp]:
        """The two links of each flow over each of its spines, shape (flows, ways, 2).

        Parameters:
            sources: leaf of each flow's sender, shape (flows,).
            sinks: the same of its receiver.
            spines: spine of each way, shape (flows, ways).
        """
        up = sources[:, None] * self.width + spines
        down = self.leaves * self.width + sinks[:, None] * self.width + spines
        return np.stack([up, down], axis=2)


def square(nics: int) -> Fabric:
    """A fabric with about as many leaves as spines.

    Raises:
        ValueError: it cannot be laid out so.
    """
    width = 1 << (round(np.log2(nics)) // 2)
    if nics % width:
        raise ValueError(f"{nics} NICs cannot be laid out as leaves of {width}")
    return Fabric(nics, width)


def drawn(fabric: Fabric, traffic: Traffic, entropies: int, rng: np.random.Generator) -> Flows:
    """The flows between leaves of a traffic.

    Parameters:
        fabric: where they flow.
        traffic: each NIC to another one, or jobs of NICs at any place.
        entropies: ways of each flow, each over a spine by chance, as ECMP's hash has it; 0: over every spine.
        rng: draws the traffic and the hash.
    """
    sources, sinks, demand_bps = _pairs(fabric.nics, traffic, rng)
    crossing = sources // fabric.width != sinks // fabric.width
    sources, sinks, demand_bps = sources[crossing], sinks[crossing], demand_bps[crossing]
    every = np.broadcast_to(np.arange(fabric.width), (len(sources), fabric.width))
    spines = rng.integers(fabric.width, size=(len(sources), entropies)) if entropies else rng.permuted(every, axis=1)
    ways = fabric.links(sources // fabric.width, sinks // fabric.width, spines)
    return Flows(ways, np.ones(spines.shape, bool), demand_bps)


def _pairs(
    nics: int, traffic: Traffic, rng: np.random.Generator
) -> tuple[NDArray[np.intp], NDArray[np.intp], NDArray[np.float64]]:
    """Sender and receiver of each flow, and what it would use alone, bits/s."""
    order = rng.permutation(nics)
    if traffic == "permutation":
        return order, np.roll(order, 1), np.full(nics, LINE_BPS)
    sources, sinks, demand_bps = [], [], []
    for number, job in enumerate(np.array_split(order, max(nics // _JOB, 1))):
        shifts = range(1, len(job)) if number % 2 else range(1, 2)
        for shift in shifts:
            sources.append(job)
            sinks.append(np.roll(job, -shift))
            demand_bps.append(np.full(len(job), LINE_BPS / len(shifts)))
    return np.concatenate(sources), np.concatenate(sinks), np.concatenate(demand_bps)
