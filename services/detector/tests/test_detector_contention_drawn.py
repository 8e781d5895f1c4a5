"""Contention and its lookalikes, drawn: the right verdict and link in nearly all, and no false alarm."""

from __future__ import annotations

import pytest
from drawn_fabric import drawn
from leaf_spine import nic

from draws import draws

SEEDS = draws(1)

# Each makes a case, and returns the verdict and the place; None: nothing is to be said.


def collision(it):
    """Two flows on one way up."""
    it.go(*zip(it.sources[:2], it.destinations, [it.spine] * 2, strict=False))
    return "fabric-contention", it.fabric.up(it.leaf, it.spine)


def larger_collision(it):
    """All hosts of a leaf on one way up."""
    it.go(*zip(it.sources, it.destinations, [it.spine] * 3, strict=False))
    return "fabric-contention", it.fabric.up(it.leaf, it.spine)


def own_nic(it):
    """Two flows of one host, or three; perhaps one of the others sends to it."""
    source, beside = it.sources[:2]
    pairs = [(source, it.destinations[0], it.spine), (source, it.destinations[1], it.other)]
    if it.chance.random() < 0.5:
        pairs.append((source, beside, it.spine))
    if it.chance.random() < 0.3:
        it.fabric.begin(it.destinations[0], source)
    it.go(*pairs, alone=True)
    return "own-nic", nic(source)


def incast(it):
    """Two hosts to one."""
    receiver = it.destinations[0]
    it.go((it.sources[0], receiver, it.spine), (it.sources[1], receiver, it.chance.choice((it.spine, it.other))))
    return "incast", nic(receiver)


def slow_receiver(it):
    """An application that reads slowly."""
    (flow,) = it.go((it.sources[0], it.destinations[0], it.spine), alone=False)
    if it.chance.random() < 0.5:
        it.fabric.run(2.5)
    flow.reads = it.chance.choice((10, 40))
    return "slow-receiver", flow.name


def reduced_link(it):
    """A way up that becomes slower."""
    it.go((it.sources[0], it.destinations[0], it.spine), alone=False)
    it.fabric.run(3)
    link = it.fabric.up(it.leaf, it.spine)
    it.fabric.mbps[link] *= it.chance.choice((0.2, 0.5))
    return "reduced-rate", link


def reduced_nic(it):
    """A host's own link that becomes slower, one way."""
    it.go((it.sources[0], it.destinations[0], it.spine), alone=False)
    it.fabric.run(3)
    who, side = it.chance.choice(((it.sources[0], "out"), (it.destinations[0], "in")))
    it.fabric.mbps[f"{nic(who)}/{side}"] *= it.chance.choice((0.2, 0.5))
    return "reduced-rate", nic(who)


def alone(it):
    """One flow that fills its link."""
    it.go((it.sources[0], it.destinations[0], it.spine))


def both_ways(it):
    """Two flows between two hosts, each of which fills the NIC by which the other's acknowledgements leave."""
    one, other = it.sources[0], it.destinations[0]
    it.go((one, other, it.spine), (other, one, it.spine))


def apart(it):
    """Two flows by two ways."""
    it.go((it.sources[0], it.destinations[0], it.spine), (it.sources[1], it.destinations[1], it.other))


def applications(it):
    """Two flows on one way, which want less than it carries."""
    pairs = zip(it.sources[:2], it.destinations, [it.spine] * 2, strict=False)
    it.go(*pairs, wants=it.chance.choice((5, 20, 40)))


def small_beside_large(it):
    """A flow that wants little waits in the queue of one that fills the way."""
    it.go((it.sources[0], it.destinations[0], it.spine))
    it.fabric.send_by(it.sources[1], it.destinations[1], it.spine)
    it.fabric.begin(it.sources[1], it.destinations[1], wants=it.chance.choice((1, 3, 8)))


def few_ways(it):
    """More flows than ways, and each way is full."""
    fabric = it.fabric
    ways = [*range(fabric.spines)] * 2
    for number, (source, destination) in enumerate(zip(it.sources, it.destinations, strict=True)):
        fabric.send_by(source, destination, ways[number])
        fabric.begin(source, destination)
    for spine in range(len(it.sources), fabric.spines):  # what no flow takes is gone
        fabric.mbps[fabric.up(it.leaf, spine)] = 1e-3


def noise(it):
    """Hosts that are busy, so that all delays vary."""
    it.fabric.noise_us = 300
    apart(it)


def foreign(it):
    """Others send by the same NIC."""
    it.go((it.sources[0], it.destinations[0], it.spine), alone=False)
    it.fabric.run(3)
    it.fabric.foreign[f"{nic(it.sources[0])}/out"] = 50.0


TROUBLES = (collision, larger_collision, own_nic, incast, slow_receiver, reduced_link, reduced_nic)
LOOKALIKES = (alone, both_ways, apart, applications, small_beside_large, few_ways, noise, foreign)


def said(case, seed, every=1):
    """What is to be said, what is, within how many seconds, and what is said after all flows have ended.

    Parameters:
        every: a node reports once in so many tenths of a second.
    """
    it = drawn(seed)
    if every > 1:
        it.fabric.report_every = every
        it.fabric.run(0.2 * every)
    wanted = case(it)
    begun_ns = it.fabric.now_ns
    it.fabric.run(5 if every == 1 else 2.5 + 0.4 * every)
    events = it.fabric.take()
    it.fabric.end()
    it.fabric.run(4.5 if every == 1 else 4.5 + 0.1 * every)
    after = it.fabric.take()
    took_s = [(event.at_ns - begun_ns) / 1e9 for event in events]
    return wanted, [(event.state, event.who) for event in events], took_s, [(event.state, event.who) for event in after]


@pytest.mark.parametrize("case", TROUBLES, ids=lambda case: case.__name__)
def test_troubles_are_told_by_their_names(case):
    """In 95 of 100, and within seconds: half of them within two and a half, all within five."""
    right, delays_s = 0, []
    for seed in SEEDS:
        wanted, told, took_s, after = said(case, seed)
        right += told == [wanted] and after == [("clear", wanted[1])]
        delays_s += took_s[:1]
    assert right >= 0.95 * len(SEEDS)
    assert sorted(delays_s)[len(delays_s) // 2] <= 2.5
    assert max(delays_s) <= 5


@pytest.mark.parametrize("case", LOOKALIKES, ids=lambda case: case.__name__)
def test_lookalikes_raise_no_alarm(case):
    """In none."""
    for seed in SEEDS:
        assert said(case, seed)[1::2] == ([], []), seed


@pytest.mark.parametrize("case", [*TROUBLES, *LOOKALIKES], ids=lambda case: case.__name__)
def test_where_nodes_report_seldom_the_same_is_said_later(case):
    """All of it, and nothing else: once in three seconds."""
    for seed in SEEDS:
        wanted, told, _, after = said(case, seed, every=30)
        assert (told, after) == (([wanted], [("clear", wanted[1])]) if wanted else ([], [])), seed
