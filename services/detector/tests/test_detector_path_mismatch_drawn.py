"""Mismatches and what looks like one, drawn: all that can be seen are found in five seconds, and none falsely."""

from __future__ import annotations

import random
from typing import NamedTuple

import pytest
from leaf_spine import LeafSpine, S
from prepared import prepared

from draws import draws

SEEDS = draws(1)
SETTLED_S, FOUND_S = 7.0, 5.0


class Drawn(NamedTuple):
    """A fabric of two leaves with what is drawn for it. The first spine's ways are narrow enough for one NIC to fill."""

    fabric: LeafSpine
    chance: random.Random
    sources: list[int]
    destinations: list[int]
    spine: int
    other: int

    def begin(self, place=0, **what):
        """Begins the flow in question between two hosts, or another one."""
        return self.fabric.begin(self.sources[place], self.destinations[place], **what)

    def fill(self, spine):
        """A flow of other hosts that fills the ways by a spine."""
        self.fabric.send_by(self.sources[1], self.destinations[1], spine)
        return self.begin(1)


def drawn(seed):
    """A fabric that has been idle for a while; the flow in question is said to go by `spine`."""
    return prepared(_drawn, seed=seed)


def _drawn(seed):
    chance = random.Random(seed)
    hosts, spines = chance.choice((2, 3)), chance.choice((2, 4))
    fabric = LeafSpine(
        2, hosts, spines, chance.choice((4, 8)), seed=seed, noise_us=chance.choice((2, 20, 100)), up_mbps=50.0,
        sweep_hz=chance.choice((1, 5)), queue_us=chance.choice((3_000, 10_000, 24_000)), only="path-mismatch",
    )  # fmt: skip
    sides = [chance.sample(range(leaf * hosts, (leaf + 1) * hosts), hosts) for leaf in (0, 1)]
    chance.shuffle(sides)
    spine, other = chance.sample(range(spines), 2)
    it = Drawn(fabric, chance, *sides, spine, other)
    fabric.send_by(it.sources[0], it.destinations[0], spine)
    fabric.send_by(it.destinations[0], it.sources[0], chance.choice((spine, other)))
    fabric.run(SETTLED_S)
    return it


# Each makes a case, and lets it last for a while.


def nic_job(it):
    """Traffic between NICs, which the hash leads elsewhere; its path is full before it begins or later."""
    if it.chance.random() < 0.5:
        it.fill(it.spine)
        it.fabric.run(3)
        it.begin(wants=it.chance.choice((10.0, 30.0)), by=it.other, acks_by=it.other, between_nics=True)
    else:
        it.begin(wants=it.chance.choice((10.0, 30.0)), by=it.other, acks_by=it.other, between_nics=True)
        it.fabric.run(3)
        it.fill(it.spine)
    return it.fabric.now_ns


def other_hash(it):
    """Traffic that Foliot has placed, and switches that hash something else."""
    it.begin(wants=it.chance.choice((10.0, 30.0)), by=it.other)
    it.fabric.run(3)
    it.fill(it.spine)
    return it.fabric.now_ns


def alone(it):
    """A flow that fills its path."""
    it.begin()


def beside(it):
    """A small flow in the queue of one that fills the path."""
    it.begin(wants=it.chance.choice((10.0, 20.0)))
    it.fill(it.spine)


def own_nic(it):
    """Two flows that leave one NIC: its queue is in no probe's delay, and here it is in all of them."""
    it.begin(wants=60.0, late_us=it.chance.choice((0.0, 8_000.0)))
    it.fabric.begin(it.sources[0], it.destinations[1], wants=60.0)


def incast(it):
    """Two flows to one NIC."""
    it.begin()
    it.fabric.begin(it.sources[1], it.destinations[0])


def slow_receiver(it):
    """Its window is shut for most of the time."""
    it.begin(reads=it.chance.choice((5.0, 20.0)), late_us=it.chance.choice((0.0, 40_000.0)))
    it.fill(it.spine)


def application(it):
    """It sends at times, and its acknowledgements wait for more."""
    flow = it.begin(wants=20.0, late_us=it.chance.choice((0.0, 40_000.0)))
    it.fill(it.spine)
    for _ in range(30):
        flow.wants = it.chance.choice((0.01, 20.0))
        it.fabric.run(it.chance.uniform(0.1, 0.8))


def in_turn(it):
    """It sends just when what fills its path pauses."""
    flow, filling = it.begin(wants=0.01), it.fill(it.spine)
    for _ in range(20):
        flow.wants, filling.wants = 0.01, None
        it.fabric.run(it.chance.uniform(0.2, 1.5))
        flow.wants, filling.wants = 40.0, 0.01
        it.fabric.run(it.chance.uniform(0.2, 0.6))


def moves(it):
    """Traffic moves to and fro; the bucket tells it up to four seconds before or one after."""
    fabric, (source, destination) = it.fabric, (it.sources[0], it.destinations[0])
    flow = it.begin(wants=20.0, by=it.spine)
    it.fill(it.spine)
    ways = [it.spine, it.other]
    for number in range(1, 7):
        to = ways[number % 2]
        first, second = (lambda: setattr(flow, "by", to)), (lambda: fabric.send_by(source, destination, to))  # noqa: B023
        if it.chance.random() < 0.5:
            first()
            fabric.run(it.chance.uniform(0.0, 1.0))
            second()
        else:
            second()
            fabric.run(it.chance.uniform(0.0, 4.0))
            first()
        fabric.run(it.chance.uniform(1.0, 9.0))


def clocks(it):
    """Clocks that are off by milliseconds, step, and are lost."""
    fabric = it.fabric
    it.begin(wants=20.0)
    for _ in range(10):
        fabric.lies_us = {}
        error_us = it.chance.uniform(-20_000, 20_000)
        fabric.lies_us = {it.destinations[0]: error_us, it.sources[0]: -error_us}
        fabric.run(it.chance.uniform(0.5, 2.5))
        fabric.bound_ns[it.chance.choice((it.sources[0], it.destinations[0]))] = it.chance.choice((-1, 500, 10_000_000))


def liar(it):
    """A receiver says of all probes that they are late."""
    it.begin(wants=20.0)
    it.fabric.lies_us[it.destinations[0]] = it.chance.uniform(2_000, 50_000)


SEEN = (nic_job, other_hash)
LOOKALIKES = (alone, beside, own_nic, incast, slow_receiver, application, in_turn, moves, clocks, liar)


@pytest.mark.parametrize("case", SEEN, ids=lambda case: case.__name__)
def test_what_can_be_seen_is_found_in_five_seconds(case):
    """All of it, and nothing else."""
    for seed in SEEDS:
        it = drawn(seed)
        begun_ns = case(it)
        it.fabric.run(FOUND_S)
        flow = next(flow for flow in it.fabric.flows if flow.by is not None)
        events = it.fabric.take("mismatch")
        assert [(event.state, event.who) for event in events] == [("elsewhere", flow.name)], seed
        assert events[0].at_ns - begun_ns <= FOUND_S * S, seed


@pytest.mark.parametrize("case", LOOKALIKES, ids=lambda case: case.__name__)
def test_nothing_else_is_a_mismatch(case):
    """In none."""
    for seed in SEEDS:
        it = drawn(seed)
        case(it)
        it.fabric.run(6)
        assert it.fabric.take("mismatch") == [], seed
