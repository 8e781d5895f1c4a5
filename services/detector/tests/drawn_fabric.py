"""A leaf-spine fabric that is drawn, and the hosts and ways of a case in it."""

from __future__ import annotations

import random
from typing import NamedTuple

from leaf_spine import LeafSpine
from prepared import prepared


class Drawn(NamedTuple):
    """A fabric with what is drawn for it: four hosts on two leaves, and two spines."""

    fabric: LeafSpine
    chance: random.Random
    sources: list[int]
    destinations: list[int]
    spine: int
    other: int
    leaf: int
    """Of the sources."""

    def go(self, *pairs, alone=None, **what):
        """Begins a flow for each (source, destination, spine), after each has been alone or not."""
        fabric = self.fabric
        if alone if alone is not None else self.chance.random() < 0.7:
            for source, destination, spine in pairs:
                fabric.send_by(source, destination, spine)
                flow = fabric.begin(source, destination, **what)
                fabric.run(2.5)
                fabric.end(flow)
                fabric.run(0.7)
        for source, destination, spine in pairs:
            fabric.send_by(source, destination, spine)
        return [fabric.begin(source, destination, **what) for source, destination, _ in pairs]


def drawn(seed, **what):
    """A fabric that has been idle for a second and a half."""
    return prepared(_drawn, seed=seed, **what)


def _drawn(seed, **what):
    chance = random.Random(seed)
    hosts, spines = chance.choice((2, 3)), chance.choice((2, 4))
    fabric = LeafSpine(
        chance.choice((2, 2, 3)), hosts, spines, 4, seed=seed, noise_us=chance.choice((2, 5, 20)),
        sweep_hz=chance.choice((1, 5)), queue_us=chance.choice((500, 3_000, 10_000)), **what,
    )  # fmt: skip
    fabric.run(1.5)
    one, another = chance.sample(range(fabric.leaves), 2)
    sources, destinations = (
        chance.sample(range(leaf * hosts, (leaf + 1) * hosts), hosts) for leaf in (one, another)
    )  # fmt: skip
    spine, other = chance.sample(range(spines), 2)
    return Drawn(fabric, chance, sources, destinations, spine, other, one)
