"""Chooses a clock's neighbours: a sparse random mesh, of which every node computes its own part.

Each pair of clocks has a weight drawn from their names, so that all nodes draw the same. For each of its clocks a node
takes the pairs of least weight. It also takes those that no lighter way goes around as far as it sees. The mesh has
every pair that either end takes.

The mesh is connected wherever the peers are. No lighter way goes around an edge of the fleet's tree of least weight, so
both its ends take it. The source is Li, Hou and Sha, "Design and analysis of an MST-based topology control algorithm",
INFOCOM 2003. And the mesh is nearly
regular: beyond its own choice a clock gets only pairs that are light for the other end.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from numpy.typing import NDArray

    from foliot_probe.core.stream_table import StreamEnds, StreamKey
    from foliot_schemas import Node

    Weights = NDArray[np.float64]

NEIGHBOURS = 10
"""Clocks that each clock is measured against, at least; all, if there are no more. Huygens (NSDI '18) has as many. In a
simulation at 80 % load, errors with five were 1.7 times as large. Where all of 12, 100 or 300 nodes are peers, a clock
has 10.3, 11.6 or 11.8 in the mean, 21 at most."""
STREAMS = 4
"""Streams that measure two clocks; those in use count beyond it. The asymmetries of four paths average to half that of
one. In that simulation, errors with one were 1.6 times as large."""
_BYTES = 8
_STEPS = ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB))
_LAST = 31
"""The finaliser of splitmix64 (Steele, Lea and Flood, OOPSLA 2014): every bit of a sum of two names changes about half
of the weight's."""


class Pair(NamedTuple):
    """Two clocks, of which the first is the node's own."""

    own: str
    peer: str


def neighbours(own: Node, peers: Iterable[Node]) -> frozenset[Pair]:
    """A node's pairs with the peers that it talks to: `NEIGHBOURS` or more for each clock, if there are so many."""
    nodes = (own, *peers)
    clocks = sorted({nic.clock for node in nodes for nic in node.nics})
    number = {clock: place for place, clock in enumerate(clocks)}
    weights = np.where(_joined(nodes, number), _weights(clocks), np.inf)
    mine = sorted({number[nic.clock] for nic in own.nics})
    taken = _tree(weights, mine)
    for clock in mine:
        row = weights[clock]
        taken |= {
            (clock, int(other)) for other in np.argsort(row, kind="stable")[:NEIGHBOURS] if np.isfinite(row[other])
        }
    return frozenset(Pair(clocks[clock], clocks[other]) for clock, other in taken)


def streams(
    ends: Mapping[int, StreamEnds], pairs: frozenset[Pair], in_use: frozenset[StreamKey]
) -> dict[Pair, list[int]]:
    """The rows of the streams that measure the mesh's pairs.

    A pair has several, because each has its own asymmetry and queues, which average out. They use as many NICs as there
    are, so that a lost NIC does not part two clocks. On each NIC the first entropies come first, which both ends know.
    All streams in use count: they are probed fast in any case.
    """
    rows: dict[Pair, list[int]] = {}
    able = [(row, each) for row, each in ends.items() if (each.own_clock, each.peer_clock) in pairs]
    for row, each in sorted(able, key=lambda item: _turn(item[1])):
        chosen = rows.setdefault(Pair(each.own_clock, each.peer_clock), [])
        if len(chosen) < STREAMS or each.key in in_use:
            chosen.append(row)
    return rows


def _turn(ends: StreamEnds) -> tuple[int, bytes]:
    """The place of a stream among those of two clocks, the same at both ends.

    Each pair has its own order of rails, so that not all take the same.
    """
    name = "\n".join((*sorted((ends.own_clock, ends.peer_clock)), ends.key.rail))
    return ends.key.entropy, hashlib.blake2b(name.encode(), digest_size=_BYTES).digest()


def _weights(clocks: Iterable[str]) -> Weights:
    drawn = [int.from_bytes(hashlib.blake2b(name.encode(), digest_size=_BYTES).digest()) for name in clocks]
    names = np.array(drawn, np.uint64)
    mixed = names[:, None] + names[None, :]  # wraps
    for shift, factor in _STEPS:
        mixed = (mixed ^ (mixed >> np.uint64(shift))) * np.uint64(factor)
    weights: Weights = (mixed ^ (mixed >> np.uint64(_LAST))).astype(np.float64)
    return weights


def _joined(nodes: Sequence[Node], number: Mapping[str, int]) -> NDArray[np.bool_]:
    """Selects pairs of clocks with streams: of NICs on one rail, of nodes that talk to each other."""
    place = {node.name: index for index, node in enumerate(nodes)}
    names = np.zeros((len(nodes), len(nodes)), np.bool_)
    for index, node in enumerate(nodes):
        named = [place[name] for name in node.peers if name in place]
        names[index, named if node.peers else slice(None)] = True
    talk = names & names.T & ~np.eye(len(nodes), dtype=np.bool_)
    joined = np.zeros((len(number), len(number)), np.bool_)
    for rail in sorted({nic.rail for node in nodes for nic in node.nics}):
        on = [(index, number[nic.clock]) for index, node in enumerate(nodes) for nic in node.nics if nic.rail == rail]
        at, clock = np.array(on).T
        # Two nodes may share a clock: any of their streams joins it with a third.
        np.logical_or.at(joined, np.ix_(clock, clock), talk[np.ix_(at, at)])
    return joined & ~np.eye(len(number), dtype=np.bool_)


def _tree(weights: Weights, mine: Iterable[int]) -> set[tuple[int, int]]:
    """The edges of these clocks in the trees of least weight over all that is seen (Prim's algorithm)."""
    own = set(mine)
    taken: set[tuple[int, int]] = set()
    reached = np.zeros(len(weights), np.bool_)
    for start in sorted(own):
        if reached[start]:
            continue
        nearest, by = np.full(len(weights), np.inf), np.full(len(weights), -1)
        latest = start
        while True:
            reached[latest] = True
            closer = weights[latest] < nearest
            nearest[closer], by[closer] = weights[latest][closer], latest
            nearest[reached] = np.inf
            latest = int(nearest.argmin())
            if not np.isfinite(nearest[latest]):
                break
            end = int(by[latest])
            taken |= {(one, other) for one, other in ((end, latest), (latest, end)) if one in own}
    return taken
