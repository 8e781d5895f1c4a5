"""A leaf-spine fabric at the level of packets: the queueing delay of a probe at each link of its path.

Cross traffic on a link is bursts that arrive as a Poisson process, with exponential lengths. It is an M/M/1 queue whose
customers are bursts. So the queue that a probe meets has a closed form. It is empty with probability 1 - load, and else
exponential with mean burst / (1 - load).

The queue that the second probe of a coded pair meets follows from the first: the model lets the queue run on, burst by
burst. Each link's load goes up and down around the mean. Source: Kleinrock, Queueing Systems 1 (1975), 3.2 and 5.7.

The queue of the sending host is not on the way: a transmit stamp is taken behind it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]
    Numbers = NDArray[np.intp]

SLOT_NS = 100_000_000
"""The time for which a link keeps its load."""
_NS_PER_M = 5.0
_MOST_LOAD = 0.99
_PRIMES = np.array([73_856_093, 19_349_663, 83_492_791], np.int64)


class Fabric(msgspec.Struct, frozen=True, kw_only=True):
    """The links of the fabric and their load."""

    nics_per_leaf: int = 16
    spines: int = 16
    link_gbps: float = 100.0
    load: float = 0.8
    """Mean share of every link's time. One way only: of the links towards higher numbers."""
    one_way: bool = False
    burst_kb: float = 64.0
    """Mean length of a burst: a segmentation offload's worth."""
    steadiness: float = 8.0
    """The steadiness of a link's load: the sum of the parameters of the beta distribution that it is drawn from,
    slot by slot. At 8 and a load of 0.8 its standard deviation is 0.13."""
    switch_ns: float = 600.0
    cable_m: float = 20.0
    uneven_m: float = 3.0
    """Standard deviation of cables' lengths between leaves and spines. Both directions of a probe stream may take
    different spines, so paths are as asymmetric as in a data hall."""


class Queues:
    """Draws the waiting times of probes.

    Parameters:
        fabric: the links.
        nics: the number of NICs.
        random: the random source.
    """

    def __init__(self, fabric: Fabric, nics: int, random: np.random.Generator) -> None:
        self._fabric, self._random = fabric, random
        self.load = fabric.load
        """Mean share of every link's time, from the next slots on."""
        self.leaves = -(-nics // fabric.nics_per_leaf)
        self._up = self.leaves * fabric.spines
        self.links = 2 * self._up + nics
        """The number of links: leaf to spine, spine to leaf, leaf to NIC."""
        cables_m = fabric.cable_m + fabric.uneven_m * random.standard_normal((self.leaves, fabric.spines))
        self._cable_ns = np.maximum(cables_m, 1.0) * _NS_PER_M
        self._burst_ns = fabric.burst_kb * 8_000 / fabric.link_gbps
        self._slots = np.empty((self.links, 0))
        self._first_slot = 0

    def run(self, since_ns: int, until_ns: int) -> None:
        """Draws the links' loads for the slots of a window."""
        self._first_slot = since_ns // SLOT_NS
        count = until_ns // SLOT_NS - self._first_slot + 1
        mean, firm = self.load, self._fabric.steadiness
        if mean <= 0:
            self._slots = np.zeros((self.links, count))
        else:
            self._slots = self._random.beta(mean * firm, (1 - mean) * firm, (self.links, count)).clip(0, _MOST_LOAD)

    def spine(self, source: Numbers, destination: Numbers, entropy: Numbers) -> Numbers:
        """The spine that a five-tuple is hashed to. The way back has another five-tuple."""
        mixed = np.stack((source, destination, entropy)).astype(np.int64).T * _PRIMES
        mixed = np.bitwise_xor.reduce(mixed, axis=1)
        spine: Numbers = ((mixed ^ (mixed >> 7)) % self._fabric.spines).astype(np.intp)
        return spine

    def floor_ns(self, source: Numbers, destination: Numbers, entropy: Numbers) -> Floats:
        """The delay of a path whose queues are empty."""
        spine = self.spine(source, destination, entropy)
        start, end = source // self._fabric.nics_per_leaf, destination // self._fabric.nics_per_leaf
        far = self._cable_ns[start, spine] + self._cable_ns[end, spine] + 3 * self._fabric.switch_ns
        hosts_ns = 2 * self._fabric.cable_m * _NS_PER_M
        floor: Floats = hosts_ns + np.where(start == end, self._fabric.switch_ns, far)
        return floor

    def wait_ns(
        self, source: Numbers, destination: Numbers, entropy: Numbers, sent_ns: NDArray[np.int64], gap_ns: Floats
    ) -> tuple[Floats, Floats]:
        """The queueing delays of two probes sent `gap_ns` apart, over all the queues of their path."""
        spine, spines = self.spine(source, destination, entropy), self._fabric.spines
        start, end = source // self._fabric.nics_per_leaf, destination // self._fabric.nics_per_leaf
        slot = sent_ns // SLOT_NS - self._first_slot
        loaded = (source <= destination) | (not self._fabric.one_way)
        first, second, apart = np.zeros(len(source)), np.zeros(len(source)), gap_ns.copy()
        across = start != end
        for link, used in (
            (start * spines + spine, across),
            (self._up + end * spines + spine, across),
            (2 * self._up + destination, np.ones(len(source), np.bool_)),
        ):
            load = np.where(used & loaded, self._slots[link, slot], 0.0)
            here = self._standing(load)
            later = self._later(here, load, apart)
            first, second = first + here, second + later
            apart = np.maximum(apart + later - here, 0.0)
        return first, second

    def _standing(self, load: Floats) -> Floats:
        """The length of a queue at a random time."""
        busy = self._random.random(len(load)) < load
        return np.where(busy, self._random.exponential(self._burst_ns / (1 - load)), 0.0)

    def _later(self, standing: Floats, load: Floats, gap_ns: Floats) -> Floats:
        """The length of the queue a gap later."""
        bursts = self._random.poisson(load * gap_ns / self._burst_ns)
        at_ns, left = np.zeros(len(load)), standing.copy()
        # The times of a known number of Poisson arrivals are uniform: the next of n is the least of n.
        for number in range(int(bursts.max(initial=0))):
            coming = bursts > number
            remaining = np.maximum(bursts - number, 1)
            share = 1 - self._random.random(len(load)) ** (1 / remaining)
            passed = np.where(coming, (gap_ns - at_ns) * share, 0.0)
            at_ns += passed
            left = np.maximum(left - passed, 0.0) + np.where(
                coming, self._random.exponential(self._burst_ns, len(load)), 0.0
            )
        later: Floats = np.maximum(left - (gap_ns - at_ns), 0.0)
        return later
